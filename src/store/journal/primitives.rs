//! The atomics, mutex, threads and clock behind the journal's hand-written synchronization, in one
//! place, so that a build with `--cfg paperbourse_loom` can swap in the model checker's.

#[cfg(not(paperbourse_loom))]
pub use real::*;

#[cfg(paperbourse_loom)]
pub use modelled::*;

#[cfg(not(paperbourse_loom))]
mod real {
    pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
    pub use std::thread::{Thread, current, park, park_timeout};

    pub use parking_lot::{Mutex, RwLock};

    /// Returns the current time, for measuring durations.
    pub fn now() -> std::time::Instant {
        std::time::Instant::now()
    }
}

#[cfg(paperbourse_loom)]
mod modelled {
    use std::sync::LazyLock;
    use std::time::{Duration, Instant};

    pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, fence};
    pub use loom::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};
    pub use loom::thread::{Thread, current, park};

    /// Yields at once: in a model, the timeout may expire at any time.
    pub fn park_timeout(_: Duration) {
        loom::thread::yield_now();
    }

    /// Always returns the same time, so that executions are repeatable.
    pub fn now() -> Instant {
        static NOW: LazyLock<Instant> = LazyLock::new(Instant::now);
        *NOW
    }

    /// The model checker's mutex with `parking_lot`'s interface.
    #[derive(Debug)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model that panicked has already failed")
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// The model checker's reader-writer lock with `parking_lot`'s interface.
    #[derive(Debug)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("a model that panicked has already failed")
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("a model that panicked has already failed")
        }
    }
}
