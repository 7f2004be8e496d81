//! Runs commands and reads on the shards: connects the engine to the journal.
//!
//! A thread that finds a shard idle runs its own task at once. Other threads queue theirs, and the
//! running thread executes them too. So each shard has one total order, an uncontended task needs
//! no thread switch, and no thread ever waits for a lock.
//!
//! State runs ahead of the disk. Each answer, whether a result, a refusal or a read, carries the
//! LSN of the newest record it depends on, and is withheld until that LSN is durable.

mod core;
mod delayed;
pub mod facts;
mod fills;
mod footprint;
mod limits;
mod matching;
#[cfg(all(test, paperbourse_loom))]
mod model;
mod news;
mod primitives;
mod queue;
mod ticket;

use std::future::poll_fn;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;

use self::core::{Core, Environment};
pub use delayed::DelayedOrders;
use fills::FillFollowers;
pub use fills::{FOLLOWERS_MAX, FillFollower, FillSignal};
pub use limits::OpenOrderBoard;
use matching::Unmatched;
use queue::{CombiningQueue, Offered, Suspended, Turn};
use ticket::Ticket;

#[cfg(feature = "traces")]
use crate::trace::{self, Stage};
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::engine::{Command, Rules, State};
use paperbourse_core::faults::{self, Fault};
use paperbourse_core::ids::{Lsn, ShardId};
use paperbourse_core::market::Markets;
use paperbourse_store::journal::{DurableWait, Journal, Refused, Waiters};
use paperbourse_store::snapshot::Recovered;

/// Maximum number of tasks queued in one shard; further tasks are refused as busy. Queues are
/// shorter in unit tests, because they are most of the cost of creating shards, which unit tests do
/// often.
const QUEUE_CAPACITY: NonZeroUsize =
    NonZeroUsize::new(if cfg!(test) { 256 } else { 4096 }).expect("not 0");

/// Maximum number of queued tasks that a thread runs before it returns to its own work.
const TASKS_PER_TURN_MAX: usize = 64;

/// Called with each event as it is applied, before the event is on disk, and with the state before
/// the event's record. Used for data that must follow the shard's order, such as which keys are
/// valid.
pub type Observer = Box<dyn Fn(&Event, &State) + Send + Sync>;

/// Whether the process may use more memory, as set by the memory watch.
#[derive(Default, Debug)]
pub struct Room {
    is_full: AtomicBool,
    is_short: AtomicBool,
    limit_bytes: Option<u64>,
}

impl Room {
    /// Creates the room of a process with this memory limit, in bytes; `None` for no limit.
    pub fn limited(limit_bytes: Option<u64>) -> Self {
        Self { limit_bytes, ..Self::default() }
    }

    /// Returns the memory limit, in bytes.
    pub const fn limit_bytes(&self) -> Option<u64> {
        self.limit_bytes
    }

    /// Sets whether commands that need memory are refused.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Sets whether new sockets and price streams are refused. They are refused before commands
    /// are, so that the last of the memory is kept for trades.
    pub fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }

    /// Whether there is memory for another socket or price stream.
    pub fn has_room_for_readers(&self) -> bool {
        !self.is_short.load(Ordering::Relaxed)
    }

    /// Whether commands that need memory are refused.
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

type Task = Box<dyn FnOnce(&mut Core, &Environment) + Send>;

/// All shards.
pub struct Shards {
    shards: Box<[Shard]>,
    environment: Environment,
}

struct Shard {
    queue: CombiningQueue<Task>,
    /// Locked only by the thread that has the queue's turn, so it is never contended.
    core: Mutex<Core>,
    /// Number of times that a thread has run the maximum number of tasks and passed the turn on.
    /// While the queue stays full, this grows as long as the shard makes progress.
    passed_on: AtomicUsize,
    /// The value of `passed_on` when [`Shards::when_it_progresses`] last looked.
    seen: AtomicUsize,
}

/// Waits until a task has run and its result is durable. Resolves to `None` if the queue was full.
///
/// This is not an `async fn`, because it is part of every request's future, which gets moved: this
/// type stores the result once and the task not at all.
struct TaskWait<'w, T> {
    waiters: &'w Arc<Waiters>,
    state: TaskState<T>,
}

enum TaskState<T> {
    /// The task is queued for the thread that has the turn.
    Queued(Arc<Ticket<T>>),
    /// The task has run, and its record may not be durable yet.
    Ran(T, DurableWait),
    /// The queue was full.
    Refused,
    /// The result was returned.
    Done,
}

