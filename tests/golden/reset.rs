//! Writes data with accounts that were reset.

use super::delayed::{buy_at_any_price, delay};
use super::resting::{limit, place};
use super::*;

/// The kinds of events of accounts that are reset.
pub(super) const KINDS: [&str; 8] = [
    "account opened",
    "account reset",
    "key created",
    "market introduced",
    "order ended",
    "order held",
    "order placed",
    "state checked",
];

/// Resets an account with open orders, delayed ones and positions, before and after a snapshot.
pub(super) fn write_reset(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    let terms = Terms { post_only: false, ..limit(40, 10, TimeInForce::GoodTilCancelled) };
    for half in 0..2 {
        place(&mut state, &journal, (Side::Buy, terms), (4, 1_560_000), None);
        delay(&mut state, &journal, MarketIndex(0), buy_at_any_price());
        // The first balance is the one at the start, the second another one.
        reset(&mut state, &journal, Usd::from_micros(1_000_000_000 - half * 900_000_000));
        if half == 0 {
            let mut number = 0;
            while number < 2 || journal.segment() == Some(1) {
                number += 1;
                place(&mut state, &journal, (Side::Buy, terms), (10, 3_900_000), None);
                reset(&mut state, &journal, Usd::from_micros(1_000_000_000));
            }
            take_snapshot(&folder, &journal);
        }
    }
    // What was bought after the reset.
    place(&mut state, &journal, (Side::Buy, terms), (3, 1_170_000), None);
}

fn reset(state: &mut State, journal: &Journal, balance: Usd) {
    let row = state.accounts().next().unwrap();
    let open = row.positions.iter().filter(|position| position.is_open());
    let reset = AccountReset {
        account: account(),
        position_count: u32::try_from(open.clone().count()).unwrap(),
        cost: open.map(|position| position.cost).sum(),
        granted: balance - row.ledger.cash(),
        balance,
        at: at(60),
    };
    let ends = state.open_orders().map(|row| Event::OrderEnded {
        order: row.placement.order,
        reason: EndReason::Reset,
        at: at(60),
    });
    let events = ends.chain([Event::AccountReset(reset)]).collect();
    happen(state, journal, events);
}

#[test]
fn accounts_that_were_reset_are_read() {
    check_read("reset", &KINDS, "reset");
}

#[test]
fn accounts_that_were_reset_written_today_read_the_same() {
    check_written("reset", write_reset, "reset");
}
