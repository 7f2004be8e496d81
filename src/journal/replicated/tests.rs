//! Replicated logs: a naive log in memory that misbehaves, what every carrier of a log must do, and
//! owners that take a log from each other.

mod catch_up;
mod contract;
mod level;
mod memory;
mod owners;
mod races;
mod upstream;
mod world;

pub(crate) use contract::check_contract;
pub(crate) use level::Level;
pub(crate) use memory::{MemoryLog, PATIENCE, TROUBLE};
pub(crate) use races::{check_races, takeovers_that_failed};

use bytes::Bytes;

use super::*;
use crate::journal::LogId;

/// The log of these tests.
pub(crate) const LOG: LogId = LogId::from_bytes([5; 16]);

/// A reader that has read nothing yet.
pub(crate) fn reader<L: Log>(log: L) -> Reader<L> {
    Reader::new(log, ReplicatedChain::start(LOG), 0)
}

/// The name of this node.
pub(crate) fn node(number: usize) -> NodeName {
    NodeName::new(&format!("node-{number}")).unwrap()
}

/// What [`Owner::take`] and [`Reader::catch_up`] show if nobody is interested.
pub(crate) fn unseen(_: u64, _: &Bytes, _: Entry<'_>) {}

/// Takes the log for this node.
pub(crate) async fn take<L: Log>(log: L, number: usize) -> Owner<L> {
    Owner::take(reader(log), node(number), unseen).await.map_err(|(_, error)| error).unwrap()
}

/// Appends this many blocks of one record.
pub(crate) async fn write<L: Log>(owner: &mut Owner<L>, blocks: u64) {
    for _ in 0..blocks {
        let record = (owner.position() + 1).to_le_bytes();
        assert!(owner.push(&record));
        owner.flush().await.unwrap();
    }
}
