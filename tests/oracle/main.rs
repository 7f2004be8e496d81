//! Compares every fill of the real server with a script that computes it in exact fractions from
//! the same recorded files: the two must agree to the last digit.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answer;
mod hashes;
mod orders;
mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::{Value, json};

use orders::{Order, Orders, depth, levels};
use script::{Computed, Outcome, Row};

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// The longest page of markets.
const PAGE_LENGTH: usize = 200;

/// A server that has played a recording to its end, and one account on it.
struct Exchange {
    server: ServerProcess,
    _data: tempfile::TempDir,
    client: Client,
}

impl Exchange {
    fn open(recording: &Path, starting_balance: &str) -> Self {
        let data = tempfile::tempdir().unwrap();
        let venue = format!("recorded:{}", recording.display());
        let server = ServerProcess::start(
            BINARY,
            data.path(),
            &[
                ["--venue", &venue],
                ["--venue-speed", "max"],
                ["--journal-segment-bytes", "1048576"],
                ["--tier", "free=unlimited/unlimited/2/5"],
                ["--address-limits", "off"],
                ["--starting-balance", starting_balance],
                ["--clob", "on"],
            ]
            .concat(),
        );
        let minted = command(BINARY)
            .args(["token", "--subject", "oracle", "--data"])
            .arg(data.path())
            .output()
            .unwrap();
        let token = String::from_utf8(minted.stdout).unwrap();
        let mut client = Client::with_token(server.address, token.trim_end());
        let made = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
        let client = Client::with_key(server.address, made["raw_key"].as_str().unwrap());
        Self { server, _data: data, client }
    }

    fn read(&mut self, target: &str) -> Value {
        self.client.get(target).ok(200)
    }

    /// Places an order, with its quantity as a number or as text.
    fn trade(&mut self, order: &Order, as_text: bool) -> Outcome {
        let mut json = serde_json::to_value(order).unwrap();
        if !as_text {
            json["quantity"] = serde_json::from_str(&order.quantity).unwrap();
        }
        answer::outcome(&self.client.post("/trade", &json), &order.quantity)
    }

    /// Every listed market that is not among these rows, with its first outcome.
    fn not_tradable(&mut self, rows: &[Row]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for offset in (0..).step_by(PAGE_LENGTH) {
            let page = self.read(&format!("/v1/markets?limit={PAGE_LENGTH}&offset={offset}"));
            let page = page.as_array().unwrap();
            for market in page {
                let id = market["condition_id"].as_str().unwrap();
                let Some(outcome) = market["outcomes"][0].as_str() else { continue };
                if !rows.iter().any(|row| row.market_id == id) {
                    found.push((id.to_owned(), outcome.to_owned()));
                }
            }
            if page.len() < PAGE_LENGTH {
                break;
            }
        }
        found
    }

    /// Balance and positions agree with the last answers to orders.
    #[track_caller]
    fn check_account(&mut self, placed: &[(Order, Outcome)]) {
        let (mut balance, mut positions) = (None, BTreeMap::new());
        for (order, outcome) in placed {
            let Outcome::Filled(fill) = outcome else { continue };
            balance = Some(fill.balance.clone());
            positions.insert(
                (order.market_id.clone(), order.outcome.to_lowercase()),
                (fill.position_quantity.clone(), fill.average_entry_price.clone()),
            );
        }
        let answer = self.read("/v1/account/balance");
        assert_eq!(answer["balance"].as_str(), balance.as_deref());

        let rows = self.read("/v1/account/positions");
        let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
        let listed: BTreeMap<_, _> = rows
            .as_array()
            .unwrap()
            .iter()
            .map(|row| {
                (
                    (text(row, "market_id"), text(row, "outcome").to_lowercase()),
                    (text(row, "quantity"), text(row, "avg_entry_price")),
                )
            })
            .collect();
        assert_eq!(listed, positions);
    }
}

/// The real recordings; `None`, with a message, if they or what the script needs are missing.
fn recordings() -> Option<PathBuf> {
    paperbourse_test_support::recordings::folder().filter(|_| script::is_runnable())
}

/// Places this many random orders, compares each answer with the script's, and checks that the
/// orders covered what they should.
#[track_caller]
fn check(recording: &Path, starting_balance: &str, seed: u64, order_count: usize) {
    let rows = script::list(recording);
    let mut exchange = Exchange::open(recording, starting_balance);
    let closed = exchange.not_tradable(&rows);
    let mut orders = Orders::new(seed, &rows, closed, starting_balance);

    let mut placed = Vec::with_capacity(order_count);
    let mut input = String::new();
    for number in 0..order_count {
        let order = orders.next();
        let outcome = exchange.trade(&order, number % 2 == 0);
        orders.learn(&outcome);
        input += &serde_json::to_string(&order).unwrap();
        input.push('\n');
        placed.push((order, outcome));
    }
    exchange.check_account(&placed);
    let log = exchange.server.interrupt();
    assert!(log.iter().any(|line| line.contains("stopped; everything acknowledged")), "{log:?}");

    let computed = script::execute(recording, starting_balance, &input);
    assert_eq!(computed.len(), placed.len());
    let mut reached = Reached::default();
    for (number, ((order, outcome), expected)) in placed.iter().zip(&computed).enumerate() {
        assert_eq!(*outcome, expected.outcome, "order {number} of seed {seed}: {order:?}");
        reached.count(order, expected, &rows);
    }
    eprintln!("{}: {order_count} orders, no difference; {reached}", recording.display());
    reached.check(order_count, rows.len());
}

