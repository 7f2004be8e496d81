//! Snapshots on a real disk, folded from journals of real records and read back.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tempfile::TempDir;

use super::container::VERSION;
use super::keeper::Upkeep;
use super::pace::Pace;
use super::*;
use crate::disk::Disk;
use crate::journal::record::{self, RecordHeader};
use crate::journal::{Journal, JournalConfig, Refused};
use paperbourse_core::engine::account::extension::UsedLevel;
use paperbourse_core::engine::command::Identity;
use paperbourse_core::engine::event::{Event, OrderFilled, OrderPlaced, RestingFilled};
use paperbourse_core::engine::fills::fill::{Fill, Placement};
use paperbourse_core::engine::key::{KeyGrant, Permissions, WalletGrant};
use paperbourse_core::engine::order::idempotency::{Fingerprint, NameHash};
use paperbourse_core::engine::order::terms::{EndReason, OrderKind, Terms, TimeInForce};
use paperbourse_core::ids::{
    AccountId, CommentId, KeyId, Lsn, MarketIndex, OrderId, OutcomeIndex, SHARD_COUNT, ShardId,
    Timestamp,
};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::market::book::{Level, Side};
use paperbourse_core::money::{FeeRate, Price, Shares, Usd};

mod keeping;
mod reading_ahead;
mod recovering;

/// Segments hold about a hundred records.
const SEGMENT_BYTES: u64 = 384 << 10;

fn config() -> JournalConfig {
    JournalConfig {
        segment_bytes: SEGMENT_BYTES,
        ring_bytes: 32 << 10,
        block_bytes_max: 16 << 10,
        record_bytes_max: 4 << 10,
        on_lost: Arc::new(|error| panic!("{error}")),
        ..JournalConfig::default()
    }
}

/// A pace that never waits and never stops.
struct AtOnce;

impl Pace for AtOnce {
    fn step(&mut self) -> Result<(), Stopped> {
        Ok(())
    }
}

/// A server without a network: shards that trade, and the journal they write to.
struct World {
    data: TempDir,
    journal: Journal,
    folder: Folder,
    shards: Vec<ShardState>,
    report: RecoverReport,
    /// Counts the actions, so that no two are alike.
    turn: u64,
}

impl World {
    fn new() -> Self {
        Self::open(TempDir::new().unwrap(), 0)
    }

    fn open(data: TempDir, turn: u64) -> Self {
        Self::try_open(&data, 2).map(|opened| Self::of(opened, data, turn)).unwrap()
    }

    fn try_open(data: &TempDir, thread_count: usize) -> Result<Opened, RecoverError> {
        open(Disk::System, data.path(), &config(), thread_count.try_into().unwrap())
    }

    fn of(opened: Opened, data: TempDir, turn: u64) -> Self {
        let Opened { journal, recovered, report, folder, .. } = opened;
        Self { data, journal, folder, shards: recovered.into_shards(), report, turn }
    }

    /// Closes everything, reopens it and checks that the state is the same.
    fn reopened(self) -> Self {
        let Self { data, journal, shards, turn, .. } = self;
        drop(journal);
        let again = Self::open(data, turn);
        for (before, after) in shards.iter().zip(&again.shards) {
            assert!(before.state == after.state, "shard {:?} differs", before.state.shard());
            assert_eq!(before.state.hash(), after.state.hash());
            assert_eq!(before.decided_at, after.decided_at);
        }
        again
    }

    /// Records events of a shard and waits until they are durable.
    fn happen(&mut self, shard: ShardId, events: &[Event]) {
        let folded = &mut self.shards[shard.index()];
        let mut events = SmallVec::<[Event; 4]>::from(events);
        if folded.state.sequence().is_multiple_of(8) {
            events.insert(0, Event::StateChecked { hash: folded.state.hash() });
        }
        folded.epoch = self.journal.epoch();
        folded.decided_at = at(self.turn);
        let header = RecordHeader {
            shard,
            epoch: folded.epoch,
            sequence: folded.state.sequence() + 1,
            at: folded.decided_at,
        };
        let mut bytes = Vec::new();
        record::encode(header, &events, &mut bytes);
        folded.state.apply(&events, Lsn::START);
        let lsn = loop {
            match self.journal.reserve(bytes.len()) {
                Ok(reservation) => break reservation.fill_from(&bytes),
                Err(Refused::Busy | Refused::Full) => std::thread::yield_now(),
            }
        };
        self.journal.wait_blocking(lsn);
        self.turn += 1;
    }

    /// Opens an account with a key in the given shard.
    fn open_account(&mut self, shard: ShardId) -> AccountId {
        let state = &self.shards[shard.index()].state;
        let account = AccountId::new(shard, state.head().accounts_ever + 1).unwrap();
        let key = KeyId::new(shard, state.head().keys_ever + 1).unwrap();
        let mut digest = [7; 32];
        digest[0] = shard.get();
        digest[8..16].copy_from_slice(&self.turn.to_le_bytes());
        let at = at(self.turn);
        let subject = format!("user {}", self.turn).into();
        let wallet = WalletGrant { address: [7; 20], nonce: self.turn };
        let grant = KeyGrant {
            hash: digest,
            prefix: "ps_live_01234567".into(),
            name: Some("bot".into()),
            tier: Tier::Pro,
            permissions: Permissions::DEFAULT,
            expires_at: None,
            wallet: self.turn.is_multiple_of(2).then_some(wallet),
        };
        let identity = Identity { digest, issuer: "paperbourse".into(), subject };
        let granted = Usd::from_micros(1_000_000_000);
        self.happen(
            shard,
            &[
                Event::AccountOpened { account, identity, granted, at },
                Event::KeyCreated { key, account, grant, created_by: None, at },
            ],
        );
        account
    }

