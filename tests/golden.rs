//! Data that an earlier version wrote stays readable for ever.
//!
//! `tests/fixtures/golden/v1` is a data directory that version 1 of the format wrote, `v2` one of
//! version 2: records of every kind that the version had, a snapshot with its order file, an
//! archive, and the segment written last. Each is read, and its content as text is compared with a
//! snapshot from when it was made. A version that changes the format adds a directory and never
//! replaces one. So do new kinds of events: `v1_key_life` has those of renamed and rotated keys.
//! The folders that begin with `pages` hold the same in segments of version 2, where each block
//! has pages of its own. `resting` has orders that rest, and snapshots of version 3.
//! `held` has orders that are delayed, and `held_logged` an account that logs its fills from the
//! first of them on. `reset` has accounts that were reset, and snapshots of version
//! 4. `operators` has accounts that operators have acted on, and snapshots of version 5. `used` has
//! orders that have used displayed sizes, and snapshots of version 6. `wallets` has keys that were
//! granted to wallets, and snapshots of version 7. `undone` has fills that were undone, and
//! snapshots of version 8.
//!
//! `PAPERBOURSE_GOLDEN=DIR cargo test --test golden` writes new directories into an empty one.

#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

#[path = "golden/delayed.rs"]
mod delayed;
#[path = "golden/key_life.rs"]
mod key_life;
#[path = "golden/names.rs"]
mod names;
#[path = "golden/operators.rs"]
mod operators;
#[path = "golden/reset.rs"]
mod reset;
#[path = "golden/resting.rs"]
mod resting;
#[path = "golden/undone.rs"]
mod undone;
#[path = "golden/used.rs"]
mod used;
#[path = "golden/wallets.rs"]
mod wallets;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use names::without_delays;
use paperbourse::disk::Disk;
use paperbourse::engine::State;
use paperbourse::engine::account::extension::UsedLevel;
use paperbourse::engine::account::position::Position;
use paperbourse::engine::admin::standing::{Act, Operator};
use paperbourse::engine::command::Identity;
use paperbourse::engine::event::{
    AccountReset, Event, OperatorActed, OrderDelayed, OrderFilled, OrderPlaced, RestingFilled,
};
use paperbourse::engine::fills::fill::{Fill, Placement};
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::market::payout::{
    Decision, PaidPosition, Payouts, PositionsSettled, SettledMarket,
};
use paperbourse::engine::order::delay::Delay;
use paperbourse::engine::order::idempotency::{Fingerprint, NameHash};
use paperbourse::engine::order::receipt::OrderRow;
use paperbourse::engine::order::terms::{EndReason, OrderKind, Reserve, Terms, TimeInForce};
use paperbourse::engine::state::rows::AccountRow;
use paperbourse::engine::state::view::ROWS_PER_READ_MAX;
use paperbourse::ids::{
    AccountId, CommentId, KeyId, Lsn, MarketIndex, OrderId, OutcomeIndex, ShardId, Timestamp,
};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::journal::{Journal, JournalConfig, SegmentReader};
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Level, Side};
use paperbourse::money::{FeeRate, Notional, Price, Shares, Usd};
use paperbourse::snapshot::{self, Folder, Opened, SnapshotConfig, SnapshotKeeper};
use smallvec::{SmallVec, smallvec};
use tempfile::TempDir;

const SHARD: u8 = 5;
/// The market whose decision this shard keeps, and one that is settled after the snapshot.
const SETTLED: [&str; 2] = ["M123", "M131"];
/// The kinds of events that version 2 added, as `kind` names them.
const KINDS_OF_VERSION_2: [&str; 3] = ["market settled", "positions settled", "settlement decided"];
/// All kinds of events of the first version, as `kind` names them.
const KINDS: [&str; 10] = [
    "account opened",
    "comment added",
    "comment deleted",
    "key created",
    "key forgotten",
    "key revoked",
    "market introduced",
    "order filled",
    "order forgotten",
    "state checked",
];

