//! Settles resolved markets: each is decided once, and each position is paid exactly once.
//!
//! Once the catalogue marks a market as resolved, the market takes no more orders. If any shard has
//! used it, the decision is journaled in one shard and stays in force whatever the venue reports
//! later. Then every shard that has used the market pays its positions, a bounded number per
//! record, and records when none is left. All of this is state, so a restarted process continues
//! where the previous one stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::shard::{Refusal, Shards};
use paperbourse_core::engine::State;
use paperbourse_core::engine::command::{DecideSettlement, Settle};
use paperbourse_core::engine::market::payout::{Decision, EVIDENCE_BYTES_MAX};
use paperbourse_core::engine::market::settlement::Payment;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::ids::{Lsn, SHARD_COUNT, ShardId};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::{Market, Markets};
use paperbourse_store::journal::{Journal, Waiters};

/// Maximum number of markets that one read of a shard checks.
const MARKETS_PER_READ_MAX: usize = 200;

/// First and longest delay of the back-off after a transient refusal.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// The settlement decisions found in the recovered states.
#[derive(Default, Debug)]
pub struct Decisions {
    /// Every decision, by condition id.
    pub made: BTreeMap<Arc<str>, Arc<Decision>>,
    /// Decisions that some shard has not fully paid.
    pub unpaid: Vec<Arc<Decision>>,
    /// Condition ids of undecided markets in which an account holds shares. They must be followed
    /// until the venue resolves them.
    pub awaited: BTreeSet<Arc<str>>,
}

impl Decisions {
    /// Collects the decisions of these states.
    pub fn of<'a>(states: impl Iterator<Item = &'a State>) -> Self {
        let states: Vec<&State> = states.collect();
        let made = states.iter().flat_map(|state| state.decisions());
        let made: BTreeMap<_, _> = made
            .map(|decided| (decided.decision.condition_id.clone(), decided.decision.clone()))
            .collect();
        let is_unpaid = |decision: &&Arc<Decision>| {
            states.iter().any(|state| state.is_unsettled(&decision.condition_id))
        };
        let unpaid = made.values().filter(is_unpaid).cloned().collect();
        let held = states.iter().flat_map(|state| state.held_markets());
        let awaited = held.filter(|id| !made.contains_key(*id)).cloned().collect();
        Self { made, unpaid, awaited }
    }
}

/// Settles markets as they are resolved.
pub struct Settler {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    /// Decisions that an earlier process did not finish paying.
    unpaid: Vec<Arc<Decision>>,
}

impl Settler {
    /// Creates a settler that first finishes the `unpaid` decisions. Only one may run.
    pub fn new(
        markets: Arc<Markets>,
        shards: Arc<Shards>,
        journal: &Journal,
        unpaid: Vec<Arc<Decision>>,
    ) -> Self {
        Self { markets, shards, waiters: journal.register(), unpaid }
    }

    /// Finishes the unpaid decisions, then settles resolved markets. Never returns.
    pub async fn run(self) {
        let waiters = self.waiters.clone();
        tokio::select! {
            () = waiters.run() => {}
            () = self.work() => {}
        }
    }

    /// Runs like [`Self::run`], without the task that wakes waiters, for a caller that polls in a
    /// loop.
    pub async fn work(self) {
        for decision in &self.unpaid {
            let market = &*decision.condition_id;
            tracing::info!(market, "settlement resumed");
            self.pay(decision).await;
        }
        loop {
            let resolved = self.markets.resolutions().await;
            for markets in resolved.chunks(MARKETS_PER_READ_MAX) {
                self.settle(markets).await;
            }
        }
    }

    /// Settles resolved markets. Markets that no shard has used need no decision.
    async fn settle(&self, markets: &[Arc<Market>]) {
        let decided = |market: &Arc<Market>| Some((market.clone(), decision(&market.info())?));
        let decisions: Vec<_> = markets.iter().filter_map(decided).collect();
        let ids: Arc<[Arc<str>]> =
            decisions.iter().map(|(_, decision)| decision.condition_id.clone()).collect();
        let mut is_used = vec![false; ids.len()];
        for shard in ShardId::all() {
            // Orders that the shard decides after this read see that the market is resolved.
            let unsettled = self.unsettled(shard, &ids).await;
            is_used.iter_mut().zip(unsettled).for_each(|(used, here)| *used |= here);
            // The read may have completed without yielding, and other tasks share the thread.
            tokio::task::yield_now().await;
        }
        for ((market, decision), is_used) in decisions.into_iter().zip(is_used) {
            if is_used {
                let Some(decision) = self.decide(decision).await else { continue };
                if !self.pay(&decision).await {
                    continue;
                }
            }
            self.markets.mark_settled(market);
        }
    }

