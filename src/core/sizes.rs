//! Sizes that tests make smaller, so that a few steps reach what takes a server a busy year.

#[cfg(any(test, feature = "test-util"))]
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether all sizes of the process are small. Tests of this package always have small ones.
#[cfg(any(test, feature = "test-util"))]
static IS_SMALL: AtomicBool = AtomicBool::new(cfg!(test));

/// A size that servers have, and a smaller one for tests.
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

    /// The size in this process.
    #[cfg(not(any(test, feature = "test-util")))]
    pub const fn get(&self) -> usize {
        self.usual
    }

    /// The size in this process.
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
