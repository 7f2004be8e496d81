//! One shard's state and the next record of the journal: what a recovery and a fold consist of.

use crate::engine::State;
use crate::engine::contradiction::Contradiction;
use crate::ids::{Place, ShardId, Timestamp};
use crate::journal::record::{self, RecordError};

/// A shard as the journal tells it up to some record, and what the next record must continue.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardState {
    /// The state.
    pub state: State,
    /// Which start of the server wrote its newest record; 0 before the first.
    pub epoch: u64,
    /// When its newest record was decided.
    pub decided_at: Timestamp,
}

/// Why a record cannot be what followed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// It is not a record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// It belongs to another shard.
    #[error("a record of shard {found} stands among those of shard {shard}")]
    OtherShard {
        /// Whose records these are.
        shard: u8,
        /// Whose it is.
        found: u8,
    },
    /// A record of its shard is missing in front of it.
    #[error("shard {shard} is at record {before} and the next one is {sequence}")]
    Gap {
        /// Which shard.
        shard: u8,
        /// Its newest record.
        before: u64,
        /// The record that came.
        sequence: u64,
    },
    /// It was written by an earlier start of the server than the one in front of it.
    #[error("shard {shard} goes back from start {before} of the server to start {epoch}")]
    Epoch {
        /// Which shard.
        shard: u8,
        /// The start that wrote its newest record.
        before: u64,
        /// The start that wrote the record that came.
        epoch: u64,
    },
    /// It says what cannot be.
    #[error(
        "{0}: a record of the shard was changed, or this version reads one in another way than the \
         version that wrote it"
    )]
    Contradiction(#[from] Contradiction),
}

impl ShardState {
    /// A shard to which nothing has happened.
    pub fn new(shard: ShardId) -> Self {
        Self { state: State::new(shard), epoch: 0, decided_at: Timestamp::EPOCH }
    }

    /// Applies the next record of the shard. It is on disk: what rests on it is durable. After an
    /// error the state is of no use any more.
    pub fn replay(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        let (header, events) = record::decode(bytes)?;
        let shard = self.state.shard().get();
        if header.shard != self.state.shard() {
            return Err(ReplayError::OtherShard { shard, found: header.shard.get() });
        }
        let before = self.state.sequence();
        if Some(header.sequence) != before.checked_add(1) {
            return Err(ReplayError::Gap { shard, before, sequence: header.sequence });
        }
        if header.epoch < self.epoch {
            return Err(ReplayError::Epoch { shard, before: self.epoch, epoch: header.epoch });
        }
        self.state.replay(&events, Place::START)?;
        self.epoch = header.epoch;
        self.decided_at = header.at;
        Ok(())
    }
}
