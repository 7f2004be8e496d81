//! Test utilities for replicated logs: a naive in-memory log that misbehaves, the contract that
//! every carrier of a log must meet, and owners that take a log from each other.

#![expect(clippy::unwrap_used, reason = "in a test, an error is a failure")]

mod contract;
mod level;
mod memory;
mod races;

pub use contract::check_contract;
pub use level::Level;
pub use memory::{MemoryLog, PATIENCE, Rates, TROUBLE};
pub use races::{check_races, flush, takeovers_that_failed};

use bytes::Bytes;

use super::{Entry, Log, NodeName, Owner, Reader, ReplicatedChain};
use crate::journal::LogId;

/// The log of these tests.
pub const LOG: LogId = LogId::from_bytes([5; 16]);

/// A reader that has read nothing yet.
pub fn reader<L: Log>(log: L) -> Reader<L> {
    Reader::new(log, ReplicatedChain::start(LOG), 0)
}

/// The name of this node.
pub fn node(number: usize) -> NodeName {
    NodeName::new(&format!("node-{number}")).unwrap()
}

/// Ignores the blocks that [`Owner::take`] and [`Reader::catch_up`] show.
pub fn unseen(_: u64, _: &Bytes, _: Entry<'_>) {}

/// Takes the log for this node.
pub async fn take<L: Log>(log: L, number: usize) -> Owner<L> {
    Owner::take(reader(log), node(number), unseen).await.map_err(|(_, error)| error).unwrap()
}

/// Appends this many blocks of one record.
pub async fn write<L: Log>(owner: &mut Owner<L>, blocks: u64) {
    for _ in 0..blocks {
        let record = (owner.position() + 1).to_le_bytes();
        assert!(owner.push(&record));
        owner.flush().await.unwrap();
    }
}
