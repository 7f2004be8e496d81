//! The command line of `paperbourse`.

mod backup;
mod journal;
mod print_config;
mod record;
mod top;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde::Serialize;

use backup::BackupArgs;
use journal::JournalArgs;
use top::TopArgs;

use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::config::record::RecordArgs;
use crate::config::{ServeArgs, TokenArgs};
use crate::ids::Timestamp;
use crate::server;
use crate::telemetry::{self, OneLine};

/// Exit code for damaged files. clap uses 2 for a wrong command line.
const DAMAGED: u8 = 3;

const EXIT_CODES: &str = "Exit codes: 0 success; 1 failure; 2 wrong command line; 3 damaged files";

/// A self-hosted paper exchange for prediction markets.
#[derive(Parser, Debug)]
#[command(name = "paperbourse", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve the exchange
    Serve(Box<ServeArgs>),
    /// Print an access token of the embedded issuer
    Token(TokenArgs),
    /// Record a venue to a tape that `serve --venue recorded:DIR` plays
    #[command(after_help = record::EXIT_CODES)]
    Record(Box<RecordArgs>),
    /// Inspect a data folder, with or without a running server
    Journal(JournalArgs),
    /// Copy a data folder, with or without a running server
    ///
    /// To restore, start a server on the copy.
    #[command(after_help = EXIT_CODES)]
    Backup(BackupArgs),
    /// Show what a running server does, from its metrics
    ///
    /// In a terminal, until Ctrl-C; elsewhere, one look is printed.
    Top(TopArgs),
}

/// Parses the command line of this process and runs the command.
pub fn run() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Serve(arguments) if arguments.print_config => {
            print_config(&arguments, &matches).map(|()| ExitCode::SUCCESS)
        }
        Command::Serve(arguments) => {
            telemetry::start_logging();
            server::run(&arguments).map(|()| ExitCode::SUCCESS)
        }
        Command::Record(arguments) => {
            telemetry::start_logging();
            Ok(record::run(&arguments))
        }
        Command::Token(arguments) => print_token(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Journal(arguments) => journal::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Top(arguments) => top::run(arguments).map(|()| ExitCode::SUCCESS),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("paperbourse: {}", OneLine(format_args!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

/// Prints the configuration that a server would start with, if it is valid.
fn print_config(arguments: &ServeArgs, matches: &ArgMatches) -> anyhow::Result<()> {
    arguments.identity.config()?;
    let (name, matches) = matches.subcommand().context("no command was given")?;
    let mut commands = Cli::command();
    // Adds what subcommands inherit from the main command.
    commands.build();
    let command = commands.find_subcommand(name).context("the command is unknown")?;
    let text = print_config::text(command, matches);
    write!(io::stdout(), "{text}").context("failed to print the configuration")
}

fn print_token(arguments: &TokenArgs) -> anyhow::Result<()> {
    let issuer = EmbeddedIssuer::open(&arguments.data).with_context(|| {
        format!("failed to open the issuer's key in {}", arguments.data.display())
    })?;
    let token =
        issuer.mint(&arguments.subject, arguments.tier, arguments.expires, Timestamp::now())?;
    writeln!(std::io::stdout(), "{token}").context("failed to print the token")?;
    Ok(())
}

/// Prints a report as text or as one JSON object. A closed stdout is not an error: the caller may
/// only want the exit code.
fn print_report(report: &(impl Display + Serialize), is_json: bool) -> anyhow::Result<()> {
    let mut output = io::stdout();
    let printed = if is_json {
        writeln!(output, "{}", serde_json::to_string(report)?)
    } else {
        writeln!(output, "{report}")
    };
    match printed {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("failed to print the report"),
    }
}
