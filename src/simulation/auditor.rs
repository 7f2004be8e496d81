//! The auditor keeps its own books in plain integers, built only from the answers that clients
//! received, and the hash of every state that each shard has been in. It checks that
//!
//! - every answer to a write or a read, and every refusal, stays true after every recovery;
//! - once every order is answered, the executed orders add up to the accounts' holdings, to the
//!   last share and micro-dollar: no order is lost and none is counted twice;
//! - a recovered shard is in a state that it had before, and that is not older than any answer.

mod keys;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;

use keys::{check_changes, is_same_key};

use super::clients::{Clients, KEPT_ORDERS_MAX, Request, START_MICROS, TRADER_COUNT};
use super::history::History;
use super::markets::{MARKETS, payout_micros};
use super::process::Noted;
use super::resting::books::RestingBooks;
use super::resting::venue::Venue;
use super::totals::Totals;
use crate::engine::State;
use crate::engine::comment::Comment;
use crate::engine::key::Key;
use crate::engine::market::payout::Decision;
use crate::engine::order::receipt::{Order, OrderReceipt};
use crate::engine::state::view::AccountPage;
use crate::ids::{AccountId, CommentId, KeyId, OrderId, SHARD_COUNT, ShardId, Timestamp};
use crate::market::book::Side;
use crate::snapshot::Recovered;

/// Maximum time, in nanoseconds, that a shard may be ahead of a clock that was set back.
const AHEAD_NANOS_MAX: i64 = 60_000_000_000;

/// A statement that an answer made about an account after a number of orders.
#[derive(Clone, Copy)]
enum Claim {
    Balance(i64),
    /// The payouts of resolved markets so far, and the cash at that point.
    Payouts {
        micros: i64,
        cash: i64,
    },
    /// The market, and the micro-shares held in it.
    Position(usize, i64),
}

/// The auditor's record of one trader.
#[derive(Default)]
struct Book {
    account: Option<AccountId>,
    /// The orders known to be executed, each with its number and receipt.
    executed: BTreeMap<OrderId, (usize, OrderReceipt)>,
    /// The execution times of orders that were answered at once, each with the number of clock
    /// jumps before it.
    times: BTreeMap<OrderId, (u64, Timestamp)>,
    /// The largest number of orders that any answer implied for the account.
    order_count: u64,
    /// The largest total of payouts that any answer reported.
    payouts: i64,
    claims: Vec<(u64, Claim)>,
}

/// A value that may be deleted later.
struct Entry<T> {
    value: T,
    /// Whether deletion was requested, and so may have taken effect.
    may_be_gone: bool,
    /// Whether an answer confirmed the deletion.
    is_gone: bool,
}

pub(super) struct Auditor {
    pub(super) history: Arc<Mutex<History>>,
    /// For each shard, the sequence of the newest record that an answer depends on.
    sequences: [u64; SHARD_COUNT],
    books: Vec<Book>,
    comments: BTreeMap<CommentId, Entry<Comment>>,
    keys: BTreeMap<KeyId, Entry<Key>>,
    /// All names requested for each key.
    names: BTreeMap<KeyId, Vec<Option<Box<str>>>>,
    /// The keys for which a rotation with an overlap was requested, and whether an answer confirmed
    /// the rotation.
    pub(super) rotations: BTreeMap<KeyId, bool>,
    /// Markets that the settler reported as fully paid.
    settled: BTreeSet<usize>,
    pub(super) resting: RestingBooks,
    /// Number of answers compared.
    pub(super) compared: u64,
}

impl Auditor {
    pub(super) fn new() -> Self {
        Self {
            history: Arc::new(Mutex::new(History::new())),
            sequences: [0; SHARD_COUNT],
            books: (0..TRADER_COUNT).map(|_| Book::default()).collect(),
            comments: BTreeMap::new(),
            keys: BTreeMap::new(),
            names: BTreeMap::new(),
            rotations: BTreeMap::new(),
            settled: BTreeSet::new(),
            resting: RestingBooks::default(),
            compared: 0,
        }
    }

