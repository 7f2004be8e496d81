//! The accounts that user sockets follow, and the task that writes the sockets' frames.
//!
//! The task subscribes to the records of all shards while there are user sockets. For each durable
//! record that concerns an account with sockets, it reads the orders and fills from the shard,
//! writes their frames once for all sockets of an API key, and adds them to the sockets' outboxes.
//! So an idle socket costs nothing, and neither does a server without sockets.
//!
//! That a trade is settled is told a while after the trade: see [`SETTLE_DELAY`].
//!
//! A socket never misses a frame: when its outbox is full, or the task falls behind the records,
//! the socket is closed, and its client reads what it has missed when it connects again.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, sleep_until};

use super::frame::{Markets, Of, SETTLED, new_trade, put_dropped, put_news, put_trade};
use super::troubled::{Met, UserTrouble};
use crate::rows::Party;
use crate::trouble::{Stage, Unsettled};
use crate::ws::bounds::USER_OUTBOX_BYTES_MAX;
use crate::ws::clob::Opening;
use crate::ws::close::CloseReason;
use crate::ws::connection::Ended;
use paperbourse_clob::signature::address::Address;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::order::news::{News, OrderNews, OrderStep};
use paperbourse_core::engine::state::view::ListedOrder;
use paperbourse_core::ids::{AccountId, OrderId, SHARD_COUNT, ShardId, Timestamp};
use paperbourse_core::limits::budget::Share;
use paperbourse_exchange::shard::Shards;
use paperbourse_exchange::shard::facts::{FactStream, Facts, SubscribeError};
use paperbourse_store::journal::Waiters;

/// Maximum number of records that wait for the task.
const WAITING_MAX: NonZeroUsize = NonZeroUsize::new(32_768).expect("it is not 0");

/// Maximum number of records that the task takes at a time.
const RECORDS_PER_TURN: NonZeroUsize = NonZeroUsize::new(256).expect("it is not 0");

/// Number of orders and fills after which the sockets of the worker get to write.
const NEWS_PER_TURN: usize = 32;

/// Delay before the task reads again from a shard whose queue was full.
const BUSY_DELAY: Duration = Duration::from_millis(5);

/// Delay before a trade is told as settled. Some clients ask for their balance then, but only if
/// they know the order: they have its answer by this time.
pub(super) const SETTLE_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of a socket's trades that wait to be told as settled. If there are more, the
/// oldest are told early.
pub(super) const SETTLING_MAX: usize = 256;

/// The user sockets of a server.
pub struct UserFeed {
    shards: Arc<Shards>,
    waiting_max: NonZeroUsize,
    parts: [Mutex<Part>; SHARD_COUNT],
    socket_count: AtomicUsize,
    /// Whether the task runs. Changed and acted upon only under the lock.
    is_running: AtomicBool,
    lock: tokio::sync::Mutex<()>,
    /// Signals that the last socket has ended.
    idle: Notify,
}

/// The followed accounts of one shard.
#[derive(Default)]
struct Part {
    of: HashMap<AccountId, Followed, RandomState>,
}

#[derive(Default)]
struct Followed {
    sockets: Vec<Arc<Outlet>>,
    /// The account's delayed orders, of which nothing is left once they are dropped. An account has
    /// as many as it may have open orders.
    delayed: HashMap<OrderId, ListedOrder, RandomState>,
}

/// Where the task leaves the frames of a socket.
pub(super) struct Outlet {
    pub(super) account: AccountId,
    /// The API key with which the socket was opened.
    pub(super) owner: Box<str>,
    pub(super) wallet: Address,
    pub(super) wake_writer: Arc<Notify>,
    /// Has the socket closed.
    pub(super) opening: Arc<Opening>,
    /// `None` unless there is trouble on demand.
    pub(super) trouble: Option<UserTrouble>,
    /// Signals that a trade is settling.
    pub(super) settling: Notify,
    pub(super) outbox: Mutex<Outbox>,
}

pub(super) struct Outbox {
    /// Whole frames, each of which tells one thing, at most [`USER_OUTBOX_BYTES_MAX`].
    frames: VecDeque<Arc<[u8]>>,
    /// Frames about settled trades, and when they become frames like the others. They count too.
    settling: VecDeque<(Instant, Arc<[u8]>)>,
    bytes: usize,
    pub(super) markets: Markets,
    /// Whether the socket is being closed, so that no more frames are added.
    is_closed: bool,
    /// How the socket ends once all frames are taken.
    end: Option<Ended>,
    /// The newest record of the shard when the account began to be followed.
    begins_after: u64,
    /// Pays for the frames.
    unsent: Share,
}

