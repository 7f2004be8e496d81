//! A number of bytes that many holders share. Pure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Limits what many holders have together, in bytes.
#[derive(Debug)]
pub struct ByteBudget {
    held_bytes: AtomicUsize,
    bytes_max: usize,
}

/// What one holder has of a budget. It is returned on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<ByteBudget>,
    bytes: usize,
}

impl ByteBudget {
    /// A budget of `bytes_max`, all of it free.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { held_bytes: AtomicUsize::new(0), bytes_max })
    }

    /// How many bytes are held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// How many bytes may be held.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// A holder that has nothing yet.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { budget: self.clone(), bytes: 0 }
    }
}

impl Share {
    /// How many bytes it has.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks to this many bytes. Returns false if the budget has no room for them; then
    /// it keeps what it has.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        self.hold_below(bytes, self.budget.bytes_max)
    }

    /// The same for a holder who leaves the rest to others: all together may have `bytes_max` then.
    #[must_use]
    pub fn hold_below(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let held = &self.budget.held_bytes;
        // Only the number matters; it publishes no other data.
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let grown = |held: usize| held.checked_add(more).filter(|&held| held <= bytes_max);
            if held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_err() {
                return false;
            }
        } else if bytes < self.bytes {
            held.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_have_no_more_than_the_budget() {
        let budget = ByteBudget::new(100);
        let (mut one, mut other) = (budget.share(), budget.share());
        for (one_bytes, other_bytes, fit, held_bytes) in [
            (60, 40, (true, true), 100),
            (61, 30, (false, true), 90),
            (70, 31, (true, false), 100),
            (0, 100, (true, true), 100),
            (usize::MAX, 99, (false, true), 99),
            (1, 99, (true, true), 100),
        ] {
            assert_eq!((one.hold(one_bytes), other.hold(other_bytes)), fit);
            assert_eq!(budget.held_bytes(), held_bytes);
        }
        drop(one);
        assert_eq!((budget.held_bytes(), other.bytes()), (99, 99));
        drop(other);
        assert_eq!(budget.held_bytes(), 0);
    }
}
