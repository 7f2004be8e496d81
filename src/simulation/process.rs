//! One single-threaded server process, which runs only when called and ends when dropped.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Runtime;

use super::clients::{Clients, Request, SHARDS};
use super::command::Done;
use super::history::History;
use super::markets::{self, MARKETS};
use super::paused_runtime;
use super::resting::venue::RESTING_MARKETS;
use crate::clock::Clock;
use crate::disk::DiskError;
use crate::disk::simulated::random::Random;
use crate::engine::Rules;
use crate::engine::account::Account;
use crate::engine::command::{CancelOrder, CancelOrders, Owner};
use crate::engine::comment::Comment;
use crate::engine::key::Key;
use crate::engine::market::payout::Decision;
use crate::engine::order::cancel::{Cancelled, CancelledOrders};
use crate::engine::order::place::Placed;
use crate::engine::order::receipt::OrderReceipt;
use crate::engine::state::view::{AccountPage, Observed};
use crate::ids::{Lsn, ShardId, Timestamp};
use crate::journal::{Journal, Steps, Waiters};
use crate::market::Markets;
use crate::service::matcher::Matcher;
use crate::service::settlement::{Decisions, Settler};
use crate::shard::{Refusal, Room, Shards};
use crate::snapshot::Recovered;
use crate::venue::feed::{Feed, MismatchPolicy};
use crate::venue::{VenueChange, VenueEvent};

/// The answer to a request.
pub(super) enum Answer {
    Orders(Vec<Result<Placed, Refusal>>),
    Command(Result<Done, Refusal>),
    Account(Option<AccountPage>),
    Order(Option<OrderReceipt>),
    Comments(Option<Vec<Comment>>),
    Keys(Option<Vec<Key>>),
    Placed(Result<Placed, Refusal>),
    Cancelled(Result<Cancelled, Refusal>),
    CancelledAll(Result<CancelledOrders, Refusal>),
    /// Nothing was executed or read: too many requests are in flight.
    Busy,
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request, with observations of its shard just before and just after it is decided.
struct Prepared {
    request: Request,
    before: Waiting<Noted>,
    future: Waiting<Answer>,
    after: Waiting<Noted>,
}

/// A request in flight.
pub(super) struct Pending {
    pub(super) request: Request,
    pub(super) noted: Noted,
    future: Waiting<Answer>,
}

/// The state of a shard just before or after a request was decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Noted {
    pub(super) shard: ShardId,
    pub(super) sequence: u64,
    /// Whether the newest record of the shard belongs to this request.
    pub(super) is_write: bool,
    /// Number of orders of the request's trader.
    pub(super) order_count: u64,
    /// The clock's time, and the number of clock jumps so far.
    pub(super) shown: Timestamp,
    pub(super) jumps: u64,
    hash: u64,
}

/// Time by which the settler's clock advances before each poll.
const SETTLER_STEP: Duration = Duration::from_millis(100);

pub(super) struct Process {
    /// The requests in flight. Declared first, so that they are dropped before the shards.
    pending: VecDeque<Pending>,
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    pub(super) journal: Arc<Journal>,
    steps: Steps,
    clock: Clock,
    /// Number of clock jumps so far.
    pub(super) jumps: u64,
    pub(super) markets: Arc<Markets>,
    settler: Pin<Box<dyn Future<Output = ()>>>,
    /// Publishes the books of the markets in which orders rest.
    feed: Feed,
    matcher: Matcher,
    /// Decisions on delayed orders that may not be on disk yet.
    deciding: Vec<Waiting<()>>,
    /// Runs only the settler, with a paused clock.
    runtime: Runtime,
}

impl Process {
    pub(super) fn new(
        recovered: Recovered,
        (journal, steps): (Journal, Steps),
        resolved: &Range<usize>,
        rules: Rules,
        clock: Clock,
        history: Arc<Mutex<History>>,
    ) -> Self {
        let journal = Arc::new(journal);
        let decisions = Decisions::of(recovered.states());
        let decided = decisions.made.values();
        let decided = decided.map(|it| (it.condition_id.clone(), it.payouts.clone()));
        let markets = Arc::new(Markets::remembering(decided));
        markets::list(&markets, resolved);
        let room = Arc::<Room>::default();
        let observer = Box::new(move |_: &_, state: &_| history.lock().note(state));
        let (catalogue, shown) = (markets.clone(), clock.clone());
        let shards =
            Shards::new(recovered, journal.clone(), catalogue, rules, shown, room, observer);
        let (shards, waiters) = (Arc::new(shards), journal.register());
        let settler = Settler::new(markets.clone(), shards.clone(), &journal, decisions.unpaid);
        let settler = Box::pin(settler.work());
        let feed = Feed::new(markets.clone(), MismatchPolicy::Count);
        let matcher = Matcher::new(markets.clone(), shards.clone(), clock.clone());
        let runtime = paused_runtime();
        let pending = VecDeque::new();
        Self {
            pending,
            shards,
            waiters,
            journal,
            steps,
            clock,
            jumps: 0,
            markets,
            settler,
            feed,
            matcher,
            deciding: Vec::new(),
            runtime,
        }
    }

