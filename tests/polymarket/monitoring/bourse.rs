//! A server on the simulated venue, with an account that trades.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use paperbourse_test_support::process::{Process, ServerProcess, command};
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::json;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The market that every simulated venue has.
const MARKET: &str = "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

/// A server that is scraped, killed on drop.
pub(super) struct Bourse {
    pub(super) server: ServerProcess,
    /// Where its metrics are.
    pub(super) admin: SocketAddr,
    pub(super) folder: TempDir,
}

/// Where the metrics of a server are.
pub(super) fn admin_address(server: &ServerProcess) -> SocketAddr {
    let line = server.logged("metrics on http://");
    let (_, address) = line.split_once("metrics on http://").unwrap();
    address.split('/').next().unwrap().parse().unwrap()
}

impl Bourse {
    pub(super) fn start(flags: &[&str]) -> Self {
        Self::start_under(&[], flags)
    }

    /// Starts the server as the last words of another command.
    pub(super) fn start_under(wrapper: &[&str], flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Self::spawn(wrapper, &folder.path().join("data"), flags);
        Self { admin: admin_address(&server), server, folder }
    }

    pub(super) fn spawn(wrapper: &[&str], data: &Path, flags: &[&str]) -> ServerProcess {
        let words = [wrapper, &[BINARY]].concat();
        let mut command = command(words[0]);
        command
            .args(&words[1..])
            .args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"])
            .args(["--tier", "free=unlimited/unlimited/2/100", "--address-limits", "off"])
            .args(["--journal-segment-bytes", "1048576", "--starting-balance", "1000000"])
            .arg("--data")
            .arg(data)
            .args(flags);
        if !flags.contains(&"--admin-listen") {
            command.args(["--admin-listen", "127.0.0.1:0"]);
        }
        Process::spawn(&mut command).ready()
    }

    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// An account that may trade. `data` is the folder as this process sees it.
    pub(super) fn trader(&self, data: &Path) -> Trader {
        let mut connection = Connection::open(self.server.address);
        let made = connection.done(&Self::bootstrap(data)).json();
        let key = made["raw_key"].as_str().unwrap().to_owned();
        Trader { connection, key, market: MARKET.to_owned(), is_sale: false }
    }

    /// A request for a key that may trade. `data` is the folder as this process sees it.
    pub(super) fn bootstrap(data: &Path) -> Request {
        let token = Command::new(BINARY)
            .args(["token", "--subject", "bot", "--data"])
            .arg(data)
            .output()
            .unwrap();
        assert!(token.status.success(), "{token:?}");
        let token = String::from_utf8(token.stdout).unwrap();
        let wanted = json!({"permissions": ["read", "trade"]});
        Request::post("/v1/keys/bootstrap", &wanted).bearer(token.trim())
    }
}

/// Buys and sells a share in turn.
pub(super) struct Trader {
    connection: Connection,
    key: String,
    market: String,
    is_sale: bool,
}

impl Trader {
    /// Trades in this market of a live venue.
    pub(super) fn in_market(self, condition_id: String) -> Self {
        Self { market: condition_id, ..self }
    }

    /// Sends the next order and returns its status. A rejected order is not an error.
    pub(super) fn trade(&mut self) -> u16 {
        self.order().status
    }

    /// Sends the next order.
    pub(super) fn order(&mut self) -> Response {
        let side = if self.is_sale { "SELL" } else { "BUY" };
        let order = json!({
            "market_id": self.market, "outcome": "Yes", "side": side, "quantity": 1,
        });
        let response = self.send(Request::post("/trade", &order));
        self.is_sale ^= response.status == 200;
        response
    }

    pub(super) fn send(&mut self, request: Request) -> Response {
        self.connection.send(&request.key(&self.key))
    }
}
