//! How much replicated logs take, by their number: three brokers on this machine, and a writer for
//! each log, with one block in flight.
//!
//! `cargo bench --bench logs -- 5` measures for five seconds each time. The numbers of logs take
//! turns, so that what slows the machine down meets all of them.

#![expect(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::time::{Duration, Instant};

use paperbourse::cluster::{Cluster, ClusterFile, JetStreamLog, OpenLog};
use paperbourse::journal::replicated::{NodeName, Owner, Reader, Taking};
use paperbourse_test_support::brokers::{self, Brokers};
use tokio::task::JoinSet;

/// What is written: how many logs, how many records in each block, and the time from one block to
/// the next. A busy owner's block has about a hundred records, and follows the one before at once.
const ROWS: [(u16, u32, Duration); 6] = [
    (1, 1, Duration::from_millis(10)),
    (1, 100, Duration::ZERO),
    (4, 100, Duration::ZERO),
    (16, 100, Duration::ZERO),
    (64, 100, Duration::ZERO),
    (1, 1_000, Duration::ZERO),
];
const ROUNDS: usize = 3;
const SECONDS_DEFAULT: u64 = 2;
/// About what an order takes.
const RECORD_BYTES: usize = 200;

/// What the writers of all logs have measured.
struct Measured {
    blocks_per_second: f64,
    /// From the shortest to the longest.
    latencies: Vec<Duration>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // `cargo test --benches` only checks that it runs.
    let is_test = std::env::args().any(|argument| argument == "--test");
    let seconds = std::env::args().find_map(|argument| argument.parse().ok());
    let (rounds, time) = match (is_test, seconds) {
        (true, _) => (1, Duration::from_millis(100)),
        (false, seconds) => (ROUNDS, Duration::from_secs(seconds.unwrap_or(SECONDS_DEFAULT))),
    };
    let Some(program) = brokers::program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let brokers = Brokers::start(&program, folder.path(), "always", "");
    let mut measured: [Vec<Measured>; ROWS.len()] = Default::default();
    for round in 0..rounds {
        for (of_row, row) in measured.iter_mut().zip(ROWS) {
            of_row.push(measure(&brokers, round, row, time).await);
        }
    }
    println!("logs  records  every ms  blocks/s (range)     records/s  p50 ms  p99 ms");
    for (mut rounds, (logs, records, every)) in measured.into_iter().zip(ROWS) {
        rounds.sort_by(|a, b| a.blocks_per_second.total_cmp(&b.blocks_per_second));
        let speed = |at: usize| rounds[at].blocks_per_second;
        let (median, last) = (rounds.len() / 2, rounds.len() - 1);
        let latencies = &rounds[median].latencies;
        let milliseconds =
            |percent: usize| latencies[latencies.len() * percent / 100].as_secs_f64() * 1_000.0;
        println!(
            "{logs:4}  {records:7}  {:8}  {:5.0} ({:.0} to {:.0})  {:9.0}  {:6.2}  {:6.2}",
            every.as_millis(),
            speed(median),
            speed(0),
            speed(last),
            speed(median) * f64::from(records),
            milliseconds(50),
            milliseconds(99),
        );
    }
}

/// Writes to as many new logs at once for this long.
async fn measure(
    brokers: &Brokers,
    round: usize,
    (logs, records, every): (u16, u32, Duration),
    time: Duration,
) -> Measured {
    let name = format!("logs-{round}-{logs}-{records}-{}", every.as_millis());
    let file = ClusterFile::new(&name, brokers.addresses(), brokers.monitoring());
    let cluster = Cluster::connect(ClusterFile { logs, ..file }).await.unwrap();
    cluster.init(None).await.unwrap();
    let mut owners = Vec::new();
    for open in cluster.open().await.unwrap() {
        owners.push(own(open).await);
    }
    let began = Instant::now();
    let mut writers = JoinSet::new();
    for owner in owners {
        writers.spawn(write(owner, records, every, began + time));
    }
    let mut latencies: Vec<Duration> = writers.join_all().await.into_iter().flatten().collect();
    let blocks = u32::try_from(latencies.len()).expect("a few thousand a second");
    let blocks_per_second = f64::from(blocks) / began.elapsed().as_secs_f64();
    latencies.sort();
    Measured { blocks_per_second, latencies }
}

async fn own(OpenLog { log, id, origin }: OpenLog) -> Owner<JetStreamLog> {
    let start = OpenLog { log: (), id, origin }.start();
    let reader = Reader::new(log, start, 0);
    match Owner::take_at_end(reader, NodeName::new("writer").unwrap()).await.unwrap() {
        Taking::Taken(owner) => owner,
        Taking::Outrun(_) => panic!("nobody else writes"),
    }
}

/// Appends block after block until then. Returns how long each took.
async fn write(
    mut owner: Owner<JetStreamLog>,
    records: u32,
    every: Duration,
    until: Instant,
) -> Vec<Duration> {
    let mut latencies = Vec::new();
    let mut due = Instant::now();
    while due.max(Instant::now()) < until {
        tokio::time::sleep_until(due.into()).await;
        due += every;
        for _ in 0..records {
            assert!(owner.push(&[7; RECORD_BYTES]), "there is room in a block");
        }
        let began = Instant::now();
        owner.flush().await.unwrap();
        latencies.push(began.elapsed());
    }
    latencies
}
