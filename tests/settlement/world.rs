//! Traders, the holdings that the server reports, and the payouts they must become.

use std::collections::BTreeMap;
use std::path::Path;

use paperbourse::money::{Notional, Price, Rounding, Shares, Usd};
use paperbourse_test_support::Client;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::{Value, json};

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// A trader with an API key.
pub(crate) struct Trader {
    key: String,
}

/// An account's cash and positions.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Holdings {
    pub(crate) cash: Usd,
    /// By position id.
    pub(crate) positions: BTreeMap<u64, Position>,
}

/// An account's position in an outcome.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Position {
    pub(crate) market_id: String,
    pub(crate) outcome: String,
    pub(crate) shares: Shares,
    pub(crate) realised: Usd,
    pub(crate) status: String,
}

/// A row of the list of settlements.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Settlement {
    pub(crate) market_id: String,
    pub(crate) outcome: String,
    pub(crate) shares: Shares,
    pub(crate) cost: Usd,
    pub(crate) payout: Usd,
    pub(crate) payout_per_share: Price,
    pub(crate) realised: Usd,
    pub(crate) result: String,
}

/// Starts a server without limits, where every account starts with a million dollars.
pub(crate) fn start(data: &Path, arguments: &[&str]) -> ServerProcess {
    let common = [
        "--tier",
        "free=unlimited/unlimited/2/50",
        "--address-limits",
        "off",
        "--starting-balance",
        "1000000",
    ];
    ServerProcess::start(BINARY, data, &[arguments, &common].concat())
}

impl Trader {
    /// Opens an account.
    pub(crate) fn new(data: &Path, server: &ServerProcess, subject: &str) -> Self {
        let mut command = command(BINARY);
        command.args(["token", "--subject", subject, "--data"]).arg(data);
        let token = command.output().unwrap();
        assert!(token.status.success());
        let token = String::from_utf8(token.stdout).unwrap();
        let mut client = Client::with_token(server.address, token.trim());
        let answer = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
        Self { key: answer["raw_key"].as_str().unwrap().to_owned() }
    }

    pub(crate) fn connect(&self, server: &ServerProcess) -> Client {
        Client::with_key(server.address, &self.key)
    }

    pub(crate) fn holdings(&self, server: &ServerProcess) -> Holdings {
        let mut client = self.connect(server);
        let rows = get(&mut client, "/v1/account/positions");
        let positions = rows.as_array().unwrap().iter().map(|row| {
            let position = Position {
                market_id: text(row, "market_id"),
                outcome: text(row, "outcome"),
                shares: Shares::from_text(&text(row, "quantity"), Rounding::Exact).unwrap(),
                realised: usd(row, "realized_pnl"),
                status: text(row, "status"),
            };
            (row["id"].as_u64().unwrap(), position)
        });
        let positions = positions.collect();
        let cash = usd(&get(&mut client, "/v1/account/balance"), "balance");
        Holdings { cash, positions }
    }

    /// All settlements, read page by page. Checks that each position comes once, newest first.
    pub(crate) fn settlements(&self, server: &ServerProcess) -> BTreeMap<u64, Settlement> {
        let mut client = self.connect(server);
        let mut settlements = BTreeMap::new();
        let (mut cursor, mut newest) = (String::new(), u64::MAX);
        loop {
            let page =
                get(&mut client, &format!("/v1/account/settlements?limit=50&cursor={cursor}"));
            for row in page["data"].as_array().unwrap() {
                let number = row["position_id"].as_u64().unwrap();
                assert!(number < newest, "{number} comes behind {newest}");
                newest = number;
                let settlement = Settlement {
                    market_id: text(row, "market_id"),
                    outcome: text(row, "outcome"),
                    shares: Shares::from_text(&text(row, "quantity"), Rounding::Exact).unwrap(),
                    cost: usd(row, "cost_basis"),
                    payout: usd(row, "payout"),
                    payout_per_share: Price::from_text(
                        &text(row, "payout_per_share"),
                        Rounding::Exact,
                    )
                    .unwrap(),
                    realised: usd(row, "realized_pnl"),
                    result: text(row, "result"),
                };
                settlements.insert(number, settlement);
            }
            cursor = text(&page, "next_cursor");
            if cursor.is_empty() {
                return settlements;
            }
        }
    }
}

/// The number of settlements on the first page, enough to see that payments are under way.
pub(crate) fn settlement_count(client: &mut Client) -> usize {
    get(client, "/v1/account/settlements?limit=500")["data"].as_array().unwrap().len()
}

/// The payout of these shares.
pub(crate) fn payout(shares: Shares, price: Price) -> Usd {
    Notional::of(price, shares).floor()
}

pub(crate) fn get(client: &mut Client, target: &str) -> Value {
    client.get(target).ok(200)
}

pub(crate) fn text(row: &Value, field: &str) -> String {
    row[field].as_str().unwrap_or_else(|| panic!("{field} in {row}")).to_owned()
}

fn usd(row: &Value, field: &str) -> Usd {
    Usd::from_text(&text(row, field), Rounding::Exact).unwrap()
}

/// All records of the journal, whether a server is running or not.
pub(crate) fn dump(data: &Path) -> Vec<Value> {
    let output = command(BINARY).args(["journal", "dump", "--json"]).arg(data).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}