/// A socket that is told what happens until this is dropped.
pub(super) struct Follower {
    feed: Arc<UserFeed>,
    outlet: Arc<Outlet>,
}

impl UserFeed {
    /// Creates a feed without sockets.
    pub fn new(shards: Arc<Shards>) -> Self {
        Self::with_waiting(shards, WAITING_MAX)
    }

    /// Creates a feed whose task is cut off once more than `waiting_max` records wait for it.
    pub(super) fn with_waiting(shards: Arc<Shards>, waiting_max: NonZeroUsize) -> Self {
        Self {
            shards,
            waiting_max,
            parts: std::array::from_fn(|_| Mutex::default()),
            socket_count: AtomicUsize::new(0),
            is_running: AtomicBool::new(false),
            lock: tokio::sync::Mutex::default(),
            idle: Notify::new(),
        }
    }

    /// Returns the number of sockets that are told what happens.
    pub fn socket_count(&self) -> usize {
        self.socket_count.load(Ordering::Relaxed)
    }

    /// Whether the task runs that follows the records.
    pub fn is_running(&self) -> bool {
        self.is_running.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(super) fn parts_are_empty(&self) -> bool {
        self.parts.iter().all(|part| part.lock().of.is_empty())
    }

    /// Begins to tell a socket what happens to the orders of its account. Whatever a reader may
    /// have seen before the call is not told; whatever happens after the call has returned is.
    pub(super) async fn follow(
        self: &Arc<Self>,
        outlet: Arc<Outlet>,
        waiters: &Arc<Waiters>,
    ) -> Result<Follower, CloseReason> {
        let account = outlet.account;
        let begins_after = loop {
            match self.shards.newest_record(account, waiters).await {
                Ok(newest) => break newest,
                Err(_) => tokio::time::sleep(BUSY_DELAY).await,
            }
        };
        outlet.outbox.lock().begins_after = begins_after;
        let _locked = self.lock.lock().await;
        if !self.is_running() {
            let facts = self.subscribe(waiters).await.ok_or(CloseReason::Busy)?;
            self.is_running.store(true, Ordering::Relaxed);
            tokio::spawn(self.clone().run(facts, waiters.clone()));
        }
        self.socket_count.fetch_add(1, Ordering::Relaxed);
        let mut part = self.part(account.shard()).lock();
        part.of.entry(account).or_default().sockets.push(outlet.clone());
        Ok(Follower { feed: self.clone(), outlet })
    }

    /// Subscribes to the records; `None` if there are too many subscribers.
    async fn subscribe(&self, waiters: &Arc<Waiters>) -> Option<FactStream> {
        loop {
            match self.shards.subscribe(self.waiting_max, waiters).await {
                Ok(facts) => return Some(facts),
                Err(SubscribeError::Refused(_)) => tokio::time::sleep(BUSY_DELAY).await,
                Err(error @ SubscribeError::TooMany) => {
                    tracing::warn!("no user socket can be served: {error}");
                    return None;
                }
            }
        }
    }

    /// Tells the sockets what happens until there are none, or until the records are lost.
    async fn run(self: Arc<Self>, mut facts: FactStream, waiters: Arc<Waiters>) {
        loop {
            let records = tokio::select! {
                records = facts.next_many(RECORDS_PER_TURN) => records,
                () = self.idle.notified() => {
                    let _locked = self.lock.lock().await;
                    if self.socket_count() == 0 {
                        self.is_running.store(false, Ordering::Relaxed);
                        return;
                    }
                    continue;
                }
            };
            match records {
                Ok(records) => self.deliver(records, &waiters).await,
                Err(behind) => {
                    tracing::warn!("all user sockets are closed: {behind}");
                    let _locked = self.lock.lock().await;
                    ShardId::all().for_each(|shard| self.close_all(shard));
                    self.is_running.store(false, Ordering::Relaxed);
                    return;
                }
            }
        }
    }

    /// Tells the sockets what these records say. Those of one shard are told in order.
    async fn deliver(&self, records: Vec<Facts>, waiters: &Arc<Waiters>) {
        let mut by_shard: HashMap<ShardId, Vec<Facts>, RandomState> = HashMap::default();
        for facts in records {
            by_shard.entry(facts.shard).or_default().push(facts);
        }
        // The shards answer once what they have shown is durable, so they are asked together.
        let mut reads = JoinSet::new();
        for (shard, facts) in by_shard {
            let Some(followed) = self.followed(shard, &facts) else { continue };
            let (shards, waiters, facts) = (self.shards.clone(), waiters.clone(), Arc::from(facts));
            reads.spawn(
                async move { (shard, read(&shards, shard, facts, followed, &waiters).await) },
            );
        }
        while let Some(read) = reads.join_next().await {
            let (shard, news) = read.expect("a read does not panic, and nobody aborts it");
            self.tell(shard, news).await;
        }
    }

    /// Returns the accounts of a shard that have sockets, in order; `None` if these records cannot
    /// concern them.
    fn followed(&self, shard: ShardId, facts: &[Facts]) -> Option<Arc<[AccountId]>> {
        let part = self.part(shard).lock();
        if part.of.is_empty() {
            return None;
        }
        let mut events = facts.iter().flat_map(|facts| &facts.events);
        let concerns = |event: &Event| match event {
            Event::OrderFilled(filled) => part.of.contains_key(&filled.placement.account),
            Event::OrderPlaced(placed) => part.of.contains_key(&placed.placement.account),
            Event::OrderDelayed(delayed) => part.of.contains_key(&delayed.placement.account),
            Event::FillUndone(undone) => part.of.contains_key(&undone.account),
            // These name only the order.
            Event::RestingFilled(_)
            | Event::OrderEnded { .. }
            | Event::DelayedOrderDropped { .. } => true,
            _ => false,
        };
        if !events.any(concerns) {
            return None;
        }
        let mut accounts: Vec<AccountId> = part.of.keys().copied().collect();
        accounts.sort_unstable();
        Some(accounts.into())
    }

    async fn tell(&self, shard: ShardId, news: Vec<(u64, News)>) {
        let mut news = news.into_iter().peekable();
        while news.peek().is_some() {
            for (sequence, news) in news.by_ref().take(NEWS_PER_TURN) {
                match news {
                    News::Order(news) => self.tell_order(sequence, *news),
                    News::Dropped(order) => self.tell_dropped(shard, sequence, order),
                    News::Lost => {
                        tracing::warn!("the user sockets of a shard are closed: an order is gone");
                        self.close_all(shard);
                    }
                }
            }
            yield_now().await;
        }
    }

    fn tell_order(&self, sequence: u64, news: OrderNews) {
        let receipt = &news.listed.receipt;
        let (account, order, is_delayed) = (receipt.account, receipt.order, receipt.is_delayed());
        let mut part = self.part(account.shard()).lock();
        // The last socket may have ended meanwhile.
        let Some(followed) = part.of.get_mut(&account) else { return };
        let stage = followed.stage(account, &news);
        let of = Of::order(&news.listed);
        followed.tell(sequence, &of, Outlet::add, |out, party| put_news(out, &news, stage, party));
        if stage == Stage::Confirmed
            && let Some(trade) = new_trade(&news)
        {
            followed.tell(sequence, &of, Outlet::add_settled, |out, party| {
                put_trade(out, &trade, stage, &SETTLED, news.at, party);
            });
        }
        if is_delayed {
            followed.delayed.insert(order, news.listed);
        } else {
            followed.delayed.remove(&order);
        }
    }

    fn tell_dropped(&self, shard: ShardId, sequence: u64, order: OrderId) {
        let mut part = self.part(shard).lock();
        for followed in part.of.values_mut() {
            let Some(listed) = followed.delayed.remove(&order) else { continue };
            let (of, now) = (Of::order(&listed), Timestamp::now());
            let put = |out: &mut Vec<u8>, party: &Party<'_>| put_dropped(out, &listed, now, party);
            followed.tell(sequence, &of, Outlet::add, put);
        }
    }

    /// Tells the sockets of an account that a trade is tried again.
    pub fn tell_retried(&self, unsettled: &Unsettled) {
        self.tell_stages(unsettled, Stage::Retrying, &[Stage::Retrying]);
    }

    /// Tells the sockets of an account that a trade is settled.
    pub fn tell_settled(&self, unsettled: &Unsettled) {
        self.tell_stages(unsettled, Stage::Confirmed, &SETTLED);
    }

    /// Tells the sockets of an account that a trade in `stage` has reached these stages. Only
    /// trouble on demand has trades that are not settled at once.
    fn tell_stages(&self, unsettled: &Unsettled, stage: Stage, stages: &[Stage]) {
        let part = self.part(unsettled.account.shard()).lock();
        let Some(followed) = part.of.get(&unsettled.account) else { return };
        let (trade, now) = (unsettled.trade(), Timestamp::now());
        // No record says it, so that it comes after all that a socket has been told.
        followed.tell(u64::MAX, &Of::trade(&trade), Outlet::add, |out, party| {
            put_trade(out, &trade, stage, stages, now, party);
        });
    }

    /// Closes the sockets of all accounts in a shard.
    fn close_all(&self, shard: ShardId) {
        let part = self.part(shard).lock();
        for outlet in part.of.values().flat_map(|followed| &followed.sockets) {
            outlet.close(&mut outlet.outbox.lock(), CloseReason::TooSlow);
        }
    }

    fn part(&self, shard: ShardId) -> &Mutex<Part> {
        &self.parts[shard.index()]
    }
}

/// Reads what records say about the orders of accounts that are followed.
async fn read(
    shards: &Arc<Shards>,
    shard: ShardId,
    facts: Arc<[Facts]>,
    followed: Arc<[AccountId]>,
    waiters: &Arc<Waiters>,
) -> Vec<(u64, News)> {
    loop {
        match shards.news(shard, facts.clone(), followed.clone(), waiters).await {
            Ok(news) => return news,
            Err(_) => tokio::time::sleep(BUSY_DELAY).await,
        }
    }
}

impl Followed {
    /// Returns how far the settlement of the trade in these news is.
    fn stage(&self, account: AccountId, news: &OrderNews) -> Stage {
        if news.step == OrderStep::FillUndone {
            return Stage::Failed;
        }
        let trouble = self.sockets.iter().find_map(|outlet| outlet.trouble.as_ref());
        match (trouble, new_trade(news)) {
            (Some(trouble), Some(trade)) => trouble.stage(account, &trade),
            _ => Stage::Confirmed,
        }
    }

