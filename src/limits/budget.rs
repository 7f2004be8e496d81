//! A number of bytes that many holders share. Pure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many callers can be told apart. Callers in one place share what each may have.
const PLACES: usize = 1024;
/// Each caller may have one part in so many of a budget,
const CALLER_PARTS: usize = 8;
/// unless all together have no more than one part in so many.
const UNCROWDED_PARTS: usize = 4;

/// Limits what many holders have together, in bytes.
#[derive(Debug)]
pub struct ByteBudget {
    held_bytes: AtomicUsize,
    bytes_max: usize,
    /// What the holders of each caller have together, at the place that its hash names.
    by_caller: Box<[AtomicUsize]>,
}

/// What one holder has of a budget. It is returned on drop.
#[derive(Debug)]
pub struct Share {
    budget: Arc<ByteBudget>,
    bytes: usize,
    /// How many bytes of the budget may be held once this one has taken more.
    bytes_max: usize,
    /// The place of its caller, if it has one.
    place: Option<usize>,
}

impl ByteBudget {
    /// A budget of `bytes_max`, all of it free.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            held_bytes: AtomicUsize::new(0),
            bytes_max,
            by_caller: (0..PLACES).map(|_| AtomicUsize::new(0)).collect(),
        })
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
        Share { budget: self.clone(), bytes: 0, bytes_max: self.bytes_max, place: None }
    }

    /// A holder that has nothing yet, on behalf of the caller with this hash. All of a caller's
    /// together may have an eighth of the budget, or more while all callers together have at most a
    /// quarter. It takes nothing past `bytes_max` in all, which leaves the rest to others. The hash
    /// must have a secret, so that nobody can choose to share a place with somebody else.
    pub fn share_of(self: &Arc<Self>, caller: u64, bytes_max: usize) -> Share {
        let place = usize::try_from(caller % PLACES as u64).expect("there are few places");
        Share { budget: self.clone(), bytes: 0, bytes_max, place: Some(place) }
    }

    /// Takes this many more bytes, unless all together would have more than `bytes_max`.
    fn grow(&self, place: Option<usize>, more: usize, bytes_max: usize) -> bool {
        let caller = place.map(|place| &self.by_caller[place]);
        let is_crowded = self.held_bytes().saturating_add(more) > self.bytes_max / UNCROWDED_PARTS;
        let caller_max = if is_crowded { self.bytes_max / CALLER_PARTS } else { usize::MAX };
        if caller.is_some_and(|caller| !add_below(caller, more, caller_max)) {
            return false;
        }
        let has_room = add_below(&self.held_bytes, more, bytes_max);
        if !has_room && let Some(caller) = caller {
            caller.fetch_sub(more, Ordering::Relaxed);
        }
        has_room
    }

    fn shrink(&self, place: Option<usize>, less: usize) {
        self.held_bytes.fetch_sub(less, Ordering::Relaxed);
        if let Some(place) = place {
            self.by_caller[place].fetch_sub(less, Ordering::Relaxed);
        }
    }
}

/// Adds `more`, unless the sum exceeds `max`. Only the number matters; no other data hangs on it.
fn add_below(held: &AtomicUsize, more: usize, max: usize) -> bool {
    let grown = |held: usize| held.checked_add(more).filter(|&held| held <= max);
    held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
}

impl Share {
    /// How many bytes it has.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks to this many bytes. Returns false if the budget, or its caller's part of
    /// it, has no room for them; then it keeps what it has.
    #[must_use]
    pub fn hold(&mut self, bytes: usize) -> bool {
        if bytes > self.bytes {
            if !self.budget.grow(self.place, bytes - self.bytes, self.bytes_max) {
                return false;
            }
        } else if bytes < self.bytes {
            self.budget.shrink(self.place, self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.shrink(self.place, self.bytes);
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

    #[test]
    fn a_caller_has_no_more_than_its_part() {
        let budget = ByteBudget::new(800);
        let mut shares = [1, 1 + PLACES as u64, 2].map(|caller| budget.share_of(caller, 800));
        let mut rest = budget.share();
        for (bytes, fit, rest_bytes, held_bytes) in [
            ([60, 40, 100], [true, true, true], 0, 200),
            ([61, 40, 101], [false, true, false], 0, 200),
            ([0, 100, 1], [true, true, true], 0, 101),
            ([0, 0, 0], [true, true, true], 0, 0),
            // What the budget refuses takes nothing from the caller.
            ([2, 1, 1], [false, true, false], 799, 800),
            ([0, 100, 1], [true, true, false], 700, 800),
            ([0, 0, 0], [true, true, true], 0, 0),
            ([200, 0, 0], [true, true, true], 0, 200),
            ([200, 1, 1], [true, false, true], 0, 201),
        ] {
            assert!(rest.hold(rest_bytes));
            let held = [0, 1, 2].map(|number| shares[number].hold(bytes[number]));
            assert_eq!((held, budget.held_bytes()), (fit, held_bytes), "{bytes:?}");
        }
        drop((shares, rest));
        assert_eq!(budget.held_bytes(), 0);
        assert!(budget.by_caller.iter().all(|held| held.load(Ordering::Relaxed) == 0));
    }
}
