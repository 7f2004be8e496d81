//! Markets and their books as readers see them: snapshots, read without a lock.
//!
//! One feed writes, everybody reads. A reader sees each market's description and each outcome's
//! book as a complete value of one moment; a market that changed is put on a list once, however
//! often it changes before the fan-out takes the list.

pub mod book;
pub mod catalogue;
pub mod price;
pub mod walk;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use book::Book;
use catalogue::{MarketInfo, MarketStatus};
use walk::Liquidity;

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
}

/// Why markets cannot be listed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListError {
    /// There would be more than [`MARKETS_MAX`].
    #[error("more than {MARKETS_MAX} markets")]
    TooMany,
    /// A market that is known came again with another number of outcomes.
    #[error("market {condition_id} had {before} outcomes and came again with {after}")]
    OutcomesChanged {
        /// Which.
        condition_id: Arc<str>,
        /// How many outcomes it had.
        before: usize,
        /// How many it has in the refused description.
        after: usize,
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
    /// Returns the markets that left the listing, of the settled ones those past
    /// [`SETTLED_LISTED_MAX`].
    pub fn list(&self, infos: Vec<MarketInfo>) -> Result<Vec<Arc<Market>>, ListError> {
        let before = self.listing.load_full();
        let mut markets = before.markets.clone();
        let mut added: HashMap<Arc<str>, Arc<Market>, foldhash::fast::RandomState> =
            HashMap::default();
        for mut info in infos {
            let condition_id = info.condition_id.clone();
            if let Some(payouts) = self.decided.get(&condition_id) {
                resolve(&mut info, payouts);
            }
            let known = before.by_condition.get(&condition_id).or_else(|| added.get(&condition_id));
            if let Some(market) = known {
                if market.describe(info)? {
                    self.mark_resolved(market);
                }
                self.mark_changed(market);
            } else {
                if markets.len() >= MARKETS_MAX {
                    return Err(ListError::TooMany);
                }
                let market = Arc::new(Market::new(info));
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
        Ok(leaving)
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
        Self { info: ArcSwap::from_pointee(info), books, is_changed: AtomicBool::new(false) }
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
    fn describe(&self, mut info: MarketInfo) -> Result<bool, ListError> {
        let before = self.info.load();
        if before.outcomes.len() != info.outcomes.len() {
            return Err(ListError::OutcomesChanged {
                condition_id: info.condition_id,
                before: before.outcomes.len(),
                after: info.outcomes.len(),
            });
        }
        let was_resolved = before.status == MarketStatus::Resolved;
        if was_resolved || !before.status.may_become(info.status) {
            info.status = before.status;
            info.payouts.clone_from(&before.payouts);
            info.evidence.clone_from(&before.evidence);
        }
        let is_resolved = info.status == MarketStatus::Resolved;
        self.info.store(Arc::new(info));
        Ok(is_resolved && !was_resolved)
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

/// A market as one decision sees it.
pub struct MarketSnapshot {
    info: Guard<Arc<MarketInfo>>,
    books: SmallVec<[Guard<Option<Arc<Book>>>; 2]>,
}

/// The liquidity that an outcome trades on, and the book that it comes from.
#[derive(Clone, Copy)]
pub struct QuotedBook<'a> {
    /// The levels, mirrored where they are the other outcome's.
    pub liquidity: Liquidity<'a>,
    /// The book as it is, of whichever outcome.
    pub book: &'a Book,
}

impl MarketSnapshot {
    /// The description.
    pub fn info(&self) -> &MarketInfo {
        &self.info
    }

    /// The book that an outcome trades on: its own, or where none is known the mirror of the other
    /// outcome's of a binary market. The two are never added: each already holds the other.
    pub fn quoted(&self, outcome: OutcomeIndex) -> Option<QuotedBook<'_>> {
        if let Some(book) = self.books.get(outcome.index())?.as_deref() {
            return Some(QuotedBook { liquidity: Liquidity::own(book.ladder()), book });
        }
        if self.books.len() != 2 {
            return None;
        }
        let book = self.books[1 - outcome.index()].as_deref()?;
        Some(QuotedBook { liquidity: Liquidity::mirror_of(book.ladder()), book })
    }

    /// Whether an order can fill in it: it is tradable, and some outcome has a fresh book.
    pub fn has_fresh_book(&self) -> bool {
        self.info.is_tradable()
            && self.books.iter().any(|book| book.as_ref().is_some_and(|b| !b.stale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Timestamp;
    use crate::market::book::{Ladder, Level, Side};
    use crate::market::catalogue::{MarketStatus, Outcome};
    use crate::money::{Price, Shares};

    fn info(condition_id: &str, status: MarketStatus) -> MarketInfo {
        let outcomes = ["Yes", "No"].map(|label| Outcome {
            label: label.into(),
            token_id: format!("{condition_id}-{label}").into(),
        });
        MarketInfo { status, ..MarketInfo::bare(condition_id, outcomes) }
    }

    fn book(bid_micros: i64) -> Arc<Book> {
        let bid =
            Level { price: Price::from_micros(bid_micros), size: Shares::from_micros(1_000_000) };
        Arc::new(Book::new(Ladder::from_levels(vec![bid], vec![]).unwrap(), Timestamp::EPOCH))
    }

    #[test]
    fn a_market_is_found_by_every_name() {
        let markets = Markets::new();
        markets
            .list(vec![info("0xa", MarketStatus::Open), info("0xb", MarketStatus::Open)])
            .unwrap();
        let listing = markets.listing();
        assert_eq!(listing.markets().len(), 2);
        let (market, outcome) = listing.by_token("0xb-No").unwrap();
        assert_eq!((&*market.info().condition_id, outcome), ("0xb", OutcomeIndex(1)));
        assert!(markets.by_condition("0xc").is_none());
    }

    #[test]
    fn an_outcome_without_a_book_trades_on_the_mirror_of_the_other() {
        let markets = Markets::new();
        markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
        let market = markets.by_condition("0xa").unwrap();
        assert!(market.snapshot().quoted(OutcomeIndex(0)).is_none());
        markets.publish(&market, OutcomeIndex(1), book(400_000));
        let snapshot = market.snapshot();
        let touch = |outcome, side| snapshot.quoted(outcome).unwrap().liquidity.touch(side);
        assert_eq!(touch(OutcomeIndex(1), Side::Sell), Some(Price::from_micros(400_000)));
        assert_eq!(touch(OutcomeIndex(0), Side::Buy), Some(Price::from_micros(600_000)));
        assert_eq!(touch(OutcomeIndex(0), Side::Sell), None);
    }

    #[test]
    fn a_resolved_market_stays_resolved() {
        let markets = Markets::new();
        let resolved = MarketInfo {
            payouts: vec![Price::ONE, Price::ZERO],
            ..info("0xa", MarketStatus::Resolved)
        };
        markets.list(vec![resolved]).unwrap();
        markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
        let market = markets.by_condition("0xa").unwrap();
        assert_eq!(market.info().status, MarketStatus::Resolved);
        assert_eq!(market.info().payouts, [Price::ONE, Price::ZERO]);
    }

    #[tokio::test]
    async fn a_market_is_on_the_list_of_resolutions_once() {
        let resolved = |id| MarketInfo {
            payouts: vec![Price::ONE, Price::ZERO],
            ..info(id, MarketStatus::Resolved)
        };
        let markets = Markets::new();
        markets.list(vec![info("0xa", MarketStatus::Open), resolved("0xb")]).unwrap();
        let taken = async || {
            let taken = markets.resolutions().await;
            taken.iter().map(|market| market.info().condition_id.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(taken().await, ["0xb"]);
        markets.list(vec![resolved("0xb"), resolved("0xa")]).unwrap();
        assert_eq!(taken().await, ["0xa"], "and the other one not again");
        // What was said first stands.
        let other = vec![Price::ZERO, Price::ONE];
        markets.list(vec![MarketInfo { payouts: other, ..resolved("0xa") }]).unwrap();
        let payouts = &markets.by_condition("0xa").unwrap().info().payouts.clone();
        assert_eq!(*payouts, [Price::ONE, Price::ZERO]);
    }

    #[tokio::test]
    async fn of_settled_markets_the_newest_stay_listed() {
        let markets = Markets::new();
        let resolved = |number: usize| MarketInfo {
            payouts: vec![Price::ONE, Price::ZERO],
            ..info(&format!("0x{number}"), MarketStatus::Resolved)
        };
        let mut infos: Vec<_> = (0..SETTLED_LISTED_MAX + 3).map(resolved).collect();
        infos.push(info("0xopen", MarketStatus::Open));
        markets.list(infos).unwrap();
        for market in markets.resolutions().await {
            // The last one is not paid yet.
            if *market.info().condition_id != *resolved(SETTLED_LISTED_MAX + 2).condition_id {
                markets.mark_settled(market);
            }
        }
        assert_eq!(markets.unsettled_count(), 1);
        let all = SETTLED_LISTED_MAX + 4;
        assert_eq!(markets.listing().markets().len(), all, "until something is listed");

        let left = markets.list(vec![]).unwrap();
        let left: Vec<_> = left.iter().map(|it| it.info().condition_id.to_string()).collect();
        assert_eq!(left, ["0x0", "0x1"]);
        assert_eq!(markets.listing().markets().len(), all - 2);
        assert!(markets.by_condition("0x0").is_none());
        assert!(markets.listing().by_token("0x1-No").is_none());
        assert!(markets.by_condition("0x2").is_some());
        assert!(markets.by_condition("0xopen").is_some());
        assert!(markets.list(vec![]).unwrap().is_empty(), "each leaves once");
    }

    #[test]
    fn what_was_decided_before_the_start_is_listed_so() {
        let decided = |id: &str, no: &str| {
            let payouts = vec![
                (format!("{id}-{no}").into(), Price::ONE),
                (format!("{id}-Yes").into(), Price::ZERO),
            ];
            (Arc::from(id), payouts)
        };
        let markets = Markets::remembering([decided("0xa", "No"), decided("0xb", "Never")]);
        let listed =
            ["0xa", "0xb", "0xc"].map(|id| info(id, MarketStatus::Open)).into_iter().collect();
        markets.list(listed).unwrap();
        let now = |id: &str| {
            let market = markets.by_condition(id).unwrap();
            let info = market.info();
            (info.status, info.payouts.clone())
        };
        assert_eq!(now("0xa"), (MarketStatus::Resolved, vec![Price::ZERO, Price::ONE]));
        assert_eq!(now("0xb"), (MarketStatus::Closed, vec![]), "its tokens are others now");
        assert_eq!(now("0xc"), (MarketStatus::Open, vec![]));
    }

    #[test]
    fn outcomes_do_not_change_in_number() {
        let markets = Markets::new();
        markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
        let mut other = info("0xa", MarketStatus::Open);
        other.outcomes.pop();
        assert_eq!(
            markets.list(vec![other]).err(),
            Some(ListError::OutcomesChanged { condition_id: "0xa".into(), before: 2, after: 1 })
        );
    }

    #[tokio::test]
    async fn a_changed_market_is_listed_once_until_the_list_is_taken() {
        let markets = Markets::new();
        markets.list(vec![info("0xa", MarketStatus::Open)]).unwrap();
        let market = markets.by_condition("0xa").unwrap();
        markets.publish(&market, OutcomeIndex(0), book(400_000));
        markets.publish(&market, OutcomeIndex(0), book(410_000));
        assert_eq!(markets.changes().await.len(), 1);
        markets.publish(&market, OutcomeIndex(1), book(420_000));
        assert_eq!(markets.changes().await.len(), 1);
    }
}
