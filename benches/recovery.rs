//! How long a start takes: a journal of so many trades is written, and read by a process of its
//! own, with one thread and with as many as there are processors; then with a snapshot.
//!
//! `cargo bench --bench recovery -- --trades 10000000 --folder /path/with/room`. Without flags it
//! is small, so that it runs with the others. With `--keep` the journal stays, and the bench says
//! how to read it again, as for a profiler.

use std::env;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paperbourse::disk::Disk;
use paperbourse::engine::command::{
    Command as EngineCommand, Identity, OrderNames, Owner, Trade, TradeOrder,
};
use paperbourse::engine::event::{Event, Events};
use paperbourse::engine::idempotency::NameHash;
use paperbourse::engine::{Rules, State, Verdict};
use paperbourse::ids::{AccountId, OutcomeIndex, Place, SHARD_COUNT, ShardId, Timestamp};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::journal::{Journal, JournalConfig, Refused, SyncMode};
use paperbourse::market::book::{Book, Ladder, Level, Side};
use paperbourse::market::catalogue::{Fees, MarketInfo, Outcome};
use paperbourse::market::{MarketSnapshot, Markets};
use paperbourse::money::{FeeRate, Price, Shares, Usd};
use paperbourse::snapshot::{self, Opened, SnapshotConfig, SnapshotKeeper};

const TRADES_DEFAULT: u64 = 100_000;
const ORDERS_PER_ACCOUNT: u64 = 100;
const MARKET_ID: &str = "0x5f65177b394277fd294cd75650044e32ba009a95022d88a0c1d565897d72f8f1";
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
/// As often as a server writes it.
const STATE_CHECK_INTERVAL: u64 = 1024;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let value = |flag: &str| {
        let at = arguments.iter().position(|argument| argument == flag)?;
        arguments.get(at + 1).cloned()
    };
    if let (Some(folder), Some(threads)) = (value("--open"), value("--threads")) {
        let threads = threads.parse().expect("a number of threads");
        return open_and_tell(Path::new(&folder), threads);
    }
    let trades = value("--trades").map_or(TRADES_DEFAULT, |n| n.parse().expect("a number"));
    let folder =
        tempfile::TempDir::new_in(value("--folder").map_or_else(env::temp_dir, PathBuf::from))
            .expect("a folder with room");
    let keeps = arguments.iter().any(|argument| argument == "--keep");
    let folder = if keeps { Err(folder.keep()) } else { Ok(folder) };
    let data = folder.as_ref().map_or_else(PathBuf::as_path, |folder| folder.path()).join("data");
    let began = Instant::now();
    write(&data, trades);
    println!("{trades} trades written in {:.1} s", began.elapsed().as_secs_f64());
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    if keeps {
        println!("--open {} --threads 1 reads it again", data.display());
    }
    println!(
        "| threads | snapshot | records | MB read | s | processor s | million records/s a thread \
         | million records/processor s | peak MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    measure(&data, 1);
    measure(&data, all);
    take_snapshot(&data);
    measure(&data, 1);
    measure(&data, all);
}

fn config() -> JournalConfig {
    JournalConfig { sync: SyncMode::Never, ..JournalConfig::default() }
}

fn open(data: &Path, threads: NonZeroUsize) -> Opened {
    snapshot::open(Disk::System, data, &config(), threads).expect("a data directory of this bench")
}

/// Opens the directory in a process of its own, so that its memory is that of a start.
fn measure(data: &Path, threads: usize) {
    let status = Command::new(env::current_exe().expect("this bench is a file"))
        .arg("--open")
        .arg(data)
        .args(["--threads", &threads.to_string()])
        .status();
    assert!(status.expect("this bench can be started").success());
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn open_and_tell(data: &Path, threads: NonZeroUsize) {
    let bytes: u64 =
        ["journal", "snapshots"].map(|name| folder_bytes(&data.join(name))).iter().sum();
    let began = Instant::now();
    let opened = open(data, threads);
    let seconds = began.elapsed().as_secs_f64();
    let processor_seconds = processor_seconds();
    let orders: u64 = opened.recovered.states().map(State::orders_kept).sum();
    let journal = &opened.report.journal;
    let snapshot = opened.report.snapshot.map_or_else(
        || "none".to_owned(),
        |_| format!("{:.2} s", opened.report.snapshot_elapsed.as_secs_f64()),
    );
    println!(
        "| {threads} | {snapshot} | {} ({orders} orders kept) | {} | {seconds:.2} \
         | {processor_seconds:.2} | {:.2} | {:.2} | {} |",
        journal.records,
        bytes / 1_000_000,
        journal.records as f64 / seconds / threads.get() as f64 / 1e6,
        journal.records as f64 / processor_seconds / 1e6,
        peak_bytes() / 1_000_000,
    );
}

fn folder_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries.flatten().filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
}

/// What this process has used of all processors so far, where the system tells: on a machine that
/// has other work, this is what the start itself takes.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the program's name, which may hold anything, the 12th and 13th field are the times as
    // itself and in the system, in hundredths of a second.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The most memory that this process had, where the system tells.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0_u64) * 1024
}

