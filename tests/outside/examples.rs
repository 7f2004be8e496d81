//! The examples that Polymarket publishes with its clients, as they are, one after the other. Those
//! that cannot work here are in a table with the reason, and each of them must fail.
//!
//! They are not part of this project and need some minutes, so the test is skipped unless
//! `PAPERBOURSE_CLIENT_EXAMPLES` names a folder that these commands have filled:
//!
//! ```sh
//! for client in py-clob-client-v2 clob-client-v2 py-clob-client clob-client; do
//!     git clone --depth 1 https://github.com/Polymarket/$client
//! done
//! for client in clob-client-v2 clob-client; do
//!     npm install --prefix $client --no-save --ignore-scripts --legacy-peer-deps tsx@4
//! done
//! python3 -m venv venv
//! venv/bin/pip install py-clob-client-v2==1.2.1 py-clob-client==0.34.6 \
//!     python-dotenv websocket-client web3
//! ```
//!
//! Those for Python use the published packages, those for TypeScript the sources beside them, which
//! they import by path. They look for a server at port 8080 of this machine, so they and the server
//! run in a network of their own where the system has such networks; else the port must be free.

use std::path::{Path, PathBuf};
use std::process::Command;

use paperbourse_test_support::process::command;

const VARIABLE: &str = "PAPERBOURSE_CLIENT_EXAMPLES";

/// Runs the examples of a client and shows what came of each.
#[track_caller]
fn run(client: &str) {
    let Some(folder) = std::env::var_os(VARIABLE).map(PathBuf::from) else {
        return eprintln!("SKIPPED: {VARIABLE} is not set, so no example of {client} was run");
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/examples/run.py");
    let mut python: Command = command("python3");
    python.arg(script).arg(env!("CARGO_BIN_EXE_paperbourse")).arg(folder).arg(client);
    let ran = python.env("PYTHONDONTWRITEBYTECODE", "1").status().unwrap();
    assert!(ran.success(), "{client}: {ran}");
}

/// One test, because without networks of their own all need the same port.
#[test]
fn official_examples_work_unchanged() {
    for client in ["py-clob-client-v2", "clob-client-v2", "py-clob-client", "clob-client"] {
        run(client);
    }
}
