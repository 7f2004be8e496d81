//! From a state to rows and back. [`World`] already runs every scenario on restored states; the
//! tests here restore rows that belong to no state.

use paperbourse::engine::account::ledger::Ledger;
use paperbourse::engine::command::{CreateKey, OrderNames, Owner, Trade, TradeOrder, WriteComment};
use paperbourse::engine::comment::{Comment, Written};
use paperbourse::engine::fills::log::FillLogRow;
use paperbourse::engine::fills::undone::UndoneRow;
use paperbourse::engine::key::{Key, KeyGrant, Permissions};
use paperbourse::engine::market::payout::{Decided, SettledMarket, Settlement};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::receipt::OrderRow;
use paperbourse::engine::state::hash::StateHash;
use paperbourse::engine::state::restore::{RestoreError, Restorer};
use paperbourse::engine::state::rows::{AccountRow, StateHead, UsedRow};
use paperbourse::engine::{State, UsedMarket};
use paperbourse::ids::{AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex, ShardId};
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Level, Side};
use paperbourse::money::{FeeRate, Price, Shares, Usd};

use crate::script::check as check_script;
use crate::script::world_after;
use crate::world::World;

/// The rows of a state.
#[derive(Clone)]
pub(crate) struct Rows<'a> {
    head: StateHead,
    markets: Vec<UsedMarket>,
    pub(crate) settled: Vec<(MarketIndex, SettledMarket)>,
    pub(crate) accounts: Vec<AccountRow<'a>>,
    keys: Vec<Key>,
    orders: Vec<OrderRow>,
    pub(crate) open: Vec<OrderRow>,
    comments: Vec<Comment>,
    pub(crate) settlements: Vec<(AccountId, u32, Settlement)>,
    pub(crate) decisions: Vec<Decided>,
    fill_logs: Vec<FillLogRow<'a>>,
    pub(crate) used: Vec<UsedRow>,
    pub(crate) undone: Vec<UndoneRow>,
}

impl<'a> Rows<'a> {
    /// The rows of a state; `finished` are all orders it ever had.
    pub(crate) fn of(state: &'a State, finished: &[OrderRow]) -> Self {
        Self {
            head: state.head(),
            markets: state.markets().to_vec(),
            settled: state.settled_markets().map(|(market, it)| (market, it.clone())).collect(),
            accounts: state.accounts().collect(),
            keys: state.keys().collect(),
            orders: finished.to_vec(),
            open: state.open_orders().collect(),
            comments: state.comments().cloned().collect(),
            settlements: state.settlements().map(|(id, at, it)| (id, at, *it)).collect(),
            decisions: state.decisions().cloned().collect(),
            fill_logs: state.fill_logs().collect(),
            used: state.used_rows().collect(),
            undone: state.undone_fills().collect(),
        }
    }

    pub(crate) fn finished_mut(&mut self) -> impl Iterator<Item = &mut OrderRow> {
        self.orders.iter_mut()
    }

    pub(crate) fn restore(self) -> Result<State, RestoreError> {
        let mut restorer = Restorer::new(self.head);
        self.markets.into_iter().try_for_each(|market| restorer.market(market))?;
        for (market, settled) in &self.settled {
            restorer.settled(*market, &settled.payouts, settled.is_paid)?;
        }
        self.accounts.into_iter().try_for_each(|account| restorer.account(account))?;
        self.keys.into_iter().try_for_each(|key| restorer.key(key))?;
        self.orders.into_iter().try_for_each(|order| restorer.order(order))?;
        self.open.into_iter().try_for_each(|order| restorer.open_order(order))?;
        self.comments.into_iter().try_for_each(|comment| restorer.comment(comment))?;
        for (account, position, settlement) in self.settlements {
            restorer.settlement(account, position, settlement)?;
        }
        for Decided { decision, at, .. } in self.decisions {
            restorer.decision(&decision, at)?;
        }
        for FillLogRow { account, began_after, fills } in self.fill_logs {
            restorer.fill_log(account, began_after, fills.clone())?;
        }
        self.used.into_iter().try_for_each(|row| restorer.used(row))?;
        self.undone.into_iter().try_for_each(|row| restorer.undone_fill(row))?;
        restorer.finish()
    }
}

