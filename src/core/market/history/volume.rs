//! How many shares of an outcome changed hands on this exchange, by minute and by hour. Pure.

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
    /// The number of the minute or hour since 1970.
    pub start: u32,
    /// The sum, at most what a [`Shares`] holds.
    pub shares: Shares,
}

impl Volumes {
    /// What an earlier process has counted, in order.
    pub fn resuming(hours: Vec<Volume>) -> Self {
        Self { minutes: VecDeque::new(), hours: hours.into() }
    }

    /// The hours with trades, oldest first.
    pub fn hours(&self) -> impl ExactSizeIterator<Item = &Volume> {
        self.hours.iter()
    }

    /// Counts a trade at this time. As with prices, a time before the newest one means that it
    /// starts over from there; a trade before 1970 is ignored.
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

    /// The shares traded from `from` to before `to`, in seconds since 1970.
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

/// The sum, at most what fits.
fn plus(sum: Shares, shares: Shares) -> Shares {
    sum.checked_add(shares).unwrap_or(Shares::from_micros(i64::MAX))
}
