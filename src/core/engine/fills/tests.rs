use std::collections::VecDeque;

use super::*;
use crate::engine::account::ledger::Ledger;
use crate::engine::command::{
    CancelOrder, Identity, MatchOrders, OrderNames, Owner, PlaceOrder, Trade, TradeOrder,
};
use crate::engine::event::Events;
use crate::engine::fills::turnover::Turnover;
use crate::engine::fills::undo::UndoFill;
use crate::engine::fills::undone::{UNDONE_FILLS_MAX, UndoFlaw};
use crate::engine::order::payload::NewOrder;
use crate::engine::rejection::Rejection;
use crate::engine::state::restore::{RestoreError, Restorer};
use crate::engine::state::rows::AccountRow;
use crate::engine::{Command, Rules, Verdict};
use crate::ids::{MarketIndex, OutcomeIndex, ShardId, Timestamp};
use crate::market::book::{Book, Ladder, Level};
use crate::market::catalogue::{MarketInfo, Outcome};
use crate::market::quote::Quote;
use crate::money::{Price, Shares, Usd};

const MARKET: &str = "0xa";

/// A shard with one account and one market, and every record that it wrote.
pub(in crate::engine) struct World {
    pub(in crate::engine) state: State,
    rules: Rules,
    pub(in crate::engine) records: Vec<Events>,
    /// The price of the only ask, in cents.
    ask: i64,
    /// The market of the next orders.
    market: &'static str,
}

/// A fill's number, order and part, and its quantity in shares.
type Short = (u64, u64, u32, i64);

fn shard() -> ShardId {
    ShardId::new(0).unwrap()
}

pub(in crate::engine) fn account() -> AccountId {
    AccountId::new(shard(), 1).unwrap()
}

fn owner() -> Owner {
    Owner::Identity(Identity { digest: [0; 32], issuer: "i".into(), subject: "s".into() })
}

fn shares(count: i64) -> Shares {
    Shares::from_micros(count * 1_000_000)
}

impl World {
    pub(in crate::engine) fn new(kept_orders_max: u32) -> Self {
        let rules = Rules { kept_orders_max, ..Rules::default() };
        Self { state: State::new(shard()), rules, records: Vec::new(), ask: 50, market: MARKET }
    }

    /// Runs a command against a book that asks for `self.ask` cents, pays 1 cent, and has 10 shares
    /// on each side.
    #[track_caller]
    pub(in crate::engine) fn run(&mut self, command: &impl Command) {
        let outcomes =
            ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
        let info = MarketInfo::bare(self.market, outcomes);
        let ask = Level { price: Price::from_micros(self.ask * 10_000), size: shares(10) };
        let bid = Level { price: Price::from_micros(10_000), size: shares(10) };
        let ladder = Ladder::from_levels(vec![bid], vec![ask]).unwrap();
        let book = Book::new(ladder, Timestamp::EPOCH);
        let quote = Quote::new(&info, [Some(&book), None]);
        let now = Timestamp::from_seconds(i64::try_from(self.records.len()).unwrap());
        let verdict = self.state.decide(command, Some(&quote), now, &self.rules);
        let Ok(Verdict::Happens(events, _)) = verdict else { panic!("no events") };
        self.records.push(events.clone());
        self.state.apply(&events, Lsn::new(0, self.records.len() as u64));
    }

    #[track_caller]
    pub(in crate::engine) fn trade(&mut self, count: i64) {
        self.trade_on(Side::Buy, count);
    }

    #[track_caller]
    fn trade_on(&mut self, side: Side, count: i64) {
        let order = TradeOrder {
            market_id: self.market.into(),
            outcome: "Yes".into(),
            side,
            quantity: shares(count),
            expected_price: None,
            max_slippage_bps: None,
        };
        self.run(&Trade::new(owner(), order, OrderNames::default()));
    }

    /// Places a purchase at this limit and returns its id.
    #[track_caller]
    pub(in crate::engine) fn place(&mut self, count: i64, limit: i64) -> OrderId {
        let price = Price::from_micros(limit * 10_000);
        let order = NewOrder::limit(MARKET, "Yes", Side::Buy, shares(count), price);
        let names = OrderNames::new([], Some("mine".into()));
        self.run(&PlaceOrder::new(owner(), order, names));
        OrderId::new(shard(), self.state.orders_ever).unwrap()
    }

