//! The seat of a log's owner: appends the journal's blocks and heartbeats to the log, and returns
//! the owner at the end so that the log can be released.

use std::io::Write as _;
use std::process;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::lease::{HEARTBEAT_INTERVAL, Lease, now_ns};
use super::metrics::LogMetrics;
use super::standby::Taken;
use paperbourse_core::faults::{self, Fault};
use paperbourse_store::journal::replicated::{Halt, Log, Lost, NextBlock, Owner, Upstream};

/// Exit code of a process that has lost its log or its brokers and must be restarted: `EX_TEMPFAIL`
/// of `sysexits`.
pub const EXIT_LOG_LOST: i32 = 75;

/// How long the brokers may go without acknowledging anything. Electing a leader takes them up to
/// ten seconds.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// How often the owner checks whether a heartbeat is due.
const LOOK_INTERVAL: Duration = Duration::from_millis(25);

/// The role of a log's owner, held from takeover until [`Seat::leave`].
pub struct Seat<L> {
    shared: Arc<Shared<L>>,
    /// The runtime on which the journal's thread waits for its appends.
    runtime: Handle,
}

struct Shared<L> {
    epoch: u64,
    /// `None` once the seat has been left.
    owner: Mutex<Option<Owner<L>>>,
    lease: Arc<Lease>,
    metrics: Arc<LogMetrics>,
    on_lost: OnLost,
}

/// Why an owner cannot continue.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SeatLost {
    /// Another node has taken the log, or it is damaged.
    #[error(transparent)]
    Log(#[from] Lost),
    /// The brokers have acknowledged nothing for too long. Another node may own the log by now.
    #[error("no broker has acknowledged anything for {} seconds", SILENCE_MAX.as_secs())]
    Silence,
}

/// Called when an owner cannot continue. Production uses [`end_process`].
pub type OnLost = fn(&SeatLost) -> !;

impl<L: Log + 'static> Seat<L> {
    /// Creates the seat for a log that this node has taken. Spawns the heartbeat and the watchdog
    /// on `runtime`.
    pub fn new(
        taken: Taken<L>,
        metrics: Arc<LogMetrics>,
        runtime: Handle,
        on_lost: OnLost,
    ) -> Self {
        let Taken { owner, was_free, sent_ns } = taken;
        let lease = Arc::new(Lease::begin(was_free, sent_ns));
        let epoch = owner.epoch();
        let owner = Mutex::new(Some(owner));
        let shared = Arc::new(Shared { epoch, owner, lease, metrics, on_lost });
        runtime.spawn(beat(shared.clone()));
        runtime.spawn(watch(shared.clone()));
        Self { shared, runtime }
    }

    /// Returns the lease, which says when the owner may answer reads.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.shared.lease
    }

    /// Returns the position of the newest record in the log and the sequence of its newest block;
    /// `None` once the seat has been left.
    pub async fn end(&self) -> Option<(u64, u64)> {
        let owner = self.shared.owner.lock().await;
        owner.as_ref().map(|owner| (owner.position(), owner.sequence()))
    }

    /// Appends the block to the log. Never returns once the seat has been left.
    pub async fn write(&self, block: NextBlock<'_>) {
        let mut owner = self.shared.owner.lock().await;
        let Some(owner) = &mut *owner else { return std::future::pending().await };
        // The lease counts from before the append: a fence may follow the block as soon as it is
        // sent.
        let sent_ns = now_ns();
        let appended = owner.append(|chain| block.seal(chain)).await;
        self.shared.done(owner, sent_ns, appended);
    }

    /// Leaves the seat once no block is in flight, and returns the owner, which can release the log
    /// so that another node need not wait. No later record reaches the log: a journal that tries to
    /// write one blocks for ever, so the process must end soon. Returns `None` if the seat was
    /// already left. Cancel safe: if the future is dropped, the seat is still taken.
    pub async fn leave(&self) -> Option<Owner<L>> {
        // The next owner of a released log does not wait, so the former owner's lease must have
        // ended too.
        while !self.shared.lease.has_begun() {
            sleep(LOOK_INTERVAL).await;
        }
        let owner = self.shared.owner.lock().await.take()?;
        // Taking the owner out waits for the block in flight and stops later appends. The lease
        // ends before the caller can release the log.
        self.shared.lease.end();
        Some(owner)
    }
}