    /// Has `add` add frames to the outboxes of the account. `put` writes them.
    fn tell(
        &self,
        sequence: u64,
        of: &Of<'_>,
        add: impl Fn(&Outlet, &mut Outbox, &Arc<[u8]>),
        put: impl Fn(&mut Vec<u8>, &Party<'_>),
    ) {
        let mut written: Option<(&str, Arc<[u8]>)> = None;
        let mut met: Option<Met> = None;
        for outlet in &self.sockets {
            let mut outbox = outlet.outbox.lock();
            if sequence <= outbox.begins_after || !outbox.markets.have(of.market_id) {
                continue;
            }
            // Rows name the API key, and most accounts use one.
            let frames = match written.take() {
                Some((owner, frames)) if *owner == *outlet.owner => frames,
                _ => {
                    let mut frames = Vec::new();
                    put(&mut frames, &Party { owner: &outlet.owner, wallet: outlet.wallet });
                    frames.into()
                }
            };
            match &outlet.trouble {
                None => add(outlet, &mut outbox, &frames),
                Some(trouble) => {
                    // Drawn once, whatever sockets the wallet has.
                    let met = met.get_or_insert_with(|| trouble.draw(&frames, of));
                    add(outlet, &mut outbox, &met.apply(&frames));
                    if met.is_cut {
                        outlet.cut(&mut outbox);
                    }
                }
            }
            written = Some((&outlet.owner, frames));
        }
    }
}

impl Outbox {
    /// Creates an empty outbox.
    pub(super) fn new(markets: Markets, unsent: Share) -> Self {
        Self {
            frames: VecDeque::new(),
            settling: VecDeque::new(),
            bytes: 0,
            markets,
            is_closed: false,
            end: None,
            begins_after: 0,
            unsent,
        }
    }
}

impl Outlet {
    /// Moves frames to the batch until it has about `bytes_goal` bytes.
    pub(super) fn take(&self, batch: &mut Vec<u8>, bytes_goal: usize) {
        let mut outbox = self.outbox.lock();
        while batch.len() < bytes_goal
            && let Some(frames) = outbox.frames.pop_front()
        {
            outbox.bytes -= frames.len();
            batch.extend_from_slice(&frames);
        }
        outbox.charge();
        if let Some(end) = outbox.end.filter(|_| outbox.frames.is_empty()) {
            self.opening.end(end);
        }
    }

