//! Markets and their books as readers see them: snapshots, read without a lock.
//!
//! One feed writes, everybody reads. A reader sees each market's description and each outcome's
//! book as a complete value of one moment; a market that changed is put on a list once, however
//! often it changes before the fan-out takes the list.

pub mod book;
pub mod catalogue;
pub mod price;
pub mod quote;
pub mod walk;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use book::Book;
use catalogue::{DescriptionFlaw, MarketInfo, MarketStatus, Outcome};
use quote::{Quote, QuotedBook};

use crate::ids::OutcomeIndex;
use crate::money::Price;

/// At most this many markets are listed at a time; the venue lists some 50,000 active ones.
pub const MARKETS_MAX: usize = 200_000;

/// Of the markets that are settled, so many stay listed, so that people see how they ended. Those
/// that were settled before them leave: venues open markets for five minutes, all year long.
pub const SETTLED_LISTED_MAX: usize = 10_000;

/// All markets.
#[derive(Default)]
pub struct Markets {
    listing: ArcSwap<Listing>,
    changed: Mutex<Vec<Arc<Market>>>,
    change: Notify,
    /// Markets that were resolved and not taken yet: each at most once.
    resolved: Mutex<Vec<Arc<Market>>>,
    resolution: Notify,
    /// How many listed markets are resolved and not settled yet.
    unsettled: AtomicUsize,
    /// Listed markets in which nothing is left to pay, in the order in which they came to that.
    settled: Mutex<VecDeque<Arc<Market>>>,
    /// How markets were resolved before the start, by condition id. It stands.
    decided: HashMap<Arc<str>, DecidedPayouts, foldhash::fast::RandomState>,
    /// The outcomes of the markets that were traded before the start, by condition id: orders and
    /// positions name them by their place.
    traded: HashMap<Arc<str>, Vec<Outcome>, foldhash::fast::RandomState>,
}

/// What each token pays.
pub type DecidedPayouts = Vec<(Arc<str>, Price)>;

/// The markets of one moment and the names that lead to them.
#[derive(Default)]
pub struct Listing {
    /// In the order of the listing endpoint: most traded first.
    markets: Vec<Arc<Market>>,
    by_condition: HashMap<Arc<str>, Arc<Market>, foldhash::fast::RandomState>,
    by_token: HashMap<Arc<str>, (Arc<Market>, OutcomeIndex), foldhash::fast::RandomState>,
}

/// One market: its description and the books of its outcomes.
pub struct Market {
    info: ArcSwap<MarketInfo>,
    /// One for each outcome, in order; `None` where no book is known.
    books: Box<[ArcSwapOption<Book>]>,
    /// Set while the market waits on the list of changes.
    is_changed: AtomicBool,
    /// Set while its newest description names other tokens.
    is_withheld: AtomicBool,
}

/// What has come of listing markets.
#[derive(Default)]
pub struct Listed {
    /// The markets that left, of the settled ones those past [`SETTLED_LISTED_MAX`].
    pub left: Vec<Arc<Market>>,
    /// How many descriptions name other tokens than their markets have: no order fills in those.
    pub withheld_count: usize,
}

/// Why markets cannot be listed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListError {
    /// There would be more than [`MARKETS_MAX`].
    #[error("more than {MARKETS_MAX} markets")]
    TooMany,
    /// A market is described as none can be.
    #[error("market {condition_id}: {flaw}")]
    Flawed {
        /// Which.
        condition_id: Arc<str>,
        /// What is wrong with it.
        flaw: DescriptionFlaw,
    },
}

impl Markets {
    /// No markets yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No markets yet, of which some were resolved before: whatever the venue says of those, they
    /// are listed as resolved.
    pub fn remembering(decided: impl IntoIterator<Item = (Arc<str>, DecidedPayouts)>) -> Self {
        Self { decided: decided.into_iter().collect(), ..Self::default() }
    }

    /// The same, of which some were traded before: their outcomes keep the order that they had.
    #[must_use]
    pub fn with_traded(
        mut self,
        traded: impl IntoIterator<Item = (Arc<str>, Vec<Outcome>)>,
    ) -> Self {
        self.traded = traded.into_iter().collect();
        self
    }

    /// The markets of this moment.
    pub fn listing(&self) -> Guard<Arc<Listing>> {
        self.listing.load()
    }

    /// The market that orders call by this name.
    pub fn by_condition(&self, condition_id: &str) -> Option<Arc<Market>> {
        self.listing.load().by_condition.get(condition_id).cloned()
    }

