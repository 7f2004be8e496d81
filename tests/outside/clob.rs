//! Polymarket's own Python client, unchanged, against the real server with `--clob on`. `.ci/clob`
//! installs it.

use std::path::{Path, PathBuf};
use std::process::Command;

use paperbourse_test_support::process::ServerProcess;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The Python that `.ci/clob` installed the client for; `None` if it has not, which fails in CI.
fn python() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clob");
    if installed.join("installed").exists() {
        return Some(installed.join("bin/python"));
    }
    let reason = "Polymarket's client is not installed (.ci/clob does it), so it was not tried";
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{reason}");
    eprintln!("SKIPPED: {reason}");
    None
}

/// Runs Python with these arguments against a server of its own, and returns what it printed.
#[track_caller]
fn printed(python: &Path, arguments: impl Fn(&str) -> Vec<String>) -> String {
    let data = tempfile::tempdir().unwrap();
    let flags = ["--venue", "simulated:1", "--clob", "on", "--address-limits", "off"];
    let server = ServerProcess::start(BINARY, data.path(), &flags);
    let ran = Command::new(python)
        .args(arguments(&format!("http://{}", server.address)))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .unwrap();
    let output = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{output}\n{}", String::from_utf8_lossy(&ran.stderr));
    output
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
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/clob.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, block) = page.split_once("\n```python\n").or(page.split_once("```python\n")).unwrap();
    let (code, _) = block.split_once("\n```\n").unwrap();
    let output =
        printed(&python, |host| vec!["-c".into(), code.replace("http://127.0.0.1:8080", host)]);
    assert!(output.contains("'price'") && output.contains("'size'"), "{output}");
}
