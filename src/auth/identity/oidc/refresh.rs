//! When the keys of a provider are read again: the schedule, and who may hurry it.

use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// How often keys are read again when all is well. A key that the provider takes back is believed
/// for so long.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_mins(5);

/// How often tokens with unknown keys may have them read again, whatever comes of it.
pub(super) const REQUESTED_INTERVAL: Duration = Duration::from_mins(1);

/// The first wait after a failure; each further one doubles it.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// The longest wait between two tries.
const RETRY_MAX: Duration = Duration::from_mins(1);

/// What requests see of the task that reads keys, and how they wake it.
pub(super) struct Refresh {
    progress: watch::Sender<Progress>,
    wanted: Notify,
}

#[derive(Clone, Copy)]
struct Progress {
    /// How many tries have come to an end.
    ended: u64,
    /// Whether a try is under way; so it is before the first.
    is_running: bool,
    /// Whether the newest try brought nothing.
    has_failed: bool,
    /// When the next try is due.
    next: Instant,
    /// How long to wait after the next failure.
    retry: Duration,
    /// From when on a request may hurry it.
    next_requested: Instant,
}

/// What a request remembers of the moment in which it looked at the keys.
pub(super) struct Ticket {
    progress: watch::Receiver<Progress>,
    ended: u64,
}

impl Refresh {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let progress = Progress {
            ended: 0,
            is_running: true,
            has_failed: false,
            next: now,
            retry: RETRY_FIRST,
            next_requested: now,
        };
        Self { progress: watch::Sender::new(progress), wanted: Notify::new() }
    }

    /// Taken before the look at the keys, so that none are missed that come right after it.
    pub(super) fn ticket(&self) -> Ticket {
        let mut progress = self.progress.subscribe();
        let ended = progress.borrow_and_update().ended;
        Ticket { progress, ended }
    }

    /// Waits for the end of a try that is under way or may be asked for; returns at once when there
    /// is none.
    pub(super) async fn wait(&self, mut ticket: Ticket, wait_max: Duration) {
        let progress = *self.progress.borrow();
        if !progress.is_running {
            if Instant::now() < progress.next_requested {
                return;
            }
            self.wanted.notify_one();
        }
        let ended = ticket.progress.wait_for(|progress| progress.ended != ticket.ended);
        // Whoever has waited long enough looks at the keys that there are.
        let _ = timeout(wait_max, ended).await;
    }

    /// Whether what the provider publishes now is not known: it did not answer, or not yet.
    pub(super) fn is_undecided(&self) -> bool {
        let progress = *self.progress.borrow();
        progress.has_failed || progress.is_running
    }

    /// Whether the newest try that has ended brought nothing.
    pub(super) fn has_failed(&self) -> bool {
        self.progress.borrow().has_failed
    }

    /// In how many whole seconds there may be news, at least 1.
    pub(super) fn seconds_until_next(&self) -> u64 {
        let next = self.progress.borrow().next;
        next.saturating_duration_since(Instant::now()).as_secs() + 1
    }

    /// A try begins.
    pub(super) fn begin(&self) {
        self.progress.send_modify(|progress| progress.is_running = true);
    }

    /// The try has come to its end; it brought keys or not.
    pub(super) fn end(&self, is_good: bool) {
        let now = Instant::now();
        self.progress.send_modify(|progress| {
            progress.ended += 1;
            progress.is_running = false;
            progress.has_failed = !is_good;
            if is_good {
                progress.next = now + REFRESH_INTERVAL;
                progress.retry = RETRY_FIRST;
            } else {
                progress.next = now + progress.retry;
                progress.retry = (2 * progress.retry).min(RETRY_MAX);
            }
        });
    }

    /// Ends when a try is due, or when a request wants one and may.
    pub(super) async fn pause(&self) {
        let next = self.progress.borrow().next;
        loop {
            tokio::select! {
                () = sleep_until(next) => return,
                () = self.wanted.notified() => {}
            }
            let now = Instant::now();
            let is_allowed = now >= self.progress.borrow().next_requested;
            if is_allowed {
                self.progress.send_modify(|progress| {
                    progress.next_requested = now + REQUESTED_INTERVAL;
                });
                return;
            }
        }
    }
}
