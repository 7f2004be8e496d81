//! Decides delayed orders when their wait is over, and delivers the outcomes to waiting requests.
//!
//! A shard announces a delayed order in the same turn in which it journals the order, and thus
//! before any request can ask for the outcome. From then on, the order is decided whether or not
//! its client still waits.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::{Refusal, Shards};
use paperbourse_core::engine::State;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::order::delayed::DecideDelayed;
use paperbourse_core::engine::order::place::Placed;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::OrderId;
use paperbourse_store::journal::Waiters;

/// How long an outcome is kept for late requests, such as a repeat of the order.
const KEPT: Duration = Duration::from_secs(10);

/// Delay before another attempt to decide an order for which the server had no room.
const RETRY: Duration = Duration::from_millis(200);

/// The receipt of a decided order, or the reason why there is no receipt.
type Outcome = Result<OrderReceipt, Refusal>;

/// The delayed orders of all shards, and the outcomes of those decided recently. Both are bounded
/// by the number of open orders that an account may have.
#[derive(Default)]
pub struct DelayedOrders {
    waits: Mutex<Waits>,
    /// Signals that an order has been added that may be due before all others.
    earlier: Notify,
}

#[derive(Default)]
struct Waits {
    /// A tree, because a hash table would not free the memory that it needed at a peak.
    by_order: BTreeMap<OrderId, Wait>,
    timeline: BTreeMap<(Instant, OrderId), Step>,
    delayed_count: usize,
}

struct Wait {
    market_id: Arc<str>,
    outcome: watch::Sender<Option<Outcome>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Decide,
    Forget,
}

impl DelayedOrders {
    /// Announces the orders that these events delay. Must be called with the state after them.
    #[inline]
    pub(super) fn announce(&self, events: &[Event], state: &State) {
        for event in events {
            if let Event::OrderDelayed(delayed) = event {
                let market = state.used_market(delayed.placement.market);
                let wait_ns = delayed.delay.due.nanos() - delayed.at.nanos();
                let wait = Duration::from_nanos(wait_ns.max(0).cast_unsigned());
                self.add(
                    delayed.placement.order,
                    market.condition_id.clone(),
                    Instant::now() + wait,
                );
            }
        }
    }

    /// Announces the delayed orders of a recovered state. Their clients are gone, so they are due
    /// at once.
    pub(super) fn announce_all(&self, state: &State) {
        for (order, market_id) in state.delayed_orders() {
            self.add(order, market_id.clone(), Instant::now());
        }
    }

    fn add(&self, order: OrderId, market_id: Arc<str>, due: Instant) {
        let mut waits = self.waits.lock();
        let is_first = waits.timeline.first_key_value().is_none_or(|(&(at, _), _)| due < at);
        let wait = Wait { market_id, outcome: watch::Sender::new(None) };
        let former = waits.by_order.insert(order, wait);
        assert!(former.is_none(), "an order is announced once");
        waits.timeline.insert((due, order), Step::Decide);
        waits.delayed_count += 1;
        if is_first {
            self.earlier.notify_one();
        }
    }

    /// Returns the number of delayed orders.
    pub fn count(&self) -> usize {
        self.waits.lock().delayed_count
    }

    /// Removes the orders that are due by now from the timeline. Returns these orders and the time
    /// of the next step.
    fn take_due(&self, now: Instant) -> (Vec<DecideDelayed>, Option<Instant>) {
        let mut waits = self.waits.lock();
        let mut due = Vec::new();
        while let Some(entry) = waits.timeline.first_entry() {
            let &(at, order) = entry.key();
            if at > now {
                return (due, Some(at));
            }
            match entry.remove() {
                Step::Decide => {
                    let market_id = waits.by_order[&order].market_id.clone();
                    due.push(DecideDelayed { order, market_id });
                }
                Step::Forget => {
                    waits.by_order.remove(&order);
                }
            }
        }
        (due, None)
    }

    /// Removes all orders from the timeline, as if they were due.
    #[cfg(any(test, feature = "test-util"))]
    pub fn take_all(&self) -> Vec<DecideDelayed> {
        let Waits { by_order, timeline, .. } = &mut *self.waits.lock();
        let mut all = Vec::new();
        timeline.retain(|&(_, order), &mut step| {
            if step == Step::Decide {
                all.push(DecideDelayed { order, market_id: by_order[&order].market_id.clone() });
            }
            step != Step::Decide
        });
        all.sort_by_key(|it| it.order);
        all
    }

