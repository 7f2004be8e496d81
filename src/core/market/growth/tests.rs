use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn price(ticks: i64) -> Price {
    Price::from_micros(ticks * 10_000)
}

fn shares(micros: i64) -> Shares {
    Shares::from_micros(micros)
}

fn level((ticks, size): (i64, i64)) -> Level {
    Level { price: price(ticks), size: shares(size) }
}

fn ladder(bids: &[(i64, i64)], asks: &[(i64, i64)]) -> Ladder {
    let levels = |side: &[(i64, i64)]| side.iter().copied().map(level).collect();
    Ladder::from_levels(levels(bids), levels(asks)).unwrap()
}

fn number(growth: &mut Growth, side: Side, ticks: i64) -> i64 {
    growth.numbers().map_or(0, |numbers| numbers.of(side, price(ticks)))
}

/// Sizes of one level over time in milliseconds, and its numbers. It starts with 10 shares.
#[track_caller]
fn check(steps: &[(i64, i64, i64)]) {
    for side in [Side::Buy, Side::Sell] {
        let mut growth = Growth::starting_from(&ladder(&[(40, 10)], &[(40, 10)]));
        for &(millis, size, expected) in steps {
            growth.set(side, price(40), shares(size), Timestamp::from_millis(millis));
            assert_eq!(number(&mut growth, side, 40), expected, "{side:?} at {millis}");
            assert_eq!(number(&mut growth, side.opposite(), 40), 0, "{side:?} at {millis}");
        }
    }
}

#[test]
fn a_number_rises_by_what_is_added() {
    check(&[(1, 10, 0), (2, 12, 2), (3, 4, 2), (4, 5, 3), (5, 5, 3), (6, 15, 13)]);
}

#[test]
fn a_level_that_flickers_rises_by_what_exceeds_its_former_size() {
    check(&[(0, 0, 0), (999, 10, 0), (1_000, 0, 0), (1_001, 13, 3)]);
    check(&[(0, 12, 2), (1, 7, 2), (2, 0, 0), (3, 9, 4), (4, 0, 0), (5, 1, 4)]);
    // A time that was set back is no second later.
    check(&[(5_000, 0, 0), (1, 11, 1)]);
}

#[test]
fn a_level_that_was_gone_for_a_second_is_new() {
    check(&[(0, 0, 0), (1_000, 10, 10), (1_001, 11, 11), (1_002, 0, 0), (9_000, 1, 12)]);
    // It is new once: what went and came back counts from there.
    check(&[(0, 0, 0), (1_000, 4, 4), (1_001, 0, 0), (1_002, 4, 4)]);
}

#[test]
fn a_new_level_starts_above_all_numbers_of_its_side() {
    let mut growth = Growth::starting_from(&ladder(&[(40, 10)], &[]));
    growth.set(Side::Buy, price(40), shares(15), Timestamp::EPOCH);
    growth.set(Side::Buy, price(41), shares(3), Timestamp::EPOCH);
    growth.set(Side::Sell, price(50), shares(3), Timestamp::EPOCH);
    assert_eq!(number(&mut growth, Side::Buy, 40), 5);
    assert_eq!(number(&mut growth, Side::Buy, 41), 8);
    assert_eq!(number(&mut growth, Side::Sell, 50), 3);
    assert_eq!(number(&mut growth, Side::Buy, 39), 0, "there is no such level");
}

#[test]
fn a_full_book_is_a_change_of_each_level_that_differs() {
    let mut growth = Growth::starting_from(&ladder(&[(38, 1), (39, 2), (40, 3)], &[(50, 4)]));
    let next = ladder(&[(37, 5), (39, 4), (40, 1), (41, 1)], &[(49, 4), (51, 2)]);
    growth.replace(&next, Timestamp::EPOCH);
    let bids = [37, 38, 39, 40, 41].map(|ticks| number(&mut growth, Side::Buy, ticks));
    assert_eq!(bids, [5, 0, 2, 0, 6]);
    let asks = [49, 50, 51].map(|ticks| number(&mut growth, Side::Sell, ticks));
    assert_eq!(asks, [6, 0, 2], "worse levels come first");
    assert_eq!(growth.take_grown(), Grown { bid: Some(price(41)), ask: Some(price(49)) });
}

#[test]
fn the_best_level_that_grew_is_reported_once() {
    let mut growth = Growth::starting_from(&ladder(&[(40, 10)], &[(50, 10)]));
    let mut set = |side, ticks, size| {
        growth.set(side, price(ticks), shares(size), Timestamp::EPOCH);
        let grown = growth.take_grown();
        (grown.bid.map(Price::micros), grown.ask.map(Price::micros))
    };
    assert_eq!(set(Side::Buy, 40, 9), (None, None), "it shrank");
    assert_eq!(set(Side::Buy, 40, 10), (Some(400_000), None));
    assert_eq!(set(Side::Buy, 40, 0), (None, None));
    assert_eq!(set(Side::Buy, 40, 1), (Some(400_000), None), "its number stays");
    assert_eq!(set(Side::Sell, 55, 1), (None, Some(550_000)));
    growth.replace(&ladder(&[(40, 2), (39, 1)], &[(51, 1), (52, 1)]), Timestamp::EPOCH);
    assert_eq!(growth.take_grown(), Grown { bid: Some(price(40)), ask: Some(price(51)) });
}

