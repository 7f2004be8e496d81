//! A combining queue: the thread that finds the queue idle also runs the tasks that other threads
//! queue in the meantime.
//!
//! One counter holds the number of tasks that are waiting or running. The thread that raises the
//! counter from 0 is the runner, and may run its own task at once without queueing it. Every other
//! thread pushes its task first and then counts it. The runner subtracts the tasks that it has run,
//! and stops when that leaves 0. Every hand-over is a read-modify-write of this one counter, so no
//! task is left behind: the runner sees each push that was counted before its subtraction, and a
//! thread that pushes later finds 0 and becomes the runner.

use std::num::NonZeroUsize;

use crossbeam_queue::ArrayQueue;

use super::primitives::{AtomicUsize, Ordering};

/// A queue of tasks that run one at a time, in the order in which they were pushed.
pub(super) struct CombiningQueue<T> {
    /// Number of tasks that are waiting or running.
    pending: AtomicUsize,
    tasks: ArrayQueue<T>,
}

/// The right to run tasks. Exactly one exists while any task is pending.
#[must_use = "dropping a turn leaves the queued tasks waiting for ever"]
pub(super) struct Turn<'a, T> {
    queue: &'a CombiningQueue<T>,
    /// Number of tasks that have run but are still included in the count.
    done: usize,
    /// Number of tasks that are pushed and counted but have not run.
    waiting: usize,
}

/// The outcome of [`CombiningQueue::offer`].
pub(super) enum Offered<'a, T> {
    /// Another thread has the turn and will run the task.
    Queued,
    /// The task is queued and the caller has the turn: it must run all queued tasks.
    Turn(Turn<'a, T>),
    /// The queue is full; nothing has changed.
    Full(T),
}

impl<T> CombiningQueue<T> {
    pub(super) fn new(capacity: NonZeroUsize) -> Self {
        Self { pending: AtomicUsize::new(0), tasks: ArrayQueue::new(capacity.get()) }
    }

    /// Takes the turn, if no thread has it. The caller must first run one task of its own.
    pub(super) fn try_turn(&self) -> Option<Turn<'_, T>> {
        self.pending.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(Turn { queue: self, done: 1, waiting: 0 })
    }

    /// Queues a task for the thread that has the turn.
    pub(super) fn offer(&self, task: T) -> Offered<'_, T> {
        if let Err(task) = self.tasks.push(task) {
            return Offered::Full(task);
        }
        match self.pending.fetch_add(1, Ordering::AcqRel) {
            0 => Offered::Turn(Turn { queue: self, done: 0, waiting: 1 }),
            _ => Offered::Queued,
        }
    }
}

impl<T> Turn<'_, T> {
    /// Returns the next task, or `None` if there is none left, which ends the turn.
    pub(super) fn next(&mut self) -> Option<T> {
        if self.waiting == 0 {
            let pending = self.queue.pending.fetch_sub(self.done, Ordering::AcqRel);
            debug_assert!(pending >= self.done, "a task is counted until it has run");
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

    /// Pauses the turn without ending it: queued tasks wait until the turn is resumed.
    pub(super) fn suspend(self) -> Suspended {
        Suspended { done: self.done, waiting: self.waiting }
    }
}

/// A suspended turn, which must be resumed.
#[must_use = "dropping a turn leaves the queued tasks waiting for ever"]
pub(super) struct Suspended {
    done: usize,
    waiting: usize,
}

impl Suspended {
    /// Resumes the turn; `queue` must be the one it was taken from.
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
    fn the_runner_runs_its_own_task_and_those_queued_meanwhile() {
        let queue = queue(4);
        let mut turn = queue.try_turn().unwrap();
        assert!(queue.try_turn().is_none());
        assert!(matches!(queue.offer(1), Offered::Queued));
        assert!(matches!(queue.offer(2), Offered::Queued));
        assert_eq!([turn.next(), turn.next(), turn.next()], [Some(1), Some(2), None]);
        assert!(queue.try_turn().is_some());
    }

    #[test]
    fn an_offer_to_an_idle_queue_takes_the_turn() {
        let queue = queue(4);
        let Offered::Turn(mut turn) = queue.offer(7) else { panic!("the queue was idle") };
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
    fn a_suspended_turn_can_be_resumed() {
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
                        Offered::Turn(turn) => turn,
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
