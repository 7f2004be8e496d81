//! Markets and their books, as snapshots that readers load without a lock.
//!
//! One feed writes, and all threads read. A reader sees each market's description and each
//! outcome's book as of a single moment. A changed market is added to the list of changes once,
//! however often it changes before the fan-out takes the list.

pub mod book;
pub mod catalogue;
pub mod crossing;
mod delay;
pub mod footprint;
mod former;
pub mod growth;
mod histories;
pub mod history;
mod lease;
mod listing;
pub mod price;
pub mod quote;
pub mod resting_limits;
pub mod trades;
pub mod updown;
pub mod walk;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

pub use listing::Listing;

use book::Book;
use catalogue::{DescriptionFlaw, MarketInfo, MarketStatus, Outcome, TAKER_DELAY_MS_MAX};
use crossing::Crossings;
use delay::DelayScale;
use former::Former;
use histories::{Histories, OutcomeHistory};
use lease::Lease;
use listing::NewlyListed;
use quote::{Quote, QuotedBook};
use resting_limits::RestingLimits;

use crate::ids::{OutcomeIndex, condition};
use crate::money::Price;

/// Maximum number of listed markets. The venue lists about 50,000 active ones.
pub const MARKETS_MAX: usize = 200_000;

/// Number of settled markets that stay listed, so that people can see how they ended. The oldest
/// are removed first. The number is bounded because venues open five-minute markets all year long.
pub const SETTLED_LISTED_MAX: usize = 10_000;

/// All markets.
#[derive(Default)]
pub struct Markets {
    listing: ArcSwap<Listing>,
    changed: Mutex<Vec<Arc<Market>>>,
    change: Notify,
    /// Number of lists of changes taken so far.
    round: AtomicU64,
    /// Resolved markets not yet taken by [`Markets::resolutions`], each at most once.
    resolved: Mutex<Vec<Arc<Market>>>,
    resolution: Notify,
    /// Number of listed markets that are resolved but not settled.
    unsettled: AtomicUsize,
    /// Listed markets with nothing left to pay, in order of settlement.
    settled: Mutex<VecDeque<Arc<Market>>>,
    /// Payouts of markets resolved before the start, by condition id. They are final.
    decided: HashMap<Arc<str>, DecidedPayouts, foldhash::fast::RandomState>,
    /// Outcomes of markets traded before the start, by condition id. They fix the order, because
    /// orders and positions refer to outcomes by index.
    traded: HashMap<Arc<str>, Vec<Outcome>, foldhash::fast::RandomState>,
    /// Shards with resting orders, by condition id, for listed markets and for those still to be
    /// listed.
    resting_limits: Mutex<HashMap<Arc<str>, Arc<RestingLimits>, foldhash::fast::RandomState>>,
    crossings: Crossings,
    delays: Arc<DelayScale>,
    lease: Arc<Lease>,
    histories: Histories,
    newly_listed: NewlyListed,
}

/// The payouts of a market, by token id.
pub type DecidedPayouts = Vec<(Arc<str>, Price)>;

/// Markets by condition id.
type MarketsByName = HashMap<Arc<str>, Arc<Market>, foldhash::fast::RandomState>;

/// One market: its description and the books of its outcomes.
pub struct Market {
    info: ArcSwap<MarketInfo>,
    /// The book of each outcome, in order; `None` while no book is known.
    books: Box<[ArcSwapOption<Book>]>,
    /// The price history of each outcome, in order.
    histories: Box<[OutcomeHistory]>,
    /// Set while the market is on the list of changes.
    is_changed: AtomicBool,
    /// Number of the last list of changes that included the market. Initially, the number of the
    /// first list taken after the market was listed.
    changed_in: AtomicU64,
    former: Mutex<Former>,
    /// Set while the tokens of the newest description differ from the known ones.
    is_withheld: AtomicBool,
    /// Set once an order has rested in the market.
    resting_limits: OnceLock<Arc<RestingLimits>>,
    /// Set after `resting_limits`; see [`Market::resting_limits`].
    has_resting_limits: AtomicBool,
    /// The venue's trades that wait to be passed on.
    trades: Mutex<trades::Waiting>,
    /// Set while the market is queued to be looked at again. Accessed only under the lock of that
    /// queue.
    waits: AtomicBool,
    /// Set once the venue has stated a delay above [`TAKER_DELAY_MS_MAX`].
    is_delay_cut: AtomicBool,
    delays: Arc<DelayScale>,
    lease: Arc<Lease>,
}

