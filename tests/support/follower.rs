//! A client of the execution socket that keeps every fill, and what all of them must add up to.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::socket::{Frame, Socket, upgrade};
use crate::value::{id, micros};
use crate::{Connection, Request};

const ROWS_PER_PAGE: usize = 200;

/// Follows the fills of one account, over as many connections as it takes.
pub struct Follower {
    key: String,
    /// Every fill so far, by its number.
    pub fills: BTreeMap<u64, Value>,
    /// The number of the last fill that was received, or is known to be forgotten.
    pub last: u64,
    /// How many fills were said to be forgotten.
    pub forgotten_count: u64,
}

impl Follower {
    /// A follower that knows nothing yet. The key must be allowed to read.
    pub fn new(key: &str) -> Self {
        Self { key: key.to_owned(), fills: BTreeMap::new(), last: 0, forgotten_count: 0 }
    }

    /// Opens a socket and resumes after the last fill. Returns it with the number of the newest
    /// fill; `None` if the server is gone.
    pub fn connect(&self, connection: Connection) -> Option<(Socket, u64)> {
        let request = upgrade("/v1/ws/executions").key(&self.key);
        let mut socket = Socket::try_upgrade(connection, &request).ok()?.ok()?;
        let hello = text(&mut socket)?;
        assert_eq!(hello["type"], "connected", "{hello}");
        let newest = id(&hello["seq"]);
        assert!(newest >= self.last, "{hello}, and the fill {} was received", self.last);
        socket.say(&json!({"action": "resume", "after": self.last}));
        for seq in newest + 1.. {
            let frame = text(&mut socket)?;
            if frame["type"] == "resumed" {
                assert_eq!(frame["after"], self.last);
                break;
            }
            // A fill that came before the server read the request. It comes once more.
            assert_eq!((&frame["type"], &frame["seq"]), (&json!("fill"), &json!(seq)), "{frame}");
        }
        Some((socket, newest))
    }

    /// Reads a frame, which must continue where the last one ended; `None` if the server is gone.
    pub fn read(&mut self, socket: &mut Socket) -> Option<()> {
        let mut frame = text(socket)?;
        if frame["type"] == "gap" {
            assert_eq!(frame["from"], self.last + 1, "{frame}");
            let to = id(&frame["to"]);
            assert!(to > self.last, "{frame}");
            self.forgotten_count += to - self.last;
            self.last = to;
            frame = text(socket)?;
        }
        let expected = self.last + 1;
        assert_eq!((&frame["type"], &frame["seq"]), (&json!("fill"), &json!(expected)), "{frame}");
        self.last += 1;
        self.fills.insert(self.last, frame);
        Some(())
    }

    /// Reads up to the newest fill of a server that stays up.
    pub fn catch_up(&mut self, connection: Connection) {
        let (mut socket, newest) = self.connect(connection).expect("the server is up");
        while self.last < newest {
            self.read(&mut socket).expect("the server stays up");
        }
        assert_eq!(self.last, newest);
        assert_eq!(self.fills.len() as u64 + self.forgotten_count, newest, "a fill is missing");
    }

    /// Checks that each fill changes the balance that the one before it left, from this one up to
    /// the present one.
    pub fn check_balances(&self, starting_balance_micros: i64, connection: &mut Connection) {
        let mut before = (0, starting_balance_micros);
        for (&seq, fill) in &self.fills {
            let [balance, notional, fee] =
                ["account_balance", "notional", "fee"].map(|field| micros(&fill[field]));
            let change = if fill["side"] == "BUY" { -notional } else { notional } - fee;
            if seq == before.0 + 1 {
                assert_eq!(balance, before.1 + change, "{fill} does not follow {before:?}");
            }
            before = (seq, balance);
        }
        let answer = connection.done(&Request::get("/v1/account/balance").key(&self.key)).json();
        let cash = micros(&answer["balance"]) + micros(&answer["reserved"]);
        assert_eq!(cash, before.1, "{answer}");
    }

    /// Checks that the fills of each order are numbered, and add up to what its row shows. Returns
    /// how many orders filled in parts, and how many fills came later than their order.
    pub fn check_rows(&self, mut rows: BTreeMap<u64, Value>) -> (usize, usize) {
        let mut orders: BTreeMap<u64, Vec<&Value>> = BTreeMap::new();
        for fill in self.fills.values() {
            orders.entry(id(&fill["order_id"])).or_default().push(fill);
        }
        let (mut in_parts_count, mut later_count) = (0, 0);
        for (order, parts) in orders {
            let row = rows.remove(&order).unwrap_or_else(|| panic!("not listed: {order}"));
            for part in &parts {
                for field in ["market_id", "outcome", "side", "client_order_id"] {
                    assert_eq!(part[field], row[field], "{field} of {part} and {row}");
                }
            }
            for (of_fill, of_row) in
                [("quantity", "filled_quantity"), ("notional", "notional"), ("fee", "fee")]
            {
                let sum: i64 = parts.iter().map(|part| micros(&part[of_fill])).sum();
                assert_eq!(sum, micros(&row[of_row]), "{of_row} of {row}");
            }
            let ids: Vec<&Value> = parts.iter().map(|part| &part["trade_id"]).collect();
            assert_eq!(row["trade_ids"], json!(ids));
            in_parts_count += usize::from(parts.len() > 1);
            let is_later = |part: &&&Value| part["filled_at"] != row["created_at"];
            later_count += parts.iter().filter(is_later).count();
        }
        for row in rows.values() {
            assert_eq!(micros(&row["filled_quantity"]), 0, "its fills are missing: {row}");
        }
        (in_parts_count, later_count)
    }
}

/// All orders of an account by id; `None` if they changed while the pages were read.
pub fn order_rows(key: &str, connection: &mut Connection) -> Option<BTreeMap<u64, Value>> {
    let mut rows = BTreeMap::new();
    for page in 0.. {
        let path = format!("/v1/orders?limit={ROWS_PER_PAGE}&offset={}", page * ROWS_PER_PAGE);
        let answer = connection.done(&Request::get(path).key(key)).json();
        for row in answer["orders"].as_array().expect("a list") {
            if rows.insert(id(&row["order_id"]), row.clone()).is_some() {
                return None;
            }
        }
        if answer["has_more"] == false {
            break;
        }
    }
    Some(rows)
}

/// The next message; `None` if the server is gone.
fn text(socket: &mut Socket) -> Option<Value> {
    loop {
        match socket.next_frame() {
            Frame::Text(text) => return Some(text),
            Frame::Ping => {}
            Frame::Close(1001) | Frame::End => return None,
            other => panic!("{other:?}"),
        }
    }
}
