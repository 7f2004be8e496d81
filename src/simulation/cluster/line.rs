//! The connection of a node to the brokers, which may be cut, or lead to a broker that is cut off
//! from the others.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::journal::replicated::test_util::{MemoryLog, PATIENCE};
use crate::journal::replicated::{Appended, Extent, Log, NoAnswer};

/// The destination of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Condition {
    /// The line leads to the brokers.
    Whole,
    /// The line is cut.
    Cut,
    /// The line leads to a former leader, which takes `tail` for the end of the log and appends
    /// nothing.
    Isolated { tail: u64 },
}

#[derive(Clone)]
pub(super) struct Line {
    log: MemoryLog,
    condition: Arc<Mutex<Condition>>,
}

impl Line {
    pub(super) fn new(log: MemoryLog) -> Self {
        Self { log, condition: Arc::new(Mutex::new(Condition::Whole)) }
    }

    pub(super) fn set(&self, condition: Condition) {
        *self.condition.lock() = condition;
    }

    pub(super) fn is_whole(&self) -> bool {
        *self.condition.lock() == Condition::Whole
    }

    fn condition(&self) -> Condition {
        *self.condition.lock()
    }

    async fn silence() -> NoAnswer {
        sleep(PATIENCE).await;
        NoAnswer("no answer".to_owned())
    }
}

impl Log for Line {
    fn name(&self) -> &str {
        self.log.name()
    }

    async fn append(&self, expected: u64, block: Bytes) -> Appended {
        if self.is_whole() {
            let appended = self.log.append(expected, block).await;
            if self.is_whole() {
                return appended;
            }
        }
        Appended::Unknown(Self::silence().await)
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, NoAnswer> {
        match self.condition() {
            Condition::Isolated { tail } if sequence > tail => Ok(None),
            Condition::Whole | Condition::Isolated { .. } => self.log.read(sequence).await,
            Condition::Cut => Err(Self::silence().await),
        }
    }

    async fn extent(&self) -> Result<Extent, NoAnswer> {
        let condition = self.condition();
        if condition == Condition::Cut {
            return Err(Self::silence().await);
        }
        let extent = self.log.extent().await?;
        Ok(match condition {
            Condition::Isolated { tail } => Extent { last: tail, ..extent },
            _ => extent,
        })
    }

    async fn trim(&self, _: u64) -> Result<(), NoAnswer> {
        unreachable!("nobody trims here")
    }

    async fn announce_release(&self) {
        if self.is_whole() {
            self.log.announce_release().await;
        }
    }

    async fn release_announced(&self) {
        self.log.release_announced().await;
    }
}
