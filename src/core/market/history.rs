//! The price of an outcome over time, as minute bars and hour bars. Pure.
//!
//! A price holds until it changes. So a bar opens at the price that held when the bar began, and is
//! only stored if the price changed during the bar. [`candle`] fills in the rest.
//!
//! Times are the venue's. A change that is slightly late counts in the newest bar. If the venue's
//! time jumps back further, as when a recording restarts, the bars from there on are replaced.

pub mod candle;
pub mod volume;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use volume::Volumes;

use crate::ids::Timestamp;
use crate::money::Price;

/// Number of minutes for which an outcome's minute bars are kept: a day.
pub const MINUTES_KEPT: u32 = 24 * 60;

/// Number of hours for which an outcome's hour bars are kept: 90 days.
pub const HOURS_KEPT: u32 = 90 * 24;

/// Maximum number of stored bars, of 20 bytes each, for all outcomes together. At this limit, an
/// outcome drops its oldest bar for each new one.
pub const BARS_MAX: usize = 8_000_000;

/// How late, in minutes, a change may be and still count in the newest bar.
const LATE_MINUTES_MAX: u32 = 1;

const MINUTES_PER_HOUR: u32 = 60;

/// The length of a stored bar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    /// 60 seconds.
    Minute,
    /// 3,600 seconds.
    Hour,
}

/// The prices within a minute or an hour, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bar {
    /// Number of the minute or hour since 1970.
    pub start: u32,
    /// The price when the bar began, or the first known price if there was none at that time.
    pub open: u32,
    /// The highest price.
    pub high: u32,
    /// The lowest price.
    pub low: u32,
    /// The last price.
    pub close: u32,
}

/// The bars of an outcome. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct History {
    minutes: Series,
    hours: Series,
    /// Whether the feed was down between the newest bar and the next change of the price.
    is_resumed: bool,
}

/// The recorded past of a token.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PriceRecord {
    /// The token's prices.
    pub history: Arc<History>,
    /// The token's volume on this exchange.
    pub volumes: Volumes,
}

/// Bars of one length, oldest first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Series {
    closed: Arc<Vec<Bar>>,
    newest: Option<Bar>,
}

impl Unit {
    /// Returns the length in seconds.
    pub const fn seconds(self) -> i64 {
        match self {
            Self::Minute => 60,
            Self::Hour => 3_600,
        }
    }

    const fn kept(self) -> u32 {
        match self {
            Self::Minute => MINUTES_KEPT,
            Self::Hour => HOURS_KEPT,
        }
    }

    /// Returns the number of the minute or hour of this time, or `None` before 1970.
    fn number(self, at: Timestamp) -> Option<u32> {
        u32::try_from(at.seconds().div_euclid(self.seconds())).ok()
    }
}

impl Bar {
    fn opening(start: u32, open: u32) -> Self {
        Self { start, open, high: open, low: open, close: open }
    }

    fn add(&mut self, price: u32) {
        self.high = self.high.max(price);
        self.low = self.low.min(price);
        self.close = price;
    }

    /// Whether the prices are consistent and none is above one dollar.
    pub fn is_valid(&self) -> bool {
        let prices = self.low..=self.high;
        prices.contains(&self.open) && prices.contains(&self.close) && self.high <= PRICE_MAX
    }
}

/// One dollar, in millionths.
const PRICE_MAX: u32 = 1_000_000;

impl History {
    /// Creates a history that continues after a period without observations. The bars must be valid
    /// and in order.
    pub fn resuming(mut hours: Vec<Bar>) -> Self {
        let newest = hours.pop();
        let hours = Series { closed: Arc::new(hours), newest };
        Self { minutes: Series::default(), hours, is_resumed: true }
    }

    /// Whether the history has no bars.
    pub const fn is_empty(&self) -> bool {
        self.hours.newest.is_none()
    }

    /// Returns the number of stored bars.
    pub fn bar_count(&self) -> usize {
        self.minutes.len() + self.hours.len()
    }

    /// Iterates over the stored hour bars, oldest first.
    pub fn hours(&self) -> impl ExactSizeIterator<Item = &Bar> {
        (0..self.hours.len()).map(|index| self.hours.get(index).expect("the index is in range"))
    }