    /// Passes an order's outcome to the requests that wait for it, and schedules the order's next
    /// step. An order that could not be decided is still delayed, and its request keeps waiting: a
    /// refusal would mean that the order is gone.
    fn note(&self, order: OrderId, outcome: Outcome) {
        let is_final =
            !matches!(outcome, Err(Refusal::Busy | Refusal::JournalFull | Refusal::ServerFull));
        let mut waits = self.waits.lock();
        let (delay, step) = if is_final { (KEPT, Step::Forget) } else { (RETRY, Step::Decide) };
        waits.timeline.insert((Instant::now() + delay, order), step);
        if is_final {
            debug_assert!(waits.delayed_count > 0, "an order is counted until it is decided");
            waits.delayed_count -= 1;
            if let Some(wait) = waits.by_order.get(&order) {
                wait.outcome.send_replace(Some(outcome));
            }
        }
        drop(waits);
        self.earlier.notify_one();
    }

    fn outcome_of(&self, order: OrderId) -> Option<watch::Receiver<Option<Outcome>>> {
        self.waits.lock().by_order.get(&order).map(|wait| wait.outcome.subscribe())
    }
}

fn outcome_of(answer: Result<Result<Placed, Rejection>, Refusal>) -> Outcome {
    Ok(answer?.map_err(Refusal::Rejected)?.receipt)
}

impl Shards {
    /// Returns the delayed orders.
    pub fn delayed_orders(&self) -> &DelayedOrders {
        &self.environment.delayed_orders
    }

    /// Decides delayed orders when they are due. Never returns; only one may run.
    pub async fn decide_delayed_orders(self: Arc<Self>, waiters: Arc<Waiters>) {
        tokio::select! {
            () = waiters.run() => {}
            () = self.decide_when_due(&waiters) => {}
        }
    }

    async fn decide_when_due(self: &Arc<Self>, waiters: &Arc<Waiters>) {
        loop {
            let (due, next) = self.delayed_orders().take_due(Instant::now());
            if !due.is_empty() {
                // Runs in a task of its own, so that waiting for the disk does not delay orders
                // that become due meanwhile.
                tokio::spawn(self.clone().decide_all(due, waiters.clone()));
            }
            // `notify_one` keeps a permit, so an order announced since `take_due` is not missed.
            let mut earlier = pin!(self.delayed_orders().earlier.notified());
            match next {
                None => earlier.await,
                Some(at) => {
                    let _ = tokio::time::timeout_at(at, &mut earlier).await;
                }
            }
        }
    }

    /// Decides these orders in sequence, and then waits for the disk once.
    pub async fn decide_all(self: Arc<Self>, due: Vec<DecideDelayed>, waiters: Arc<Waiters>) {
        let decide = |command: DecideDelayed| {
            let order = command.order;
            (order, self.execute(order.shard(), command, &waiters))
        };
        let decided: Vec<_> = due.into_iter().map(decide).collect();
        for (order, decided) in decided {
            self.delayed_orders().note(order, outcome_of(decided.await));
        }
    }

    async fn decide_delayed(
        self: &Arc<Self>,
        command: DecideDelayed,
        waiters: &Arc<Waiters>,
    ) -> Outcome {
        outcome_of(self.execute(command.order.shard(), command, waiters).await)
    }

    /// Waits until a delayed order is decided. A refusal is the outcome of the order itself.
    ///
    /// Not an `async fn`: outcomes are kept only for a while, and subscribing at once guarantees
    /// that the caller gets the outcome, however late the future is polled.
    pub fn delayed_outcome<'s>(
        self: &'s Arc<Self>,
        delayed: &OrderReceipt,
        waiters: &'s Arc<Waiters>,
    ) -> impl Future<Output = Result<OrderReceipt, Refusal>> + use<'s> {
        let (order, market_id) = (delayed.order, delayed.market_id.clone());
        let outcome = self.delayed_orders().outcome_of(order);
        async move {
            #[cfg(feature = "traces")]
            let delay = crate::trace::start(crate::trace::Stage::Delay);
            if let Some(mut outcome) = outcome
                && let Ok(told) = outcome.wait_for(Option::is_some).await
            {
                return told.clone().expect("it was waited for");
            }
            #[cfg(feature = "traces")]
            drop(delay);
            // The order was decided so long ago that its outcome is no longer kept. The command
            // then returns the order's receipt.
            self.decide_delayed(DecideDelayed { order, market_id }, waiters).await
        }
    }
}

#[cfg(test)]
mod tests;
