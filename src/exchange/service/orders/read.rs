//! Reading orders: by id, by name, in pages.

use crate::service::{Caller, Page, RequestContext, Service, ServiceError};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::{ListedOrder, Observed, OrderCursor, OrderFilter};
use paperbourse_core::ids::{Lsn, OrderId};

/// Selects orders of an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrdersRequest {
    /// Only this order; `None` for all.
    pub only: Option<OnlyOrder>,
    /// Only orders that match this filter.
    pub filter: OrderFilter,
    /// The position at which the list begins.
    pub from: OrderCursor,
    /// The page to return, counted from `from`; ignored for a single order.
    pub page: Page,
}

/// Selects a single order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnlyOrder {
    /// The order with this name.
    Named(NameHash),
    /// The order with this id; `None` stands for text that cannot be an id.
    WithId(Option<OrderId>),
}

/// A page of orders. Open orders come first, newest first, then finished ones, most recently
/// finished first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OrderList {
    /// The orders of this page.
    pub orders: Vec<ListedOrder>,
    /// Where the list continues; `None` if no further order can match.
    pub next: Option<OrderCursor>,
}

impl Service {
    /// Returns an order of the caller's account.
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

    /// Returns the requested orders of the caller's account.
    pub async fn orders(
        &self,
        caller: &Caller,
        request: OrdersRequest,
        context: RequestContext<'_>,
    ) -> Result<OrderList, ServiceError> {
        let OrdersRequest { only, filter, from, page } = request;
        let Some(only) = only else {
            return self.orders_in_pages(caller, filter, from, page, context).await;
        };
        let found = self.only_order(caller, only, context).await?;
        let orders = found.into_iter().filter(|listed| filter.matches(listed)).collect();
        Ok(OrderList { orders, next: None })
    }

    async fn only_order(
        &self,
        caller: &Caller,
        only: OnlyOrder,
        context: RequestContext<'_>,
    ) -> Result<Option<ListedOrder>, ServiceError> {
        let account = caller.account()?;
        Ok(self
            .shards
            .observe(account.shard(), context.waiters, move |state| match only {
                OnlyOrder::Named(name) => state.observe_named(account, name),
                OnlyOrder::WithId(Some(order)) if order.shard() == account.shard() => {
                    state.observe_listed(account, order)
                }
                OnlyOrder::WithId(_) => Observed { value: None, lsn: Lsn::START },
            })
            .await?)
    }

    /// Returns a page of the orders that match the filter, in as many reads of the account's shard
    /// as necessary.
    async fn orders_in_pages(
        &self,
        caller: &Caller,
        filter: OrderFilter,
        from: OrderCursor,
        page: Page,
        context: RequestContext<'_>,
    ) -> Result<OrderList, ServiceError> {
        let Page { limit, offset } = page;
        let mut reads = self.reads(caller.account()?, context);
        let mut list = OrderList { orders: Vec::new(), next: Some(from) };
        let mut skipped = 0;
        while let Some(from) = list.next.filter(|_| list.orders.len() < limit) {
            let wanted = (offset - skipped) + (limit - list.orders.len());
            let filter = filter.clone();
            let page = reads
                .next(move |state, account| state.observe_orders(account, &filter, from, wanted))
                .await?;
            list.next = page.next;
            let skip_count = (offset - skipped).min(page.orders.len());
            skipped += skip_count;
            list.orders.extend(page.orders.into_iter().skip(skip_count));
        }
        Ok(list)
    }
}
