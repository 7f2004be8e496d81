//! Wakes the journal's thread. While the thread is awake, notifying it costs one fence and one
//! load.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::primitives::{AtomicBool, AtomicU8, Thread, current, fence, park, park_timeout};

/// The thread is looking for work, or will look before it parks.
const AWAKE: u8 = 0;
/// The thread is parked with a timeout and will look for work by itself.
const DOZING: u8 = 1;
/// The thread is parked until woken.
const ASLEEP: u8 = 2;

/// Wakes one thread, and only when it is parked.
#[derive(Default)]
pub(super) struct FlushWakeup {
    sleep: AtomicU8,
    is_requested: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl FlushWakeup {
    /// Makes the calling thread the one to wake. Only the first call has an effect.
    pub(super) fn attach(&self) {
        self.sleeper.get_or_init(current);
    }

    /// Wakes the thread at once, even from [`Self::doze`]. Make the work visible before calling
    /// this.
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) != AWAKE {
            self.wake();
        }
    }

    /// Wakes the thread, unless it will soon look for work by itself, as it does in [`Self::doze`].
    /// Make the work visible before calling this.
    pub(super) fn notify(&self) {
        // Pairs with the fence in `rest`: at least one of the two threads sees what the other
        // stored, so either the sleeper finds the work or this call finds the sleeper.
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    fn wake(&self) {
        if self.sleep.swap(AWAKE, Ordering::AcqRel) != AWAKE
            && let Some(sleeper) = self.sleeper.get()
        {
            sleeper.unpark();
        }
    }

    /// Whether the thread is parked until woken.
    #[cfg(test)]
    pub(super) fn is_asleep(&self) -> bool {
        self.sleep.load(Ordering::Acquire) == ASLEEP
    }

    /// Whether a flush was requested since the last call.
    pub(super) fn take_request(&self) -> bool {
        self.is_requested.load(Ordering::Acquire) && self.is_requested.swap(false, Ordering::AcqRel)
    }

    /// Parks until a flush is requested or work is announced, unless either has already happened.
    /// It may return early: the caller must check again. Only the attached thread may call this.
    pub(super) fn park_unless(&self, has_work: impl FnOnce() -> bool) {
        self.rest(ASLEEP, || {
            if !has_work() {
                park();
            }
        });
    }

    /// Parks until a flush is requested, for at most `duration`. Only the attached thread may call
    /// this.
    pub(super) fn doze(&self, duration: Duration) {
        self.rest(DOZING, || park_timeout(duration));
    }

    fn rest(&self, sleep: u8, park: impl FnOnce()) {
        self.sleep.store(sleep, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.is_requested.load(Ordering::Relaxed) {
            park();
        }
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    use loom::sync::Arc;

    use super::super::primitives::AtomicU64;
    use super::*;

    /// Runs `call` against `sleep` on two threads. A lost wake-up leaves this thread parked
    /// forever, which the checker reports.
    fn check(call: fn(&FlushWakeup), sleep: fn(&FlushWakeup, &AtomicU64)) {
        loom::model(move || {
            let shared = Arc::new((FlushWakeup::default(), AtomicU64::new(0)));
            shared.0.attach();
            let caller = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    shared.1.store(1, Ordering::Release);
                    call(&shared.0);
                })
            };
            while shared.1.load(Ordering::Acquire) == 0 {
                sleep(&shared.0, &shared.1);
            }
            caller.join().unwrap();
        });
    }

    #[test]
    fn no_wake_up_is_lost() {
        let sleep = |wakeup: &FlushWakeup, work: &AtomicU64| {
            wakeup.park_unless(|| work.load(Ordering::Acquire) == 1);
        };
        check(FlushWakeup::notify, sleep);
        check(FlushWakeup::request, sleep);
        // A request alone wakes the thread, even if there is no other work.
        check(FlushWakeup::request, |wakeup, _| {
            wakeup.park_unless(|| false);
            wakeup.take_request();
        });
    }
}
