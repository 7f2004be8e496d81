//! What resolved markets pay and in which steps, and rows and records that cannot be a settlement.

use std::fmt::Write as _;
use std::sync::Arc;

use paperbourse::engine::command::{
    DecideSettlement, OrderNames, Owner, Settle, Trade, TradeOrder,
};
use paperbourse::engine::event::Event;
use paperbourse::engine::market::payout::{Decision, PositionsSettled};
use paperbourse::engine::market::settlement::POSITIONS_PER_RECORD_MAX;
use paperbourse::engine::{Command as _, Verdict};
use paperbourse::ids::{AccountId, Lsn, MarketIndex, OutcomeIndex};
use paperbourse::market::book::{Level, Side};
use paperbourse::money::{Price, Shares, Usd};

use crate::contradictions::{History, history, replay};
use crate::restore::Rows;
use crate::script::check;
use crate::world::World;

#[test]
fn every_position_is_paid_once_and_closed() {
    check(
        "
        balance 1000
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        open A1                 -> opened A1
        open A2                 -> opened A2
        open A3                 -> opened A3
        buy A1 M1 yes 10        -> filled cash 995
        buy A1 M1 no 4          -> filled cash 992.6
        buy A2 M1 no 3          -> filled cash 998.2
        # A position that was sold completely is paid nothing.
        buy A3 M1 yes 2         -> filled
        sell A3 M1 yes 2        -> filled cash 999.8
        settle M1 1 0           -> pays A1:0:10:10:1002.6 A1:1:4:0:1002.6 A2:1:3:0:998.2 settled
        settle M1 1 0           -> already
        # The first result stands.
        settle M1 0 1           -> already
        buy A1 M1 yes 1         -> MARKET_CLOSED resolved
        sell A1 M1 yes 1        -> MARKET_CLOSED resolved
        buy token:A9 M1 yes 1   -> MARKET_CLOSED resolved
        ",
    );
}

#[test]
fn a_half_is_rounded_down_to_a_micro_dollar() {
    check(
        "
        balance 1000
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        open A1                     -> opened A1
        open A2                     -> opened A2
        buy A1 M1 yes 2.000001      -> filled cash 998.999999
        buy A2 M1 no 0.000001       -> filled cash 999.999999
        settle M1 0.5 0.5 \
            -> pays A1:0:2.000001:1:999.999999 A2:1:0.000001:0:999.999999 settled
        ",
    );
}

#[test]
fn payouts_go_by_token_and_not_by_order() {
    check(
        "
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        open A1                         -> opened A1
        buy A1 M1 yes 10                -> filled cash 995
        settle M1 M1-No=0 M1-Yes=1      -> pays A1:0:10:10:1005 settled
        market M2 Yes No
        book M2 yes bids 0.4x100 asks 0.5x100
        buy A1 M2 yes 10                -> filled cash 1000
        settle M2 M2-No=0 other=1       -> MARKET_CHANGED
        settle M2 M2-No=0 M2-Yes=1 x=0  -> MARKET_CHANGED
        sell A1 M2 yes 10               -> filled
        ",
    );
}

#[test]
fn a_market_that_was_never_used_needs_no_settlement() {
    check(
        "
        market M1 Yes No
        open A1             -> opened A1
        settle M1 1 0       -> already
        settle M9 a=1 b=0   -> already
        ",
    );
}

#[test]
fn a_market_without_open_positions_is_settled_without_a_payment() {
    check(
        "
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        open A1             -> opened A1
        buy A1 M1 yes 1     -> filled
        sell A1 M1 yes 1    -> filled
        settle M1 1 0       -> settled
        buy A1 M1 yes 1     -> MARKET_CLOSED resolved
        ",
    );
}

