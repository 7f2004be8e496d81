//! Cancelling open orders: one, or all that a request selects.

use crate::service::{Caller, RequestContext, Service, ServiceError};
use paperbourse_core::engine::command::{CancelOrder, CancelOrders};
use paperbourse_core::engine::order::cancel::{Cancelled, CancelledOrders};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::OrderId;

/// Selects the open orders to cancel. If every field is `None`, selects all orders of the account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CancelRequest {
    /// Only orders in the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only orders for the outcome with this token.
    pub token_id: Option<Box<str>>,
}

impl Service {
    /// Cancels an open order of the caller's account.
    pub async fn cancel(
        &self,
        caller: &Caller,
        order: Option<OrderId>,
        context: RequestContext<'_>,
    ) -> Result<Cancelled, ServiceError> {
        let account = caller.account()?;
        let order = order.ok_or(Rejection::OrderNotFound)?;
        let command = CancelOrder { account, order };
        Ok(self.shards.execute(order.shard(), command, context.waiters).await?)
    }

    /// Cancels the open orders that the request selects, oldest first, and returns their ids. If
    /// the shard refuses a later visit, the orders cancelled by earlier ones stay cancelled.
    pub async fn cancel_all(
        &self,
        caller: &Caller,
        request: CancelRequest,
        context: RequestContext<'_>,
    ) -> Result<Vec<OrderId>, ServiceError> {
        let CancelRequest { market_id, token_id } = request;
        let account = caller.account()?;
        let mut command = CancelOrders { account, market_id, token_id, after: None };
        let mut cancelled = Vec::new();
        loop {
            let visit = self.shards.execute(account.shard(), command.clone(), context.waiters);
            let CancelledOrders { orders, has_more } = visit.await?;
            cancelled.extend(orders);
            command.after = cancelled.last().copied();
            if !has_more {
                return Ok(cancelled);
            }
        }
    }
}
