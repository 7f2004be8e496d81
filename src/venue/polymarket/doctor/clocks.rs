//! Assumptions about the venue's clocks.

use std::time::Duration;

use super::assumption::{Assumption, RestsOn, Tally};
use super::seen::{Asked, Observation, Service};
use crate::polymarket::wire::NO_TIMESTAMP;
use crate::polymarket::wire::socket::Message;
use paperbourse_core::ids::Timestamp;

/// Maximum difference between two clocks, and maximum lateness of a frame.
const DIFFERENCE_MAX: Duration = Duration::from_secs(5);

/// The resolution of a `Date` header and of the CLOB service's clock.
const SECOND_MS: i64 = 1_000;

/// Returns the assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    vec![Box::new(Clocks::default()), Box::new(Timestamps::default())]
}

fn difference_max_ms() -> i64 {
    i64::try_from(DIFFERENCE_MAX.as_millis()).unwrap_or(i64::MAX)
}

/// Returns the timestamp of a message if it is the time at which the message was sent. The first
/// book of a token carries the time of its last change, and messages about a whole market are not
/// checked.
pub(super) fn sent_at(message: &Message<'_>) -> Option<Timestamp> {
    match message {
        Message::PriceChange(change) => Some(change.at),
        Message::LastTradePrice(trade) => Some(trade.at),
        Message::TickSizeChange(change) => Some(change.at),
        Message::BestBidAsk(top) => Some(top.at),
        Message::Book(_) | Message::NewMarket(_) | Message::MarketResolved(_) => None,
    }
}

/// Assumes that the service clocks agree with ours.
#[derive(Default)]
struct Clocks {
    /// For each service, the largest lead of its clock over ours that the duration of a request
    /// cannot explain, in milliseconds. Negative if the service's clock is behind.
    ahead_ms: Vec<(Service, i64)>,
}

impl Assumption for Clocks {
    fn name(&self) -> &'static str {
        "service clocks agree with ours"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Answered(answered) = seen else { return };
        let seconds = || answered.body.trim().parse().ok().map(Timestamp::from_seconds);
        let stated = if answered.asked == Asked::Time { seconds() } else { None };
        for theirs in answered.headers.date.into_iter().chain(stated) {
            // The service read its clock at some time between our request and its answer, and
            // rounded down to the second.
            let theirs_ms = theirs.millis();
            let ahead_ms = theirs_ms.saturating_sub(answered.received_at.millis());
            let behind_ms = answered.sent_at.millis().saturating_sub(theirs_ms + SECOND_MS);
            let apart_ms = if behind_ms > 0 { -behind_ms } else { ahead_ms.max(0) };
            let service = answered.service;
            match self.ahead_ms.iter_mut().find(|(known, _)| *known == service) {
                Some((_, widest)) if widest.abs() >= apart_ms.abs() => {}
                Some((_, widest)) => *widest = apart_ms,
                None => self.ahead_ms.push((service, apart_ms)),
            }
            if apart_ms.abs() > difference_max_ms() {
                let origin = super::seen::Origin::NONE;
                tally.breaks(format!("{service} differs by {apart_ms} ms"), origin);
            } else {
                tally.holds();
            }
        }
    }

    fn saw(&self, tally: &Tally) -> String {
        if tally.problem().is_some() {
            return tally.saw();
        }
        let shown = |(service, apart_ms): &(Service, i64)| match apart_ms {
            0 => format!("{service}: same second"),
            apart_ms => format!("{service}: {apart_ms:+} ms"),
        };
        self.ahead_ms.iter().map(shown).collect::<Vec<_>>().join(", ")
    }
}

/// Assumes that frames arrive near their timestamps.
#[derive(Default)]
struct Timestamps {
    /// Minimum and maximum time from a message's timestamp to its arrival, in milliseconds.
    late_ms: Option<(i64, i64)>,
}

impl Assumption for Timestamps {
    fn name(&self) -> &'static str {
        "frames arrive near their timestamps"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Message { sent_at: Some(sent_at), received_at, origin, .. } = seen else {
            return;
        };
        if *sent_at == NO_TIMESTAMP {
            return tally.note("without a timestamp");
        }
        let late_ms = received_at.millis().saturating_sub(sent_at.millis());
        let (least, most) = self.late_ms.unwrap_or((late_ms, late_ms));
        self.late_ms = Some((least.min(late_ms), most.max(late_ms)));
        if late_ms.abs() > difference_max_ms() {
            tally.breaks(format!("a frame came {late_ms} ms after its timestamp"), *origin);
        } else {
            tally.holds();
        }
    }

    fn saw(&self, tally: &Tally) -> String {
        match (tally.problem(), self.late_ms) {
            (None, Some((least, most))) => format!("{least} to {most} ms late"),
            _ => tally.saw(),
        }
    }
}