    /// Matches the open orders with a book that asks for this price.
    #[track_caller]
    pub(in crate::engine) fn match_at(&mut self, ask: i64) {
        self.ask = ask;
        self.run(&MatchOrders { market_id: MARKET.into(), book: None, after: None });
    }

    /// The numbers of the oldest and the newest fill, and the fills after this number.
    fn page(&self, after: u64) -> (u64, u64, Vec<Short>) {
        let observed = self.state.observe_fills(account(), after, 1_000);
        assert_eq!(observed.lsn, Lsn::new(0, self.records.len() as u64));
        let FillPage { oldest, newest, rows } = observed.value.unwrap();
        let short = |row: &FillRow| {
            (row.number, row.order.counter(), row.part, row.fill.quantity.micros() / 1_000_000)
        };
        (oldest, newest, rows.iter().map(short).collect())
    }

    fn restored(&self) -> Result<State, RestoreError> {
        restored(&self.state, |_, _| {})
    }

    /// Checks that the state is the same after a replay and after a restore.
    #[track_caller]
    fn check(&self) {
        let mut replayed = State::new(shard());
        for (lsn, events) in (1..).zip(&self.records) {
            replayed.replay(events, Lsn::new(0, lsn)).unwrap();
        }
        assert!(replayed == self.state, "the replay differs");
        let restored = self.restored().unwrap();
        assert!(restored == self.state, "the restored state differs");
        let page = |state: &State| state.observe_fills(account(), 0, 1_000).value;
        assert_eq!(page(&restored), page(&self.state));
    }
}

/// The state made from the rows of this one, after `change` of its log.
fn restored(
    state: &State,
    change: impl Fn(&mut u64, &mut VecDeque<LoggedFill>),
) -> Result<State, RestoreError> {
    let mut restorer = Restorer::new(state.head());
    state.markets().iter().cloned().try_for_each(|market| restorer.market(market))?;
    for account in state.accounts() {
        // What is reserved follows from the open orders.
        let ledger = Ledger { reserved: Usd::ZERO, ..account.ledger };
        restorer.account(AccountRow { ledger, ..account })?;
    }
    state.orders_of(account()).try_for_each(|order| restorer.order(order))?;
    state.open_orders().try_for_each(|order| restorer.open_order(order))?;
    for FillLogRow { account, mut began_after, fills } in state.fill_logs() {
        let mut fills = fills.clone();
        change(&mut began_after, &mut fills);
        restorer.fill_log(account, began_after, fills)?;
    }
    state.used_rows().try_for_each(|row| restorer.used(row))?;
    state.undone_fills().try_for_each(|row| restorer.undone_fill(row))?;
    restorer.finish()
}

/// Three market orders, an order of which 10 shares fill at once and 5 later, two market orders
/// after it, an order of which a part fills later, and two orders that end without a fill.
pub(in crate::engine) fn mixed(kept_orders_max: u32) -> World {
    let mut world = World::new(kept_orders_max);
    (1..=3).for_each(|count| world.trade(count));
    world.place(15, 50);
    let unfilled = [world.place(5, 10), world.place(5, 10)];
    world.trade(4);
    let cancel = |order| CancelOrder { account: account(), order };
    world.run(&cancel(unfilled[1]));
    world.place(6, 45);
    world.match_at(45);
    world.run(&cancel(unfilled[0]));
    world.trade(5);
    world
}

#[test]
fn market_orders_are_fills_of_their_own() {
    let mut world = World::new(3);
    assert_eq!(world.state.observe_fills(account(), 0, 9).value, None);
    for count in 1..=5 {
        world.trade(count);
    }
    assert_eq!(world.page(0), (3, 5, vec![(3, 3, 1, 3), (4, 4, 1, 4), (5, 5, 1, 5)]));
    assert_eq!(world.page(4), (3, 5, vec![(5, 5, 1, 5)]));
    assert_eq!(world.page(5), (3, 5, vec![]));
    assert_eq!(world.page(u64::MAX), (3, 5, vec![]));
    assert_eq!(world.state.fill_logs().count(), 0, "they need no log");
    world.check();
}

