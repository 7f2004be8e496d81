//! The requests that one connection sends until the server dies, and their answers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::mpsc::Sender;

use paperbourse_test_support::value::id;
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::{Value, json};

use crate::random::Random;

/// The most orders, and the most comments, that later requests may refer to.
const REMEMBERED_MAX: usize = 32;

/// An account holder; several connections act for one trader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Trader {
    /// Their number within the round.
    pub(crate) number: usize,
    pub(crate) key: String,
    pub(crate) key_id: u64,
}

/// A request and its answer, if one came.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) trader: usize,
    pub(crate) kind: Kind,
    pub(crate) request: Request,
    pub(crate) answer: Option<Response>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Trade,
    Batch,
    Comment {
        order: u64,
    },
    DeleteComment {
        comment: u64,
    },
    CreateKey {
        name: String,
    },
    RevokeKey {
        key: u64,
        raw: String,
    },
    /// An order of any kind, which may rest.
    Place,
    /// Changes nothing, but what it shows must stay true.
    ReadOrder,
    Cancel {
        order: u64,
    },
    /// All open orders, among them those of this connection up to this one, unless they have ended.
    CancelAll {
        newest: u64,
    },
}

pub(crate) struct Load<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) trader: &'a Trader,
    /// The prefix of every name that this connection uses.
    pub(crate) label: String,
    pub(crate) markets: &'a [String],
    pub(crate) random: Random,
    /// Receives a message for each answer.
    pub(crate) answered: Sender<()>,
}

/// What a connection remembers of its own requests.
#[derive(Default)]
struct Memory {
    sent: Vec<Sent>,
    /// The indices in `sent` of the newest filled orders.
    filled: VecDeque<usize>,
    orders: VecDeque<u64>,
    comments: VecDeque<u64>,
    /// The extra key that currently exists, with its raw form.
    key: Option<(u64, String)>,
}

impl Load<'_> {
    /// Sends requests in sequence until the connection breaks. Returns all of them.
    pub(crate) fn run(mut self) -> Vec<Sent> {
        let mut memory = Memory::default();
        let Ok(mut connection) = Connection::try_open(self.address) else {
            return memory.sent;
        };
        loop {
            let number = memory.sent.len();
            if self.random.below(8) == 0
                && let Some(&index) = self.random.pick(memory.filled.make_contiguous())
            {
                let Sent { request, answer, .. } = &memory.sent[index];
                let Ok(again) = connection.try_send(request) else { return memory.sent };
                assert_replay(request, answer.as_ref().expect("it filled"), &again);
                continue;
            }
            let (kind, request) = self.next(number, &memory);
            let answer = connection.try_send(&request).ok();
            let is_over = answer.is_none();
            memory.remember(Sent { trader: self.trader.number, kind, request, answer });
            if is_over {
                return memory.sent;
            }
            // The receiver is gone once the kill is due.
            let _ = self.answered.send(());
        }
    }

    fn next(&mut self, number: usize, memory: &Memory) -> (Kind, Request) {
        let request = |method, path: &str| Request::new(method, path).key(&self.trader.key);
        let name = format!("{}-{number}", self.label);
        match self.random.below(20) {
            0..3 => (Kind::Batch, self.batch(&name)),
            3..5 if !memory.orders.is_empty() => {
                let orders: Vec<_> = memory.orders.iter().copied().collect();
                let order = *self.random.pick(&orders).expect("not empty");
                let body = json!({"content": name});
                (
                    Kind::Comment { order },
                    request("POST", &format!("/trades/{order}/comments")).json(&body),
                )
            }
            5 if let Some(&comment) = memory.comments.back() => (
                Kind::DeleteComment { comment },
                request("DELETE", &format!("/comments/{comment}")),
            ),
            6 => match &memory.key {
                None => {
                    let body = json!({"name": name});
                    (Kind::CreateKey { name }, request("POST", "/v1/keys").json(&body))
                }
                Some((key, raw)) => {
                    let kind = Kind::RevokeKey { key: *key, raw: raw.clone() };
                    (kind, request("DELETE", &format!("/v1/keys/{key}")))
                }
            },
            _ => (Kind::Trade, self.trade(&name)),
        }
    }

    /// An order named by the header, in the body, or both.
    fn trade(&mut self, name: &str) -> Request {
        let mut order = self.order();
        let how = self.random.below(3);
        if how > 0 {
            order["client_order_id"] = name.into();
        }
        let request = Request::post("/trade", &order).key(&self.trader.key);
        match how {
            0 => request.named(name),
            1 => request,
            _ => request.named(&format!("{name}-header")),
        }
    }

    /// A batch named by the header; some entries have names of their own.
    fn batch(&mut self, name: &str) -> Request {
        let orders: Vec<_> = (0..=self.random.below(5))
            .map(|index| {
                let mut order = self.order();
                if self.random.below(3) == 0 {
                    order["client_order_id"] = format!("{name}-{index}").into();
                }
                order
            })
            .collect();
        let request = Request::new("POST", "/v1/orders/batch").key(&self.trader.key);
        request.json(&json!({ "orders": orders })).named(name)
    }

    fn order(&mut self) -> Value {
        let market = self.random.pick(self.markets).expect("markets are listed").clone();
        let side = if self.random.below(5) < 3 { "BUY" } else { "SELL" };
        let outcome = if self.random.below(2) == 0 { "yes" } else { "no" };
        // Mostly fractions of a share, so that fees and notionals have all their digits.
        let quantity = format!("{}.{:06}", self.random.below(4), 1 + self.random.below(999_999));
        json!({"market_id": market, "outcome": outcome, "side": side, "quantity": quantity})
    }
}

impl Memory {
    fn remember(&mut self, sent: Sent) {
        let index = self.sent.len();
        if let Some(answer) = sent.answer.as_ref().filter(|answer| answer.status < 300) {
            match &sent.kind {
                Kind::Trade => {
                    self.filled.push_back(index);
                    self.orders.push_back(id(&answer.json()["order_id"]));
                }
                Kind::Comment { .. } => self.comments.push_back(id(&answer.json()["id"])),
                Kind::DeleteComment { .. } => drop(self.comments.pop_back()),
                Kind::CreateKey { .. } => {
                    let key = answer.json();
                    let raw = key["raw_key"].as_str().expect("a new key has a raw key").into();
                    self.key = Some((id(&key["id"]), raw));
                }
                Kind::RevokeKey { .. } => self.key = None,
                _ => {}
            }
        }
        for list in [&mut self.orders, &mut self.comments] {
            if list.len() > REMEMBERED_MAX {
                list.pop_front();
            }
        }
        if self.filled.len() > REMEMBERED_MAX {
            self.filled.pop_front();
        }
        self.sent.push(sent);
    }
}

/// A repeated order gets the first answer again, byte for byte. Some answers say in the body too
/// that they are repeated.
#[track_caller]
pub(crate) fn assert_replay(request: &Request, first: &Response, again: &Response) {
    assert!(again.is_replay(), "executed twice: {request:?}, first {first:?}, then {again:?}");
    let [again_text, first_text] =
        [again, first].map(|answer| answer.text.replace(",\"is_replay\":true", ""));
    assert_eq!((again.status, again_text), (first.status, first_text), "{request:?}");
}
