//! A node from start to end: the work of `server::member` and `http::handle`, without their sockets
//! and threads.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::line::Line;
use crate::clock::Clock;
use crate::cluster::OpenLog;
use crate::cluster::folder::Membership;
use crate::cluster::lease::Lease;
use crate::cluster::metrics::LogMetrics;
use crate::cluster::seat::{Seat, SeatLost};
use crate::cluster::standby::{MayTake, Taken, stand_by};
use crate::disk::Disk;
use crate::engine::command::Trade;
use crate::engine::order::receipt::OrderReceipt;
use crate::engine::state::view::AccountPage;
use crate::engine::{Rules, State};
use crate::ids::{AccountId, ShardId};
use crate::journal::replicated::NodeName;
use crate::journal::replicated::test_util::Level;
use crate::journal::{Journal, Steps, Waiters};
use crate::market::Markets;
use crate::server::{Entry, RELEASE_TIME_MAX, require_whole};
use crate::shard::{Refusal, Shards};
use crate::simulation::markets;
use crate::simulation::small::{DATA, Uninterrupted, journal_config, snapshot_config};
use crate::snapshot::{Opened, Upkeep, open_stepped};

/// Interval at which an idle owner checks whether a segment must be created.
const IDLE: Duration = Duration::from_millis(50);

/// A request of a client.
#[derive(Clone, Debug)]
pub(super) enum Request {
    Order { shard: ShardId, trade: Box<Trade> },
    Read { account: AccountId },
}

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    Done(OrderReceipt),
    Page(Option<AccountPage>),
    /// Nothing was executed or read.
    NotReady,
    Refused(Refusal),
}

/// The world's instructions to a node, and its view of the node.
#[derive(Default)]
pub(super) struct Port {
    pub(super) answers: RefCell<Vec<(u64, Answer)>>,
    /// Whether the node was told to end.
    is_leaving: Level,
    /// Whether to take the log at the next check, regardless of its owner.
    pub(super) takes_anyway: Cell<bool>,
    /// If the node has taken the log since the world last checked: its epoch, and whether the log
    /// had no owner.
    pub(super) took: Cell<Option<(u64, bool)>>,
    /// The position of the newest record on the node's disk.
    pub(super) position: Cell<u64>,
    serving: RefCell<Option<Rc<Serving>>>,
    /// Notified when a record is written to the journal.
    record: Notify,
}

impl Port {
    pub(super) fn leave(&self) {
        self.is_leaving.change(|_| 1);
    }
}

/// The parts of an owner that answer requests.
struct Serving {
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    lease: Arc<Lease>,
    has_given_up: Level,
}

pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) log: OpenLog<Line>,
    pub(super) disk: Disk,
    pub(super) clock: Clock,
    pub(super) port: Port,
}

thread_local! {
    /// The reason why the running process must end, if any.
    static LOST: RefCell<Option<SeatLost>> = const { RefCell::new(None) };
}

/// Takes the reason why the process that has just run had to end, if any.
pub(super) fn take_lost() -> Option<SeatLost> {
    LOST.take()
}

/// Ends the process: nothing it does afterwards counts.
fn end(lost: &SeatLost) -> ! {
    LOST.set(Some(lost.clone()));
    resume_unwind(Box::new("the process has ended"))
}

impl Node {
    /// Follows the log, owns it, and serves until it is told to leave.
    pub(super) async fn live(self: Rc<Self>) -> anyhow::Result<()> {
        let data = Path::new(DATA);
        let (opened, steps) = open_stepped(self.disk.clone(), data, &journal_config())?;
        let Opened { journal, mut recovered, folder, .. } = opened;
        let upkeep = Upkeep::new(folder.clone(), snapshot_config(), Arc::default());
        let (journal, steps) = (Arc::new(journal), RefCell::new(steps));
        let position = journal.newest_lsn().position;
        let entry =
            Entry { node: &self.name, log: &self.log, disk: &self.disk, folder: &folder, position };
        let (reader, membership) = entry.enter(|| ()).await?;
        let mut copied = position;
        let copy = |position: u64, record: &[u8]| {
            if position > copied {
                recovered.replay(position, record, &|_, _| ())?;
                append(&journal, &mut steps.borrow_mut(), record)?;
                copied = position;
            }
            anyhow::Ok(())
        };
        let owned_epoch = Some(membership.owned_epoch).filter(|&epoch| epoch > 0);
        let mut failure = None;
        let looked = |_| {
            failure = steps.borrow_mut().flush().err().or(failure.take());
            self.port.position.set(journal.durable_lsn().position());
            match (is_set(self.port.is_leaving.get()), self.port.takes_anyway.take()) {
                (true, _) => MayTake::No,
                (false, true) => MayTake::Anyway,
                (false, false) => MayTake::Yes,
            }
        };
        let taken = tokio::select! {
            biased;
            taken = stand_by(reader, &self.name, owned_epoch, copy, looked) => taken?,
            () = self.port.is_leaving.until(is_set) => return Ok(()),
        };
        anyhow::ensure!(failure.is_none(), "the disk of a standby fails without a reason");
        require_whole(&taken.owner, &journal, &recovered)?;
        while steps.borrow_mut().flush()? {}
        let Taken { owner, was_free, .. } = &taken;
        let epoch = owner.epoch();
        self.port.took.set(Some((epoch, *was_free)));
        let metrics = Arc::new(LogMetrics::new("simulated".to_owned()));
        let seat = Arc::new(Seat::new(taken, metrics, Handle::current(), end));
        journal.put_behind(seat.clone());
        Membership { owned_epoch: epoch, ..membership }.write(&self.disk, data)?;
        let markets = Arc::new(Markets::new());
        markets::list(&markets, &(0..0));
        let serving = Rc::new(Serving {
            shards: Arc::new(Shards::new(
                recovered,
                journal.clone(),
                markets,
                Rules::default(),
                self.clock.clone(),
                Arc::default(),
                Box::new(|_, _| ()),
            )),
            waiters: journal.register(),
            lease: seat.lease().clone(),
            has_given_up: Level::default(),
        });
        let waiters = serving.waiters.clone();
        spawn_local(async move { waiters.run().await });
        self.port.serving.replace(Some(serving.clone()));
        let flushing =
            self.clone().flush(journal.clone(), steps.into_inner(), seat.clone(), upkeep);
        let flushing = spawn_local(flushing);
        tokio::select! {
            biased;
            ended = flushing => ended.context("the process has ended")??,
            () = self.port.is_leaving.until(is_set) => give_up(&journal, &seat, &serving).await,
        }
        Ok(())
    }