    /// Buys one share for a cent.
    fn buy(&mut self, account: AccountId) -> OrderId {
        let shard = account.shard();
        let state = &self.shards[shard.index()].state;
        let order = OrderId::new(shard, state.head().orders_ever + 1).unwrap();
        let mut events: SmallVec<[Event; 4]> = smallvec![];
        if state.markets().is_empty() {
            events.push(Event::MarketIntroduced {
                index: MarketIndex(0),
                condition_id: "0x01".into(),
                outcomes: vec![("Yes".into(), "1".into()), ("No".into(), "2".into())],
            });
        }
        let cent = Usd::from_micros(10_000);
        let (cash, shares, cost) = self.holdings(account);
        events.push(Event::OrderFilled(Box::new(OrderFilled {
            placement: Placement {
                order,
                account,
                market: MarketIndex(0),
                outcome: OutcomeIndex(0),
                side: Side::Buy,
                fingerprint: Fingerprint::from_bytes([9; 16]),
                names: smallvec![NameHash::of_order(&format!("order {}", self.turn))],
                client_order_id: self
                    .turn
                    .is_multiple_of(3)
                    .then(|| format!("client {}", self.turn).into()),
            },
            fill: Fill {
                quantity: Shares::from_micros(1_000_000),
                notional: cent,
                fee: Usd::ZERO,
                fee_rate: FeeRate::ZERO,
                balance: cash - cent,
                position_shares: shares + Shares::from_micros(1_000_000),
                position_cost: cost + cent,
                at: at(self.turn),
            },
            levels: smallvec![Level {
                price: Price::from_micros(10_000),
                size: Shares::from_micros(1_000_000)
            }],
            book_sequence: self.turn,
            slippage_bps: self.turn.is_multiple_of(2).then_some(3),
        })));
        self.happen(shard, &events);
        order
    }

    /// The account's cash, and the shares and cost of its position.
    fn holdings(&self, account: AccountId) -> (Usd, Shares, Usd) {
        let state = &self.shards[account.shard().index()].state;
        let row = state.accounts().find(|row| row.id == account).unwrap();
        let position = row.positions.first();
        let position = position.map_or((Shares::ZERO, Usd::ZERO), |it| (it.shares, it.cost));
        (row.ledger.cash(), position.0, position.1)
    }

    /// Places an order for two shares at two cents that rests. The account has bought before.
    fn rest(&mut self, account: AccountId) -> OrderId {
        let shard = account.shard();
        let order = OrderId::new(shard, self.shards[shard.index()].state.head().orders_ever + 1);
        let order = order.unwrap();
        let waits = self.turn.is_multiple_of(3);
        let is_dated = self.turn.is_multiple_of(2);
        let placed = OrderPlaced {
            placement: Placement {
                order,
                account,
                market: MarketIndex(0),
                outcome: OutcomeIndex(0),
                side: Side::Buy,
                fingerprint: Fingerprint::from_bytes([8; 16]),
                names: smallvec![NameHash::of_order(&format!("order {}", self.turn))],
                client_order_id: None,
            },
            terms: Terms {
                kind: OrderKind::Limit,
                time_in_force: if is_dated {
                    TimeInForce::GoodTilDate(at(self.turn + 1_000_000))
                } else {
                    TimeInForce::GoodTilCancelled
                },
                post_only: !is_dated,
                delayed_ms: 0,
                awaited_book: waits,
                quantity: Shares::from_micros(2_000_000),
                price: Some(Price::from_micros(20_000)),
            },
            fill: self.fill(account, 0, 0),
            levels: smallvec![],
            book_sequence: 0,
            slippage_bps: Some(0),
            end: None,
        };
        self.happen(shard, &[Event::OrderPlaced(Box::new(placed))]);
        if waits && !is_dated {
            self.happen(shard, &[Event::OrderAdmitted { order }]);
        }
        order
    }

    /// A purchase of this many micro-shares for this many micro-dollars.
    fn fill(&self, account: AccountId, shares: i64, dollars: i64) -> Fill {
        let (cash, held, cost) = self.holdings(account);
        let notional = Usd::from_micros(dollars);
        Fill {
            quantity: Shares::from_micros(shares),
            notional,
            fee: Usd::ZERO,
            fee_rate: FeeRate::ZERO,
            balance: cash - notional,
            position_shares: held + Shares::from_micros(shares),
            position_cost: cost + notional,
            at: at(self.turn),
        }
    }

