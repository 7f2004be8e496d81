//! Placing orders: one market order, one order of any kind, or a batch.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use crate::service::{Caller, Denied, RequestContext, Service, ServiceError};
use crate::shard::Refusal;
use paperbourse_core::engine::command::{OrderNames, PlaceOrder, Trade, TradeOrder};
use paperbourse_core::engine::order::payload::NewOrder;
use paperbourse_core::engine::order::place::Placed;
use paperbourse_core::engine::order::preview::{Preview, PreviewOrder};
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::EndReason;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::market::catalogue::MarketStatus;
use paperbourse_core::money::Shares;
use paperbourse_store::journal::Waiters;

/// A market order to place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRequest {
    /// The market, outcome, side and quantity to trade.
    pub order: TradeOrder,
    /// Names that let the caller find or repeat the order.
    pub names: OrderNames,
}

/// An order of any kind to place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlaceRequest {
    /// The order as the caller wrote it.
    pub order: NewOrder,
    /// Names that let the caller find or repeat the order.
    pub names: OrderNames,
}

impl Service {
    /// Places a market order, which is executed or queued before this function returns. The
    /// returned future resolves once the result is durable. The flag is true for a replay.
    pub fn trade<'s>(
        &'s self,
        caller: &Caller,
        request: OrderRequest,
        context: RequestContext<'s>,
    ) -> Result<impl Future<Output = Result<(OrderReceipt, bool), Refusal>> + use<'s>, Denied> {
        let OrderRequest { mut order, names } = request;
        self.name_as_listed(&mut order.market_id);
        let owner = caller.owner()?;
        let shard = owner.shard();
        let command = Trade::new(owner, order, names);
        let waiters = context.waiters;
        let mut executed = self.shards.execute(shard, command, waiters);
        let mut delayed = None;
        // Not an `async` block, because that would store the receipt several times.
        Ok(poll_fn(move |context| {
            if delayed.is_none() {
                match ready!(Pin::new(&mut executed).poll(context)) {
                    Err(refusal) => return Poll::Ready(Err(self.explained_refusal(refusal))),
                    Ok(Placed { receipt, is_replay }) if !receipt.is_delayed() => {
                        return Poll::Ready(traded(receipt).map(|receipt| (receipt, is_replay)));
                    }
                    Ok(Placed { receipt, is_replay }) => {
                        let decided = Box::pin(self.shards.delayed_outcome(&receipt, waiters));
                        delayed = Some((decided, is_replay));
                    }
                }
            }
            let (decided, is_replay) = delayed.as_mut().expect("it was set above");
            let decided = ready!(decided.as_mut().poll(context));
            let traded = decided.and_then(traded).map(|receipt| (receipt, *is_replay));
            Poll::Ready(traded.map_err(|refusal| self.explained_refusal(refusal)))
        }))
    }

    /// Places an order of any kind. The returned flag is true for a replay.
    pub async fn place(
        &self,
        caller: &Caller,
        request: PlaceRequest,
        context: RequestContext<'_>,
    ) -> Result<(OrderReceipt, bool), ServiceError> {
        let placed = self.execute_placement(caller, request, 0, context).await?;
        let outcome = self.outcome(placed, context.waiters).await;
        Ok(outcome.map_err(|refusal| self.explained_refusal(refusal))?)
    }

    /// Places an order that is held for at least so many milliseconds if it is marketable. Resolves
    /// as soon as it is durable that the order is held. The flag is true for a replay.
    pub async fn place_held(
        &self,
        caller: &Caller,
        request: PlaceRequest,
        delay_ms_min: u32,
        context: RequestContext<'_>,
    ) -> Result<(OrderReceipt, bool), ServiceError> {
        match self.execute_placement(caller, request, delay_ms_min, context).await? {
            Ok(Placed { receipt, is_replay }) => Ok((receipt, is_replay)),
            Err(refusal) => Err(self.explained_refusal(refusal).into()),
        }
    }

    /// Places an order that is held for at least so many milliseconds if it is marketable. Resolves
    /// once the placement is durable.
    async fn execute_placement(
        &self,
        caller: &Caller,
        request: PlaceRequest,
        delay_ms_min: u32,
        context: RequestContext<'_>,
    ) -> Result<Result<Placed, Refusal>, Denied> {
        let PlaceRequest { mut order, names } = request;
        self.name_as_listed(&mut order.market_id);
        let owner = caller.owner()?;
        let shard = owner.shard();
        let command = PlaceOrder::new(owner, order, names).held_for(delay_ms_min);
        Ok(self.shards.execute(shard, command, context.waiters).await)
    }

    /// Previews what an order would do if it arrived now.
    pub async fn preview(
        &self,
        caller: &Caller,
        mut order: NewOrder,
        context: RequestContext<'_>,
    ) -> Result<Preview, ServiceError> {
        self.name_as_listed(&mut order.market_id);
        let owner = caller.owner()?;
        let shard = owner.shard();
        let previewed =
            self.shards.execute(shard, PreviewOrder::new(owner, order), context.waiters);
        Ok(previewed.await.map_err(|refusal| self.explained_refusal(refusal))?)
    }

    #[cold]
    fn explained_refusal(&self, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::Rejected(rejection) => Refusal::Rejected(self.explained(rejection)),
            other => other,
        }
    }

    /// Places the orders of a batch in sequence. Each order succeeds or fails on its own. Whoever
    /// reads the batch limits it, as with [`Self::check_batch`].
    pub async fn place_all(
        &self,
        caller: &Caller,
        requests: &[PlaceRequest],
        context: RequestContext<'_>,
    ) -> Result<Vec<Result<(OrderReceipt, bool), Refusal>>, ServiceError> {
        let owner = caller.owner()?;
        let commands = requests
            .iter()
            .cloned()
            .map(|PlaceRequest { mut order, names }| {
                self.name_as_listed(&mut order.market_id);
                PlaceOrder::new(owner.clone(), order, names)
            })
            .collect();
        let answers = self.shards.execute_all(owner.shard(), commands, context.waiters).await?;
        // Delayed orders wait concurrently: the wait of each began when it was placed.
        let outcomes: Vec<_> =
            answers.into_iter().map(|placed| self.outcome(placed, context.waiters)).collect();
        let mut decided = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            decided.push(outcome.await.map_err(|refusal| self.explained_refusal(refusal)));
        }
        Ok(decided)
    }

    /// Returns the outcome of a placed order. If the order is delayed, the future waits until the
    /// order is decided, and resolves to the outcome however late it is polled.
    fn outcome<'s>(
        &'s self,
        placed: Result<Placed, Refusal>,
        waiters: &'s Arc<Waiters>,
    ) -> impl Future<Output = Result<(OrderReceipt, bool), Refusal>> + use<'s> {
        let delayed = placed.as_ref().ok().map(|placed| &placed.receipt);
        // On the heap, since otherwise the future of every request would reserve space for it.
        let decided = delayed
            .filter(|receipt| receipt.is_delayed())
            .map(|receipt| Box::pin(self.shards.delayed_outcome(receipt, waiters)));
        async move {
            let Placed { receipt, is_replay } = placed?;
            match decided {
                Some(decided) => Ok((decided.await?, is_replay)),
                None => Ok((receipt, is_replay)),
            }
        }
    }

    /// Refuses a batch with more entries than the caller's tier allows.
    pub fn check_batch(&self, caller: &Caller, count: usize) -> Result<(), ServiceError> {
        let tier = caller.tier();
        let batch_max = self.tiers.get(tier).batch_max;
        if count > batch_max as usize {
            return Err(ServiceError::BatchTooLong { count, batch_max, tier });
        }
        Ok(())
    }
}

/// Returns the receipt of a trade that filled. A trade that ended while it was delayed is refused.
fn traded(receipt: OrderReceipt) -> Result<OrderReceipt, Refusal> {
    if receipt.fill.quantity > Shares::ZERO {
        return Ok(receipt);
    }
    let end = receipt.order_state.and_then(|order_state| order_state.end);
    Err(Refusal::Rejected(match end.map(|end| end.reason) {
        Some(EndReason::Reset) => Rejection::ResetWhileDelayed,
        Some(EndReason::Suspended) => Rejection::SuspendedWhileDelayed,
        _ => Rejection::MarketClosed { status: MarketStatus::Resolved },
    }))
}
