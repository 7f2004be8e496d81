//! The atomics of this module, in one place so that a build with `--cfg paperbourse_loom` can swap
//! in the model checker's.

pub(super) use self::place::{Loaded, Place};

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use ::loom::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(paperbourse_loom))]
mod place {
    use arc_swap::{ArcSwapAny, Guard};
    use triomphe::ThinArc;

    /// Holds an optional slice with its header. Any thread may replace it without a lock.
    pub(in crate::limits) struct Place<H, T>(ArcSwapAny<Option<ThinArc<H, T>>>);

    /// What a place held when it was loaded; keeps the value alive.
    pub(in crate::limits) type Loaded<H, T> = Guard<Option<ThinArc<H, T>>>;

    impl<H, T> Place<H, T> {
        pub(in crate::limits) fn empty() -> Self {
            Self(ArcSwapAny::new(None))
        }

        #[inline]
        pub(in crate::limits) fn load(&self) -> Loaded<H, T> {
            self.0.load()
        }

        /// Stores `next` if the place still holds `current`; otherwise does nothing.
        pub(in crate::limits) fn replace(
            &self,
            current: &Loaded<H, T>,
            next: Option<ThinArc<H, T>>,
        ) {
            self.0.compare_and_swap(&**current, next);
        }
    }
}

/// The same behind a lock of the model checker, which tracks how threads hand values over.
#[cfg(paperbourse_loom)]
mod place {
    use loom::sync::Mutex;
    use triomphe::ThinArc;

    pub(in crate::limits) struct Place<H, T>(Mutex<Option<ThinArc<H, T>>>);

    pub(in crate::limits) type Loaded<H, T> = Option<ThinArc<H, T>>;

    impl<H, T> Place<H, T> {
        pub(in crate::limits) fn empty() -> Self {
            Self(Mutex::new(None))
        }

        pub(in crate::limits) fn load(&self) -> Loaded<H, T> {
            self.0.lock().unwrap().clone()
        }

        /// Stores `next` if the place still holds `current`; otherwise does nothing.
        pub(in crate::limits) fn replace(
            &self,
            current: &Loaded<H, T>,
            next: Option<ThinArc<H, T>>,
        ) {
            let mut held = self.0.lock().unwrap();
            let place = |value: &Option<ThinArc<H, T>>| value.as_ref().map(ThinArc::as_ptr);
            if place(&held) == place(current) {
                *held = next;
            }
        }
    }
}