#[test]
fn a_decision_is_made_once() {
    assert_eq!(Decision::home(HOME_MARKET), World::new().state.shard(), "another name is needed");
    check(&format!(
        "
        market {HOME_MARKET} Yes No
        decide M1 a=1 b=0           -> BROKEN is about a market of another shard
        decide {HOME_MARKET} 1 1    -> BROKEN does not pay one dollar for a share of each outcome
        decide {HOME_MARKET} 0 0    -> BROKEN does not pay one dollar for a share of each outcome
        decide {HOME_MARKET} 2 -1   -> BROKEN pays less than nothing or more than a dollar a share
        decide {HOME_MARKET} a=1    -> BROKEN is about too few or too many outcomes
        decide {HOME_MARKET} a=0.5 a=0.5 -> BROKEN names a token twice
        decide {HOME_MARKET} 1 0    -> decided
        decide {HOME_MARKET} 1 0    -> already
        decide {HOME_MARKET} 0 1    -> already
        "
    ));
}

/// A market whose decision this shard keeps.
const HOME_MARKET: &str = "M123";

/// With many accounts, each record pays a few of them; the first record ends trading.
#[test]
fn a_long_settlement_takes_several_records_without_orders_between() {
    let account_count = POSITIONS_PER_RECORD_MAX * 2 + 3;
    let mut script = "
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        "
    .to_owned();
    for number in 1..=account_count {
        writeln!(script, "open A{number} -> opened A{number}").unwrap();
        writeln!(script, "buy A{number} M1 yes 10 -> filled cash 995").unwrap();
    }
    writeln!(script, "settle M1 1 0 -> pays").unwrap();
    let last = POSITIONS_PER_RECORD_MAX;
    for number in [1, last, last + 1, account_count] {
        writeln!(script, "buy A{number} M1 yes 1 -> MARKET_CLOSED resolved").unwrap();
        writeln!(script, "sell A{number} M1 yes 10 -> MARKET_CLOSED resolved").unwrap();
    }
    // A settlement continues with the payouts it began with.
    writeln!(script, "settle M1 0 1 -> pays").unwrap();
    let third = format!(
        "pays A{}:0:10:10:1005 A{}:0:10:10:1005 A{account_count}:0:10:10:1005 settled",
        account_count - 2,
        account_count - 1
    );
    writeln!(script, "settle M1 1 0 -> {third}").unwrap();
    writeln!(script, "settle M1 1 0 -> already").unwrap();
    check(&script);
}

/// However often a position was closed before, and on states restored in between.
#[test]
fn a_position_that_was_opened_again_is_paid_once() {
    check(
        "
        balance 1000
        market M1 Yes No
        market M2 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        book M2 yes bids 0.4x100 asks 0.5x100
        open A1                 -> opened A1
        open A2                 -> opened A2
        # The one who is paid last opens first.
        buy A2 M1 yes 3         -> filled
        buy A2 M2 yes 3         -> filled
        buy A1 M1 yes 2         -> filled
        sell A1 M1 yes 2        -> filled
        buy A1 M1 no 1          -> filled
        sell A1 M1 no 1         -> filled
        sell A2 M1 yes 3        -> filled
        reset A2                -> reset A2 closed 1
        buy A1 M1 yes 2         -> filled cash 998.7
        buy A2 M1 yes 5         -> filled cash 997.5
        settle M1 1 0           -> pays A1:0:2:2:1000.7 A2:0:5:5:1002.5 settled
        settle M1 1 0           -> already
        settle M2 1 0           -> settled
        ",
    );
}

/// A market in which everybody buys ten shares of `yes`, the last accounts after ten of `no`.
fn half_paid(account_count: usize, with_both: usize) -> String {
    let first_with_both = account_count - with_both + 1;
    let accounts = (1..=account_count).map(|number| {
        let no = if number < first_with_both { "#" } else { "" };
        format!(
            "open A{number} -> opened A{number}
            {no} buy A{number} M1 no 10 -> filled
            buy A{number} M1 yes 10 -> filled
            "
        )
    });
    let market = "
        market M1 Yes No
        book M1 yes bids 0.4x100 asks 0.5x100
        book M1 no bids 0.4x100 asks 0.5x100
        ";
    [market.to_owned()].into_iter().chain(accounts).collect()
}