/// Writes a journal of trades with two names, two levels and a fee each.
fn write(data: &Path, trades: u64) {
    let Opened { journal, recovered, .. } = open(data, NonZeroUsize::MIN);
    let mut states: Vec<State> =
        recovered.into_shards().into_iter().map(|shard| shard.state).collect();
    let market = market();
    let accounts = (trades / ORDERS_PER_ACCOUNT).max(SHARD_COUNT as u64);
    for number in 0..accounts {
        let identity = identity(number);
        let state = &mut states[identity.shard().index()];
        happen(&journal, state, &EngineCommand::OpenAccount(identity), &market);
    }
    let mut seed: u64 = 0x2545_f491_4f6c_dd1d;
    for number in 0..trades {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let account = account((seed >> 32) % accounts);
        let state = &mut states[account.shard().index()];
        happen(&journal, state, &order(account, number), &market);
    }
    journal.flush_blocking();
}

fn happen(journal: &Journal, state: &mut State, command: &EngineCommand, market: &MarketSnapshot) {
    let rules = Rules { starting_balance: Usd::from_micros(1_000_000_000_000), ..Rules::default() };
    let verdict = state.decide(command, Some(market), NOW, &rules);
    let Ok(Verdict::Happens(mut events)) = verdict else { panic!("{verdict:?}") };
    let sequence = state.sequence() + 1;
    if sequence.is_multiple_of(STATE_CHECK_INTERVAL) {
        events.insert(0, Event::StateChecked { hash: state.hash() });
    }
    put(journal, state.shard(), sequence, &events);
    state.apply(&events, Place::new(0, sequence));
}

fn put(journal: &Journal, shard: ShardId, sequence: u64, events: &Events) {
    let mut bytes = Vec::with_capacity(1024);
    let header = RecordHeader { shard, epoch: journal.epoch(), sequence, at: NOW };
    record::encode(header, events, &mut bytes);
    loop {
        match journal.reserve(bytes.len()) {
            Ok(reservation) => {
                reservation.fill_from(&bytes);
                return;
            }
            Err(Refused::Busy | Refused::Full) => std::thread::yield_now(),
        }
    }
}

/// Accounts are dealt out over the shards one after the other.
fn identity(number: u64) -> Identity {
    let mut digest = [0; 32];
    digest[0] = u8::try_from(number % SHARD_COUNT as u64).expect("there are 64");
    digest[8..16].copy_from_slice(&number.to_le_bytes());
    Identity { digest, issuer: "https://bench".into(), subject: number.to_string().into() }
}

fn account(number: u64) -> AccountId {
    let shard =
        ShardId::of_digest(u8::try_from(number % SHARD_COUNT as u64).expect("there are 64"));
    AccountId::new(shard, number / SHARD_COUNT as u64 + 1).expect("a small counter")
}

fn order(account: AccountId, number: u64) -> EngineCommand {
    let name = format!("bot-7-{number}");
    let header = format!("{number:032x}");
    let names =
        OrderNames::new([&header, &name].map(|name| NameHash::of_order(name)), Some(name.into()));
    EngineCommand::Trade(Trade::new(
        Owner::Account(account),
        TradeOrder {
            market_id: MARKET_ID.into(),
            outcome: "yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(10_000_000),
            expected_price: Some(Price::from_micros(580_000)),
            max_slippage_bps: None,
        },
        names,
    ))
}

/// A market with the usual fee; an order takes two levels of its book.
fn market() -> MarketSnapshot {
    let outcomes = ["Yes", "No"].map(|label| Outcome {
        label: label.into(),
        token_id: format!("7132104567933{label}").into(),
    });
    let fees = Fees::from_schedule(FeeRate::from_micros(70_000), 1);
    let markets = Markets::new();
    let info = MarketInfo { fees, ..MarketInfo::bare(MARKET_ID, outcomes) };
    markets.list(vec![info]).expect("a new market");
    let market = markets.by_condition(MARKET_ID).expect("it was listed");
    let level = |cents: i64| Level {
        price: Price::from_micros(cents * 10_000),
        size: Shares::from_micros(5_000_000),
    };
    let ladder = Ladder::from_levels(vec![level(57)], vec![level(58), level(59)]);
    let book = Book::new(ladder.expect("levels of a book"), NOW);
    markets.publish(&market, OutcomeIndex(0), Arc::new(book));
    market.snapshot()
}

/// Makes a snapshot of all closed segments, as a server does, but at full speed.
fn take_snapshot(data: &Path) {
    let Opened { journal, folder, .. } = open(data, NonZeroUsize::MIN);
    let config = SnapshotConfig {
        journal_bytes: 1,
        interval: Duration::from_secs(1),
        cpu_percent: 100,
        archive_bytes: u64::MAX,
    };
    let began = Instant::now();
    let closed = journal.segment().map_or(0, |segment| segment - 1);
    let journal = Arc::new(journal);
    let keeper = SnapshotKeeper::start(folder.clone(), journal, config);
    let newest = || folder.snapshot_numbers().expect("a folder").last().copied();
    while newest().unwrap_or(0) < closed {
        std::thread::yield_now();
    }
    drop(keeper);
    println!("a snapshot made in {:.1} s", began.elapsed().as_secs_f64());
}
