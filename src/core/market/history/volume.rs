//! Shares of an outcome traded on this exchange, by minute and by hour. Pure.

use std::collections::VecDeque;

use super::Unit;
use crate::ids::Timestamp;
use crate::money::Shares;

/// Shares traded, by minute and by hour. Spans without a trade are left out.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Volumes {
    minutes: VecDeque<Volume>,
    hours: VecDeque<Volume>,
}

/// Shares traded within a minute or an hour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// Number of the minute or hour since 1970.
    pub start: u32,
    /// The sum, capped at the largest value of [`Shares`].
    pub shares: Shares,
}

impl Volumes {
    /// Resumes from the hours that an earlier process counted, in order.
    pub fn resuming(hours: Vec<Volume>) -> Self {
        Self { minutes: VecDeque::new(), hours: hours.into() }
    }

    /// Iterates over the hours with trades, oldest first.
    pub fn hours(&self) -> impl ExactSizeIterator<Item = &Volume> {
        self.hours.iter()
    }

    /// Counts a trade at this time. As with prices, if the time is before the newest one,
    /// everything counted after it is dropped. A trade before 1970 is ignored.
    pub fn add(&mut self, at: Timestamp, shares: Shares) {
        for (unit, volumes) in [(Unit::Minute, &mut self.minutes), (Unit::Hour, &mut self.hours)] {
            let Some(start) = unit.number(at) else { continue };
            while volumes.back().is_some_and(|newest| start < newest.start) {
                volumes.pop_back();
            }
            while volumes.front().is_some_and(|oldest| start - oldest.start >= unit.kept()) {
                volumes.pop_front();
            }
            match volumes.back_mut().filter(|newest| newest.start == start) {
                Some(newest) => newest.shares = plus(newest.shares, shares),
                None => volumes.push_back(Volume { start, shares }),
            }
        }
    }

    /// Returns the shares traded from `from` up to but excluding `to`, both in seconds since 1970.
    pub(super) fn sum(&self, unit: Unit, from: i64, to: i64) -> Shares {
        let volumes = match unit {
            Unit::Minute => &self.minutes,
            Unit::Hour => &self.hours,
        };
        let start_of = |volume: &Volume| i64::from(volume.start) * unit.seconds();
        let first = volumes.partition_point(|volume| start_of(volume) < from);
        let within = volumes.range(first..).take_while(|volume| start_of(volume) < to);
        within.fold(Shares::ZERO, |sum, volume| plus(sum, volume.shares))
    }
}

/// Adds two amounts, capped at the largest value.
fn plus(sum: Shares, shares: Shares) -> Shares {
    sum.checked_add(shares).unwrap_or(Shares::from_micros(i64::MAX))
}
