//! The atomics of this module, in one place so that a build with `--cfg paperbourse_loom` can put
//! the model checker's in their stead.

pub(super) use self::place::{Loaded, Place};

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use ::loom::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(paperbourse_loom))]
mod place {
    use arc_swap::{ArcSwapAny, Guard};
    use triomphe::ThinArc;

    /// Holds shared slots with what is before them, or none, which any thread may exchange without
    /// a lock.
    pub(in crate::limits) struct Place<H, T>(ArcSwapAny<Option<ThinArc<H, T>>>);

    /// What a place held when it was looked at. The value lives as long as this.
    pub(in crate::limits) type Loaded<H, T> = Guard<Option<ThinArc<H, T>>>;

    impl<H, T> Place<H, T> {
        pub(in crate::limits) fn empty() -> Self {
            Self(ArcSwapAny::new(None))
        }

        #[inline]
        pub(in crate::limits) fn load(&self) -> Loaded<H, T> {
            self.0.load()
        }

        /// Puts another value where `current` is, or does nothing if it is there no more.
        pub(in crate::limits) fn replace(
            &self,
            current: &Loaded<H, T>,
            next: Option<ThinArc<H, T>>,
        ) {
            self.0.compare_and_swap(&**current, next);
        }
    }
}

/// The same with a lock of the model checker, which sees when threads pass values on.
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

        /// Puts another value where `current` is, or does nothing if it is there no more.
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
