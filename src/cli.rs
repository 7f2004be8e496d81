//! The command line: what `paperbourse` can be told to do.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::config::{ServeArgs, TokenArgs};
use crate::ids::Timestamp;
use crate::{server, telemetry};

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
    /// Print an access token of the embedded issuer, and nothing else
    Token(TokenArgs),
}

/// Does what the command line says.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(arguments) => {
            telemetry::start_logging();
            server::run(&arguments)
        }
        Command::Token(arguments) => print_token(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paperbourse: {error:#}");
            ExitCode::FAILURE
        }
    }
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
