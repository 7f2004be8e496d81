//! What the server does against what its own document says: Schemathesis sends what the document
//! allows and forbids, and follows its links; a client that is generated from it trades.
//! `.ci/schemathesis` installs both.

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

use super::{installed, output_of};

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// How many cases to try for each operation, and scenarios of linked ones.
const EXAMPLES: &str = "3";
/// Set to a number to try more.
const EXAMPLES_VARIABLE: &str = "PAPERBOURSE_SCHEMATHESIS_EXAMPLES";

/// With how many seeds to follow links until they have reached everything.
const SEEDS_MAX: u32 = 20;

/// The most models in a generated client, one file each. Schemas that are not shared by name would
/// make over a thousand.
const GENERATED_MODELS_MAX: usize = 300;

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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/schemathesis")
}

/// The folder of the programs that `.ci/schemathesis` installed; `None` if it did not, which fails
/// in CI.
fn programs() -> Option<PathBuf> {
    let reason = "Schemathesis is not installed (.ci/schemathesis does it), so nothing was tried";
    Some(installed("schemathesis", reason)?.join("bin"))
}

/// How many answers there were, by operation and status.
type Answers = BTreeMap<String, u64>;

/// Runs Schemathesis against a server, and adds the answers that it got.
#[track_caller]
fn try_out(programs: &Path, server: &Server, seed: u32, options: &[&str], answers: &mut Answers) {
    let work = tempfile::tempdir().unwrap();
    let counted = work.path().join("answers.json");
    let mut schemathesis = Command::new(programs.join("schemathesis"));
    schemathesis
        .arg("--config-file")
        .arg(folder().join("schemathesis.toml"))
        .args(["run", &format!("{}/openapi.json", server.url())])
        .args(["--seed", &seed.to_string(), "--checks", "all", "--mode", "all"])
        .args(options)
        .current_dir(work.path())
        .env("PYTHONPATH", folder())
        .env("PAPERBOURSE_URL", server.url())
        .env("PAPERBOURSE_BINARY", BINARY)
        .env("PAPERBOURSE_FOLDER", server.data.path())
        .env("PAPERBOURSE_ANSWERS", &counted);
    println!("{}", output_of(&mut schemathesis));
    let counted: Answers = serde_json::from_slice(&std::fs::read(counted).unwrap()).unwrap();
    for (answer, count) in counted {
        *answers.entry(answer).or_default() += count;
    }
}

/// What should have been answered by now, and was not.
fn missed(answers: &Answers, is_long: bool) -> Vec<String> {
    let mut missed: Vec<String> = REACHED.map(str::to_owned).into();
    missed.retain(|answer| !answers.contains_key(answer));
    if is_long {
        let names = OPERATIONS.iter().map(|operation| format!("{operation:?} 20"));
        missed.extend(names.filter(|name| {
            let is_endless = name.contains("/ws/") || name.contains("/stream");
            // Schemathesis reads the document before, and the orders that it cancels have filled.
            let is_elsewhere =
                name.contains("/openapi.json") || name.starts_with("DELETE /v1/orders/");
            !is_endless && !is_elsewhere && !answers.keys().any(|answer| answer.starts_with(name))
        }));
    }
    missed
}

#[track_caller]
fn check(venue: &str) {
    let Some(programs) = programs() else { return };
    let chosen = std::env::var(EXAMPLES_VARIABLE).ok();
    let examples = ["--max-examples", chosen.as_deref().unwrap_or(EXAMPLES)];
    // The values at the limits of each parameter are thousands of cases.
    let phases: &[&str] = if chosen.is_some() { &[] } else { &["--phases", "fuzzing,stateful"] };
    let server = Server::start(venue);
    let mut answers = Answers::new();
    try_out(&programs, &server, 1, &[&examples, phases].concat(), &mut answers);
    // Which links are followed is a matter of luck.
    for seed in 2..=SEEDS_MAX {
        if missed(&answers, chosen.is_some()).is_empty() {
            break;
        }
        let options = [&examples[..], &["--phases", "stateful"]].concat();
        try_out(&programs, &server, seed, &options, &mut answers);
    }
    let total: u64 = answers.values().sum();
    println!("{total} answers on {venue}: {answers:#?}");
    assert!(total > 200, "{total}");
    let missed = missed(&answers, chosen.is_some());
    assert!(missed.is_empty(), "never answered: {missed:?}");
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
    output_of(&mut generator);
    let models = std::fs::read_dir(work.path().join("generated/models")).unwrap().count();
    assert!(models <= GENERATED_MODELS_MAX, "{models} models: name the schemas they share");
    let mut client = Command::new(programs.join("python"));
    client.arg(folder().join("client.py")).arg(work.path()).arg(server.key());
    output_of(client.env("PAPERBOURSE_URL", server.url()));
}
