//! Snapshots on a real disk, folded from journals of real records and read back.

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
use crate::engine::command::Identity;
use crate::engine::event::{Event, OrderFilled};
use crate::engine::fill::{Fill, Placement};
use crate::engine::idempotency::{Fingerprint, NameHash};
use crate::engine::key::{KeyGrant, Permissions};
use crate::ids::{
    AccountId, CommentId, KeyId, MarketIndex, OrderId, OutcomeIndex, Place, SHARD_COUNT, ShardId,
    Timestamp,
};
use crate::journal::record::{self, RecordHeader};
use crate::journal::{Journal, JournalConfig, Refused};
use crate::limits::tier::Tier;
use crate::market::book::{Level, Side};
use crate::money::{FeeRate, Price, Shares, Usd};

mod keeping;
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
        let Opened { journal, recovered, report, folder } = opened;
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
        folded.state.apply(&events, Place::START);
        let place = loop {
            match self.journal.reserve(bytes.len()) {
                Ok(reservation) => break reservation.fill_from(&bytes),
                Err(Refused::Busy | Refused::Full) => std::thread::yield_now(),
            }
        };
        self.journal.wait_blocking(place);
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
        let grant = KeyGrant {
            hash: digest,
            prefix: "ps_live_01234567".into(),
            name: Some("bot".into()),
            tier: Tier::Pro,
            permissions: Permissions::DEFAULT,
            expires_at: None,
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
        let rows = state.orders_of(account);
        let count = i64::try_from(rows.count()).unwrap() + 1;
        let cent = Usd::from_micros(10_000);
        let cash = state.accounts().find(|row| row.id == account).unwrap().ledger.cash();
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
                position_shares: Shares::from_micros(1_000_000 * count),
                position_cost: Usd::from_micros(10_000 * count),
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
        for counter in 1..=shard.state.head().orders_ever {
            let id = OrderId::new(shard.state.shard(), counter).unwrap();
            state::encode_order(&shard.state.order_row(id).unwrap(), &mut orders);
        }
        let read = |bytes: &[u8], orders: &[u8]| {
            let mut reading = state::Reading::begin(shard.state.shard(), VERSION, bytes)?;
            reading.orders(orders)?;
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
}
