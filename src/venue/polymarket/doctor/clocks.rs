//! Whether the venue's clocks agree with ours.

use std::time::Duration;

use super::assumption::{Assumption, RestsOn, Tally};
use super::seen::{Asked, Observation, Service};
use crate::polymarket::wire::NO_TIMESTAMP;
use crate::polymarket::wire::socket::Message;
use paperbourse_core::ids::Timestamp;

/// How far two clocks may be apart, and how late a frame may come.
const DIFFERENCE_MAX: Duration = Duration::from_secs(5);

/// The resolution of a `Date` header and of the CLOB service's clock.
const SECOND_MS: i64 = 1_000;

/// The assumptions of this module.
pub(super) fn all() -> Vec<Box<dyn Assumption>> {
    vec![Box::new(Clocks::default()), Box::new(Timestamps::default())]
}

fn difference_max_ms() -> i64 {
    i64::try_from(DIFFERENCE_MAX.as_millis()).unwrap_or(i64::MAX)
}

/// The timestamp of a message if that is when it was sent. The first books are as old as their last
/// change, and some messages are about no book.
pub(super) fn sent_at(message: &Message<'_>) -> Option<Timestamp> {
    match message {
        Message::PriceChange(change) => Some(change.at),
        Message::LastTradePrice(trade) => Some(trade.at),
        Message::TickSizeChange(change) => Some(change.at),
        Message::BestBidAsk(top) => Some(top.at),
        Message::Book(_) | Message::NewMarket(_) | Message::MarketResolved(_) => None,
    }
}

/// The service clocks agree with ours.
#[derive(Default)]
struct Clocks {
    /// By service: how far its clock is ahead of ours at least, in milliseconds. Negative if it is
    /// behind.
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
            // Their clock was read somewhere between our sending and receiving, and shows the
            // beginning of its second.
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

/// What the socket says happens now.
#[derive(Default)]
struct Timestamps {
    /// The least and the most that a message came after its timestamp, in milliseconds.
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
