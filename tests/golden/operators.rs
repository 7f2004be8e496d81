//! Writes data with accounts that operators have acted on.

use super::resting::{limit, place};
use super::*;

/// The kinds of events of accounts that operators act on.
pub(super) const KINDS: [&str; 7] = [
    "account opened",
    "key created",
    "market introduced",
    "operator acted",
    "order ended",
    "order placed",
    "state checked",
];

/// Suspends and resumes an account with open orders, before and after a snapshot.
pub(super) fn write_acts(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    let terms = Terms { post_only: false, ..limit(40, 10, TimeInForce::GoodTilCancelled) };
    for half in 0..2 {
        place(&mut state, &journal, (Side::Buy, terms), (4, 1_560_000), None);
        act(&mut state, &journal, Act::Suspend, Some("deploy"));
        let amount = Usd::from_micros(70_000_000 + half);
        let token = [u8::try_from(half).unwrap(); 16];
        act(&mut state, &journal, Act::Deposit { amount, token }, None);
        act(&mut state, &journal, Act::Tier(Tier::ALL[usize::try_from(half).unwrap()]), None);
        if half == 0 {
            while journal.segment() == Some(1) {
                act(&mut state, &journal, Act::Resume, None);
                place(&mut state, &journal, (Side::Buy, terms), (10, 3_900_000), None);
                act(&mut state, &journal, Act::Suspend, Some("deploy"));
            }
            take_snapshot(&folder, &journal);
            act(&mut state, &journal, Act::Resume, None);
        }
    }
}

fn act(state: &mut State, journal: &Journal, act: Act, user: Option<&str>) {
    let by = Operator { uid: 1000, user: user.map(Into::into) };
    let reason = format!("{} ✓", act.as_str()).into();
    let acted = OperatorActed { account: account(), act, by, reason, at: at(60) };
    let ends = state.open_orders().map(|row| Event::OrderEnded {
        order: row.placement.order,
        reason: EndReason::Suspended,
        at: at(60),
    });
    let ends: Vec<_> = ends.collect();
    let events = [Event::OperatorActed(Box::new(acted))].into_iter().chain(ends).collect();
    happen(state, journal, events);
}

#[test]
fn accounts_that_operators_acted_on_are_read() {
    check_read("operators", &KINDS, "operators");
}

#[test]
fn accounts_that_operators_acted_on_written_today_read_the_same() {
    check_written("operators", write_acts, "operators");
}