/// The reason why a command was refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The engine rejected the command.
    #[error(transparent)]
    Rejected(Rejection),
    /// Too many commands are in flight; a retry may succeed shortly.
    #[error("the server is busy")]
    Busy,
    /// The journal has no room for the command's record.
    #[error("the journal is full")]
    JournalFull,
    /// The command would add to the state, and the process has no memory left.
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
    /// Creates shards that continue from the recovered states.
    pub fn new(
        recovered: Recovered,
        journal: Arc<Journal>,
        markets: Arc<Markets>,
        rules: Rules,
        clock: Clock,
        room: Arc<Room>,
        observer: Observer,
    ) -> Self {
        let account_count = recovered.states().map(|state| state.accounts().len()).sum();
        let environment = Environment {
            journal,
            markets,
            rules,
            clock,
            room,
            observer,
            account_count: AtomicUsize::new(account_count),
            open_orders: OpenOrderBoard::default(),
            unmatched: Unmatched::default(),
            delayed_orders: DelayedOrders::default(),
            fill_followers: FillFollowers::default(),
            subscribers: Mutex::default(),
        };
        let shards = recovered
            .into_shards()
            .into_iter()
            .map(|shard| {
                let mut core = Core::new(shard.state, shard.decided_at);
                core.publish_limits(&environment);
                Shard {
                    queue: CombiningQueue::new(QUEUE_CAPACITY),
                    core: Mutex::new(core),
                    passed_on: AtomicUsize::new(0),
                    seen: AtomicUsize::new(0),
                }
            })
            .collect();
        Self { shards, environment }
    }

    /// Returns the number of accounts.
    pub fn account_count(&self) -> usize {
        self.environment.account_count.load(Ordering::Relaxed)
    }

    /// Returns the memory watch's verdict on whether the process may use more memory.
    pub fn room(&self) -> &Room {
        &self.environment.room
    }

    /// Executes a command at once, or queues it. The future resolves when the answer is durable;
    /// the command runs even if the future is dropped.
    pub fn execute<C>(
        self: &Arc<Self>,
        shard: ShardId,
        command: C,
        waiters: &Arc<Waiters>,
    ) -> impl Future<Output = Result<C::Answer, Refusal>> + Unpin
    where
        C: Command<Answer: Send> + Send + 'static,
    {
        let mut wait = self
            .enqueue(shard, waiters, move |core, environment| core.execute(&command, environment));
        // An `async` block would hold the wait twice.
        poll_fn(move |context| {
            Pin::new(&mut wait).poll(context).map(|answer| answer.unwrap_or(Err(Refusal::Busy)))
        })
    }

    /// Executes the commands of a batch in sequence, with a single wait for the disk.
    pub async fn execute_all<C>(
        self: &Arc<Self>,
        shard: ShardId,
        commands: Vec<C>,
        waiters: &Arc<Waiters>,
    ) -> Result<Vec<Result<C::Answer, Refusal>>, Refusal>
    where
        C: Command<Answer: Send> + Send + 'static,
    {
        self.enqueue(shard, waiters, move |core, environment| {
            let mut lsn = Lsn::START;
            let value = commands
                .iter()
                .map(|command| {
                    let observed = core.execute(command, environment);
                    lsn = lsn.max(observed.lsn);
                    observed.value
                })
                .collect();
            Observed { value, lsn }
        })
        .await
        .ok_or(Refusal::Busy)
    }

    /// Reads a shard. Resolves once the state that was read is durable. `read` must do bounded
    /// work.
    pub async fn observe<T: Send + 'static>(
        self: &Arc<Self>,
        shard: ShardId,
        waiters: &Arc<Waiters>,
        read: impl FnOnce(&State) -> Observed<T> + Send + 'static,
    ) -> Result<T, Refusal> {
        let read = move |core: &mut Core, _: &Environment| {
            let mut observed = read(&core.state);
            if faults::is_on(Fault::ReadAnsweredEarly) {
                observed.lsn = Lsn::START;
            }
            observed
        };
        self.enqueue(shard, waiters, read).await.ok_or(Refusal::Busy)
    }

    /// Runs a task at once, or queues it. A queued task runs whether or not the returned wait is
    /// polled.
    fn enqueue<'w, T: Send + 'static>(
        self: &Arc<Self>,
        shard_id: ShardId,
        waiters: &'w Arc<Waiters>,
        task: impl FnOnce(&mut Core, &Environment) -> Observed<T> + Send + 'static,
    ) -> TaskWait<'w, T> {
        #[cfg(feature = "traces")]
        let task = {
            let waiting = trace::start(Stage::Queue);
            move |core: &mut Core, environment: &Environment| {
                let deciding = waiting.then(Stage::Decision);
                let observed = task(core, environment);
                deciding.then_wait_for(observed.lsn.position());
                observed
            }
        };
        let shard = &self.shards[shard_id.index()];
        if let Some(turn) = shard.queue.try_turn() {
            let observed = abort_on_panic(|| task(&mut shard.core.lock(), &self.environment));
            self.serve(shard_id, turn);
            return TaskWait::ran(observed, waiters);
        }
        let ticket = Arc::new(Ticket::new(waiters.clone()));
        let filled = ticket.clone();
        let task: Task = Box::new(move |core, environment| filled.fill(task(core, environment)));
        match shard.queue.offer(task) {
            Offered::Full(_) => return TaskWait { waiters, state: TaskState::Refused },
            Offered::Queued => {}
            Offered::Turn(turn) => self.serve(shard_id, turn),
        }
        TaskWait { waiters, state: TaskState::Queued(ticket) }
    }

    /// Runs or queues a task without waiting for its result. Returns false if the queue is full.
    fn post(
        self: &Arc<Self>,
        shard_id: ShardId,
        task: impl FnOnce(&mut Core, &Environment) + Send + 'static,
    ) -> bool {
        let shard = &self.shards[shard_id.index()];
        if let Some(turn) = shard.queue.try_turn() {
            abort_on_panic(|| task(&mut shard.core.lock(), &self.environment));
            self.serve(shard_id, turn);
            return true;
        }
        match shard.queue.offer(Box::new(task)) {
            Offered::Full(_) => return false,
            Offered::Queued => {}
            Offered::Turn(turn) => self.serve(shard_id, turn),
        }
        true
    }

    /// Runs or queues a task whose only purpose is to report that the shard makes progress. If the
    /// queue is full, runs the task at once if the shard has made progress since the last call, and
    /// otherwise drops it.
    pub fn when_it_progresses(
        self: &Arc<Self>,
        shard_id: ShardId,
        task: impl FnOnce() + Clone + Send + 'static,
    ) {
        let shard = &self.shards[shard_id.index()];
        let passed_on = shard.passed_on.load(Ordering::Relaxed);
        let has_progressed = shard.seen.swap(passed_on, Ordering::Relaxed) != passed_on;
        let queued = task.clone();
        if !self.post(shard_id, |_, _| queued()) && has_progressed {
            task();
        }
    }

    /// Runs the queued tasks. After [`TASKS_PER_TURN_MAX`] of them, the rest moves to a runtime
    /// task of its own, so that this thread's connections are not starved.
    fn serve(self: &Arc<Self>, shard_id: ShardId, mut turn: Turn<'_, Task>) {
        let shard = &self.shards[shard_id.index()];
        for _ in 0..TASKS_PER_TURN_MAX {
            let Some(task) = turn.next() else {
                return;
            };
            abort_on_panic(|| task(&mut shard.core.lock(), &self.environment));
        }
        shard.passed_on.fetch_add(1, Ordering::Relaxed);
        let rest = Rest { shards: self.clone(), shard_id, suspended: Some(turn.suspend()) };
        tokio::spawn(async move { rest.resume() });
    }
}

