//! Finds the files of a recording, and notes what is left out.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::report::{LeftOut, NotPlayable, NotPlayableFile};
use super::{FILES_MAX, FOLDERS, LoadError};
use crate::tape::is_tape_file;

/// Maximum number of files and folders that are examined.
pub const ENTRIES_MAX: usize = 200_000;

/// Maximum depth of folders in `gamma`, `clob` and `ws`, as in `ws/2026/11/28`.
pub const FOLDER_DEPTH_MAX: usize = 4;

/// The files of a recording.
#[derive(Default)]
pub(super) struct Files {
    /// The files to read, sorted by folder and name.
    pub(super) found: Vec<RecordedFile>,
    pub(super) left_out: LeftOut,
    entry_count: usize,
}

/// A file to be read.
pub(super) struct RecordedFile {
    pub(super) path: PathBuf,
    /// The path within the recording.
    pub(super) name: String,
    /// Whether each line is a value; otherwise the whole file is one.
    pub(super) has_lines: bool,
}

impl Files {
    pub(super) fn of(directory: &Path) -> Result<Self, LoadError> {
        if !directory.is_dir() {
            return Err(LoadError::NotAFolder { directory: directory.to_owned() });
        }
        let mut files = Self::default();
        let mut has_folder = false;
        let (folders, others): (Vec<PathBuf>, Vec<PathBuf>) = files
            .entries(directory, directory)?
            .into_iter()
            .partition(|path| path.is_dir() && FOLDERS.iter().any(|name| path.ends_with(name)));
        for name in FOLDERS {
            let folder = directory.join(name);
            if folders.contains(&folder) {
                has_folder = true;
                files.walk(directory, &folder, 0)?;
            }
        }
        if !has_folder {
            return Err(LoadError::NotARecording { directory: directory.to_owned() });
        }
        for path in others {
            if path.is_dir() || has_lines(&path).is_some() {
                files.leave_out(directory, &path, NotPlayable::Elsewhere);
            }
        }
        Ok(files)
    }

    /// Lists the entries of a folder, sorted by name.
    fn entries(&mut self, directory: &Path, folder: &Path) -> Result<Vec<PathBuf>, LoadError> {
        let unreadable = |source| LoadError::Unreadable { path: folder.to_owned(), source };
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            paths.push(entry.map_err(unreadable)?.path());
            self.entry_count += 1;
            if self.entry_count > ENTRIES_MAX {
                return Err(LoadError::TooManyEntries { directory: directory.to_owned() });
            }
        }
        paths.sort();
        Ok(paths)
    }

    fn walk(&mut self, directory: &Path, folder: &Path, depth: usize) -> Result<(), LoadError> {
        for path in self.entries(directory, folder)? {
            let unreadable = |source| LoadError::Unreadable { path: path.clone(), source };
            let why = match fs::metadata(&path) {
                Ok(kind) if kind.is_dir() && depth < FOLDER_DEPTH_MAX => {
                    self.walk(directory, &path, depth + 1)?;
                    continue;
                }
                Ok(kind) if kind.is_dir() => NotPlayable::Deep,
                Ok(kind) if !kind.is_file() => NotPlayable::NotAFile,
                // Part of the tape itself, not a file beside it.
                Ok(_) if is_tape_file(&path) && depth == 0 => continue,
                Ok(_) if is_tape_file(&path) => NotPlayable::OfTape,
                Ok(_) => match has_lines(&path) {
                    Some(has_lines) => {
                        let name = within(directory, &path);
                        self.found.push(RecordedFile { path, name, has_lines });
                        if self.found.len() > FILES_MAX {
                            let directory = directory.to_owned();
                            return Err(LoadError::TooManyFiles { directory });
                        }
                        continue;
                    }
                    None => NotPlayable::Ending,
                },
                // A dangling link.
                Err(error) if error.kind() == io::ErrorKind::NotFound => NotPlayable::NotAFile,
                Err(error) => return Err(unreadable(error)),
            };
            self.leave_out(directory, &path, why);
        }
        Ok(())
    }

    fn leave_out(&mut self, directory: &Path, path: &Path, why: NotPlayable) {
        let file = within(directory, path);
        self.left_out.note(NotPlayableFile { file, why });
    }
}

/// Returns the path of a file within the recording.
fn within(directory: &Path, path: &Path) -> String {
    path.strip_prefix(directory).unwrap_or(path).display().to_string()
}

/// Returns whether each line of a file is a value, judging by its extension; `None` if files with
/// this extension are not read.
fn has_lines(path: &Path) -> Option<bool> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let (_, ending) = name.rsplit_once('.')?;
    match ending {
        "json" => Some(false),
        "jsonl" | "ndjson" => Some(true),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_says_how_a_file_is_read() {
        for (name, expected) in [
            ("a.json", Some(false)),
            ("a.JSON", Some(false)),
            ("a.json.gz", Some(false)),
            ("a.jsonl", Some(true)),
            ("a.b.JsonL.GZ", Some(true)),
            ("a.ndjson", Some(true)),
            ("a.NDJSON.gz", Some(true)),
            ("json", None),
            ("a.gz", None),
            ("a.json.zst", None),
            ("a.parquet", None),
            ("a.jsonl.gz.gz", None),
            ("a.json~", None),
        ] {
            assert_eq!(has_lines(Path::new(name)), expected, "{name}");
        }
    }
}
