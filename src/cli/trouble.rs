//! `paperbourse trouble`: shows what the record of trouble on demand says.

mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr as _;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;

use super::{WRONG_CONFIGURATION, print_report};
use crate::config::DataPlace;
use crate::telemetry::OneLine;
use crate::trouble::{FILE_NAME, Line, RECORD_BYTES_MAX, Reader, Report};

pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 with --report, something would have cost money; 2 wrong command line, or \
the record could not be read";

/// Maximum size of a line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Below this number of bytes at its end, a record is full: a line may no longer fit.
const LEFT_BYTES_MIN: u64 = 4_096;

#[derive(Args, Debug)]
pub(super) struct TroubleArgs {
    /// Also show what would have cost money at Polymarket, and what to do instead
    #[arg(long)]
    report: bool,

    /// Data folder of the server
    #[arg(long, env = "PAPERBOURSE_DATA", default_value = "./data", value_name = "DIR",
          value_parser = record_folder)]
    data: PathBuf,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What a file says.
#[derive(Serialize, Debug)]
struct FileReport {
    #[serde(flatten)]
    report: Report,
    /// Number of lines that are no lines of a record.
    unreadable_line_count: u64,
    /// Whether the last line is incomplete: it is being written, or the server was killed.
    has_torn_end: bool,
    /// Whether the file has its maximum size, so that lines were left out.
    is_full: bool,
    /// Whether the text shows the findings.
    #[serde(skip)]
    has_findings: bool,
}

/// Parses the data folder of a server. Rejects `memory`, which has no record.
fn record_folder(text: &str) -> Result<PathBuf, &'static str> {
    match DataPlace::from_str(text)? {
        DataPlace::Folder(folder) => Ok(folder),
        DataPlace::Memory => Err("a server with --data memory keeps no record of trouble"),
    }
}

/// Shows the record. Errors have an exit code of their own, since they say nothing about the bots.
pub(super) fn run(arguments: &TroubleArgs) -> ExitCode {
    match show(arguments) {
        Ok(is_clean) if is_clean || !arguments.report => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("paperbourse: {}", OneLine(format_args!("{error:#}")));
            ExitCode::from(WRONG_CONFIGURATION)
        }
    }
}

/// Prints what the record says. Returns whether there are no findings.
fn show(arguments: &TroubleArgs) -> anyhow::Result<bool> {
    let path = arguments.data.join(FILE_NAME);
    let file = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "there is no {}: start the server with --clob on --clob-trouble PLAN, and name its \
             data folder with --data",
            path.display()
        ),
        opened => opened.with_context(|| failed(&path))?,
    };
    let mut report = read(file).with_context(|| failed(&path))?;
    let is_clean = report.report.is_clean;
    report.has_findings = arguments.report;
    if !arguments.report {
        report.report = report.report.without_findings();
    }
    print_report(&report, arguments.json)?;
    Ok(is_clean)
}

fn failed(path: &Path) -> String {
    format!("failed to read {}", path.display())
}

fn read(file: File) -> io::Result<FileReport> {
    // What a running server adds meanwhile is left out.
    let size_bytes = file.metadata()?.len();
    let mut file = BufReader::new(file).take(size_bytes);
    let mut reader = Reader::default();
    let (mut unreadable_line_count, mut has_torn_end) = (0, false);
    let mut line = Vec::new();
    while next_line(&mut file, &mut line)? {
        let is_whole = line.pop_if(|byte| *byte == b'\n').is_some();
        match serde_json::from_slice::<Line>(&line) {
            _ if !is_whole => has_torn_end = true,
            Ok(line) => reader.read(line),
            Err(_) => unreadable_line_count += 1,
        }
    }
    Ok(FileReport {
        report: reader.report(),
        unreadable_line_count,
        has_torn_end,
        is_full: size_bytes + LEFT_BYTES_MIN > RECORD_BYTES_MAX,
        has_findings: true,
    })
}

/// Reads a line, including its newline if it has one, and returns whether there was any. Only the
/// tail of a line that is too long is kept.
fn next_line(file: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut read_bytes = 0;
    loop {
        let bytes = file.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
        read_bytes += bytes;
        if bytes == 0 || line.ends_with(b"\n") {
            return Ok(read_bytes > 0);
        }
        if line.len() as u64 >= LINE_BYTES_MAX {
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_does_not_fill_the_memory() {
        let long = "x".repeat(3 * usize::try_from(LINE_BYTES_MAX).unwrap() + 10);
        let text = format!("one\n{long}\ntwo");
        let (mut file, mut line) = (text.as_bytes(), Vec::new());
        let mut lines = Vec::new();
        while next_line(&mut file, &mut line).unwrap() {
            lines.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(lines, ["one\n", "xxxxxxxxxx\n", "two"]);
        assert!(line.capacity() < 2 * usize::try_from(LINE_BYTES_MAX).unwrap());
    }
}