    /// Publishes a change that the venue reports.
    pub(super) fn publish(&mut self, change: VenueChange) {
        self.feed.apply(VenueEvent { at: self.clock.now(), change });
    }

    /// Matches resting orders with the books that may fill them.
    pub(super) fn match_orders(&mut self, history: &Arc<Mutex<History>>) {
        loop {
            let crossings = pin!(self.markets.crossings());
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(crossings) = crossings.poll(&mut context) else { break };
            for crossing in crossings {
                self.matcher.take(&crossing);
            }
        }
        self.note_states(history);
    }

    /// Ends orders that are due, and retries matches that were refused.
    pub(super) fn tick(&mut self, history: &Arc<Mutex<History>>) {
        self.matcher.tick();
        self.note_states(history);
    }

    /// Decides the delayed orders, as if their wait were over.
    pub(super) fn decide_delayed(&mut self, history: &Arc<Mutex<History>>) {
        let due = self.shards.delayed_orders().take_all();
        let mut deciding: Waiting<()> =
            Box::pin(self.shards.clone().decide_all(due, self.waiters.clone()));
        if poll(&mut deciding).is_pending() {
            self.deciding.push(deciding);
        }
        self.note_states(history);
    }

    /// Records the newest state of every shard that may change without a request.
    fn note_states(&self, history: &Arc<Mutex<History>>) {
        let ids = MARKETS.iter().map(|market| market.id).chain(RESTING_MARKETS);
        let shards = SHARDS.map(|shard| ShardId::new(shard).expect("a shard"));
        for shard in ids.map(Decision::home).chain(shards) {
            poll_ready(&mut self.peek(shard, [0; 32], history.clone()));
        }
    }

    /// Decides a request, whose answer is delivered once it is durable. Fails if a refused request
    /// changed the state.
    pub(super) fn submit(
        &mut self,
        request: Request,
        clients: &mut Clients,
        history: &Arc<Mutex<History>>,
    ) -> Result<(), String> {
        let mut prepared = self.prepare(request, clients, history);
        let before = poll_ready(&mut prepared.before);
        let answer = poll(&mut prepared.future);
        let noted = poll_ready(&mut prepared.after);
        self.enqueue(prepared, before, noted, answer)
    }

    /// Decides requests that arrive for one shard while another thread holds the shard's turn: they
    /// are queued, and that thread runs them.
    pub(super) fn submit_together(
        &mut self,
        requests: Vec<Request>,
        clients: &mut Clients,
        history: &Arc<Mutex<History>>,
    ) -> Result<(), String> {
        let Some(first) = requests.first() else { return Ok(()) };
        let (shard, _) = first.about(clients);
        let mut prepared: Vec<Prepared> =
            requests.into_iter().map(|it| self.prepare(it, clients, history)).collect();
        let blocker = self.shards.observe(shard, &self.waiters, move |_| {
            for Prepared { before, future, after, .. } in &mut prepared {
                assert!(poll(before).is_pending(), "the shard is busy");
                assert!(poll(future).is_pending(), "the shard is busy");
                assert!(poll(after).is_pending(), "the shard is busy");
            }
            Observed { value: prepared, lsn: Lsn::START }
        });
        let Poll::Ready(Ok(prepared)) = pin!(blocker).poll(&mut Context::from_waker(Waker::noop()))
        else {
            unreachable!("the shard is idle, and the read waits for no record");
        };
        for mut prepared in prepared {
            let before = poll_ready(&mut prepared.before);
            let noted = poll_ready(&mut prepared.after);
            let answer = poll(&mut prepared.future);
            self.enqueue(prepared, before, noted, answer)?;
        }
        Ok(())
    }

