//! Flushes the journal for a worker that has run out of requests.
//!
//! A flush of many records takes little longer than a flush of one. So before a worker flushes, it
//! polls its sockets once more and runs the requests that have arrived: their records share the
//! flush. It repeats this while requests arrive, up to [`POLLS_MAX`] times.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::task::yield_now;

use paperbourse_store::journal::Waiters;

/// Maximum number of times that a worker polls its sockets before a flush.
const POLLS_MAX: usize = 8;

/// The flushes of one worker. Only this worker's thread uses it.
#[derive(Default)]
pub(super) struct IdleFlush {
    due: Notify,
    /// The number of waits that this worker had begun at its last flush.
    flushed_waits: AtomicU64,
}

impl IdleFlush {
    /// Wakes the task that flushes if a request has begun to wait since the worker's last flush.
    /// Returns false otherwise: then polling the sockets is not worthwhile.
    pub(super) fn begin(&self, waiters: &Waiters) -> bool {
        let is_due = waiters.waits_ever() != self.flushed_waits.load(Ordering::Relaxed);
        if is_due {
            self.due.notify_one();
        }
        is_due
    }

    /// Flushes each time after [`Self::begin`] has returned true. Never returns.
    pub(super) async fn run(&self, waiters: &Waiters, flush: impl Fn()) {
        loop {
            self.due.notified().await;
            for _ in 0..POLLS_MAX {
                let before = waiters.waits_ever();
                // The runtime polls its sockets before it continues a task that has yielded.
                yield_now().await;
                if waiters.waits_ever() == before {
                    break;
                }
            }
            self.flushed_waits.store(waiters.waits_ever(), Ordering::Relaxed);
            flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::sync::Arc;

    use paperbourse_core::ids::Lsn;
    use paperbourse_store::journal::{Journal, JournalConfig, MemoryJournal};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;
    use tokio::task::LocalSet;

    use super::*;

    fn begin_wait(waiters: &Arc<Waiters>) {
        drop(waiters.durable(Lsn::START));
    }

    /// Runs a worker whose requests arrive on sockets: each request begins a wait and then sends
    /// the next one, so every poll of the sockets brings one request. Returns how many waits had
    /// begun at each flush, and at the end.
    fn flushes(request_count: usize) -> (Vec<u64>, u64) {
        let waiters = Journal::from(MemoryJournal::new(&JournalConfig::default())).register();
        let idle_flush = Arc::new(IdleFlush::default());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .on_thread_park({
                let (idle_flush, waiters) = (idle_flush.clone(), waiters.clone());
                move || {
                    idle_flush.begin(&waiters);
                }
            })
            .build()
            .unwrap();
        let seen = Rc::new(RefCell::new(Vec::new()));
        let flushed = Rc::new(Notify::new());
        LocalSet::new().block_on(&runtime, async {
            tokio::task::spawn_local({
                let (seen, flushed, waiters) = (seen.clone(), flushed.clone(), waiters.clone());
                async move {
                    let flush = || {
                        seen.borrow_mut().push(waiters.waits_ever());
                        flushed.notify_one();
                    };
                    idle_flush.run(&waiters, flush).await;
                }
            });
            let (mut client, mut server) = UnixStream::pair().unwrap();
            for _ in 0..request_count {
                client.write_all(b"r").await.unwrap();
                // A read that does not fill its buffer empties the socket: the runtime has to poll
                // it for the next.
                assert_eq!(server.read(&mut [0; 2]).await.unwrap(), 1);
                begin_wait(&waiters);
            }
            while seen.borrow().last() != Some(&waiters.waits_ever()) {
                flushed.notified().await;
            }
        });
        (seen.take(), waiters.waits_ever())
    }

    #[test]
    fn requests_that_arrive_before_a_flush_share_it() {
        assert_eq!(flushes(3), (vec![3], 3));
    }

    #[test]
    fn a_flush_comes_however_many_requests_arrive() {
        let (seen, waits) = flushes(100);
        let mut before = 0;
        for flushed in seen {
            // One request before the first poll, and one when the task is woken.
            assert!(flushed - before <= POLLS_MAX as u64 + 2, "{before} to {flushed}");
            before = flushed;
        }
        assert_eq!(before, waits);
    }

    #[test]
    fn a_worker_polls_again_only_for_new_waits() {
        let waiters = Journal::from(MemoryJournal::new(&JournalConfig::default())).register();
        let idle_flush = IdleFlush::default();
        assert!(!idle_flush.begin(&waiters));
        begin_wait(&waiters);
        assert!(idle_flush.begin(&waiters));
        idle_flush.flushed_waits.store(waiters.waits_ever(), Ordering::Relaxed);
        assert!(!idle_flush.begin(&waiters));
    }
}
