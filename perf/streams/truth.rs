//! Checks whether readers received the venue's prices, in the venue's order.

use std::collections::HashMap;

use anyhow::{Context as _, ensure};

use crate::price_readers::{Received, ReceivedFrame};
use crate::venue::stand_in::TrueTop;

/// The best prices of the book of each market's first outcome, in order.
#[derive(Default)]
pub(super) struct Truth {
    tops: HashMap<usize, Vec<TrueTop>>,
}

impl Truth {
    /// Appends the prices that follow.
    pub(super) fn extend(&mut self, tops: Vec<TrueTop>) {
        for top in tops {
            self.tops.entry(top.market).or_default().push(top);
        }
    }

    /// Returns the changes of the last `span_ms` milliseconds, in order: the time of each since the
    /// beginning of that span, and its market.
    pub(super) fn changes_of_last(&self, span_ms: u64) -> Vec<(u64, u32)> {
        let all = self.tops.values().flatten();
        let last_ms = all.clone().map(|top| top.at_ms).max().unwrap_or_default();
        let first_ms = last_ms.saturating_sub(span_ms);
        let changes = all.filter(|top| top.at_ms >= first_ms).map(|top| {
            (top.at_ms - first_ms, u32::try_from(top.market).expect("there are few markets"))
        });
        let mut changes: Vec<(u64, u32)> = changes.collect();
        changes.sort_unstable();
        changes.dedup();
        changes
    }

    /// Returns the number of frames that show prices which the venue never had, or had before those
    /// of an earlier frame. `market_ids` are the ids of the markets, in order. Fails if there is
    /// nothing to compare.
    pub(super) fn untrue_count(
        &self,
        received: &Received,
        market_ids: &[String],
    ) -> anyhow::Result<u64> {
        let mut count = 0;
        for (number, id) in market_ids.iter().enumerate() {
            let tops = self.tops.get(&number).context("a market has shown nothing")?;
            let frames = received.in_order(id);
            ensure!(!frames.is_empty(), "the readers got no frame of a market");
            count += untrue_count(tops, &frames);
        }
        Ok(count)
    }
}

fn untrue_count(tops: &[TrueTop], frames: &[&ReceivedFrame]) -> u64 {
    let mut rest = tops;
    let mut count = 0;
    for frame in frames {
        let mut until = rest.iter().take_while(|top| top.at_ms <= frame.emitted_ms);
        match until.position(|top| shows(frame, top)) {
            Some(place) => rest = &rest[place..],
            None => count += 1,
        }
    }
    count
}

/// Whether a frame shows these prices of this time. If a side is empty, the time is that of the
/// last trade.
fn shows(frame: &ReceivedFrame, top: &TrueTop) -> bool {
    frame.bid_micros.unwrap_or(0) == top.bid_micros
        && frame.ask_micros.unwrap_or(1_000_000) == top.ask_micros
        && (!frame.is_whole() || frame.updated_ms == Some(top.at_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_must_show_what_the_venue_had_in_its_order() {
        let top = |at_ms, bid_micros| TrueTop { market: 0, at_ms, bid_micros, ask_micros: 900_000 };
        let tops = [top(10, 1), top(20, 2), top(20, 3), top(30, 1)];
        let frame = |emitted_ms, updated_ms, bid_micros| ReceivedFrame {
            hash: 0,
            emitted_ms,
            updated_ms: Some(updated_ms),
            bid_micros: Some(bid_micros),
            ask_micros: Some(900_000),
        };
        for (frames, count) in [
            (vec![frame(11, 10, 1), frame(21, 20, 2), frame(22, 20, 3), frame(31, 30, 1)], 0),
            // Prices are skipped, and repeated.
            (vec![frame(11, 10, 1), frame(12, 10, 1), frame(31, 30, 1)], 0),
            // Prices that the venue never had.
            (vec![frame(21, 20, 4)], 1),
            // Prices that the venue had at another time.
            (vec![frame(31, 20, 1)], 1),
            // Prices that the venue had only later.
            (vec![frame(29, 30, 1)], 1),
            // Prices that the venue had before.
            (vec![frame(31, 30, 1), frame(32, 20, 3)], 1),
        ] {
            let frames: Vec<&ReceivedFrame> = frames.iter().collect();
            assert_eq!(untrue_count(&tops, &frames), count, "{frames:?}");
        }
        let empty = ReceivedFrame { bid_micros: None, updated_ms: Some(7), ..frame(40, 7, 0) };
        assert_eq!(untrue_count(&[top(40, 0)], &[&empty]), 0);
    }

    #[test]
    fn the_last_changes_are_in_order() {
        let mut truth = Truth::default();
        let top = |market, at_ms| TrueTop { market, at_ms, bid_micros: 0, ask_micros: 0 };
        truth.extend(vec![top(1, 100), top(0, 50), top(0, 130)]);
        truth.extend(vec![top(1, 150)]);
        assert_eq!(truth.changes_of_last(50), [(0, 1), (30, 0), (50, 1)]);
    }
}
