//! Trades that are settled late, or never.
//!
//! Whoever first shows a trade decides its fate, by the wallet's next draw. A trade that is settled
//! at once, as all are without trouble, takes no room here but its number. Fates are kept in
//! memory: after a restart, all trades are settled but those that were undone.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{About, Subject, Trouble};
use crate::rows::clob_trade::Trade;
use crate::rows::order_id;
use crate::rows::settlement::Stage;
use paperbourse_clob::trouble::Kind;
use paperbourse_core::engine::fills::fill::Fill;
use paperbourse_core::ids::{AccountId, OrderId, Timestamp};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Shares, Usd};

/// Maximum number of trades whose fate is remembered. Older ones count as settled.
const TRADES_MAX: usize = 100_000;

/// The kinds of trouble that befall a trade, in the order in which they are drawn.
const KINDS: [Kind; 3] = [Kind::Failed, Kind::Retrying, Kind::Lag];

/// A trade: its order, and its number within the order.
type TradeId = (OrderId, u32);

/// The trades of a server that are not settled yet.
#[derive(Debug)]
pub(super) struct Settlements {
    /// Trades from before are settled.
    began: Timestamp,
    trades: Mutex<Trades>,
    /// Signals that a trade is due earlier than all others.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Trades {
    /// The trades that are known; those that were settled at once have no fate.
    known: HashMap<TradeId, Option<Box<Fate>>>,
    /// The known trades, the oldest first.
    order: VecDeque<(TradeId, Timestamp)>,
    /// The newest trade that was forgotten. Those up to then are settled.
    forgotten: Option<Timestamp>,
    /// What happens next, by time.
    steps: BTreeMap<(i64, TradeId), Step>,
    /// The trades of each account that are not settled.
    open: HashMap<AccountId, BTreeSet<TradeId>>,
}

/// What becomes of a trade.
#[derive(Debug)]
struct Fate {
    trade: Unsettled,
    kind: Kind,
    stage: Stage,
    /// When its steps are due, in milliseconds; the first one only if it is tried again.
    due_ms: [i64; 2],
}

/// A trade that is not settled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unsettled {
    pub(crate) account: AccountId,
    pub(crate) order: OrderId,
    /// The trade's number within the order.
    pub(crate) part: u32,
    pub(crate) market_id: Box<str>,
    pub(crate) token_id: Box<str>,
    pub(crate) outcome: Box<str>,
    pub(crate) side: Side,
    pub(crate) fill: Fill,
    pub(crate) client_order_id: Option<Box<str>>,
    pub(crate) is_taker: bool,
}

impl Unsettled {
    fn of(account: AccountId, trade: &Trade<'_>) -> Self {
        Self {
            account,
            order: trade.order,
            part: trade.part,
            market_id: trade.market_id.into(),
            token_id: trade.token_id.into(),
            outcome: trade.outcome.into(),
            side: trade.side,
            fill: *trade.fill,
            client_order_id: trade.client_order_id.map(Into::into),
            is_taker: trade.is_taker,
        }
    }

    /// Returns the account, the order, and the number of the trade within the order.
    pub const fn id(&self) -> (AccountId, OrderId, u32) {
        (self.account, self.order, self.part)
    }

    /// Returns the trade as rows show it.
    pub(crate) fn trade(&self) -> Trade<'_> {
        Trade {
            order: self.order,
            part: self.part,
            market_id: &self.market_id,
            token_id: &self.token_id,
            outcome: &self.outcome,
            side: self.side,
            fill: &self.fill,
            client_order_id: self.client_order_id.as_deref(),
            is_taker: self.is_taker,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Retry,
    Settle,
}

/// What the next step of a trade is, once it is due.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Due {
    /// Tell that it is tried again.
    Retry(Unsettled),
    /// Tell that it is settled.
    Settle(Unsettled),
    /// Undo its fill.
    Undo(Unsettled),
}

/// What trades that are not settled have moved already.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moved {
    /// The cash that the account has by now and would not have without these trades; negative if
    /// it has less.
    pub(crate) cash: Usd,
    /// The shares of one outcome, likewise.
    pub(crate) shares: Shares,
    /// The shares of the outcome that were bought and are not there yet.
    pub(crate) bought: Shares,
}

impl Settlements {
    pub(super) fn new(began: Timestamp) -> Self {
        Self { began, trades: Mutex::default(), changed: Notify::new() }
    }

