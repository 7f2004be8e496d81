use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn level(price_micros: i64, size: i64) -> Level {
    Level { price: Price::from_micros(price_micros), size: Shares::from_micros(size) }
}

#[test]
fn the_best_level_is_last() {
    let ladder = Ladder::from_levels(
        vec![level(480_000, 5), level(470_000, 5), level(490_000, 0)],
        vec![level(510_000, 5), level(520_000, 5)],
    )
    .unwrap();
    assert_eq!(ladder.best_bid(), Some(level(480_000, 5)));
    assert_eq!(ladder.best_ask(), Some(level(510_000, 5)));
    assert_eq!(ladder.taken_by(Side::Buy), ladder.asks());
    assert!(!ladder.is_crossed());
    let mirror = ladder.mirrored();
    assert_eq!(mirror.best_bid(), Some(level(490_000, 5)));
    assert_eq!(mirror.best_ask(), Some(level(520_000, 5)));
    assert_eq!(mirror.mirrored(), ladder);
}

#[test]
fn invalid_levels_are_refused() {
    for (bids, expected) in [
        (vec![level(0, 1)], LadderError::Price { price: Price::ZERO }),
        (vec![level(1_000_000, 1)], LadderError::Price { price: Price::ONE }),
        (
            vec![level(500_000, -1)],
            LadderError::Size { price: Price::from_micros(500_000), size: Shares::from_micros(-1) },
        ),
        (
            vec![level(500_000, 1), level(500_000, 2)],
            LadderError::Duplicate { price: Price::from_micros(500_000) },
        ),
        (vec![level(500_000, 1); LEVELS_PER_SIDE_MAX + 1], LadderError::TooLong),
    ] {
        assert_eq!(Ladder::from_levels(bids, Vec::new()), Err(expected));
    }
}

proptest! {
    /// A naive book made of two sorted maps.
    #[test]
    fn changes_agree_with_sorted_maps(
        changes in prop::collection::vec((any::<bool>(), 1_i64..40, 0_i64..4), 0..200),
    ) {
        let mut ladder = Ladder::default();
        let mut maps = [BTreeMap::new(), BTreeMap::new()];
        for (is_bid, price, size) in changes {
            let side = if is_bid { Side::Buy } else { Side::Sell };
            let map = &mut maps[usize::from(is_bid)];
            let before = map.clone();
            if size == 0 { map.remove(&price); } else { map.insert(price, size); }
            let changed = ladder
                .set(side, Price::from_micros(price * 100), Shares::from_micros(size))
                .unwrap();
            prop_assert_eq!(changed, *map != before);
        }
        let expected = |map: &BTreeMap<i64, i64>| -> Vec<Level> {
            map.iter().map(|(&price, &size)| level(price * 100, size)).collect()
        };
        let mut asks = expected(&maps[0]);
        asks.reverse();
        prop_assert_eq!(ladder.bids(), expected(&maps[1]));
        prop_assert_eq!(ladder.asks(), asks);
    }
}
