//! Loom model of the liveness guarantee: an awaited command gets its answer without any later
//! traffic. Shards, tickets, waits, the flush wake-up and the journal's thread are the real ones;
//! only the disk is simulated.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use loom::sync::{Condvar, Mutex};
use loom::thread;

use super::*;
use paperbourse_core::engine::command::{Identity, OpenAccount};
use paperbourse_store::disk::Disk;
use paperbourse_store::disk::simulated::SimulatedDisk;
use paperbourse_store::journal::{DataDirectory, JournalConfig, Steps};

/// The behaviour of a thread when none of its tasks can proceed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Idle {
    /// Calls [`Journal::tend`] and sleeps, like a worker.
    Tends,
    /// Sleeps, like the settler.
    Sleeps,
    /// Does nothing: it is always busy.
    Never,
}

/// Wakes a thread that runs tasks.
#[derive(Default)]
struct Alarm {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Alarm {
    fn sleep(&self) {
        let mut is_set = self.is_set.lock().unwrap();
        while !*is_set {
            is_set = self.changed.wait(is_set).unwrap();
        }
        *is_set = false;
    }
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        *self.is_set.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

/// Executes a command on a single-threaded runtime.
fn execute(shards: &Arc<Shards>, journal: &Journal, trader: u8, idle: Idle) {
    let waiters = journal.register();
    let alarm = Arc::new(Alarm::default());
    let waker = Waker::from(alarm.clone());
    let mut context = Context::from_waker(&waker);
    let mut run = pin!(waiters.run());
    // All threads use the same shard.
    let mut digest = [trader; 32];
    digest[0] = 0;
    let identity = Identity { digest, issuer: "model".into(), subject: "x".into() };
    let shard = identity.shard();
    let mut task = shards.execute(shard, OpenAccount(identity), &waiters);
    loop {
        assert!(run.as_mut().poll(&mut context).is_pending());
        if let Poll::Ready(answer) = Pin::new(&mut task).poll(&mut context) {
            assert!(answer.is_ok(), "{answer:?}");
            return;
        }
        match idle {
            Idle::Never => thread::yield_now(),
            Idle::Tends | Idle::Sleeps => {
                if idle == Idle::Tends {
                    journal.tend();
                }
                alarm.sleep();
            }
        }
    }
}

fn open() -> (Journal, Steps) {
    let config = JournalConfig {
        segment_bytes: 16 << 10,
        ring_bytes: 16 << 10,
        block_bytes_max: 8 << 10,
        record_bytes_max: 3000,
        ..JournalConfig::default()
    };
    let disk = Disk::Simulated(SimulatedDisk::new(1));
    let directory = DataDirectory::open(disk, "/data".as_ref()).unwrap();
    let replay = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
    let (journal, steps, _) = Journal::open_stepped(&directory, &config, replay).unwrap();
    (journal, steps)
}

/// Checks that no wake-up is lost. A lost wake-up leaves all threads asleep, which loom reports.
fn check(idle: [Idle; 2], preemptions_max: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions_max);
    builder.max_branches = 10_000;
    builder.check(move || {
        let (journal, steps) = open();
        let journal = Arc::new(journal);
        let shards = Arc::new(Shards::new(
            Recovered::default(),
            journal.clone(),
            Arc::new(Markets::new()),
            Rules::default(),
            Clock::Virtual(Arc::default()),
            Arc::default(),
            Box::new(|_: &Event, _: &State| {}),
        ));
        let threads = [0, 1].map(|number| {
            let (shards, journal) = (shards.clone(), journal.clone());
            thread::spawn(move || {
                let trader = u8::try_from(number).unwrap();
                execute(&shards, &journal, trader, idle[number]);
            })
        });
        drop((shards, journal));
        // Runs until the last thread drops the journal.
        steps.run().unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn an_awaited_record_is_flushed_although_no_thread_tends() {
    check([Idle::Sleeps, Idle::Sleeps], 2);
}

#[test]
fn an_awaited_record_is_flushed_beside_a_worker_that_tends() {
    check([Idle::Tends, Idle::Sleeps], 1);
}

#[test]
fn workers_that_tend_concurrently_leave_no_record_unflushed() {
    check([Idle::Tends, Idle::Tends], 1);
}

#[test]
fn an_awaited_record_is_flushed_beside_a_worker_that_is_never_idle() {
    check([Idle::Never, Idle::Sleeps], 2);
}