    /// Returns how far a trade is. Decides its fate if it was never asked for.
    pub(super) fn stage(
        &self,
        trouble: &Trouble,
        (account, wallet): (AccountId, &str),
        trade: &Trade<'_>,
        now: Timestamp,
    ) -> Stage {
        let id = (trade.order, trade.part);
        let mut trades = self.trades.lock();
        if let Some(known) = trades.known.get(&id) {
            return known.as_ref().map_or(Stage::Confirmed, |fate| fate.stage);
        }
        let at = trade.fill.at;
        if at < self.began || trades.forgotten.is_some_and(|forgotten| at <= forgotten) {
            return Stage::Confirmed;
        }
        let order_id = order_id(trade.order, trade.client_order_id);
        let about = About { orders: &[&order_id], token: Some(trade.token_id) };
        let subject = Subject::wallet(wallet, None);
        let drawn = KINDS.iter().find_map(|&kind| {
            let drawn = trouble.draw(kind, subject, about, now)?;
            Some((kind, i64::from(drawn.length_ms)))
        });
        let fate = drawn.and_then(|(kind, length_ms)| {
            let due_ms = at.millis() + length_ms;
            // Nobody has asked in time.
            (now.millis() < due_ms).then_some((kind, length_ms, due_ms))
        });
        let fate = fate.map(|(kind, length_ms, due_ms)| {
            let retry_ms = due_ms - length_ms / 2 - 1;
            if kind != Kind::Lag {
                trades.steps.insert((retry_ms, id), Step::Retry);
            }
            trades.steps.insert((due_ms, id), Step::Settle);
            trades.open.entry(account).or_default().insert(id);
            self.changed.notify_one();
            let (trade, due_ms) = (Unsettled::of(account, trade), [retry_ms, due_ms]);
            Box::new(Fate { trade, kind, stage: Stage::Matched, due_ms })
        });
        let stage = fate.as_ref().map_or(Stage::Confirmed, |fate| fate.stage);
        trades.remember(id, at, fate);
        stage
    }

    /// Waits until a trade is due, and returns what to do. `clock` tells the time.
    pub(super) async fn next(&self, clock: impl Fn() -> Timestamp) -> Due {
        loop {
            let changed = self.changed.notified();
            let wait_ms = {
                let mut trades = self.trades.lock();
                let now_ms = clock().millis();
                match trades.steps.first_key_value().map(|(&(at_ms, _), _)| at_ms - now_ms) {
                    Some(wait_ms) if wait_ms <= 0 => {
                        if let Some(due) = trades.take_due() {
                            return due;
                        }
                        continue;
                    }
                    wait_ms => wait_ms,
                }
            };
            match wait_ms {
                None => changed.await,
                Some(wait_ms) => {
                    let wait = std::time::Duration::from_millis(wait_ms.unsigned_abs());
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep(wait) => {}
                    }
                }
            }
        }
    }

    /// Records that a trade is settled, or that its fill was undone.
    pub(super) fn end(&self, trade: &Unsettled, stage: Stage) {
        debug_assert!(stage.is_final(), "a trade ends once");
        let mut trades = self.trades.lock();
        let id = (trade.order, trade.part);
        if let Some(Some(fate)) = trades.known.get_mut(&id) {
            fate.stage = stage;
        }
        trades.close(trade.account, id);
    }

    /// Returns what the trades of an account that are not settled have moved.
    pub(super) fn moved(&self, account: AccountId, token_id: Option<&str>) -> Moved {
        let trades = self.trades.lock();
        let mut moved = Moved::default();
        for id in trades.open.get(&account).into_iter().flatten() {
            let Some(Some(fate)) = trades.known.get(id) else { continue };
            let Unsettled { side, fill, .. } = &fate.trade;
            let is_of_token = token_id == Some(&*fate.trade.token_id);
            match side {
                Side::Buy => {
                    moved.cash -= fill.notional + fill.fee;
                    if is_of_token {
                        moved.shares += fill.quantity;
                        moved.bought += fill.quantity;
                    }
                }
                Side::Sell => {
                    moved.cash += fill.notional - fill.fee;
                    if is_of_token {
                        moved.shares -= fill.quantity;
                    }
                }
            }
        }
        moved
    }
}

impl Trades {
    fn remember(&mut self, id: TradeId, at: Timestamp, fate: Option<Box<Fate>>) {
        if self.order.len() >= TRADES_MAX
            && let Some((oldest, at)) = self.order.pop_front()
        {
            self.forgotten = self.forgotten.max(Some(at));
            if let Some(Some(fate)) = self.known.remove(&oldest) {
                for at_ms in fate.due_ms {
                    self.steps.remove(&(at_ms, oldest));
                }
                self.close(fate.trade.account, oldest);
            }
        }
        self.order.push_back((id, at));
        self.known.insert(id, fate);
    }

    /// Takes the first step.
    fn take_due(&mut self) -> Option<Due> {
        let ((_, id), step) = self.steps.pop_first()?;
        let fate = self.known.get_mut(&id)?.as_mut()?;
        let trade = fate.trade.clone();
        Some(match (step, fate.kind) {
            (Step::Retry, _) => {
                fate.stage = Stage::Retrying;
                Due::Retry(trade)
            }
            (Step::Settle, Kind::Failed) => Due::Undo(trade),
            (Step::Settle, _) => Due::Settle(trade),
        })
    }

    fn close(&mut self, account: AccountId, id: TradeId) {
        if let Some(open) = self.open.get_mut(&account) {
            open.remove(&id);
            if open.is_empty() {
                self.open.remove(&account);
            }
        }
    }
}

#[cfg(test)]
mod tests;
