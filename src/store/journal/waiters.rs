//! Waiting until an LSN (log sequence number) is on disk.
//!
//! A flush covers the records of many commands, whose tasks belong to a few workers. The thread
//! that flushed wakes each worker's group once; the group's own task then wakes that worker's other
//! tasks, on the worker's thread. Several threads may be waking groups at a time, each for its own
//! flush.
//!
//! No wake-up is lost: the journal publishes the durable position and then checks each group under
//! its lock; a waiter checks the position under the same lock and then enters the group. Whichever
//! takes the lock second sees the other's update.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Condvar;
use smallvec::SmallVec;
use tokio::sync::Notify;

use super::Lsn;
use super::primitives::{AtomicU64, Mutex, RwLock};
use super::wakeup::FlushWakeup;

/// Maximum number of groups at a time, one for each worker thread.
pub const WAITER_GROUPS_MAX: usize = 1024;

/// Tasks woken per acquisition of a group's lock.
const WOKEN_AT_ONCE: usize = 64;

/// The durable position of a log, and everything that waits for it to advance.
pub(super) struct Progress {
    log: u8,
    /// Wakes the thread that flushes.
    pub(super) wakeup: FlushWakeup,
    durable: AtomicU64,
    /// Changes only when a group is registered.
    groups: RwLock<Vec<Weak<Waiters>>>,
    blocked: parking_lot::Mutex<()>,
    advanced: Condvar,
}

impl Progress {
    /// Creates the progress of a log that is durable up to `durable`.
    pub(super) fn new(log: u8, durable: u64) -> Self {
        Self {
            log,
            wakeup: FlushWakeup::default(),
            durable: AtomicU64::new(durable),
            groups: RwLock::new(Vec::new()),
            blocked: parking_lot::Mutex::new(()),
            advanced: Condvar::new(),
        }
    }

    pub(super) fn lsn(&self, position: u64) -> Lsn {
        Lsn { log: self.log, position }
    }

    pub(super) fn durable_lsn(&self) -> Lsn {
        self.lsn(self.durable.load(Ordering::Acquire))
    }

    pub(super) fn is_durable(&self, lsn: Lsn) -> bool {
        debug_assert!(lsn.log == self.log || lsn == Lsn::START, "{lsn:?} of another log");
        lsn.position <= self.durable.load(Ordering::Acquire)
    }

    /// Advances the durable position and wakes the waiters that it covers. Only one thread at a
    /// time may call this.
    pub(super) fn publish(&self, position: u64) {
        self.advance(position);
        self.wake();
    }

    /// Advances the durable position. Only one thread at a time may call this. The caller must then
    /// call [`Self::wake`], which several threads may do at a time.
    pub(super) fn advance(&self, position: u64) {
        debug_assert!(position >= self.durable.load(Ordering::Relaxed));
        self.durable.store(position, Ordering::Release);
    }

    /// Wakes all waiters whose LSNs are durable.
    pub(super) fn wake(&self) {
        let position = self.durable.load(Ordering::Acquire);
        for group in self.groups.read().iter().filter_map(Weak::upgrade) {
            group.notify_up_to(position);
        }
        // A thread in `wait_blocking` has either not checked yet or is waiting on the condition.
        drop(self.blocked.lock());
        self.advanced.notify_all();
    }

    pub(super) fn wait_blocking(&self, lsn: Lsn) {
        self.wakeup.request();
        let mut blocked = self.blocked.lock();
        while !self.is_durable(lsn) {
            self.advanced.wait(&mut blocked);
        }
    }

