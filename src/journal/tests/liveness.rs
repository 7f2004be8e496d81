//! A record reaches the disk without anybody's help.

use std::task::{Context, Waker};
use std::time::Instant;

use super::*;

/// A journal that has not flushed a record by then never will.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a thread that never tends can wait for a record.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Polled,
    HandedOver,
    Nobody,
}

#[test]
fn a_record_is_flushed_although_nobody_tends() {
    let data = TempDir::new().unwrap();
    let journal = open(data.path()).journal;
    let waiters = journal.register();
    // Again and again: the journal's thread may be awake for another reason.
    for wait in [Wait::Polled, Wait::HandedOver, Wait::Nobody].repeat(10) {
        let place = write(&journal, b"left alone");
        let mut context = Context::from_waker(Waker::noop());
        let mut polled = std::pin::pin!(waiters.durable(place));
        match wait {
            // It may be on disk already.
            Wait::Polled => drop(polled.as_mut().poll(&mut context)),
            Wait::HandedOver => waiters.wake_when_durable(place, Waker::noop().clone()),
            Wait::Nobody => {}
        }
        let started = Instant::now();
        while !journal.is_durable(place) {
            assert!(started.elapsed() < PATIENCE, "{wait:?}: it is never flushed");
            std::thread::yield_now();
        }
    }
}