impl<L: Log> Shared<L> {
    /// Handles the outcome of an append: extends the lease, or reports that the log is lost.
    fn done(&self, owner: &Owner<L>, sent_ns: u64, appended: Result<(), Lost>) {
        match appended {
            Ok(()) => {
                let from_answer = faults::is_on(Fault::LeaseFromAnswer);
                self.lease.extend(if from_answer { now_ns() } else { sent_ns });
                let elapsed = Duration::from_nanos(now_ns() - sent_ns);
                self.metrics.appended(owner.position(), self.epoch, elapsed);
            }
            Err(lost) => (self.on_lost)(&lost.into()),
        }
    }
}

impl<L: Log + 'static> Upstream for Seat<L> {
    fn epoch(&self) -> u64 {
        self.shared.epoch
    }

    fn append(&self, block: NextBlock<'_>) {
        self.runtime.block_on(self.write(block));
    }
}

/// Appends a heartbeat whenever nothing has been appended for a while.
async fn beat<L: Log>(shared: Arc<Shared<L>>) {
    loop {
        sleep(LOOK_INTERVAL).await;
        if !shared.lease.is_older_than(HEARTBEAT_INTERVAL) {
            continue;
        }
        let mut owner = shared.owner.lock().await;
        let Some(owner) = &mut *owner else { return };
        let sent_ns = now_ns();
        let appended = owner.beat().await;
        shared.done(owner, sent_ns, appended);
    }
}

/// Ends an owner that no longer reaches any broker. Its sockets would otherwise stay open and miss
/// everything that another owner does meanwhile.
async fn watch<L: Log>(shared: Arc<Shared<L>>) {
    while !shared.lease.is_older_than(SILENCE_MAX) {
        sleep(LOOK_INTERVAL).await;
        if shared.lease.is_over() {
            return;
        }
    }
    (shared.on_lost)(&SeatLost::Silence)
}

/// Prints to stderr why the process cannot continue, and exits with [`EXIT_LOG_LOST`], or with 1 if
/// the log is damaged.
pub fn end_process(lost: &SeatLost) -> ! {
    let (advice, code) = match lost {
        SeatLost::Silence => (
            "Writes that were not answered may be in the log or not. Start this node again: it \
             waits for the brokers",
            EXIT_LOG_LOST,
        ),
        SeatLost::Log(Lost::Fenced { .. }) => (
            "Writes that were not answered may be in it or not. Start this node again: it then \
             follows the other",
            EXIT_LOG_LOST,
        ),
        SeatLost::Log(Lost::Halted(Halt { .. })) => ("Nothing is written until that is mended", 1),
    };
    // Not `eprintln!`, which panics on a closed stderr: the process must exit either way.
    let _ = writeln!(std::io::stderr(), "paperbourse: {lost}. {advice}.");
    process::exit(code)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LEASE_WAIT, now_ns};
    use paperbourse_store::journal::replicated::test_util::{MemoryLog, take};

    /// The next owner of a released log does not wait, so it would answer while the former owner
    /// still does.
    #[tokio::test]
    async fn a_log_is_not_given_up_before_the_former_lease_is_over() {
        let began_ns = now_ns();
        let owner = take(MemoryLog::whole(), 1).await;
        let taken = Taken { owner, was_free: false, sent_ns: began_ns };
        let metrics = Arc::new(LogMetrics::new("log".to_owned()));
        let seat = Seat::new(taken, metrics, Handle::current(), |lost| panic!("{lost}"));
        assert_eq!(seat.leave().await.unwrap().position(), 0, "it has no records");
        assert!(seat.leave().await.is_none(), "it can be left once");
        assert!(u128::from(now_ns() - began_ns) >= LEASE_WAIT.as_nanos());
    }
}
