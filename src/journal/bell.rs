//! The bell that wakes the writer: it costs a fence and one load while the writer is awake.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use super::primitives::{AtomicBool, Thread, current, fence, park};

/// Wakes one thread, and only when that thread said that it sleeps.
#[derive(Default)]
pub(super) struct Bell {
    is_asleep: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    /// Makes the calling thread the one that the bell wakes. The first call decides.
    pub(super) fn attach(&self) {
        self.sleeper.get_or_init(current);
    }

    /// Wakes the sleeper if it sleeps. Call it after making the work visible.
    pub(super) fn ring(&self) {
        // Pairs with the fence in `sleep_unless`: of the two threads at least one sees what the
        // other stored, so either the sleeper finds the work or this finds the sleeper.
        fence(Ordering::SeqCst);
        if self.is_asleep.load(Ordering::Relaxed)
            && self.is_asleep.swap(false, Ordering::AcqRel)
            && let Some(sleeper) = self.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    /// Sleeps until the bell rings unless there is work. It may return without any: the caller
    /// looks again. Only the attached thread calls it.
    pub(super) fn sleep_unless(&self, has_work: impl FnOnce() -> bool) {
        self.is_asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !has_work() {
            park();
        }
        self.is_asleep.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
impl Bell {
    /// As if the sleeper slept.
    pub(super) fn pretend_sleep(&self) {
        self.is_asleep.store(true, Ordering::Relaxed);
    }

    /// Whether nobody has rung since then.
    pub(super) fn is_silent(&self) -> bool {
        self.is_asleep.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    use loom::sync::Arc;

    use super::super::primitives::AtomicU64;
    use super::*;

    #[test]
    fn no_ring_is_lost() {
        loom::model(|| {
            let shared = Arc::new((Bell::default(), AtomicU64::new(0)));
            shared.0.attach();
            let ringer = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    shared.0.ring();
                })
            };
            // A lost ring leaves this loop asleep for ever, which the checker reports.
            while shared.1.load(Ordering::Acquire) == 0 {
                shared.0.sleep_unless(|| shared.1.load(Ordering::Acquire) == 1);
            }
            ringer.join().unwrap();
        });
    }
}