    /// Records an acknowledged write. It implies that the shard is durable up to `sequence`.
    pub(super) fn acknowledged(&mut self, shard: ShardId, sequence: u64) {
        let known = &mut self.sequences[shard.index()];
        *known = sequence.max(*known);
    }

    /// Records that an answer depends on this number of orders of an account.
    pub(super) fn saw_order_count(&mut self, trader: usize, order_count: u64) {
        let known = &mut self.books[trader].order_count;
        *known = order_count.max(*known);
    }

    pub(super) fn saw_balance(&mut self, trader: usize, order_count: u64, micros: i64) {
        self.saw_order_count(trader, order_count);
        self.books[trader].claims.push((order_count, Claim::Balance(micros)));
    }

    pub(super) fn saw_position(
        &mut self,
        trader: usize,
        order_count: u64,
        market: usize,
        micros: i64,
    ) {
        self.saw_order_count(trader, order_count);
        self.books[trader].claims.push((order_count, Claim::Position(market, micros)));
    }

    pub(super) fn saw_account(&mut self, trader: usize, order_count: u64, page: &AccountPage) {
        let (micros, cash) = (page.ledger.payouts.micros(), page.ledger.cash().micros());
        let book = &mut self.books[trader];
        book.claims.push((order_count, Claim::Payouts { micros, cash }));
        book.payouts = micros.max(book.payouts);
        self.saw_order_count(trader, order_count);
        for row in &page.positions {
            let market = market_index(&row.market_id);
            self.saw_position(trader, order_count, market, row.position.shares.micros());
        }
    }

    /// Checks and records an executed order.
    pub(super) fn saw_order(
        &mut self,
        clients: &Clients,
        number: usize,
        receipt: &OrderReceipt,
    ) -> Result<(), String> {
        let order = &clients.orders[number];
        let book = &mut self.books[order.trader];
        self.compared += 1;
        let account = *book.account.get_or_insert(receipt.account);
        ensure!(receipt.account == account, "trader {} has two accounts", order.trader);
        let fill = order.fill();
        ensure!(
            receipt.fill.quantity.micros() == order.quantity_micros
                && receipt.fill.notional.micros() == fill.notional_micros
                && receipt.fill.fee.micros() == fill.fee_micros
                && receipt.level_count == fill.level_count
                && receipt.side == order.side
                && *receipt.market_id == *MARKETS[order.market].id,
            "order {number} does not match its receipt: {receipt:?}"
        );
        if let Some((other, known)) = book.executed.get(&receipt.order) {
            ensure!(
                *other == number && known == receipt,
                "order {} was {known:?} and is now {receipt:?}",
                receipt.order
            );
            return Ok(());
        }
        // Names are unique: a second id would mean a second execution.
        let recent = book.executed.iter().rev().take(2 * KEPT_ORDERS_MAX as usize);
        for (id, (other, _)) in recent {
            ensure!(*other != number, "order {number} is {id} and {}", receipt.order);
        }
        book.executed.insert(receipt.order, (number, receipt.clone()));
        Ok(())
    }

    /// Checks the time of an order that was just executed: the clock's time, or that of an earlier
    /// record if the clock was set back a little. Within a shard, times never decrease except after
    /// a jump, however often the process restarts.
    pub(super) fn saw_time(
        &mut self,
        trader: usize,
        receipt: &OrderReceipt,
        noted: Noted,
    ) -> Result<(), String> {
        let (order, at, shown) = (receipt.order, receipt.fill.at, noted.shown);
        let ahead_nanos = at.nanos() - shown.nanos();
        ensure!(
            (0..=AHEAD_NANOS_MAX).contains(&ahead_nanos),
            "order {order} has the time {at} while the clock showed {shown}"
        );
        let times = &mut self.books[trader].times;
        let before = times.range(..order).next_back();
        if let Some((other, &(jumps, earlier))) = before {
            let has_fallen = jumps == noted.jumps && at < earlier;
            ensure!(
                !has_fallen,
                "order {order} has the time {at}, earlier than {other} before it at {earlier}"
            );
        }
        times.insert(order, (noted.jumps, at));
        Ok(())
    }