fn level(cents: i64) -> Level {
    Level { price: Price::from_micros(cents * 10_000), size: Shares::from_micros(100_000_000) }
}

pub(crate) fn shard() -> ShardId {
    ShardId::new(5).expect("below the shard count")
}

fn other_shard() -> ShardId {
    ShardId::new(6).expect("below the shard count")
}

fn order_id(counter: u64) -> OrderId {
    OrderId::new(shard(), counter).expect("a small counter")
}

/// Two accounts. The first has forgotten order 1 and keeps 2 and 4, with a comment on each; the
/// second keeps 3. The first has a key, and another made with it.
pub(crate) fn world() -> World {
    let mut world = World::new();
    world.rules.kept_orders_max = 2;
    world.list("M1", &["Yes", "No"]);
    world.publish("M1", OutcomeIndex(0), vec![level(40)], vec![level(50)], false);
    for (subject, name) in [("A1", "a"), ("A1", "b"), ("A2", "c"), ("A1", "d")] {
        let command = Trade::new(
            Owner::Identity(World::identity(subject)),
            TradeOrder {
                market_id: "M1".into(),
                outcome: "Yes".into(),
                side: Side::Buy,
                quantity: Shares::from_micros(1_000_000),
                expected_price: None,
                max_slippage_bps: None,
            },
            OrderNames::new([NameHash::of_order(name)], Some(name.into())),
        );
        world.run(&command).expect("the order fills");
    }
    for maker in [None, KeyId::new(shard(), 1)] {
        let command = CreateKey {
            owner: Owner::Identity(World::identity("A1")),
            is_bootstrap: false,
            created_by: maker,
            grant: KeyGrant {
                hash: [7; 32],
                prefix: "ps_live_01234567".into(),
                name: Some("bot".into()),
                tier: Tier::Pro,
                permissions: Permissions::ALL,
                expires_at: None,
                wallet: None,
            },
        };
        world.run(&command).expect("the account may have another key");
    }
    for order in [2, 4] {
        let author = AccountId::new(other_shard(), 1).expect("a small counter");
        let command = WriteComment {
            order: order_id(order),
            author,
            content: "well done".into(),
            elsewhere: Written::default(),
        };
        world.run(&command).expect("the order exists");
    }
    world
}

#[test]
fn rows_of_a_state_restore_it() {
    let world = world();
    let rows = Rows::of(&world.state, &world.finished);
    assert_eq!(rows.orders.len(), 4, "the rows include the forgotten order");
    assert_eq!(rows.accounts[0].oldest_order, Some(order_id(2)));
    assert_eq!(rows.restore().as_ref(), Ok(&world.state));
}

