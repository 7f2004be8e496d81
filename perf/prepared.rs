//! Data directories like those of a server after long use, written directly by the engine and the
//! journal, which is much faster than over HTTP.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paperbourse::auth::api_key::{KEY_SECRET_BYTES, RawKey};
use paperbourse::disk::Disk;
use paperbourse::engine::command::{
    CreateKey, Identity, OpenAccount, OrderNames, Owner, PlaceOrder, Trade, TradeOrder,
};
use paperbourse::engine::event::Event;
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::payload::NewOrder;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{AccountId, Lsn, SHARD_COUNT, ShardId, Timestamp};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::journal::{Journal, JournalConfig, Refused, SyncMode};
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Book, Side};
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::market::quote::Quote;
use paperbourse::money::{Price, Shares, Usd};
use paperbourse::snapshot::{self, Opened, SnapshotConfig, SnapshotKeeper};

#[path = "market.rs"]
mod market;

use market::MARKET_ID;

const NOW: Timestamp = Timestamp::from_seconds(1_700_000_000);
/// The number of markets with orders at rest.
const RESTING_MARKETS: u64 = 1_000;
/// Number of records between state checks, as on a server.
const STATE_CHECK_INTERVAL: u64 = 1024;

/// The content of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Contents {
    pub(crate) accounts: u64,
    /// Whether every account has a key, which [`raw_key`] returns.
    pub(crate) has_keys: bool,
    /// Number of trades, distributed over the accounts in an order that defeats the caches. Each
    /// trade has two names, takes two levels and pays a fee.
    pub(crate) trades: u64,
    /// Number of orders at rest, of all accounts in turn, in [`RESTING_MARKETS`] markets.
    pub(crate) resting: u64,
}

/// Writes a data directory.
pub(crate) fn write(data: &Path, contents: Contents) -> anyhow::Result<()> {
    let config = JournalConfig { sync: SyncMode::Never, ..JournalConfig::default() };
    let Opened { journal, recovered, .. } =
        snapshot::open(Disk::System, data, &config, NonZeroUsize::MIN)?;
    let mut states: Vec<State> =
        recovered.into_shards().into_iter().map(|shard| shard.state).collect();
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    for number in 0..contents.accounts {
        let identity = identity(number);
        let state = &mut states[identity.shard().index()];
        happen(&journal, state, &OpenAccount(identity), &quote);
        if contents.has_keys {
            happen(&journal, state, &key(number), &quote);
        }
    }
    let mut seed: u64 = 0x2545_f491_4f6c_dd1d;
    for number in 0..contents.trades {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let account = account((seed >> 32) % contents.accounts);
        let state = &mut states[account.shard().index()];
        happen(&journal, state, &order(account, number), &quote);
    }
    let markets: Vec<MarketInfo> = (0..RESTING_MARKETS).map(resting_market).collect();
    for (number, info) in (0..contents.resting).zip(markets.iter().cycle()) {
        let account = account(number % contents.accounts);
        let state = &mut states[account.shard().index()];
        let order = resting_order(account, &info.condition_id);
        happen(&journal, state, &order, &Quote::new(info, [Some(&book), None]));
    }
    journal.flush_blocking();
    Ok(())
}

/// Returns the key of an account, by the account's number.
pub(crate) fn raw_key(number: u64) -> RawKey {
    let mut secret = [0; KEY_SECRET_BYTES];
    secret[..8].copy_from_slice(&number.to_be_bytes());
    RawKey::from_secret(secret)
}

