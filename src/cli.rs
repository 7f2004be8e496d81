//! The command line of `paperbourse`.

mod account;
mod backup;
#[cfg(feature = "cluster")]
mod cluster;
mod completions;
mod doctor;
mod health;
mod journal;
mod man;
mod record;
mod restore;
mod top;
mod trouble;

use std::env;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{ArgMatches, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use serde::Serialize;

use account::AccountArgs;
use backup::BackupArgs;
use completions::CompletionsArgs;
use doctor::DoctorArgs;
use health::HealthArgs;
use journal::JournalArgs;
use man::ManArgs;
use restore::RestoreArgs;
use top::TopArgs;
use trouble::TroubleArgs;

use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::build::{VERSION_LINE, VERSION_LINES};
use crate::config::record::RecordArgs;
use crate::config::sources::{Configuration, Mistakes, Sources, without_variables};
use crate::config::{ServeArgs, TokenArgs};
use crate::ids::Timestamp;
use crate::server;
use crate::server::check::Verdict;
use crate::telemetry::OneLine;

/// Exit code for a wrong configuration. clap exits with the same code for a wrong command line.
const WRONG_CONFIGURATION: u8 = 2;

/// Exit code for damaged files.
const DAMAGED: u8 = 3;

#[cfg(not(feature = "cluster"))]
const SERVE_EXIT_CODES: &str = "Exit codes: 0 success; 1 failure; 2 wrong configuration; 74 the \
                                journal could not be written";

#[cfg(feature = "cluster")]
const SERVE_EXIT_CODES: &str = "Exit codes: 0 success; 1 failure; 2 wrong configuration; 74 the \
                                journal could not be written; 75 lost the cluster's log: start \
                                it again";

const CHECK_EXIT_CODES: &str =
    "Exit codes: 0 a start would succeed; 1 it would fail; 2 wrong configuration";

const SHORT_HELP_END: &str = "`--help` lists all options, in groups. Each is also an environment \
                              variable and a name in the file of --config";

const EXIT_CODES: &str = "Exit codes: 0 success; 1 failure; 2 wrong command line; 3 damaged files";

/// A self-hosted paper exchange for prediction markets.
#[derive(Parser, Debug)]
#[command(
    name = "paperbourse",
    version = VERSION_LINE.as_str(),
    long_version = VERSION_LINES.as_str(),
    about,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Serve the exchange
    #[command(after_help = SHORT_HELP_END, after_long_help = SERVE_EXIT_CODES)]
    Serve(Box<ServeLine>),
    /// Check whether `serve` would start with these options, without serving or changing anything
    ///
    /// For a live venue it only checks that the services answer; `paperbourse doctor` checks what
    /// they answer.
    #[command(after_help = SHORT_HELP_END, after_long_help = CHECK_EXIT_CODES)]
    Check(Box<ServeArgs>),
    /// Check that Polymarket still behaves as the live connector expects
    ///
    /// Only reads, takes less than a minute and sends fewer than 200 requests. Prints each
    /// assumption, what depends on it, what was observed, and whether it holds.
    #[command(after_help = doctor::EXIT_CODES)]
    Doctor(Box<DoctorArgs>),
    /// Print an access token of the embedded issuer
    Token(TokenArgs),
    /// Record a live venue to a tape that `serve --venue recorded:DIR` plays
    #[command(
        after_help = record::EXIT_CODES,
        mut_arg("venue", |venue| venue.default_value("polymarket").help("The live venue")),
        mut_arg("venue_speed", |speed| speed.hide(true)),
        mut_arg("venue_delay", |delay| delay.hide(true)),
    )]
    Record(Box<RecordArgs>),
    /// Inspect and manage the accounts of a running server
    ///
    /// Run it on the server's machine and as its user: it uses a socket in the data folder.
    Account(AccountArgs),
    /// Inspect a data folder, with or without a running server
    Journal(JournalArgs),
    /// Copy a data folder, or add it to a repository of backups, with or without a running server
    ///
    /// To restore a copy, start a server on it. `restore` makes a data folder from a repository.
    #[command(after_help = EXIT_CODES)]
    Backup(BackupArgs),
    /// Restore an earlier state into a new data folder, from a data folder or a backup repository
    ///
    /// Nothing in the original changes; start a server on the new folder.
    #[command(after_help = EXIT_CODES)]
    Restore(RestoreArgs),
    /// Set up and inspect the brokers that carry replicated logs
    #[cfg(feature = "cluster")]
    #[command(after_help = cluster::EXIT_CODES)]
    Cluster(cluster::ClusterArgs),
    /// Show what a running server does, from its metrics
    ///
    /// Refreshes until Ctrl-C in a terminal; prints once otherwise.
    Top(TopArgs),
    /// Show what trouble on demand clients met, and what they did that would have cost money
    ///
    /// Reads the record that a server with --clob-trouble keeps in its data folder. The server may
    /// be running or stopped.
    #[command(after_help = trouble::EXIT_CODES)]
    Trouble(TroubleArgs),
    /// Ask a running server whether it is ready; the exit code is 0 if it is
    Health(HealthArgs),
    /// Print a manual page: `paperbourse man serve | man -l -`
    Man(ManArgs),
    /// Print completions for a shell: `source <(paperbourse completions bash)`
    Completions(CompletionsArgs),
}

