//! Comments on orders.

use super::{Caller, Page, RequestContext, Service, ServiceError};
use crate::engine::State;
use crate::engine::command::{DeleteComment, OpenAccount, Owner, WriteComment};
use crate::engine::comment::Comment;
use crate::engine::rejection::Rejection;
use crate::ids::{AccountId, CommentId, OrderId};

impl Service {
    /// Comments on any order of the server.
    pub async fn comment(
        &self,
        caller: &Caller,
        order: Option<OrderId>,
        content: Box<str>,
        context: RequestContext<'_>,
    ) -> Result<Comment, ServiceError> {
        let order = order.ok_or(Rejection::OrderNotFound)?;
        let author = self.opened_account(caller, context).await?;
        self.require_writable(author, context).await?;
        let command = WriteComment { order, author, content };
        Ok(self.shards.execute(order.shard(), command, context.waiters).await?)
    }

    /// Comments of an order, oldest first.
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

    /// Deletes a comment of the caller.
    pub async fn delete_comment(
        &self,
        caller: &Caller,
        comment: Option<CommentId>,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let comment = comment.ok_or(Rejection::CommentNotFound)?;
        let author = caller.account()?;
        self.require_writable(author, context).await?;
        let command = DeleteComment { comment, author };
        Ok(self.shards.execute(comment.shard(), command, context.waiters).await?)
    }

    /// Refuses the author of a comment whose account takes no writes. The order that the comment is
    /// on may be in another shard, which knows nothing of its author.
    async fn require_writable(
        &self,
        author: AccountId,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let read = move |state: &State| state.observe_writable(author);
        Ok(self.shards.observe(author.shard(), context.waiters, read).await??)
    }

    /// The caller's account, opened here if the bearer of an access token has none.
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