/// The result of listing markets.
#[derive(Default)]
pub struct Listed {
    /// The settled markets removed because more than [`SETTLED_LISTED_MAX`] were listed.
    pub left: Vec<Arc<Market>>,
    /// Number of descriptions whose tokens differ from those of the known market. No order fills in
    /// the affected markets.
    pub withheld_count: usize,
}

/// The error for markets that cannot be listed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListError {
    /// There would be more than [`MARKETS_MAX`] markets.
    #[error("more than {MARKETS_MAX} markets")]
    TooMany,
    /// The description of a market is invalid.
    #[error("market {condition_id}: {flaw}")]
    Flawed {
        /// The market.
        condition_id: Arc<str>,
        /// The flaw of its description.
        flaw: DescriptionFlaw,
    },
}

impl Markets {
    /// Creates an empty set of markets.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty set of markets. The markets in `decided` will be listed as resolved,
    /// whatever the venue says about them.
    pub fn remembering(decided: impl IntoIterator<Item = (Arc<str>, DecidedPayouts)>) -> Self {
        Self { decided: decided.into_iter().collect(), ..Self::default() }
    }

    /// Fixes the order of the outcomes of the markets in `traded`.
    #[must_use]
    pub fn with_traded(
        mut self,
        traded: impl IntoIterator<Item = (Arc<str>, Vec<Outcome>)>,
    ) -> Self {
        self.traded = traded.into_iter().collect();
        self
    }

    /// Turns off the venue's delay, for all markets and speeds.
    #[must_use]
    pub fn without_delays(mut self) -> Self {
        self.delays = Arc::new(DelayScale::off());
        self
    }

    /// Sets how long orders are held in markets whose venue announces a delay without its length,
    /// in milliseconds of the venue's time.
    #[must_use]
    pub fn with_unstated_delay(mut self, ms: u32) -> Self {
        self.delays = Arc::new(DelayScale::with_unstated(ms));
        self
    }

    /// Changes how long marketable orders are held in markets whose venue announces a delay without
    /// its length, in milliseconds of the venue's time. A configured delay takes precedence.
    pub fn set_unstated_delay(&self, ms: u32) {
        self.delays.set_unstated_ms(ms);
    }

    /// Sets how fast the venue's time passes, in millionths of real time; 0 if no order waits for
    /// the venue, as at the end of a tape. Until this is called, the venue's time is real time.
    pub fn set_delay_speed(&self, speed_micros: u64) {
        self.delays.set_speed(speed_micros);
    }

    /// Renews the lease on the books, because the feed has just checked all of them. For this long,
    /// books count as fresh unless they are marked stale. A feed that never calls this vouches for
    /// its books indefinitely. If the lease had expired, every market with resting orders is looked
    /// at again.
    pub fn renew_lease(&self, time: Duration) {
        if self.lease.renew(time) {
            self.look_again_everywhere();
        }
    }

    /// Takes over the lease and the unstated delay from another set of markets, which the same feed
    /// is about to leave.
    pub fn continue_from(&self, other: &Self) {
        self.lease.continue_from(&other.lease);
        self.set_unstated_delay(other.delays.unstated_ms());
    }

    /// Returns the current listing.
    pub fn listing(&self) -> Guard<Arc<Listing>> {
        self.listing.load()
    }

    /// Returns the market with this condition id, in any spelling.
    pub fn by_condition(&self, condition_id: &str) -> Option<Arc<Market>> {
        self.listing.load().by_condition(condition_id).cloned()
    }

    /// Returns the name under which a market is listed, if `condition_id` is a different spelling
    /// of it.
    pub fn listed_name(&self, condition_id: &str) -> Option<Arc<str>> {
        if !condition::has_others(condition_id) {
            return None;
        }
        let listed = self.by_condition(condition_id)?.info().condition_id.clone();
        (*listed != *condition_id).then_some(listed)
    }

    /// Returns the name under which a market is already known, if `condition_id` is a different
    /// spelling of it. The market may have been listed, traded or decided before the venue used
    /// this spelling.
    fn known_name(
        &self,
        (listing, added): (&Listing, &MarketsByName),
        condition_id: &str,
    ) -> Option<Arc<str>> {
        let key = |name: &str| {
            let listed = listing.by_condition.get_key_value(name).map(|(name, _)| name);
            let listed = listed.or_else(|| added.get_key_value(name).map(|(name, _)| name));
            let traded = || self.traded.get_key_value(name).map(|(name, _)| name);
            let decided = || self.decided.get_key_value(name).map(|(name, _)| name);
            listed.or_else(traded).or_else(decided).cloned()
        };
        condition::find(condition_id, key).filter(|known| **known != *condition_id)
    }

