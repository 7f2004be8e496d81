//! The schedule for fetching a provider's keys: at intervals, or earlier when a token needs them.

use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};

/// Time between fetches when all is well. A key that the provider withdraws stays accepted for up
/// to this long.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_mins(5);

/// Minimum time between fetches triggered by tokens with unknown keys, successful or not.
pub(super) const REQUESTED_INTERVAL: Duration = Duration::from_mins(1);

/// Delay before the first retry. It doubles with each further failure.
const RETRY_FIRST: Duration = Duration::from_secs(1);

/// Longest delay between two attempts.
const RETRY_MAX: Duration = Duration::from_mins(1);

/// The state shared by requests and the task that fetches keys. Requests also use it to wake the
/// task.
pub(super) struct Refresh {
    progress: watch::Sender<Progress>,
    wanted: Notify,
}

#[derive(Clone, Copy)]
struct Progress {
    /// Number of attempts that have ended.
    ended: u64,
    /// Whether an attempt is running. Also true before the first one.
    is_running: bool,
    /// Whether the last attempt failed.
    has_failed: bool,
    /// When the next attempt is due.
    next: Instant,
    /// The delay after the next failure.
    retry: Duration,
    /// The earliest time at which a request may trigger an attempt.
    next_requested: Instant,
}

/// The progress that a request observed before it read the keys.
pub(super) struct Seen {
    progress: watch::Receiver<Progress>,
    ended: u64,
}

impl Seen {
    /// Waits for an attempt to end.
    pub(super) async fn ended(mut self) {
        let ended = self.progress.wait_for(|progress| progress.ended != self.ended).await;
        ended.expect("whoever waits has the sender");
    }
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

    /// Returns the current progress. Requests take it before they read the keys, so that keys which
    /// arrive right afterwards are not missed.
    pub(super) fn seen(&self) -> Seen {
        let mut progress = self.progress.subscribe();
        let ended = progress.borrow_and_update().ended;
        Seen { progress, ended }
    }

    /// Waits for the running attempt to end, or triggers one and waits for that. Returns at once if
    /// none is running and it is too early to trigger one.
    pub(super) async fn wait(&self, mut seen: Seen, wait_max: Duration) {
        let progress = *self.progress.borrow();
        if !progress.is_running {
            if Instant::now() < progress.next_requested {
                return;
            }
            self.wanted.notify_one();
        }
        let ended = seen.progress.wait_for(|progress| progress.ended != seen.ended);
        // On timeout, the caller makes do with the keys it has.
        let _ = timeout(wait_max, ended).await;
    }

    /// Whether the provider's current keys are unknown: it failed to respond, or has not responded
    /// yet.
    pub(super) fn is_undecided(&self) -> bool {
        let progress = *self.progress.borrow();
        progress.has_failed || progress.is_running
    }

    /// Whether the last attempt failed.
    pub(super) fn has_failed(&self) -> bool {
        self.progress.borrow().has_failed
    }

    /// Returns the whole seconds until the next scheduled attempt, rounded up and at least 1.
    pub(super) fn seconds_until_next(&self) -> u64 {
        let next = self.progress.borrow().next;
        next.saturating_duration_since(Instant::now()).as_secs() + 1
    }

    pub(super) fn begin(&self) {
        self.progress.send_modify(|progress| progress.is_running = true);
    }

    /// Records the end of an attempt and schedules the next one.
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

    /// Waits until an attempt is due, or until a request asks for one and enough time has passed
    /// since the last.
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
