//! Polymarket's own Python client, unchanged, against the real server with `--clob on`. `.ci/clob`
//! installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use paperbourse_test_support::process::ServerProcess;

use super::{first_python, installed, output_of};

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The Python that `.ci/clob` installed the client for; `None` if it has not, which fails in CI.
fn python() -> Option<PathBuf> {
    let reason = "Polymarket's client is not installed (.ci/clob does it), so it was not tried";
    Some(installed("clob", reason)?.join("bin/python"))
}

/// Runs Python with these arguments against a server of its own, and returns what it printed.
#[track_caller]
fn printed(python: &Path, arguments: impl Fn(&str) -> Vec<String>) -> String {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--venue", "simulated:1", "--clob", "on", "--address-limits", "off"];
    let server = ServerProcess::start(BINARY, data.path(), &flags);
    output_of(Command::new(python).args(arguments(&format!("http://{}", server.address))))
}

#[test]
fn every_method_without_a_credential_works() {
    let Some(python) = python() else { return };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/clob/reads.py");
    let script = script.to_str().unwrap().to_owned();
    let called = printed(&python, |host| vec![script.clone(), host.to_owned()]);
    assert!(called.trim_end().parse::<usize>().unwrap() > 25, "{called}");
}

#[test]
fn the_first_example_of_the_guide_prints_a_book() {
    let Some(python) = python() else { return };
    let code = first_python(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/clob.md"));
    let output =
        printed(&python, |host| vec!["-c".into(), code.replace("http://127.0.0.1:8080", host)]);
    assert!(output.contains("'price'") && output.contains("'size'"), "{output}");
}
