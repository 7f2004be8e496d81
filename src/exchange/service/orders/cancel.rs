//! Cancelling open orders: one, or all that a request selects.

use crate::service::{Caller, RequestContext, Service, ServiceError};
use crate::shard::Refusal;
use paperbourse_core::engine::State;
use paperbourse_core::engine::command::{CancelOrder, CancelOrders};
use paperbourse_core::engine::order::cancel::{Cancelled, CancelledOrders};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::{ListedOrder, Observed};
use paperbourse_core::ids::{AccountId, Lsn, OrderId};

/// Maximum number of named orders that are looked up or cancelled in one visit of a shard.
const NAMES_PER_VISIT: usize = 64;

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

    /// Cancels the open orders of the caller's account with these names, in as many visits of its
    /// shard as necessary. Returns what became of each, in order; an unknown name is
    /// [`Rejection::OrderNotFound`].
    pub async fn cancel_named(
        &self,
        caller: &Caller,
        names: &[NameHash],
        context: RequestContext<'_>,
    ) -> Result<Vec<Result<Cancelled, Refusal>>, ServiceError> {
        let account = caller.account()?;
        let (shard, waiters) = (account.shard(), context.waiters);
        let mut outcomes = Vec::with_capacity(names.len());
        for names in names.chunks(NAMES_PER_VISIT) {
            let named = self.listed(account, names, State::observe_named, context).await?;
            let known = named.iter().flatten();
            let cancel =
                |listed: &ListedOrder| CancelOrder { account, order: listed.receipt.order };
            let commands = known.map(cancel).collect();
            let mut cancelled =
                self.shards.execute_all(shard, commands, waiters).await?.into_iter();
            outcomes.extend(named.iter().map(|order| match order {
                Some(_) => cancelled.next().expect("there is an outcome for each command"),
                None => Err(Refusal::Rejected(Rejection::OrderNotFound)),
            }));
        }
        Ok(outcomes)
    }

    /// Returns the names that the caller's orders have from the bodies of their requests, in order;
    /// `None` for an order without one, and for one that is no longer kept.
    pub async fn names_of(
        &self,
        caller: &Caller,
        orders: &[OrderId],
        context: RequestContext<'_>,
    ) -> Result<Vec<Option<Box<str>>>, ServiceError> {
        let account = caller.account()?;
        let mut names = Vec::with_capacity(orders.len());
        for orders in orders.chunks(NAMES_PER_VISIT) {
            let listed = self.listed(account, orders, State::observe_listed, context).await?;
            let name = |listed: Option<ListedOrder>| listed?.receipt.client_order_id;
            names.extend(listed.into_iter().map(name));
        }
        Ok(names)
    }

    /// Looks up orders in one visit of the account's shard.
    async fn listed<Id: Copy + Send + 'static>(
        &self,
        account: AccountId,
        ids: &[Id],
        look_up: fn(&State, AccountId, Id) -> Observed<Option<ListedOrder>>,
        context: RequestContext<'_>,
    ) -> Result<Vec<Option<ListedOrder>>, ServiceError> {
        let ids = ids.to_vec();
        let look_up_all = move |state: &State| {
            let mut lsn = Lsn::START;
            let orders = ids.into_iter().map(|id| {
                let observed = look_up(state, account, id);
                lsn = lsn.max(observed.lsn);
                observed.value
            });
            Observed { value: orders.collect(), lsn }
        };
        Ok(self.shards.observe(account.shard(), context.waiters, look_up_all).await?)
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