#[test]
fn fills_are_numbered_in_the_order_in_which_they_happened() {
    let world = mixed(100);
    let expected = vec![
        (1, 1, 1, 1),
        (2, 2, 1, 2),
        (3, 3, 1, 3),
        (4, 4, 1, 10),
        (5, 7, 1, 4),
        (6, 4, 2, 5),
        (7, 8, 1, 5),
        (8, 9, 1, 5),
    ];
    assert_eq!(world.page(0), (1, 8, expected.clone()));
    for after in 0..=8 {
        assert_eq!(world.page(after as u64).2, expected[after..]);
    }
    let rows = world.state.observe_fills(account(), 3, 2).value.unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].client_order_id.as_deref(), Some("mine"));
    assert_eq!((&*rows[0].market_id, &*rows[0].outcome), (MARKET, "Yes"));
    world.check();
}

/// Numbers do not change when orders are forgotten, and a logged fill outlives its order.
#[test]
fn a_forgotten_order_takes_only_the_fill_that_it_was() {
    let world = mixed(3);
    let (oldest, newest, rows) = world.page(0);
    let of_all = mixed(100).page(0).2;
    assert_eq!((oldest, newest), (4, 8));
    assert_eq!(rows, of_all[3..]);
    let rows = world.state.observe_fills(account(), 0, 9).value.unwrap().rows;
    let is_forgotten = |row: &FillRow| world.state.order(row.order).is_none();
    assert!(rows.iter().any(|row| is_forgotten(row) && row.client_order_id.is_none()));
    world.check();
}

#[test]
fn the_log_is_bounded() {
    let mut world = World::new(1_000);
    world.trade(1);
    world.place(5, 10);
    let most = LOGGED_FILLS_MAX.get() as u64;
    for number in 2..=most + 1 {
        assert_eq!(world.page(0).0, 1);
        world.trade(1);
        assert_eq!(world.page(number - 1).2, [(number, number + 1, 1, 1)]);
    }
    assert_eq!(world.page(0).0, 1, "the log is full and whole");
    world.trade(1);
    let (oldest, newest, rows) = world.page(0);
    // Fill 2 is forgotten. Fill 1, which precedes the log, would leave a hole.
    assert_eq!((oldest, newest), (3, most + 2));
    assert_eq!(rows.len() as u64, most);
    assert_eq!(rows.first().map(|row| row.0), Some(3));
    world.check();
}

#[test]
fn a_log_that_does_not_fit_its_account_is_refused() {
    let world = mixed(100);
    let flaw = |change: &dyn Fn(&mut u64, &mut VecDeque<LoggedFill>)| {
        restored(&world.state, change).err().map(|error| error.to_string())
    };
    let refused = |flaw: &str| Some(format!("log of account 64 {flaw}"));
    let miscounted = refused("has more or fewer fills than its account counts");
    assert_eq!(flaw(&|_, fills| fills.truncate(2)), miscounted);
    assert_eq!(flaw(&|_, fills| fills.push_back(fills[0])), miscounted);
    assert_eq!(flaw(&|began_after, _| *began_after += 1), miscounted);
    assert_eq!(flaw(&|began_after, _| *began_after = u64::MAX), miscounted);
    let market = MarketIndex(1);
    assert_eq!(flaw(&|_, fills| fills[0].market = market), refused("has a fill in no market"));
    let outcome = OutcomeIndex(2);
    assert_eq!(flaw(&|_, fills| fills[0].outcome = outcome), refused("has a fill in no market"));
    let order = OrderId::new(shard(), 99).unwrap();
    let stranger = refused("has a fill of an order that the shard has not given");
    assert_eq!(flaw(&|_, fills| fills[0].order = order), stranger);
    assert_eq!(flaw(&|_, fills| fills[0].part = 0), refused("has a fill of nothing"));
    // What the rows alone cannot tell, the hash does.
    let differs = |change: &dyn Fn(&mut VecDeque<LoggedFill>)| {
        let flaw = flaw(&|_, fills| change(fills));
        assert!(flaw.is_some_and(|flaw| flaw.starts_with("the rows hash to")));
    };
    differs(&|fills| fills.swap(0, 1));
    differs(&|fills| fills[0].side = Side::Sell);
    differs(&|fills| fills[0].part = 9);
    differs(&|fills| fills[0].fill.balance = Usd::ZERO);
}