    /// Adds markets and replaces the descriptions of known ones. Only the feed calls this. It
    /// rebuilds the listing, so pass many markets at a time.
    ///
    /// Outcomes are identified by their tokens, so they keep their indexes even if a description
    /// reorders them. While a description has tokens other than the known ones, the market keeps
    /// its known description and is paused.
    pub fn list(&self, infos: Vec<MarketInfo>) -> Result<Listed, ListError> {
        let mut withheld_count = 0;
        let before = self.listing.load_full();
        let mut markets = before.markets.clone();
        let mut added = MarketsByName::default();
        for mut info in infos {
            if let Some(known) = self.known_name((&before, &added), &info.condition_id) {
                info.condition_id = known;
            }
            let condition_id = info.condition_id.clone();
            let flawed = |flaw| ListError::Flawed { condition_id: condition_id.clone(), flaw };
            info.check().map_err(flawed)?;
            let known = before.by_condition.get(&condition_id).or_else(|| added.get(&condition_id));
            let is_aligned = self.align(&mut info, known);
            withheld_count += usize::from(!is_aligned);
            if let Some(payouts) = self.decided.get(&condition_id) {
                resolve(&mut info, payouts);
            }
            let stated_delay_ms = info.taker_delay_ms;
            info.taker_delay_ms = stated_delay_ms.min(TAKER_DELAY_MS_MAX);
            if let Some(market) = known {
                market.note_withheld(!is_aligned, &condition_id);
                market.note_delay(stated_delay_ms, &condition_id);
                let was_tradable = market.info().is_tradable();
                if market.describe(info, &self.round) {
                    self.mark_resolved(market);
                }
                self.mark_changed(market);
                if !was_tradable && market.info().is_tradable() {
                    self.look_again(market);
                }
            } else {
                if markets.len() >= MARKETS_MAX {
                    return Err(ListError::TooMany);
                }
                let market = Arc::new(Market::with(info, self.delays.clone(), self.lease.clone()));
                market.changed_in.store(self.round.load(Ordering::Acquire) + 1, Ordering::Relaxed);
                self.histories.attach(&market);
                market.note_withheld(!is_aligned, &condition_id);
                market.note_delay(stated_delay_ms, &condition_id);
                if market.info().status == MarketStatus::Resolved {
                    self.mark_resolved(&market);
                }
                markets.push(market.clone());
                added.insert(condition_id, market);
            }
        }
        self.newly_listed.add(added.values());
        let leaving = self.settled_too_many();
        let is_leaving: HashSet<*const Market> = leaving.iter().map(Arc::as_ptr).collect();
        markets.retain(|market| !is_leaving.contains(&Arc::as_ptr(market)));
        self.listing.store(Arc::new(Listing::of(markets)));
        // Done after the listing is stored: `Markets::interest` looks markets up there, so either
        // that call or this one attaches the interest.
        self.attach_resting_limits(added.values());
        self.forget_resting_limits(&leaving);
        self.forget_histories(&leaving);
        Ok(Listed { left: leaving, withheld_count })
    }

    /// Reorders a description to match the known market. If the tokens differ, replaces the
    /// description with the known one, pauses the market, and returns false.
    fn align(&self, info: &mut MarketInfo, known: Option<&Arc<Market>>) -> bool {
        let current = known.map(|market| market.info());
        let outcomes = self.traded.get(&info.condition_id);
        let outcomes = outcomes.or_else(|| current.as_ref().map(|known| &known.outcomes));
        if outcomes.is_none_or(|outcomes| info.align(outcomes).is_ok()) {
            return true;
        }
        let listed_status = info.status;
        match current {
            Some(known) => *info = MarketInfo::clone(&known),
            // The venue never published payouts for the known tokens, so the market only counts as
            // closed.
            None if listed_status == MarketStatus::Resolved => info.status = MarketStatus::Closed,
            None => {}
        }
        info.withhold(listed_status);
        false
    }

    fn settled_too_many(&self) -> Vec<Arc<Market>> {
        let mut settled = self.settled.lock();
        let surplus = settled.len().saturating_sub(SETTLED_LISTED_MAX);
        settled.drain(..surplus).collect()
    }

    /// Publishes the book of one outcome and marks the market as changed.
    pub fn publish(&self, market: &Arc<Market>, outcome: OutcomeIndex, book: Arc<Book>) {
        market.books[outcome.index()].store(Some(book));
        self.mark_changed(market);
    }

