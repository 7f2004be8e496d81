//! The only source of chance on a simulated tape: `SplitMix64`.
//!
//! A tape is promised to stay the same for its seed, so its numbers come from these few lines and
//! not from a library whose next version may draw others. Nothing secret ever comes from here.

/// `SplitMix64`: a counter in steps of the golden ratio, each value of it mixed.
pub(super) struct Random {
    counter: u64,
}

impl Random {
    /// The sequence that belongs to this seed.
    pub(super) const fn new(seed: u64) -> Self {
        Self { counter: seed }
    }

    /// The next 64 bits.
    fn next_bits(&mut self) -> u64 {
        self.counter = self.counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.counter;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which is above 0. Some numbers are likelier than others by less than
    /// `bound` in 2⁶⁴, which a market with a bound of a few millions cannot show.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is below 0");
        let scaled = (u128::from(self.next_bits()) * u128::from(bound)) >> 64;
        u64::try_from(scaled).expect("the upper half of a product of two u64 is a u64")
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "a range has a number in it");
        let count = high.abs_diff(low).checked_add(1).expect("ranges are far narrower than an i64");
        low.checked_add_unsigned(self.below(count)).expect("the sum is at most `high`")
    }

    /// A place in a list of so many.
    pub(super) fn index(&mut self, count: usize) -> usize {
        let bound = u64::try_from(count).expect("a list is shorter than 2⁶⁴");
        usize::try_from(self.below(bound)).expect("a place is below the length of its list")
    }

    /// True once in so many times.
    pub(super) fn once_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values that other implementations of `SplitMix64` give for this seed.
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
    fn a_range_is_met_from_end_to_end_and_never_left() {
        let mut random = Random::new(3);
        let mut met = [0_usize; 7];
        for _ in 0..7_000 {
            let number = random.between(-3, 3);
            met[usize::try_from(number + 3).unwrap()] += 1;
        }
        assert!(met.iter().all(|&count| (850..1_150).contains(&count)), "{met:?}");
        assert_eq!(random.between(5, 5), 5);
        assert_eq!(random.below(1), 0);
    }
}
