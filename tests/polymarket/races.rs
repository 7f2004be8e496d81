//! A cancel that races a fill: the order ends in one of the two, and never in both.
//!
//! In each round the venue shows an ask that some resting orders reach, while each of them is being
//! cancelled. The delay of the cancels follows the results, so that either may come first.
//! `PAPERBOURSE_RACE_ROUNDS=1000` runs more rounds.

use std::collections::BTreeMap;
use std::hint::spin_loop;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use paperbourse_test_support::socket::{Socket, upgrade};
use paperbourse_test_support::{Connection, PATIENCE, Request, Response};
use serde_json::{Value, json};

use crate::served::Served;
use crate::standin::world::{condition_id, token_id};
use crate::standin::{Options, Side, StandIn, World, micros};

const ROUNDS_DEFAULT: usize = 60;
const ORDERS_PER_ROUND: usize = 4;
const ORDER_SHARES: i64 = 5;
/// Enough for two orders and a part of a third.
const ASK_SHARES: &str = "12";
/// What the ask shrinks to before it goes.
const LAST_SHARES: &str = "0.01";
/// Between the venue's best bid and ask, once the best bid is gone.
const LIMIT: &str = "0.3";
const STARTING_BALANCE: &str = "1000000";
/// With segments so large that a busy disk always has room.
const FLAGS: [&str; 4] =
    ["--starting-balance", STARTING_BALANCE, "--journal-segment-bytes", "67108864"];
const DELAY_STEP: Duration = Duration::from_micros(100);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_and_a_fill_never_both_have_an_order() {
    let rounds = std::env::var("PAPERBOURSE_RACE_ROUNDS").ok();
    let rounds = rounds.map_or(ROUNDS_DEFAULT, |text| text.parse().unwrap());
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let raced = tokio::task::spawn_blocking(move || {
        let served = Served::start_with(&venue, &FLAGS);
        served.until("books", Served::is_fresh);
        venue.change_level(&token_id(0, 0), Side::Buy, LIMIT, "0");
        let mut race = Race::new(&venue, &served);
        for round in 0..rounds {
            race.round(round);
        }
        race.check_account();
        let Race { cancelled_count, in_part_count, rows, .. } = race;
        let filled_count = rows.len() - cancelled_count;
        eprintln!("{filled_count} filled, {cancelled_count} cancelled, {in_part_count} in part");
        assert!(filled_count > 0 && cancelled_count > in_part_count, "one always came first");
    });
    raced.await.unwrap();
}

struct Race<'a> {
    venue: &'a StandIn,
    address: SocketAddr,
    key: &'a str,
    connection: Connection,
    /// From the venue's change to the cancels.
    delay: Duration,
    /// The last row of every order.
    rows: BTreeMap<u64, Value>,
    cancelled_count: usize,
    /// Those of the cancelled orders that had filled in part.
    in_part_count: usize,
}

impl<'a> Race<'a> {
    fn new(venue: &'a StandIn, served: &'a Served) -> Self {
        let (address, key) = (served.address(), served.key());
        let (connection, rows) = (Connection::open(address), BTreeMap::new());
        let delay = Duration::from_millis(1);
        let (cancelled_count, in_part_count) = (0, 0);
        Self { venue, address, key, connection, delay, rows, cancelled_count, in_part_count }
    }

    fn get(&mut self, path: &str) -> Value {
        self.connection.done(&Request::get(path).key(self.key)).json()
    }

    fn round(&mut self, round: usize) {
        let orders: Vec<u64> = (0..ORDERS_PER_ROUND).map(|_| self.place()).collect();
        let answers = self.race(&orders);
        self.await_ask(Some(ASK_SHARES));
        // Of a level that comes back soon, what exceeds its last size counts.
        for last in [LAST_SHARES, "0"] {
            self.venue.change_level(&token_id(0, 0), Side::Sell, LIMIT, last);
        }
        self.await_ask(None);
        let cancelled_before = self.cancelled_count;
        let mut filled = 0;
        for (order, answer) in orders.into_iter().zip(answers) {
            let row = self.get(&format!("/v1/orders/{order}"));
            filled += filled_shares(&row);
            self.end(order, &answer, row);
        }
        assert!(filled <= micros(ASK_SHARES), "more than was shown: {filled}");
        // How many cancels should win changes every few rounds.
        let wanted = round / 10 % ORDERS_PER_ROUND;
        if self.cancelled_count - cancelled_before > wanted {
            self.delay += DELAY_STEP;
        } else {
            self.delay = self.delay.saturating_sub(DELAY_STEP);
        }
    }