/// The kinds of events in the life of renamed and rotated keys.
const KEY_LIFE_KINDS: [&str; 7] = [
    "account opened",
    "key created",
    "key expiry set",
    "key renamed",
    "key revoked",
    "market introduced",
    "state checked",
];

/// The kinds of events in the life of orders that rest.
const RESTING_KINDS: [&str; 9] = [
    "account opened",
    "heartbeat set",
    "key created",
    "market introduced",
    "order admitted",
    "order ended",
    "order placed",
    "resting filled",
    "state checked",
];

fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: 32 << 10,
        ring_bytes: 32 << 10,
        block_bytes_max: 8 << 10,
        record_bytes_max: 2 << 10,
        ..JournalConfig::default()
    }
}

fn kind(event: &Event) -> &'static str {
    match event {
        Event::AccountOpened { .. } => "account opened",
        Event::KeyCreated { .. } => "key created",
        Event::KeyRenamed { .. } => "key renamed",
        Event::KeyExpirySet { .. } => "key expiry set",
        Event::KeyRevoked { .. } => "key revoked",
        Event::KeyForgotten { .. } => "key forgotten",
        Event::MarketIntroduced { .. } => "market introduced",
        Event::OrderFilled(_) => "order filled",
        Event::OrderPlaced(_) => "order placed",
        Event::OrderDelayed(_) => "order held",
        Event::DelayedOrderDropped { .. } => "held order dropped",
        Event::OrderAdmitted { .. } => "order admitted",
        Event::RestingFilled(filled) if filled.used.is_empty() => "resting filled",
        Event::RestingFilled(_) => "resting filled of levels",
        Event::FillUndone(_) => "fill undone",
        Event::OrderEnded { .. } => "order ended",
        Event::AccountReset(_) => "account reset",
        Event::OperatorActed(_) => "operator acted",
        Event::HeartbeatSet { .. } => "heartbeat set",
        Event::FillLogBegun { .. } => "fill log begun",
        Event::OrderForgotten { .. } => "order forgotten",
        Event::CommentAdded { .. } => "comment added",
        Event::CommentDeleted { .. } => "comment deleted",
        Event::SettlementDecided { .. } => "settlement decided",
        Event::PositionsSettled(_) => "positions settled",
        Event::MarketSettled { .. } => "market settled",
        Event::StateChecked { .. } => "state checked",
    }
}

fn shard() -> ShardId {
    ShardId::new(SHARD).unwrap()
}

fn open(data: &Path) -> Opened {
    snapshot::open(Disk::System, data, &config(), NonZeroUsize::MIN).unwrap()
}

/// Records and applies events, and waits until they are on disk.
fn happen(state: &mut State, journal: &Journal, mut events: Vec<Event>) {
    events.insert(0, Event::StateChecked { hash: state.hash() });
    let header = RecordHeader {
        shard: shard(),
        epoch: journal.epoch(),
        sequence: state.sequence() + 1,
        at: at(i64::try_from(state.sequence()).unwrap()),
    };
    let mut bytes = Vec::new();
    record::encode(header, &events, &mut bytes);
    state.apply(&events, Lsn::START);
    let lsn = loop {
        match journal.reserve(bytes.len()) {
            Ok(reservation) => break reservation.fill_from(&bytes),
            Err(_) => std::thread::yield_now(),
        }
    };
    journal.wait_blocking(lsn);
}

