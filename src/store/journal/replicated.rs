//! A log shared by several nodes: the guarantees that each node can rely on, whatever the
//! transport.
//!
//! A replicated log is a sequence of blocks, numbered from 1, that a majority of brokers keeps on
//! disk. Its blocks are journal blocks, byte for byte, and notices of ownership
//! ([`notice`](super::block::notice)); each vouches for its predecessors through its checksum. This
//! module has no notion of brokers or networks: a [`Log`] carries the blocks.
//!
//! - [`Reader`] requests many blocks at once, takes them in order and checks each against the
//!   chain. A block that is missing or damaged is read again, since other replicas may have it. If
//!   no replica has it intact, the log **halts**: no block is ever skipped.
//! - [`Owner`] writes. It holds the log for one *epoch*, which its fence begins, and has at most
//!   one block in flight. It loses this log, and no other, when another node's block takes the
//!   place of its own.
//!
//! # Why the log never has two owners
//!
//! A block is appended only if the log ends with the block that the writer names. An owner names
//! its own last block, or its fence. Once another node's fence is in the log, the former owner's
//! condition never holds again, and its one unacknowledged block is either below the fence or not
//! in the log. So every block that it had acknowledged is below the fence, and the new owner reads
//! everything below its fence before it owns the log. With two blocks in flight this would not
//! hold: the second names a sequence, not a block, and the block with that sequence may be the
//! fence.
//!
//! After a timeout, the outcome of an append is unknown. The owner resends the same block with the
//! same condition until the outcome is known: the place holds either exactly this block or another
//! node's block.

mod owner;
mod reader;
mod upstream;

#[cfg(any(test, feature = "test-util"))]
pub mod test_util;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::Damage;
pub use super::block::notice::{
    Entry, NodeName, NotAName, Notice, NoticeKind, REPLICATED_BLOCK_BYTES_MAX, Records,
    ReplicatedBuilder, ReplicatedChain,
};
pub use owner::{Lost, Owner, Taking};
pub use reader::{ReadError, Reader};
pub use upstream::{NextBlock, Upstream};

/// Number of times that brokers must report a block as missing before the block counts as lost.
/// Together with [`PAUSE`], this allows half a minute: a broker that is partitioned from the
/// others, and lacks their blocks, takes about ten seconds to stop answering.
pub const TRIES_MAX: u32 = 600;

/// Maximum time without any answer from the brokers.
pub const SILENCE_MAX: Duration = Duration::from_mins(2);

/// Pause between two tries.
pub const PAUSE: Duration = Duration::from_millis(50);

/// The outcome of an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The block is in its place, on the disks of a majority.
    Acknowledged,
    /// The log does not end with the expected block. A broker that has lost its followers may also
    /// report this, because it counts a block that is not in the log yet and may never be.
    Stale {
        /// The sequence of the newest block, as the broker sees it.
        tail: u64,
    },
    /// Unknown: the block may be in its place, may still get there, or may never.
    Unknown(NoAnswer),
}

/// Reason the brokers gave no usable answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// Returns the error for a trim beyond the end of the log.
pub fn beyond(below: u64, last: u64) -> NoAnswer {
    NoAnswer(format!("the log ends at block {last} and cannot be trimmed below {below}"))
}

/// The range of blocks that a log holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The sequence of the oldest block; `last + 1` if there is none.
    pub first: u64,
    /// The sequence of the newest block ever appended; 0 before the first.
    pub last: u64,
}

/// Carries the blocks of one log, as opaque bytes.
pub trait Log: Send + Sync {
    /// Returns the name of the log, for errors.
    fn name(&self) -> &str;

    /// Appends the block if the newest block has sequence `expected`; pass 0 for the first block.
    fn append(&self, expected: u64, block: Bytes) -> impl Future<Output = Appended> + Send;

    /// Returns the block with this sequence from some replica; `None` if that replica does not have
    /// it. Each call may ask a different replica, and many calls may be in flight at once.
    fn read(&self, sequence: u64) -> impl Future<Output = Result<Option<Bytes>, NoAnswer>> + Send;

    /// Returns the range of blocks that the log holds, according to its leader.
    fn extent(&self) -> impl Future<Output = Result<Extent, NoAnswer>> + Send;

    /// Removes all blocks with a sequence less than `below`; does nothing if there are none.
    /// Refuses a sequence greater than that of the next block, since the log would then continue
    /// from there.
    fn trim(&self, below: u64) -> impl Future<Output = Result<(), NoAnswer>> + Send;

    /// Notifies followers of the log that it was released. Without this, they notice the release a
    /// little later.
    fn announce_release(&self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Resolves once a release has been announced, or never.
    fn release_announced(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

impl<L: Log> Log for &L {
    fn name(&self) -> &str {
        (*self).name()
    }

    fn append(&self, expected: u64, block: Bytes) -> impl Future<Output = Appended> + Send {
        (*self).append(expected, block)
    }

    fn read(&self, sequence: u64) -> impl Future<Output = Result<Option<Bytes>, NoAnswer>> + Send {
        (*self).read(sequence)
    }

    fn extent(&self) -> impl Future<Output = Result<Extent, NoAnswer>> + Send {
        (*self).extent()
    }

    fn trim(&self, below: u64) -> impl Future<Output = Result<(), NoAnswer>> + Send {
        (*self).trim(below)
    }
}

/// The reason a log halted, and the block at which it did. Nothing from that block on is read or
/// written until an operator has intervened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log {log} halts at block {sequence}: {reason}")]
pub struct Halt {
    /// The name of the log.
    pub log: String,
    /// The sequence of the block.
    pub sequence: u64,
    /// The problem with the block.
    pub reason: HaltReason,
}

/// The problem with a block that halts its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HaltReason {
    /// No replica has the block, although the log extends at least that far.
    Missing,
    /// Every copy of the block is damaged or does not continue the block before it.
    Damaged(Damage),
    /// The block was acknowledged, but the log ends before it.
    Lost {
        /// The sequence of the newest block.
        tail: u64,
    },
    /// The log continues older data that the reader does not have.
    Before {
        /// The position of the newest record in that data.
        position: u64,
    },
    /// The block was trimmed before the reader had read it.
    Trimmed {
        /// The sequence of the oldest block.
        first: u64,
    },
}

impl HaltReason {
    /// Whether the block may reappear when a broker comes back.
    pub const fn may_heal(&self) -> bool {
        matches!(self, Self::Missing | Self::Damaged(_))
    }

    /// Whether the log begins after the requested block.
    pub const fn lies_before_the_log(&self) -> bool {
        matches!(self, Self::Before { .. } | Self::Trimmed { .. })
    }
}

impl fmt::Display for HaltReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str(
                "no replica has it, although the log is longer. Restart the brokers one at a \
                 time, and compare their copies if that does not bring it back",
            ),
            Self::Damaged(damage) => write!(
                f,
                "{damage}, on every replica that answered. Compare the copies of the brokers"
            ),
            Self::Lost { tail } => write!(
                f,
                "it was acknowledged, and the log ends at block {tail}. Keep the brokers' files: \
                 they have lost blocks"
            ),
            Self::Before { position } => write!(
                f,
                "the log continues older data up to record {position}, which this node does not \
                 have. Set its folder aside and start it on an empty one: it then copies the data \
                 of another node"
            ),
            Self::Trimmed { first } => write!(
                f,
                "it was removed before it was read here, and the log begins at block {first}. Set \
                 this node's folder aside and start it on an empty one: it then copies the data of \
                 another node"
            ),
        }
    }
}