#[track_caller]
fn check(change: impl FnOnce(&mut Rows<'_>), expected: &str) {
    check_changed_rows(&world(), change, expected);
}

/// Changes the rows of a world, and checks that no state is restored from them.
#[track_caller]
pub(crate) fn check_changed_rows(
    world: &World,
    change: impl FnOnce(&mut Rows<'_>),
    expected: &str,
) {
    let mut rows = Rows::of(&world.state, &world.finished);
    change(&mut rows);
    let restored = rows.restore();
    let error = restored.err().unwrap_or_else(|| panic!("restored, instead of: {expected}"));
    assert!(error.to_string().contains(expected), "{error}, instead of: {expected}");
}

#[test]
fn inconsistent_heads_and_markets_are_errors() {
    check(|rows| rows.head.hash = StateHash::from_u64(1), "the head says 0000000000000001");
    check(|rows| rows.head.accounts_ever = 3, "2 of 3 accounts");
    check(|rows| rows.head.accounts_ever = u64::MAX, "accounts");
    check(|rows| rows.head.keys_ever = 1, "is none that the shard has given");
    check(|rows| rows.head.orders_ever = 3, "is none that the shard has given");
    check(|rows| rows.head.comments_ever = 1, "is none that the shard has given");
    check(|rows| rows.head.shard = other_shard(), "is not the next one of the shard");
    check(|rows| rows.markets.push(rows.markets[0].clone()), "market 1 came before");
    check(|rows| rows.markets.clear(), "has a position in no market");
}

#[test]
fn inconsistent_accounts_are_errors() {
    check(|rows| rows.accounts.swap(0, 1), "is not the next one of the shard");
    check(|rows| rows.accounts.truncate(1), "order 197 is of no account");
    check(
        |rows| rows.accounts[1].identity = rows.accounts[0].identity,
        "has the identity of another one",
    );
    let far = Usd::from_micros(i64::MAX);
    check(
        |rows| rows.accounts[0].ledger = Ledger { granted: far, sales: far, ..Ledger::default() },
        "has sums out of range",
    );
    check(|rows| rows.accounts[0].ledger = Ledger { fees: far, ..Ledger::default() }, "has a debt");
    check(
        |rows| rows.accounts[0].ledger.granted = Usd::from_micros(2_000_000_000),
        "the head says",
    );
    check(|rows| rows.accounts[0].positions = &[], "the head says");
    check(|rows| rows.accounts[0].oldest_order = None, "is on no order");
    check(|rows| rows.accounts[0].order_count_ever = 0, "counts other orders than it keeps");
    check(|rows| rows.accounts[0].oldest_order = Some(order_id(3)), "is on no order");
    check(|rows| rows.accounts[0].oldest_order = Some(order_id(1)), "the head says");
    check(
        |rows| rows.accounts[0].order_count_ever = 1,
        "is one more than its account has finished",
    );
    for (change, expected) in [
        (0, "has two positions in one outcome"),
        (1, "has a position in no market"),
        (2, "has a position in no market"),
        (3, "has a position below zero"),
        (4, "has a position below zero"),
    ] {
        let world = world();
        let mut rows = Rows::of(&world.state, &world.finished);
        let mut positions = rows.accounts[0].positions.to_vec();
        match change {
            0 => positions.push(positions[0]),
            1 => positions[0].market = MarketIndex(u32::MAX),
            2 => positions[0].outcome = OutcomeIndex(2),
            3 => positions[0].shares = Shares::from_micros(-1),
            _ => positions[0].cost = Usd::from_micros(-1),
        }
        rows.accounts[0].positions = &positions;
        let error = rows.restore().expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}, instead of: {expected}");
    }
}

#[test]
fn inconsistent_keys_are_errors() {
    let of_no_account = "is of no account, or was made with a key of none";
    let nobody = AccountId::new(shard(), 1 << 40).expect("an id");
    let stranger = AccountId::new(other_shard(), 1).expect("an id");
    check(|rows| rows.keys.swap(0, 1), of_no_account);
    check(|rows| rows.keys[1].kept_maker = KeyId::new(shard(), 2), of_no_account);
    check(|rows| rows.keys[1].kept_maker = None, "the head says");
    check(|rows| rows.keys[1].created_by = None, "the head says");
    check(|rows| rows.keys[1] = rows.keys[0].clone(), "comes behind a newer one");
    check(|rows| rows.keys[0].account = nobody, of_no_account);
    check(|rows| rows.keys[0].account = stranger, of_no_account);
    check(|rows| rows.keys[1].account = rows.accounts[1].id, of_no_account);
    check(|rows| rows.keys[0].grant.prefix = "ps_live_012345678".into(), of_no_account);
    check(|rows| rows.keys[0].id = KeyId::new(other_shard(), 1).unwrap(), "the shard has given");
    check(|rows| drop(rows.keys.pop()), "the head says");
}

#[test]
fn inconsistent_orders_are_errors() {
    let nobody = AccountId::new(shard(), 1 << 40).expect("an id");
    let stranger = AccountId::new(other_shard(), 1).expect("an id");
    check(|rows| rows.orders.swap(1, 3), "is on no order");
    check(|rows| rows.orders.insert(2, rows.orders[1].clone()), "order 133 came before");
    check(|rows| drop(rows.orders.remove(1)), "is on no order");
    check(|rows| drop(rows.orders.remove(2)), "lacks the oldest order that it keeps");
    check(|rows| rows.orders[2].placement.order = order_id(9), "is none that the shard has given");
    check(|rows| rows.orders[1].placement.account = nobody, "is of no account");
    check(|rows| rows.orders[1].placement.account = stranger, "is of no account");
    check(|rows| rows.orders[1].placement.market = MarketIndex(1), "is in no market");
    check(|rows| rows.orders[1].placement.outcome = OutcomeIndex(2), "is in no market");
    check(|rows| rows.orders[1].fill.quantity = Shares::ZERO, "is for no shares");
    check(|rows| rows.orders[1].fill.fee_rate = FeeRate::from_micros(-1), "numbers out of range");
    check(
        |rows| rows.orders[1].fill.fee_rate = FeeRate::from_micros(1 << 32),
        "numbers out of range",
    );
    check(
        |rows| rows.orders[3].placement.names = rows.orders[1].placement.names.clone(),
        "has a name that is used",
    );
    check(
        |rows| rows.orders[1].placement.names.push(NameHash::of_order("b")),
        "has a name that is used",
    );
    check(
        |rows| rows.orders[1].placement.names.extend(["x", "y"].map(NameHash::of_order)),
        "numbers out of range",
    );
    check(|rows| rows.orders[1].placement.names.clear(), "the head says");
    check(|rows| rows.orders[1].placement.client_order_id = None, "the head says");
    check(|rows| rows.orders[1].slippage_bps = None, "the head says");
}

#[test]
fn inconsistent_comments_are_errors() {
    let id = |counter| CommentId::new(shard(), counter).expect("a small counter");
    check(|rows| rows.comments.swap(0, 1), "comes behind a newer one");
    check(|rows| rows.comments[1].id = rows.comments[0].id, "comes behind a newer one");
    check(|rows| rows.comments[1].id = id(3), "is none that the shard has given");
    check(|rows| rows.comments[0].order = order_id(1), "is on no order");
    check(|rows| rows.comments[0].content = "well".into(), "the head says");
    let crowd = |rows: &mut Rows<'_>| {
        rows.head.comments_ever = 1001;
        let one = rows.comments[0].clone();
        rows.comments =
            (1..=1001).map(|counter| Comment { id: id(counter), ..one.clone() }).collect();
    };
    check(crowd, "is one more than its order may have");
}

