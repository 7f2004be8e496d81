//! What the server does against what its own document says: Schemathesis sends what the document
//! allows and forbids, and follows its links; a client that is generated from it trades.
//! `.ci/schemathesis` installs both.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "the tests of HTTP use more of it")]
#[path = "../http/recording.rs"]
mod recording;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use paperbourse::http::operations::OPERATIONS;
use paperbourse_test_support::process::{ServerProcess, command};
use paperbourse_test_support::{Connection, Request};
use tempfile::TempDir;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// How many cases to try for each operation, and scenarios of linked ones.
const EXAMPLES: &str = "3";
/// Set to a number to try more.
const EXAMPLES_VARIABLE: &str = "PAPERBOURSE_SCHEMATHESIS_EXAMPLES";

/// What links and known markets must reach even in a short run.
const REACHED: [&str; 8] = [
    "POST /v1/keys/bootstrap 201",
    "newcomer's trade 200",
    "POST /trade 200",
    "POST /v1/orders 200",
    "POST /trades/{order_id}/comments 200",
    "DELETE /comments/{comment_id} 200",
    "GET /v1/orders/{order_id} 200",
    "GET /v1/markets/{condition_id}/book 200",
];

/// A server, and the folder that holds its data.
struct Server {
    process: ServerProcess,
    data: TempDir,
}

impl Server {
    fn start(venue: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let tiers = "free=unlimited/unlimited/2/5,pro=unlimited/unlimited/10/20,\
                     enterprise=unlimited/unlimited/50/50";
        let flags = ["--venue", venue, "--tier", tiers, "--address-limits", "off"];
        let flags = [&flags[..], &["--key-rate", "unlimited"]].concat();
        Self { process: ServerProcess::start(BINARY, data.path(), &flags), data }
    }

    fn url(&self) -> String {
        format!("http://{}", self.process.address)
    }

    /// The key of a new account.
    fn key(&self) -> String {
        let mut minting = command(BINARY);
        let minted = minting.args(["token", "--subject", "client", "--data"]).arg(self.data.path());
        let token = String::from_utf8(minted.output().unwrap().stdout).unwrap();
        let request = Request::post("/v1/keys/bootstrap", &serde_json::json!({}));
        let request = request.bearer(token.trim_end());
        let answer = Connection::open(self.process.address).send(&request);
        answer.json()["raw_key"].as_str().unwrap().to_owned()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/schemathesis")
}

/// The folder of the programs that `.ci/schemathesis` installed; `None` if it did not, which fails
/// in CI.
fn programs() -> Option<PathBuf> {
    let installed = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("schemathesis");
    if installed.join("installed").exists() {
        return Some(installed.join("bin"));
    }
    let reason = "Schemathesis is not installed (.ci/schemathesis does it), so nothing was tried";
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{reason}");
    eprintln!("SKIPPED: {reason}");
    None
}

/// Runs the program and returns what it printed.
#[track_caller]
fn run(command: &mut Command) -> String {
    let ended = command.env("PYTHONDONTWRITEBYTECODE", "1").output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{output}\n{}", String::from_utf8_lossy(&ended.stderr));
    output
}

#[track_caller]
fn check(venue: &str) {
    let Some(programs) = programs() else { return };
    let chosen = std::env::var(EXAMPLES_VARIABLE);
    let examples = chosen.as_deref().unwrap_or(EXAMPLES);
    let server = Server::start(venue);
    let work = tempfile::tempdir().unwrap();
    let answers = work.path().join("answers.json");
    let mut schemathesis = Command::new(programs.join("schemathesis"));
    schemathesis
        .arg("--config-file")
        .arg(folder().join("schemathesis.toml"))
        .args(["run", &format!("{}/openapi.json", server.url())])
        .args(["--seed", "1", "--max-examples", examples, "--checks", "all", "--mode", "all"])
        .current_dir(work.path())
        .env("PYTHONPATH", folder())
        .env("PAPERBOURSE_URL", server.url())
        .env("PAPERBOURSE_BINARY", BINARY)
        .env("PAPERBOURSE_FOLDER", server.data.path())
        .env("PAPERBOURSE_ANSWERS", &answers);
    if chosen.is_err() {
        // The values at the limits of each parameter are thousands of cases.
        schemathesis.args(["--phases", "fuzzing,stateful"]);
    }
    println!("{}", run(&mut schemathesis));
    let answers = std::fs::read(answers).unwrap();
    let answers: BTreeMap<String, u64> = serde_json::from_slice(&answers).unwrap();
    let total: u64 = answers.values().sum();
    println!("{total} answers on {venue}: {answers:#?}");
    assert!(total > 200, "{total}");
    let missed: Vec<&str> =
        REACHED.into_iter().filter(|answer| !answers.contains_key(*answer)).collect();
    assert!(missed.is_empty(), "never answered: {missed:?}");
    if chosen.is_ok() {
        for operation in &OPERATIONS {
            let name = format!("{operation:?} 20");
            let is_endless = name.contains("/ws/") || name.contains("/stream");
            let has_succeeded = answers.keys().any(|answer| answer.starts_with(&name));
            assert!(has_succeeded || is_endless, "{operation:?} never succeeded");
        }
    }
}

#[test]
fn a_simulated_venue_keeps_to_the_document() {
    check("simulated:1");
}

#[test]
fn a_recorded_venue_keeps_to_the_document() {
    let folder = tempfile::tempdir().unwrap();
    recording::write(folder.path());
    check(&format!("recorded:{}", folder.path().display()));
}

#[test]
fn a_generated_client_trades() {
    let Some(programs) = programs() else { return };
    let server = Server::start("simulated:1");
    let work = tempfile::tempdir().unwrap();
    let mut generator = Command::new(programs.join("openapi-python-client"));
    // It calls a formatter, which is installed beside it.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = [programs.clone()].into_iter().chain(std::env::split_paths(&path));
    generator
        .env("PATH", std::env::join_paths(path).unwrap())
        .args(["generate", "--meta", "none", "--fail-on-warning"])
        .args(["--url", &format!("{}/openapi.json", server.url())])
        .arg("--output-path")
        .arg(work.path().join("generated"));
    run(&mut generator);
    let mut client = Command::new(programs.join("python"));
    client.arg(folder().join("client.py")).arg(work.path()).arg(server.key());
    run(client.env("PAPERBOURSE_URL", server.url()));
}
