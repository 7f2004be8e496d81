//! The doctor's copy of the books, and its checks against the venue's hashes and best prices.
//!
//! A statement (a hash or a best price) that does not fit the book yet is kept for a while: a trade
//! is reported after the book that it changed, several frames with the same time may share one
//! hash, and a best price may arrive before the change that explains it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::feed::verify::{HashedBook, Verifier};
use crate::polymarket::hash::BookHasher;
use crate::polymarket::wire::NO_TIMESTAMP;
use crate::polymarket::wire::clob::BookMessage;
use crate::polymarket::wire::socket::{Message, PriceChange};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::Ladder;
use paperbourse_core::money::{Price, Shares};

/// Maximum number of tokens whose books are kept.
const TOKENS_MAX: usize = 1_000;

/// Maximum number of waiting statements of each kind per token.
const WAITING_MAX: usize = 8;

/// Maximum number of past best prices kept per token.
const TOPS_MAX: usize = 32;

/// Returns whether more than `grace` has passed since `since`.
pub(super) fn has_waited(since: Timestamp, now: Timestamp, grace: Duration) -> bool {
    let waited = u64::try_from(now.millis().saturating_sub(since.millis()));
    waited.is_ok_and(|waited_ms| Duration::from_millis(waited_ms) > grace)
}

/// The source of a hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// A requested book.
    Requested,
    /// A frame on the socket.
    Socket,
}

/// The source of best prices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Statement {
    /// A `price_change` message.
    Change,
    /// A `best_bid_ask` message.
    BestBidAsk,
}

/// The result of comparing a statement with our book. `text` is the JSON of the statement's
/// message; it is empty if the statement fits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// A hash of one book.
    Hash { subject: Subject, is_v2: bool, neg_risk: bool, is_proven: bool, text: String },
    /// A hash from one of several frames with the same time. It covers the book after either that
    /// frame or the last of those frames.
    Group { is_own: bool, is_proven: bool, text: String },
    /// Best prices. If they fit, `fit` says whether they arrived before or after their change.
    Top { stated_by: Statement, fit: Option<&'static str>, text: String },
    /// The first book of a token on the socket.
    FirstBook,
}

/// The books of all requested tokens.
pub(super) struct Books {
    /// Time that a statement may wait for the message that explains it.
    grace: Duration,
    tokens: BTreeMap<String, Token>,
    hasher: BookHasher,
}

/// The inputs of a hash besides market, token, time and levels.
#[derive(Clone)]
struct Terms {
    order_size_min: Shares,
    tick: Price,
    neg_risk: bool,
    is_v2: bool,
    /// The prices of the newest trade and of the trade before it; each is `None` if there was no
    /// trade.
    trade_prices: [Option<Price>; 2],
}

type Tops = (Option<Price>, Option<Price>);

struct Token {
    market: String,
    terms: Terms,
    /// The levels according to the socket; `None` before the first book of the token.
    ladder: Option<Ladder>,
    /// The time of the newest frame with a hash.
    hashed_at: Timestamp,
    /// Past best prices, the newest last.
    tops: VecDeque<Tops>,
    hashes: Vec<WaitingHash>,
    statements: Vec<WaitingTop>,
}

struct WaitingHash {
    hash: String,
    at: Timestamp,
    ladder: Ladder,
    /// The book after the last of the later frames with the same time, if there were any.
    last_of_group: Option<Ladder>,
    text: String,
    since: Timestamp,
}

struct WaitingTop {
    stated_by: Statement,
    tops: Tops,
    text: String,
    since: Timestamp,
}

impl Books {
    /// Creates an empty set of books. A statement may wait up to `grace` for another message that
    /// explains it.
    pub(super) fn new(grace: Duration) -> Self {
        Self { grace, tokens: BTreeMap::new(), hasher: BookHasher::default() }
    }