/// The other tests compare restored states with their originals.
#[test]
fn states_with_another_history_are_unequal() {
    let traded = "
        balance 100
        market M1 Yes No
        book M1 yes asks 0.5x10
        open A1                 -> opened A1
        buy A1 M1 yes 1         -> filled 1
        ";
    let state = |more: &str| world_after(&format!("{traded}{more}")).state;
    assert_eq!(state(""), state(""));
    let commented = "comment A1 O1 words     -> commented C1";
    assert_ne!(state(""), state(commented));
    // Nothing is left of the comment but the number of records.
    let deleted = "delete A1 C1            -> deleted C1";
    assert_ne!(state(""), state(&format!("{commented}\n{deleted}")));
}

/// The order that came to rest took the place of the only one that was kept.
#[test]
fn an_account_that_keeps_one_order_survives_a_restart_while_another_rests() {
    check_script(
        "
        balance 100
        rules orders 1
        market M1 Yes No
        book M1 yes bids 0.4x10 asks 0.5x4 0.6x100
        open A1                                 -> opened A1
        buy A1 M1 yes 4                         -> filled 4
        place A1 M1 yes buy limit 10 0.3        -> pending O2
        restart
        show A1 M1 yes                          -> has held 4 open O2:10
        cancel A1 O2                            -> ended O2 USER
        restart
        buy A1 M1 yes 1                         -> filled 1
        ",
    );
}
