use super::*;
use crate::engine::command::CancelOrder;
use crate::engine::fills::tests::{World, account, mixed};
use crate::engine::fills::undo::UndoFill;
use crate::engine::order::terms::EndReason;

/// The news of the record with this number, according to a state after it.
fn news(world: &World, sequence: usize, is_followed: bool) -> Vec<News> {
    let events = world.records[sequence - 1].iter();
    let events = events.map(|event| (sequence as u64, event));
    let observed = world.state.observe_news(events, |it| is_followed && it == account());
    let news = observed.value;
    if news.iter().any(|(_, news)| matches!(news, News::Order(_))) {
        assert_eq!(observed.lsn, Lsn::new(0, world.records.len() as u64));
    }
    assert!(news.iter().all(|(number, _)| *number == sequence as u64));
    news.into_iter().map(|(_, news)| news).collect()
}

/// What the answer to a reader shows of an order: all but the numbers that only its own answer has.
fn shown(listed: &ListedOrder) -> ListedOrder {
    let mut listed = listed.clone();
    (listed.receipt.level_count, listed.receipt.slippage_bps) = (0, None);
    listed
}

/// Runs steps one after the other. Right after each, the news show its order like a read does;
/// later, they show the same.
#[track_caller]
fn check(mut world: World, steps: &[&dyn Fn(&mut World)]) -> Vec<OrderNews> {
    let mut all = Vec::new();
    for step in steps {
        step(&mut world);
        let sequence = world.records.len();
        let now = news(&world, sequence, true);
        for news in &now {
            let News::Order(news) = news else { panic!("{news:?}") };
            let order = news.listed.receipt.order;
            let read = world.state.observe_listed(account(), order).value.unwrap();
            assert_eq!(shown(&news.listed), shown(&read), "record {sequence}");
        }
        all.push((sequence, now));
    }
    for (sequence, then) in &all {
        assert_eq!(news(&world, *sequence, true), *then, "record {sequence}");
        assert_eq!(news(&world, *sequence, false), []);
    }
    let all = all.into_iter().flat_map(|(_, news)| news);
    all.map(|news| if let News::Order(news) = news { *news } else { unreachable!() }).collect()
}

#[test]
fn news_show_orders_as_they_were_however_late_they_are_read() {
    let place = |count, limit| {
        move |world: &mut World| {
            let _ = world.place(count, limit);
        }
    };
    let match_at = |ask| move |world: &mut World| world.match_at(ask);
    let (trade, two) = (|world: &mut World| world.trade(2), place(20, 45));
    let cancel = |world: &mut World| {
        let order = OrderId::new(account().shard(), 3).unwrap();
        world.run(&CancelOrder { account: account(), order });
    };
    let all = check(
        World::new(100),
        &[&trade, &place(15, 50), &two, &match_at(45), &match_at(44), &trade, &cancel, &trade],
    );
    let told: Vec<String> = all
        .iter()
        .map(|OrderNews { step, listed, fill, .. }| {
            let ListedOrder { receipt, .. } = listed;
            let state = receipt.order_state.as_ref();
            let filled = state.map_or(receipt.fill.quantity, |state| state.progress.filled);
            let part = fill.map(|fill| (fill.part, fill.fill.quantity.micros() / 1_000_000));
            let taker = fill.is_some_and(|fill| fill.is_taker);
            let end = state.and_then(|state| state.end).map(|end| end.reason);
            let end = end.map_or("-", EndReason::as_str);
            let filled = filled.micros() / 1_000_000;
            let number = receipt.order.counter();
            format!("{step:?} {number} filled={filled} part={part:?} taker={taker} end={end}")
        })
        .collect();
    insta::assert_snapshot!(told.join("\n"), @r"
    Placed 1 filled=2 part=Some((1, 2)) taker=true end=-
    Placed 2 filled=10 part=Some((1, 10)) taker=true end=-
    Placed 3 filled=0 part=None taker=false end=-
    Updated 2 filled=15 part=Some((2, 5)) taker=false end=-
    Updated 3 filled=5 part=Some((1, 5)) taker=false end=-
    Updated 3 filled=15 part=Some((2, 10)) taker=false end=-
    Placed 4 filled=2 part=Some((1, 2)) taker=true end=-
    Ended 3 filled=15 part=None taker=false end=user
    Placed 5 filled=2 part=Some((1, 2)) taker=true end=-
    ");
}

#[test]
fn news_of_an_undone_fill_show_the_fill_and_its_order() {
    let undo = |counter, part| {
        move |world: &mut World| {
            let order = OrderId::new(account().shard(), counter).unwrap();
            world.run(&UndoFill { account: account(), order, part });
        }
    };
    let rests = |world: &mut World| {
        let _ = world.place(15, 50);
    };
    let fills = |world: &mut World| world.match_at(45);
    let trade = |world: &mut World| world.trade(2);
    let all = check(World::new(100), &[&trade, &undo(1, 1), &rests, &fills, &undo(2, 2)]);
    let told: Vec<_> = all
        .iter()
        .map(|news| {
            let quantity = |fill: NewFill| fill.fill.quantity.micros() / 1_000_000;
            let fill = news.fill.map(|fill| (fill.part, quantity(fill), fill.is_taker));
            (news.step, news.listed.receipt.order.counter(), fill)
        })
        .collect();
    let (placed, undone) = (OrderStep::Placed, OrderStep::FillUndone);
    assert_eq!(told[0], (placed, 1, Some((1, 2, true))));
    assert_eq!(told[1], (undone, 1, Some((1, 2, true))));
    assert_eq!(told[4], (undone, 2, Some((2, 5, false))));
    // Seconds are the numbers of records.
    assert_eq!(all[4].at, Timestamp::from_seconds(4));
    assert!(all[4].fill.is_some_and(|fill| fill.fill.at < all[4].at));
}

/// Orders that are no longer kept are not passed over in silence.
#[test]
fn news_of_a_forgotten_order_are_lost() {
    let (whole, small) = (mixed(100), mixed(1));
    let count = |world: &World, is_lost: bool| {
        let records = 1..=world.records.len();
        let all = records.flat_map(|sequence| news(world, sequence, true));
        all.filter(|news| (*news == News::Lost) == is_lost).count()
    };
    assert_eq!(count(&whole, true), 0);
    assert!(count(&small, true) > 0);
    let of_both = |world| count(world, true) + count(world, false);
    assert_eq!(of_both(&whole), of_both(&small));
}
