//! A combining queue: whoever finds it idle runs what everybody else has queued meanwhile.
//!
//! One counter decides. It counts the tasks that wait or run. Who raises it from 0 is the runner
//! and may run its own task at once, without queueing it; everybody else pushes first and counts
//! then. The runner takes off what it has done, and is done when that leaves 0. Each hand-over is
//! a read-modify-write of that one counter, so no task can be left behind: a push that was counted
//! before the runner took its share off is seen by it, and a later one finds 0 and runs itself.

use std::num::NonZeroUsize;

use crossbeam_queue::ArrayQueue;

use super::primitives::{AtomicUsize, Ordering};

/// Tasks of one owner at a time, in the order in which they were counted.
pub(super) struct CombiningQueue<T> {
    /// Tasks that wait or run.
    pending: AtomicUsize,
    tasks: ArrayQueue<T>,
}

/// The right to run tasks. Exactly one exists while any task is pending.
#[must_use = "the tasks that were queued meanwhile would wait for ever"]
pub(super) struct Turn<'a, T> {
    queue: &'a CombiningQueue<T>,
    /// Tasks that were run and are still counted.
    done: usize,
    /// Tasks that are counted, pushed and not yet run.
    waiting: usize,
}

/// What became of a task that was offered.
pub(super) enum Offered<'a, T> {
    /// Somebody else runs it.
    Queued,
    /// It is queued, and the caller runs it, and whatever else there is.
    Yours(Turn<'a, T>),
    /// There was no room; nothing has changed.
    Full(T),
}

impl<T> CombiningQueue<T> {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        Self { pending: AtomicUsize::new(0), tasks: ArrayQueue::new(capacity.get()) }
    }

    /// The turn, if nobody has it. The caller runs one task of its own before anything else.
    pub(super) fn try_turn(&self) -> Option<Turn<'_, T>> {
        self.pending.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Turn { queue: self, done: 1, waiting: 0 })
    }

    /// Queues a task for whoever has the turn.
    pub(super) fn offer(&self, task: T) -> Offered<'_, T> {
        if let Err(task) = self.tasks.push(task) {
            return Offered::Full(task);
        }
        match self.pending.fetch_add(1, Ordering::AcqRel) {
            0 => Offered::Yours(Turn { queue: self, done: 0, waiting: 1 }),
            _ => Offered::Queued,
        }
    }
}

impl<T> Turn<'_, T> {
    /// The next task; `None` when there is none left and the turn is over.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.waiting == 0 {
            let pending = self.queue.pending.fetch_sub(self.done, Ordering::AcqRel);
            self.waiting = pending - self.done;
            self.done = 0;
            if self.waiting == 0 {
                return None;
            }
        }
        self.waiting -= 1;
        self.done += 1;
        Some(self.queue.tasks.pop().expect("a task is pushed before it is counted"))
    }

    /// Leaves the turn without ending it: the tasks wait until somebody resumes it.
    pub(super) fn suspend(self) -> Suspended {
        Suspended { done: self.done, waiting: self.waiting }
    }
}

/// A turn that somebody must resume.
#[must_use = "the tasks that were queued meanwhile would wait for ever"]
pub(super) struct Suspended {
    done: usize,
    waiting: usize,
}

impl Suspended {
    /// Goes on with the turn of the queue that was suspended.
    pub(super) const fn resume<T>(self, queue: &CombiningQueue<T>) -> Turn<'_, T> {
        Turn { queue, done: self.done, waiting: self.waiting }
    }
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests {
    use super::*;

    fn queue(capacity: usize) -> CombiningQueue<u32> {
        CombiningQueue::new(NonZeroUsize::new(capacity).unwrap())
    }

    #[test]
    fn the_first_runs_its_own_and_what_came_meanwhile() {
        let queue = queue(4);
        let mut turn = queue.try_turn().unwrap();
        assert!(queue.try_turn().is_none());
        assert!(matches!(queue.offer(1), Offered::Queued));
        assert!(matches!(queue.offer(2), Offered::Queued));
        assert_eq!([turn.next(), turn.next(), turn.next()], [Some(1), Some(2), None]);
        assert!(queue.try_turn().is_some());
    }

    #[test]
    fn an_offer_to_an_idle_queue_is_the_callers_turn() {
        let queue = queue(4);
        let Offered::Yours(mut turn) = queue.offer(7) else { panic!("nobody has the turn") };
        assert_eq!([turn.next(), turn.next()], [Some(7), None]);
    }

    #[test]
    fn a_full_queue_gives_the_task_back() {
        let queue = queue(1);
        let mut turn = queue.try_turn().unwrap();
        assert!(matches!(queue.offer(1), Offered::Queued));
        assert!(matches!(queue.offer(2), Offered::Full(2)));
        assert_eq!([turn.next(), turn.next()], [Some(1), None]);
    }

    #[test]
    fn a_suspended_turn_goes_on() {
        let queue = queue(4);
        let turn = queue.try_turn().unwrap();
        assert!(matches!(queue.offer(1), Offered::Queued));
        let suspended = turn.suspend();
        assert!(matches!(queue.offer(2), Offered::Queued));
        let mut turn = suspended.resume(&queue);
        assert_eq!([turn.next(), turn.next(), turn.next()], [Some(1), Some(2), None]);
    }
}

#[cfg(all(test, paperbourse_loom))]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize as Count, Ordering::SeqCst};

    use super::*;

    /// Every task runs exactly once, and no two run at a time, however the threads interleave.
    #[test]
    fn every_task_runs_once_and_alone() {
        loom::model(|| {
            let shared = Arc::new((
                CombiningQueue::<u32>::new(NonZeroUsize::new(4).unwrap()),
                Count::new(0),
                Count::new(0),
            ));
            let run = |shared: &(CombiningQueue<u32>, Count, Count)| {
                let (queue, running, ran) = shared;
                let alone = || {
                    assert_eq!(running.fetch_add(1, SeqCst), 0, "two runners at a time");
                    ran.fetch_add(1, SeqCst);
                    running.fetch_sub(1, SeqCst);
                };
                let mut turn = if let Some(turn) = queue.try_turn() {
                    alone();
                    turn
                } else {
                    match queue.offer(1) {
                        Offered::Queued => return,
                        Offered::Yours(turn) => turn,
                        Offered::Full(_) => panic!("the queue holds all tasks"),
                    }
                };
                while turn.next().is_some() {
                    alone();
                }
            };
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || run(&shared))
                })
                .collect();
            run(&shared);
            for thread in threads {
                thread.join().unwrap();
            }
            assert_eq!(shared.2.load(SeqCst), 3, "a task was left behind");
        });
    }
}