/// Writes records of every kind, half of them before a snapshot and half after it.
fn write(data: &Path) {
    let Opened { journal, recovered, folder, .. } = open(data);
    let mut state = recovered.into_shards().swap_remove(usize::from(SHARD)).state;
    let journal = Arc::new(journal);
    happen(&mut state, &journal, opening());
    let mut order = 0;
    for half in 0..2 {
        order += 1;
        for events in settle(&state, half, order) {
            happen(&mut state, &journal, events);
        }
        let first = order;
        while order < first + 3 || journal.segment() == Some(1) {
            order += 1;
            let fill = Event::OrderFilled(Box::new(fill(&state, order, MarketIndex(0))));
            happen(&mut state, &journal, vec![fill]);
        }
        let comments = state.head().comments_ever;
        happen(&mut state, &journal, vec![comment(comments + 1, order)]);
        happen(&mut state, &journal, vec![comment(comments + 2, order)]);
        let deleted = CommentId::new(shard(), comments + 1).unwrap();
        happen(&mut state, &journal, vec![Event::CommentDeleted { comment: deleted }]);
        let forgotten = OrderId::new(shard(), half + 1).unwrap();
        happen(&mut state, &journal, vec![Event::OrderForgotten { order: forgotten }]);
        let key = KeyId::new(shard(), half + 1).unwrap();
        happen(&mut state, &journal, vec![Event::KeyRevoked { key, at: at(100) }]);
        happen(&mut state, &journal, vec![Event::KeyForgotten { key }]);
        if half == 0 {
            take_snapshot(&folder, &journal);
        }
    }
}

fn take_snapshot(folder: &Folder, journal: &Arc<Journal>) {
    let config = SnapshotConfig {
        journal_bytes: 1,
        interval: Duration::from_secs(1),
        cpu_percent: 100,
        archive_bytes: u64::MAX,
    };
    let keeper = SnapshotKeeper::start(folder.clone(), journal.clone(), config);
    while folder.archived_numbers().unwrap().is_empty() {
        std::thread::yield_now();
    }
    drop(keeper);
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(1_800_000_000 + second)
}

fn account() -> AccountId {
    AccountId::new(shard(), 1).unwrap()
}

fn opening() -> Vec<Event> {
    let mut digest = [0xd1; 32];
    digest[0] = SHARD;
    let identity = Identity { digest, issuer: "https://issuer".into(), subject: "älice".into() };
    let granted = Usd::from_micros(1_000_000_000);
    let mut events =
        vec![Event::AccountOpened { account: account(), identity, granted, at: at(0) }];
    for number in 1..=4 {
        let is_odd = number % 2 == 1;
        let grant = KeyGrant {
            hash: [u8::try_from(number).unwrap(); 32],
            prefix: format!("ps_live_{number:08x}").into(),
            name: is_odd.then(|| "bot".into()),
            tier: if is_odd { Tier::Free } else { Tier::Enterprise },
            permissions: if is_odd { Permissions::DEFAULT } else { Permissions::ALL },
            expires_at: (!is_odd).then(|| at(1_000_000)),
            wallet: None,
        };
        let key = KeyId::new(shard(), number).unwrap();
        let created_by = KeyId::new(shard(), number - 1);
        events.push(Event::KeyCreated { key, account: account(), grant, created_by, at: at(0) });
    }
    events.push(Event::MarketIntroduced {
        index: MarketIndex(0),
        condition_id: "0x5f65".into(),
        outcomes: vec![("Yes".into(), "7132".into()), ("No".into(), "9881".into())],
    });
    events
}