    /// Checks the hash of a requested book, and follows the token from now on. Returns `None` if
    /// the book lacks a field that the hash covers.
    pub(super) fn requested(
        &mut self,
        book: &BookMessage<'_>,
        is_v2: bool,
        text: &str,
    ) -> Option<Judged> {
        let terms = Terms {
            order_size_min: book.order_size_min?,
            tick: book.tick?,
            neg_risk: book.neg_risk?,
            is_v2,
            trade_prices: [book.newest_trade?.price(); 2],
        };
        let neg_risk = terms.neg_risk;
        let hashed = hashed_book((book.market, book.asset_id), &terms, book.at, &book.ladder);
        let hash = book.hash?;
        let is_proven = self.hasher.matching(hashed, hash, &terms.trade_prices).is_some();
        if !self.tokens.contains_key(book.asset_id) && self.tokens.len() < TOKENS_MAX {
            let token = Token {
                market: book.market.to_owned(),
                terms,
                ladder: None,
                hashed_at: NO_TIMESTAMP,
                tops: VecDeque::new(),
                hashes: Vec::new(),
                statements: Vec::new(),
            };
            self.tokens.insert(book.asset_id.to_owned(), token);
        }
        let text = if is_proven { String::new() } else { text.to_owned() };
        Some(Judged::Hash { subject: Subject::Requested, is_v2, neg_risk, is_proven, text })
    }

    /// Applies a message received at `now`; `text` is its JSON.
    pub(super) fn message(
        &mut self,
        message: &Message<'_>,
        text: &str,
        now: Timestamp,
    ) -> Vec<Judged> {
        let grace = self.grace;
        let mut judged = Vec::new();
        match message {
            Message::Book(book) => {
                let Some(token) = self.tokens.get_mut(book.asset_id) else { return judged };
                if token.ladder.is_none() {
                    judged.push(Judged::FirstBook);
                }
                if let Some(tick) = book.tick {
                    token.terms.tick = tick;
                }
                if let Some(price) = book.newest_trade {
                    token.terms.traded(price.price());
                }
                token.ladder = Some(book.ladder.clone());
                let mut desk =
                    Desk { hasher: &mut self.hasher, judged: &mut judged, text, now, grace };
                token.changed(&mut desk);
                if let Some(hash) = book.hash {
                    token.hash_stated(book.asset_id, hash, book.at, &mut desk);
                }
            }
            Message::PriceChange(change) => self.change(change, text, now, &mut judged),
            Message::LastTradePrice(trade) => {
                let tokens = self.tokens.iter_mut().filter(|(_, it)| it.market == trade.market);
                for (id, token) in tokens {
                    token.terms.traded(Some(trade.price));
                    let mut desk =
                        Desk { hasher: &mut self.hasher, judged: &mut judged, text, now, grace };
                    token.recheck(id, &mut desk);
                }
            }
            Message::TickSizeChange(change) => {
                let Some(token) = self.tokens.get_mut(change.asset_id) else { return judged };
                token.terms.tick = change.tick;
                let mut desk =
                    Desk { hasher: &mut self.hasher, judged: &mut judged, text, now, grace };
                token.recheck(change.asset_id, &mut desk);
            }
            Message::BestBidAsk(top) => {
                let Some(token) = self.tokens.get_mut(top.asset_id) else { return judged };
                let tops = (top.best_bid, top.best_ask);
                let mut desk =
                    Desk { hasher: &mut self.hasher, judged: &mut judged, text, now, grace };
                token.tops_stated(Statement::BestBidAsk, tops, &mut desk);
            }
            Message::NewMarket(_) | Message::MarketResolved(_) => {}
        }
        judged
    }