    /// Prepares a request and the observations before and after it. Nothing happens until they are
    /// polled.
    fn prepare(
        &self,
        request: Request,
        clients: &mut Clients,
        history: &Arc<Mutex<History>>,
    ) -> Prepared {
        let (shard, trader) = request.about(clients);
        let digest = clients.traders[trader].identity.digest;
        let before = self.peek(shard, digest, history.clone());
        let future = self.begin(&request, shard, clients);
        let after = self.peek(shard, digest, history.clone());
        Prepared { request, before, future, after }
    }

    /// Queues a request until its answer can be delivered.
    fn enqueue(
        &mut self,
        prepared: Prepared,
        before: Noted,
        noted: Noted,
        answer: Poll<Answer>,
    ) -> Result<(), String> {
        let Prepared { request, mut future, .. } = prepared;
        if let Poll::Ready(answer) = answer {
            let is_refused = match &answer {
                Answer::Orders(answers) => answers.iter().all(Result::is_err),
                Answer::Command(answer) => answer.is_err(),
                Answer::Placed(answer) => answer.is_err(),
                Answer::Cancelled(answer) => answer.is_err(),
                Answer::CancelledAll(answer) => answer.is_err(),
                _ => true,
            };
            if is_refused && noted != before {
                return Err(format!("{request:?} was refused but changed {before:?} to {noted:?}"));
            }
            future = Box::pin(std::future::ready(answer));
        }
        let is_write = noted.sequence > before.sequence;
        self.pending.push_back(Pending { request, noted: Noted { is_write, ..noted }, future });
        Ok(())
    }

    /// Polls the settler this many times, advancing its clock before each poll.
    pub(super) fn settle(&mut self, polls: usize, history: &Arc<Mutex<History>>) {
        let Self { settler, runtime, .. } = self;
        runtime.block_on(async {
            for _ in 0..polls {
                tokio::time::advance(SETTLER_STEP).await;
                let polled = poll_fn(|context| Poll::Ready(settler.as_mut().poll(context))).await;
                assert!(polled.is_pending(), "the settler never returns");
            }
        });
        self.note_states(history);
    }

    /// Drops a random request in flight, as if its client had stopped waiting.
    pub(super) fn give_up(&mut self, random: &mut Random) -> Option<Request> {
        let count = self.pending.len();
        if count == 0 {
            return None;
        }
        self.pending.remove(random.below(count)).map(|pending| pending.request)
    }

    fn begin(&self, request: &Request, shard: ShardId, clients: &mut Clients) -> Waiting<Answer> {
        let (shards, waiters) = (self.shards.clone(), self.waiters.clone());
        let account_of = |trader: usize| clients.traders[trader].account;
        match *request {
            Request::Trade(ref numbers) => {
                let mut commands: Vec<_> =
                    numbers.iter().map(|&number| clients.trade(number)).collect();
                Box::pin(async move {
                    if commands.len() == 1 {
                        let command = commands.remove(0);
                        let answer = shards.execute(shard, command, &waiters).await;
                        return Answer::Orders(vec![answer]);
                    }
                    let answers = shards.execute_all(shard, commands, &waiters).await;
                    answers.map_or(Answer::Busy, Answer::Orders)
                })
            }
            Request::ReadAccount { trader } => {
                let account = account_of(trader).expect("the trader has an account");
                Box::pin(async move {
                    let read = shards
                        .observe(shard, &waiters, move |state| state.observe_account(account, 0));
                    read.await.map_or(Answer::Busy, Answer::Account)
                })
            }
            Request::Place(number) => {
                let identity =
                    clients.traders[clients.resting.orders[number].trader].identity.clone();
                let command = clients.resting.command(number, Owner::Identity(identity));
                Box::pin(async move {
                    let placed = shards.execute(shard, command, &waiters).await;
                    Answer::Placed(match placed {
                        Ok(Placed { receipt, is_replay }) if receipt.is_delayed() => {
                            let outcome = shards.delayed_outcome(&receipt, &waiters).await;
                            outcome.map(|receipt| Placed { receipt, is_replay })
                        }
                        placed => placed,
                    })
                })
            }
            Request::Cancel { trader, order } => {
                let account = account_of(trader).expect("the trader has an account");
                let command = CancelOrder { account, order };
                Box::pin(async move {
                    Answer::Cancelled(shards.execute(shard, command, &waiters).await)
                })
            }
            Request::CancelAll { trader, .. } => {
                let account = account_of(trader).expect("the trader has an account");
                let command =
                    CancelOrders { account, market_id: None, token_id: None, after: None };
                Box::pin(async move {
                    Answer::CancelledAll(shards.execute(shard, command, &waiters).await)
                })
            }
            Request::ReadOrder { trader, order } | Request::ReadResting { trader, order } => {
                let account = account_of(trader).expect("the trader has an account");
                Box::pin(async move {
                    let read = shards
                        .observe(shard, &waiters, move |state| state.observe_order(account, order));
                    read.await.map_or(Answer::Busy, Answer::Order)
                })
            }
            Request::ReadComments { order } => Box::pin(async move {
                let read = shards
                    .observe(shard, &waiters, move |state| state.observe_comments(order, 0, 200));
                read.await.map_or(Answer::Busy, Answer::Comments)
            }),
            Request::ReadKeys { trader } => {
                let account = account_of(trader).expect("the trader has an account");
                Box::pin(async move {
                    let read =
                        shards.observe(shard, &waiters, move |state| state.observe_keys(account));
                    read.await.map_or(Answer::Busy, Answer::Keys)
                })
            }
            _ => {
                let (shard, command) = clients.command(request).expect("the others are commands");
                Box::pin(
                    async move { Answer::Command(command.execute(&shards, shard, &waiters).await) },
                )
            }
        }
    }

