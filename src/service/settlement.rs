//! Settling what the venue has resolved: decided once, paid in every shard, exactly once.
//!
//! The catalogue says that a market is resolved and keeps new orders out from then on. If any shard
//! has used the market, the decision is journaled in one shard; it stands, whatever the venue says
//! later. Then every shard that has used the market pays its positions, some with each record, and
//! says so when none is left. All of that is state, so a process that begins pays on where the one
//! before it was ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::State;
use crate::engine::command::{DecideSettlement, Settle};
use crate::engine::payout::{Decision, EVIDENCE_BYTES_MAX};
use crate::engine::settlement::Payment;
use crate::engine::view::Observed;
use crate::ids::{Place, SHARD_COUNT, ShardId};
use crate::journal::{Journal, Waiters};
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::market::{Market, Markets};
use crate::shard::{Refusal, Shards};

/// One read of a shard asks about at most this many markets.
const MARKETS_PER_READ_MAX: usize = 200;

/// How long to wait after a refusal that passes: from the first to the longest, doubled each time.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(5), Duration::from_secs(1)];

/// All decisions that the states hold, and those of them that are not paid everywhere: at start.
#[derive(Default, Debug)]
pub struct Decisions {
    /// Every one, by condition id.
    pub made: BTreeMap<Arc<str>, Arc<Decision>>,
    /// Those that some shard has to go on with.
    pub unpaid: Vec<Arc<Decision>>,
    /// The markets without one in which somebody holds shares, by condition id: the venue is to say
    /// how they go on, and how they end.
    pub awaited: BTreeSet<Arc<str>>,
}

impl Decisions {
    /// Those of these states.
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

/// Takes the markets that are resolved, and settles them.
pub struct Settler {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    /// What an earlier process has not paid everywhere.
    unpaid: Vec<Arc<Decision>>,
}

impl Settler {
    /// A settler that goes on with these decisions. There is one for the markets.
    pub fn new(
        markets: Arc<Markets>,
        shards: Arc<Shards>,
        journal: &Journal,
        unpaid: Vec<Arc<Decision>>,
    ) -> Self {
        Self { markets, shards, waiters: journal.register(), unpaid }
    }

    /// Pays what is left from before, and then whatever is resolved, for ever.
    pub async fn run(self) {
        let waiters = self.waiters.clone();
        tokio::select! {
            () = waiters.run() => {}
            () = self.work() => {}
        }
    }

    /// What [`Self::run`] runs, for a caller who polls it without being woken.
    pub(crate) async fn work(self) {
        for decision in &self.unpaid {
            tracing::info!("settlement of market {} goes on", decision.condition_id);
            self.pay(decision).await;
        }
        loop {
            let resolved = self.markets.resolutions().await;
            for markets in resolved.chunks(MARKETS_PER_READ_MAX) {
                self.settle(markets).await;
            }
        }
    }

    /// Settles those of these resolved markets that any shard has used.
    async fn settle(&self, markets: &[Arc<Market>]) {
        let decided = |market: &Arc<Market>| Some((market.clone(), decision(&market.info())?));
        let decisions: Vec<_> = markets.iter().filter_map(decided).collect();
        let ids: Arc<[Arc<str>]> =
            decisions.iter().map(|(_, decision)| decision.condition_id.clone()).collect();
        let mut is_used = vec![false; ids.len()];
        for shard in ShardId::all() {
            // An order that is decided after this read sees that the market is resolved.
            let unsettled = self.unsettled(shard, &ids).await;
            is_used.iter_mut().zip(unsettled).for_each(|(used, here)| *used |= here);
            // The read may not have waited for anything, and others share the thread.
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

    /// Which of these markets a shard has used and not settled.
    async fn unsettled(&self, shard: ShardId, ids: &Arc<[Arc<str>]>) -> Vec<bool> {
        let mut retry = Retry::default();
        loop {
            let ids = ids.clone();
            let read = self.shards.observe(shard, &self.waiters, move |state| {
                let value = ids.iter().map(|id| state.is_unsettled(id)).collect();
                // Nobody is told: what follows from it is on disk behind it.
                Observed { value, place: Place::START }
            });
            match read.await {
                Ok(unsettled) => return unsettled,
                Err(_) => retry.wait().await,
            }
        }
    }

    /// Journals a decision, and tells the one that stands: the first that was made about the
    /// market. `None` when it cannot be made.
    async fn decide(&self, decision: Arc<Decision>) -> Option<Arc<Decision>> {
        let home = Decision::home(&decision.condition_id);
        let mut retry = Retry::default();
        loop {
            let command = DecideSettlement(decision.clone());
            match self.shards.execute(home, command, &self.waiters).await {
                Ok(()) => break,
                Err(Refusal::Rejected(rejection)) => {
                    let id = &decision.condition_id;
                    tracing::error!("market {id} cannot be settled as the venue says: {rejection}");
                    return None;
                }
                Err(_) => retry.wait().await,
            }
        }
        let made = loop {
            let id = decision.condition_id.clone();
            let read = self.shards.observe(home, &self.waiters, move |state| {
                let value = state.decision(&id).map(|decided| decided.decision.clone());
                Observed { value, place: Place::START }
            });
            match read.await {
                Ok(made) => break made.expect("it was decided"),
                Err(_) => retry.wait().await,
            }
        };
        if made.payouts != decision.payouts {
            tracing::error!(
                "market {} was resolved before and the venue now says otherwise: {}; what was \
                 decided stands: {}",
                made.condition_id,
                decision.evidence,
                made.evidence
            );
        }
        Some(made)
    }

    /// Has every shard pay its positions. False when one cannot.
    async fn pay(&self, decision: &Arc<Decision>) -> bool {
        let market = &*decision.condition_id;
        let mut unpaid_shards = 0;
        let mut left: Vec<ShardId> = ShardId::all().collect();
        let mut retry = Retry::default();
        while !left.is_empty() {
            // All of them are decided before the first is waited for: one flush may cover all.
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
                        tracing::error!(market, shard, %rejection, "a shard cannot pay a market");
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
                "a market is not settled: its positions in these shards stay open"
            );
            return false;
        }
        tracing::info!(market, evidence, "a market is settled");
        true
    }
}

/// The decision that a description stands for; `None` for one that is not resolved.
fn decision(info: &MarketInfo) -> Option<Arc<Decision>> {
    if info.status != MarketStatus::Resolved || info.payouts.len() != info.outcomes.len() {
        return None;
    }
    let tokens = info.outcomes.iter().map(|outcome| outcome.token_id.clone());
    let told = info.evidence.as_deref().unwrap_or("the venue says so");
    let mut evidence = told.to_owned();
    evidence.truncate(evidence.floor_char_boundary(EVIDENCE_BYTES_MAX));
    Some(Arc::new(Decision {
        condition_id: info.condition_id.clone(),
        payouts: tokens.zip(info.payouts.iter().copied()).collect(),
        evidence: evidence.into(),
    }))
}

/// What passes is tried again, later each time.
struct Retry {
    delay: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { delay: RETRY_DELAYS[0] }
    }
}

impl Retry {
    async fn wait(&mut self) {
        tokio::time::sleep(self.delay).await;
        self.delay = (self.delay * 2).min(RETRY_DELAYS[1]);
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
