//! Sizes that tests make smaller, so that a few steps do what takes a server a busy year.

#[cfg(any(test, feature = "test-util"))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether this process uses the small sizes. Tests of this package always do.
#[cfg(any(test, feature = "test-util"))]
static IS_SMALL: AtomicBool = AtomicBool::new(cfg!(test));

/// A size for servers, and a smaller one for tests.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    usual: usize,
    #[cfg(any(test, feature = "test-util"))]
    small: usize,
}

impl Size {
    pub(crate) const fn new(usual: usize, small: usize) -> Self {
        assert!(small < usual);
        Self {
            usual,
            #[cfg(any(test, feature = "test-util"))]
            small,
        }
    }

    /// Returns the size that this process uses.
    #[cfg(not(any(test, feature = "test-util")))]
    pub const fn get(&self) -> usize {
        self.usual
    }

    /// Returns the size that this process uses.
    #[cfg(any(test, feature = "test-util"))]
    pub fn get(&self) -> usize {
        if IS_SMALL.load(Ordering::Relaxed) { self.small } else { self.usual }
    }
}

/// Switches all sizes in the process to their small values, permanently. A state that has already
/// outgrown a small size is unusable, so every test that may reach one calls this first.
#[cfg(any(test, feature = "test-util"))]
pub fn make_small() {
    IS_SMALL.store(true, Ordering::Relaxed);
}
