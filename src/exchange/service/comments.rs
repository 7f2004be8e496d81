//! Comments on orders.

use std::sync::Arc;

use super::settlement::Retry;
use super::{Caller, Page, RequestContext, Service, ServiceError};
use paperbourse_core::engine::command::{
    DeleteComment, OpenAccount, Owner, RemoveComment, WriteComment,
};
use paperbourse_core::engine::comment::{Comment, Written};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::engine::{Command, State};
use paperbourse_core::ids::{AccountId, CommentId, Lsn, OrderId, ShardId};
use paperbourse_store::journal::Waiters;

impl Service {
    /// Adds a comment to an order, whichever account it belongs to.
    pub async fn comment(
        &self,
        caller: &Caller,
        order: Option<OrderId>,
        content: Box<str>,
        context: RequestContext<'_>,
    ) -> Result<Comment, ServiceError> {
        let order = order.ok_or(Rejection::OrderNotFound)?;
        let author = self.opened_account(caller, context).await?;
        // Checked before all other shards are asked how much the author has written.
        let read = move |state: &State| state.observe_comments(order, 0, 0);
        if self.shards.observe(order.shard(), context.waiters, read).await?.is_none() {
            return Err(Rejection::OrderNotFound.into());
        }
        // One comment at a time, so that none goes uncounted.
        let _turn = self.authors.turn(author).await;
        let elsewhere = self.written_elsewhere(author, order.shard(), context).await?;
        let command = WriteComment { order, author, content, elsewhere };
        self.execute_for(author, order.shard(), command, context).await
    }

    /// Returns how much an author has written in all shards but this one.
    async fn written_elsewhere(
        &self,
        author: AccountId,
        shard: ShardId,
        context: RequestContext<'_>,
    ) -> Result<Written, ServiceError> {
        let mut written = Written::default();
        for other in ShardId::all().filter(|&other| other != shard) {
            let read = move |state: &State| state.observe_written(author);
            written = written.and(self.shards.observe(other, context.waiters, read).await?);
        }
        Ok(written)
    }

    /// Returns comments on an order, oldest first.
    pub async fn comments(
        &self,
        order: Option<OrderId>,
        page: Page,
        context: RequestContext<'_>,
    ) -> Result<Vec<Comment>, ServiceError> {
        let order = order.ok_or(Rejection::OrderNotFound)?;
        let found = self
            .shards
            .observe(order.shard(), context.waiters, move |state| {
                state.observe_comments(order, page.offset, page.limit)
            })
            .await?;
        found.ok_or_else(|| Rejection::OrderNotFound.into())
    }

    /// Deletes one of the caller's comments.
    pub async fn delete_comment(
        &self,
        caller: &Caller,
        comment: Option<CommentId>,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let comment = comment.ok_or(Rejection::CommentNotFound)?;
        let author = caller.account()?;
        let command = DeleteComment { comment, author };
        self.execute_for(author, comment.shard(), command, context).await
    }

    /// Returns at most `limit` of an author's comments, on any orders, in id order after the
    /// comment `after`, and whether more follow. For operators.
    pub async fn comments_by(
        &self,
        author: AccountId,
        after: Option<CommentId>,
        limit: usize,
        waiters: &Arc<Waiters>,
    ) -> Result<(Vec<Comment>, bool), ServiceError> {
        let mut found = Vec::new();
        for shard in ShardId::all() {
            let read = move |state: &State| state.observe_comments_by(author, after, limit + 1);
            found.extend(self.shards.observe(shard, waiters, read).await?);
        }
        found.sort_unstable_by_key(|comment| comment.id);
        let has_more = found.len() > limit;
        found.truncate(limit);
        Ok((found, has_more))
    }

    /// Deletes any author's comment on behalf of an operator, and returns it.
    pub async fn remove_comment(
        &self,
        comment: Option<CommentId>,
        waiters: &Arc<Waiters>,
    ) -> Result<Comment, ServiceError> {
        let comment = comment.ok_or(Rejection::CommentNotFound)?;
        Ok(self.shards.execute(comment.shard(), RemoveComment(comment), waiters).await?)
    }

    /// Executes a command in the shard of an order, unless the author's account accepts no writes.
    async fn execute_for<C>(
        &self,
        author: AccountId,
        shard: ShardId,
        command: C,
        context: RequestContext<'_>,
    ) -> Result<C::Answer, ServiceError>
    where
        C: Command<Answer: Send> + Send + 'static,
    {
        let executed = {
            let _inside = self.authors.enter(author).await;
            let read = move |state: &State| state.observe_writable(author);
            self.shards.observe(author.shard(), context.waiters, read).await??;
            // This call queues the command at once, so the gate can be left before the result is
            // awaited.
            self.shards.execute(shard, command, context.waiters)
        };
        Ok(executed.await?)
    }

    /// Waits until the shards have executed all comment commands that an author sent before its
    /// account stopped accepting writes. No further ones can follow. Retries a shard whose queue is
    /// full.
    pub(super) async fn settle_comments(&self, author: AccountId, waiters: &Arc<Waiters>) {
        self.authors.left(author).await;
        for shard in ShardId::all() {
            let mut retry = Retry::default();
            let read = |_: &State| Observed { value: (), lsn: Lsn::START };
            while self.shards.observe(shard, waiters, read).await.is_err() {
                retry.wait().await;
            }
        }
    }

    /// Returns the caller's account, opening one if the bearer of an access token has none.
    async fn opened_account(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<AccountId, ServiceError> {
        let identity = match caller.owner()? {
            Owner::Account(account) => return Ok(account),
            Owner::Identity(identity) => identity,
        };
        let shard = identity.shard();
        Ok(self.shards.execute(shard, OpenAccount(identity), context.waiters).await?)
    }
}