/// An account that is reset or erased while a market is being settled has nothing left to be paid,
/// whatever it bought first, before and after a restart.
#[test]
fn positions_closed_during_a_settlement_are_not_paid() {
    for restart in ["", "restart"] {
        let mut script = half_paid(POSITIONS_PER_RECORD_MAX + 3, 3);
        let [reset, erased, paid] = [1, 2, 3].map(|number| POSITIONS_PER_RECORD_MAX + number);
        writeln!(script, "settle M1 1 0 -> pays").unwrap();
        writeln!(script, "{restart}").unwrap();
        writeln!(script, "reset A{reset} -> reset A{reset} closed 2").unwrap();
        writeln!(script, "suspend A{erased} -> suspend").unwrap();
        writeln!(script, "erase A{erased} -> erase").unwrap();
        writeln!(script, "settle M1 1 0 -> pays A{paid}:0:10:10:1000 A{paid}:1:10:0:1000 settled")
            .unwrap();
        check(&script);
    }
}

/// A record of a settlement may end between the positions of one account.
#[test]
fn a_settlement_goes_on_after_a_restart() {
    let mut script = half_paid(2 * POSITIONS_PER_RECORD_MAX, 1);
    for _ in 0..2 {
        writeln!(script, "settle M1 1 0 -> pays").unwrap();
        writeln!(script, "restart").unwrap();
    }
    writeln!(script, "settle M1 1 0 -> pays A{}:1:10:0:1000 settled", 2 * POSITIONS_PER_RECORD_MAX)
        .unwrap();
    check(&script);
}

/// Two accounts held both outcomes of a settled market, and hold one of an open market. The shard
/// also keeps a decision.
fn world() -> World {
    let mut world = World::new();
    for id in ["M1", "M2", HOME_MARKET] {
        world.list(id, &["Yes", "No"]);
        let level = |micros| Level {
            price: Price::from_micros(micros),
            size: Shares::from_micros(1 << 40),
        };
        world.publish(id, OutcomeIndex(0), vec![level(400_000)], vec![level(500_000)], false);
    }
    for subject in ["A1", "A2"] {
        for (market_id, outcome, shares) in [("M1", "Yes", 3), ("M1", "No", 5), ("M2", "Yes", 7)] {
            let order = TradeOrder {
                market_id: market_id.into(),
                outcome: outcome.into(),
                side: Side::Buy,
                quantity: Shares::from_micros(shares * 1_000_000),
                expected_price: None,
                max_slippage_bps: None,
            };
            let owner = Owner::Identity(World::identity(subject));
            let trade = Trade::new(owner, order, OrderNames::default());
            world.run(&trade).expect("the order fills");
        }
    }
    let settled = world.run(&Settle(decision("M1"))).expect("the market settles");
    assert!(matches!(settled, Verdict::Happens(..)));
    world.run(&DecideSettlement(decision(HOME_MARKET))).expect("the decision is new");
    world
}

fn decision(market: &str) -> Arc<Decision> {
    let payouts = [("Yes", Price::ONE), ("No", Price::ZERO)]
        .map(|(label, price)| (token(market, label), price));
    let (condition_id, evidence) = (market.into(), "two say so".into());
    Arc::new(Decision { condition_id, payouts: payouts.into(), evidence })
}

fn token(market: &str, label: &str) -> Arc<str> {
    format!("{market}-{label}").into()
}

