//! `paperbourse journal`: inspects a data directory, with or without a running server.

use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::{DAMAGED, EXIT_CODES, print_report};
use crate::inspect::{DumpError, InspectError, dump, stats, verify};
use crate::telemetry::OneLine;

#[derive(Args, Debug)]
pub(super) struct JournalArgs {
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Subcommand, Debug)]
enum JournalCommand {
    /// Check that a server would start on a data folder without losing anything
    #[command(after_help = EXIT_CODES)]
    Verify {
        #[command(flatten)]
        directory: Directory,

        /// Print JSON instead of text: one object, or one per line
        #[arg(long)]
        json: bool,
    },
    /// Print all records that are still there, oldest first, one per line
    #[command(after_help = EXIT_CODES)]
    Dump {
        #[command(flatten)]
        directory: Directory,

        /// Start at this position: the number at the start of each line
        #[arg(long, value_name = "POSITION", default_value_t = 1)]
        from: u64,

        /// Print JSON instead of text: one object, or one per line
        #[arg(long)]
        json: bool,
    },
    /// Print statistics about a data folder
    #[command(after_help = EXIT_CODES)]
    Stats {
        #[command(flatten)]
        directory: Directory,

        /// Print JSON instead of text: one object, or one per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
struct Directory {
    /// Data folder of the server
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run(arguments: &JournalArgs) -> anyhow::Result<ExitCode> {
    match &arguments.command {
        JournalCommand::Verify { directory, json } => match verify(&directory.directory) {
            Ok(report) => {
                print_report(&report, *json)?;
                let damaged = ExitCode::from(DAMAGED);
                Ok(if report.is_ok() { ExitCode::SUCCESS } else { damaged })
            }
            Err(error) => Ok(report(&error)),
        },
        JournalCommand::Stats { directory, json } => match stats(&directory.directory) {
            Ok(report) => {
                print_report(&report, *json)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => Ok(report(&error)),
        },
        JournalCommand::Dump { directory, from, json } => {
            let mut output = BufWriter::new(io::stdout().lock());
            let dumped = dump(&directory.directory, *from, |row| {
                if *json {
                    serde_json::to_writer(&mut output, row)?;
                    writeln!(output)
                } else {
                    writeln!(output, "{row}")
                }
            });
            let flushed = output.flush().map_err(DumpError::Output);
            match dumped.and(flushed) {
                Ok(()) => Ok(ExitCode::SUCCESS),
                // The reader closed the pipe, as `head` does.
                Err(DumpError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    Ok(ExitCode::SUCCESS)
                }
                Err(DumpError::Inspect(error)) => Ok(report(&error)),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Reports an error on stderr. The exit code says whether the files are damaged.
fn report(error: &InspectError) -> ExitCode {
    eprintln!("paperbourse: {}", OneLine(error.message()));
    if error.is_damage() { ExitCode::from(DAMAGED) } else { ExitCode::FAILURE }
}
