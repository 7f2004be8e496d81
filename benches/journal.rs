//! The journal's part of a trade: reserving an LSN, copying the record, and waiting for the disk.
//!
//! Every trade pays for the reservation while it holds its shard. The local figures depend on the
//! disk: compare them only on the same machine, next to a bare `fdatasync`.

use std::convert::Infallible;
use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use paperbourse::disk::Disk;
use paperbourse::journal::{
    DataDirectory, Journal, JournalConfig, Lsn, MemoryJournal, Refused, SyncMode,
};
use tempfile::TempDir;

/// Roughly the size of a filled market order.
const RECORD: [u8; 200] = [0x5a; 200];

fn write(journal: &Journal) -> Lsn {
    loop {
        match journal.reserve(RECORD.len()) {
            Ok(reservation) => return reservation.fill_from(&RECORD),
            Err(Refused::Busy | Refused::Full) => std::thread::yield_now(),
        }
    }
}

fn open(
    data: &TempDir,
    config: &JournalConfig,
    replay: impl FnMut(u64, u64, &[u8]) -> Result<(), Infallible>,
) -> Journal {
    let data = DataDirectory::open(Disk::System, data.path()).expect("the folder is not in use");
    Journal::open(&data, config, replay).expect("a whole journal").0
}

fn local(sync: SyncMode) -> (TempDir, Journal) {
    let data = TempDir::new().expect("a temporary directory");
    let config = JournalConfig { sync, ..JournalConfig::default() };
    let journal = open(&data, &config, |_, _, _| Ok(()));
    (data, journal)
}

fn memory(criterion: &mut Criterion) {
    let journal = Journal::from(MemoryJournal::new(&JournalConfig::default()));
    let mut group = criterion.benchmark_group("journal/memory");
    group.throughput(Throughput::Elements(1));
    group.bench_function("reserve and fill", |bencher| {
        bencher.iter(|| black_box(write(&journal)));
    });
    group.finish();
}

/// From the reservation until the record is on disk, with nothing else in flight: one flush and two
/// context switches.
fn round_trip(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("journal/local");
    for (name, sync) in [("synced", SyncMode::Always), ("not synced", SyncMode::Never)] {
        let (_data, journal) = local(sync);
        group.throughput(Throughput::Elements(1));
        group.bench_function(format!("one record, {name}"), |bencher| {
            bencher.iter(|| journal.wait_blocking(write(&journal)));
        });
        group.throughput(Throughput::Elements(64));
        group.bench_function(format!("64 records, {name}"), |bencher| {
            bencher.iter(|| {
                let lsns: [Lsn; 64] = std::array::from_fn(|_| write(&journal));
                journal.wait_blocking(lsns[63]);
            });
        });
    }
    group.finish();
}

/// Reads back a journal of 100,000 records.
fn recovery(criterion: &mut Criterion) {
    const RECORDS: u64 = 100_000;
    let (data, journal) = local(SyncMode::Never);
    for _ in 0..RECORDS {
        write(&journal);
    }
    drop(journal);
    let mut group = criterion.benchmark_group("journal/recovery");
    group.sample_size(10);
    group.throughput(Throughput::Elements(RECORDS));
    group.bench_function("100,000 records", |bencher| {
        bencher.iter_batched(
            || (),
            |()| {
                let mut bytes = 0;
                black_box(open(&data, &JournalConfig::default(), |_, _, record| {
                    bytes += record.len();
                    Ok(())
                }));
                bytes
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, memory, round_trip, recovery);
criterion_main!(benches);
