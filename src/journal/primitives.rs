//! The atomics, mutex and threads under the hand-written hand-overs of the journal, in one place
//! so that a build with `--cfg paperbourse_loom` can put the model checker's in their stead.

#[cfg(not(paperbourse_loom))]
pub(super) use real::*;

#[cfg(paperbourse_loom)]
pub(super) use modelled::*;

#[cfg(not(paperbourse_loom))]
mod real {
    pub(in crate::journal) use std::sync::atomic::{AtomicBool, AtomicU64, fence};
    pub(in crate::journal) use std::thread::{Thread, current, park};

    pub(in crate::journal) use parking_lot::Mutex;
}

#[cfg(paperbourse_loom)]
mod modelled {
    pub(in crate::journal) use loom::sync::MutexGuard;
    pub(in crate::journal) use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
    pub(in crate::journal) use loom::thread::{Thread, current, park};

    /// The model checker's mutex with the face of `parking_lot`'s.
    #[derive(Debug)]
    pub(in crate::journal) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(in crate::journal) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(in crate::journal) fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("a model that panicked has already failed")
        }
    }
}