    /// Returns, for each market, whether the shard has used it and has yet to settle it.
    async fn unsettled(&self, shard: ShardId, ids: &Arc<[Arc<str>]>) -> Vec<bool> {
        let mut retry = Retry::default();
        loop {
            let ids = ids.clone();
            let read = self.shards.observe(shard, &self.waiters, move |state| {
                let value = ids.iter().map(|id| state.is_unsettled(id)).collect();
                // The value is not published, so this need not wait for the disk. Any record that
                // follows from it comes later in the journal.
                Observed { value, lsn: Lsn::START }
            });
            match read.await {
                Ok(unsettled) => return unsettled,
                Err(_) => retry.wait().await,
            }
        }
    }

    /// Journals a decision and returns the one in force, which is the first that was made about the
    /// market. Returns `None` if the engine rejects the decision.
    async fn decide(&self, decision: Arc<Decision>) -> Option<Arc<Decision>> {
        let home = Decision::home(&decision.condition_id);
        let mut retry = Retry::default();
        loop {
            let command = DecideSettlement(decision.clone());
            match self.shards.execute(home, command, &self.waiters).await {
                Ok(()) => break,
                Err(Refusal::Rejected(rejection)) => {
                    let market = &*decision.condition_id;
                    tracing::error!(market, %rejection, "settlement decision rejected");
                    return None;
                }
                Err(_) => retry.wait().await,
            }
        }
        let made = loop {
            let id = decision.condition_id.clone();
            let read = self.shards.observe(home, &self.waiters, move |state| {
                let value = state.decision(&id).map(|decided| decided.decision.clone());
                Observed { value, lsn: Lsn::START }
            });
            match read.await {
                Ok(made) => break made.expect("it was decided"),
                Err(_) => retry.wait().await,
            }
        };
        if made.payouts != decision.payouts {
            tracing::error!(
                market = &*made.condition_id,
                decided = &*made.evidence,
                reported = &*decision.evidence,
                "venue changed a resolution, the earlier decision stands"
            );
        }
        Some(made)
    }

    /// Makes every shard pay its positions. Returns false if a shard cannot pay.
    async fn pay(&self, decision: &Arc<Decision>) -> bool {
        let market = &*decision.condition_id;
        let mut unpaid_shards = 0;
        let mut left: Vec<ShardId> = ShardId::all().collect();
        let mut retry = Retry::default();
        while !left.is_empty() {
            // Start all payments before waiting for any, so that one flush may cover them all.
            let mut payments = Vec::with_capacity(SHARD_COUNT);
            for shard in left.drain(..) {
                let command = Settle(decision.clone());
                payments.push((shard, self.shards.execute(shard, command, &self.waiters)));
            }
            let mut is_refused = false;
            for (shard, payment) in payments {
                match payment.await {
                    Ok(Payment::Part) => left.push(shard),
                    Ok(Payment::Whole) => {}
                    Err(Refusal::Rejected(rejection)) => {
                        let shard = shard.get();
                        tracing::error!(market, shard, %rejection, "shard cannot pay a market");
                        unpaid_shards += 1;
                    }
                    Err(_) => {
                        left.push(shard);
                        is_refused = true;
                    }
                }
            }
            if is_refused {
                retry.wait().await;
            }
        }
        let evidence = &*decision.evidence;
        if unpaid_shards > 0 {
            tracing::error!(
                market,
                unpaid_shards,
                evidence,
                "market not settled, its positions in some shards stay open"
            );
            return false;
        }
        tracing::info!(market, evidence, "market settled");
        true
    }
}

/// Returns the decision for a resolved market, or `None` if the market is not resolved.
fn decision(info: &MarketInfo) -> Option<Arc<Decision>> {
    if info.status != MarketStatus::Resolved || info.payouts.len() != info.outcomes.len() {
        return None;
    }
    let tokens = info.outcomes.iter().map(|outcome| outcome.token_id.clone());
    let mut evidence = info.evidence.as_deref().unwrap_or("the venue says so").to_owned();
    evidence.truncate(evidence.floor_char_boundary(EVIDENCE_BYTES_MAX));
    Some(Arc::new(Decision {
        condition_id: info.condition_id.clone(),
        payouts: tokens.zip(info.payouts.iter().copied()).collect(),
        evidence: evidence.into(),
    }))
}

/// Exponential back-off.
pub(super) struct Retry {
    delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { delay: RETRY_DELAYS[0] }
    }
}

impl Retry {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 2).min(RETRY_DELAYS[1]);
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