/// What the orders of a test covered.
#[derive(Default)]
struct Reached {
    filled: usize,
    over_levels: usize,
    mirrored: usize,
    with_fee: usize,
    closing: usize,
    rejected: BTreeMap<String, usize>,
    books: BTreeSet<(String, String)>,
}

impl Reached {
    fn count(&mut self, order: &Order, computed: &Computed, rows: &[Row]) {
        let fill = match &computed.outcome {
            Outcome::Rejected { code } => {
                *self.rejected.entry(code.clone()).or_default() += 1;
                return;
            }
            Outcome::Filled(fill) => fill,
        };
        let label = order.outcome.to_lowercase();
        let row = rows
            .iter()
            .find(|row| row.market_id == order.market_id && row.outcome.to_lowercase() == label)
            .expect("what fills is tradable");
        self.filled += 1;
        self.over_levels += usize::from(computed.level_count > 1);
        self.mirrored += usize::from(row.book == "mirrored");
        self.with_fee += usize::from(fill.fee != "0");
        self.closing += usize::from(fill.position_quantity == "0");
        self.books.insert((order.market_id.clone(), label));
    }

    #[track_caller]
    fn check(&self, order_count: usize, book_count: usize) {
        assert!(2 * self.filled >= order_count, "half of the orders fill");
        assert!(4 * self.over_levels >= order_count, "a quarter takes more than one level");
        assert!(self.mirrored > 0, "some trade on a mirrored book");
        assert!(self.with_fee > 0, "some pay a fee");
        assert!(self.closing > 0, "some close a position");
        assert!(20 * self.books.len() >= 19 * book_count, "nearly every book is traded");
        let codes: Vec<&str> = self.rejected.keys().map(String::as_str).collect();
        let every_code = [
            "INSUFFICIENT_BALANCE",
            "INSUFFICIENT_LIQUIDITY",
            "INSUFFICIENT_POSITION",
            "MARKET_CLOSED",
            "MARKET_NOT_FOUND",
            "OUTCOME_NOT_FOUND",
            "VENUE_UNAVAILABLE",
        ];
        assert_eq!(codes, every_code, "each rule rejects some");
    }
}

impl fmt::Display for Reached {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { filled, over_levels, mirrored, with_fee, closing, rejected, books } = self;
        write!(
            formatter,
            "{filled} filled in {} books ({over_levels} over several levels, {mirrored} mirrored, \
             {with_fee} with a fee, {closing} closing), rejected {rejected:?}",
            books.len()
        )
    }
}

#[test]
fn a_thousand_orders_on_real_books_fill_as_computed() {
    let Some(recording) = recordings() else { return };
    check(&recording, "1000000", 1, 1_000);
}

#[test]
fn orders_on_invented_books_fill_as_computed() {
    if script::is_runnable() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/venue");
        check(&fixtures, "1500", 2, 400);
    }
}

/// A purchase and a partial sale, shown number by number, in three kinds of real market.
#[test]
fn a_buy_of_100_and_a_sell_of_40_in_three_real_markets() {
    let Some(recording) = recordings() else { return };
    let rows = script::list(&recording);
    let mut exchange = Exchange::open(&recording, "1000");
    let mut taken: Vec<&Row> = Vec::new();
    let (mut placed, mut input) = (Vec::new(), String::new());
    for kind in ["neg risk", "a tick of 0.001", "a fee schedule"] {
        let row = rows
            .iter()
            .filter(|row| taken.iter().all(|other| other.market_id != row.market_id))
            .filter(|row| depth(&levels(&row.asks)) >= 100_000_000)
            .filter(|row| depth(&levels(&row.bids)) >= 40_000_000)
            .filter(|row| {
                let market = exchange.read(&format!("/v1/markets/{}", row.market_id));
                match kind {
                    "neg risk" => market["neg_risk"] == true,
                    "a tick of 0.001" => market["tick_size"] == "0.001",
                    _ => row.rate != "0",
                }
            })
            // Prices near even odds leave the most room for mistakes.
            .min_by_key(|row| (levels(&row.asks)[0].0 - 500_000).abs())
            .expect("the recordings have such a market");
        taken.push(row);
        for (side, quantity) in [("BUY", "100"), ("SELL", "40")] {
            let order = Order {
                market_id: row.market_id.clone(),
                outcome: row.outcome.clone(),
                side,
                quantity: quantity.to_owned(),
            };
            let outcome = exchange.trade(&order, false);
            assert!(matches!(outcome, Outcome::Filled(_)), "{order:?}: {outcome:?}");
            input += &serde_json::to_string(&order).unwrap();
            input.push('\n');
            placed.push((kind, order, outcome));
        }
    }
    let computed = script::execute(&recording, "1000", &input);
    assert_eq!(computed.len(), placed.len());
    for ((kind, order, outcome), expected) in placed.iter().zip(&computed) {
        assert_eq!(*outcome, expected.outcome, "{kind}: {order:?}");
        eprintln!("{kind}: {order:?}\n    -> {outcome:?}, {} levels", expected.level_count);
    }
}