    /// Checks that an order reads the same as before.
    pub(super) fn saw_reread(
        &mut self,
        trader: usize,
        receipt: &OrderReceipt,
    ) -> Result<(), String> {
        self.compared += 1;
        let known = self.books[trader].executed.get(&receipt.order);
        let is_known = known.is_some_and(|(_, known)| known == receipt);
        ensure!(is_known, "order {} reads as {receipt:?} but was {known:?}", receipt.order);
        Ok(())
    }

    pub(super) fn saw_comment(&mut self, comment: &Comment) -> Result<(), String> {
        self.compared += 1;
        let entry = self.comments.entry(comment.id).or_insert_with(|| Entry::new(comment.clone()));
        ensure!(entry.value == *comment, "comment {} has two versions", comment.id);
        ensure!(!entry.is_gone, "deleted comment {} is back", comment.id);
        Ok(())
    }

    /// Checks a full list of an order's comments.
    pub(super) fn saw_comments(
        &mut self,
        order: OrderId,
        comments: &[Comment],
    ) -> Result<(), String> {
        for comment in comments {
            self.saw_comment(comment)?;
        }
        for (id, entry) in &mut self.comments {
            if entry.value.order == order && comments.iter().all(|comment| comment.id != *id) {
                ensure!(entry.may_be_gone, "comment {id} is missing from its list");
                entry.is_gone = true;
            }
        }
        Ok(())
    }

    /// Records a request that may take effect from now on.
    pub(super) fn requested(&mut self, request: &Request) {
        match *request {
            Request::DeleteComment { comment, .. } => {
                self.comments.entry(comment).and_modify(|entry| entry.may_be_gone = true);
            }
            Request::RenameKey { key, ref name, .. } => {
                self.names.entry(key).or_default().push(name.clone());
            }
            Request::RotateKey { key, overlap_seconds: 1.., .. } => {
                self.rotations.entry(key).or_default();
            }
            Request::RevokeKey { key, .. } | Request::RotateKey { key, overlap_seconds: 0, .. } => {
                self.keys.entry(key).and_modify(|entry| entry.may_be_gone = true);
            }
            Request::Cancel { trader, order } => self.resting.asked_to_cancel(trader, order),
            Request::CancelAll { trader, .. } => self.resting.asked_to_cancel_all(trader),
            Request::Beat { trader } => self.resting.asked_to_beat(trader),
            Request::Reset { trader, .. } => self.resting.asked_to_reset(trader),
            _ => {}
        }
    }

    pub(super) fn saw_deleted(&mut self, comment: CommentId) {
        self.comments.entry(comment).and_modify(|entry| entry.is_gone = true);
    }

    pub(super) fn saw_key(&mut self, key: &Key) -> Result<(), String> {
        self.compared += 1;
        let entry = self.keys.entry(key.id).or_insert_with(|| Entry::new(key.clone()));
        ensure!(is_same_key(&entry.value, key), "key {} has two versions", key.id);
        check_changes(&entry.value, key, &self.names, &self.rotations)?;
        if key.revoked_at.is_some() {
            ensure!(entry.may_be_gone, "key {} was revoked without a request", key.id);
            entry.is_gone = true;
        }
        ensure!(key.revoked_at.is_some() == entry.is_gone, "revoked key {} works again", key.id);
        Ok(())
    }

    pub(super) fn saw_rotated(&mut self, key: KeyId, overlap_seconds: u32) {
        if overlap_seconds == 0 {
            self.saw_revoked(key);
        } else {
            self.rotations.insert(key, true);
        }
    }

    /// Records that a market is fully paid. Returns whether that is new.
    pub(super) fn saw_settled(&mut self, market: usize) -> bool {
        self.settled.insert(market)
    }