/// A fill can be undone only while the account would remember that, so none is undone twice.
#[test]
fn undone_fills_are_bounded() {
    let mut world = World::new(1_000);
    let most = UNDONE_FILLS_MAX.get() as u64;
    let undo = |counter| {
        let order = OrderId::new(shard(), counter).unwrap();
        UndoFill { account: account(), order, part: 1 }
    };
    for number in 1..=3 * most {
        world.trade(1);
        // Keeps some of the fills that count.
        if !number.is_multiple_of(4) {
            world.run(&undo(number));
        }
    }
    let numbers: Vec<u64> = world.state.undone_fills().map(|row| row.number).collect();
    let expected = (1..=3 * most).filter(|number| !number.is_multiple_of(4));
    let expected: Vec<u64> = expected.collect();
    assert_eq!(numbers, expected[expected.len() - UNDONE_FILLS_MAX.get()..]);
    let at = Timestamp::from_seconds(1_000);
    for number in 1..=3 * most {
        let flaw = if number <= 2 * most {
            UndoFlaw::NotKept
        } else if number.is_multiple_of(4) {
            continue;
        } else {
            UndoFlaw::UndoneBefore
        };
        let verdict = world.state.decide(&undo(number), None, at, &world.rules);
        assert_eq!(verdict, Err(Rejection::FillNotUndone(flaw)), "{number}");
    }
    world.check();
    let mut footprint = world.state.footprint_from(0).0.accounts;
    world.trade(1);
    world.run(&undo(3 * most + 1));
    footprint = world.state.footprint_from(0).0.accounts - footprint;
    assert!(footprint < 64, "another undone fill takes no more memory");
}

/// Fills that match, newest first, by the numbers of all of them.
#[track_caller]
fn check_history(world: &World, filter: &FillFilter) {
    let all = world.state.observe_fills(account(), 0, 1_000).value.unwrap();
    let mut expected: Vec<FillRow> = all.rows;
    expected.retain(|row| {
        filter.market_id.as_deref().is_none_or(|id| id == &*row.market_id)
            && filter.side.is_none_or(|side| side == row.side)
            && filter.part_of.is_none_or(|part_of| part_of == (row.order, row.part))
            && filter.from.is_none_or(|from| from <= row.fill.at)
            && filter.to.is_none_or(|to| row.fill.at <= to)
            && filter.token_id.as_deref().is_none_or(|id| *id == *row.outcome)
    });
    expected.reverse();
    for skip in 0..=expected.len() + 1 {
        let (mut cursor, mut found) = (Some(FillCursor::newest(skip as u64)), Vec::new());
        while let Some(from) = cursor {
            let observed = world.state.observe_fill_history(account(), filter, from, 2);
            assert_eq!(observed.lsn, Lsn::new(0, world.records.len() as u64));
            let history = observed.value.unwrap();
            assert!(history.fills.len() <= 2);
            found.extend(history.fills);
            assert!(history.next.is_none_or(|next| next.before < from.before), "it stands still");
            cursor = history.next;
        }
        for fill in &found {
            let order = world.state.order(fill.row.order);
            assert_eq!(fill.placed_at, order.map(|order| world.state.receipt(order).fill.at));
        }
        let found: Vec<FillRow> = found.into_iter().map(|fill| fill.row).collect();
        assert_eq!(found, expected[skip.min(expected.len())..], "{filter:?} from {skip}");
    }
}

