//! Writes data with fills that were undone.

use super::*;
use paperbourse::engine::fills::undo::UndoFill;
use paperbourse::engine::{Rules, Verdict};

/// The kinds of events in the life of an account whose fills are undone.
const KINDS: [&str; 6] = [
    "account opened",
    "fill undone",
    "key created",
    "market introduced",
    "order filled",
    "state checked",
];

/// Undoes fills before and after a snapshot.
pub(super) fn write_undone(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    let mut number = 0;
    while journal.segment() == Some(1) {
        number += 1;
        let filled = fill(&state, number, MarketIndex(0));
        happen(&mut state, &journal, vec![Event::OrderFilled(Box::new(filled))]);
        if matches!(number % 6, 0 | 4) {
            undo(&mut state, &journal, number);
        }
    }
    take_snapshot(&folder, &journal);
    for _ in 0..3 {
        number += 1;
        let filled = fill(&state, number, MarketIndex(0));
        happen(&mut state, &journal, vec![Event::OrderFilled(Box::new(filled))]);
    }
    undo(&mut state, &journal, number);
}

/// Undoes the fill of the order with this number.
fn undo(state: &mut State, journal: &Journal, number: u64) {
    let order = OrderId::new(shard(), number).unwrap();
    let command = UndoFill { account: account(), order, part: 1 };
    let verdict = state.decide(&command, None, at(90), &Rules::default());
    let Ok(Verdict::Happens(events, ())) = verdict else { panic!("{verdict:?}") };
    happen(state, journal, events.into_vec());
}

#[test]
fn fills_that_were_undone_are_read() {
    check_read("undone", &KINDS, "undone");
}

#[test]
fn fills_that_were_undone_written_today_read_the_same() {
    check_written("undone", write_undone, "undone");
}