    fn change(
        &mut self,
        change: &PriceChange<'_>,
        text: &str,
        now: Timestamp,
        judged: &mut Vec<Judged>,
    ) {
        let grace = self.grace;
        for entry in &change.entries {
            if let Some(token) = self.tokens.get_mut(entry.asset_id)
                && let Some(ladder) = &mut token.ladder
            {
                // An invalid level is refused, and the mismatched hash will show it.
                let _ = ladder.set(entry.side, entry.price, entry.size);
            }
        }
        // Hashes and best prices describe the books after the whole frame.
        for (index, entry) in change.entries.iter().enumerate() {
            let is_last =
                change.entries[index + 1..].iter().all(|later| later.asset_id != entry.asset_id);
            let Some(token) = self.tokens.get_mut(entry.asset_id) else { continue };
            if !is_last || token.ladder.is_none() {
                continue;
            }
            let mut desk = Desk { hasher: &mut self.hasher, judged, text, now, grace };
            token.changed(&mut desk);
            token.tops_stated(Statement::Change, (entry.best_bid, entry.best_ask), &mut desk);
            if let Some(hash) = entry.hash {
                token.hash_stated(entry.asset_id, hash, change.at, &mut desk);
            }
        }
    }

    /// Discards all waiting statements, because the messages that explain them may be lost.
    pub(super) fn forget_waiting(&mut self) {
        for token in self.tokens.values_mut() {
            token.hashes.clear();
            token.statements.clear();
        }
    }

    /// Judges the statements that have waited for longer than the grace period by `now`.
    pub(super) fn finish(&mut self, now: Timestamp) -> Vec<Judged> {
        let grace = self.grace;
        let mut judged = Vec::new();
        for token in self.tokens.values_mut() {
            let mut desk =
                Desk { hasher: &mut self.hasher, judged: &mut judged, text: "", now, grace };
            token.expire(&mut desk);
        }
        judged
    }
}

/// The context in which a token judges a message.
struct Desk<'a> {
    hasher: &'a mut BookHasher,
    judged: &'a mut Vec<Judged>,
    /// The JSON of the message.
    text: &'a str,
    now: Timestamp,
    grace: Duration,
}

impl Terms {
    fn traded(&mut self, price: Option<Price>) {
        if self.trade_prices[0] != price {
            self.trade_prices = [price, self.trade_prices[0]];
        }
    }
}

impl Token {
    /// Records the new best prices after a change of levels, and judges the statements they
    /// explain.
    fn changed(&mut self, desk: &mut Desk<'_>) {
        let Some(ladder) = &self.ladder else { return };
        let top =
            |level: Option<paperbourse_core::market::book::Level>| level.map(|level| level.price);
        let ours = (top(ladder.best_bid()), top(ladder.best_ask()));
        if self.tops.len() == TOPS_MAX {
            self.tops.pop_front();
        }
        self.tops.push_back(ours);
        self.statements.retain(|waiting| {
            let is_explained = fits(waiting.tops, ours);
            if is_explained {
                let (stated_by, fit) = (waiting.stated_by, Some("before its change"));
                desk.judged.push(Judged::Top { stated_by, fit, text: String::new() });
            }
            !is_explained
        });
        self.expire(desk);
    }

    fn tops_stated(&mut self, stated_by: Statement, tops: Tops, desk: &mut Desk<'_>) {
        if self.ladder.is_none() || tops == (None, None) {
            return;
        }
        // A best_bid_ask may also arrive when its change is no longer the newest.
        let known = if stated_by == Statement::Change { 1 } else { TOPS_MAX };
        if self.tops.iter().rev().take(known).any(|ours| fits(tops, *ours)) {
            let fit = Some("after its change");
            desk.judged.push(Judged::Top { stated_by, fit, text: String::new() });
            return;
        }
        if self.statements.len() == WAITING_MAX {
            desk.judged.push(self.statements.remove(0).unexplained());
        }
        let (text, since) = (desk.text.to_owned(), desk.now);
        self.statements.push(WaitingTop { stated_by, tops, text, since });
    }

