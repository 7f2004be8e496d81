//! `paperbourse record`: puts what a venue says on a tape.

use std::process::ExitCode;

use crate::config::record::RecordArgs;
use crate::record::{self, RecordError};
use crate::telemetry::OneLine;
use crate::venue::tape::TapeError;

/// clap's code for a wrong command line.
const USAGE: u8 = 2;

/// The tape has reached its bound.
const FULL: u8 = 4;

/// The disk cannot be written: the code of a server whose journal cannot be.
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
