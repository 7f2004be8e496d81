//! Candles of any width, built from stored bars without gaps. Pure.
//!
//! The price holds between changes, so a candle without a change repeats the last price. Candles
//! are left out only for the time during which the feed was down, unless the price was the same
//! before and after.

use super::volume::Volumes;
use super::{Bar, History, MINUTES_PER_HOUR, Unit};
use crate::money::{Price, Shares};

/// Maximum number of candles in one answer: all hours that are kept.
pub const CANDLES_MAX: u32 = super::HOURS_KEPT;

/// Upper bound of the times of requested candles, in seconds since 1970: the year 2514.
const SECONDS_MAX: i64 = 1 << 34;

const HOUR: Width = Width { unit: Unit::Hour, units: 1 };

/// The length of a candle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Width {
    unit: Unit,
    /// Number of units, above 0.
    units: u32,
}

/// The span of the requested candles. Times are in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Only candles that end after this time.
    pub from: i64,
    /// Only candles that begin no later than this time.
    pub to: i64,
    /// The time until which the newest price is known to have held; `None` if it no longer applies.
    pub present: Option<i64>,
}

/// The price at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PricePoint {
    /// The moment, in seconds since 1970.
    pub at: i64,
    /// The price that held at that moment.
    pub price: Price,
}

/// The prices and the volume on this exchange within a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candle {
    /// The start of the candle, a multiple of its width, in seconds since 1970.
    pub start: i64,
    /// The price at the start of the candle.
    pub open: Price,
    /// The highest price.
    pub high: Price,
    /// The lowest price.
    pub low: Price,
    /// The price at the end of the candle, or the newest price if the candle has not ended.
    pub close: Price,
    /// Shares traded on this exchange.
    pub volume: Shares,
}

impl Width {
    /// Returns a width of this many minutes, built from minute bars, or `None` for 0.
    pub const fn minutes(count: u32) -> Option<Self> {
        Self::of(Unit::Minute, count)
    }

    /// Returns a width of this many hours, built from hour bars, or `None` for 0.
    pub const fn hours(count: u32) -> Option<Self> {
        Self::of(Unit::Hour, count)
    }

    const fn of(unit: Unit, units: u32) -> Option<Self> {
        if units == 0 { None } else { Some(Self { unit, units }) }
    }

    /// Returns a width of this many minutes. A width of an hour or more is rounded down to whole
    /// hours, because hour bars are kept longer. Returns `None` for 0.
    pub const fn near(minutes: u32) -> Option<Self> {
        if minutes < MINUTES_PER_HOUR {
            Self::minutes(minutes)
        } else {
            Self::hours(minutes / MINUTES_PER_HOUR)
        }
    }

    /// Returns the length in seconds.
    pub fn seconds(self) -> i64 {
        self.unit.seconds() * i64::from(self.units)
    }
}

impl PricePoint {
    /// Returns the price of the other outcome of a binary market.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        Self { price: self.price.complement(), ..self }
    }
}

impl Candle {
    /// Returns the candle of the other outcome of a binary market.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        // The complement reverses the order of prices, so the high becomes the low.
        Self {
            open: self.open.complement(),
            high: self.low.complement(),
            low: self.high.complement(),
            close: self.close.complement(),
            ..self
        }
    }

    fn flat(start: i64, price: u32) -> Self {
        let price = Price::from_micros(price.into());
        Self { start, open: price, high: price, low: price, close: price, volume: Shares::ZERO }
    }

    fn add(&mut self, bar: &Bar) {
        self.high = self.high.max(Price::from_micros(bar.high.into()));
        self.low = self.low.min(Price::from_micros(bar.low.into()));
        self.close = Price::from_micros(bar.close.into());
    }
}

impl History {
    /// Returns the newest [`CANDLES_MAX`] candles of a span, oldest first.
    pub fn candles(&self, width: Width, span: Span, volumes: Option<&Volumes>) -> Vec<Candle> {
        let (series, unit_seconds) = (self.series(width.unit), width.unit.seconds());
        let start_of = |bar: &Bar| i64::from(bar.start) * unit_seconds;
        let (Some(oldest), Some(newest)) = (series.get(0), series.newest.as_ref()) else {
            return Vec::new();
        };
        let step = width.seconds();
        let floor = |seconds: i64| seconds.clamp(0, SECONDS_MAX).div_euclid(step) * step;
        let present = span.present.map_or(0, |present| present.max(0)).max(start_of(newest));
        let last = floor(span.to.min(present));
        let first = floor(span.from.max(start_of(oldest)));
        if span.to < 0 || first > last {
            return Vec::new();
        }
        let first = first.max(last - step * i64::from(CANDLES_MAX - 1));
        let mut index = series.first_from(first / unit_seconds);
        let mut held = index.checked_sub(1).and_then(|index| series.get(index)).map(|it| it.close);
        let mut candles = Vec::new();
        let mut start = first;
        while start <= last {
            let mut candle = None;
            while let Some(bar) = series.get(index).filter(|bar| start_of(bar) < start + step) {
                candle.get_or_insert_with(|| Candle::flat(start, bar.open)).add(bar);
                held = Some(bar.close);
                index += 1;
            }
            let held_on = || {
                let next = series.get(index);
                held.filter(|&held| next.is_none_or(|next| next.open == held))
            };
            let candle = candle.or_else(|| Some(Candle::flat(start, held_on()?)));
            candles.extend(candle.map(|candle| Candle {
                volume: volumes.map_or(Shares::ZERO, |it| it.sum(width.unit, start, start + step)),
                ..candle
            }));
            start += step;
        }
        candles
    }

    /// Returns the price at each multiple of a width within a span, and the newest price, oldest
    /// first. Where no minute bars are kept, returns the price at each full hour. Besides the
    /// newest price, there are at most twice [`CANDLES_MAX`] points.
    pub fn points(&self, width: Width, span: Span) -> Vec<PricePoint> {
        let fine = self.candles(width, span, None);
        let first = fine.first().map_or(i64::MAX, |candle| candle.start);
        let coarse = match width.unit {
            Unit::Minute => self.candles(HOUR, span, None),
            Unit::Hour => Vec::new(),
        };
        // The first hour has no price at its start, so its minute bars are preferred.
        let oldest = self.hours.get(0).map_or(0, |bar| i64::from(bar.start) * HOUR.seconds());
        let is_older = |candle: &&Candle| {
            candle.start < first
                && (candle.start > oldest || candle.start + HOUR.seconds() <= first)
        };
        let point = |candle: &Candle| PricePoint { at: candle.start, price: candle.open };
        let points = coarse.iter().filter(is_older).chain(&fine).map(point);
        // A candle that began before the span may reach into it. Its opening price is not part of
        // the span.
        let mut points: Vec<PricePoint> = points.filter(|it| span.from <= it.at).collect();
        let newest = self.newest_point(span.present).filter(|newest| {
            (span.from..=span.to).contains(&newest.at)
                && points.last().is_none_or(|last| last.at < newest.at)
        });
        points.extend(newest);
        points
    }

    /// Returns the newest price, at the present if it still holds, or else at the end of its bar.
    fn newest_point(&self, present: Option<i64>) -> Option<PricePoint> {
        let (unit, bar) = match self.minutes.newest {
            Some(bar) => (Unit::Minute, bar),
            None => (Unit::Hour, self.hours.newest?),
        };
        let start = i64::from(bar.start) * unit.seconds();
        let at = present.map_or(start + unit.seconds() - 1, |present| present.max(start));
        Some(PricePoint { at, price: Price::from_micros(bar.close.into()) })
    }
}