#[derive(Args, Debug)]
struct ServeLine {
    #[command(flatten)]
    arguments: ServeArgs,

    /// Print the resulting configuration as a file for --config, and exit; a secret is shown as its
    /// file name only
    #[arg(long, help_heading = None::<&str>)]
    print_config: bool,

    /// Take over from the server that runs on this data folder: it finishes its requests and ends,
    /// and its clients only notice a pause
    #[arg(long, help_heading = None::<&str>)]
    take_over: bool,
}

/// Parses the command line of this process and runs the command.
pub fn run() -> ExitCode {
    let matches = parse(env::args_os().collect());
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        Command::Serve(line) => serve(&line, &matches),
        Command::Check(_) => check(&matches),
        Command::Doctor(arguments) => Ok(doctor::run(&arguments)),
        Command::Record(arguments) => {
            arguments.logs.start();
            Ok(record::run(&arguments))
        }
        Command::Token(arguments) => print_token(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Account(arguments) => account::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Journal(arguments) => journal::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        #[cfg(feature = "cluster")]
        Command::Cluster(arguments) => cluster::run(arguments),
        Command::Top(arguments) => top::run(arguments).map(|()| ExitCode::SUCCESS),
        Command::Trouble(arguments) => Ok(trouble::run(&arguments)),
        Command::Health(arguments) => health::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Man(arguments) => man::run(&arguments).map(|()| ExitCode::SUCCESS),
        Command::Completions(arguments) => completions::run(&arguments).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        if let Some(Mistakes(lines)) = error.downcast_ref::<Mistakes>() {
            for line in lines {
                eprintln!("paperbourse: {}", OneLine(line));
            }
            return ExitCode::from(WRONG_CONFIGURATION);
        }
        eprintln!("paperbourse: {}", OneLine(format_args!("{error:#}")));
        ExitCode::FAILURE
    })
}

/// Parses the command line. [`Sources`] reads the environment variables of `serve` and `check`
/// later.
fn parse(words: Vec<OsString>) -> ArgMatches {
    let command = Cli::command()
        .mut_subcommand("serve", without_variables)
        .mut_subcommand("check", without_variables);
    command.try_get_matches_from(&words).unwrap_or_else(|error| match error.kind() {
        // The help lists the environment variables, so it needs the unmodified command.
        ErrorKind::DisplayHelp => Cli::command().get_matches_from(words),
        _ => error.exit(),
    })
}

/// Reads the configuration from the subcommand's flags, the environment and the file of --config.
fn configuration(matches: &ArgMatches) -> anyhow::Result<Configuration> {
    let (_, matches) = matches.subcommand().context("no command was given")?;
    Ok(Sources::new(matches, env::vars_os()).read()?)
}

fn check(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let configuration = configuration(matches)?;
    let mut code = ExitCode::SUCCESS;
    // A closed stdout is not an error: the caller may only want the exit code.
    let print = |line: &dyn Display| drop(writeln!(io::stdout(), "{}", OneLine(line)));
    print(&"ok      options   they fit together");
    for name in &configuration.unknown_variables {
        print(&format_args!(
            "warning options   {name} is not an option and is ignored: check the spelling"
        ));
    }
    server::check::check(&configuration.arguments, |finding| {
        if finding.verdict == Verdict::Failed {
            code = ExitCode::FAILURE;
        }
        print(&finding);
    })?;
    Ok(code)
}

fn serve(line: &ServeLine, matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let configuration = configuration(matches)?;
    if line.print_config {
        write!(io::stdout(), "{configuration}").context("failed to print the configuration")?;
    } else {
        configuration.arguments.logs.start();
        server::run(&configuration, line.take_over)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_token(arguments: &TokenArgs) -> anyhow::Result<()> {
    let TokenArgs { subject, tier, expires, data } = arguments;
    // If the key cannot be read, `open` reports it in the next step.
    let is_new = matches!(EmbeddedIssuer::open_existing(data), Ok(None));
    let issuer = EmbeddedIssuer::open(data)
        .with_context(|| format!("failed to open the issuer's key in {}", data.display()))?;
    let token = issuer.mint(subject, *tier, *expires, Timestamp::now())?;
    if is_new {
        let folder = data.canonicalize().unwrap_or_else(|_| data.clone());
        eprintln!(
            "paperbourse: {} had no signing key, so one was made: only a server with this folder \
             as --data or --issuer-data accepts the token. For a server with another folder, name \
             that with --data",
            OneLine(folder.display())
        );
    }
    writeln!(io::stdout(), "{token}").context("failed to print the token")
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
