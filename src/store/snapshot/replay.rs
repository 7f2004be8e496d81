//! Applies the next journal record to one shard's state: the step shared by recovery and fold.

use crate::journal::record::{self, RecordError, RecordHeader};
use paperbourse_core::engine::State;
use paperbourse_core::engine::contradiction::Contradiction;
use paperbourse_core::engine::event::{Event, Events};
use paperbourse_core::ids::{Lsn, ShardId, Timestamp};

/// Observes the events that a recovery reads, before they are checked against the state.
pub type RecordObserver<'o> = &'o (dyn Fn(&Event, &State) + Sync);

/// A decoded record, or the reason it could not be decoded.
pub(super) type DecodedRecord = Result<(RecordHeader, Events), RecordError>;

/// A shard's state up to some record, and the values that the next record must continue.
#[derive(Clone, PartialEq, Debug)]
pub struct ShardState {
    /// The state.
    pub state: State,
    /// The epoch of the shard's newest record; 0 before the first.
    pub epoch: u64,
    /// The decision time of the shard's newest record.
    pub decided_at: Timestamp,
}

/// Error applying a record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// The bytes are not a valid record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The record belongs to another shard.
    #[error("expected a record of shard {shard}, found one of shard {found}")]
    OtherShard {
        /// The shard that was expected.
        shard: u8,
        /// The shard in the record.
        found: u8,
    },
    /// A preceding record of the shard is missing.
    #[error("shard {shard} skips from record {before} to record {sequence}")]
    Gap {
        /// The shard.
        shard: u8,
        /// The sequence number of the shard's newest record.
        before: u64,
        /// The sequence number in the record.
        sequence: u64,
    },
    /// The record is from an earlier epoch than its predecessor.
    #[error("shard {shard} goes back from epoch {before} to epoch {epoch}")]
    Epoch {
        /// The shard.
        shard: u8,
        /// The epoch of the shard's newest record.
        before: u64,
        /// The epoch in the record.
        epoch: u64,
    },
    /// The record contradicts the state.
    #[error(
        "{0}: a record of the shard was altered, or this server version interprets one differently \
         from the version that wrote it"
    )]
    Contradiction(#[from] Contradiction),
}

impl ShardState {
    /// Creates the state of a shard without records.
    pub fn new(shard: ShardId) -> Self {
        Self { state: State::new(shard), epoch: 0, decided_at: Timestamp::EPOCH }
    }

    /// Applies the next record of the shard. The record was read from disk, so its effects count as
    /// durable at once. After an error, discard the state.
    pub fn replay(&mut self, bytes: &[u8]) -> Result<(), ReplayError> {
        self.replay_decoded(record::decode(bytes), &|_, _| {})
    }

    /// Applies a decoded record. Passes each event to `observer` first, with the state before the
    /// record.
    pub(super) fn replay_decoded(
        &mut self,
        record: DecodedRecord,
        observer: RecordObserver<'_>,
    ) -> Result<(), ReplayError> {
        let (header, events) = record?;
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
        events.iter().for_each(|event| observer(event, &self.state));
        self.state.replay(&events, Lsn::START)?;
        self.epoch = header.epoch;
        self.decided_at = header.at;
        Ok(())
    }
}
