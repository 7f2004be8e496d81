//! What a record says that cannot be.

use super::state_hash::StateHash;
use crate::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, ShardId};

/// A record that cannot have followed from the state: one of the two is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("record {sequence} of shard {} contradicts those before it: {flaw}", shard.get())]
pub struct Contradiction {
    /// Whose record it is.
    pub shard: ShardId,
    /// Its number within the shard.
    pub sequence: u64,
    /// What cannot be.
    pub flaw: Flaw,
}

/// What an event says that cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Flaw {
    /// Something that the event is about cannot be as it says.
    #[error("{kind} {id} {flaw}")]
    Event {
        /// What kind of thing.
        kind: &'static str,
        /// Its id.
        id: u64,
        /// What is wrong with it.
        flaw: &'static str,
    },
    /// The event was taken from another state.
    #[error("the state hashes to {found:016x} and was {expected:016x} when this was written")]
    Hash {
        /// What the event says.
        expected: u64,
        /// What the state hashes to.
        found: u64,
    },
}

/// Ids are given one after the other, each by the shard that keeps what it names.
pub(super) const NOT_NEXT: &str = "is not the next one of the shard";

/// Only what is kept can change or go.
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
