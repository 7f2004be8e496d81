//! Reads tapes: the sessions of a folder one after the other, their lines in the order of their
//! numbers. Of each folder one file is open, and one line in memory.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::file::{self, Folder};
use super::line;

/// A line has at most so many bytes: the longest payload, were each of its bytes written as six.
pub const LINE_BYTES_MAX: u64 = 128 << 20;

/// Files past this many that end in the middle are counted but not named.
pub const TORN_NAMED_MAX: usize = 20;

/// A tape that is being read.
pub struct Tape {
    sessions: VecDeque<[Source; Folder::ALL.len()]>,
    /// The number that the next line of the session should have.
    number: u64,
    report: TapeReport,
}

/// What comes next.
#[derive(Debug)]
pub enum Step<'a> {
    /// So many lines are not there: a file is missing, or ends in the middle.
    Missing(u64),
    /// A line, without its end.
    Line(&'a [u8]),
}

/// What was read so far.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TapeReport {
    /// Runs of a recorder.
    pub session_count: usize,
    /// Files that were opened.
    pub file_count: usize,
    /// Lines that were read.
    pub line_count: u64,
    /// Lines that are not there.
    pub missing_count: u64,
    /// Lines that are none, or that come again.
    pub malformed_count: u64,
    /// Files that end in the middle.
    pub torn_count: usize,
    /// The first [`TORN_NAMED_MAX`] of them.
    pub torn: Vec<TornFile>,
}

/// A file that ends in the middle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TornFile {
    /// Which.
    pub path: PathBuf,
    /// How many lines of it were read.
    pub line_count: u64,
    /// What is wrong behind them.
    pub error: String,
}

/// The files of one folder of a session.
struct Source {
    files: VecDeque<PathBuf>,
    open: Option<Open>,
    /// The line that was read last, and its number until it is handed out.
    line: Vec<u8>,
    number: Option<u64>,
}

struct Open {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    line_count: u64,
}

impl Tape {
    /// The tape in this folder; `None` when there is none.
    pub fn open(directory: &Path) -> io::Result<Option<Self>> {
        let sessions = file::sessions(directory)?;
        let sessions: VecDeque<_> =
            sessions.into_values().map(|files| files.map(Source::new)).collect();
        if sessions.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { sessions, number: 1, report: TapeReport::default() }))
    }

    /// What comes next; `None` at the end.
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
                // The same number again: a copy of a file, or one of another session.
                self.report.malformed_count += 1;
                continue;
            }
            self.number += 1;
            self.report.line_count += 1;
            return Some(Step::Line(&self.sessions.front()?[index].line));
        }
    }

    /// What was read so far.
    pub fn report(&self) -> &TapeReport {
        &self.report
    }
}

impl Source {
    fn new(files: Vec<PathBuf>) -> Self {
        Self { files: files.into(), open: None, line: Vec::new(), number: None }
    }

    /// Reads the next line, if the last one was handed out.
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
                let error = io::Error::other("its last line has no end");
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
            tracing::warn!("{torn}");
            self.torn.push(torn);
        }
    }
}

impl fmt::Display for TornFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line_count, error } = self;
        write!(
            formatter,
            "{} ends in the middle, after {line_count} lines: {error}",
            path.display()
        )
    }
}

/// One line.
impl fmt::Display for TapeReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} sessions in {} files: {} lines, {} missing, {} malformed; {} files end in the \
             middle",
            self.session_count,
            self.file_count,
            self.line_count,
            self.missing_count,
            self.malformed_count,
            self.torn_count,
        )
    }
}
