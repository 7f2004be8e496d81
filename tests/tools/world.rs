//! A server under load, the orders its clients saw acknowledged, and helpers to run the tools.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::{Value, json};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The market that every simulated venue has.
pub(crate) const MARKET: &str =
    "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

/// The cash of a new account, in dollars.
pub(crate) const STARTING_BALANCE: i64 = 1_000_000;

/// Starts a server with small segments that makes snapshots all the time.
pub(crate) fn start(data: &Path) -> ServerProcess {
    start_with(data, "33554432")
}

/// The same with an archive of this many bytes.
pub(crate) fn start_with(data: &Path, archive_bytes: &str) -> ServerProcess {
    let limits = "free=unlimited/unlimited/2/5";
    ServerProcess::start(
        BINARY,
        data,
        &[
            "--journal-segment-bytes",
            "1048576",
            "--snapshot-bytes",
            "1",
            "--snapshot-cpu",
            "50",
            "--archive-bytes",
            archive_bytes,
            "--starting-balance",
            &STARTING_BALANCE.to_string(),
            "--tier",
            limits,
            "--author-comments",
            "1000000",
            "--address-limits",
            "off",
        ],
    )
}

/// A trader with an API key.
pub(crate) struct Trader {
    pub(crate) key: String,
    subject: String,
}

impl Trader {
    /// Opens an account.
    pub(crate) fn new(data: &Path, server: &ServerProcess, subject: &str) -> Self {
        let mut trader = Self { key: String::new(), subject: subject.to_owned() };
        let mut client = Client::with_token(server.address, &trader.token(data));
        let answer = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
        answer["raw_key"].as_str().unwrap().clone_into(&mut trader.key);
        trader
    }

    /// A new access token of the account's owner.
    pub(crate) fn token(&self, data: &Path) -> String {
        let token = tool(&["token", "--subject", &self.subject, "--data", text(data)]);
        assert!(token.status.success());
        String::from_utf8(token.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn connect(&self, server: &ServerProcess) -> Client {
        Client::with_key(server.address, &self.key)
    }
}

/// Retries until the journal has prepared space for the write; small segments have little of it.
#[track_caller]
pub(crate) fn write(client: &mut Client, target: &str, body: &Value) -> Value {
    loop {
        let answer = client.post(target, body);
        if answer.status != 503 {
            let start: String = answer.text.chars().take(200).collect();
            assert_eq!(answer.status, 200, "{start}");
            return serde_json::from_str(&answer.text).unwrap();
        }
        assert!(answer.text.contains("SERVER_BUSY"), "{}", answer.text);
        std::thread::yield_now();
    }
}

/// Buys a share under this name and returns the order id.
#[track_caller]
pub(crate) fn buy(client: &mut Client, name: &str) -> u64 {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1,
                       "client_order_id": name});
    write(client, "/trade", &order)["order_id"].as_u64().unwrap()
}

/// Writes a comment of about four kilobytes.
#[track_caller]
pub(crate) fn comment(client: &mut Client, order: u64) {
    let body = json!({"content": "🦀".repeat(1000)});
    write(client, &format!("/trades/{order}/comments"), &body);
}

/// A running load, with the names of the orders acknowledged so far.
#[derive(Default)]
pub(crate) struct Load {
    acknowledged: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Load {
    /// Trades and comments until the load is over.
    pub(crate) fn run(&self, client: &mut Client, label: &str) {
        let mut order = 0;
        for number in 0_u64.. {
            if self.is_over() {
                return;
            }
            if number % 4 == 0 {
                let name = format!("{label}-{number}");
                order = buy(client, &name);
                self.acknowledged.lock().unwrap().push(name);
            } else {
                comment(client, order);
            }
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    pub(crate) fn acknowledged(&self) -> Vec<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// A guard that ends the load when dropped, so that a failing test ends too.
    pub(crate) fn ends(&self) -> impl Drop + '_ {
        struct Ends<'a>(&'a AtomicBool);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        Ends(&self.is_over)
    }
}

/// Runs the binary to its end.
pub(crate) fn tool(arguments: &[&str]) -> Output {
    command(BINARY).args(arguments).output().unwrap()
}

/// The JSON object that the binary prints, and its exit code.
#[track_caller]
pub(crate) fn json_of(arguments: &[&str]) -> (Value, i32) {
    let output = tool(&[arguments, &["--json"]].concat());
    let json = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}{errors}"));
    (value, output.status.code().unwrap())
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// The paths of the files in a subfolder of a data folder, sorted by name.
pub(crate) fn files(data: &Path, folder: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(data.join(folder)) else { return Vec::new() };
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Copies a folder recursively, with its permissions.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}
