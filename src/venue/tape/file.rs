//! The names of the files of a tape.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use paperbourse_core::ids::Timestamp;

/// The extensions of tape files. Files without `.gz` were decompressed by hand.
const PACKED: &str = ".tape.jsonl.gz";
const UNPACKED: &str = ".tape.jsonl";

/// Number of digits in a file's number.
const NUMBER_DIGITS: usize = 6;

/// Maximum number of files in a tape.
pub const FILES_MAX: usize = 100_000;

/// The folder of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Folder {
    /// Answers of the catalogue.
    Gamma,
    /// Answers of the book service and the data API.
    Clob,
    /// Frames of the sockets, and events of the recorder.
    Ws,
}

impl Folder {
    /// All folders.
    pub const ALL: [Self; 3] = [Self::Gamma, Self::Clob, Self::Ws];

    /// Returns the folder's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gamma => "gamma",
            Self::Clob => "clob",
            Self::Ws => "ws",
        }
    }
}

/// Returns the name of a session that begins at this time.
pub(super) fn session_name(at: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(at.nanos().into())
        .expect("jiff covers all 64-bit nanosecond timestamps");
    time.strftime("%Y%m%dT%H%M%S%.3fZ").to_string()
}

/// Returns the name of a file of a session.
pub(super) fn file_name(session: &str, number: u32) -> String {
    format!("{session}-{number:0NUMBER_DIGITS$}{PACKED}")
}

/// The files of one session by folder, sorted by number.
pub(super) type SessionFiles = [Vec<PathBuf>; Folder::ALL.len()];

/// Lists all sessions of a tape by name, which is also their order in time.
pub(super) fn sessions(directory: &Path) -> io::Result<BTreeMap<String, SessionFiles>> {
    let mut sessions = BTreeMap::<String, SessionFiles>::new();
    let mut file_count = 0;
    for folder in Folder::ALL {
        let entries = match fs::read_dir(directory.join(folder.as_str())) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let path = entry?.path();
            if let Some(session) = session_of(&path) {
                let files = sessions.entry(session.to_owned()).or_default();
                files[folder as usize].push(path);
                file_count += 1;
            }
            if file_count > FILES_MAX {
                return Err(io::Error::other(format!("the tape has more than {FILES_MAX} files")));
            }
        }
    }
    for files in sessions.values_mut().flatten() {
        files.sort();
    }
    Ok(sessions)
}

/// Returns whether a file belongs to a tape, judging by its name.
pub fn is_tape_file(path: &Path) -> bool {
    session_of(path).is_some()
}

/// Returns the session of a file; `None` if the file does not belong to a tape.
fn session_of(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let stem = name.strip_suffix(PACKED).or_else(|| name.strip_suffix(UNPACKED))?;
    stem.rsplit_once('-').map(|(session, _)| session)
}

/// Returns whether a file is compressed.
pub(super) fn is_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_contain_their_session_and_sort_by_time() {
        let at = |millis: i64| session_name(Timestamp::from_millis(1_795_317_300_000 + millis));
        assert_eq!(at(123), "20261122T031500.123Z");
        assert_eq!(file_name(&at(0), 7), "20261122T031500.000Z-000007.tape.jsonl.gz");
        let names = [file_name(&at(0), 9), file_name(&at(0), 10), file_name(&at(1), 1)];
        assert!(names.is_sorted(), "{names:?}");
        for (name, session) in [
            (&*names[0], Some(&*at(0))),
            ("20261122T031500.000Z-000007.tape.jsonl", Some(&*at(0))),
            ("frames.jsonl", None),
            ("frames.jsonl.gz", None),
            ("a.tape.jsonl", None),
        ] {
            assert_eq!(session_of(Path::new(name)), session, "{name}");
        }
    }
}
