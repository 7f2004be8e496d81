//! A record reaches the disk even if no worker helps.

use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use parking_lot::Mutex;

use super::*;

/// A record that is not flushed by then never will be.
const PATIENCE: Duration = Duration::from_secs(30);

/// How a thread that never tends waits for a record.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Polled,
    HandedOver,
    Nobody,
}

#[test]
fn a_record_is_flushed_without_a_tending_worker() {
    let data = TempDir::new().unwrap();
    let journal = open(data.path()).journal;
    let waiters = journal.register();
    for wait in [Wait::Polled, Wait::HandedOver, Wait::Nobody] {
        // While records come in, the journal's thread would find this one by itself.
        let started = Instant::now();
        while !journal.progress().wakeup.is_asleep() {
            assert!(started.elapsed() < PATIENCE, "{wait:?}: the journal's thread never sleeps");
            std::thread::yield_now();
        }
        let lsn = write(&journal, b"left alone");
        let mut context = Context::from_waker(Waker::noop());
        let mut polled = std::pin::pin!(waiters.durable(lsn));
        match wait {
            Wait::Polled => drop(polled.as_mut().poll(&mut context)),
            Wait::HandedOver => waiters.wake_when_durable(lsn, Waker::noop().clone()),
            Wait::Nobody => {}
        }
        let started = Instant::now();
        while !journal.is_durable(lsn) {
            assert!(started.elapsed() < PATIENCE, "{wait:?}: the record is never flushed");
            std::thread::yield_now();
        }
    }
}

/// Holds a reference to a journal. When woken, it waits until this is the last one, and drops it.
struct LastReference {
    journal: Mutex<Option<Arc<Journal>>>,
    is_last: Mutex<mpsc::Receiver<()>>,
    gone: mpsc::Sender<()>,
}

impl Wake for LastReference {
    fn wake(self: Arc<Self>) {
        self.is_last.lock().recv().unwrap();
        drop(self.journal.lock().take());
        self.gone.send(()).unwrap();
    }
}

/// A task woken by a flush may hold the last reference to the journal.
#[test]
fn the_journals_own_thread_may_drop_the_last_reference() {
    let data = TempDir::new().unwrap();
    let journal = Arc::new(open(data.path()).journal);
    let waiters = journal.register();
    let (release, is_last) = mpsc::channel();
    let (gone, is_gone) = mpsc::channel();
    let held = Mutex::new(Some(journal.clone()));
    let waker = Arc::new(LastReference { journal: held, is_last: Mutex::new(is_last), gone });
    let waker = Waker::from(waker);
    let mut run = std::pin::pin!(waiters.run());
    assert_eq!(run.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending);
    let lsn = write(&journal, b"last");
    waiters.wake_when_durable(lsn, Waker::noop().clone());
    drop(journal);
    release.send(()).unwrap();
    is_gone.recv_timeout(PATIENCE).expect("the journal's thread is waiting for itself");
    // The lock is released once everything is on disk.
    let started = Instant::now();
    let reopened = loop {
        match try_open(data.path()) {
            Ok(opened) => break opened,
            Err(error) => assert!(started.elapsed() < PATIENCE, "never released: {error}"),
        }
        std::thread::yield_now();
    };
    assert_eq!(reopened.bytes(), [b"last"]);
}