    /// Waits until the server shows an ask of this size at the limit, or none.
    fn await_ask(&mut self, size: Option<&str>) {
        let path = format!("/v1/book?token_id={}", token_id(0, 0));
        let started = Instant::now();
        loop {
            let book = self.get(&path);
            let asks = book["asks"].as_array().unwrap();
            let shown = asks.iter().find(|level| level["price"] == LIMIT);
            if shown.map(|level| level["size"].as_str().unwrap()) == size {
                return;
            }
            assert!(started.elapsed() < PATIENCE, "{size:?} is not shown: {book}");
            std::thread::yield_now();
        }
    }

    fn place(&mut self) -> u64 {
        let order = json!({
            "market_id": condition_id(0), "outcome": "Yes", "side": "BUY", "order_type": "limit",
            "quantity": ORDER_SHARES, "price": LIMIT,
        });
        let placed = self.connection.done(&Request::post("/v1/orders", &order).key(self.key));
        let placed = placed.json();
        assert_eq!(placed["status"], "PENDING", "{placed}");
        placed["order_id"].as_u64().unwrap()
    }

    /// Shows an ask and cancels the orders. Returns the answers to the cancels.
    fn race(&self, orders: &[u64]) -> Vec<Response> {
        let start = Barrier::new(1 + orders.len());
        std::thread::scope(|scope| {
            let cancels: Vec<_> = orders
                .iter()
                .map(|order| {
                    let request = Request::delete(format!("/v1/orders/{order}")).key(self.key);
                    let start = &start;
                    scope.spawn(move || {
                        let mut connection = Connection::open(self.address);
                        start.wait();
                        let began = Instant::now();
                        while began.elapsed() < self.delay {
                            spin_loop();
                        }
                        connection.send(&request)
                    })
                })
                .collect();
            start.wait();
            self.venue.change_level(&token_id(0, 0), Side::Sell, LIMIT, ASK_SHARES);
            cancels.into_iter().map(|cancel| cancel.join().unwrap()).collect()
        })
    }

    /// Checks that the order ended as the answer to its cancel says.
    fn end(&mut self, order: u64, answer: &Response, row: Value) {
        let body = answer.json();
        let filled = shares(&row["filled_quantity"]);
        if answer.status == 200 {
            for field in ["status", "cancelled_at", "cancelled_reason", "filled_quantity"] {
                assert_eq!(row[field], body[field], "{field} of {row}");
            }
            assert_eq!(row["status"], "CANCELLED");
            assert!(filled < ORDER_SHARES * 1_000_000, "it had filled: {row}");
            self.cancelled_count += 1;
            self.in_part_count += usize::from(filled > 0);
        } else {
            assert_eq!((answer.status, &body["error"]), (400, &json!("ORDER_NOT_CANCELLABLE")));
            assert_eq!((&row["status"], &row["cancelled_at"]), (&json!("FILLED"), &Value::Null));
            assert_eq!(filled, ORDER_SHARES * 1_000_000, "{row}");
        }
        self.rows.insert(order, row);
    }

    /// Every order is still as it ended, and the fills, the dollars and the shares are those of the
    /// rows.
    fn check_account(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        let follow = upgrade("/v1/ws/executions").key(self.key);
        let mut socket = Socket::open(self.address, &follow).unwrap();
        let newest = socket.text()["seq"].as_u64().unwrap();
        socket.say(&json!({"action": "resume", "after": 0}));
        let mut filled: BTreeMap<u64, i64> = BTreeMap::new();
        for seq in 1..=newest {
            let fill = socket.text_of("fill");
            assert_eq!(fill["seq"], seq);
            *filled.entry(fill["order_id"].as_u64().unwrap()).or_default() +=
                shares(&fill["quantity"]);
        }
        for (order, row) in &rows {
            assert_eq!(self.get(&format!("/v1/orders/{order}")), *row, "it changed after its end");
            assert_eq!(filled.remove(order).unwrap_or_default(), filled_shares(row), "{row}");
        }
        assert!(filled.is_empty(), "fills of other orders: {filled:?}");
        let spent: i64 = rows.values().map(|row| shares(&row["notional"])).sum();
        let cash = micros(STARTING_BALANCE) - spent;
        let balance = self.get("/v1/account/balance");
        let shown = ["balance", "available", "reserved"].map(|field| shares(&balance[field]));
        assert_eq!(shown, [cash, cash, 0]);
        let held: i64 = rows.values().map(filled_shares).sum();
        let positions = self.get("/v1/account/positions");
        assert_eq!(shares(&positions[0]["quantity"]), held);
        self.rows = rows;
    }
}

fn filled_shares(row: &Value) -> i64 {
    shares(&row["filled_quantity"])
}

/// Decimal text in millionths.
#[track_caller]
fn shares(value: &Value) -> i64 {
    micros(value.as_str().unwrap())
}
