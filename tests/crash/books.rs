//! A trader's own books, kept from the answers, and compared with what the server reports later.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use paperbourse_test_support::value::{id, micros};
use paperbourse_test_support::{Connection, Request};
use serde_json::Value;

use crate::load::{Kind, Sent, Trader};

const STARTING_BALANCE_MICROS: i64 = 1_000_000_000;
const ROWS_PER_PAGE: usize = 200;
const COMMENTS_PER_PAGE: usize = 100;

/// A filled order, in millionths.
#[derive(Debug)]
struct Fill {
    side: String,
    market: String,
    outcome: String,
    quantity: i64,
    notional: i64,
    fee: i64,
    /// The account's balance after the fill.
    balance: i64,
    /// The position's quantity after the fill.
    held: i64,
    average: i64,
    client_order_id: Value,
}

/// A position summed up from its fills, in millionths.
#[derive(Default, Debug)]
struct Holding {
    quantity: i64,
    average: i64,
    /// The proceeds of sales minus the cost of purchases.
    received: i64,
}

/// Positions by market and outcome.
type Holdings = HashMap<(String, String), Holding>;

pub(crate) struct Books {
    trader: Trader,
    /// By order id. An account's ids come from one counter, so this is the order of execution.
    fills: BTreeMap<u64, Fill>,
    keys: Keys,
    comments: Vec<Comment>,
}

#[derive(Default)]
struct Keys {
    /// Created and not revoked.
    active: BTreeSet<u64>,
    /// Revoked, with the raw key.
    ended: BTreeMap<u64, String>,
    /// Their revocation was not answered.
    unclear: BTreeSet<u64>,
    /// Names of keys whose creation was not answered.
    unanswered_names: BTreeSet<String>,
}

struct Comment {
    order: u64,
    content: String,
    /// `None` if the creation was not answered.
    id: Option<u64>,
    /// Whether the deletion was answered; `None` if none was requested.
    is_deleted: Option<bool>,
}

impl Books {
    /// The books of one trader, from all their requests. By now every order has been answered.
    pub(crate) fn of(trader: &Trader, sent: &[Sent]) -> Self {
        let mut books = Self {
            trader: trader.clone(),
            fills: BTreeMap::new(),
            keys: Keys::default(),
            comments: Vec::new(),
        };
        for sent in sent.iter().filter(|sent| sent.trader == trader.number) {
            books.enter(sent);
        }
        books
    }

    fn enter(&mut self, sent: &Sent) {
        let body = || sent.request.json_body();
        let done = sent.answer.as_ref().filter(|answer| answer.status < 300);
        let is_unanswered = sent.answer.is_none();
        match (&sent.kind, done) {
            (Kind::Trade, Some(answer)) => self.enter_fill(&body(), &answer.json()),
            (Kind::Batch, Some(answer)) => {
                let (orders, answer) = (body(), answer.json());
                let orders = orders["orders"].as_array().expect("a batch lists orders");
                let results = answer["results"].as_array().expect("a batch lists results");
                assert_eq!(orders.len(), results.len());
                for (order, result) in orders.iter().zip(results) {
                    if result["status"] == "FILLED" {
                        self.enter_fill(order, result);
                    }
                }
            }
            (Kind::Comment { order }, done) if done.is_some() || is_unanswered => {
                self.comments.push(Comment {
                    order: *order,
                    content: body()["content"].as_str().expect("it has content").into(),
                    id: done.map(|answer| id(&answer.json()["id"])),
                    is_deleted: None,
                });
            }
            (Kind::DeleteComment { comment }, done) if done.is_some() || is_unanswered => {
                let mut comments = self.comments.iter_mut();
                let comment = comments.find(|known| known.id == Some(*comment));
                comment.expect("a deleted comment has an id").is_deleted = Some(done.is_some());
            }
            (Kind::CreateKey { .. }, Some(answer)) => {
                self.keys.active.insert(id(&answer.json()["id"]));
            }
            (Kind::CreateKey { name }, None) if is_unanswered => {
                self.keys.unanswered_names.insert(name.clone());
            }
            (Kind::RevokeKey { key, raw }, Some(_)) => {
                self.keys.active.remove(key);
                self.keys.ended.insert(*key, raw.clone());
            }
            (Kind::RevokeKey { key, .. }, None) if is_unanswered => {
                self.keys.active.remove(key);
                self.keys.unclear.insert(*key);
            }
            _ => {}
        }
    }

    #[track_caller]
    fn enter_fill(&mut self, order: &Value, result: &Value) {
        let text = |value: &Value| String::from(value.as_str().expect("text"));
        let position = &result["position"];
        let fill = Fill {
            side: text(&order["side"]),
            market: text(&position["market_id"]),
            outcome: text(&position["outcome"]),
            quantity: micros(&result["quantity"]),
            notional: micros(&result["notional"]),
            fee: micros(&result["fee"]),
            balance: micros(&result["account_balance"]),
            held: micros(&position["quantity"]),
            average: micros(&position["avg_entry_price"]),
            client_order_id: order.get("client_order_id").cloned().unwrap_or_default(),
        };
        assert_eq!(fill.quantity, micros(&order["quantity"]), "{order} filled as {result}");
        let before = self.fills.insert(id(&result["order_id"]), fill);
        assert!(before.is_none(), "two orders have one id: {before:?} and {result}");
    }

    pub(crate) fn fill_count(&self) -> usize {
        self.fills.len()
    }