/// The records of a market that is bought and resolved.
fn settle(state: &State, half: u64, order: u64) -> Vec<Vec<Event>> {
    let market = MarketIndex(u32::try_from(half).unwrap() + 1);
    let condition_id: Arc<str> = SETTLED[market.0 as usize - 1].into();
    let tokens: [Arc<str>; 2] =
        ["Ja", "Nein"].map(|label| format!("{condition_id} {label}").into());
    let outcomes = vec![("Ja".into(), tokens[0].clone()), ("Nein".into(), tokens[1].clone())];
    let bought = fill(state, order, market);
    let shares = bought.fill.position_shares;
    let payouts: Payouts = if half == 0 {
        smallvec![Price::from_micros(500_000); 2]
    } else {
        smallvec![Price::ONE, Price::ZERO]
    };
    let payout = Notional::of(payouts[bought.placement.outcome.index()], shares).floor();
    let paid = PaidPosition {
        account: account(),
        outcome: bought.placement.outcome,
        shares,
        payout,
        balance: bought.fill.balance + payout,
    };
    let decision = Arc::new(Decision {
        condition_id: condition_id.clone(),
        payouts: tokens.into_iter().zip(payouts.iter().copied()).collect(),
        evidence: "gamma and clob say so ✓".into(),
    });
    let positions =
        PositionsSettled { market, payouts: payouts.clone(), positions: vec![paid], at: at(70) };
    vec![
        vec![
            Event::MarketIntroduced { index: market, condition_id, outcomes },
            Event::OrderFilled(Box::new(bought)),
        ],
        vec![Event::SettlementDecided { decision, at: at(69) }],
        vec![
            Event::PositionsSettled(Box::new(positions)),
            Event::MarketSettled { market, payouts, at: at(70) },
        ],
    ]
}

/// Buys two levels; every third order sells a part instead.
fn fill(state: &State, number: u64, market: MarketIndex) -> OrderFilled {
    let row = state.accounts().next().unwrap();
    let outcome = OutcomeIndex(u8::from(number.is_multiple_of(5)));
    let position = row.positions.iter();
    let mut position = position.filter(|it| it.market == market && it.outcome == outcome);
    let position = position.next().copied();
    let held = position.map_or(Shares::ZERO, |position| position.shares);
    let is_sale = number.is_multiple_of(3) && held > Shares::ZERO;
    let level = |cents: i64, micros: i64| Level {
        price: Price::from_micros(cents * 10_000),
        size: Shares::from_micros(micros),
    };
    let (side, levels, notional) = if is_sale {
        (Side::Sell, smallvec![level(50, 1_000_000)], 500_000)
    } else {
        (Side::Buy, smallvec![level(52, 1_000_000), level(53, 500_000)], 785_000)
    };
    let (quantity, notional): (Shares, _) =
        (levels.iter().map(|level: &Level| level.size).sum(), Usd::from_micros(notional));
    let fee = Usd::from_micros(12_340);
    let before = position.unwrap_or(Position::empty(market, outcome));
    let after = before.after_fill(side, quantity, notional).unwrap();
    let balance = row.ledger.after_fill(side, notional, fee).unwrap().cash();
    let name = |kind: &str| NameHash::of_order(&format!("{kind} {number}"));
    OrderFilled {
        placement: Placement {
            order: OrderId::new(shard(), number).unwrap(),
            account: account(),
            market,
            outcome,
            side,
            fingerprint: Fingerprint::from_bytes([u8::try_from(number).unwrap(); 16]),
            names: match number % 3 {
                0 => smallvec![],
                1 => smallvec![name("header")],
                _ => smallvec![name("header"), name("body")],
            },
            client_order_id: number.is_multiple_of(2).then(|| format!("body {number}").into()),
        },
        fill: Fill {
            quantity,
            notional,
            fee,
            fee_rate: FeeRate::from_micros(70_000),
            balance,
            position_shares: after.shares,
            position_cost: after.cost,
            at: at(10 + i64::try_from(number).unwrap()),
        },
        levels,
        book_sequence: number * 7,
        slippage_bps: (!number.is_multiple_of(4)).then_some(19),
    }
}

/// An event as text. Older snapshots show an order as one flat list of fields.
fn event_text(event: &Event) -> String {
    let Event::OrderFilled(filled) = event else { return without_delays(format!("{event:?}")) };
    let OrderFilled { placement, fill, levels, book_sequence, slippage_bps } = &**filled;
    let levels = format!("levels: {levels:?}, book_sequence: {book_sequence}");
    let order = order_text(["OrderFilled", "order"], placement, fill, &levels, *slippage_bps);
    format!("OrderFilled({order})")
}