    pub(super) fn saw_revoked(&mut self, key: KeyId) {
        self.keys.entry(key).and_modify(|entry| entry.is_gone = true);
    }

    /// Checks that no shard had two different states after the same record.
    pub(super) fn check_history(&self) -> Result<(), String> {
        match self.history.lock().contradiction {
            Some((shard, sequence)) => {
                Err(format!("{shard:?} had two states after record {sequence}"))
            }
            None => Ok(()),
        }
    }

    /// Checks a recovery: nothing that was answered may be missing, and no shard may be in a state
    /// that it never had.
    pub(super) fn recovered(
        &mut self,
        recovered: &Recovered,
        clients: &Clients,
        venue: &Venue,
        totals: &mut Totals,
    ) -> Result<(), String> {
        let states: Vec<&State> = recovered.states().collect();
        for (trader, book) in self.books.iter().enumerate() {
            let state = states[clients.traders[trader].shard().index()];
            self.compared += book.check(trader, state, clients)?;
        }
        self.check_comments(&states)?;
        self.check_keys(&states)?;
        self.check_settlements(&states)?;
        self.compared += clients.check_operated(&states)?;
        self.compared += self.resting.recovered(&states, clients, venue, totals)?;
        for (state, &acknowledged) in states.iter().zip(&self.sequences) {
            let (shard, sequence) = (state.shard(), state.sequence());
            ensure!(
                sequence >= acknowledged,
                "{shard:?} recovered only up to record {sequence}, but {acknowledged} was \
                 acknowledged"
            );
            let hashes = &mut self.history.lock().shards[shard.index()];
            let at = usize::try_from(sequence).expect("a short history");
            ensure!(
                hashes.get(at) == Some(&state.hash().get()),
                "{shard:?} recovered a state at record {sequence} that it never had"
            );
            // Later records are lost, so the shard may take another course from here on.
            hashes.truncate(at + 1);
        }
        for trader in 0..TRADER_COUNT {
            if clients.traders[trader].all_answered() {
                self.settle(trader, states[clients.traders[trader].shard().index()])?;
            }
        }
        Ok(())
    }

    /// Checks that settled markets owe nothing more and that their decisions are known.
    fn check_settlements(&self, states: &[&State]) -> Result<(), String> {
        for &market in &self.settled {
            let id = MARKETS[market].id;
            for state in states {
                let shard = state.shard();
                ensure!(
                    !state.is_unsettled(id),
                    "{shard:?} owes again what it already paid in {id}"
                );
            }
            let is_of = |state: &State, market| *state.used_market(market).condition_id == *id;
            let is_used =
                |state: &&State| state.settled_markets().any(|(market, _)| is_of(state, market));
            let decided = states[Decision::home(id).index()].decision(id);
            ensure!(
                decided.is_some() || !states.iter().any(is_used),
                "the decision on {id} is lost"
            );
        }
        Ok(())
    }

    /// Returns the sequence and hash of each shard's newest state.
    pub(super) fn newest_states(&self) -> Vec<(u64, u64)> {
        let newest = |hashes: &Vec<u64>| {
            (hashes.len() as u64 - 1, *hashes.last().expect("every shard has its first state"))
        };
        self.history.lock().shards.iter().map(newest).collect()
    }

    fn check_comments(&mut self, states: &[&State]) -> Result<(), String> {
        // The server drops an order's comments together with the order.
        self.comments.retain(|_, entry| {
            let order = entry.value.order;
            states[order.shard().index()].order(order).is_some()
        });
        for (id, entry) in &self.comments {
            match states[id.shard().index()].comment(*id) {
                Some(found) => ensure!(
                    *found == entry.value && !entry.is_gone,
                    "comment {id} changed to {found:?}"
                ),
                None => ensure!(entry.may_be_gone, "comment {id} is lost"),
            }
        }
        Ok(())
    }

