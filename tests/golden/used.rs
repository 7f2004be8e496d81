//! Writes data with orders that have used displayed sizes.

use super::resting::{fill_levels, limit, place};
use super::*;

/// The kinds of events of orders that use displayed sizes.
const KINDS: [&str; 6] = [
    "account opened",
    "key created",
    "market introduced",
    "order placed",
    "resting filled of levels",
    "state checked",
];

/// Two purchases use levels of the same side, before and after a snapshot; a sale uses others.
pub(super) fn write_used(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    let terms = |cents, shares| Terms {
        post_only: false,
        ..limit(cents, shares, TimeInForce::GoodTilCancelled)
    };
    let bought = place(&mut state, &journal, (Side::Buy, terms(40, 900)), (4, 1_560_000), None);
    let sold = place(&mut state, &journal, (Side::Sell, terms(60, 3)), (0, 0), None);
    fill_levels(&mut state, &journal, sold, (2, 1_200_000), smallvec![used(61, 9, 7)]);
    while journal.segment() == Some(1) {
        let levels = smallvec![used(39, 5, 4), used(40, 2, 0)];
        fill_levels(&mut state, &journal, bought, (3, 1_200_000), levels);
    }
    take_snapshot(&folder, &journal);
    let other = place(&mut state, &journal, (Side::Buy, terms(38, 5)), (1, 370_000), None);
    fill_levels(&mut state, &journal, other, (1, 380_000), smallvec![used(38, 3, 2)]);
    fill_levels(&mut state, &journal, bought, (1, 400_000), smallvec![used(39, 6, 4)]);
}

fn used(cents: i64, shown: i64, left: i64) -> UsedLevel {
    let [shown, left] = [shown, left].map(|shares| Shares::from_micros(shares * 1_000_000));
    UsedLevel { price: Price::from_micros(cents * 10_000), shown, left }
}

#[test]
fn displayed_sizes_that_orders_have_used_are_read() {
    check_read("used", &KINDS, "used");
}

#[test]
fn displayed_sizes_that_orders_have_used_written_today_read_the_same() {
    check_written("used", write_used, "used");
}
