//! The shards at work: engine and journal, nothing else.
//!
//! A task for a shard is run by whoever finds the shard idle; everybody else leaves theirs in its
//! queue and is served by the one at work. So there is one total order in each shard, no hop to
//! another thread when nobody else is there, and no thread ever waits for a lock.
//!
//! State runs ahead of the disk. Each answer comes with the place that it rests on, and nobody is
//! told before that place is durable: not a result, not a refusal, not a read.

mod core;
pub mod facts;
#[cfg(all(test, paperbourse_loom))]
mod model;
mod primitives;
mod queue;
mod ticket;

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;

use self::core::{Core, Surroundings};
use queue::{CombiningQueue, Offered, Suspended, Turn};
use ticket::Ticket;

use crate::clock::Clock;
use crate::engine::event::Event;
use crate::engine::rejection::Rejection;
use crate::engine::view::Observed;
use crate::engine::{Command, Rules, State};
use crate::faults::{self, Fault};
use crate::ids::{Place, ShardId};
use crate::journal::{DurableWait, Journal, Refused, Waiters};
use crate::market::Markets;
use crate::snapshot::Recovered;

/// Tasks that wait in one shard at a time; past it the answer is 503. Unit tests make shards all
/// the time, and most of that is the queues.
const QUEUE_CAPACITY: NonZeroUsize =
    NonZeroUsize::new(if cfg!(test) { 256 } else { 4096 }).expect("not 0");

/// A runner serves at most this many tasks of others before it lets its own thread go on.
const TASKS_PER_TURN_MAX: usize = 64;

/// Called with each event at once when it is applied, before it is on disk, and with the state
/// before its record. Meant for what has to keep the order of the shard: which keys are good.
pub type Observer = Box<dyn Fn(&Event, &State) + Send + Sync>;

/// Whether the process may take more memory. Whoever watches over it sets this.
#[derive(Default, Debug)]
pub struct Room {
    is_full: AtomicBool,
}

impl Room {
    /// From now on nothing is added, or things are added again.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether nothing may be added.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

type Task = Box<dyn FnOnce(&mut Core, &Surroundings) + Send>;

/// All shards.
pub struct Shards {
    shards: Box<[Shard]>,
    around: Surroundings,
}

struct Shard {
    queue: CombiningQueue<Task>,
    /// Locked by who has the queue's turn, so never contended.
    core: Mutex<Core>,
}

/// Waits until a task has run and its result is durable. Resolves to `None` if the queue was full.
///
/// A type of its own and not an `async fn`, because it is part of every request's future, which is
/// moved: this holds the result once, and the task not at all.
struct TaskWait<'w, T> {
    waiters: &'w Arc<Waiters>,
    state: TaskState<T>,
}

enum TaskState<T> {
    /// The thread that has the queue's turn runs it.
    Queued(Arc<Ticket<T>>),
    /// It has run; its record is on the way to the disk.
    Ran(T, DurableWait),
    /// The queue was full.
    Refused,
    /// The result was returned.
    Done,
}

/// Why a command has come to nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The engine refused it.
    #[error(transparent)]
    Rejected(Rejection),
    /// Too much is in flight: the same command may pass in a moment.
    #[error("the server is busy")]
    Busy,
    /// The journal has no room for it.
    #[error("the journal is full")]
    JournalFull,
    /// The process has no memory for what it adds.
    #[error("the server has no memory left")]
    ServerFull,
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Busy => Self::Busy,
            Refused::Full => Self::JournalFull,
        }
    }
}

impl Shards {
    /// Shards that go on from these states.
    pub fn new(
        recovered: Recovered,
        journal: Arc<Journal>,
        markets: Arc<Markets>,
        rules: Rules,
        clock: Clock,
        room: Arc<Room>,
        observer: Observer,
    ) -> Self {
        let shards = recovered
            .into_shards()
            .into_iter()
            .map(|shard| Shard {
                queue: CombiningQueue::new(QUEUE_CAPACITY),
                core: Mutex::new(Core::new(shard.state, shard.decided_at)),
            })
            .collect();
        Self { shards, around: Surroundings { journal, markets, rules, clock, room, observer } }
    }

    /// Executes a command, or leaves it in the queue, before this returns. Resolves when its answer
    /// is durable.
    pub fn execute<C>(
        self: &Arc<Self>,
        shard: ShardId,
        command: C,
        waiters: &Arc<Waiters>,
    ) -> impl Future<Output = Result<C::Answer, Refusal>> + Unpin
    where
        C: Command<Answer: Send> + Send + 'static,
    {
        let mut wait =
            self.enqueue(shard, waiters, move |core, around| core.execute(&command, around));
        // An `async` block would hold the wait twice.
        poll_fn(move |context| {
            Pin::new(&mut wait).poll(context).map(|answer| answer.unwrap_or(Err(Refusal::Busy)))
        })
    }

