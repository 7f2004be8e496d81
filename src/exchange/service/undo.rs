//! Undoes fills whose settlement has failed, for a task of the server. No request does.

use std::sync::Arc;

use super::settlement::Retry;
use super::{Service, ServiceError};
use crate::shard::Refusal;
use paperbourse_core::engine::fills::undo::UndoFill;
use paperbourse_core::engine::fills::undone::UndoFlaw;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{AccountId, OrderId};
use paperbourse_store::journal::Waiters;

/// What became of a fill that was to be undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UndoOutcome {
    /// It is undone, and that is on disk.
    Undone,
    /// It stays, and nothing has changed. The reason is on disk.
    Stays(UndoFlaw),
}

impl Service {
    /// Undoes a part of an order, numbered from 1, and waits until that is on disk. Waits and tries
    /// again while the shard is busy or memory is short, so the caller may have to bound the time.
    /// Fails if there is no such account.
    pub async fn undo_fill(
        &self,
        account: AccountId,
        order: OrderId,
        part: u32,
        waiters: &Arc<Waiters>,
    ) -> Result<UndoOutcome, ServiceError> {
        let command = UndoFill { account, order, part };
        let mut retry = Retry::default();
        loop {
            match self.shards.execute(account.shard(), command, waiters).await {
                Ok(()) => return Ok(UndoOutcome::Undone),
                Err(Refusal::Rejected(Rejection::FillNotUndone(flaw))) => {
                    return Ok(UndoOutcome::Stays(flaw));
                }
                Err(refusal @ Refusal::Rejected(_)) => return Err(refusal.into()),
                Err(_) => retry.wait().await,
            }
        }
    }
}
