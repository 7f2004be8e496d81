//! Candles of any width from stored bars, without holes. Pure.
//!
//! The price holds between changes, so a candle without a change repeats the last price. Only time
//! in which the feed was down is left out, unless the price was the same before and after it.

use super::volume::Volumes;
use super::{Bar, History, MINUTES_PER_HOUR, Unit};
use crate::money::{Price, Shares};

/// The most candles of one answer: all hours that are kept.
pub const CANDLES_MAX: u32 = super::HOURS_KEPT;

/// The times of requested candles do not go beyond this, in seconds since 1970: the year 2554.
const SECONDS_MAX: i64 = 1 << 34;

const HOUR: Width = Width { unit: Unit::Hour, units: 1 };

/// The length of a candle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Width {
    unit: Unit,
    /// Above 0.
    units: u32,
}

/// Which candles are wanted. Times are in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Candles that end after this.
    pub from: i64,
    /// Candles that begin no later than this.
    pub to: i64,
    /// How long the newest price is known to have held; `None` if it no longer means anything.
    pub present: Option<i64>,
}

/// The price at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PricePoint {
    /// In seconds since 1970.
    pub at: i64,
    /// The price that held then.
    pub price: Price,
}

/// The prices within a span of time, and how much was traded on this exchange.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candle {
    /// The start of the candle, a multiple of its width, in seconds since 1970.
    pub start: i64,
    /// The price when it began.
    pub open: Price,
    /// The highest price.
    pub high: Price,
    /// The lowest price.
    pub low: Price,
    /// The price when it ended, or the newest one.
    pub close: Price,
    /// The shares that changed hands on this exchange.
    pub volume: Shares,
}

impl Width {
    /// This many minutes, from bars of a minute; `None` for 0.
    pub const fn minutes(count: u32) -> Option<Self> {
        Self::of(Unit::Minute, count)
    }

    /// This many hours, from bars of an hour; `None` for 0.
    pub const fn hours(count: u32) -> Option<Self> {
        Self::of(Unit::Hour, count)
    }

    const fn of(unit: Unit, units: u32) -> Option<Self> {
        if units == 0 { None } else { Some(Self { unit, units }) }
    }

    /// This many minutes; from an hour on, rounded down to whole hours, whose bars are kept longer.
    /// `None` for 0.
    pub const fn near(minutes: u32) -> Option<Self> {
        if minutes < MINUTES_PER_HOUR {
            Self::minutes(minutes)
        } else {
            Self::hours(minutes / MINUTES_PER_HOUR)
        }
    }

    /// Its length, in seconds.
    pub fn seconds(self) -> i64 {
        self.unit.seconds() * i64::from(self.units)
    }
}

impl PricePoint {
    /// The price of the other outcome of a market with two.
    #[must_use]
    pub const fn mirrored(self) -> Self {
        Self { price: self.price.complement(), ..self }
    }
}

impl Candle {
    /// The candle of the other outcome of a market with two.
    #[must_use]
    pub const fn mirrored(self) -> Self {
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
    /// The newest [`CANDLES_MAX`] candles of a span, oldest first.
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

    /// The price at each multiple of a width within a span, and the newest one, oldest first. Where
    /// no minutes are kept, the price at each full hour. At most twice [`CANDLES_MAX`], and the
    /// newest one.
    pub fn points(&self, width: Width, span: Span) -> Vec<PricePoint> {
        let fine = self.candles(width, span, None);
        let first = fine.first().map_or(i64::MAX, |candle| candle.start);
        let coarse = match width.unit {
            Unit::Minute => self.candles(HOUR, span, None),
            Unit::Hour => Vec::new(),
        };
        // The first hour has no price at its start, so the minutes in it tell more.
        let oldest = self.hours.get(0).map_or(0, |bar| i64::from(bar.start) * HOUR.seconds());
        let is_older = |candle: &&Candle| {
            candle.start < first
                && (candle.start > oldest || candle.start + HOUR.seconds() <= first)
        };
        let point = |candle: &Candle| PricePoint { at: candle.start, price: candle.open };
        let points = coarse.iter().filter(is_older).chain(&fine).map(point);
        // A candle that only reaches into the span began before it.
        let mut points: Vec<PricePoint> = points.filter(|it| span.from <= it.at).collect();
        let newest = self.newest_point(span.present).filter(|newest| {
            (span.from..=span.to).contains(&newest.at)
                && points.last().is_none_or(|last| last.at < newest.at)
        });
        points.extend(newest);
        points
    }

    /// The newest price, now or at the end of its bar.
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