fn order_text(
    [kind, id]: [&str; 2],
    placement: &Placement,
    fill: &Fill,
    levels: &str,
    slippage_bps: Option<u32>,
) -> String {
    let Placement { order, account, market, outcome, side, .. } = placement;
    let Placement { fingerprint, names, client_order_id, .. } = placement;
    let Fill { quantity, notional, fee, fee_rate, .. } = fill;
    let Fill { balance, position_shares, position_cost, at, .. } = fill;
    format!(
        "{kind} {{ {id}: {order:?}, account: {account:?}, market: {market:?}, \
         outcome: {outcome:?}, side: {side:?}, {levels}, quantity: {quantity:?}, \
         notional: {notional:?}, fee: {fee:?}, fee_rate: {fee_rate:?}, balance: {balance:?}, \
         position_shares: {position_shares:?}, position_cost: {position_cost:?}, \
         slippage_bps: {slippage_bps:?}, fingerprint: {fingerprint:?}, names: {names:?}, \
         client_order_id: {client_order_id:?}, at: {at:?} }}"
    )
}

fn comment(number: u64, order: u64) -> Event {
    Event::CommentAdded {
        comment: CommentId::new(shard(), number).unwrap(),
        order: OrderId::new(shard(), order).unwrap(),
        author: account(),
        content: format!("comment {number} ✓").into(),
        at: at(50),
    }
}

/// What a position says that no reset has closed; older snapshots predate it.
const NOT_RESET: &str = ", closed_by_reset: false";

/// The content of a data directory as text, and the kinds of its events.
fn content(data: &Path) -> (String, BTreeSet<&'static str>) {
    let mut text = String::new();
    let mut kinds = BTreeSet::new();
    let folder = Folder::new(Disk::System, data);
    let mut numbers = folder.archived_numbers().unwrap();
    numbers.extend(folder.segment_numbers().unwrap());
    let mut reader = SegmentReader::after(None);
    for number in numbers {
        let path = folder.segment_path(number).unwrap().unwrap();
        // Segments after the end are still empty.
        let Ok(batch) = reader.read_closed(&Disk::System, &path, number) else { continue };
        for (position, bytes) in batch.iter() {
            let (header, events) = record::decode(bytes).unwrap();
            writeln!(text, "record {position} of segment {number}: {header:?}").unwrap();
            for event in &events {
                kinds.insert(kind(event));
                writeln!(text, "  {}", event_text(event)).unwrap();
            }
        }
    }
    let Opened { recovered, report, .. } = open(data);
    writeln!(text, "snapshot: {:?}", report.snapshot).unwrap();
    let state = recovered.states().nth(usize::from(SHARD)).unwrap();
    writeln!(text, "{:?}\n{:?}", state.head(), state.markets()).unwrap();
    for row in state.accounts() {
        // The snapshots predate `reserved` and what follows `order_count_ever`, which are nothing
        // without open orders and resets.
        let account = format!("{row:?}").replace(", reserved: Usd(0)", "");
        let account = account
            .replace(", resets: None", "")
            .replace(", standing: None", "")
            .replace(NOT_RESET, "");
        let account = account.replace(", fill_surplus: 0, heartbeat_ms: None", "");
        writeln!(text, "{account}").unwrap();
        for order in state.orders_of(row.id) {
            let OrderRow { placement, fill, level_count, slippage_bps, order_state, delay: _ } =
                &order;
            let levels = format!("level_count: {level_count}");
            let order = order_text(["OrderRow", "id"], placement, fill, &levels, *slippage_bps);
            writeln!(text, "  {order}").unwrap();
            if let Some(order_state) = order_state {
                writeln!(text, "    {}", without_delays(format!("{order_state:?}"))).unwrap();
            }
        }
        if state.fill_logs().next().is_none() {
            check_fills(state, &row);
        }
    }
    for order in state.open_orders() {
        writeln!(text, "open {}", without_delays(format!("{order:?}"))).unwrap();
    }
    // Older snapshots lack what their journals tell.
    if kinds.contains("resting filled of levels") {
        for used in state.used_rows() {
            writeln!(text, "{used:?}").unwrap();
        }
    }
    state.undone_fills().for_each(|row| writeln!(text, "{row:?}").unwrap());
    for log in state.fill_logs() {
        writeln!(text, "{log:?}").unwrap();
    }
    for key in state.keys() {
        writeln!(text, "{}", without_delays(format!("{key:?}"))).unwrap();
    }
    for comment in state.comments() {
        writeln!(text, "{comment:?}").unwrap();
    }
    for (market, settled) in state.settled_markets() {
        let SettledMarket { payouts, is_paid, .. } = settled;
        writeln!(text, "{market:?} pays {payouts:?}, paid {is_paid}").unwrap();
    }
    for settlement in state.settlements() {
        writeln!(text, "{settlement:?}").unwrap();
    }
    for decided in state.decisions() {
        writeln!(text, "{:?} {:?}", decided.decision, decided.at).unwrap();
    }
    (text, kinds)
}