    /// Executes the commands of a batch one after the other, with one wait for all of them.
    pub async fn execute_all<C>(
        self: &Arc<Self>,
        shard: ShardId,
        commands: Vec<C>,
        waiters: &Arc<Waiters>,
    ) -> Result<Vec<Result<C::Answer, Refusal>>, Refusal>
    where
        C: Command<Answer: Send> + Send + 'static,
    {
        self.enqueue(shard, waiters, move |core, around| {
            let mut place = Place::START;
            let value = commands
                .iter()
                .map(|command| {
                    let observed = core.execute(command, around);
                    place = place.max(observed.place);
                    observed.value
                })
                .collect();
            Observed { value, place }
        })
        .await
        .ok_or(Refusal::Busy)
    }

    /// Reads a shard, in bounded work. Resolves when what was read is durable.
    pub async fn observe<T: Send + 'static>(
        self: &Arc<Self>,
        shard: ShardId,
        waiters: &Arc<Waiters>,
        read: impl FnOnce(&State) -> Observed<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let read = move |core: &mut Core, _: &Surroundings| {
            let mut observed = read(&core.state);
            if faults::is_on(Fault::ReadAnsweredEarly) {
                observed.place = Place::START;
            }
            observed
        };
        self.enqueue(shard, waiters, read).await.ok_or(Refusal::Busy)
    }

    /// Runs one task in a shard, or leaves it in the queue, before this returns: a task in the
    /// queue runs, whether or not the visit is polled.
    fn enqueue<'w, T: Send + 'static>(
        self: &Arc<Self>,
        shard_id: ShardId,
        waiters: &'w Arc<Waiters>,
        task: impl FnOnce(&mut Core, &Surroundings) -> Observed<T> + Send + 'static,
    ) -> TaskWait<'w, T> {
        let shard = &self.shards[shard_id.index()];
        if let Some(turn) = shard.queue.try_turn() {
            let observed = ending_on_panic(|| task(&mut shard.core.lock(), &self.around));
            self.serve(shard_id, turn);
            return TaskWait::ran(observed, waiters);
        }
        let ticket = Arc::new(Ticket::new(waiters.clone()));
        let filled = ticket.clone();
        let task: Task = Box::new(move |core, around| filled.fill(task(core, around)));
        match shard.queue.offer(task) {
            Offered::Full(_) => return TaskWait { waiters, state: TaskState::Refused },
            Offered::Queued => {}
            Offered::Yours(turn) => self.serve(shard_id, turn),
        }
        TaskWait { waiters, state: TaskState::Queued(ticket) }
    }

    /// Runs what is queued. Past a bound, the rest is left to a task of its own, so that the
    /// connections of this thread get their turn.
    fn serve(self: &Arc<Self>, shard_id: ShardId, mut turn: Turn<'_, Task>) {
        let shard = &self.shards[shard_id.index()];
        for _ in 0..TASKS_PER_TURN_MAX {
            let Some(task) = turn.next() else {
                return;
            };
            ending_on_panic(|| task(&mut shard.core.lock(), &self.around));
        }
        let rest = Rest { shards: self.clone(), shard_id, suspended: Some(turn.suspend()) };
        tokio::spawn(async move { rest.go_on() });
    }
}

impl<'w, T> TaskWait<'w, T> {
    fn ran(observed: Observed<T>, waiters: &'w Arc<Waiters>) -> Self {
        let wait = waiters.durable(observed.place);
        Self { waiters, state: TaskState::Ran(observed.value, wait) }
    }
}

/// Nothing in it is pinned.
impl<T> Unpin for TaskWait<'_, T> {}

impl<T> Future for TaskWait<'_, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        if let TaskState::Queued(ticket) = &this.state {
            let mut observed = ready!(ticket.poll(context));
            if faults::is_on(Fault::HandedOverAnsweredEarly) {
                observed.place = Place::START;
            }
            *this = Self::ran(observed, this.waiters);
        }
        if let TaskState::Ran(_, wait) = &mut this.state {
            ready!(Pin::new(wait).poll(context));
        }
        match std::mem::replace(&mut this.state, TaskState::Done) {
            TaskState::Ran(value, _) => Poll::Ready(Some(value)),
            TaskState::Refused => Poll::Ready(None),
            TaskState::Queued(_) | TaskState::Done => unreachable!("polled after it was done"),
        }
    }
}

/// What is left of a turn, on its way to a task of its own.
///
/// A runtime that ends drops its tasks without running them. Nobody could ever get the turn again,
/// and the commands of other threads would wait for ever: then the rest is run by the drop.
struct Rest {
    shards: Arc<Shards>,
    shard_id: ShardId,
    /// `None` once it goes on.
    suspended: Option<Suspended>,
}

impl Rest {
    fn go_on(mut self) {
        if let Some(suspended) = self.suspended.take() {
            let turn = suspended.resume(&self.shards.shards[self.shard_id.index()].queue);
            self.shards.serve(self.shard_id, turn);
        }
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        let Some(suspended) = self.suspended.take() else {
            return;
        };
        let shard = &self.shards.shards[self.shard_id.index()];
        let mut turn = suspended.resume(&shard.queue);
        while let Some(task) = turn.next() {
            ending_on_panic(|| task(&mut shard.core.lock(), &self.shards.around));
        }
    }
}

/// A panic while a shard runs leaves it half changed: the process ends, and recovery decides.
fn ending_on_panic<T>(run: impl FnOnce() -> T) -> T {
    struct EndOnPanic;
    impl Drop for EndOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let _end = EndOnPanic;
    run()
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