    pub(super) fn register(self: &Arc<Self>) -> Arc<Waiters> {
        let group = Arc::new(Waiters {
            progress: self.clone(),
            waiting: Mutex::new(Waiting::default()),
            due: Notify::new(),
            asked: std::sync::atomic::AtomicU64::new(0),
            #[cfg(feature = "cluster")]
            first_asked: std::sync::atomic::AtomicU64::new(0),
            waits_ever: std::sync::atomic::AtomicU64::new(0),
        });
        let mut groups = self.groups.write();
        // Dropped groups must not count towards the maximum.
        groups.retain(|group| group.strong_count() > 0);
        assert!(groups.len() < WAITER_GROUPS_MAX, "more than {WAITER_GROUPS_MAX} waiter groups");
        groups.push(Arc::downgrade(&group));
        group
    }
}

/// The waiting tasks of one worker.
///
/// Holds one entry for each pending [`DurableWait`] and one for each registered waker not yet
/// woken; both are bounded by the number of commands in flight.
pub struct Waiters {
    progress: Arc<Progress>,
    waiting: Mutex<Waiting>,
    due: Notify,
    /// See [`Self::take_asked`]. Only this worker's thread uses it, so the model checker need not
    /// track it.
    asked: std::sync::atomic::AtomicU64,
    /// See [`Self::first_asked`].
    #[cfg(feature = "cluster")]
    first_asked: std::sync::atomic::AtomicU64,
    /// See [`Self::waits_ever`].
    waits_ever: std::sync::atomic::AtomicU64,
}

#[derive(Default)]
struct Waiting {
    /// Keyed by position and a unique number, since many tasks may wait for the same position.
    wakers: BTreeMap<(u64, u64), Waker>,
    entries_ever: u64,
}

impl Waiting {
    fn enter(&mut self, position: u64, waker: Waker) -> u64 {
        self.entries_ever += 1;
        self.wakers.insert((position, self.entries_ever), waker);
        self.entries_ever
    }
}

impl Waiters {
    /// Waits until the record at `lsn` is on disk. The worker must be running [`Self::run`].
    pub fn durable(self: &Arc<Self>, lsn: Lsn) -> DurableWait {
        self.asked.store(lsn.position, std::sync::atomic::Ordering::Relaxed);
        let waits_ever = self.waits_ever() + 1;
        self.waits_ever.store(waits_ever, std::sync::atomic::Ordering::Relaxed);
        #[cfg(feature = "cluster")]
        if self.first_asked() == 0 {
            self.first_asked.store(lsn.position, std::sync::atomic::Ordering::Relaxed);
        }
        DurableWait { waiters: self.clone(), lsn, entry: None }
    }