    fn check_keys(&mut self, states: &[&State]) -> Result<(), String> {
        for (id, entry) in &self.keys {
            let Some(found) = states[id.shard().index()].key(*id) else {
                // The server drops the oldest ended keys.
                ensure!(entry.may_be_gone, "key {id} is lost");
                continue;
            };
            ensure!(is_same_key(&found, &entry.value), "key {id} changed to {found:?}");
            check_changes(&entry.value, &found, &self.names, &self.rotations)?;
            if found.revoked_at.is_some() {
                ensure!(entry.may_be_gone, "key {id} was revoked without a request");
            } else {
                ensure!(!entry.is_gone, "revoked key {id} works again");
            }
        }
        Ok(())
    }

    /// Checks that the executed orders of a trader add up to the account. Call it once all orders
    /// of the trader are answered.
    fn settle(&mut self, trader: usize, state: &State) -> Result<(), String> {
        let book = &mut self.books[trader];
        let Some(id) = book.account else { return Ok(()) };
        let account = state.account(id).ok_or_else(|| format!("account {id} is lost"))?;
        let is_paid = |market: usize| {
            let mut settled = state.settled_markets();
            let id = MARKETS[market].id;
            settled
                .any(|(it, settled)| settled.is_paid && *state.used_market(it).condition_id == *id)
        };
        let is_paid: [bool; MARKETS.len()] = std::array::from_fn(is_paid);
        let mut final_shares = [0; MARKETS.len()];
        for (_, receipt) in book.executed.values() {
            let market = market_index(&receipt.market_id);
            final_shares[market] = receipt.fill.position_shares.micros();
        }
        let owed = |market: usize| {
            let shares = if is_paid[market] { final_shares[market] } else { 0 };
            shares * payout_micros(market) / 1_000_000
        };
        let owed: [i64; MARKETS.len()] = std::array::from_fn(owed);
        let (mut cash, mut positions) = (START_MICROS, [0; MARKETS.len()]);
        book.claims.sort_by_key(|&(order_count, _)| order_count);
        let mut claims = book.claims.drain(..).peekable();
        // Payouts only grow, and each market pays everything it owes at once.
        let is_owed = |paid: i64, before: i64| paid >= before && is_sum_of_some(&owed, paid);
        let mut check_claims = |order_count: u64, cash: i64, positions: &[i64], paid: i64| {
            let mut newest_paid = paid;
            let mut is_next = |micros: i64| {
                newest_paid = newest_paid.max(micros);
                is_owed(micros, paid)
            };
            while let Some((_, claim)) = claims.next_if(|&(at, _)| at == order_count) {
                self.compared += 1;
                let is_true = match claim {
                    Claim::Balance(micros) => is_next(micros - cash),
                    Claim::Payouts { micros, cash: reported } => {
                        reported == cash + micros && is_next(micros)
                    }
                    // A market that has paid out shows a position of 0.
                    Claim::Position(market, 0) if is_paid[market] => true,
                    Claim::Position(market, micros) => positions[market] == micros,
                };
                ensure!(is_true, "trader {trader} got a false answer after {order_count} orders");
            }
            Ok(newest_paid)
        };
        let mut paid_before = check_claims(0, cash, &positions, 0)?;
        for (order_count, (id, (number, receipt))) in (1..).zip(&book.executed) {
            let sign = if receipt.side == Side::Buy { 1 } else { -1 };
            let market = market_index(&receipt.market_id);
            cash -= sign * receipt.fill.notional.micros() + receipt.fill.fee.micros();
            positions[market] += sign * receipt.fill.quantity.micros();
            // The balance includes what resolved markets had paid by then; each of them pays in
            // full.
            let paid = receipt.fill.balance.micros() - cash;
            ensure!(
                is_owed(paid, paid_before)
                    && receipt.fill.position_shares.micros() == positions[market],
                "order {number}, executed as {id}, left {}, not {cash} plus some of {owed:?}",
                receipt.fill.balance.micros()
            );
            paid_before = check_claims(order_count, cash, &positions, paid)?;
        }
        let executed = book.executed.len() as u64;
        ensure!(
            claims.next().is_none(),
            "answers to trader {trader} imply more than {executed} orders"
        );
        ensure!(
            account.order_count_ever() == executed,
            "account {id} executed {} orders, but {executed} are known",
            account.order_count_ever()
        );
        let (ledger, paid) = (account.ledger(), owed.iter().sum::<i64>());
        ensure!(
            ledger.payouts.micros() == paid && ledger.cash().micros() == cash + paid,
            "account {id} has {} and was paid {}, not {cash} and {paid}",
            ledger.cash().micros(),
            ledger.payouts.micros()
        );
        let mut settled = [None; MARKETS.len()];
        for (_, number, row) in state.settlements().filter(|(account, ..)| *account == id) {
            let position = &account.positions()[number as usize];
            let market = market_index(&state.used_market(position.market).condition_id);
            settled[market] = Some((row.shares.micros(), row.payout.micros()));
        }
        for (market, is_paid) in is_paid.into_iter().enumerate() {
            let (shares, found) = (final_shares[market], settled[market]);
            let expected = (is_paid && shares > 0).then_some((shares, owed[market]));
            ensure!(found == expected, "account {id} was paid {found:?}, not {expected:?}");
            if is_paid {
                positions[market] = 0;
            }
        }
        let mut held = [0; MARKETS.len()];
        for position in account.positions() {
            let id = &state.used_market(position.market).condition_id;
            held[market_index(id)] += position.shares.micros();
        }
        ensure!(held == positions, "account {id} holds {held:?}, not {positions:?}");
        Ok(())
    }
}