    /// Adds a market to the list of changes, unless it is already there.
    pub fn mark_changed(&self, market: &Arc<Market>) {
        if !market.is_changed.swap(true, Ordering::AcqRel) {
            self.changed.lock().push(market.clone());
            self.change.notify_one();
        }
    }

    fn mark_resolved(&self, market: &Arc<Market>) {
        self.unsettled.fetch_add(1, Ordering::Relaxed);
        self.resolved.lock().push(market.clone());
        self.resolution.notify_one();
    }

    /// Waits until a market is resolved, then takes all resolved markets. Each market is taken
    /// once. Only one task may call this.
    pub async fn resolutions(&self) -> Vec<Arc<Market>> {
        loop {
            let resolved = std::mem::take(&mut *self.resolved.lock());
            if !resolved.is_empty() {
                return resolved;
            }
            self.resolution.notified().await;
        }
    }

    /// Marks a market from [`Markets::resolutions`] as settled, with nothing left to pay.
    pub fn mark_settled(&self, market: Arc<Market>) {
        self.settled.lock().push_back(market);
        self.unsettled.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the number of markets that are resolved but not settled.
    pub fn unsettled_count(&self) -> usize {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Waits until a market has changed, then takes the list of changes. Only one task may call
    /// this. The lists are numbered from 1; see [`Market::changed_in`].
    pub async fn changes(&self) -> Vec<Arc<Market>> {
        loop {
            let changed = std::mem::take(&mut *self.changed.lock());
            if !changed.is_empty() {
                let round = self.round.fetch_add(1, Ordering::AcqRel) + 1;
                for market in &changed {
                    market.changed_in.store(round, Ordering::Release);
                    // Cleared before the fan-out reads the market, so that a later change puts it
                    // on the next list.
                    market.is_changed.store(false, Ordering::Release);
                }
                return changed;
            }
            self.change.notified().await;
        }
    }

    /// Returns the number of the list of changes that was taken most recently.
    pub fn round(&self) -> u64 {
        self.round.load(Ordering::Acquire)
    }
}

impl Market {
    /// Creates a market without books.
    pub fn new(info: MarketInfo) -> Self {
        Self::with(info, Arc::default(), Arc::default())
    }

    fn with(info: MarketInfo, delays: Arc<DelayScale>, lease: Arc<Lease>) -> Self {
        let books = info.outcomes.iter().map(|_| ArcSwapOption::empty()).collect();
        let histories = info.outcomes.iter().map(|_| OutcomeHistory::default()).collect();
        Self {
            info: ArcSwap::from_pointee(info),
            books,
            histories,
            is_changed: AtomicBool::new(false),
            changed_in: AtomicU64::new(0),
            former: Mutex::default(),
            is_withheld: AtomicBool::new(false),
            resting_limits: OnceLock::new(),
            has_resting_limits: AtomicBool::new(false),
            trades: Mutex::default(),
            waits: AtomicBool::new(false),
            is_delay_cut: AtomicBool::new(false),
            delays,
            lease,
        }
    }

    /// Returns the number of the last list of changes that included this market. A reader that has
    /// seen the market since [`Markets::changes`] returned that list is up to date, except for
    /// changes that will be on the next list.
    pub fn changed_in(&self) -> u64 {
        self.changed_in.load(Ordering::Acquire)
    }

    /// Returns the current description.
    pub fn info(&self) -> Guard<Arc<MarketInfo>> {
        self.info.load()
    }

    /// Returns the newest book of an outcome as the feed published it, if one is known. Decisions
    /// use a [snapshot](Self::snapshot), which also checks whether the feed still vouches for its
    /// books.
    pub fn book(&self, outcome: OutcomeIndex) -> Guard<Option<Arc<Book>>> {
        self.books[outcome.index()].load()
    }

    /// Returns the shards with orders resting in the market; `None` if no order has ever rested
    /// there.
    ///
    /// The feed calls this after it has published a book. A runner that lets the first order rest
    /// creates the interest, issues a fence, and reads the books again. Storing a book is a
    /// sequentially consistent operation, and so is this load, so one of the two sees the other
    /// without a fence here.
    #[inline]
    pub fn resting_limits(&self) -> Option<&Arc<RestingLimits>> {
        if self.has_resting_limits.load(Ordering::SeqCst) {
            self.resting_limits.get()
        } else {
            None
        }
    }

    fn attach(&self, resting_limits: &Arc<RestingLimits>) {
        self.resting_limits.get_or_init(|| resting_limits.clone());
        self.has_resting_limits.store(true, Ordering::SeqCst);
    }

    /// Returns the description and the books for one decision. If the feed has let its lease on the
    /// books run out, all books are marked stale.
    pub fn snapshot(&self) -> MarketSnapshot {
        let info = self.info.load();
        let mut books: SmallVec<[_; 2]> = self.books.iter().map(ArcSwapOption::load).collect();
        if self.lease.has_run_out() {
            books.iter_mut().for_each(distrust);
        }
        let unstated_ms = if info.has_unstated_delay { self.delays.unstated_ms() } else { 0 };
        let venue_ms = info.taker_delay_ms.max(unstated_ms.min(TAKER_DELAY_MS_MAX));
        let taker_delay_ms = self.delays.wall_ms(venue_ms);
        MarketSnapshot { taker_delay_ms, info, books }
    }

    /// Logs, once per market, that the venue states a longer delay than this server applies.
    fn note_delay(&self, stated_ms: u32, condition_id: &str) {
        if stated_ms > TAKER_DELAY_MS_MAX && !self.is_delay_cut.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                market = condition_id,
                stated_ms,
                cut_ms = TAKER_DELAY_MS_MAX,
                "the venue's delay of marketable orders is too long and was cut"
            );
        }
    }

