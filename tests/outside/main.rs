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
mod schemathesis;
mod sdk;

use std::path::{Path, PathBuf};
use std::process::Command;

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
