//! The price histories of all outcomes, as the feed writes and readers see them.
//!
//! The feed publishes a new snapshot of a history when the price has changed, and readers load it
//! without a lock. Volumes are counted by another task, behind a lock that the feed never takes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use super::delay::REAL_TIME_MICROS;
use super::history::candle::{Candle, PricePoint, Span, Width};
use super::history::volume::Volumes;
use super::history::{BARS_MAX, History, PriceRecord, Unit};
use super::{Market, Markets};
use crate::ids::{OutcomeIndex, Timestamp};
use crate::money::{Price, Shares};

/// How long a venue that is followed live may be silent and still count as keeping our time: a day.
const SILENCE_NS_MAX: i128 = 24 * 3_600 * 1_000_000_000;

/// The histories of all markets together.
#[derive(Default)]
pub(super) struct Histories {
    /// What an earlier process knew of tokens that are not listed yet.
    unlisted: Mutex<HashMap<Arc<str>, PriceRecord, foldhash::fast::RandomState>>,
    /// The newest time of any price, in nanoseconds since 1970.
    newest_ns: AtomicI64,
    /// The number of stored bars.
    bar_count: AtomicUsize,
}

/// The history of one outcome.
#[derive(Default)]
pub(super) struct OutcomeHistory {
    prices: ArcSwapOption<History>,
    volumes: Mutex<Option<Box<Volumes>>>,
}

impl Histories {
    /// Gives a new market what an earlier process knew of it.
    pub(super) fn attach(&self, market: &Market) {
        let mut unlisted = self.unlisted.lock();
        if unlisted.is_empty() {
            return;
        }
        for (outcome, known) in market.info().outcomes.iter().zip(&market.histories) {
            if let Some(record) = unlisted.remove(&outcome.token_id) {
                known.prices.store(Some(record.history));
                *known.volumes.lock() = Some(Box::new(record.volumes));
            }
        }
    }
}

impl Markets {
    /// Starts with these histories, which belong to their markets once they are listed.
    #[must_use]
    pub fn with_histories(
        self,
        records: impl IntoIterator<Item = (Arc<str>, PriceRecord)>,
    ) -> Self {
        let records: HashMap<_, _, _> = records.into_iter().collect();
        let bars = records.values().map(|record: &PriceRecord| record.history.bar_count());
        self.histories.bar_count.store(bars.sum(), Ordering::Relaxed);
        *self.histories.unlisted.lock() = records;
        self
    }

    /// Notes the price that an outcome shows from this time on. Only the feed calls this.
    pub fn record_price(
        &self,
        market: &Market,
        outcome: OutcomeIndex,
        at: Timestamp,
        price: Price,
    ) {
        let known = &market.histories[outcome.index()];
        let mut history = known.prices.load().as_deref().cloned().unwrap_or_default();
        if !history.is_news(price) {
            return;
        }
        let (total, before) = (&self.histories.bar_count, history.bar_count());
        history.record(at, price, total.load(Ordering::Relaxed) < BARS_MAX);
        // The sum wraps, so this also subtracts.
        total.fetch_add(history.bar_count().wrapping_sub(before), Ordering::Relaxed);
        known.prices.store(Some(Arc::new(history)));
    }

    /// Notes the payouts of a market that has been resolved, where prices were noted before. Only
    /// the feed calls this.
    pub fn record_payouts(&self, market: &Market, at: Timestamp) {
        let info = market.info();
        for (outcome, &payout) in (0_u8..).map(OutcomeIndex).zip(&info.payouts) {
            let close = market.history(outcome).as_ref().and_then(|history| history.close());
            if close.is_some_and(|close| i64::from(close) != payout.micros()) {
                self.record_price(market, outcome, at.max(self.newest_price_at()), payout);
            }
        }
    }

    /// Forgets the prices of markets that are no longer listed.
    pub(super) fn forget_histories(&self, left: &[Arc<Market>]) {
        let left = left.iter().flat_map(|market| &market.histories);
        let bars = left.filter_map(|known| Some(known.prices.load_full()?.bar_count()));
        self.histories.bar_count.fetch_sub(bars.sum(), Ordering::Relaxed);
    }

    /// The number of bars in all histories.
    pub(super) fn bar_count(&self) -> usize {
        self.histories.bar_count.load(Ordering::Relaxed)
    }

