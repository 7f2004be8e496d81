//! A byte budget shared by many holders. Pure.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of places that callers of one kind hash to. Callers that hash to the same place share its
/// part of the budget.
const PLACES: usize = 512;
/// Denominator of the fraction of a budget that is kept for callers that hold little. Every place
/// gets an equal part of it.
const KEPT_PARTS: usize = 4;
/// Denominator of the fraction that one caller may take of the remaining bytes: those neither kept
/// for callers that hold little nor held by other callers.
const CALLER_PARTS: usize = 8;
/// Denominator of the fraction of a budget that may be held before any caller is limited.
const UNCROWDED_PARTS: usize = 4;

/// Limits the total number of bytes that many holders may have.
#[derive(Debug)]
pub struct ByteBudget {
    held_bytes: AtomicUsize,
    bytes_max: usize,
    /// Bytes held on behalf of each caller, at the place given by the caller's hash.
    by_caller: Box<[AtomicUsize]>,
}

/// The bytes that one holder has taken from a budget. They are returned when the share is dropped.
#[derive(Debug)]
pub struct Share {
    budget: Arc<ByteBudget>,
    bytes: usize,
    /// Maximum total held from the budget after this share grows.
    bytes_max: usize,
    /// The caller's place; `None` if the share has no caller.
    place: Option<usize>,
}

impl ByteBudget {
    /// Creates a budget of `bytes_max` bytes, all of it free.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self {
            held_bytes: AtomicUsize::new(0),
            bytes_max,
            by_caller: (0..2 * PLACES).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Returns the number of bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes that may be held.
    pub const fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Returns an empty share.
    pub fn share(self: &Arc<Self>) -> Share {
        Share { budget: self.clone(), bytes: 0, bytes_max: self.bytes_max, place: None }
    }

    /// Returns an empty share for the caller with this hash. It can grow only while the total held
    /// stays within `bytes_max`, which leaves the rest of the budget to other callers. Callers
    /// whose `bytes_max` is less than the whole budget are counted separately.
    ///
    /// A quarter of `bytes_max` is divided equally among the places, and however much other callers
    /// take, each caller has the part of its place. Of the other three quarters, the shares of one
    /// caller may together take an eighth of what other callers leave. No caller is limited while
    /// all of them together hold at most a quarter of `bytes_max`.
    ///
    /// The hash must have a secret, so that no caller can aim for another caller's place.
    pub fn share_of(self: &Arc<Self>, caller: u64, bytes_max: usize) -> Share {
        let place = usize::try_from(caller % PLACES as u64).expect("there are few places");
        let is_whole = bytes_max >= self.bytes_max;
        let place = if is_whole { place } else { PLACES + place };
        Share { budget: self.clone(), bytes: 0, bytes_max, place: Some(place) }
    }

    /// Takes `more` bytes, unless the total would exceed `bytes_max` or the caller would exceed its
    /// part.
    fn grow(&self, place: Option<usize>, more: usize, bytes_max: usize) -> bool {
        let Some(place) = place else {
            return add_if(&self.held_bytes, more, |held| held <= bytes_max).is_some();
        };
        // The caller's part grows first, so that bytes taken meanwhile by another thread for the
        // same caller are never mistaken for bytes that others hold.
        let caller = &self.by_caller[place];
        let Some(own) = add_if(caller, more, |own| own <= bytes_max) else { return false };
        let kept = bytes_max / KEPT_PARTS;
        let has_little = own <= kept / PLACES;
        let has_room = add_if(&self.held_bytes, more, |held| {
            let left = (bytes_max - kept).saturating_sub(held.saturating_sub(own));
            let is_uncrowded = held <= bytes_max / UNCROWDED_PARTS;
            held <= bytes_max && (has_little || is_uncrowded || own <= left / CALLER_PARTS)
        })
        .is_some();
        if !has_room {
            caller.fetch_sub(more, Ordering::Relaxed);
        }
        has_room
    }

    fn shrink(&self, place: Option<usize>, less: usize) {
        let held = self.held_bytes.fetch_sub(less, Ordering::Relaxed);
        debug_assert!(less <= held, "only bytes that are held are returned");
        if let Some(place) = place {
            let own = self.by_caller[place].fetch_sub(less, Ordering::Relaxed);
            debug_assert!(less <= own, "only bytes that the caller holds are returned");
        }
    }
}

/// Adds `more` if the sum fits, and returns the sum. Relaxed ordering suffices, because no other
/// data depends on the number.
fn add_if(held: &AtomicUsize, more: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let grown = |held: usize| held.checked_add(more).filter(|&held| fits(held));
    let before = held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
    before.ok().map(|before| before + more)
}

impl Share {
    /// Returns the number of bytes held.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks to this many bytes. If the budget, or the caller's part of it, has no room,
    /// returns false and keeps the current number.
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
    use proptest::collection::vec;
    use proptest::prelude::*;

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
            // An eighth of what the others leave of 600.
            ([31, 0, 0], [false, true, true], 360, 360),
            ([30, 1, 26], [true, false, true], 360, 416),
            ([20, 6, 26], [true, true, true], 360, 412),
            ([20, 7, 27], [true, false, false], 360, 412),
            ([0, 0, 0], [true, true, true], 0, 0),
            // A refusal by the budget takes nothing from the caller's part.
            ([2, 1, 1], [false, false, false], 799, 799),
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

    /// Takes as many bytes as it can get.
    fn take_all(share: &mut Share) {
        let mut more = share.budget.bytes_max;
        while more > 0 {
            if !share.hold(share.bytes() + more) {
                more /= 2;
            }
        }
    }

    proptest! {
        /// Holds however many callers take as much as they can get, in any order.
        #[test]
        fn a_newcomer_gets_room_for_a_small_body(
            steps in vec((0..2 * PLACES, 0..4), 0..3_000),
            newcomer in 0..PLACES,
            are_strangers in any::<bool>(),
        ) {
            let budget = ByteBudget::new(64 << 20);
            let share = |caller: usize| {
                let is_stranger = are_strangers || caller >= PLACES;
                budget.share_of(caller as u64, (64 << 20) / if is_stranger { 2 } else { 1 })
            };
            let mut shares: Vec<_> = (0..2 * PLACES).map(share).collect();
            let at_last = (0..2 * PLACES).map(|caller| (caller, 1));
            for (caller, step) in steps.into_iter().chain(at_last) {
                match step {
                    _ if caller % PLACES == newcomer => {}
                    0 => prop_assert!(shares[caller].hold(0)),
                    _ => take_all(&mut shares[caller]),
                }
            }
            let small = if are_strangers { 16 << 10 } else { 32 << 10 };
            prop_assert!(shares[newcomer].hold(small));
        }
    }
}
