//! The official Python SDK, unchanged, against the real server: every method of every client has a
//! row in the tables beside this file, and so has every exception. A ledger of their own computes
//! what the answers must be. `.ci/sdk` installs the SDK.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{first_python, installed, output_of, skip};

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The number of accounts that the walk opens on the server whose books stand still.
const ACCOUNTS: usize = 8;

/// A server, and the folder that holds its data.
struct Server {
    process: ServerProcess,
    data: TempDir,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        // Only keys of the free tier have a limit that the walk reaches.
        let tiers = "free=3/300/2/5,pro=unlimited/unlimited/10/20";
        let unlimited = ["--tier", tiers, "--address-limits", "off", "--key-rate", "unlimited"];
        let flags = [&unlimited[..], &["--venue-delay", "off"], flags].concat();
        Self { process: ServerProcess::start(BINARY, data.path(), &flags), data }
    }

    /// The address and access tokens of as many accounts, for the script.
    fn described(&self, accounts: usize) -> Value {
        let token = |number: usize| {
            let subject = format!("walker-{number}");
            let mut minting = command(BINARY);
            minting.args(["token", "--tier", "pro", "--subject", &subject, "--data"]);
            let minted = minting.arg(self.data.path()).output().unwrap();
            String::from_utf8(minted.stdout).unwrap().trim_end().to_owned()
        };
        let tokens: Vec<String> = (0..accounts).map(token).collect();
        json!({"url": format!("http://{}", self.process.address), "tokens": tokens})
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/sdk")
}

/// A Python with the SDK: `PAPERBOURSE_SDK_PYTHON`, or what `.ci/sdk` installed; `None` if there is
/// none, which fails in CI.
fn python_with_sdk() -> Option<PathBuf> {
    if let Some(python) = std::env::var_os("PAPERBOURSE_SDK_PYTHON") {
        return Some(python.into());
    }
    let reason = "the SDK is not installed (.ci/sdk does it), so none of its methods was called";
    Some(installed("sdk", reason)?.join("bin/python"))
}

/// Runs the script with these arguments and this input, and returns what it printed.
#[track_caller]
fn run(python: &Path, arguments: &[&str], input: &str) -> String {
    let mut walk = Command::new(python)
        .arg(folder().join("walk.py"))
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env_remove("POLYSIM_API_KEY")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    walk.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let ended = walk.wait_with_output().unwrap();
    let output = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success(), "{output}\n{}", String::from_utf8_lossy(&ended.stderr));
    output
}

#[test]
fn every_method_does_what_its_row_says() {
    let Some(python) = python_with_sdk() else { return };
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/venue");
    let recorded = format!("recorded:{}", fixtures.display());
    // The books stand still, so that the script can compute every fill from them.
    let still = Server::start(&["--venue", "simulated:1", "--venue-speed", "0.000001"]);
    let bookless = Server::start(&["--venue", &recorded]);
    let full = Server::start(&["--venue", "simulated:1", "--memory-limit", "1"]);
    let mut servers = json!({
        "still": still.described(ACCOUNTS),
        "bookless": bookless.described(1),
        "full": full.described(1),
    });
    // The script bets on a market that closes after 20 s, and reads its payout after 30 s.
    let moving = Server::start(&["--venue", "simulated:1", "--venue-speed", "6"]);
    servers["moving"] = moving.described(1);
    let output = run(&python, &[], &servers.to_string());
    assert!(output.lines().count() > 250, "{output}");
}

/// What the first code in Python of a page prints, as it stands, on a new server with a new key.
#[track_caller]
fn printed(python: &Path, page: &str) -> String {
    let server = Server::start(&["--venue", "simulated:1"]);
    let described = server.described(1);
    let token = described["tokens"][0].as_str().unwrap();
    let mut client = Client::with_token(server.process.address, token);
    let key = client.post("/v1/keys/bootstrap", &json!({})).ok(201)["raw_key"].take();
    let bot = first_python(&folder().join("../../..").join(page));
    let mut command = Command::new(python);
    let command = command.args(["-c", &bot]).env("KEY", key.as_str().unwrap());
    output_of(command.env("BOURSE", described["url"].as_str().unwrap()))
}

#[test]
fn the_order_in_the_guide_is_filled() {
    let Some(python) = python_with_sdk() else { return };
    assert_eq!(printed(&python, "src/guide/sdk.md"), "FILLED 10\n");
}

/// The bot in the README trades as it stands.
#[test]
fn the_bot_in_the_readme_works() {
    let Some(python) = python_with_sdk() else { return };
    let output = printed(&python, "README.md");
    let lines: Vec<&str> = output.lines().collect();
    let [placed, prices, cancelled, cash] = lines[..] else { panic!("{output}") };
    assert!(placed.starts_with("PENDING at 0."), "{output}");
    assert!(prices.starts_with("bid 0."), "{output}");
    assert_eq!((cancelled, cash), ("CANCELLED", "1000 dollars available"));
}

#[test]
fn the_guide_has_the_tables() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("no python3, so the tables of the guide were not compared");
    }
    let page = std::fs::read_to_string(folder().join("../../../src/guide/sdk.md")).unwrap();
    for table in run(Path::new("python3"), &["--table"], "").split("\n\n") {
        assert!(page.contains(table), "src/guide/sdk.md has to contain these rows:\n{table}");
    }
}
