//! Candles of any width from stored bars, without holes. Pure.
//!
//! The price holds between changes, so a candle without a change repeats the last price. Only time
//! in which nobody watched is left out, unless the price was the same before and after it.

use super::volume::Volumes;
use super::{Bar, History, Unit};
use crate::money::{Price, Shares};

/// The most candles of one answer: all hours that are kept.
pub const CANDLES_MAX: usize = super::HOURS_KEPT as usize;

/// The times of requested candles do not go beyond this, in seconds since 1970: the year 2554.
const SECONDS_MAX: i64 = 1 << 34;

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
    /// So many minutes, from bars of a minute; `None` for 0.
    pub const fn minutes(count: u32) -> Option<Self> {
        Self::of(Unit::Minute, count)
    }

    /// So many hours, from bars of an hour; `None` for 0.
    pub const fn hours(count: u32) -> Option<Self> {
        Self::of(Unit::Hour, count)
    }

    const fn of(unit: Unit, units: u32) -> Option<Self> {
        if units == 0 { None } else { Some(Self { unit, units }) }
    }

    /// Its length, in seconds.
    pub fn seconds(self) -> i64 {
        self.unit.seconds() * i64::from(self.units)
    }
}

impl Candle {
    /// The same of the other outcome of a market with two.
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
        let first = first.max(last - step * (CANDLES_MAX as i64 - 1));
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
}
