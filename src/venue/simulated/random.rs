//! The random numbers of a simulated tape: `SplitMix64`.
//!
//! A seed must always give the same tape, so the numbers come from this code and not from a
//! library, whose next version may draw different ones. They are not fit for secrets.

/// `SplitMix64`: a counter that advances by the golden ratio, and a mix of its bits.
pub(super) struct Random {
    counter: u64,
}

impl Random {
    /// Creates the sequence for a seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    /// Returns the next 64 bits.
    fn next_bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.counter;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must be above 0. The bias is less than `bound` in 2⁶⁴,
    /// which is undetectable for bounds of a few millions.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "the bound must be above 0");
        let scaled = (u128::from(self.next_bits()) * u128::from(bound)) >> 64;
        u64::try_from(scaled).expect("the upper half of a 128-bit product fits in 64 bits")
    }

    /// Returns a number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "the range {low} to {high} is empty");
        let count = high.abs_diff(low).checked_add(1).expect("ranges are far narrower than an i64");
        low.checked_add_unsigned(self.below(count)).expect("the sum is at most `high`")
    }

    /// Returns an index into a list of `count` items.
    pub(super) fn index(&mut self, count: usize) -> usize {
        let bound = u64::try_from(count).expect("a list is shorter than 2⁶⁴");
        usize::try_from(self.below(bound)).expect("an index is below the length of its list")
    }

    /// Returns true with a probability of one in `count`.
    pub(super) fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values come from other implementations of `SplitMix64`.
    #[test]
    fn the_sequence_is_the_published_one() {
        let mut random = Random::new(1_234_567);
        for expected in [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ] {
            assert_eq!(random.next_bits(), expected);
        }
    }

    #[test]
    fn a_range_is_covered_and_never_exceeded() {
        let mut random = Random::new(3);
        let mut counts = [0_usize; 7];
        for _ in 0..7_000 {
            let number = random.between(-3, 3);
            counts[usize::try_from(number + 3).unwrap()] += 1;
        }
        assert!(counts.iter().all(|&count| (850..1_150).contains(&count)), "{counts:?}");
        assert_eq!(random.between(5, 5), 5);
        assert_eq!(random.below(1), 0);
    }
}