/// Takes a snapshot of all closed segments, at full speed.
pub(crate) fn take_snapshot(data: &Path) -> anyhow::Result<()> {
    let opened = snapshot::open(Disk::System, data, &JournalConfig::default(), NonZeroUsize::MIN)?;
    let Opened { journal, folder, .. } = opened;
    let closed = journal.segment().map_or(0, |segment| segment - 1);
    let config = SnapshotConfig {
        journal_bytes: 1,
        interval: Duration::from_secs(1),
        cpu_percent: 100,
        archive_bytes: 0,
    };
    let keeper = SnapshotKeeper::start(folder.clone(), Arc::new(journal), config);
    while folder.snapshot_numbers()?.last().copied().unwrap_or(0) < closed {
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(keeper);
    Ok(())
}

fn happen<C: Command>(journal: &Journal, state: &mut State, command: &C, quote: &Quote<'_>) {
    let rules = Rules { starting_balance: Usd::from_micros(1_000_000_000_000), ..Rules::default() };
    let verdict = state.decide(command, Some(quote), NOW, &rules);
    let Ok(Verdict::Happens(mut events, _)) = verdict else { panic!("the command had no effect") };
    let sequence = state.sequence() + 1;
    if sequence.is_multiple_of(STATE_CHECK_INTERVAL) {
        events.insert(0, Event::StateChecked { hash: state.hash() });
    }
    let mut bytes = Vec::with_capacity(1024);
    let header = RecordHeader { shard: state.shard(), epoch: journal.epoch(), sequence, at: NOW };
    record::encode(header, &events, &mut bytes);
    loop {
        match journal.reserve(bytes.len()) {
            Ok(reservation) => {
                reservation.fill_from(&bytes);
                break;
            }
            Err(Refused::Busy | Refused::Full) => std::thread::yield_now(),
        }
    }
    state.apply(&events, Lsn::START);
}

/// Returns the identity of an account. Accounts are distributed over the shards in turn.
fn identity(number: u64) -> Identity {
    let mut digest = [0; 32];
    digest[0] = shard_number(number);
    digest[8..16].copy_from_slice(&number.to_le_bytes());
    Identity { digest, issuer: "https://prepared".into(), subject: number.to_string().into() }
}

fn account(number: u64) -> AccountId {
    let shard = ShardId::of_digest(shard_number(number));
    AccountId::new(shard, number / SHARD_COUNT as u64 + 1).expect("a small counter")
}

fn key(number: u64) -> CreateKey {
    let raw = raw_key(number);
    CreateKey {
        owner: Owner::Account(account(number)),
        is_bootstrap: true,
        created_by: None,
        grant: KeyGrant {
            hash: *raw.hash().as_bytes(),
            prefix: raw.prefix().into(),
            name: None,
            tier: Tier::Free,
            permissions: Permissions::ALL,
            expires_at: None,
            wallet: None,
        },
    }
}

fn shard_number(number: u64) -> u8 {
    u8::try_from(number % SHARD_COUNT as u64).expect("below 64")
}

fn order(account: AccountId, number: u64) -> Trade {
    let name = format!("bot-7-{number}");
    let header = format!("{number:032x}");
    let names =
        OrderNames::new([&header, &name].map(|name| NameHash::of_order(name)), Some(name.into()));
    let order = TradeOrder {
        market_id: MARKET_ID.into(),
        outcome: "yes".into(),
        side: Side::Buy,
        quantity: Shares::from_micros(10_000_000),
        expected_price: Some(Price::from_micros(580_000)),
        max_slippage_bps: None,
    };
    Trade::new(Owner::Account(account), order, names)
}

/// Creates a buy order far below the book.
fn resting_order(account: AccountId, market_id: &str) -> PlaceOrder {
    let quantity = Shares::from_micros(5_000_000);
    let price = Price::from_micros(100_000);
    let order = NewOrder::limit(market_id, "yes", Side::Buy, quantity, price);
    PlaceOrder::new(Owner::Account(account), order, OrderNames::default())
}

fn resting_market(number: u64) -> MarketInfo {
    let outcomes = ["Yes", "No"]
        .map(|label| Outcome { label: label.into(), token_id: format!("{label}{number}").into() });
    MarketInfo::bare(&format!("0x{number:064x}"), outcomes)
}

/// Returns the market of the orders, each of which takes two levels of its book.
fn market() -> (MarketInfo, Book) {
    market::market(["Yes", "No"], market::three_levels([5; 3]), NOW)
}
