//! The lease on published books: how long they may be relied on without word from their feed.
//!
//! A live feed marks a book stale once its proof is too old. If the feed itself is stuck, because
//! its thread hangs or the whole process was paused, nothing marks the book. The feed therefore
//! renews a lease each time it has checked every book. Once the lease runs out, readers treat every
//! book as stale.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// No lease: books are fresh until they are marked stale.
const UNLIMITED: u64 = u64::MAX;

/// The lease of all books of a venue.
#[derive(Debug)]
pub(super) struct Lease {
    began: Instant,
    /// End of the lease, in nanoseconds since `began`.
    ends_at: AtomicU64,
}

impl Default for Lease {
    /// Returns a lease that never runs out, as recorded and simulated venues need.
    fn default() -> Self {
        Self { began: Instant::now(), ends_at: AtomicU64::new(UNLIMITED) }
    }
}

impl Lease {
    /// Sets the lease to run out this long from now. Returns whether it had already run out. Only
    /// the feed calls this.
    pub(super) fn renew(&self, time: Duration) -> bool {
        let had_run_out = self.has_run_out();
        let ends_at = self.began.elapsed().saturating_add(time).as_nanos();
        // An end more than 584 years after the start does not fit, and counts as no end.
        self.ends_at.store(u64::try_from(ends_at).unwrap_or(UNLIMITED), Ordering::Relaxed);
        had_run_out
    }

    /// Sets this lease to run out when the other one does.
    pub(super) fn continue_from(&self, other: &Self) {
        let ends_at = match other.ends_at.load(Ordering::Relaxed) {
            UNLIMITED => UNLIMITED,
            nanos => {
                let ends_at = other.began + Duration::from_nanos(nanos);
                let nanos = ends_at.saturating_duration_since(self.began).as_nanos();
                u64::try_from(nanos).unwrap_or(UNLIMITED)
            }
        };
        self.ends_at.store(ends_at, Ordering::Relaxed);
    }

    /// Whether the lease has run out, so that nothing may fill until it is renewed.
    #[inline]
    pub(super) fn has_run_out(&self) -> bool {
        let ends_at = self.ends_at.load(Ordering::Relaxed);
        // Most venues have no lease, so they never read the clock here.
        ends_at != UNLIMITED && self.began.elapsed().as_nanos() >= u128::from(ends_at)
    }
}
