//! The configuration as an operator meets it: mistakes and their messages, the printed file.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod check;
mod first_steps;
mod logs;
mod mistakes;
mod printed;
mod reload;
mod trouble;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use paperbourse_test_support::process::command;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// A command of the binary in this folder, and the text of a file there that `--config` reads.
fn in_folder(folder: &Path, words: &[&str], file: Option<&str>) -> Command {
    let mut command = command(BINARY);
    command.current_dir(folder).args(words);
    if let Some(text) = file {
        fs::write(folder.join("bourse.toml"), text).unwrap();
        command.args(["--config", "bourse.toml"]);
    }
    command
}

/// What a command printed to standard error.
fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