    /// Returns the number of times that this worker has begun to wait for an LSN.
    pub fn waits_ever(&self) -> u64 {
        self.waits_ever.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the position of the newest wait since the last call, or 0 if there was no wait.
    pub fn take_asked(&self) -> u64 {
        #[cfg(feature = "cluster")]
        self.first_asked.store(0, std::sync::atomic::Ordering::Relaxed);
        self.asked.swap(0, std::sync::atomic::Ordering::Relaxed)
    }

    /// Returns the position of the first wait since the last call of [`Self::take_asked`], or 0 if
    /// there was no wait.
    #[cfg(feature = "cluster")]
    pub fn first_asked(&self) -> u64 {
        self.first_asked.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Wakes a task of this worker once the record at `lsn` is on disk, or at once if it already
    /// is.
    pub fn wake_when_durable(&self, lsn: Lsn, waker: Waker) {
        let mut waiting = self.waiting.lock();
        if self.progress.is_durable(lsn) {
            drop(waiting);
            waker.wake();
        } else {
            waiting.enter(lsn.position, waker);
        }
    }

    /// Wakes this worker's tasks as their LSNs become durable. Never returns. Each worker spawns
    /// this once on its own runtime.
    pub async fn run(&self) {
        loop {
            self.due.notified().await;
            self.wake_up_to(self.progress.durable_lsn().position);
        }
    }

    /// Wakes the group's own task if a wait is due. Called once `position` is published.
    fn notify_up_to(&self, position: u64) {
        let first = self.waiting.lock().wakers.first_key_value().map(|(&(first, _), _)| first);
        if first.is_some_and(|first| first <= position) {
            self.due.notify_one();
        }
    }

    fn wake_up_to(&self, position: u64) {
        loop {
            let mut due: SmallVec<[Waker; WOKEN_AT_ONCE]> = SmallVec::new();
            let mut waiting = self.waiting.lock();
            while due.len() < WOKEN_AT_ONCE
                && let Some(entry) = waiting.wakers.first_entry()
                && entry.key().0 <= position
            {
                due.push(entry.remove());
            }
            drop(waiting);
            let is_last = due.len() < WOKEN_AT_ONCE;
            // Waking may drop a task, and with it a wait of this group: never do it under the lock.
            due.into_iter().for_each(Waker::wake);
            if is_last {
                return;
            }
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.waiting.lock().wakers.len()
    }
}

/// Completes once the record with an LSN is on disk. Dropping the wait earlier removes its entry
/// from the group.
#[must_use = "a wait does nothing unless it is awaited"]
pub struct DurableWait {
    waiters: Arc<Waiters>,
    lsn: Lsn,
    entry: Option<u64>,
}

impl DurableWait {
    /// Returns the LSN that this waits for.
    #[cfg(feature = "traces")]
    pub const fn lsn(&self) -> Lsn {
        self.lsn
    }

    fn leave(&mut self) {
        if let Some(entry) = self.entry.take() {
            let left = self.waiters.waiting.lock().wakers.remove(&(self.lsn.position, entry));
            drop(left);
        }
    }
}

impl Future for DurableWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if this.waiters.progress.is_durable(this.lsn) {
            this.leave();
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let mut waiting = this.waiters.waiting.lock();
        // Check again under the lock: `wake` may have run in between, without finding an entry
        // here.
        if this.waiters.progress.is_durable(this.lsn) {
            drop(waiting);
            this.leave();
            return Poll::Ready(());
        }
        let position = this.lsn.position;
        if let Some(entry) = this.entry {
            let replaced = waiting.wakers.insert((position, entry), waker);
            // Drop the old waker outside the lock: that may drop another wait of this group.
            drop(waiting);
            drop(replaced);
        } else {
            this.entry = Some(waiting.enter(position, waker));
        }
        Poll::Pending
    }
}

impl Drop for DurableWait {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    /// A waker that counts how often it is woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn is_ready(future: Pin<&mut impl Future>, count: &Arc<Count>) -> bool {
        let waker = count.clone().into();
        future.poll(&mut Context::from_waker(&waker)).is_ready()
    }

    fn group() -> (Arc<Progress>, Arc<Waiters>) {
        let progress = Arc::new(Progress::new(0, 0));
        let waiters = progress.register();
        (progress, waiters)
    }

    #[test]
    fn a_flush_wakes_the_group_once_and_the_group_wakes_covered_tasks() {
        let (progress, waiters) = group();
        let completer = Arc::new(Count::default());
        let mut run = pin!(waiters.run());
        assert!(!is_ready(run.as_mut(), &completer));
        let counts: Vec<_> = (0..200).map(|_| Arc::new(Count::default())).collect();
        let mut waits: Vec<_> =
            (1..=200).map(|position| Box::pin(waiters.durable(progress.lsn(position)))).collect();
        for (wait, count) in waits.iter_mut().zip(&counts) {
            assert!(!is_ready(wait.as_mut(), count));
        }
        progress.publish(150);
        assert_eq!(completer.get(), 1);
        assert_eq!(counts[0].get(), 0, "the group's own task wakes them");
        assert!(!is_ready(run.as_mut(), &completer));
        for (index, (wait, count)) in waits.iter_mut().zip(&counts).enumerate() {
            assert_eq!(count.get(), usize::from(index < 150));
            assert_eq!(is_ready(wait.as_mut(), count), index < 150);
        }
        assert_eq!(waiters.len(), 50);
        progress.publish(150);
        assert_eq!(completer.get(), 1, "nobody is due");
    }

    #[test]
    fn a_dropped_wait_leaves_no_entry() {
        let (progress, waiters) = group();
        let count = Arc::new(Count::default());
        for _ in 0..3 {
            let mut wait = pin!(waiters.durable(progress.lsn(1)));
            assert!(!is_ready(wait.as_mut(), &count));
            assert!(!is_ready(wait.as_mut(), &count), "polled twice, entered once");
            assert_eq!(waiters.len(), 1);
            wait.set(waiters.durable(progress.lsn(2)));
            assert_eq!(waiters.len(), 0);
        }
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn a_wait_completed_by_a_second_poll_leaves_no_entry() {
        let (progress, waiters) = group();
        let count = Arc::new(Count::default());
        let mut wait = pin!(waiters.durable(progress.lsn(1)));
        assert!(!is_ready(wait.as_mut(), &count));
        progress.publish(1);
        assert!(is_ready(wait.as_mut(), &count), "a poll sees it without a wake-up");
        assert_eq!(waiters.len(), 0);
    }

    #[test]
    fn a_registered_waker_is_woken_once() {
        let (progress, waiters) = group();
        let early = Arc::new(Count::default());
        waiters.wake_when_durable(progress.lsn(3), early.clone().into());
        progress.publish(3);
        waiters.wake_up_to(3);
        waiters.wake_up_to(3);
        let late = Arc::new(Count::default());
        waiters.wake_when_durable(progress.lsn(3), late.clone().into());
        waiters.wake_when_durable(Lsn::START, late.clone().into());
        assert_eq!((early.get(), late.get(), waiters.len()), (1, 2, 0));
    }

    #[test]
    fn dropping_a_waker_may_drop_a_wait_of_the_same_group() {
        struct Task(
            #[expect(dead_code, reason = "held only to be dropped")]
            parking_lot::Mutex<Option<DurableWait>>,
        );
        impl Wake for Task {
            fn wake(self: Arc<Self>) {}
        }
        let (progress, waiters) = group();
        let mut inner = waiters.durable(progress.lsn(9));
        assert!(!is_ready(Pin::new(&mut inner), &Arc::default()));
        let task = Arc::new(Task(parking_lot::Mutex::new(Some(inner))));
        waiters.wake_when_durable(progress.lsn(1), task.into());
        progress.publish(1);
        waiters.wake_up_to(1);
        assert_eq!(waiters.len(), 0);
    }

    #[test]
    fn dropped_groups_are_removed() {
        let progress = Arc::new(Progress::new(0, 0));
        for _ in 0..3 * WAITER_GROUPS_MAX {
            drop(progress.register());
        }
        assert!(progress.groups.read().len() <= 1);
    }

    #[test]
    #[should_panic(expected = "more than 1024 waiter groups")]
    fn groups_are_bounded() {
        let progress = Arc::new(Progress::new(0, 0));
        let _kept: Vec<_> = (0..=WAITER_GROUPS_MAX).map(|_| progress.register()).collect();
    }

    #[test]
    fn no_wake_up_is_lost_while_waits_race_with_flushes() {
        const ROUNDS: u64 = 2000;
        let (progress, waiters) = group();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        std::thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel();
            scope.spawn({
                let progress = &progress;
                move || receiver.iter().for_each(|position| progress.publish(position))
            });
            runtime.block_on(async {
                let waiters = waiters.clone();
                let completer = {
                    let waiters = waiters.clone();
                    tokio::spawn(async move { waiters.run().await })
                };
                for position in 1..=ROUNDS {
                    sender.send(position).unwrap();
                    waiters.durable(progress.lsn(position)).await;
                }
                completer.abort();
            });
            drop(sender);
        });
        progress.wait_blocking(progress.lsn(ROUNDS));
    }
}
