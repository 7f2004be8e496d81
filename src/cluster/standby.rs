//! A node that follows a log until it has no owner, and takes it then.
//!
//! An owner that is alive appends something every [`HEARTBEAT_INTERVAL`]. It is gone once the log
//! has stood still for [`SILENCE_MAX`] although the brokers answered all the time: whoever cannot
//! reach them has no say, and while they have no leader nobody is judged. A wrong judgement costs
//! a takeover and nothing else, since a fence ends the former owner's epoch wherever it is.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lease::{HEARTBEAT_INTERVAL, now_ns};
use paperbourse_core::faults::{self, Fault};
use paperbourse_store::journal::ChainMark;
use paperbourse_store::journal::replicated::{
    Entry, Halt, Log, NodeName, NoticeKind, Owner, ReadError, Reader, Taking,
};

/// The time between two looks at the log.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A look that took longer than this says nothing about the owner: the brokers did not answer, or
/// this process did not run.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long the log of an owner that is alive may stand still.
const SILENCE_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(SILENCE_MAX.as_millis() >= 5 * HEARTBEAT_INTERVAL.as_millis());

/// A log that was taken.
pub struct Taken<L> {
    /// Its owner, this node.
    pub owner: Owner<L>,
    /// Whether another node gave it up by a release, or none ever had it. Otherwise the former
    /// owner may answer reads until its lease is over.
    pub was_free: bool,
    /// When the fence was first sent.
    pub sent_ns: u64,
}

/// The end of a log, as a standby has found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The position of the newest record.
    pub position: u64,
    /// The sequence of the newest block.
    pub sequence: u64,
    /// The epoch of that block.
    pub epoch: u64,
    /// Whether a node owns the log.
    pub is_owned: bool,
    /// What came of the look.
    pub outcome: LookOutcome,
}

/// What came of a look at the end of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookOutcome {
    /// The log was read to its end.
    Whole,
    /// The brokers did not answer.
    Silence,
    /// No broker has the next block intact.
    Halt,
}

/// Whether a standby may take the log. One that is about to end may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayTake {
    /// It may.
    Yes,
    /// It goes on following the log.
    No,
    /// It takes the log from its owner, as a wrong judgement would.
    #[cfg(any(test, feature = "test-util"))]
    Anyway,
}

/// Who owns the log, as far as its blocks say.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Holder {
    Nobody,
    Node(NodeName),
    /// Somebody, whose name came in a block that was not read.
    Somebody,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nobody => f.write_str("nobody"),
            Self::Node(node) => node.fmt(f),
            Self::Somebody => f.write_str("unknown"),
        }
    }
}

/// Judges whether the owner of a log is alive.
struct Watch {
    holder: Holder,
    /// How long the log has stood still.
    silence: Duration,
    looked_at: Instant,
}

impl Watch {
    fn new(is_begun: bool) -> Self {
        let holder = if is_begun { Holder::Somebody } else { Holder::Nobody };
        Self { holder, silence: Duration::ZERO, looked_at: Instant::now() }
    }

    fn see(&mut self, entry: &Entry<'_>) {
        let Entry::Notice(notice) = entry else { return };
        let holder = match notice.kind {
            NoticeKind::Release => Holder::Nobody,
            NoticeKind::Fence | NoticeKind::Heartbeat => Holder::Node(notice.node.clone()),
        };
        if holder != self.holder {
            let message = match notice.kind {
                NoticeKind::Release => "the log was released",
                NoticeKind::Fence | NoticeKind::Heartbeat => "following the owner of the log",
            };
            tracing::info!(node = %notice.node, message);
            self.holder = holder;
        }
    }

    fn looked(&mut self, has_moved: bool) {
        let elapsed = self.looked_at.elapsed();
        self.looked_at = Instant::now();
        self.silence =
            if has_moved || elapsed > LOOK_MAX { Duration::ZERO } else { self.silence + elapsed };
    }

    /// Whether the log has no owner any more.
    fn is_free(&self) -> bool {
        self.holder == Holder::Nobody || self.silence >= SILENCE_MAX
    }
}

/// Reads the log to its end, goes on reading what is appended, and takes it once it has no owner.
/// Each record goes to `copy` with its position, in order; all below the fence have when this
/// returns. Ends otherwise only if `copy` fails, or the log halts for good. While no broker has the
/// next block intact, it is read again and again: one that comes back may have it. After each look,
/// `looked` gets what it found, and returns whether the node may take the log now.
///
/// `owned_epoch` is the epoch that this node owned last, in a process that is gone: if it has not
/// ended, the log has no owner.
pub async fn stand_by<L: Log, E: From<Halt>>(
    mut reader: Reader<L>,
    node: &NodeName,
    owned_epoch: Option<u64>,
    mut copy: impl FnMut(u64, &[u8]) -> Result<(), E>,
    mut looked: impl FnMut(Look) -> MayTake,
) -> Result<Taken<L>, E> {
    let mut watch = Watch::new(reader.sequence() > 0);
    loop {
        let before = reader.sequence();
        let mut copied = Ok(());
        let read = reader.catch_up(|_, _, entry| {
            watch.see(&entry);
            if let Entry::Records(records) = entry
                && copied.is_ok()
            {
                let mut records = (records.first_position()..).zip(records.iter());
                copied = records.try_for_each(|(position, record)| copy(position, record));
            }
        });
        let read = read.await;
        copied?;
        let outcome = match read {
            Ok(()) => LookOutcome::Whole,
            Err(ReadError::Halted(halt)) => {
                retry_halted(halt)?;
                LookOutcome::Halt
            }
            Err(error @ ReadError::Unreachable { .. }) => {
                tracing::warn!(%error, "the brokers do not answer, trying again");
                LookOutcome::Silence
            }
        };
        watch.looked(reader.sequence() != before);
        let (sequence, ChainMark { position, epoch, .. }) =
            (reader.sequence(), reader.chain().mark());
        let is_owned = watch.holder != Holder::Nobody;
        let may_take = looked(Look { position, sequence, epoch, is_owned, outcome });
        let is_free =
            watch.is_free() || owned_epoch == Some(epoch) || faults::is_on(Fault::LiveOwnerForced);
        let takes = match may_take {
            MayTake::Yes => is_free,
            MayTake::No => false,
            #[cfg(any(test, feature = "test-util"))]
            MayTake::Anyway => true,
        };
        if takes && outcome == LookOutcome::Whole {
            let former = watch.holder.clone();
            tracing::info!(%former, epoch = epoch + 1, "taking the log");
            let sent_ns = now_ns();
            reader = match Owner::take_at_end(reader, node.clone()).await? {
                Taking::Taken(owner) => {
                    // Who does not read what is below its fence does not know that it is free.
                    let was_free = former == Holder::Nobody && !faults::is_on(Fault::FenceUnread);
                    return Ok(Taken { owner, was_free, sent_ns });
                }
                Taking::Outrun(reader) => reader,
            };
            watch.silence = Duration::ZERO;
        } else {
            tokio::select! {
                biased;
                () = reader.log().release_announced() => {}
                () = sleep(LOOK_INTERVAL) => {}
            }
        }
    }
}

/// Reports why a log cannot be read any further. An error if it never will be: also if it has lost
/// what was read, since it may grow again, and differently.
pub fn retry_halted(halt: Halt) -> Result<(), Halt> {
    if !halt.reason.may_heal() {
        return Err(halt);
    }
    tracing::error!(%halt, "the log is damaged, reading it again");
    Ok(())
}

#[cfg(test)]
mod tests;
