//! A log that several nodes share: what each of them may rely on, whatever carries it.
//!
//! A replicated log is a sequence of blocks, numbered from 1, that a majority of brokers keeps on
//! disk. Its blocks are those of the journal, byte for byte, and notices that say who owns the log
//! ([`notice`](super::block::notice)); each vouches for the ones before it by its checksum. This
//! module knows neither brokers nor networks: a [`Log`] carries the blocks.
//!
//! - [`Reader`] asks for many blocks at once, takes them in order and checks each against the
//!   chain. A block that is missing or damaged is read again, since other replicas may have it. If
//!   none has, the log **halts**: no block is ever passed over.
//! - [`Owner`] writes. It holds the log for one *epoch*, which its fence begins, and has at most
//!   one block in flight. It loses this log, and nothing else, when another node's block is where
//!   its own should be.
//!
//! # Why two owners cannot both be believed
//!
//! A block is appended only if the log ends with the block that the writer names. An owner names
//! its own last block, or its fence. Once another node's fence is in the log, the condition of the
//! former owner never holds again, and its one unacknowledged block is either below the fence or
//! nowhere. So every block that it had acknowledged is below the fence, and the new owner reads
//! everything below its fence before it owns the log. With two blocks in flight this would be
//! false: the second names a sequence, not a block, and the fence may be what has that sequence.
//!
//! What an append has done is unknown after a timeout. The owner repeats the same block with the
//! same condition until it knows: in its place is either this very block, or that of another node.

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

/// How often brokers must say that a block is not there before it counts as lost. With [`PAUSE`],
/// half a minute: a broker that is cut off from the others, and lacks what they have, takes about
/// ten seconds to stop answering.
pub const TRIES_MAX: u32 = 600;

/// How long a question may stay without an answer.
pub const SILENCE_MAX: Duration = Duration::from_mins(2);

/// The time between two tries.
pub const PAUSE: Duration = Duration::from_millis(50);

/// What came of an append.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Appended {
    /// The block is in its place, on the disks of a majority.
    Acknowledged,
    /// The log does not end where the condition says. A broker that lost its followers may say so
    /// of a block that is not yet in the log, and perhaps never will be.
    Stale {
        /// The sequence of the newest block, as the broker sees it.
        tail: u64,
    },
    /// The block may be in its place, may yet come there, or never.
    Unknown(NoAnswer),
}

/// Why brokers gave no usable answer.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoAnswer(pub String);

/// The answer to a trim that goes further than the log.
pub fn beyond(below: u64, last: u64) -> NoAnswer {
    NoAnswer(format!("the log ends at block {last} and cannot be trimmed below {below}"))
}

/// The blocks that a log holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The sequence of the oldest block; one more than `last` if there is none.
    pub first: u64,
    /// The sequence of the newest block that there ever was; 0 before the first.
    pub last: u64,
}

/// Carries the blocks of one log. Never looks into them.
pub trait Log: Send + Sync {
    /// Names the log in errors.
    fn name(&self) -> &str;

    /// Appends the block if `expected` is the sequence of the newest one; 0 for the first block.
    fn append(&self, expected: u64, block: Bytes) -> impl Future<Output = Appended> + Send;

    /// The block with this sequence as some replica has it; `None` if that replica has none. Each
    /// call may ask another replica, and many may be under way at once.
    fn read(&self, sequence: u64) -> impl Future<Output = Result<Option<Bytes>, NoAnswer>> + Send;

    /// The blocks that the log holds, according to its leader.
    fn extent(&self) -> impl Future<Output = Result<Extent, NoAnswer>> + Send;

    /// Removes all blocks below this sequence, which is at most that of the next block; a greater
    /// one is refused, since the log would go on from there. Does nothing if there are none.
    fn trim(&self, below: u64) -> impl Future<Output = Result<(), NoAnswer>> + Send;

    /// Tells those who follow the log that it was released. Without that they find out a little
    /// later.
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

/// Why a log halts: nothing is read or written after this block until an operator has looked.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the log {log} halts at block {sequence}: {reason}")]
pub struct Halt {
    /// The name of the log.
    pub log: String,
    /// The sequence of the block.
    pub sequence: u64,
    /// What is wrong with the block.
    pub reason: HaltReason,
}

/// What is wrong with a block that halts its log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HaltReason {
    /// No replica has it, although the log is longer.
    Missing,
    /// Every replica that has it has it damaged, or it does not continue the one before.
    Damaged(Damage),
    /// It was acknowledged, and the log ends before it.
    Lost {
        /// The sequence of the newest block.
        tail: u64,
    },
    /// The log begins with data that the reader does not have.
    Before {
        /// The position of the newest record in that data.
        position: u64,
    },
    /// It was removed, and the reader has not read it.
    Trimmed {
        /// The sequence of the oldest block.
        first: u64,
    },
}

impl HaltReason {
    /// Whether a broker that comes back may have what is missing.
    pub const fn may_heal(&self) -> bool {
        matches!(self, Self::Missing | Self::Damaged(_))
    }

    /// Whether the log begins behind what was to be read.
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
