//! Operator access to accounts: reading them and acting on them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Service, ServiceError};
use crate::auth::identity::identity_digest;
use crate::shard::Refusal;
use paperbourse_core::engine::State;
use paperbourse_core::engine::admin::acts::{Acted, OperatorCommand};
use paperbourse_core::engine::admin::erasure::EraseComments;
use paperbourse_core::engine::admin::standing::Act;
use paperbourse_core::engine::admin::summary::AccountSummary;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{AccountId, ID_MAX, SHARD_COUNT, ShardId};
use paperbourse_store::journal::Waiters;

impl Service {
    /// Returns at most `limit` accounts, in id order after the account `after`, and whether more
    /// follow.
    pub async fn accounts(
        &self,
        after: Option<AccountId>,
        limit: usize,
        waiters: &Arc<Waiters>,
    ) -> Result<(Vec<AccountSummary>, bool), ServiceError> {
        let now = self.moment().now;
        let counter_count = limit / SHARD_COUNT + 1;
        let mut first = after.map_or(1, AccountId::counter);
        let mut found = Vec::new();
        while first <= ID_MAX {
            // Ids are ordered by counter first, and a shard leaves no gaps, so these are the next
            // ids of all shards.
            let mut has_more = false;
            let mut next = Vec::new();
            for shard in ShardId::all() {
                let read = move |state: &State| state.observe_summaries(first, counter_count, now);
                let page = self.shards.observe(shard, waiters, read).await?;
                has_more |= page.has_more;
                next.extend(page.accounts);
            }
            next.retain(|summary| after.is_none_or(|after| summary.account > after));
            next.sort_unstable_by_key(|summary| summary.account);
            found.extend(next);
            if found.len() > limit || !has_more {
                has_more |= found.len() > limit;
                found.truncate(limit);
                return Ok((found, has_more));
            }
            first += counter_count as u64;
        }
        Ok((found, false))
    }

    /// Returns an account as an operator sees it.
    pub async fn account_summary(
        &self,
        account: AccountId,
        waiters: &Arc<Waiters>,
    ) -> Result<AccountSummary, ServiceError> {
        let now = self.moment().now;
        let read = move |state: &State| state.observe_summary(account, now);
        let found = self.shards.observe(account.shard(), waiters, read).await?;
        Ok(found.ok_or(Rejection::AccountNotFound)?)
    }

    /// Executes an operator's command on an account. An erasure takes several visits to the
    /// account's shard, and so does ending very many open orders. If the shard refuses a later
    /// visit, the effects of earlier ones remain, and the same command continues from there when it
    /// is repeated.
    pub async fn act(
        &self,
        command: OperatorCommand,
        waiters: &Arc<Waiters>,
    ) -> Result<Acted, ServiceError> {
        let mut acted = Acted::default();
        loop {
            let shard = command.account.shard();
            let visit = self.shards.execute(shard, command.clone(), waiters).await?;
            acted.is_new |= visit.is_new;
            acted.order_count += visit.order_count;
            acted.position_count += visit.position_count;
            if !visit.has_more {
                break;
            }
        }
        if matches!(command.act, Act::Suspend | Act::Erase) {
            self.settle_comments(command.account, waiters).await;
        }
        Ok(acted)
    }

    /// Erases an account and all its comments in all shards, on behalf of an operator. After a
    /// failure, the same command continues from where it stopped.
    pub async fn erase(
        &self,
        command: OperatorCommand,
        waiters: &Arc<Waiters>,
    ) -> Result<Acted, ServiceError> {
        let author = command.account;
        let suspend = OperatorCommand { act: Act::Suspend, ..command.clone() };
        // The account itself is erased last, so that until then, a repeated command can find it by
        // name.
        let suspended = match self.act(suspend, waiters).await {
            // The account was erased before.
            Err(ServiceError::Refused(Refusal::Rejected(Rejection::AccountNotFound))) => {
                Acted::default()
            }
            suspended => suspended?,
        };
        self.erase_comments(author, waiters).await?;
        let mut acted = self.act(command, waiters).await?;
        acted.order_count += suspended.order_count;
        // These are comments written in the meantime, if another operator resumed the account.
        self.erase_comments(author, waiters).await?;
        Ok(acted)
    }

    async fn erase_comments(
        &self,
        author: AccountId,
        waiters: &Arc<Waiters>,
    ) -> Result<(), ServiceError> {
        for shard in ShardId::all() {
            let mut after = None;
            loop {
                let command = EraseComments { author, after };
                after = self.shards.execute(shard, command, waiters).await?.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the accounts with this subject, whatever their issuer. There is usually only one.
    pub async fn accounts_of(
        &self,
        subject: &str,
        waiters: &Arc<Waiters>,
    ) -> Result<Vec<AccountId>, ServiceError> {
        let mut issuers = BTreeSet::new();
        for shard in ShardId::all() {
            issuers.extend(self.shards.observe(shard, waiters, State::observe_issuers).await?);
        }
        let mut accounts = Vec::new();
        for issuer in issuers {
            let digest = identity_digest(&issuer, subject);
            let read = move |state: &State| state.observe_identity(&digest);
            let shard = ShardId::of_digest(digest[0]);
            accounts.extend(self.shards.observe(shard, waiters, read).await?);
        }
        Ok(accounts)
    }
}

#[cfg(test)]
mod tests;
