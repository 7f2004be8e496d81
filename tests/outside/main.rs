//! What nobody here wrote, against the whole program: a browser, the official SDK, Polymarket's
//! client, libraries for sockets, and tools that read the description of the API. The scripts in
//! `.ci` that have these names install them. One binary, since some of them wait while others keep
//! the processors busy.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod browser;
mod clients;
mod clob;
mod clob_bots;
mod clob_trouble;
mod examples;
mod schemathesis;
mod sdk;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde::de::DeserializeOwned;

/// The folder into which the script of this name in `.ci` installs; `None` if it has not run, which
/// fails in CI with this reason.
fn installed(name: &str, reason: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join(name);
    if folder.join("installed").exists() {
        return Some(folder);
    }
    skip(reason);
    None
}

/// Says why something was not tried. Fails in CI, where everything is.
fn skip(reason: &str) {
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{reason}");
    eprintln!("SKIPPED: {reason}");
}

/// Runs a program that must succeed, and returns what it printed.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    let ran = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let output = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{output}\n{}", String::from_utf8_lossy(&ran.stderr));
    output
}

/// A running script that says lines and is told lines. It is killed when this is dropped.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn start(command: &mut Command) -> Self {
        let command = command.env("PYTHONDONTWRITEBYTECODE", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, input, output }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The next line; empty if the script has ended.
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line
    }

    /// The next line, which is JSON.
    #[track_caller]
    fn json<T: DeserializeOwned>(&mut self) -> T {
        let line = self.line();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// Returns the first block of Python in this page.
fn first_python(page: &Path) -> String {
    blocks_of_python(page).swap_remove(0)
}

/// Returns the blocks of Python in this page.
fn blocks_of_python(page: &Path) -> Vec<String> {
    let page = std::fs::read_to_string(page).unwrap();
    let blocks = page.split("```python\n").skip(1);
    blocks.map(|block| block.split_once("\n```\n").unwrap().0.to_owned()).collect()
}