    fn hash_stated(&mut self, id: &str, hash: &str, at: Timestamp, desk: &mut Desk<'_>) {
        let Some(ladder) = self.ladder.clone() else { return };
        let is_again = self.hashed_at == at;
        self.hashed_at = at;
        let mut has_group_hash = false;
        for waiting in self.hashes.iter_mut().filter(|waiting| waiting.at == at) {
            waiting.last_of_group = Some(ladder.clone());
            has_group_hash = true;
        }
        self.recheck(id, desk);
        let book = hashed_book((&self.market, id), &self.terms, at, &ladder);
        if desk.hasher.matching(book, hash, &self.terms.trade_prices).is_some() {
            desk.judged.push(self.judged_hash(true, String::new()));
            if is_again && !has_group_hash {
                let (is_own, is_proven) = (true, true);
                desk.judged.push(Judged::Group { is_own, is_proven, text: String::new() });
            }
            return;
        }
        if self.hashes.len() == WAITING_MAX {
            let oldest = self.hashes.remove(0);
            desk.judged.push(self.unproven(oldest));
        }
        self.hashes.push(WaitingHash {
            hash: hash.to_owned(),
            at,
            ladder,
            last_of_group: None,
            text: desk.text.to_owned(),
            since: desk.now,
        });
    }

    /// Compares the waiting hashes with the terms known now.
    fn recheck(&mut self, id: &str, desk: &mut Desk<'_>) {
        for waiting in std::mem::take(&mut self.hashes) {
            let mut matches = |ladder: &Ladder| {
                let book = hashed_book((&self.market, id), &self.terms, waiting.at, ladder);
                desk.hasher.matching(book, &waiting.hash, &self.terms.trade_prices).is_some()
            };
            if matches(&waiting.ladder) {
                desk.judged.push(self.judged_hash(true, String::new()));
            } else if waiting.last_of_group.as_ref().is_some_and(matches) {
                let (is_own, is_proven) = (false, true);
                desk.judged.push(Judged::Group { is_own, is_proven, text: String::new() });
            } else {
                self.hashes.push(waiting);
            }
        }
    }

    /// Judges the statements that have waited too long to be unexplained.
    fn expire(&mut self, desk: &mut Desk<'_>) {
        for waiting in std::mem::take(&mut self.hashes) {
            if has_waited(waiting.since, desk.now, desk.grace) {
                desk.judged.push(self.unproven(waiting));
            } else {
                self.hashes.push(waiting);
            }
        }
        for waiting in std::mem::take(&mut self.statements) {
            if has_waited(waiting.since, desk.now, desk.grace) {
                desk.judged.push(waiting.unexplained());
            } else {
                self.statements.push(waiting);
            }
        }
    }

    fn judged_hash(&self, is_proven: bool, text: String) -> Judged {
        let Terms { is_v2, neg_risk, .. } = self.terms;
        Judged::Hash { subject: Subject::Socket, is_v2, neg_risk, is_proven, text }
    }

    fn unproven(&self, waiting: WaitingHash) -> Judged {
        if waiting.last_of_group.is_some() {
            Judged::Group { is_own: false, is_proven: false, text: waiting.text }
        } else {
            self.judged_hash(false, waiting.text)
        }
    }
}

impl WaitingTop {
    fn unexplained(self) -> Judged {
        Judged::Top { stated_by: self.stated_by, fit: None, text: self.text }
    }
}

/// Returns whether stated best prices match ours. A stated side that is empty or missing matches
/// any price.
fn fits(stated: Tops, ours: Tops) -> bool {
    let fits = |stated: Option<Price>, ours| stated.is_none() || stated == ours;
    fits(stated.0, ours.0) && fits(stated.1, ours.1)
}

/// Returns the inputs of this book's hash.
fn hashed_book<'a>(
    (market, token_id): (&'a str, &'a str),
    terms: &Terms,
    at: Timestamp,
    ladder: &'a Ladder,
) -> HashedBook<'a> {
    let Terms { order_size_min, tick, neg_risk, is_v2, .. } = *terms;
    let version = is_v2.then_some("v2");
    HashedBook { market, token_id, at, ladder, order_size_min, tick, neg_risk, version }
}

#[cfg(test)]
mod tests;
