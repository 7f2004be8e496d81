//! Traders with orders that rest: their requests, and what must be true of every order later.
//!
//! A resting order fills without an answer, so these books do not know what each fill gave. They
//! know what every answer showed, and what the rows of all orders must add up to.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use paperbourse_test_support::follower::order_rows;
use paperbourse_test_support::value::{id, micros};
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::{Value, json};

use crate::load::{Kind, Load, Sent, Trader, assert_replay};
use crate::rounds::RestingTotals;

const STARTING_BALANCE_MICROS: i64 = 1_000_000_000;
/// Requests refer to one of this many of the newest orders.
const REMEMBERED_MAX: usize = 24;
/// How often the rows are read until none changes meanwhile: books go on moving.
const READINGS_MAX: usize = 200;

/// A connection that places, reads and cancels orders that rest.
pub(crate) struct Rester<'a> {
    load: Load<'a>,
    sent: Vec<Sent>,
    /// The newest orders, and where their requests are in `sent`.
    orders: VecDeque<(u64, usize)>,
}

impl<'a> Rester<'a> {
    pub(crate) const fn new(load: Load<'a>) -> Self {
        Self { load, sent: Vec::new(), orders: VecDeque::new() }
    }

    /// Sends requests in sequence until the connection breaks. Returns all of them.
    pub(crate) fn run(mut self) -> Vec<Sent> {
        let Ok(mut connection) = Connection::try_open(self.load.address) else {
            return self.sent;
        };
        while self.step(&mut connection).is_some() {
            // The receiver is gone once the kill is due.
            let _ = self.load.answered.send(());
        }
        self.sent
    }

    /// Sends one request. `None` if the connection breaks.
    fn step(&mut self, connection: &mut Connection) -> Option<()> {
        let chosen = self.load.random.pick(self.orders.make_contiguous()).copied();
        let request = |method, path: String| Request::new(method, path).key(&self.load.trader.key);
        let (kind, request) = match (self.load.random.below(16), chosen) {
            (0..2, Some((_, index))) => {
                let Sent { request, answer, .. } = &self.sent[index];
                let again = connection.try_send(request).ok()?;
                assert_replay(request, answer.as_ref().expect("it was placed"), &again);
                return Some(());
            }
            (2..5, Some((order, _))) => {
                (Kind::ReadOrder, request("GET", format!("/v1/orders/{order}")))
            }
            (5..7, Some((order, _))) => {
                (Kind::Cancel { order }, request("DELETE", format!("/v1/orders/{order}")))
            }
            (7, Some(_)) if self.load.random.below(4) == 0 => {
                let newest = self.orders.iter().map(|(order, _)| *order).max().expect("one");
                let all = request("POST", "/v1/cancel-all?confirm=true".into());
                (Kind::CancelAll { newest }, all)
            }
            _ => (Kind::Place, self.order(connection)?),
        };
        let answer = connection.try_send(&request).ok();
        let is_placed = answer.as_ref().filter(|answer| answer.status == 200);
        if let (Kind::Place, Some(answer)) = (&kind, is_placed) {
            self.orders.push_back((id(&answer.json()["order_id"]), self.sent.len()));
            if self.orders.len() > REMEMBERED_MAX {
                self.orders.pop_front();
            }
        }
        let is_over = answer.is_none();
        self.sent.push(Sent { trader: self.load.trader.number, kind, request, answer });
        (!is_over).then_some(())
    }

    /// An order near the touch of a book: some cross, most rest, and many fill before long.
    fn order(&mut self, connection: &mut Connection) -> Option<Request> {
        let Load { random, markets, trader, label, .. } = &mut self.load;
        let market = random.pick(markets).expect("markets are listed").clone();
        let outcome = if random.below(2) == 0 { "yes" } else { "no" };
        let book = Request::get(format!("/v1/markets/{market}/book?outcome={outcome}&depth=1"));
        let book = connection.try_send(&book.key(&trader.key)).ok()?;
        // A market that was never open has none.
        let book = if book.status == 200 { book.json() } else { json!({}) };
        let is_buy = random.below(3) < 2;
        let touch = if is_buy { &book["bids"][0]["price"] } else { &book["asks"][0]["price"] };
        let touch = if touch.is_null() { 500_000 } else { micros(touch) };
        let tick = if book["tick_size"].is_null() { 10_000 } else { micros(&book["tick_size"]) };
        let steps = [-3, -1, -1, 0, 0, 0, 0, 1, 2];
        let steps = random.pick(&steps).expect("not empty") * if is_buy { 1 } else { -1 };
        let price = (touch + steps * tick).clamp(tick, 1_000_000 - tick);
        let mut order = json!({
            "market_id": market,
            "outcome": outcome,
            "side": if is_buy { "BUY" } else { "SELL" },
            "order_type": "limit",
            "price": format!("0.{price:06}"),
            // Mostly fractions of a share, so that notionals have all their digits.
            "quantity": format!("{}.{:06}", 5 + random.below(20), random.below(1_000_000)),
            "time_in_force": if random.below(6) == 0 { "FAK" } else { "GTC" },
        });
        let name = format!("{label}-{}", self.sent.len());
        if random.below(2) == 0 {
            order["client_order_id"] = name.as_str().into();
        }
        let request = Request::post("/v1/orders", &order).key(&trader.key);
        Some(if order["client_order_id"].is_null() { request.named(&name) } else { request })
    }
}