    /// Has the socket closed once all frames are taken, also those about trades that are settling.
    /// Returns whether there are any.
    pub(super) fn finish(&self) -> bool {
        let mut outbox = self.outbox.lock();
        outbox.end.get_or_insert(Ended::Closed(CloseReason::GoingAway));
        while outbox.settle_oldest() {}
        self.wake_writer.notify_one();
        !outbox.frames.is_empty()
    }

    /// Has the socket write the frames about settled trades when it is time. Never returns.
    pub(super) async fn settle(&self) -> Infallible {
        loop {
            let due = self.outbox.lock().settling.front().map(|(due, _)| *due);
            let Some(due) = due else {
                self.settling.notified().await;
                continue;
            };
            sleep_until(due).await;
            let mut outbox = self.outbox.lock();
            while outbox.settling.front().is_some_and(|(other, _)| *other <= due) {
                outbox.settle_oldest();
            }
            self.wake_writer.notify_one();
        }
    }

    fn add(&self, outbox: &mut Outbox, frames: &Arc<[u8]>) {
        if self.count(outbox, frames) {
            outbox.frames.push_back(frames.clone());
            self.wake_writer.notify_one();
        }
    }

    /// Adds frames that are sent after [`SETTLE_DELAY`], or at once if the server is shutting down.
    fn add_settled(&self, outbox: &mut Outbox, frames: &Arc<[u8]>) {
        if outbox.end.is_some() {
            return self.add(outbox, frames);
        }
        if !self.count(outbox, frames) {
            return;
        }
        if outbox.settling.len() >= SETTLING_MAX && outbox.settle_oldest() {
            self.wake_writer.notify_one();
        }
        outbox.settling.push_back((Instant::now() + SETTLE_DELAY, frames.clone()));
        self.settling.notify_one();
    }

