//! `paperbourse completions`: shell completions, generated from the definition of the command line.

use std::io::{self, Write as _};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

#[derive(Args, Debug)]
pub(super) struct CompletionsArgs {
    /// The shell that will read them
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(super) fn run(arguments: &CompletionsArgs) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut super::Cli::command(),
        "paperbourse",
        &mut script,
    );
    match io::stdout().write_all(&script) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("failed to print the completions"),
    }
}