    /// Compares the books with what the server reports.
    pub(crate) fn check(&self, connection: &mut Connection) {
        let (balance, holdings) = self.added_up();
        let answer = connection.done(&self.get("/v1/account/balance")).json();
        assert_eq!(micros(&answer["balance"]), balance, "{answer}");
        assert_eq!(micros(&answer["starting_balance"]), STARTING_BALANCE_MICROS);
        self.check_positions(connection, holdings);
        self.check_orders(connection);
        self.check_comments(connection);
        self.check_keys(connection);
    }

    /// Balance and positions after all fills. Each fill must continue exactly where the previous
    /// one ended: a lost order, or one executed twice, would break the chain.
    fn added_up(&self) -> (i64, Holdings) {
        let mut balance = STARTING_BALANCE_MICROS;
        let mut holdings = Holdings::new();
        for (order, fill) in &self.fills {
            let holding = holdings.entry((fill.market.clone(), fill.outcome.clone())).or_default();
            let sign = if fill.side == "BUY" { 1 } else { -1 };
            balance -= sign * fill.notional + fill.fee;
            holding.quantity += sign * fill.quantity;
            holding.received -= sign * fill.notional;
            holding.average = fill.average;
            assert_eq!((fill.balance, fill.held), (balance, holding.quantity), "order {order}");
        }
        (balance, holdings)
    }

    fn check_positions(&self, connection: &mut Connection, mut holdings: Holdings) {
        let rows = connection.done(&self.get("/v1/account/positions")).json();
        for row in rows.as_array().expect("a list") {
            let name = |field: &str| String::from(row[field].as_str().expect("text"));
            let holding = holdings.remove(&(name("market_id"), name("outcome")));
            let holding = holding.unwrap_or_else(|| panic!("never traded: {row}"));
            assert_eq!(micros(&row["quantity"]), holding.quantity, "{row}");
            assert_eq!(micros(&row["avg_entry_price"]), holding.average, "{row}");
            if !row["market_value"].is_null() {
                let cost = micros(&row["market_value"]) - micros(&row["unrealized_pnl"]);
                assert_eq!(micros(&row["realized_pnl"]), holding.received + cost, "{row}");
            }
        }
        assert!(holdings.is_empty(), "positions are lost: {holdings:?}");
    }

    fn check_orders(&self, connection: &mut Connection) {
        let mut listed = BTreeSet::new();
        loop {
            let path = format!("/v1/orders?limit={ROWS_PER_PAGE}&offset={}", listed.len());
            let page = connection.done(&self.get(&path)).json();
            let rows = page["orders"].as_array().expect("a list");
            for row in rows {
                let order = id(&row["order_id"]);
                assert!(listed.insert(order), "listed twice: {row}");
                let fill = self.fills.get(&order);
                let fill = fill.unwrap_or_else(|| panic!("no answer reported this order: {row}"));
                let shown = ["quantity", "notional", "fee"].map(|field| micros(&row[field]));
                assert_eq!(shown, [fill.quantity, fill.notional, fill.fee], "{row}");
                assert_eq!(row["side"], fill.side.as_str(), "{row}");
                assert_eq!(row["client_order_id"], fill.client_order_id, "{row}");
            }
            if rows.is_empty() {
                break;
            }
        }
        let lost: Vec<_> = self.fills.keys().filter(|order| !listed.contains(order)).collect();
        assert!(lost.is_empty(), "orders are lost: {lost:?}");
    }

    fn check_comments(&self, connection: &mut Connection) {
        let orders: BTreeSet<u64> = self.comments.iter().map(|comment| comment.order).collect();
        for order in orders {
            let path = format!("/trades/{order}/comments?limit={COMMENTS_PER_PAGE}");
            let rows = connection.done(&self.get(&path)).json();
            let rows = rows.as_array().expect("a list");
            assert!(rows.len() < COMMENTS_PER_PAGE, "more comments than one page");
            let ours = || self.comments.iter().filter(|comment| comment.order == order);
            for comment in ours() {
                let matching: Vec<_> =
                    rows.iter().filter(|row| row["content"] == comment.content.as_str()).collect();
                let allowed = match (comment.id, comment.is_deleted) {
                    (Some(_), None) => 1..=1,
                    (_, Some(true)) => 0..=0,
                    (_, Some(false)) | (None, None) => 0..=1,
                };
                assert!(allowed.contains(&matching.len()), "{}: {matching:?}", comment.content);
                if let (Some(id), Some(row)) = (comment.id, matching.first()) {
                    assert_eq!(row["id"], id, "{row}");
                }
            }
            for row in rows {
                assert!(ours().any(|comment| row["content"] == *comment.content), "unknown: {row}");
            }
        }
    }

    fn check_keys(&self, connection: &mut Connection) {
        let Keys { active, ended, unclear, unanswered_names } = &self.keys;
        let rows = connection.done(&self.get("/v1/keys")).json();
        let mut unanswered = unanswered_names.clone();
        let mut known = BTreeSet::new();
        for row in rows.as_array().expect("a list") {
            let key = id(&row["id"]);
            if active.contains(&key) || key == self.trader.key_id {
                assert_eq!(row["is_active"], true, "{row}");
            } else if ended.contains_key(&key) {
                assert_eq!(row["is_active"], false, "{row}");
            } else if !unclear.contains(&key) {
                let name = row["name"].as_str().unwrap_or_default();
                assert!(unanswered.remove(name), "unknown key: {row}");
            }
            known.insert(key);
        }
        for key in active.iter().chain(ended.keys()).chain(unclear) {
            assert!(known.contains(key), "key {key} is lost");
        }
        for raw in ended.values() {
            let answer = connection.try_send(&Request::get("/v1/account/balance").key(raw));
            assert_eq!(answer.expect("the server answers").status, 401);
        }
    }

    fn get(&self, path: &str) -> Request {
        Request::get(path).key(&self.trader.key)
    }
}
