//! `paperbourse man`: manual pages, generated from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man;

#[derive(Args, Debug)]
pub(super) struct ManArgs {
    /// The command, such as `serve` or `journal dump`; all of paperbourse if there is none
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,

    /// Write the pages of all commands into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    out: Option<PathBuf>,
}

pub(super) fn run(arguments: &ManArgs) -> anyhow::Result<()> {
    let mut root = super::Cli::command();
    root.build();
    match &arguments.out {
        Some(folder) => {
            fs::create_dir_all(folder)
                .with_context(|| format!("failed to create {}", folder.display()))?;
            write_all(&root, folder)
        }
        None => print(&root, &arguments.command),
    }
}

/// Prints the page of the command at this path, such as `journal dump`.
fn print(root: &Command, path: &[String]) -> anyhow::Result<()> {
    let mut command = root;
    for name in path {
        let Some(found) = command.find_subcommand(name) else {
            bail!("{} has no command {name}", command.get_bin_name().unwrap_or("paperbourse"));
        };
        command = found;
    }
    match page(command, &mut io::stdout()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context("failed to print the page"),
    }
}

/// Writes the pages of this command and of all its subcommands.
fn write_all(command: &Command, folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(Man::new(command.clone()).get_filename());
    let mut text = Vec::new();
    page(command, &mut text).context("failed to make a page")?;
    fs::write(&path, text).with_context(|| format!("failed to write {}", path.display()))?;
    let is_shown = |command: &&Command| command.get_name() != "help";
    command.get_subcommands().filter(is_shown).try_for_each(|command| write_all(command, folder))
}

fn page(command: &Command, to: &mut impl Write) -> io::Result<()> {
    Man::new(command.clone()).render(to)
}
