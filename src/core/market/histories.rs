//! The price histories of all outcomes, written by the feed and shared with readers.
//!
//! The feed publishes a new snapshot of a history when the price has changed, and readers load it
//! without a lock. Volumes are counted by another task, under a lock that the feed never takes.

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

/// How long a venue followed live may be silent and still be assumed to keep our time: a day.
const SILENCE_NS_MAX: i128 = 24 * 3_600 * 1_000_000_000;

/// The histories of all markets together.
#[derive(Default)]
pub(super) struct Histories {
    /// Records from an earlier process for tokens that are not listed yet.
    unlisted: Mutex<HashMap<Arc<str>, PriceRecord, foldhash::fast::RandomState>>,
    /// The latest time of any price, in nanoseconds since 1970.
    newest_ns: AtomicI64,
    /// Number of stored bars.
    bar_count: AtomicUsize,
}

/// The history of one outcome.
#[derive(Default)]
pub(super) struct OutcomeHistory {
    prices: ArcSwapOption<History>,
    volumes: Mutex<Option<Box<Volumes>>>,
}

impl Histories {
    /// Attaches the records from an earlier process to a new market.
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
    /// Starts with these histories. Each moves to its market once the market is listed.
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

    /// Records the price that an outcome shows from this time on. Only the feed calls this.
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

    /// Records the payouts of a resolved market for the outcomes that have a price history. Only
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

    /// Stops counting the bars of markets that are no longer listed.
    pub(super) fn forget_histories(&self, left: &[Arc<Market>]) {
        let left = left.iter().flat_map(|market| &market.histories);
        let bars = left.filter_map(|known| Some(known.prices.load_full()?.bar_count()));
        self.histories.bar_count.fetch_sub(bars.sum(), Ordering::Relaxed);
    }

    /// Returns the number of bars in all histories.
    pub(super) fn bar_count(&self) -> usize {
        self.histories.bar_count.load(Ordering::Relaxed)
    }

    /// Returns the latest time of any price; [`Timestamp::EPOCH`] before the first.
    pub fn newest_price_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.histories.newest_ns.load(Ordering::Relaxed))
    }

    /// Advances the venue's time to `at`, unless it is already later. Only the feed calls this.
    pub fn note_price_time(&self, at: Timestamp) {
        // There is only one writer, so the load and the store need not be atomic together.
        if self.histories.newest_ns.load(Ordering::Relaxed) < at.nanos() {
            self.histories.newest_ns.store(at.nanos(), Ordering::Relaxed);
        }
    }

    /// Counts shares of an outcome that were just traded on this exchange, at the venue's current
    /// time.
    pub fn add_volume(&self, market: &Market, outcome: OutcomeIndex, shares: Shares) {
        let mut volumes = market.histories[outcome.index()].volumes.lock();
        volumes.get_or_insert_default().add(self.newest_price_at(), shares);
    }

    /// Returns the recorded past of an outcome's token, if any.
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

    /// Returns the records from an earlier process for tokens that are not listed. Drops the
    /// records whose newest bar is older than `oldest_hour`, counted in hours since 1970.
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

    /// Returns the newest candles of an outcome within a span of time. The `present` of the span is
    /// filled in here. An outcome without prices of its own shows the other outcome's, mirrored.
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

    /// Returns the prices of an outcome at each multiple of a width within a span of time, followed
    /// by the newest price. An outcome without prices of its own shows the other outcome's,
    /// mirrored.
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

    /// Returns the price that an outcome showed at the start of the hour of `at`, or `None` if it
    /// had no price yet. `at` is a time by our clock, and is converted to the venue's clock. An
    /// outcome without a price of its own showed the other outcome's, mirrored.
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
                // The venue's time is stopped.
                history.close().map(|close| Price::from_micros(close.into()))
            } else {
                history.held_at(at.seconds().div_euclid(Unit::Hour.seconds()))
            }
        };
        let mirror = || price(OutcomeIndex(1 - outcome.0)).map(Price::complement);
        price(outcome).or_else(|| if market.histories.len() == 2 { mirror() } else { None })
    }

    /// Extends the span to the present if the market is not closed, because its newest price still
    /// holds.
    fn observed(&self, market: &Market, span: Span) -> Span {
        let is_closed = market.info().status.is_closed();
        Span { present: (!is_closed).then(|| self.newest_price_at().seconds()), ..span }
    }
}

/// Converts a past time by our clock to the venue's time. A tape is now at its newest price, and
/// reached it at its playback speed. A venue in real time is assumed to keep our time, unless its
/// newest price is further from now than the longest silence.
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
    /// Returns the price history of an outcome; `None` if its own book never had a price.
    pub fn history(&self, outcome: OutcomeIndex) -> Guard<Option<Arc<History>>> {
        self.histories[outcome.index()].prices.load()
    }

    /// Returns the history that an outcome shows, and whether it belongs to the other outcome.
    fn shown_history(&self, outcome: OutcomeIndex) -> Option<(Arc<History>, bool)> {
        let known = |outcome| self.history(outcome).clone().filter(|it| !it.is_empty());
        let mirror = || known(OutcomeIndex(1 - outcome.0)).map(|it| (it, true));
        let own = known(outcome).map(|it| (it, false));
        if self.histories.len() == 2 { own.or_else(mirror) } else { own }
    }
}