    /// Records whether the tokens of the newest description differ from the known ones, and logs it
    /// when that becomes true.
    fn note_withheld(&self, is_withheld: bool, condition_id: &str) {
        if self.is_withheld.swap(is_withheld, Ordering::Relaxed) != is_withheld && is_withheld {
            tracing::warn!(
                market = condition_id,
                "market description has other tokens, no order fills until the known ones are back"
            );
        }
    }
}

/// Replaces a fresh book with a stale copy.
#[cold]
fn distrust(book: &mut Guard<Option<Arc<Book>>>) {
    if let Some(fresh) = book.as_deref().filter(|book| !book.stale) {
        let mut stale = fresh.clone();
        stale.stale = true;
        *book = Guard::from_inner(Some(Arc::new(stale)));
    }
}

/// Applies the payouts decided before the start. If the venue now lists other tokens, the payouts
/// cannot be shown and the market is closed instead.
fn resolve(info: &mut MarketInfo, decided: &DecidedPayouts) {
    let payout = |token_id: &Arc<str>| {
        decided.iter().find(|(token, _)| token == token_id).map(|&(_, price)| price)
    };
    let payouts: Option<Vec<Price>> =
        info.outcomes.iter().map(|outcome| payout(&outcome.token_id)).collect();
    match payouts {
        Some(payouts) if payouts.len() == decided.len() => {
            info.status = MarketStatus::Resolved;
            info.payouts = payouts;
        }
        _ => {
            info.status = MarketStatus::Closed;
            info.payouts.clear();
        }
    }
    info.evidence = Some("it was decided before the start".into());
}

/// The description and the books of a market at one moment.
pub struct MarketSnapshot {
    info: Guard<Arc<MarketInfo>>,
    books: SmallVec<[Guard<Option<Arc<Book>>>; 2]>,
    /// In milliseconds of wall time.
    taker_delay_ms: u32,
}

impl MarketSnapshot {
    /// Returns the description.
    pub fn info(&self) -> &MarketInfo {
        &self.info
    }

    /// Returns the market's terms and books as a quote to decide on.
    #[inline]
    pub fn quote(&self) -> Quote<'_> {
        let mut quote = Quote::new(&self.info, self.books.iter().map(|book| book.as_deref()));
        quote.taker_delay_ms = self.taker_delay_ms;
        quote
    }

    /// Returns the book that an outcome trades on; see [`Quote::book`].
    pub fn quoted(&self, outcome: OutcomeIndex) -> Option<QuotedBook<'_>> {
        self.quote().book(outcome)
    }

    /// Whether the venue's hashes can verify the market's books. They can if the market has traded,
    /// or if a hash has matched before any trade. Otherwise, it is unknown whether a hash should
    /// match.
    pub fn is_provable(&self) -> bool {
        let is_provable = |book: &Arc<Book>| book.last_trade.is_some() || book.hash.is_some();
        self.books.iter().any(|book| book.as_ref().is_some_and(is_provable))
    }

    /// Whether an order can fill: the market is tradable and some outcome has a fresh book.
    pub fn has_fresh_book(&self) -> bool {
        self.info.is_tradable()
            && self.books.iter().any(|book| book.as_ref().is_some_and(|b| !b.stale))
    }
}

#[cfg(test)]
mod tests;