impl<T> Entry<T> {
    const fn new(value: T) -> Self {
        Self { value, may_be_gone: false, is_gone: false }
    }
}

impl Book {
    /// Checks the answers about an account against a state. Returns the number of orders compared.
    fn check(&self, trader: usize, state: &State, clients: &Clients) -> Result<u64, String> {
        let client = &clients.traders[trader];
        let executed = self.executed.len() as u64;
        let Some(account) = state.account_of(&client.identity.digest) else {
            let is_known = executed > 0 || self.order_count > 0;
            ensure!(!is_known, "the account of trader {trader} is lost");
            return Ok(0);
        };
        let is_other = self.account.is_some_and(|known| known != account.id());
        ensure!(!is_other, "trader {trader} has two accounts");
        let found = account.order_count_ever();
        let known = executed.max(self.order_count);
        ensure!(found >= known, "trader {trader} had {known} orders, {found} were recovered");
        let (paid, known) = (account.ledger().payouts.micros(), self.payouts);
        ensure!(paid >= known, "trader {trader} had {known} in payouts, {paid} were recovered");
        let unanswered = client.unanswered.len();
        let possible = executed + unanswered as u64;
        ensure!(
            found <= possible,
            "trader {trader} sent {possible} orders, {found} were recovered"
        );
        let mut compared = 0;
        // Each unanswered order may have been executed, and thereby have displaced an older one.
        let kept = KEPT_ORDERS_MAX as usize - unanswered;
        for (id, (number, receipt)) in self.executed.iter().rev().take(kept) {
            let order = state.order(*id).ok_or_else(|| format!("order {id} is lost"))?;
            ensure!(state.receipt(order) == *receipt, "order {id} changed");
            for name in clients.orders[*number].names() {
                let named = state.order_named(account.id(), name).map(Order::id);
                ensure!(named == Some(*id), "order {id} lost a name, which now leads to {named:?}");
            }
            compared += 1;
        }
        Ok(compared)
    }
}

/// Whether a subset of these amounts adds up to `sum`.
fn is_sum_of_some(amounts: &[i64], sum: i64) -> bool {
    match amounts {
        [] => sum == 0,
        [first, rest @ ..] => is_sum_of_some(rest, sum) || is_sum_of_some(rest, sum - first),
    }
}

fn market_index(id: &str) -> usize {
    MARKETS.iter().position(|market| market.id == id).expect("one of the traded markets")
}