    /// Returns the price that held at the start of this hour, counted since 1970, or `None` if
    /// there was no price yet.
    pub fn held_at(&self, hour: i64) -> Option<Price> {
        let before = self.hours.first_from(hour).checked_sub(1)?;
        self.hours.get(before).map(|bar| Price::from_micros(bar.close.into()))
    }

    /// Returns the newest price, in millionths.
    pub fn close(&self) -> Option<u32> {
        self.hours.newest.map(|bar| bar.close)
    }

    /// Whether recording this price would add information.
    pub fn is_news(&self, price: Price) -> bool {
        self.is_resumed || self.close().is_none_or(|close| i64::from(close) != price.micros())
    }

    /// Records a change of the price. A history that may not grow drops as many old bars as it
    /// adds. A price before 1970 or outside 0 to 1 is ignored.
    pub fn record(&mut self, at: Timestamp, price: Price, may_grow: bool) {
        let Some(minute) = Unit::Minute.number(at) else { return };
        let price = u32::try_from(price.micros()).ok().filter(|&price| price <= PRICE_MAX);
        let Some(price) = price else { return };
        let on_time = minute.saturating_add(LATE_MINUTES_MAX);
        let is_before = match (self.minutes.newest, self.hours.newest) {
            (Some(newest), _) => on_time < newest.start,
            (None, Some(newest)) => on_time / MINUTES_PER_HOUR < newest.start,
            (None, None) => false,
        };
        let hour = minute / MINUTES_PER_HOUR;
        if is_before {
            self.minutes.cut(minute);
            self.hours.cut(hour);
            self.is_resumed = true;
        }
        let held = self.close().filter(|_| !self.is_resumed);
        self.minutes.record(Unit::Minute, minute, held.unwrap_or(price), price, may_grow);
        self.hours.record(Unit::Hour, hour, held.unwrap_or(price), price, may_grow);
        self.is_resumed = false;
    }

    const fn series(&self, unit: Unit) -> &Series {
        match unit {
            Unit::Minute => &self.minutes,
            Unit::Hour => &self.hours,
        }
    }
}

impl Series {
    fn len(&self) -> usize {
        self.closed.len() + usize::from(self.newest.is_some())
    }

    fn get(&self, index: usize) -> Option<&Bar> {
        if index == self.closed.len() { self.newest.as_ref() } else { self.closed.get(index) }
    }

    /// Returns the index of the first bar from `start` on.
    fn first_from(&self, start: i64) -> usize {
        let before = self.closed.partition_point(|bar| i64::from(bar.start) < start);
        let is_newest_before = self.newest.is_some_and(|bar| i64::from(bar.start) < start);
        before + usize::from(is_newest_before)
    }

    fn record(&mut self, unit: Unit, start: u32, open: u32, price: u32, may_grow: bool) {
        match &mut self.newest {
            Some(newest) if start <= newest.start => newest.add(price),
            newest => {
                let mut bar = Bar::opening(start, open);
                bar.add(price);
                if let Some(closed) = newest.replace(bar) {
                    self.close(unit, closed, start, may_grow);
                }
            }
        }
    }

    /// Appends a finished bar, and drops the bars that become too old when the next one begins at
    /// `now`. Copies the bars, since readers may hold the old vector. This takes a few microseconds
    /// each minute.
    fn close(&mut self, unit: Unit, bar: Bar, now: u32, may_grow: bool) {
        debug_assert!(now > bar.start, "a bar ends before the next one begins");
        let is_kept = |bar: &Bar| now - bar.start < unit.kept();
        let mut dropped = self.closed.partition_point(|bar| !is_kept(bar));
        if dropped == 0 && !may_grow {
            dropped = 1;
        }
        let kept = self.closed.get(dropped..).unwrap_or_default();
        let mut bars = Vec::with_capacity(kept.len() + 1);
        bars.extend_from_slice(kept);
        // At the limit, an outcome that has no older bar to drop has no room for this one.
        if is_kept(&bar) && (may_grow || dropped <= self.closed.len()) {
            bars.push(bar);
        }
        self.closed = Arc::new(bars);
    }

    /// Removes the bars from `start` on.
    fn cut(&mut self, start: u32) {
        let index = self.first_from(start.into());
        if index < self.len() {
            let mut bars = self.closed.get(..index).unwrap_or_default().to_vec();
            self.newest = bars.pop();
            self.closed = Arc::new(bars);
        }
    }
}
