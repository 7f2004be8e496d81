//! Reads tapes session by session, with the lines of a session in the order of their numbers. One
//! file of each folder is open at a time, with one of its lines in memory.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::file::{self, Folder};
use super::line;

/// Maximum length of a line in bytes: the longest payload, with each byte escaped as six.
pub const LINE_BYTES_MAX: u64 = 128 << 20;

/// Maximum number of torn files named in a report.
pub const TORN_NAMED_MAX: usize = 20;

/// A reader of a tape.
pub struct Tape {
    sessions: VecDeque<[Source; Folder::ALL.len()]>,
    /// The expected number of the session's next line.
    number: u64,
    report: TapeReport,
}

/// A step of reading a tape.
#[derive(Debug)]
pub enum Step<'a> {
    /// This many lines are missing, because a file is missing or torn.
    Missing(u64),
    /// A line, without its newline.
    Line(&'a [u8]),
}

/// The totals of reading a tape.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TapeReport {
    /// Number of sessions read to their end.
    pub session_count: usize,
    /// Number of files opened.
    pub file_count: usize,
    /// Number of lines read.
    pub line_count: u64,
    /// Number of missing lines.
    pub missing_count: u64,
    /// Number of lines without a number, and of repeated lines.
    pub malformed_count: u64,
    /// Number of torn files, which end in the middle or cannot be read.
    pub torn_count: usize,
    /// The first [`TORN_NAMED_MAX`] torn files.
    pub torn: Vec<TornFile>,
}

/// A file that ends in the middle or cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The number of lines read before the damage.
    pub line_count: u64,
    /// The error after those lines.
    pub error: String,
}

/// The files of one folder of a session.
struct Source {
    files: VecDeque<PathBuf>,
    open: Option<Open>,
    /// The line read last. `number` is its number until the line is returned.
    line: Vec<u8>,
    number: Option<u64>,
}

struct Open {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    line_count: u64,
}

impl Tape {
    /// Opens the tape in this folder; `None` if there is none.
    pub fn open(directory: &Path) -> io::Result<Option<Self>> {
        let sessions = file::sessions(directory)?;
        let sessions: VecDeque<_> =
            sessions.into_values().map(|files| files.map(Source::new)).collect();
        if sessions.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { sessions, number: 1, report: TapeReport::default() }))
    }

    /// Returns the next step; `None` at the end.
    pub fn step(&mut self) -> Option<Step<'_>> {
        loop {
            let sources = self.sessions.front_mut()?;
            for source in sources.iter_mut() {
                source.fill(&mut self.report);
            }
            let earliest =
                (0..sources.len()).filter_map(|index| Some((sources[index].number?, index))).min();
            let Some((number, index)) = earliest else {
                self.sessions.pop_front();
                self.report.session_count += 1;
                self.number = 1;
                continue;
            };
            if number > self.number {
                let count = number - self.number;
                self.number = number;
                self.report.missing_count += count;
                return Some(Step::Missing(count));
            }
            self.sessions.front_mut()?[index].number = None;
            if number < self.number {
                // A repeated number: a copy of a file, or a file of another session.
                self.report.malformed_count += 1;
                continue;
            }
            self.number += 1;
            self.report.line_count += 1;
            return Some(Step::Line(&self.sessions.front()?[index].line));
        }
    }

    /// Returns the totals so far.
    pub fn report(&self) -> &TapeReport {
        &self.report
    }
}

impl Source {
    fn new(files: Vec<PathBuf>) -> Self {
        Self { files: files.into(), open: None, line: Vec::new(), number: None }
    }

    /// Reads the next line once the previous one has been returned.
    fn fill(&mut self, report: &mut TapeReport) {
        while self.number.is_none() {
            if self.open.is_none() {
                let Some(path) = self.files.pop_front() else { return };
                report.file_count += 1;
                match File::open(&path) {
                    Ok(file) => self.open = Some(Open::new(path, file)),
                    Err(error) => report.note_torn(path, 0, &error),
                }
                continue;
            }
            self.read_line(report);
        }
    }

    fn read_line(&mut self, report: &mut TapeReport) {
        let Some(mut open) = self.open.take() else { return };
        self.line.clear();
        match (&mut open.reader).take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line) {
            Ok(0) => {}
            Ok(_) if self.line.last() == Some(&b'\n') => {
                self.line.pop();
                open.line_count += 1;
                self.number = line::number(&self.line);
                report.malformed_count += u64::from(self.number.is_none());
                self.open = Some(open);
            }
            Ok(_) => {
                let error = io::Error::other("the last line has no newline");
                report.note_torn(open.path, open.line_count, &error);
            }
            Err(error) => report.note_torn(open.path, open.line_count, &error),
        }
    }
}

impl Open {
    fn new(path: PathBuf, file: File) -> Self {
        let file = BufReader::new(file);
        let reader: Box<dyn BufRead + Send> = if file::is_packed(&path) {
            Box::new(BufReader::new(MultiGzDecoder::new(file)))
        } else {
            Box::new(file)
        };
        Self { path, reader, line_count: 0 }
    }
}

impl TapeReport {
    fn note_torn(&mut self, path: PathBuf, line_count: u64, error: &io::Error) {
        self.torn_count += 1;
        if self.torn.len() < TORN_NAMED_MAX {
            let torn = TornFile { path, line_count, error: error.to_string() };
            tracing::warn!(
                path = %torn.path.display(),
                lines = line_count,
                error = torn.error,
                "tape file torn"
            );
            self.torn.push(torn);
        }
    }
}

impl fmt::Display for TornFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line_count, error } = self;
        write!(formatter, "{} is torn after {line_count} lines: {error}", path.display())
    }
}

impl fmt::Display for TapeReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} sessions in {} files: {} lines, {} missing, {} malformed; {} torn files",
            self.session_count,
            self.file_count,
            self.line_count,
            self.missing_count,
            self.malformed_count,
            self.torn_count,
        )
    }
}