    /// Counts frames that are about to be added. If there is no room for them, the socket is
    /// closed. Returns whether it is open.
    fn count(&self, outbox: &mut Outbox, frames: &[u8]) -> bool {
        if outbox.is_closed || frames.is_empty() {
            return false;
        }
        outbox.bytes += frames.len();
        let fits = outbox.bytes <= USER_OUTBOX_BYTES_MAX && outbox.charge();
        if !fits {
            self.close(outbox, CloseReason::TooSlow);
        }
        fits
    }

    /// Has the socket closed. Frames that it has not taken are dropped, so that none is skipped.
    pub(super) fn close(&self, outbox: &mut Outbox, reason: CloseReason) {
        outbox.is_closed = true;
        outbox.frames = VecDeque::new();
        outbox.settling = VecDeque::new();
        outbox.bytes = 0;
        outbox.charge();
        self.opening.close(reason);
    }

    /// Has the stream end without a close frame once all frames are taken.
    fn cut(&self, outbox: &mut Outbox) {
        outbox.is_closed = true;
        outbox.end.get_or_insert(Ended::Gone);
        self.wake_writer.notify_one();
    }
}

impl Outbox {
    /// Makes the oldest frames about a settled trade frames like the others. Returns whether there
    /// were any.
    fn settle_oldest(&mut self) -> bool {
        let Some((_, frames)) = self.settling.pop_front() else { return false };
        self.frames.push_back(frames);
        true
    }

    /// Charges the frames to the budget. Returns whether there is room for them.
    fn charge(&mut self) -> bool {
        self.unsent.hold(self.bytes)
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let account = self.outlet.account;
        let mut part = self.feed.part(account.shard()).lock();
        if let Some(followed) = part.of.get_mut(&account) {
            followed.sockets.retain(|other| !Arc::ptr_eq(other, &self.outlet));
            if followed.sockets.is_empty() {
                part.of.remove(&account);
            }
        }
        drop(part);
        if self.feed.socket_count.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.feed.idle.notify_one();
        }
    }
}
