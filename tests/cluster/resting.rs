//! An account whose orders rest, and fill while the venue's books move. It follows its fills on the
//! execution socket of one node after the other.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use paperbourse_test_support::follower::{Follower, order_rows};
use paperbourse_test_support::value::{id, micros};
use paperbourse_test_support::{Connection, Request};
use serde_json::{Value, json};

use crate::PAUSE;
use crate::load::{Addresses, Caller, in_turn};
use crate::nodes::{ANSWER_TIME_MAX, STARTING_BALANCE};

/// How many fills a connection reads before it is given up for one at the next node.
const FILLS_PER_CONNECTION: usize = 20;

/// One request in so many cancels an order, or all of them.
const CANCEL_ONE_IN: usize = 6;
const CANCEL_ALL_ONE_IN: usize = 40;

/// The most shares in an order beyond what its best level shows.
const SHARES_BEYOND: i64 = 20;

pub(crate) struct Rester {
    pub(crate) caller: Caller,
    /// What the answer to each order said, by the order's id.
    placed: Mutex<BTreeMap<u64, Value>>,
    /// How many fills answers have shown at least: one for each order that filled at once.
    shown: AtomicU64,
    follower: Mutex<Follower>,
}

impl Rester {
    pub(crate) fn new(folder: &Path, addresses: &[SocketAddr]) -> Self {
        let caller = Caller::new(folder, addresses, "rester", 1);
        let follower = Mutex::new(Follower::new(&caller.key));
        Self { caller, placed: Mutex::default(), shown: AtomicU64::new(0), follower }
    }

    /// Places and cancels orders until it is over.
    pub(crate) fn trade(&self, addresses: &Addresses, is_over: &AtomicBool) {
        let markets = self.lasting_markets(addresses);
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            if number % CANCEL_ALL_ONE_IN == CANCEL_ALL_ONE_IN - 1 {
                self.done(addresses, &self.cancel_all());
            } else if number % CANCEL_ONE_IN == CANCEL_ONE_IN - 1 {
                self.cancel_one(addresses, number);
            } else {
                self.place(addresses, &markets[number / 2 % markets.len()], number);
            }
        }
    }

    /// The markets that are open as long as the venue is.
    fn lasting_markets(&self, addresses: &Addresses) -> Vec<String> {
        let list = self.done(addresses, &Request::get("/v1/markets?limit=200"));
        let rows = list.as_array().unwrap().iter();
        let open = rows.filter(|row| row["accepting_orders"] == true);
        let ids = open.map(|row| row["condition_id"].as_str().unwrap().to_owned());
        let lasts = |id: &String| {
            let market = self.done(addresses, &Request::get(format!("/v1/markets/{id}")));
            market["end_date"].is_null()
        };
        ids.filter(lasts).collect()
    }

    /// Takes more than the best level shows, or offers what it has behind it: the rest of the order
    /// fills later, in parts.
    fn place(&self, addresses: &Addresses, market: &str, number: usize) {
        let book = format!("/v1/markets/{market}/book?outcome=yes&depth=1");
        let book = self.done(addresses, &Request::get(book).key(&self.caller.key));
        let (side, levels) =
            if number.is_multiple_of(2) { ("BUY", "asks") } else { ("SELL", "bids") };
        let touch = &book[levels][0];
        if touch.is_null() {
            return;
        }
        let order = json!({
            "market_id": market,
            "outcome": "yes",
            "side": side,
            "order_type": "limit",
            "price": touch["price"],
            "quantity": micros(&touch["size"]) / 1_000_000 % 1_000 + SHARES_BEYOND,
            "client_order_id": format!("{}-{number}", self.caller.name),
        });
        let request = Request::post("/v1/orders", &order).key(&self.caller.key);
        let answer = self.caller.until_answered(addresses, &request);
        if answer.status == 200 {
            let placed = answer.json();
            let has_filled = micros(&placed["filled_quantity"]) > 0;
            self.shown.fetch_add(has_filled.into(), Ordering::SeqCst);
            let before = self.placed.lock().unwrap().insert(id(&placed["order_id"]), placed);
            assert_eq!(before, None, "two orders have one id");
        } else {
            // A sale of more shares than it has.
            assert_eq!((side, answer.status), ("SELL", 400), "{answer:?}");
        }
    }

    /// Cancels an order that may have ended.
    fn cancel_one(&self, addresses: &Addresses, number: usize) {
        let orders: Vec<u64> = self.placed.lock().unwrap().keys().rev().take(8).copied().collect();
        let Some(order) = orders.get(number % 8) else { return };
        let request = Request::delete(format!("/v1/orders/{order}")).key(&self.caller.key);
        let answer = self.caller.until_answered(addresses, &request);
        if answer.status != 200 {
            assert_eq!(answer.json()["error"], "ORDER_NOT_CANCELLABLE", "{answer:?}");
        }
    }

    fn cancel_all(&self) -> Request {
        Request::new("POST", "/v1/cancel-all?confirm=true").key(&self.caller.key)
    }

    fn done(&self, addresses: &Addresses, request: &Request) -> Value {
        self.caller.until_answered(addresses, request).ok(200)
    }

    /// Follows the fills at one node after the other until it is over. No node shows fewer than
    /// answers or another node have shown before.
    pub(crate) fn follow(&self, addresses: &Addresses, is_over: &AtomicBool) {
        let mut follower = self.follower.lock().unwrap();
        for address in in_turn(addresses, is_over) {
            let shown = self.shown.load(Ordering::SeqCst);
            let connection = Connection::try_open_within(address, ANSWER_TIME_MAX);
            let opened = connection.ok().and_then(|connection| follower.connect(connection));
            let Some((mut socket, newest)) = opened else {
                thread::sleep(PAUSE);
                continue;
            };
            assert!(newest >= shown, "{newest} fills, and answers have shown {shown}");
            for _ in 0..FILLS_PER_CONNECTION {
                if follower.read(&mut socket).is_none() {
                    break;
                }
            }
        }
    }

    /// Checks that each order was placed once, as it was answered, and that each of its fills was
    /// told once and paid for.
    pub(crate) fn check(&self, address: SocketAddr) {
        let mut connection = Connection::open(address);
        connection.done(&self.cancel_all());
        let mut follower = self.follower.lock().unwrap();
        follower.catch_up(Connection::open(address));
        assert_eq!(follower.forgotten_count, 0);
        follower.check_balances(micros(&json!(STARTING_BALANCE)), &mut connection);
        let rows = order_rows(&self.caller.key, &mut connection);
        let rows = rows.expect("nothing changes any more");
        let placed = self.placed.lock().unwrap();
        assert!(rows.keys().eq(placed.keys()), "an order is lost, or was placed twice");
        for (order, placed) in placed.iter() {
            let row = &rows[order];
            for field in ["side", "limit_price", "time_in_force", "client_order_id"] {
                assert_eq!(row[field], placed[field], "{field} of {row}");
            }
            assert_ne!(row["status"], "PENDING", "{row}");
            let [filled, quantity] = ["filled_quantity", "quantity"].map(|it| micros(&row[it]));
            assert!((micros(&placed["filled_quantity"])..=quantity).contains(&filled), "{row}");
        }
        let (fills, orders) = (follower.fills.len(), rows.len());
        let (in_parts, later) = follower.check_rows(rows);
        println!("{orders} orders rested, {in_parts} filled in parts, {later} of {fills} later");
    }
}
