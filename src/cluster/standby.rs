//! Follows a log until it has no owner, and then takes it.
//!
//! A live owner appends something at least every [`HEARTBEAT_INTERVAL`]. It is presumed gone once
//! the log has not grown for [`SILENCE_MAX`] while the brokers answered throughout. A node that
//! cannot reach the brokers draws no conclusion, and neither does any node while the brokers have
//! no leader. A wrong judgement costs no more than a takeover, since a fence ends the former
//! owner's epoch wherever that owner is.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::lease::{HEARTBEAT_INTERVAL, now_ns};
use paperbourse_core::faults::{self, Fault};
use paperbourse_store::journal::ChainMark;
use paperbourse_store::journal::replicated::{
    Entry, Halt, Log, NodeName, NoticeKind, Owner, ReadError, Reader, Taking,
};

/// The pause between two checks of the end of the log.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

/// A check that takes longer than this says nothing about the owner: the brokers did not answer, or
/// this process was not scheduled.
const LOOK_MAX: Duration = Duration::from_secs(1);

/// How long a log may go without a new block before its owner is presumed gone.
const SILENCE_MAX: Duration = Duration::from_secs(3);

const _: () = assert!(SILENCE_MAX.as_millis() >= 5 * HEARTBEAT_INTERVAL.as_millis());

/// A log that this node has taken.
pub struct Taken<L> {
    /// The writing end of the log, in this node's epoch.
    pub owner: Owner<L>,
    /// Whether the log was released, or never had an owner. Otherwise the former owner may answer
    /// reads until its lease ends.
    pub was_free: bool,
    /// When the fence was sent, in nanoseconds of the lease's clock.
    pub sent_ns: u64,
}

/// The end of a log, as seen by a standby.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Look {
    /// The position of the newest record.
    pub position: u64,
    /// The sequence of the newest block.
    pub sequence: u64,
    /// The epoch of the newest block.
    pub epoch: u64,
    /// Whether a node owns the log.
    pub is_owned: bool,
    /// Whether the log was read to its end, and if not, why.
    pub outcome: LookOutcome,
}

/// The outcome of a standby's check of the end of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookOutcome {
    /// The log was read to its end.
    Whole,
    /// The brokers did not answer.
    Silence,
    /// No broker has the next block intact.
    Halt,
}

/// Whether a standby may take the log. One that is shutting down may not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MayTake {
    /// The standby may take the log once the log has no owner.
    Yes,
    /// The standby continues to follow the log.
    No,
    /// The standby takes the log from a live owner, as it would after a wrong judgement.
    #[cfg(any(test, feature = "test-util"))]
    Anyway,
}

/// The owner of the log, according to the blocks read so far.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Holder {
    Nobody,
    Node(NodeName),
    /// An owner whose name is in a block that was not read.
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
    /// How long the log has gone without a new block.
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

    /// Whether the log has no owner, or only one that is presumed gone.
    fn is_free(&self) -> bool {
        self.holder == Holder::Nobody || self.silence >= SILENCE_MAX
    }
}

/// Follows the log and takes it once it has no owner. Each record goes to `copy` with its position,
/// in order. All records below the fence have been copied when this returns.
///
/// Returns an error only if `copy` fails or the log halts for good. While no broker has the next
/// block intact, the read is retried, since a broker that comes back may have the block. `looked`
/// is called with the result of each check of the log's end, and returns whether the node may take
/// the log now.
///
/// `owned_epoch` is the last epoch that this node owned in an earlier process. If that epoch is
/// still the newest, the log has no owner.
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
            // After a failed check, the reader may not be at the end of the log, so silence proves
            // nothing.
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
                    // A node that skips the blocks below its fence cannot know whether they include
                    // a release.
                    let was_free = former == Holder::Nobody && !faults::is_on(Fault::FenceUnread);
                    return Ok(Taken { owner, was_free, sent_ns });
                }
                Taking::Outrun(reader) => reader,
            };
            // Another node was faster, so the log may have a live owner again.
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

/// Logs that the log cannot be read any further for now. Returns the halt as an error if waiting
/// cannot help. This includes a log that has lost blocks, since it may grow again with different
/// ones.
pub fn retry_halted(halt: Halt) -> Result<(), Halt> {
    if !halt.reason.may_heal() {
        return Err(halt);
    }
    tracing::error!(%halt, "the log is damaged, reading it again");
    Ok(())
}

#[cfg(test)]
mod tests;
