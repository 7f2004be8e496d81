//! Counts the shares that change hands on this exchange, from the durable facts of the shards. The
//! price history shows these volumes, which the feed does not record.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::shard::Shards;
use crate::shard::facts::{FactStream, Facts, SubscribeError};
use paperbourse_core::engine::State;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::ids::{Lsn, MarketIndex, OrderId, OutcomeIndex, SHARD_COUNT, ShardId};
use paperbourse_core::market::Markets;
use paperbourse_core::money::Shares;
use paperbourse_store::journal::{Journal, Waiters};

/// Maximum number of records waiting to be counted.
const WAITING_MAX: NonZeroUsize = NonZeroUsize::new(16_384).expect("it is not 0");

/// Maximum number of markets returned by one read of a shard.
const MARKETS_PER_READ_MAX: usize = 200;

/// Delay before a shard whose queue was full is read again.
const BUSY_DELAY: Duration = Duration::from_millis(5);

/// Counts the volume of trades.
///
/// A fill is counted once it is durable, in the newest minute of the venue's time. If the counter
/// falls too far behind, the trades that it missed stay uncounted.
pub struct TradeCounter {
    counter: Counter,
    /// `None` if there are too many subscribers.
    facts: Option<FactStream>,
}

impl TradeCounter {
    /// Creates a counter. Every trade after this future resolves is counted.
    pub async fn subscribe(
        markets: Arc<Markets>,
        shards: Arc<Shards>,
        journal: Arc<Journal>,
    ) -> Self {
        let waiters = journal.register();
        let names = std::array::from_fn(|_| Vec::new());
        let counter = Counter { markets, shards, waiters: waiters.clone(), names };
        let facts = tokio::select! {
            () = waiters.run() => None,
            facts = counter.subscribe() => facts,
        };
        Self { counter, facts }
    }

    /// Counts trades. Returns only if there are too many subscribers.
    pub async fn run(self) {
        let Self { mut counter, mut facts } = self;
        let waiters = counter.waiters.clone();
        let count = async {
            while let Some(stream) = facts.take() {
                counter.follow(stream).await;
                facts = counter.subscribe().await;
            }
        };
        tokio::select! {
            () = waiters.run() => {}
            () = count => {}
        }
    }
}

struct Counter {
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    /// Condition ids of the markets that each shard has traded, indexed by shard.
    names: [Vec<Arc<str>>; SHARD_COUNT],
}

/// Shares of an outcome that changed hands.
#[derive(Clone, Copy)]
struct Traded {
    market: MarketIndex,
    outcome: OutcomeIndex,
    shares: Shares,
}

impl Counter {
    /// Subscribes to the facts, retrying while a shard is busy. Returns `None` if there are too
    /// many subscribers.
    async fn subscribe(&self) -> Option<FactStream> {
        loop {
            match self.shards.subscribe(WAITING_MAX, &self.waiters).await {
                Ok(facts) => return Some(facts),
                Err(SubscribeError::Refused(_)) => tokio::time::sleep(BUSY_DELAY).await,
                Err(error @ SubscribeError::TooMany) => {
                    tracing::error!("cannot count what is traded: {error}");
                    return None;
                }
            }
        }
    }

    /// Counts trades until the stream is cut off.
    async fn follow(&mut self, mut facts: FactStream) {
        loop {
            match facts.next().await {
                Ok(facts) => self.count(&facts).await,
                Err(behind) => {
                    tracing::warn!("the volumes of candles lack some trades: {behind}");
                    return;
                }
            }
        }
    }

    async fn count(&mut self, facts: &Facts) {
        // On the stack, because this runs for every trade.
        let mut all: SmallVec<[Traded; 2]> = SmallVec::new();
        let mut resting = Vec::new();
        for event in &facts.events {
            let (placement, fill) = match event {
                Event::OrderFilled(filled) => (&filled.placement, &filled.fill),
                Event::OrderPlaced(placed) => (&placed.placement, &placed.fill),
                Event::RestingFilled(filled) => {
                    resting.push((filled.order, filled.fill.quantity));
                    continue;
                }
                _ => continue,
            };
            let (market, outcome) = (placement.market, placement.outcome);
            all.push(Traded { market, outcome, shares: fill.quantity });
        }
        if !resting.is_empty() {
            let read = self.read(facts.shard, move |state| of_orders(state, &resting)).await;
            all.extend(read);
        }
        for traded in all.into_iter().filter(|traded| traded.shares > Shares::ZERO) {
            let name = self.name(facts.shard, traded.market).await;
            if let Some(market) = self.markets.by_condition(&name) {
                self.markets.add_volume(&market, traded.outcome, traded.shares);
            }
        }
    }

    /// Returns the condition id of a market that the shard has traded.
    async fn name(&mut self, shard: ShardId, market: MarketIndex) -> Arc<str> {
        let index = market.0 as usize;
        loop {
            let known = self.names[shard.index()].len();
            if let Some(name) = self.names[shard.index()].get(index) {
                return name.clone();
            }
            let read = self.read(shard, move |state| {
                let more = state.used_markets().iter().skip(known).take(MARKETS_PER_READ_MAX);
                more.map(|used| used.condition_id.clone()).collect::<Vec<_>>()
            });
            let more = read.await;
            self.names[shard.index()].extend(more);
        }
    }

    /// Reads a shard, retrying while it is busy. The result follows from durable facts, so this
    /// does not wait for the disk.
    async fn read<T: Send + 'static>(
        &self,
        shard: ShardId,
        read: impl Fn(&State) -> T + Clone + Send + 'static,
    ) -> T {
        loop {
            let read = read.clone();
            let observe = move |state: &State| Observed { value: read(state), lsn: Lsn::START };
            match self.shards.observe(shard, &self.waiters, observe).await {
                Ok(value) => return value,
                Err(_) => tokio::time::sleep(BUSY_DELAY).await,
            }
        }
    }
}

/// Adds the market and the outcome to the traded shares of each order. Orders that the shard no
/// longer has are left out.
fn of_orders(state: &State, orders: &[(OrderId, Shares)]) -> Vec<Traded> {
    let of_order = |&(order, shares): &(OrderId, Shares)| {
        let placement = state.order_row(order)?.placement;
        Some(Traded { market: placement.market, outcome: placement.outcome, shares })
    };
    orders.iter().filter_map(of_order).collect()
}

#[cfg(test)]
mod tests;
