//! The sequence of reads of an account that one request needs.

use std::sync::Arc;

use super::{RequestContext, Service, ServiceError};
use crate::shard::Shards;
use paperbourse_core::engine::State;
use paperbourse_core::engine::fills::{FillCursor, FillFilter, FillHistory};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::{Observed, SettlementFilter, SettlementPage};
use paperbourse_core::ids::AccountId;
use paperbourse_store::journal::Waiters;

/// Consecutive reads of an account's shard. The worker serves other requests in between, since a
/// request may need thousands of reads, and none of them waits if everything is already on disk.
pub(super) struct Reads<'r> {
    shards: &'r Arc<Shards>,
    waiters: &'r Arc<Waiters>,
    account: AccountId,
    has_read: bool,
}

impl Service {
    /// Prepares to read this account for a request.
    pub(super) fn reads<'r>(
        &'r self,
        account: AccountId,
        context: RequestContext<'r>,
    ) -> Reads<'r> {
        Reads { shards: &self.shards, waiters: context.waiters, account, has_read: false }
    }
}

impl Reads<'_> {
    /// Performs the next read. Fails if the account does not exist.
    pub(super) async fn next<T: Send + 'static>(
        &mut self,
        read: impl FnOnce(&State, AccountId) -> Observed<Option<T>> + Send + 'static,
    ) -> Result<T, ServiceError> {
        if std::mem::replace(&mut self.has_read, true) {
            tokio::task::yield_now().await;
        }
        let account = self.account;
        let read = move |state: &State| read(state, account);
        let found = self.shards.observe(account.shard(), self.waiters, read).await?;
        Ok(found.ok_or(Rejection::AccountNotFound)?)
    }

    /// Reads at most `limit` fills that match the filter, newest first. May return fewer even if
    /// more match.
    pub(super) async fn fills(
        &mut self,
        filter: FillFilter,
        from: FillCursor,
        limit: usize,
    ) -> Result<FillHistory, ServiceError> {
        let read =
            move |state: &State, account| state.observe_fill_history(account, &filter, from, limit);
        self.next(read).await
    }

    /// Reads at most `limit` settlements that match the filter, of positions with a number below
    /// `before`. May return fewer even if more match.
    pub(super) async fn settlements(
        &mut self,
        filter: SettlementFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<SettlementPage, ServiceError> {
        let read = move |state: &State, account| {
            state.observe_settlements(account, &filter, before, limit)
        };
        self.next(read).await
    }
}