/// Each kept order is a fill, and has the number of the order.
fn check_fills(state: &State, account: &AccountRow<'_>) {
    let orders: Vec<OrderId> = state.orders_of(account.id).map(|row| row.placement.order).collect();
    let page = state.observe_fills(account.id, 0, usize::MAX).value.unwrap();
    let newest = account.order_count_ever;
    assert_eq!((page.oldest, page.newest), (newest + 1 - orders.len() as u64, newest));
    let numbered: Vec<_> = page.rows.iter().map(|row| (row.number, row.order)).collect();
    assert!((page.oldest..).zip(orders).take(ROWS_PER_READ_MAX).eq(numbered));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Reads the data of an earlier version.
#[track_caller]
fn check_read(name: &str, expected_kinds: &[&'static str], snapshot: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden").join(name);
    let folder = TempDir::new().unwrap();
    copy(&golden, folder.path());
    let (text, kinds) = content(folder.path());
    assert_eq!(kinds, expected_kinds.iter().copied().collect(), "other kinds of events");
    insta::assert_snapshot!(snapshot, text);
}

/// Data written today reads as the data written then.
#[track_caller]
fn check_written(name: &str, write: fn(&Path), snapshot: &str) {
    let folder = TempDir::new().unwrap();
    let chosen = std::env::var_os("PAPERBOURSE_GOLDEN");
    let data = chosen.as_deref().map_or(folder.path(), Path::new).join(name);
    write(&data);
    let (text, _) = content(&data);
    insta::assert_snapshot!(snapshot, text);
}

#[test]
fn data_of_version_1_is_read() {
    check_read("v1", &KINDS, "golden");
}

#[test]
fn data_of_version_2_is_read() {
    let kinds: Vec<_> = KINDS.into_iter().chain(KINDS_OF_VERSION_2).collect();
    check_read("v2", &kinds, "golden_2");
}

#[test]
fn data_written_on_pages_is_read() {
    let kinds: Vec<_> = KINDS.into_iter().chain(KINDS_OF_VERSION_2).collect();
    check_read("pages", &kinds, "golden_pages");
    check_read("pages_key_life", &KEY_LIFE_KINDS, "key_life_pages");
}

#[test]
fn data_written_today_reads_the_same() {
    check_written("pages", write, "golden_pages");
}

#[test]
fn the_life_of_keys_is_read() {
    check_read("v1_key_life", &KEY_LIFE_KINDS, "key_life");
}

#[test]
fn the_life_of_keys_written_today_reads_the_same() {
    check_written("pages_key_life", key_life::write_key_life, "key_life_pages");
}

#[test]
fn orders_that_rest_are_read() {
    check_read("resting", &RESTING_KINDS, "resting");
}

#[test]
fn orders_that_rest_written_today_read_the_same() {
    check_written("resting", resting::write_resting, "resting");
}
