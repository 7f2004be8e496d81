//! Placing and reading orders.

use std::future::poll_fn;
use std::pin::Pin;

use super::{Caller, Denied, Page, RequestContext, Service, ServiceError};
use crate::engine::command::{OrderNames, Trade, TradeOrder};
use crate::engine::idempotency::NameHash;
use crate::engine::order::OrderReceipt;
use crate::engine::orders::Traded;
use crate::engine::rejection::Rejection;
use crate::engine::view::OrderFilter;
use crate::ids::OrderId;
use crate::shard::Refusal;

/// One order to place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderRequest {
    /// What to buy or sell.
    pub order: TradeOrder,
    /// Names by which the caller can find or repeat the order.
    pub names: OrderNames,
}

/// The status of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderStatus {
    /// Resting on the book.
    Pending,
    /// Filled completely.
    Filled,
    /// Cancelled by the account.
    Cancelled,
    /// Expired unfilled.
    Expired,
}

/// Selects orders of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrdersRequest {
    /// Only orders with this status.
    pub status: Option<OrderStatus>,
    /// Only the order with this name.
    pub name: Option<NameHash>,
    /// Only orders that match this filter.
    pub filter: OrderFilter,
    /// The page to return; ignored with a name.
    pub page: Page,
}

/// Orders, newest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OrderList {
    /// The orders of this page.
    pub orders: Vec<OrderReceipt>,
    /// Whether the account has older orders, matching or not.
    pub has_more: bool,
}

impl Service {
    /// Places a market order. It is executed or queued before this returns; the returned future
    /// resolves when the result is durable. The flag is true for a replay.
    pub fn trade(
        &self,
        caller: &Caller,
        request: OrderRequest,
        context: RequestContext<'_>,
    ) -> Result<impl Future<Output = Result<(OrderReceipt, bool), Refusal>>, Denied> {
        let OrderRequest { order, names } = request;
        let owner = caller.owner()?;
        let shard = owner.shard();
        let command = Trade::new(owner, order, names);
        let mut executed = self.shards.execute(shard, command, context.waiters);
        Ok(poll_fn(move |context| Pin::new(&mut executed).poll(context).map(filled)))
    }

    /// Places the orders of a batch in sequence. Each succeeds or fails on its own.
    pub async fn trade_all(
        &self,
        caller: &Caller,
        requests: &[OrderRequest],
        context: RequestContext<'_>,
    ) -> Result<Vec<Result<(OrderReceipt, bool), Refusal>>, ServiceError> {
        self.check_batch(caller, requests.len())?;
        let owner = caller.owner()?;
        let commands = requests
            .iter()
            .cloned()
            .map(|OrderRequest { order, names }| Trade::new(owner.clone(), order, names))
            .collect();
        let answers = self.shards.execute_all(owner.shard(), commands, context.waiters).await?;
        Ok(answers.into_iter().map(filled).collect())
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

    /// An order of the caller's account.
    pub async fn order(
        &self,
        caller: &Caller,
        order: Option<OrderId>,
        context: RequestContext<'_>,
    ) -> Result<OrderReceipt, ServiceError> {
        let account = caller.account()?;
        let order = order.ok_or(Rejection::OrderNotFound)?;
        let found = self
            .shards
            .observe(order.shard(), context.waiters, move |state| {
                state.observe_order(account, order)
            })
            .await?;
        found.ok_or_else(|| Rejection::OrderNotFound.into())
    }

    /// Orders of the caller's account, newest first. A name selects at most one order.
    pub async fn orders(
        &self,
        caller: &Caller,
        request: OrdersRequest,
        context: RequestContext<'_>,
    ) -> Result<OrderList, ServiceError> {
        let OrdersRequest { status, name, filter, page } = request;
        // There are only market orders so far, and each fills at once.
        if status.is_some_and(|status| status != OrderStatus::Filled) {
            return Ok(OrderList::default());
        }
        let Some(name) = name else {
            return self.newest_orders(caller, filter, page, context).await;
        };
        let found = self.order_named(caller, name, context).await?;
        let OrderFilter { market_id, side } = filter;
        let orders = found
            .into_iter()
            .filter(|receipt| side.is_none_or(|side| side == receipt.side))
            .filter(|receipt| market_id.as_deref().is_none_or(|id| id == &*receipt.market_id))
            .collect();
        Ok(OrderList { orders, has_more: false })
    }

    /// The order of the caller's account with this name.
    async fn order_named(
        &self,
        caller: &Caller,
        name: NameHash,
        context: RequestContext<'_>,
    ) -> Result<Option<OrderReceipt>, ServiceError> {
        let account = caller.account()?;
        Ok(self
            .shards
            .observe(account.shard(), context.waiters, move |state| {
                state.observe_named(account, name)
            })
            .await?)
    }

    /// A page of the orders that match the filter, in as many reads of the shard as that takes.
    async fn newest_orders(
        &self,
        caller: &Caller,
        filter: OrderFilter,
        page: Page,
        context: RequestContext<'_>,
    ) -> Result<OrderList, ServiceError> {
        let Page { limit, offset } = page;
        let account = caller.account()?;
        let mut list = OrderList { orders: Vec::new(), has_more: true };
        let mut examined_count = 0;
        let mut skipped = 0;
        while list.has_more && list.orders.len() < limit {
            let wanted = (offset - skipped) + (limit - list.orders.len());
            let filter = filter.clone();
            let page = self
                .shards
                .observe(account.shard(), context.waiters, move |state| {
                    state.observe_orders(account, &filter, examined_count, wanted)
                })
                .await?
                .ok_or(Rejection::AccountNotFound)?;
            examined_count = page.examined_count;
            list.has_more = page.has_more;
            let skip_count = (offset - skipped).min(page.orders.len());
            skipped += skip_count;
            list.orders.extend(page.orders.into_iter().skip(skip_count));
        }
        Ok(list)
    }
}

fn filled(answer: Result<Traded, Refusal>) -> Result<(OrderReceipt, bool), Refusal> {
    answer.map(|Traded { receipt, is_replay }| (receipt, is_replay))
}
