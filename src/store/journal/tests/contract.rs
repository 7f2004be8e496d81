//! The contract of a running journal.

use std::pin::pin;
use std::sync::atomic::{self, AtomicUsize};
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};

use super::*;

#[test]
fn lsns_are_ordered_within_a_log() {
    let lsn = |log, position| Lsn { log, position };
    assert!(lsn(0, 1) < lsn(0, 2));
    assert_eq!(lsn(0, 1).partial_cmp(&lsn(1, 2)), None);
    assert!(Lsn::START < lsn(1, 1) && lsn(1, 1) > Lsn::START);
    assert_eq!(lsn(1, 4).max(Lsn::START), lsn(1, 4));
    assert_eq!(lsn(0, 4).max(lsn(0, 5)), lsn(0, 5));
}

#[test]
fn an_acknowledged_record_is_in_the_file() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    assert!(opened.journal.is_durable(Lsn::START));
    let record = record(1, 700);
    let lsn = write_alone(&opened.journal, &record);
    assert!(opened.journal.is_durable(lsn));
    assert_eq!(opened.journal.durable_lsn(), lsn);
    let bytes = std::fs::read(segment_path(data.path(), 1)).unwrap();
    assert!(bytes.windows(700).any(|window| window == record));
}

#[test]
fn closing_the_journal_flushes_everything() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    let records: Vec<_> = (0..50).map(|seed| record(seed, 20 * seed)).collect();
    for record in &records {
        write(&opened.journal, record);
    }
    drop(opened);
    assert_eq!(open(data.path()).bytes(), records);
}

#[test]
fn a_full_ring_refuses_and_loses_nothing() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    let journal = &opened.journal;
    let mut held = Vec::new();
    let refused = loop {
        match journal.reserve(10) {
            Ok(reservation) => held.push(reservation),
            Err(refused) => break refused,
        }
    };
    let count = held.len();
    assert_eq!(refused, Refused::Busy, "after {count}");
    assert!((8..=12).contains(&count), "the ring is for 12: {count}");
    let first = held.remove(0);
    let last = held.last().unwrap().lsn();
    for (seed, reservation) in held.into_iter().enumerate() {
        reservation.fill_from(&record(seed + 1, 10));
    }
    assert_eq!(journal.durable_lsn(), Lsn::START, "the first holds back the others");
    first.fill(|buffer| buffer.extend(record(0, 10)));
    journal.wait_blocking(last);
    write_alone(journal, &record(count, 10));
    drop(opened);
    let expected: Vec<_> = (0..=count).map(|seed| record(seed, 10)).collect();
    assert_eq!(open(data.path()).bytes(), expected);
}

/// Whether these records and the flushes that wrote them are counted, which happens only after the
/// records are acknowledged.
fn is_counted(journal: &Journal, records: usize) -> bool {
    let metrics = journal.metrics().unwrap();
    metrics.batch_records.sum() >= records as u64 && metrics.unflushed_age().is_zero()
}

#[test]
fn nothing_is_reserved_beyond_preallocated_space() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    let Journal::Local(local) = &opened.journal else { unreachable!() };
    // No segment is made from here on, as if the disk were full.
    local.stock.close();
    let mut written = Vec::new();
    loop {
        let record = record(written.len(), 900);
        // A flush gives back the space that its records did not need.
        let is_all_counted = is_counted(&opened.journal, written.len());
        match opened.journal.reserve(record.len()) {
            Ok(reservation) => {
                reservation.fill_from(&record);
                written.push(record);
            }
            Err(Refused::Full) if is_all_counted => break,
            // A segment that was being made may have come since.
            Err(Refused::Full | Refused::Busy) => local.shared.ring.set_disk_full(true),
        }
    }
    assert!(written.len() >= 8, "the promised space was available: {}", written.len());
    if let Ok(reservation) = opened.journal.reserve(900) {
        reservation.fill_from(&[]);
        panic!("it does not keep refusing");
    }
    drop(opened);
    let opened = open(data.path());
    assert_eq!(opened.bytes(), written);
    write_alone(&opened.journal, b"and there is room again");
}

/// Needs a file system of 156 KiB, such as `mount -t tmpfs -o size=156k`, at the path in
/// `PAPERBOURSE_SMALL_DISK`. Two segments fit beside the filler file, a third only without it.
#[test]
fn a_full_disk_refuses_writes_until_space_is_freed() {
    let Some(disk) = std::env::var_os("PAPERBOURSE_SMALL_DISK").map(PathBuf::from) else {
        eprintln!("PAPERBOURSE_SMALL_DISK is not set: a full disk was NOT tested");
        return;
    };
    let filler = disk.join("filler");
    std::fs::write(&filler, vec![1; 48 << 10]).unwrap();
    let data = TempDir::new_in(&disk).unwrap();
    let opened = open(data.path());
    let mut written = Vec::new();
    let mut is_full = false;
    while !is_full {
        let record = record(written.len(), 900);
        match opened.journal.reserve(900) {
            Ok(reservation) => {
                written.push(record.clone());
                opened.journal.wait_blocking(reservation.fill_from(&record));
            }
            // The second segment is being made.
            Err(Refused::Busy) => std::thread::yield_now(),
            // The first segment holds 10.
            Err(Refused::Full) => is_full = written.len() > 10,
        }
    }
    std::fs::remove_file(&filler).unwrap();
    written.push(record(99, 2000));
    write_alone(&opened.journal, &written[written.len() - 1]);
    drop(opened);
    assert_eq!(open(data.path()).bytes(), written);
}

