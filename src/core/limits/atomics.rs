//! The atomics that the limits use, in one place so that a build with `--cfg paperbourse_loom` can
//! swap in the model checker's versions.

pub(super) use self::place::Place;

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use ::loom::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(paperbourse_loom))]
mod place {
    use arc_swap::{ArcSwapAny, Guard, RefCnt};

    /// An optional reference-counted pointer that any thread may replace without a lock.
    pub(in crate::limits) struct Place<T: RefCnt>(ArcSwapAny<Option<T>>);

    impl<T: RefCnt> Place<T> {
        pub(in crate::limits) fn new(value: Option<T>) -> Self {
            Self(ArcSwapAny::new(value))
        }

        #[inline]
        pub(in crate::limits) fn load(&self) -> Guard<Option<T>> {
            self.0.load()
        }

        /// Stores `next` if the place still holds `current`; otherwise does nothing.
        pub(in crate::limits) fn replace(&self, current: &Guard<Option<T>>, next: Option<T>) {
            self.0.compare_and_swap(&**current, next);
        }

        pub(in crate::limits) fn take(&mut self) -> Option<T> {
            self.0.swap(None)
        }
    }
}

/// A place guarded by the model checker's lock, so that the checker can track how threads hand
/// values over.
#[cfg(paperbourse_loom)]
mod place {
    use arc_swap::RefCnt;
    use loom::sync::Mutex;

    pub(in crate::limits) struct Place<T>(Mutex<Option<T>>);

    impl<T: RefCnt> Place<T> {
        pub(in crate::limits) fn new(value: Option<T>) -> Self {
            Self(Mutex::new(value))
        }

        pub(in crate::limits) fn load(&self) -> Option<T> {
            self.0.lock().unwrap().clone()
        }

        /// Stores `next` if the place still holds `current`; otherwise does nothing.
        pub(in crate::limits) fn replace(&self, current: &Option<T>, next: Option<T>) {
            let mut held = self.0.lock().unwrap();
            let place = |value: &Option<T>| value.as_ref().map(RefCnt::as_ptr);
            if place(&held) == place(current) {
                *held = next;
            }
        }

        pub(in crate::limits) fn take(&mut self) -> Option<T> {
            self.0.get_mut().unwrap().take()
        }
    }
}