    /// Does the work of the journal's threads, and takes snapshots.
    async fn flush(
        self: Rc<Self>,
        journal: Arc<Journal>,
        mut steps: Steps,
        seat: Arc<Seat<Line>>,
        mut upkeep: Upkeep,
    ) -> anyhow::Result<()> {
        loop {
            let has_flushed = steps.flush_through(async |block| seat.write(block).await).await?;
            self.port.position.set(journal.durable_lsn().position());
            if steps.make_segment()? {
                let closed = journal.segment().context("the journal is on disk")? - 1;
                upkeep.keep(closed, &mut Uninterrupted)?;
            } else if !has_flushed {
                let _ = timeout(IDLE, self.port.record.notified()).await;
            }
        }
    }

    /// Answers a request, unless the process ends first.
    pub(super) async fn handle(self: Rc<Self>, number: u64, request: Request) {
        let answer = self.answer(request).await;
        if LOST.with_borrow(Option::is_none) {
            self.port.answers.borrow_mut().push((number, answer));
        }
    }

    async fn answer(&self, request: Request) -> Answer {
        let serving = self.port.serving.borrow().clone();
        let Some(serving) = serving.filter(|serving| serving.lease.holds()) else {
            return Answer::NotReady;
        };
        let Serving { shards, waiters, lease, has_given_up } = &*serving;
        let asked = async {
            match request {
                Request::Order { shard, trade } => {
                    let placed = shards.execute(shard, *trade, waiters);
                    self.port.record.notify_one();
                    placed.await.map(|placed| Answer::Done(placed.receipt))
                }
                Request::Read { account } => {
                    let read = move |state: &State| state.observe_account(account, 0);
                    shards.observe(account.shard(), waiters, read).await.map(Answer::Page)
                }
            }
        };
        let answer = tokio::select! {
            biased;
            answer = asked => answer.unwrap_or_else(Answer::Refused),
            () = has_given_up.until(is_set) => return Answer::NotReady,
        };
        // An executed order is in the log. Any other answer was only read, so it needs the lease.
        if matches!(answer, Answer::Done(_)) || lease.holds() { answer } else { Answer::NotReady }
    }
}

const fn is_set(flag: u32) -> bool {
    flag > 0
}

/// Appends the record to the journal.
fn append(journal: &Journal, steps: &mut Steps, record: &[u8]) -> anyhow::Result<()> {
    loop {
        if let Ok(reservation) = journal.reserve(record.len()) {
            reservation.fill_from(record);
            return Ok(());
        }
        let has_moved = steps.flush()?;
        anyhow::ensure!(steps.make_segment()? || has_moved, "the journal of a standby is full");
    }
}

/// Releases the log, as a draining server does. Records in the log by then are answered as done,
/// and no other record will ever get there.
async fn give_up(journal: &Journal, seat: &Seat<Line>, serving: &Serving) {
    let wait_for = async |position: u64| {
        while journal.durable_lsn().position() < position {
            sleep(Duration::from_millis(1)).await;
        }
    };
    let ends_at = Instant::now() + RELEASE_TIME_MAX;
    let _ = timeout(RELEASE_TIME_MAX, wait_for(journal.newest_lsn().position())).await;
    let left = match timeout_at(ends_at, seat.leave()).await {
        Ok(left) => left,
        // The owner left too late: try once more.
        Err(_) => timeout(RELEASE_TIME_MAX, seat.leave()).await.ok().flatten(),
    };
    let Some(owner) = left else { return };
    let position = owner.position();
    let releasing = spawn_local(owner.release());
    wait_for(position).await;
    serving.has_given_up.change(|_| 1);
    // Give the waiting requests time to be answered.
    sleep(Duration::from_millis(2)).await;
    let _ = timeout(RELEASE_TIME_MAX, releasing).await;
}