    /// Observes a shard without waiting for the disk, which no client can do.
    fn peek(
        &self,
        shard: ShardId,
        digest: [u8; 32],
        history: Arc<Mutex<History>>,
    ) -> Waiting<Noted> {
        let (shards, waiters) = (self.shards.clone(), self.waiters.clone());
        let (clock, jumps) = (self.clock.clone(), self.jumps);
        Box::pin(async move {
            let observation = shards.observe(shard, &waiters, move |state| {
                // The observer sees the state before each event, so the newest state is noted here.
                history.lock().note(state);
                let account = state.account_of(&digest);
                let noted = Noted {
                    shard: state.shard(),
                    sequence: state.sequence(),
                    is_write: false,
                    order_count: account.map_or(0, Account::order_count_ever),
                    shown: clock.now(),
                    jumps,
                    hash: state.hash().get(),
                };
                Observed { value: noted, lsn: Lsn::START }
            });
            observation.await.expect("there is room in the queue")
        })
    }

    /// Returns the first answer that can be delivered, in the order of the requests.
    pub(super) fn next_answer(&mut self) -> Option<(Pending, Answer)> {
        self.deciding.retain_mut(|deciding| poll(deciding).is_pending());
        for index in 0..self.pending.len() {
            if let Poll::Ready(answer) = poll(&mut self.pending[index].future) {
                let pending = self.pending.remove(index).expect("it is one of them");
                return Some((pending, answer));
            }
        }
        None
    }

    /// Writes records to disk. Returns false if there were none.
    pub(super) fn flush(&mut self) -> Result<bool, DiskError> {
        self.steps.flush()
    }

    pub(super) fn make_segment(&mut self) -> Result<bool, DiskError> {
        self.steps.make_segment()
    }

    /// Whether every request has been answered.
    pub(super) fn has_answered_all(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether all unanswered requests are waiting for delayed orders to be decided.
    pub(super) fn waits_only_for_delayed_orders(&self, clients: &Clients) -> bool {
        self.pending.iter().all(|pending| {
            let Request::Place(number) = pending.request else { return false };
            let order = clients.resting.orders[number].clone();
            let identity = &clients.traders[order.trader].identity;
            let (shard, digest) = (identity.shard(), identity.digest);
            let is_delayed = self.shards.observe(shard, &self.waiters, move |state| {
                let row = order.row_in(state, &digest);
                let value = row.is_some_and(|row| row.delay.is_some());
                Observed { value, lsn: Lsn::START }
            });
            let Poll::Ready(is_delayed) =
                pin!(is_delayed).poll(&mut Context::from_waker(Waker::noop()))
            else {
                unreachable!("the shard is idle, and the read waits for no record");
            };
            is_delayed.expect("there is room in the queue")
        })
    }

    /// Ends the process and returns the requests that remain unanswered.
    pub(super) fn into_unanswered(self) -> impl Iterator<Item = Request> {
        self.pending.into_iter().map(|pending| pending.request)
    }
}

fn poll<T>(future: &mut Waiting<T>) -> Poll<T> {
    future.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// Returns the result of a future that must be ready.
fn poll_ready<T>(future: &mut Waiting<T>) -> T {
    match poll(future) {
        Poll::Ready(value) => value,
        Poll::Pending => unreachable!("the shard is idle, and the read waits for no record"),
    }
}