#[test]
fn the_ledger_is_conserved_and_the_rows_have_the_payouts() {
    let world = world();
    let rows = Rows::of(&world.state, &world.finished);
    for account in &rows.accounts {
        let ledger = account.ledger;
        assert_eq!(ledger.payouts, Usd::from_micros(3_000_000));
        let spent = Usd::from_micros(1_500_000 + 3_000_000 + 3_500_000);
        assert_eq!(ledger.cash(), ledger.granted - spent + ledger.payouts);
        let realised: Vec<i64> =
            account.positions.iter().map(|position| position.realised.micros()).collect();
        assert_eq!(realised, [1_500_000, -3_000_000, 0]);
        assert_eq!(account.positions.iter().filter(|position| position.is_open()).count(), 1);
    }
    assert_eq!(rows.settlements.len(), 4);
    assert!(!world.state.is_unsettled("M1"), "settled");
    assert!(world.state.is_unsettled("M2"), "open");
    assert!(!world.state.is_unsettled("M9"), "unknown");
}

/// An answer that depends on a settlement waits until the settlement is on disk.
#[test]
fn answers_depend_on_the_settlement() {
    let world = world();
    let stranger = |market: &str| {
        let order = TradeOrder {
            market_id: market.into(),
            outcome: "Yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(1),
            expected_price: None,
            max_slippage_bps: None,
        };
        let owner = Owner::Identity(World::identity("A9"));
        Trade::new(owner, order, OrderNames::default()).depends_on(&world.state)
    };
    // Six orders, then the settlement, then the decision about another market.
    let (settled, decided) = (Lsn::new(0, 7), Lsn::new(0, 8));
    for (market, expected) in [("M1", settled), ("M2", Lsn::START), ("M9", Lsn::START)] {
        assert_eq!(stranger(market), expected, "an order in {market}");
        assert_eq!(Settle(decision(market)).depends_on(&world.state), expected, "{market}");
    }
    for (market, expected) in [(HOME_MARKET, decided), ("M1", Lsn::START)] {
        assert_eq!(
            DecideSettlement(decision(market)).depends_on(&world.state),
            expected,
            "{market}"
        );
    }
}