#[test]
fn only_the_newest_levels_that_went_are_remembered() {
    let count = i64::try_from(GONE_MAX).unwrap() + 1;
    let bids: Vec<_> = (1..=count).map(|ticks| (ticks, 10)).collect();
    let mut growth = Growth::starting_from(&ladder(&bids, &[]));
    growth.replace(&ladder(&[], &[]), Timestamp::EPOCH);
    growth.replace(&ladder(&bids, &[]), Timestamp::EPOCH);
    assert_eq!(number(&mut growth, Side::Buy, 1), 10, "the worst one is forgotten");
    assert_eq!(number(&mut growth, Side::Buy, 2), 0);
}

#[test]
fn numbers_are_shared_until_one_changes() {
    let mut growth = Growth::starting_from(&ladder(&[(40, 10)], &[]));
    assert!(growth.numbers().is_none());
    growth.set(Side::Buy, price(40), shares(11), Timestamp::EPOCH);
    let first = growth.numbers().unwrap();
    assert!(Arc::ptr_eq(&first, &growth.numbers().unwrap()));
    growth.set(Side::Buy, price(40), shares(12), Timestamp::EPOCH);
    assert_eq!(first.of(Side::Buy, price(40)), 1, "readers keep what they have");
    assert_eq!(number(&mut growth, Side::Buy, 40), 2);
}

#[test]
fn numbers_do_not_overflow() {
    let mut growth = Growth::starting_from(&ladder(&[], &[]));
    for ticks in 1..4 {
        growth.set(Side::Buy, price(ticks), Shares::from_micros(i64::MAX), Timestamp::EPOCH);
    }
    assert_eq!(number(&mut growth, Side::Buy, 3), i64::MAX);
}

/// All sizes that each price of one side ever had, with their times and numbers.
#[derive(Default)]
struct Oracle {
    history: BTreeMap<i64, Vec<(i64, i64, i64)>>,
}

impl Oracle {
    fn starting_from(levels: &BTreeMap<i64, i64>) -> Self {
        let history = levels.iter().map(|(&ticks, &size)| (ticks, vec![(-10_000, size, 0)]));
        Self { history: history.collect() }
    }

    fn set(&mut self, ticks: i64, size: i64, millis: i64) {
        let ever = self.history.values().flatten().map(|&(_, _, number)| number).max();
        let sizes = self.history.entry(ticks).or_default();
        let number = match sizes[..] {
            [] if size == 0 => return,
            [.., (_, _, number)] if size == 0 => number,
            [.., (_, former, number)] if former > 0 => number + (size - former).max(0),
            [.., (_, former, number), (went, _, _)] if millis - went < 1_000 => {
                number + (size - former).max(0)
            }
            _ => ever.unwrap_or(0) + size,
        };
        // A level goes once, however often it is removed.
        if sizes.last().is_none_or(|&(_, former, _)| former > 0 || size > 0) {
            sizes.push((millis, size, number));
        }
    }

    fn number(&self, ticks: i64) -> i64 {
        match self.history.get(&ticks).and_then(|sizes| sizes.last()) {
            Some(&(_, size, number)) if size > 0 => number,
            _ => 0,
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(i64, i64),
    Replace(BTreeMap<i64, i64>),
}

fn levels() -> impl Strategy<Value = BTreeMap<i64, i64>> {
    prop::collection::btree_map(1_i64..8, 1_i64..5, 0..6)
}

fn steps() -> impl Strategy<Value = Vec<(i64, Step)>> {
    let step = prop_oneof![
        5 => (1_i64..8, 0_i64..5).prop_map(|(ticks, size)| Step::Set(ticks, size)),
        1 => levels().prop_map(Step::Replace),
    ];
    prop::collection::vec((prop_oneof![Just(0), 0_i64..700], step), 0..80)
}

proptest! {
    #[test]
    fn numbers_follow_from_the_full_history(
        is_bid in any::<bool>(),
        start in levels(),
        steps in steps(),
    ) {
        let side = if is_bid { Side::Buy } else { Side::Sell };
        let sided = |levels: &BTreeMap<i64, i64>| {
            let levels: Vec<_> = levels.iter().map(|(&ticks, &size)| (ticks, size)).collect();
            if is_bid { ladder(&levels, &[]) } else { ladder(&[], &levels) }
        };
        let mut growth = Growth::starting_from(&sided(&start));
        let mut oracle = Oracle::starting_from(&start);
        let mut millis = 0;
        for (elapsed, step) in steps {
            millis += elapsed;
            let at = Timestamp::from_millis(millis);
            match step {
                Step::Set(ticks, size) => {
                    growth.set(side, price(ticks), shares(size), at);
                    oracle.set(ticks, size, millis);
                }
                Step::Replace(levels) => {
                    growth.replace(&sided(&levels), at);
                    let mut changed: Vec<i64> = (1..8).collect();
                    if !is_bid {
                        changed.reverse();
                    }
                    for ticks in changed {
                        oracle.set(ticks, levels.get(&ticks).copied().unwrap_or(0), millis);
                    }
                }
            }
            for ticks in 1..8 {
                let actual = number(&mut growth, side, ticks);
                prop_assert_eq!(actual, oracle.number(ticks), "{} at {}", ticks, millis);
            }
        }
    }
}