/// What the answers to one trader said.
pub(crate) struct RestingBooks {
    trader: Trader,
    /// The first answer of each order that was placed.
    placed: BTreeMap<u64, Value>,
    /// Rows that were read.
    seen: Vec<Value>,
    /// The answers to cancels.
    cancelled: BTreeMap<u64, Value>,
    /// The orders that answers to `cancel-all` name.
    cancelled_with_all: BTreeSet<u64>,
    /// Orders whose cancel was not answered.
    unclear: BTreeSet<u64>,
    /// Whether a `cancel-all` was not answered.
    is_all_unclear: bool,
    /// Orders that could not be cancelled, so they had ended.
    ended: BTreeSet<u64>,
    /// Every order up to this one has ended.
    ended_up_to: u64,
}

impl RestingBooks {
    /// The books of one trader, from all their requests. By now every order has been answered.
    pub(crate) fn of(trader: &Trader, sent: &[Sent]) -> Self {
        let mut books = Self {
            trader: trader.clone(),
            placed: BTreeMap::new(),
            seen: Vec::new(),
            cancelled: BTreeMap::new(),
            cancelled_with_all: BTreeSet::new(),
            unclear: BTreeSet::new(),
            is_all_unclear: false,
            ended: BTreeSet::new(),
            ended_up_to: 0,
        };
        for sent in sent.iter().filter(|sent| sent.trader == trader.number) {
            books.enter(sent);
        }
        books
    }

    fn enter(&mut self, sent: &Sent) {
        let done = |answer: &Response| {
            assert_eq!(answer.status, 200, "{:?}: {}", sent.request, answer.text);
            answer.json()
        };
        match (&sent.kind, &sent.answer) {
            (Kind::Place, Some(answer)) if answer.status == 200 => {
                let placed = answer.json();
                let before = self.placed.insert(id(&placed["order_id"]), placed);
                assert!(before.is_none(), "two orders have one id: {before:?} and {answer:?}");
            }
            (Kind::ReadOrder, Some(answer)) => self.seen.push(done(answer)),
            (Kind::Cancel { order }, Some(answer)) if answer.status == 400 => {
                assert_eq!(answer.json()["error"], "ORDER_NOT_CANCELLABLE", "{answer:?}");
                self.ended.insert(*order);
            }
            (Kind::Cancel { order }, Some(answer)) => {
                let before = self.cancelled.insert(*order, done(answer));
                assert!(before.is_none(), "cancelled twice: {before:?} and {answer:?}");
            }
            (Kind::CancelAll { newest }, Some(answer)) => {
                self.ended_up_to = self.ended_up_to.max(*newest);
                for order in done(answer)["canceled"].as_array().expect("a list") {
                    let order: u64 = order.as_str().expect("text").parse().expect("an id");
                    assert!(self.cancelled_with_all.insert(order), "cancelled twice: {order}");
                }
            }
            (Kind::Cancel { order }, None) => drop(self.unclear.insert(*order)),
            (Kind::CancelAll { .. }, None) => self.is_all_unclear = true,
            _ => {}
        }
    }

    pub(crate) fn count(&self, totals: &mut RestingTotals) {
        totals.placed += self.placed.len();
        totals.cancelled += self.cancelled.len() + self.cancelled_with_all.len();
        totals.cancelled_too_late += self.ended.len();
        totals.reads_compared += self.seen.len();
        // The newest reading comes last.
        let rows: BTreeMap<u64, &Value> =
            self.seen.iter().map(|row| (id(&row["order_id"]), row)).collect();
        for (order, row) in rows {
            let at_once = micros(&self.placed[&order]["filled_quantity"]);
            totals.filled_later += usize::from(micros(&row["filled_quantity"]) > at_once);
            totals.still_open += usize::from(row["status"] == "PENDING");
        }
    }

    /// Compares the books with what the server reports, which from now on must stay true too.
    pub(crate) fn check(&mut self, connection: &mut Connection) {
        let (rows, balance, positions) = self.read(connection);
        let found: Vec<&u64> = rows.keys().collect();
        let known: Vec<&u64> = self.placed.keys().collect();
        assert_eq!(found, known, "orders are lost, or no answer reported them");
        for (order, row) in &rows {
            check_placement(&self.placed[order], row);
            self.check_end(*order, row);
        }
        for seen in &self.seen {
            check_continues(seen, &rows[&id(&seen["order_id"])]);
        }
        check_sums(&rows, &balance, &positions);
        self.seen.extend(rows.into_values());
    }

