//! Contradictions between a record and the state before it.

use crate::engine::state::hash::StateHash;
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, ShardId};

/// A record that is inconsistent with the state before it. One of the two is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {sequence} of shard {} contradicts those before it: {flaw}", shard.get())]
pub struct Contradiction {
    /// The shard that wrote the record.
    pub shard: ShardId,
    /// The record's number within the shard.
    pub sequence: u64,
    /// The event or hash that contradicts the state.
    pub flaw: Flaw,
}

/// A contradiction between an event and the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Flaw {
    /// The event's subject is not in a state that allows the event.
    #[error("{kind} {id} {flaw}")]
    Event {
        /// The kind of subject, such as an order.
        kind: &'static str,
        /// The subject's id.
        id: u64,
        /// The flaw, phrased to follow the kind and the id, such as "is not kept".
        flaw: &'static str,
    },
    /// The hash in the event differs from the hash of the state.
    #[error("the state hashes to {found:016x} and was {expected:016x} when this was written")]
    Hash {
        /// The hash in the event.
        expected: u64,
        /// The hash of the state.
        found: u64,
    },
}

/// The flaw of an id out of sequence. Each shard assigns ids without gaps.
pub(super) const NOT_NEXT: &str = "is not the next one of the shard";

/// The flaw of an event that changes or removes a row that is not stored.
pub(super) const NOT_KEPT: &str = "is not kept";

impl Flaw {
    pub(super) const fn account(id: AccountId, flaw: &'static str) -> Self {
        Self::Event { kind: "account", id: id.get(), flaw }
    }

    pub(super) const fn key(id: KeyId, flaw: &'static str) -> Self {
        Self::Event { kind: "key", id: id.get(), flaw }
    }

    pub(super) const fn order(id: OrderId, flaw: &'static str) -> Self {
        Self::Event { kind: "order", id: id.get(), flaw }
    }

    pub(super) const fn comment(id: CommentId, flaw: &'static str) -> Self {
        Self::Event { kind: "comment", id: id.get(), flaw }
    }

    pub(super) fn market(index: MarketIndex, flaw: &'static str) -> Self {
        Self::Event { kind: "market", id: index.0.into(), flaw }
    }

    pub(super) const fn decision(home: ShardId, flaw: &'static str) -> Self {
        Self::Event { kind: "decision of shard", id: home.get() as u64, flaw }
    }

    pub(super) const fn hash(expected: StateHash, found: StateHash) -> Self {
        Self::Hash { expected: expected.get(), found: found.get() }
    }
}