    /// Fills one share of an open order, or ends it. Those that wait for their book end.
    fn go_on(&mut self, account: AccountId, order: OrderId) {
        let order_state =
            self.shards[order.shard().index()].state.order_row(order).unwrap().order_state;
        let event = if order_state.unwrap().awaits_book || self.turn.is_multiple_of(5) {
            Event::OrderEnded { order, reason: EndReason::User, at: at(self.turn) }
        } else {
            let price = Price::from_micros(20_000);
            Event::RestingFilled(Box::new(RestingFilled {
                order,
                fill: self.fill(account, 1_000_000, 20_000),
                displayed: Level { price, size: Shares::from_micros(1_000_000) },
                book_sequence: self.turn,
                used: smallvec![UsedLevel {
                    price,
                    shown: Shares::from_micros(1_000_000),
                    left: Shares::ZERO,
                }],
            }))
        };
        self.happen(order.shard(), &[event]);
    }

    fn comment(&mut self, order: OrderId, author: AccountId) -> CommentId {
        let shard = order.shard();
        let ever = self.shards[shard.index()].state.head().comments_ever;
        let comment = CommentId::new(shard, ever + 1).unwrap();
        let content = format!("comment {}", self.turn).into();
        let at = at(self.turn);
        self.happen(shard, &[Event::CommentAdded { comment, order, author, content, at }]);
        comment
    }

    /// For `turns` turns, accounts in several shards buy, comment and delete comments.
    fn live(&mut self, accounts: &mut Vec<AccountId>, turns: u64) {
        for turn in 0..turns {
            let shard = ShardId::new(u8::try_from(turn % 5 * 13).unwrap()).unwrap();
            if turn % 10 < 2 || accounts.is_empty() {
                accounts.push(self.open_account(shard));
            }
            let account = accounts[usize::try_from(turn).unwrap() % accounts.len()];
            let order = self.buy(account);
            if turn % 3 == 0 {
                self.rest(account);
            }
            let state = &self.shards[order.shard().index()].state;
            let open = state.open_orders().next().map(|row| row.placement);
            if let Some(Placement { account, order, .. }) = open
                && turn % 2 == 0
            {
                self.go_on(account, order);
            }
            if turn % 7 == 0 {
                let comment = self.comment(order, accounts[0]);
                if turn % 14 == 0 {
                    self.happen(order.shard(), &[Event::CommentDeleted { comment }]);
                }
            }
        }
    }

    /// The number of the last closed segment.
    fn closed(&self) -> u64 {
        self.journal.segment().unwrap() - 1
    }

    /// Lives until this many segments are closed. Returns the accounts.
    fn close_segments(&mut self, count: u64) -> Vec<AccountId> {
        let mut accounts = Vec::new();
        while self.closed() < count {
            self.live(&mut accounts, 10);
        }
        accounts
    }

    fn fold(&self) -> Result<FoldReport, FoldError> {
        fold::fold(&self.folder, self.closed(), &mut AtOnce)
    }

    fn path(&self, directory: &str, name: &str) -> PathBuf {
        self.data.path().join(directory).join(name)
    }
}

fn at(turn: u64) -> Timestamp {
    Timestamp::from_seconds(1_800_000_000 + i64::try_from(turn).unwrap())
}

fn upkeep(folder: &Folder, archive_bytes: u64) -> Upkeep {
    let config = SnapshotConfig {
        journal_bytes: 1,
        interval: Duration::from_hours(1),
        cpu_percent: 100,
        archive_bytes,
    };
    Upkeep::new(folder.clone(), config, Arc::default())
}

#[test]
fn a_shard_survives_a_round_trip_and_a_truncated_one_is_refused() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    world.live(&mut accounts, 60);
    for shard in &world.shards {
        let mut bytes = Vec::new();
        state::encode(shard, &mut bytes);
        let mut orders = Vec::new();
        for account in shard.state.accounts() {
            for order in shard.state.orders_of(account.id) {
                state::encode_order(&order, &mut orders);
            }
        }
        let read = |bytes: &[u8], orders: &[u8]| {
            let mut reading = state::Reading::begin(shard.state.shard(), VERSION, bytes)?;
            reading.orders(container::VERSION, orders)?;
            reading.finish()
        };
        let again = read(&bytes, &orders).unwrap();
        assert!(again == *shard);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length], &orders).is_err(), "{length} bytes");
        }
        for length in (0..orders.len()).step_by(7) {
            assert!(read(&bytes, &orders[..length]).is_err(), "{length} bytes of orders");
        }
        // Every changed byte is refused or changes nothing that matters.
        for position in (0..bytes.len()).step_by(5) {
            let mut damaged = bytes.clone();
            damaged[position] ^= 0x21;
            if let Ok(other) = read(&damaged, &orders) {
                assert!(other.state.hash() == shard.state.hash(), "byte {position}");
            }
        }
    }
    assert_eq!(world.shards.len(), SHARD_COUNT);
    let rows = || world.shards.iter().flat_map(|shard| shard.state.open_orders());
    assert!(rows().any(|row| row.order_state.unwrap().awaits_book));
    assert!(rows().any(|row| row.order_state.unwrap().progress.fill_count > 0));
}
