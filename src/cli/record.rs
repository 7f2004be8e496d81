//! `paperbourse record`: records a venue to a tape.

use std::process::ExitCode;

use crate::config::record::RecordArgs;
use crate::record::{self, RecordError};
use crate::telemetry::OneLine;
use crate::venue::tape::TapeError;

/// clap's exit code for a wrong command line.
const USAGE: u8 = 2;

/// Exit code when the tape has reached its maximum size.
const FULL: u8 = 4;

/// Exit code when the disk cannot be written to. A server that cannot write its journal exits with
/// the same code.
const DISK: u8 = 74;

pub(super) const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 failure; 2 wrong command line; 4 the tape is full; \
74 the disk is full or failing";

pub(super) fn run(arguments: &RecordArgs) -> ExitCode {
    match record::run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paperbourse: {}", OneLine(&error));
            match error {
                RecordError::Usage(_) => ExitCode::from(USAGE),
                RecordError::Tape(TapeError::Disk { .. }) => ExitCode::from(DISK),
                RecordError::Tape(_) => ExitCode::from(FULL),
                RecordError::Start(_) => ExitCode::FAILURE,
            }
        }
    }
}
