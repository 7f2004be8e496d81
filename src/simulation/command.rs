//! The commands that clients send besides orders.

use std::sync::Arc;

use crate::engine::admin::acts::{Acted, OperatorCommand};
use crate::engine::admin::reset::{Reset, ResetAccount};
use crate::engine::command::{
    CreateKey, DeleteComment, OpenAccount, RenameKey, RevokeKey, RotateKey, SetHeartbeat,
    WriteComment,
};
use crate::engine::comment::Comment;
use crate::engine::key::Key;
use crate::ids::{AccountId, ShardId};
use crate::journal::Waiters;
use crate::shard::{Refusal, Shards};

/// A command other than an order.
pub(super) enum Command {
    Comment(WriteComment),
    DeleteComment(DeleteComment),
    CreateKey(CreateKey),
    RenameKey(RenameKey),
    RotateKey(RotateKey),
    RevokeKey(RevokeKey),
    Beat(SetHeartbeat),
    Reset(ResetAccount),
    Open(OpenAccount),
    Operate(OperatorCommand),
}

/// The answer to a command that succeeded.
#[derive(Debug)]
pub(super) enum Done {
    Comment(Comment),
    Key(Box<Key>),
    Reset(Reset),
    Opened(AccountId),
    Acted(Acted),
    Nothing,
}

impl Command {
    pub(super) async fn execute(
        self,
        shards: &Arc<Shards>,
        shard: ShardId,
        waiters: &Arc<Waiters>,
    ) -> Result<Done, Refusal> {
        let key = |key| Done::Key(Box::new(key));
        match self {
            Self::Comment(it) => shards.execute(shard, it, waiters).await.map(Done::Comment),
            Self::DeleteComment(it) => {
                shards.execute(shard, it, waiters).await.map(|()| Done::Nothing)
            }
            Self::CreateKey(it) => shards.execute(shard, it, waiters).await.map(key),
            Self::RenameKey(it) => shards.execute(shard, it, waiters).await.map(key),
            Self::RotateKey(it) => shards.execute(shard, it, waiters).await.map(key),
            Self::Reset(it) => shards.execute(shard, it, waiters).await.map(Done::Reset),
            Self::Open(it) => shards.execute(shard, it, waiters).await.map(Done::Opened),
            Self::Operate(it) => shards.execute(shard, it, waiters).await.map(Done::Acted),
            Self::Beat(it) => shards.execute(shard, it, waiters).await.map(|_| Done::Nothing),
            Self::RevokeKey(it) => shards.execute(shard, it, waiters).await.map(|()| Done::Nothing),
        }
    }
}