#[test]
fn a_history_is_every_fill_that_matches_newest_first() {
    let nobody = World::new(100).state;
    let newest = FillCursor::newest(0);
    let history = nobody.observe_fill_history(account(), &FillFilter::default(), newest, 9);
    assert_eq!(history.value, None);
    // With and without a log, and with forgotten orders.
    for (mut world, sold) in [(World::new(100), 2), (mixed(100), 3), (mixed(3), 1)] {
        world.trade(9);
        for number in 0..sold {
            world.trade_on(Side::Sell, number + 1);
            world.market = "0xb";
            world.trade(number + 1);
            world.market = MARKET;
        }
        for market_id in [None, Some(MARKET), Some("0xb"), Some("0xc")] {
            for side in [None, Some(Side::Buy), Some(Side::Sell)] {
                let market_id = market_id.map(Into::into);
                check_history(&world, &FillFilter { market_id, side, ..FillFilter::default() });
            }
        }
    }
    let mut world = World::new(1_000);
    world.place(5, 10);
    (0..LOGGED_FILLS_MAX.get() + 3).for_each(|_| world.trade(1));
    check_history(&world, &FillFilter::default());
    let all = world.state.observe_fills(account(), 0, 1_000).value.unwrap().rows;
    let (early, late) = (all[7].fill.at, all[12].fill.at);
    let filter = FillFilter::default();
    let token_id = Some("Yes".into());
    let part_of = Some((all[9].order, all[9].part));
    for filter in [
        FillFilter { side: Some(Side::Buy), ..filter.clone() },
        FillFilter { from: Some(late), ..filter.clone() },
        FillFilter { from: Some(early), to: Some(late), ..filter.clone() },
        FillFilter { from: Some(late.after_ms(60_000)), ..filter.clone() },
        FillFilter { part_of, ..filter.clone() },
        FillFilter { token_id, ..filter },
    ] {
        check_history(&world, &filter);
    }
}

#[test]
fn sums_over_all_reads_are_those_of_the_fills() {
    let mut world = World::new(1_000);
    for count in [5, 3, 7, 1, 2, 6, 4] {
        world.trade(count);
        world.ask += 1;
    }
    world.trade_on(Side::Sell, 9);
    world.market = "0xb";
    world.trade(2);
    let mut sums: Vec<Turnover> = Vec::new();
    let mut before = u64::MAX;
    let mut read_count = 0;
    loop {
        let page = world.state.observe_turnover(account(), before).value.unwrap();
        for row in page.rows {
            match sums.iter_mut().find(|sum| sum.market == row.market) {
                Some(sum) => sum.add(&row),
                None => sums.push(row),
            }
        }
        read_count += 1;
        let Some(next) = page.next else { break };
        before = next;
    }
    assert_eq!(read_count, 2, "of nine fills, with five to a read");
    sums.sort_by_key(|sum| sum.market.0);
    let mut fills = Vec::new();
    let mut next = Some(FillCursor::newest(0));
    while let Some(from) = next {
        let filter = FillFilter::default();
        let page = world.state.observe_fill_history(account(), &filter, from, 200).value.unwrap();
        fills.extend(page.fills);
        next = page.next;
    }
    for (sum, market_id) in sums.iter().zip([MARKET, "0xb"]) {
        let rows = fills.iter().map(|past| &past.row).filter(|row| *row.market_id == *market_id);
        let newest_at = rows.clone().next().unwrap().fill.at;
        let mut expected = Turnover::empty(sum.market, sum.outcome, newest_at);
        for row in rows {
            expected.fill_count += 1;
            expected.first_at = row.fill.at;
            if row.side == Side::Buy {
                expected.bought += row.fill.quantity;
                expected.bought_for += row.fill.notional;
            } else {
                expected.sold += row.fill.quantity;
                expected.sold_for += row.fill.notional;
            }
        }
        assert_eq!(*sum, expected);
    }
    assert_eq!(sums.iter().map(|sum| sum.fill_count).collect::<Vec<_>>(), [8, 1]);
    let tokens = world.state.observe_tokens(account(), 0).value.unwrap();
    assert_eq!(tokens.len(), 2);
    assert_eq!(*tokens[0].token_id, *"Yes");
    assert_eq!(tokens[0].opposite, Some(("No".into(), "No".into())));
}
