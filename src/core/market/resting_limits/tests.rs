use super::*;

const OUTCOME: OutcomeIndex = OutcomeIndex(1);

fn shard(index: u8) -> ShardId {
    ShardId::new(index).unwrap()
}

fn price(micros: i64) -> Price {
    Price::from_micros(micros)
}

/// The numbers of the shards in a set.
fn numbers(shards: ShardSet) -> Vec<u8> {
    shards.iter().map(ShardId::get).collect()
}

#[test]
fn a_level_reaches_the_limits_at_its_price_or_better() {
    let resting_limits = RestingLimits::new(2);
    for (index, limit) in [(0, 400_000), (7, 400_100), (63, 999_900)] {
        for side in [Side::Buy, Side::Sell] {
            resting_limits.set_best(OUTCOME, side, shard(index), Some(price(limit)));
        }
    }
    resting_limits.set_best(OUTCOME, Side::Sell, shard(5), Some(price(100)));
    for (level, buys, sells) in [
        (100, &[0, 7, 63][..], &[5][..]),
        (399_900, &[0, 7, 63], &[5]),
        (400_000, &[0, 7, 63], &[0, 5]),
        (400_100, &[7, 63], &[0, 5, 7]),
        (400_200, &[63], &[0, 5, 7]),
        (999_900, &[63], &[0, 5, 7, 63]),
    ] {
        let reached = |side| numbers(resting_limits.reached_by(OUTCOME, side, price(level)));
        assert_eq!((&*reached(Side::Buy), &*reached(Side::Sell)), (buys, sells), "{level}");
    }
    assert_eq!(numbers(resting_limits.any(OUTCOME)), [0, 5, 7, 63]);
    assert!(
        resting_limits.any(OutcomeIndex(0)).is_empty(),
        "the other outcome has slots of its own"
    );
    assert_eq!(resting_limits.anywhere(), resting_limits.any(OUTCOME));
}

#[test]
fn the_newest_limit_counts() {
    let resting_limits = RestingLimits::new(2);
    let best = || resting_limits.best(OUTCOME, Side::Buy, shard(9));
    let set = |limit| resting_limits.set_best(OUTCOME, Side::Buy, shard(9), limit);
    assert_eq!(best(), None);
    set(Some(price(530_000)));
    assert_eq!(best(), Some(price(530_000)));
    set(Some(price(20_000)));
    assert_eq!(best(), Some(price(20_000)));
    assert!(resting_limits.reached_by(OUTCOME, Side::Buy, price(530_000)).is_empty());
    set(None);
    assert_eq!(best(), None);
    assert!(resting_limits.any(OUTCOME).is_empty());
}

#[test]
fn nothing_rests_in_an_outcome_that_does_not_exist() {
    let (resting_limits, outcome) = (RestingLimits::new(2), OutcomeIndex(2));
    assert!(resting_limits.any(outcome).is_empty());
    assert!(resting_limits.reached_by(outcome, Side::Sell, price(500_000)).is_empty());
    assert_eq!(resting_limits.best(outcome, Side::Buy, shard(0)), None);
}

#[test]
fn sets_of_shards() {
    let [some, others] =
        [&[0, 9][..], &[9, 63]].map(|it| it.iter().map(|&it| shard(it)).collect::<ShardSet>());
    let all = some.union(others);
    assert_eq!(numbers(all), [0, 9, 63]);
    assert_eq!(format!("{all:?}"), "{0, 9, 63}");
    assert!(all.contains(shard(63)) && !some.contains(shard(63)));
    assert!(ShardSet::EMPTY.is_empty() && !some.is_empty());
    assert_eq!(ShardId::all().collect::<ShardSet>().iter().count(), SHARD_COUNT);
}