#[track_caller]
fn check_rows(change: impl FnOnce(&mut Rows<'_>), expected: &str) {
    let world = world();
    let mut rows = Rows::of(&world.state, &world.finished);
    assert_eq!(Rows::of(&world.state, &world.finished).restore().as_ref(), Ok(&world.state));
    change(&mut rows);
    let error = rows.restore().expect_err(expected).to_string();
    assert!(error.contains(expected), "{error}, instead of: {expected}");
}

#[test]
fn inconsistent_settlement_rows_are_errors() {
    let strange = "is none of the markets, or pays what it cannot";
    check_rows(|rows| rows.settled[0].0 = MarketIndex(9), strange);
    check_rows(|rows| rows.settled[0].1.payouts.push(Price::ZERO), strange);
    check_rows(|rows| rows.settled[0].1.payouts[0] = Price::from_micros(1_000_001), strange);
    check_rows(|rows| rows.settled.push(rows.settled[0].clone()), "came before");
    check_rows(
        |rows| rows.settled[0].0 = MarketIndex(1),
        "has a position in a market that is paid",
    );
    check_rows(|rows| rows.settled[0].1.is_paid = false, "the head says");
    check_rows(|rows| rows.settled[0].1.payouts.swap(0, 1), "the head says");
    check_rows(|rows| rows.settled.clear(), "is of no position that was settled");
    check_rows(|rows| rows.settlements[0].1 = 2, "is of no position that was settled");
    check_rows(|rows| rows.settlements[0].1 = 9, "is of no position that was settled");
    check_rows(
        |rows| rows.settlements[0].0 = AccountId::from_raw(6_400).unwrap(),
        "is of no account",
    );
    check_rows(|rows| rows.settlements.push(rows.settlements[0]), "came before");
    check_rows(|rows| rows.settlements[0].2.payout += Usd::from_micros(1), "the head says");
    check_rows(|rows| rows.settlements[0].2.cost += Usd::from_micros(1), "the head says");
    check_rows(|rows| rows.settlements[0].2.shares += Shares::from_micros(1), "the head says");
    check_rows(|rows| rows.settlements[0].2.payout_per_share = Price::ZERO, "the head says");
    check_rows(|rows| rows.settlements.truncate(3), "the head says");
    check_rows(|rows| drop(rows.decisions.pop()), "the head says");
    check_rows(|rows| rows.decisions.push(rows.decisions[0].clone()), "was made before");
    let elsewhere = |rows: &mut Rows<'_>| rows.decisions[0].decision = decision("M1");
    check_rows(elsewhere, "is about a market of another shard");
}

#[track_caller]
fn check_history(change: impl FnOnce(&mut History), expected: &str) {
    let world = world();
    let mut history = history(&world.records);
    assert_eq!(replay(&history, world.state.shard()).as_ref(), Ok(&world.state));
    change(&mut history);
    let error = replay(&history, world.state.shard()).expect_err(expected).to_string();
    assert!(error.ends_with(expected), "{error}, instead of: {expected}");
}

#[track_caller]
fn check_settled(change: impl FnOnce(&mut PositionsSettled), expected: &str) {
    check_history(
        |history| {
            let paid = history.iter_mut().flatten().find_map(|event| match event {
                Event::PositionsSettled(settled) => Some(settled),
                _ => None,
            });
            change(paid.expect("a settlement"));
        },
        expected,
    );
}

#[test]
fn contradictory_settlement_records_are_refused() {
    let one = Usd::from_micros(1);
    let nobody = AccountId::from_raw(6_405).expect("an id");
    check_settled(
        |it| it.positions[0].balance += one,
        "account 69 is paid without conserving money",
    );
    check_settled(
        |it| {
            for paid in &mut it.positions[..2] {
                paid.balance += one;
            }
            it.positions[0].payout += one;
        },
        "account 69 is paid something else than its shares pay",
    );
    check_settled(
        |it| it.positions[0].shares += Shares::from_micros(1),
        "account 69 is paid for other shares than it holds",
    );
    check_settled(|it| it.positions[0].account = nobody, "account 6405 is not there to be paid");
    let closed = "account 69 is paid for a position that is not open";
    check_settled(|it| it.positions[1] = it.positions[0], closed);
    check_settled(|it| it.positions[0].outcome = OutcomeIndex(7), closed);
    check_settled(|it| it.positions.truncate(3), "market 0 is paid, and somebody holds it");
    check_settled(|it| it.market = MarketIndex(8), "market 8 is settled and was never used");
    check_settled(
        |it| it.payouts.swap(0, 1),
        "account 69 is paid something else than its shares pay",
    );
    check_settled(
        |it| it.payouts.push(Price::ZERO),
        "market 0 is settled with payouts of other outcomes",
    );
    check_settled(
        |it| it.payouts[1] = Price::from_micros(-1),
        "market 0 pays less than nothing or more than a dollar a share",
    );
    let newest = |history: &History, is_it: fn(&Event) -> bool| {
        history.iter().flatten().rev().find(|event| is_it(event)).expect("such an event").clone()
    };
    let again = |history: &mut History| {
        let last = newest(history, |event| matches!(event, Event::MarketSettled { .. }));
        history.push(vec![last]);
    };
    check_history(again, "market 0 was settled before");
    check_history(
        |history| {
            let mut fill = newest(history, |event| matches!(event, Event::OrderFilled(_)));
            let Event::OrderFilled(filled) = &mut fill else { unreachable!() };
            filled.placement.market = MarketIndex(0);
            filled.placement.order =
                paperbourse::ids::OrderId::new(filled.placement.order.shard(), 7).expect("an id");
            history.push(vec![fill]);
        },
        "order 453 is in a settled market",
    );
    let decided = |history: &mut History| {
        let decided = newest(history, |event| matches!(event, Event::SettlementDecided { .. }));
        history.push(vec![decided]);
    };
    check_history(decided, "decision of shard 5 was made before");
}