#[test]
fn blocks_start_on_pages_of_their_own() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    let mut before = Vec::new();
    let mut end = segment::BLOCKS_AT + PAGE_BYTES;
    for length in [1, 443, 4027, 4028, 4029, 6000, 1] {
        assert!(end.is_multiple_of(4096), "no page holds two blocks: {end}");
        write_alone(&opened.journal, &record(length, length));
        let bytes = std::fs::read(segment_path(data.path(), 1)).unwrap();
        assert_eq!(bytes[..before.len()], before, "earlier bytes do not change");
        assert_eq!(&bytes[end..end + 4], b"PBBK");
        end += block::alone_bytes(length);
        assert!(block::is_zero(&bytes[end..]));
        before = bytes[..end].to_vec();
    }
}

#[test]
fn rotation_keeps_every_record() {
    let data = TempDir::new().unwrap();
    let records: Vec<_> = (0..400).map(|seed| record(seed, (seed * 97) % 3000)).collect();
    for part in records.chunks(150) {
        let opened = open(data.path());
        for record in part {
            write(&opened.journal, record);
        }
    }
    let opened = open(data.path());
    assert_eq!(opened.bytes(), records);
    assert!(opened.report.segments > 15, "{:?}", opened.report);
}

#[test]
fn each_start_begins_an_epoch() {
    let data = TempDir::new().unwrap();
    let mut expected = Vec::new();
    for epoch in 1..=40 {
        let opened = open(data.path());
        assert_eq!((opened.report.epoch, opened.journal.epoch()), (epoch, epoch));
        assert_eq!(opened.records, expected);
        for position in 3 * epoch - 2..=3 * epoch {
            let bytes = position.to_le_bytes().to_vec();
            assert_eq!(write(&opened.journal, &bytes).position(), position);
            expected.push(Replayed { epoch, position, bytes });
        }
    }
}

#[test]
fn records_of_each_thread_keep_their_order() {
    const THREADS: u64 = 4;
    const RECORDS: u64 = 300;
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    let journal = &opened.journal;
    let mut lsns: Vec<(Lsn, Vec<u8>)> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let one = |turn: u64| {
                        let record = [thread.to_le_bytes(), turn.to_le_bytes()].concat();
                        (write(journal, &record), record)
                    };
                    (0..RECORDS).map(one).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    });
    for pair in lsns.chunk_by(|one, other| one.1[..8] == other.1[..8]) {
        assert!(pair.is_sorted_by(|one, other| one.0 < other.0), "each thread's own order");
    }
    lsns.sort_by_key(|(lsn, _)| lsn.position());
    let last = lsns.last().unwrap().0;
    assert_eq!(last.position(), THREADS * RECORDS, "no gaps");
    journal.wait_blocking(last);
    drop(opened);
    let expected: Vec<_> = lsns.into_iter().map(|(_, record)| record).collect();
    assert_eq!(open(data.path()).bytes(), expected);
}

#[test]
fn flushes_are_counted() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    for turn in 0..5 {
        write_alone(&opened.journal, &record(turn, 600));
    }
    while !is_counted(&opened.journal, 5) {
        std::thread::yield_now();
    }
    let metrics = &opened.journal.metrics().unwrap();
    assert_eq!(metrics.flush_us.count(), 5);
    assert_eq!((metrics.batch_records.count(), metrics.batch_records.sum()), (5, 5));
    assert_eq!((metrics.batch_bytes.sum(), metrics.batch_bytes.buckets()[12]), (5 * 4096, 5));
}

/// The error that loses a journal whose current segment is this device.
#[cfg(target_os = "linux")]
fn lost_on(device: &str) -> DiskError {
    let data = TempDir::new().unwrap();
    let (sender, receiver) = mpsc::channel();
    let on_lost = move |error: &DiskError| {
        let DiskError { action, path, source } = error;
        let source = std::io::Error::from(source.kind());
        sender.send(DiskError { action, path: path.clone(), source }).unwrap();
    };
    let config = JournalConfig { on_lost: Arc::new(on_lost), ..config() };
    let show = |_| Ok::<_, std::convert::Infallible>(());
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let mut recovered =
        Journal::read(&directory, &config, None, None, show).unwrap().recover().unwrap();
    recovered.tail.file = Disk::System.open_durable(Path::new(device), false).unwrap();
    let journal = Journal::Local(LocalJournal::start(recovered, &config));
    let lsn = write(&journal, b"never acknowledged");
    let mut wait = pin!(journal.register().durable(lsn));
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
    let error = receiver.recv().unwrap();
    for turn in 0..5 {
        let later = journal.reserve(10).unwrap().fill_from(&record(turn, 10));
        assert!(!journal.is_durable(later));
    }
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
    journal.tend();
    drop(journal);
    assert!(receiver.try_recv().is_err(), "it is lost once and nothing is retried");
    error
}

