//! A match of many orders takes several visits, each of bounded work.

use std::fmt::Write as _;

use paperbourse::engine::State;
use paperbourse::engine::command::{MatchOrders, OrderNames, Owner, PlaceOrder};
use paperbourse::engine::order::matching::ORDERS_PER_VISIT_MAX;
use paperbourse::engine::order::payload::NewOrder;
use paperbourse::ids::OutcomeIndex;
use paperbourse::market::book::{Level, Side};
use paperbourse::money::{Price, Shares};

use crate::resting_contradictions::apply;
use crate::script::check;
use crate::world::World;

/// The script of 40 accounts with five orders each, and what a match of the first of them says.
fn two_hundred_orders(price: &str) -> String {
    let mut script = "
        balance 100
        market M1 Yes No
    "
    .to_owned();
    for account in 1..=40 {
        writeln!(script, "open A{account} -> opened").expect("a string grows");
    }
    for order in 1..=200 {
        let account = (order - 1) % 40 + 1;
        writeln!(script, "place A{account} M1 yes buy limit 5 {price} -> pending O{order}")
            .expect("a string grows");
    }
    script
}

/// Each account's orders share what is displayed, and no order is passed over between the visits.
#[test]
fn a_match_of_many_orders_takes_several_visits() {
    let mut script = two_hundred_orders("0.5");
    script = script.replace("market M1 Yes No", "market M1 Yes No\nbook M1 yes asks 0.9x1");
    let fills = |first: u32, last: u32, shares: &str| {
        let fills = (first..=last).map(|order| format!("fill O{order}:{shares}:0"));
        fills.collect::<Vec<_>>().join(" ")
    };
    // Two orders and a half of each account.
    let (whole, half) = (fills(1, 80, "5:2.5"), fills(81, 120, "2.5:1.25"));
    writeln!(
        script,
        "book M1 yes asks 0.4x12.5\nmatch M1 -> {whole} {half}\nmatch M1 -> already\n\
         book M1 yes asks 0.4x100\nmatch M1 -> {} {}\nmatch M1 -> already",
        fills(81, 120, "2.5:1.25"),
        fills(121, 200, "5:2.5"),
    )
    .expect("a string grows");
    check(&script);
}

/// Orders that waited for their book come first, with two facts each.
#[test]
fn admissions_and_fills_share_the_bound_of_a_visit() {
    for waiting in [31, 32, 33, 64, 200] {
        let mut script = "
            balance 100
            market M1 Yes No
            book M1 yes asks 0.9x1
            book M1 no asks 0.9x1
        "
        .to_owned();
        for account in 1..=3 {
            writeln!(
                script,
                "open A{account} -> opened\n\
                 place A{account} M1 yes buy limit 5 0.5 -> pending\n\
                 place A{account} M1 no buy limit 5 0.5 -> pending"
            )
            .expect("a string grows");
        }
        script += "book M1 yes asks 0.9x1 stale\nbalance 1000\nopen B2 -> opened\n";
        for _ in 0..waiting {
            script += "place B2 M1 yes buy limit 5 0.5 -> pending awaits YES\n";
        }
        let admitted: Vec<String> = (7..7 + waiting)
            .map(|order| format!("admitted O{order} fill O{order}:5:2.5:0"))
            .collect();
        writeln!(
            script,
            "book M1 yes asks 0.5x5\nbook M1 no asks 0.5x5\n\
             match M1 -> {} fill O1:5:2.5:0 O3:5:2.5:0 O5:5:2.5:0 O2:5:2.5:0 O4:5:2.5:0 O6:5:2.5:0",
            admitted.join(" ")
        )
        .expect("a string grows");
        check(&script);
    }
}

/// Orders that a book reaches but that may take nothing of it cost bounded work, too.
#[test]
fn a_visit_looks_at_a_bounded_number_of_orders() {
    let mut world = World::new();
    world.rules.open_orders_max = 3_000;
    world.list("M1", &["Yes", "No"]);
    let level = |size: i64| Level {
        price: Price::from_micros(400_000),
        size: Shares::from_micros(size * 1_000_000),
    };
    world.publish("M1", OutcomeIndex(0), vec![], vec![], false);
    let mut state = State::new(world.state.shard());
    let owner = Owner::Identity(World::identity("A1"));
    let count = 2 * ORDERS_PER_VISIT_MAX + 100;
    for _ in 0..count {
        let quantity = Shares::from_micros(5_000_000);
        let price = Price::from_micros(50_000);
        let order = NewOrder::limit("M1", "yes", Side::Buy, quantity, price);
        let placed = PlaceOrder::new(owner.clone(), order, OrderNames::default());
        apply(&mut state, &placed, &world).expect("it rests");
    }
    let cheap = |size: i64| Level { price: Price::from_micros(40_000), ..level(size) };
    world.publish("M1", OutcomeIndex(0), vec![], vec![cheap(7)], false);
    let mut visits = Vec::new();
    let mut after = None;
    loop {
        let command = MatchOrders { market_id: "M1".into(), book: None, after };
        let matched = apply(&mut state, &command, &world).expect("a match is not refused");
        visits.push(matched.fill_count);
        after = matched.next;
        if after.is_none() {
            break;
        }
    }
    // One order and two fifths of another one.
    assert_eq!(visits, [2, 0, 0]);
}