    /// Adds markets and replaces the descriptions of those that are known. Only the feed calls
    /// this: it rebuilds the listing, so it takes many markets at a time.
    ///
    /// Outcomes keep their places, whatever order a description has them in: a token says which is
    /// which. While a description names other tokens, its market stays as it was and is paused.
    pub fn list(&self, infos: Vec<MarketInfo>) -> Result<Listed, ListError> {
        let mut withheld_count = 0;
        let before = self.listing.load_full();
        let mut markets = before.markets.clone();
        let mut added: HashMap<Arc<str>, Arc<Market>, foldhash::fast::RandomState> =
            HashMap::default();
        for mut info in infos {
            let condition_id = info.condition_id.clone();
            let flawed = |flaw| ListError::Flawed { condition_id: condition_id.clone(), flaw };
            info.check().map_err(flawed)?;
            let known = before.by_condition.get(&condition_id).or_else(|| added.get(&condition_id));
            let is_aligned = self.align(&mut info, known);
            withheld_count += usize::from(!is_aligned);
            if let Some(payouts) = self.decided.get(&condition_id) {
                resolve(&mut info, payouts);
            }
            if let Some(market) = known {
                market.note_withheld(!is_aligned, &condition_id);
                if market.describe(info) {
                    self.mark_resolved(market);
                }
                self.mark_changed(market);
            } else {
                if markets.len() >= MARKETS_MAX {
                    return Err(ListError::TooMany);
                }
                let market = Arc::new(Market::new(info));
                market.note_withheld(!is_aligned, &condition_id);
                if market.info().status == MarketStatus::Resolved {
                    self.mark_resolved(&market);
                }
                markets.push(market.clone());
                added.insert(condition_id, market);
            }
        }
        let leaving = self.settled_too_many();
        let is_leaving: HashSet<*const Market> = leaving.iter().map(Arc::as_ptr).collect();
        markets.retain(|market| !is_leaving.contains(&Arc::as_ptr(market)));
        self.listing.store(Arc::new(Listing::of(markets)));
        Ok(Listed { left: leaving, withheld_count })
    }

    /// Brings a description into the order in which its market is known. One that names other
    /// tokens becomes the known one, paused, and is told by `false`.
    fn align(&self, info: &mut MarketInfo, known: Option<&Arc<Market>>) -> bool {
        let current = known.map(|market| market.info());
        let outcomes = self.traded.get(&info.condition_id);
        let outcomes = outcomes.or_else(|| current.as_ref().map(|known| &known.outcomes));
        if outcomes.is_none_or(|outcomes| info.align(outcomes).is_ok()) {
            return true;
        }
        let told = info.status;
        match current {
            Some(known) => *info = MarketInfo::clone(&known),
            // Nobody was told what it pays.
            None if told == MarketStatus::Resolved => info.status = MarketStatus::Closed,
            None => {}
        }
        info.withhold(told);
        false
    }

    fn settled_too_many(&self) -> Vec<Arc<Market>> {
        let mut settled = self.settled.lock();
        let surplus = settled.len().saturating_sub(SETTLED_LISTED_MAX);
        settled.drain(..surplus).collect()
    }

    /// Publishes the book of one outcome and puts its market on the list of changes.
    pub fn publish(&self, market: &Arc<Market>, outcome: OutcomeIndex, book: Arc<Book>) {
        market.books[outcome.index()].store(Some(book));
        self.mark_changed(market);
    }

    /// Puts a market on the list of changes, once until the list is taken.
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

    /// Waits until a market is resolved and takes all that are, each once. One task calls this.
    pub async fn resolutions(&self) -> Vec<Arc<Market>> {
        loop {
            let resolved = std::mem::take(&mut *self.resolved.lock());
            if !resolved.is_empty() {
                return resolved;
            }
            self.resolution.notified().await;
        }
    }