    /// All orders, the balance and the positions at one moment.
    fn read(&self, connection: &mut Connection) -> (BTreeMap<u64, Value>, Value, Value) {
        let get = |connection: &mut Connection, path: &str| {
            connection.done(&Request::get(path).key(&self.trader.key)).json()
        };
        for _ in 0..READINGS_MAX {
            let before = order_rows(&self.trader.key, connection);
            let balance = get(connection, "/v1/account/balance");
            let positions = get(connection, "/v1/account/positions");
            // An order only ever changes forwards.
            if before == order_rows(&self.trader.key, connection)
                && let Some(rows) = before
            {
                return (rows, balance, positions);
            }
        }
        panic!("the orders change all the time");
    }

    /// An order ends as the answers said, and only for a reason.
    fn check_end(&self, order: u64, row: &Value) {
        let is_cancelled = row["status"] == "CANCELLED";
        let is_by_user = is_cancelled && row["cancelled_reason"] == "user";
        if let Some(answer) = self.cancelled.get(&order) {
            for field in ["status", "cancelled_reason", "cancelled_at", "filled_quantity"] {
                assert_eq!(row[field], answer[field], "{field} of {row}");
            }
            assert!(!self.cancelled_with_all.contains(&order), "cancelled twice: {row}");
        }
        if self.cancelled_with_all.contains(&order) {
            assert!(is_by_user, "{row}");
        }
        if self.ended.contains(&order) || order <= self.ended_up_to {
            assert_ne!(row["status"], "PENDING", "{row}");
        }
        let is_asked = self.cancelled.contains_key(&order)
            || self.cancelled_with_all.contains(&order)
            || self.unclear.contains(&order)
            || self.is_all_unclear;
        let is_killed = is_cancelled && row["cancelled_reason"] == "fak_not_filled";
        assert!(!is_cancelled || is_killed || is_by_user && is_asked, "ended by itself: {row}");
    }
}

/// An order is what its first answer said, and has at least filled as much.
fn check_placement(placed: &Value, row: &Value) {
    for field in ["side", "outcome", "order_type", "limit_price", "time_in_force"] {
        assert_eq!(row[field], placed[field], "{field} of {row}");
    }
    assert_eq!(row["client_order_id"], placed["client_order_id"], "{row}");
    assert_eq!(row["market_id"], placed["position"]["market_id"], "{row}");
    check_grows(placed, row);
    if placed["status"] != "PENDING" {
        for field in ["status", "quantity", "filled_quantity", "notional", "fee"] {
            assert_eq!(row[field], placed[field], "{field} of {row}");
        }
    }
}

/// A later row of the same order.
fn check_continues(seen: &Value, row: &Value) {
    if seen["status"] == "PENDING" {
        check_grows(seen, row);
    } else {
        assert_eq!(row, seen, "an order that had ended changed");
    }
}

fn check_grows(before: &Value, row: &Value) {
    for field in ["filled_quantity", "notional", "fee"] {
        assert!(micros(&row[field]) >= micros(&before[field]), "{field} of {row} after {before}");
    }
    let filled = ["filled_quantity", "notional"].map(|field| micros(&row[field]));
    let filled_before = ["filled_quantity", "notional"].map(|field| micros(&before[field]));
    assert!(filled[0] > filled_before[0] || filled == filled_before, "{row} after {before}");
}

/// The rows add up to the account, to the micro-dollar: what was filled, and what is held back.
fn check_sums(rows: &BTreeMap<u64, Value>, balance: &Value, positions: &Value) {
    let (mut cash, mut reserved) = (STARTING_BALANCE_MICROS, 0);
    let mut held: HashMap<(String, String), i64> = HashMap::new();
    for row in rows.values() {
        let [price, filled, left, notional, fee] =
            ["limit_price", "filled_quantity", "remaining_quantity", "notional", "fee"]
                .map(|field| micros(&row[field]));
        let (is_buy, is_open) = (row["side"] == "BUY", row["status"] == "PENDING");
        let sign = if is_buy { 1 } else { -1 };
        cash -= sign * notional + fee;
        let text = |field: &str| String::from(row[field].as_str().expect("text"));
        *held.entry((text("market_id"), text("outcome"))).or_default() += sign * filled;
        // No worse than the limit, but for fractions of a micro-dollar: what it took at once is
        // rounded by itself.
        let exact = i128::from(price) * i128::from(filled);
        let beyond = i128::from(sign) * (i128::from(notional) * 1_000_000 - exact);
        assert!(beyond < 2_000_000, "beyond its limit: {row}");
        if is_buy && is_open {
            let exact = i128::from(price) * i128::from(left);
            reserved += i64::try_from((exact + 999_999) / 1_000_000).expect("an amount");
        }
    }
    let shown = ["balance", "reserved", "available"].map(|field| micros(&balance[field]));
    assert_eq!(shown, [cash - reserved, reserved, cash - reserved], "{balance}");
    for row in positions.as_array().expect("a list") {
        let name = |field: &str| String::from(row[field].as_str().expect("text"));
        let shares = held.remove(&(name("market_id"), name("outcome")));
        assert_eq!(Some(micros(&row["quantity"])), shares, "{row}");
    }
    held.retain(|_, shares| *shares != 0);
    assert!(held.is_empty(), "positions are lost: {held:?}");
}
