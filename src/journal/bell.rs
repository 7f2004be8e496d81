//! The bell that wakes the journal's thread: it costs a fence and one load while nobody has to be
//! woken.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::primitives::{AtomicBool, AtomicU8, Thread, current, fence, park, park_timeout};

/// The thread looks for work, or will before it sleeps.
const AWAKE: u8 = 0;
/// It sleeps for a moment, and looks for work by itself then.
const DOZING: u8 = 1;
/// It sleeps until it is woken.
const ASLEEP: u8 = 2;

/// Wakes one thread, and only when it has to be woken.
#[derive(Default)]
pub(super) struct Bell {
    sleep: AtomicU8,
    is_rung: AtomicBool,
    sleeper: OnceLock<Thread>,
}

impl Bell {
    /// Makes the calling thread the one that the bell wakes. The first call decides.
    pub(super) fn attach(&self) {
        self.sleeper.get_or_init(current);
    }

    /// Has the thread work at once. Call it after making the work visible.
    pub(super) fn ring(&self) {
        self.is_rung.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.sleep.load(Ordering::Relaxed) != AWAKE {
            self.wake();
        }
    }

    /// Has the thread look for work soon: a thread that dozes does so by itself. Call it after
    /// making the work visible.
    pub(super) fn announce(&self) {
        // Pairs with the fence in `fall`: of the two threads at least one sees what the other
        // stored, so either the sleeper finds the work or this finds the sleeper.
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

    /// Whether the bell was rung since the last call.
    pub(super) fn take_ring(&self) -> bool {
        self.is_rung.load(Ordering::Acquire) && self.is_rung.swap(false, Ordering::AcqRel)
    }

    /// Sleeps until the bell rings or work is announced, unless either is there. It may return
    /// without any: the caller looks again. Only the attached thread calls it.
    pub(super) fn sleep_unless(&self, has_work: impl FnOnce() -> bool) {
        self.fall(ASLEEP, || {
            if !has_work() {
                park();
            }
        });
    }

    /// Sleeps until the bell rings, at most for a moment. Only the attached thread calls it.
    pub(super) fn doze(&self, moment: Duration) {
        self.fall(DOZING, || park_timeout(moment));
    }

    fn fall(&self, sleep: u8, rest: impl FnOnce()) {
        self.sleep.store(sleep, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.is_rung.load(Ordering::Relaxed) {
            rest();
        }
        self.sleep.store(AWAKE, Ordering::Relaxed);
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    use loom::sync::Arc;

    use super::super::primitives::AtomicU64;
    use super::*;

    /// A call that is lost leaves this thread asleep for ever, which the checker reports.
    fn check(call: fn(&Bell), sleep: fn(&Bell, &AtomicU64)) {
        loom::model(move || {
            let shared = Arc::new((Bell::default(), AtomicU64::new(0)));
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
    fn no_call_is_lost() {
        let sleep = |bell: &Bell, work: &AtomicU64| {
            bell.sleep_unless(|| work.load(Ordering::Acquire) == 1);
        };
        check(Bell::announce, sleep);
        check(Bell::ring, sleep);
        // Who rings need not leave anything else to be seen.
        check(Bell::ring, |bell, _| {
            bell.sleep_unless(|| false);
            bell.take_ring();
        });
    }
}