    /// Takes note that nothing is left to pay in a market, which [`Markets::resolutions`] told.
    pub fn mark_settled(&self, market: Arc<Market>) {
        self.settled.lock().push_back(market);
        self.unsettled.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many markets are resolved and not settled yet.
    pub fn unsettled_count(&self) -> usize {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Waits until a market has changed and takes the whole list. One task calls this.
    pub async fn changes(&self) -> Vec<Arc<Market>> {
        loop {
            let changed = std::mem::take(&mut *self.changed.lock());
            if !changed.is_empty() {
                for market in &changed {
                    // Cleared before the fan-out reads the market: a later change lists it again.
                    market.is_changed.store(false, Ordering::Release);
                }
                return changed;
            }
            self.change.notified().await;
        }
    }
}

impl Listing {
    fn of(mut markets: Vec<Arc<Market>>) -> Self {
        markets.sort_by_cached_key(|market| std::cmp::Reverse(market.info().volume_total));
        let mut by_condition = HashMap::default();
        let mut by_token = HashMap::default();
        for market in &markets {
            let info = market.info();
            by_condition.insert(info.condition_id.clone(), market.clone());
            for (index, outcome) in (0_u8..).zip(&info.outcomes) {
                if !outcome.token_id.is_empty() {
                    by_token
                        .insert(outcome.token_id.clone(), (market.clone(), OutcomeIndex(index)));
                }
            }
        }
        Self { markets, by_condition, by_token }
    }

    /// All markets, most traded first.
    pub fn markets(&self) -> &[Arc<Market>] {
        &self.markets
    }

    /// The market that orders call by this name.
    pub fn by_condition(&self, condition_id: &str) -> Option<&Arc<Market>> {
        self.by_condition.get(condition_id)
    }

    /// The market and the outcome that this token pays for.
    pub fn by_token(&self, token_id: &str) -> Option<(&Arc<Market>, OutcomeIndex)> {
        self.by_token.get(token_id).map(|(market, outcome)| (market, *outcome))
    }
}

impl Market {
    /// A market without books.
    pub fn new(info: MarketInfo) -> Self {
        let books = info.outcomes.iter().map(|_| ArcSwapOption::empty()).collect();
        Self {
            info: ArcSwap::from_pointee(info),
            books,
            is_changed: AtomicBool::new(false),
            is_withheld: AtomicBool::new(false),
        }
    }

    /// Its description at this moment.
    pub fn info(&self) -> Guard<Arc<MarketInfo>> {
        self.info.load()
    }

    /// The book of an outcome at this moment, if one is known.
    pub fn book(&self, outcome: OutcomeIndex) -> Guard<Option<Arc<Book>>> {
        self.books[outcome.index()].load()
    }

    /// Description and books for one decision.
    pub fn snapshot(&self) -> MarketSnapshot {
        MarketSnapshot {
            info: self.info.load(),
            books: self.books.iter().map(ArcSwapOption::load).collect(),
        }
    }

    /// Replaces the description. A resolved market keeps its status and payouts: a late page of
    /// the venue's catalogue must not reopen it. Tells whether it is resolved by this.
    fn describe(&self, mut info: MarketInfo) -> bool {
        let before = self.info.load();
        let was_resolved = before.status == MarketStatus::Resolved;
        if was_resolved || !before.status.may_become(info.status) {
            info.status = before.status;
            info.payouts.clone_from(&before.payouts);
            info.evidence.clone_from(&before.evidence);
        }
        let is_resolved = info.status == MarketStatus::Resolved;
        self.info.store(Arc::new(info));
        is_resolved && !was_resolved
    }

    /// Takes note of whether the newest description names other tokens, and says so once.
    fn note_withheld(&self, is_withheld: bool, condition_id: &str) {
        if self.is_withheld.swap(is_withheld, Ordering::Relaxed) != is_withheld && is_withheld {
            tracing::warn!(
                market = condition_id,
                "its description names other tokens than before: no order fills until it names \
                 the known ones"
            );
        }
    }
}

/// Describes a market as it was decided. Where the venue lists other tokens now, nothing of what
/// was decided can be shown: the market is closed.
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
}

impl MarketSnapshot {
    /// The description.
    pub fn info(&self) -> &MarketInfo {
        &self.info
    }

    /// What a decision needs of it.
    #[inline]
    pub fn quote(&self) -> Quote<'_> {
        Quote::new(&self.info, self.books.iter().map(|book| book.as_deref()))
    }

    /// The book that an outcome trades on, see [`Quote::book`].
    pub fn quoted(&self, outcome: OutcomeIndex) -> Option<QuotedBook<'_>> {
        self.quote().book(outcome)
    }

    /// Whether an order can fill in it: it is tradable, and some outcome has a fresh book.
    pub fn has_fresh_book(&self) -> bool {
        self.info.is_tradable()
            && self.books.iter().any(|book| book.as_ref().is_some_and(|b| !b.stale))
    }
}

#[cfg(test)]
mod tests;