impl<'w, T> TaskWait<'w, T> {
    fn ran(observed: Observed<T>, waiters: &'w Arc<Waiters>) -> Self {
        let wait = waiters.durable(observed.lsn);
        Self { waiters, state: TaskState::Ran(observed.value, wait) }
    }
}

/// No field is structurally pinned.
impl<T> Unpin for TaskWait<'_, T> {}

impl<T> Future for TaskWait<'_, T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        if let TaskState::Queued(ticket) = &this.state {
            let mut observed = ready!(ticket.poll(context));
            if faults::is_on(Fault::HandedOverAnsweredEarly) {
                observed.lsn = Lsn::START;
            }
            *this = Self::ran(observed, this.waiters);
        }
        if let TaskState::Ran(_, wait) = &mut this.state {
            ready!(Pin::new(&mut *wait).poll(context));
            #[cfg(feature = "traces")]
            trace::durable(wait.lsn().position());
        }
        match std::mem::replace(&mut this.state, TaskState::Done) {
            TaskState::Ran(value, _) => Poll::Ready(Some(value)),
            TaskState::Refused => Poll::Ready(None),
            TaskState::Queued(_) | TaskState::Done => unreachable!("polled after completion"),
        }
    }
}

/// The rest of a turn, which continues in a runtime task of its own.
///
/// A runtime that shuts down drops its tasks without running them. The turn would then be lost, and
/// the commands of other threads would wait forever, so dropping this value runs the rest.
struct Rest {
    shards: Arc<Shards>,
    shard_id: ShardId,
    /// `None` once the turn is resumed.
    suspended: Option<Suspended>,
}

impl Rest {
    fn resume(mut self) {
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
            abort_on_panic(|| task(&mut shard.core.lock(), &self.shards.environment));
            shard.passed_on.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Aborts the process if `run` panics: the shard's state may be half changed, so it must be
/// recovered from the journal.
fn abort_on_panic<T>(run: impl FnOnce() -> T) -> T {
    struct AbortOnPanic;
    impl Drop for AbortOnPanic {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let _guard = AbortOnPanic;
    run()
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