    /// The newest time of any price; [`Timestamp::EPOCH`] before the first.
    pub fn newest_price_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.histories.newest_ns.load(Ordering::Relaxed))
    }

    /// Notes that the venue's time has reached this. Only the feed calls this.
    pub fn note_price_time(&self, at: Timestamp) {
        // There is only one writer.
        if self.histories.newest_ns.load(Ordering::Relaxed) < at.nanos() {
            self.histories.newest_ns.store(at.nanos(), Ordering::Relaxed);
        }
    }

    /// Counts shares of an outcome that changed hands on this exchange now, by the venue's time.
    pub fn add_volume(&self, market: &Market, outcome: OutcomeIndex, shares: Shares) {
        let mut volumes = market.histories[outcome.index()].volumes.lock();
        volumes.get_or_insert_default().add(self.newest_price_at(), shares);
    }

    /// What is known of the past of an outcome's token.
    pub fn price_record(&self, market: &Market, outcome: OutcomeIndex) -> Option<PriceRecord> {
        let known = &market.histories[outcome.index()];
        let history = known.prices.load_full();
        let volumes = known.volumes.lock().as_deref().cloned();
        if history.is_none() && volumes.is_none() {
            return None;
        }
        Some(PriceRecord {
            history: history.unwrap_or_default(),
            volumes: volumes.unwrap_or_default(),
        })
    }

    /// What an earlier process knew of tokens that are not listed. Forgets those whose newest bar
    /// is older than this hour, counted since 1970.
    pub fn unlisted_records(&self, oldest_hour: u32) -> Vec<(Arc<str>, PriceRecord)> {
        let mut unlisted = self.histories.unlisted.lock();
        let is_kept = |record: &PriceRecord| {
            record.history.hours().last().is_some_and(|newest| newest.start >= oldest_hour)
        };
        let bars = |record: &PriceRecord| record.history.bar_count();
        let before: usize = unlisted.values().map(bars).sum();
        unlisted.retain(|_, record| is_kept(record));
        let after: usize = unlisted.values().map(bars).sum();
        self.histories.bar_count.fetch_sub(before - after, Ordering::Relaxed);
        unlisted.iter().map(|(token, record)| (token.clone(), record.clone())).collect()
    }

    /// The newest candles of an outcome within a span of time, whose `present` is set here. An
    /// outcome without prices of its own shows those of the other one, mirrored.
    pub fn candles(
        &self,
        market: &Market,
        outcome: OutcomeIndex,
        width: Width,
        span: Span,
    ) -> Vec<Candle> {
        let span = self.observed(market, span);
        let Some((history, is_mirror)) = market.shown_history(outcome) else { return Vec::new() };
        let volumes = market.histories[outcome.index()].volumes.lock();
        let mut candles = history.candles(width, span, volumes.as_deref());
        if is_mirror {
            candles = candles.into_iter().map(Candle::mirrored).collect();
        }
        candles
    }

    /// The prices of an outcome at each multiple of a width within a span of time, and the newest
    /// one, in the same way.
    pub fn price_points(
        &self,
        market: &Market,
        outcome: OutcomeIndex,
        width: Width,
        span: Span,
    ) -> Vec<PricePoint> {
        let span = self.observed(market, span);
        let Some((history, is_mirror)) = market.shown_history(outcome) else { return Vec::new() };
        let mut points = history.points(width, span);
        if is_mirror {
            points = points.into_iter().map(PricePoint::mirrored).collect();
        }
        points
    }

    /// The price that an outcome showed when the hour of a moment of our time began, by the venue's
    /// clock; `None` if it had none yet. An outcome that had no price of its own showed the other
    /// one's, mirrored.
    pub fn past_price(
        &self,
        market: &Market,
        outcome: OutcomeIndex,
        at: Timestamp,
        now: Timestamp,
    ) -> Option<Price> {
        let speed_micros = self.delays.speed_micros();
        let at = venue_time(at, now, self.newest_price_at(), speed_micros);
        let price = |outcome| {
            let history = market.history(outcome);
            let history = history.as_ref()?;
            if speed_micros == 0 {
                // The venue's time stands still.
                history.close().map(|close| Price::from_micros(close.into()))
            } else {
                history.held_at(at.seconds().div_euclid(Unit::Hour.seconds()))
            }
        };
        let mirror = || price(OutcomeIndex(1 - outcome.0)).map(Price::complement);
        price(outcome).or_else(|| if market.histories.len() == 2 { mirror() } else { None })
    }

    /// Extends the span to now for a market that is not closed: its newest price still holds.
    fn observed(&self, market: &Market, span: Span) -> Span {
        let is_closed = market.info().status.is_closed();
        Span { present: (!is_closed).then(|| self.newest_price_at().seconds()), ..span }
    }
}

/// The venue's time at a past moment of ours. A tape is at its newest price now, and was before
/// that as fast as it is played. A venue in real time whose newest price is not older than the
/// longest silence keeps our time.
fn venue_time(at: Timestamp, now: Timestamp, newest: Timestamp, speed_micros: u64) -> Timestamp {
    let nanos = |time: Timestamp| i128::from(time.nanos());
    let is_ours = (nanos(now) - nanos(newest)).abs() <= SILENCE_NS_MAX;
    if speed_micros == REAL_TIME_MICROS && is_ours {
        return at;
    }
    let passed =
        (nanos(now) - nanos(at)).max(0) * i128::from(speed_micros) / i128::from(REAL_TIME_MICROS);
    let venue = nanos(newest) - passed;
    Timestamp::from_nanos(i64::try_from(venue).unwrap_or(i64::MIN))
}

impl Market {
    /// The prices of an outcome so far; `None` if its own book never had one.
    pub fn history(&self, outcome: OutcomeIndex) -> Guard<Option<Arc<History>>> {
        self.histories[outcome.index()].prices.load()
    }

    /// The history that an outcome shows, and whether it is the other one's.
    fn shown_history(&self, outcome: OutcomeIndex) -> Option<(Arc<History>, bool)> {
        let known = |outcome| self.history(outcome).clone().filter(|it| !it.is_empty());
        let mirror = || known(OutcomeIndex(1 - outcome.0)).map(|it| (it, true));
        let own = known(outcome).map(|it| (it, false));
        if self.histories.len() == 2 { own.or_else(mirror) } else { own }
    }
}
