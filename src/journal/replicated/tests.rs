//! Replicated logs: a naive log in memory that misbehaves, what every carrier of a log must do, and
//! owners that take a log from each other.

mod contract;
mod memory;
mod owners;
mod races;
mod upstream;
mod world;

pub(crate) use contract::check_contract;
pub(crate) use memory::MemoryLog;
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