#[test]
#[cfg(target_os = "linux")]
fn a_failed_write_is_final() {
    let error = lost_on("/dev/full");
    assert_eq!(error.action, "write");
    assert!(error.is_full(), "a full disk in a preallocated segment is fatal too: {error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_failed_sync_is_final() {
    assert_eq!(lost_on("/dev/null").action, "sync");
}

/// Set in a process that may exit. Without it, the tests that end their process do nothing.
const MAY_END: &str = "PAPERBOURSE_TEST_MAY_END";

/// Runs one test of this binary in a process of its own, which may exit.
fn run_alone(test: &str) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg(format!("journal::tests::contract::{test}"))
        .env(MAY_END, "1")
        .output()
        .unwrap()
}

fn may_end() -> bool {
    let may_end = std::env::var_os(MAY_END).is_some();
    if !may_end {
        eprintln!("another test runs this one, with {MAY_END}, in a process of its own");
    }
    may_end
}

#[test]
fn exits_on_a_lost_journal() {
    if !may_end() {
        return;
    }
    let source = std::io::Error::from(std::io::ErrorKind::Other);
    let lost = DiskError { action: "sync", path: "the-segment".into(), source };
    (JournalConfig::default().on_lost)(&lost);
}

#[test]
fn a_lost_journal_exits_with_its_own_code() {
    let output = run_alone("exits_on_a_lost_journal");
    assert_eq!(output.status.code(), Some(EXIT_JOURNAL_LOST));
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("the journal is lost: cannot sync the-segment"), "{words}");
}

#[test]
fn aborts_on_an_unfilled_reservation() {
    if !may_end() {
        return;
    }
    let journal = Journal::from(MemoryJournal::new(&config()));
    drop(journal.reserve(1));
}

#[test]
fn an_unfilled_reservation_aborts_the_process() {
    let output = run_alone("aborts_on_an_unfilled_reservation");
    assert!(!output.status.success() && output.status.code() != Some(101), "not just a panic");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("was reserved and not filled"), "{words}");
}

#[test]
fn a_memory_journal_keeps_records_in_order() {
    let memory = MemoryJournal::keeping(&config());
    let journal = Journal::from(memory.clone());
    let first = journal.reserve(5).unwrap();
    let second = journal.reserve(6).unwrap().fill_from(b"second");
    assert!(!journal.is_durable(second));
    let first = first.fill_from(b"first");
    assert!(first < second && journal.is_durable(second));
    assert_eq!(memory.records(), [b"first".to_vec(), b"second".to_vec()]);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, atomic::Ordering::Relaxed);
    }
}

#[test]
fn nothing_is_durable_while_the_gate_is_held() {
    let (memory, gate) = MemoryJournal::gated(&config());
    let journal = Journal::from(memory);
    let waiters = journal.register();
    let count = Arc::new(Count::default());
    let waker = count.clone().into();
    let mut context = Context::from_waker(&waker);
    let mut run = pin!(waiters.run());
    let lsns: Vec<_> = (0..3).map(|seed| write(&journal, &record(seed, 9))).collect();
    let mut waits: Vec<_> = lsns.iter().map(|&lsn| Box::pin(waiters.durable(lsn))).collect();
    let mut ready = || -> Vec<bool> {
        assert!(run.as_mut().poll(&mut context).is_pending());
        waits.iter_mut().map(|wait| wait.as_mut().poll(&mut context).is_ready()).collect()
    };
    assert_eq!(ready(), [false; 3]);
    gate.release_to(lsns[1]);
    assert_eq!(count.0.load(atomic::Ordering::Relaxed), 1, "the group's task is woken once");
    assert_eq!(ready(), [true, true, false]);
    gate.hold();
    let later = write(&journal, b"later");
    assert_eq!(journal.durable_lsn(), lsns[1]);
    gate.release();
    assert!(journal.is_durable(later));
    assert_eq!(ready(), [true; 3]);
    let after = write(&journal, b"after");
    assert!(journal.is_durable(after), "releasing is not undone");
}

#[test]
fn waits_on_a_local_journal_complete() {
    let data = TempDir::new().unwrap();
    let opened = open(data.path());
    let waiters = opened.journal.register();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let run = waiters.clone();
        tokio::spawn(async move { run.run().await });
        for turn in 0..200 {
            let lsn = write(&opened.journal, &record(turn, 50));
            let wait = waiters.durable(lsn);
            tokio::time::timeout(Duration::from_secs(30), wait).await.expect("a wake-up was lost");
        }
    });
}
