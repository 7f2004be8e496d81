//! The journal without threads: only the steps do work.

use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

use super::*;
use crate::disk::simulated::SimulatedDisk;

fn open_stepped(directory: &DataDirectory) -> (Journal, Steps) {
    let replay = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
    let (journal, steps, _) = Journal::open_stepped(directory, &config(), replay).unwrap();
    (journal, steps)
}

#[test]
fn nothing_happens_between_steps() {
    let data = TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let (journal, mut steps) = open_stepped(&directory);
    assert!(!steps.flush().unwrap(), "nothing to flush");
    let mut written = Vec::new();
    loop {
        let record = record(written.len(), 900);
        match journal.reserve(record.len()) {
            Ok(reservation) => {
                let lsn = reservation.fill_from(&record);
                assert!(!journal.is_durable(lsn), "nothing was flushed");
                assert!(steps.flush().unwrap());
                assert!(journal.is_durable(lsn));
                written.push(record);
            }
            Err(refused) => {
                assert_eq!(refused, Refused::Busy, "the next segment is not made yet");
                break;
            }
        }
    }
    assert!(written.len() > 8, "a segment was filled: {}", written.len());
    assert!(!segment_path(data.path(), 2).exists(), "no other segment was made");
    assert!(steps.make_segment().unwrap());
    assert!(segment_path(data.path(), 2).exists());
    assert!(!steps.make_segment().unwrap(), "one segment is preallocated");
    written.push(record(99, 900));
    journal.reserve(900).unwrap().fill_from(&record(99, 900));
    assert!(steps.flush().unwrap());
    drop((journal, directory));
    assert_eq!(open(data.path()).bytes(), written);
}

/// Writes until no space is left. Returns how many segments the records went to.
fn fill(journal: &Journal, steps: &mut Steps) -> u64 {
    let first = journal.segment().unwrap();
    while let Ok(reservation) = journal.reserve(900) {
        reservation.fill_from(&record(1, 900));
        assert!(steps.flush().unwrap());
    }
    journal.segment().unwrap() - first
}

#[test]
fn more_segments_are_made_ahead_if_records_come_faster() {
    // The most that may be ahead, and how many are after each time that all are used up.
    for (segments_ahead_max, expected) in [(1, [1, 1, 1]), (3, [2, 3, 3]), (16, [2, 4, 8])] {
        let data = TempDir::new().unwrap();
        let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
        let config = JournalConfig { segments_ahead_max, ..config() };
        let replay = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
        let (journal, mut steps, _) = Journal::open_stepped(&directory, &config, replay).unwrap();
        // The writer is slow: one is enough.
        for _ in 0..3 {
            while steps.make_segment().unwrap() {}
            let first = journal.segment().unwrap();
            while journal.segment() == Some(first) {
                write(&journal, &record(1, 900));
                assert!(steps.flush().unwrap());
            }
            assert!(steps.make_segment().unwrap());
            assert!(!steps.make_segment().unwrap(), "one segment is preallocated");
        }
        let mut ahead = Vec::new();
        for _ in expected {
            fill(&journal, &mut steps);
            let mut made = 0;
            while steps.make_segment().unwrap() {
                made += 1;
            }
            ahead.push(made);
        }
        assert_eq!(ahead, expected, "{segments_ahead_max}");
        assert_eq!(fill(&journal, &mut steps), expected[2], "all of them can be written to");
    }
}

#[test]
fn a_full_disk_is_reported_once_no_segment_is_ready() {
    let simulated = SimulatedDisk::new(7);
    let disk = Disk::Simulated(simulated.clone());
    let directory = DataDirectory::open(disk, Path::new("/data")).unwrap();
    let config = JournalConfig { segments_ahead_max: 16, ..config() };
    let replay = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
    let (journal, mut steps, _) = Journal::open_stepped(&directory, &config, replay).unwrap();
    for _ in 0..2 {
        fill(&journal, &mut steps);
        while steps.make_segment().unwrap() {}
    }
    simulated.set_capacity(simulated.bytes());
    let first = journal.segment().unwrap();
    while journal.segment() == Some(first) {
        write(&journal, &record(1, 900));
        assert!(steps.flush().unwrap());
    }
    let operations = simulated.operations();
    assert!(!steps.make_segment().unwrap(), "the disk is full");
    assert!(simulated.operations() > operations, "it was tried");
    assert!(!journal.is_disk_full(), "three segments are ready");
    let operations = simulated.operations();
    assert!(!steps.make_segment().unwrap());
    assert_eq!(simulated.operations(), operations, "not tried again while some are ready");
    assert_eq!(fill(&journal, &mut steps), 3);
    assert!(!steps.make_segment().unwrap());
    assert!(journal.is_disk_full());
    assert!(matches!(journal.reserve(900), Err(Refused::Full)));

    simulated.set_capacity(u64::MAX);
    assert!(steps.make_segment().unwrap());
    assert!(!journal.is_disk_full());
    assert!(!steps.make_segment().unwrap(), "the records came no faster than before");
    fill(&journal, &mut steps);
    assert!(steps.make_segment().unwrap() && steps.make_segment().unwrap(), "now they do");
}

#[test]
fn a_tending_worker_flushes_records_itself() {
    let data = TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let (journal, mut steps) = open_stepped(&directory);
    let Journal::Local(local) = &journal else { unreachable!("the journal is on disk") };
    let newest_flush_us = &local.shared.newest_flush_us;
    let waiters = journal.register();
    let mut written = Vec::new();
    for seed in 0..5 {
        written.push(record(seed, 100));
        let lsn = write(&journal, &written[seed]);
        let mut wait = std::pin::pin!(waiters.durable(lsn));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending, "no worker has tended");
        // However slow this machine's disk is right now.
        newest_flush_us.store(0, Ordering::Relaxed);
        journal.tend();
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(()));
        assert!(!steps.flush().unwrap(), "nothing is left for the thread");
    }
    newest_flush_us.store(10_000, Ordering::Relaxed);
    written.push(record(5, 100));
    let lsn = write(&journal, &written[5]);
    journal.tend();
    assert!(!journal.is_durable(lsn), "a slow disk is left to the thread");
    assert!(steps.flush().unwrap());
    drop((journal, directory));
    assert_eq!(open(data.path()).bytes(), written);
}

/// Woken, it writes another record and flushes it, as another worker would.
struct WritesMore {
    journal: Journal,
    is_durable: Mutex<Option<bool>>,
}

impl Wake for WritesMore {
    fn wake(self: Arc<Self>) {
        let lsn = write(&self.journal, b"more");
        // However slow this machine's disk is right now.
        let Journal::Local(local) = &self.journal else { unreachable!() };
        local.shared.newest_flush_us.store(0, Ordering::Relaxed);
        self.journal.tend();
        *self.is_durable.lock() = Some(self.journal.is_durable(lsn));
    }
}

#[test]
fn others_flush_while_waiters_are_woken() {
    let data = TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let (journal, _steps) = open_stepped(&directory);
    let waiters = journal.register();
    let woken = Arc::new(WritesMore { journal, is_durable: Mutex::new(None) });
    let waker = Waker::from(woken.clone());
    let mut run = std::pin::pin!(waiters.run());
    assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let lsn = write(&woken.journal, b"first");
    waiters.wake_when_durable(lsn, Waker::noop().clone());
    woken.journal.tend();
    assert_eq!(*woken.is_durable.lock(), Some(true));
}
