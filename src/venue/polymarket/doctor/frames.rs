//! Assumptions about the socket: known frames, a book for each token, and best prices that fit the
//! books.

use std::time::Duration;

use super::assumption::{Assumption, RestsOn, Tally, Verdict};
use super::books::{Judged, Statement, has_waited};
use super::fields;
use super::seen::{Observation, Origin};
use crate::polymarket::wire::WireError;
use paperbourse_core::ids::Timestamp;

/// Returns the assumptions of this module. Books may arrive up to `grace` after the subscription.
pub(super) fn all(grace: Duration) -> Vec<Box<dyn Assumption>> {
    vec![
        Box::new(Readable),
        Box::new(Types),
        Box::new(Fields),
        Box::new(FirstBooks { grace, opened_at: None, wanted_count: 0, is_due: false }),
        Box::new(StaysOpen),
        Box::new(ChangesStateTops),
        Box::new(TopsAreExplained),
    ]
}

/// Assumes that frames can be read.
struct Readable;

impl Assumption for Readable {
    fn name(&self) -> &'static str {
        "frames can be read"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::NotJson { origin } => tally.breaks("not JSON", *origin),
            Observation::Message { error, origin, .. } => match error {
                None => tally.holds(),
                // `Types` counts these.
                Some(WireError::UnknownType { .. }) => {}
                Some(error) => tally.breaks(error, *origin),
            },
            _ => {}
        }
    }
}

/// Assumes that frames are of known types.
struct Types;

impl Assumption for Types {
    fn name(&self) -> &'static str {
        "frame types are known"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Message { fields, error, origin, .. } = seen else { return };
        match error {
            Some(WireError::UnknownType { event_type }) => tally.breaks(event_type, *origin),
            _ => tally.holds_with(fields["event_type"].as_str().unwrap_or("none")),
        }
    }
}

/// Assumes that books and frames have known fields.
struct Fields;

impl Assumption for Fields {
    fn name(&self) -> &'static str {
        "book and frame fields are known"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Nothing
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let (unknown, origin) = match seen {
            Observation::Book { fields, origin, .. } => (fields::unknown_in_book(fields), origin),
            Observation::Message { fields, origin, .. } => {
                match fields::unknown_in_message(fields) {
                    Some(unknown) => (unknown, origin),
                    None => return,
                }
            }
            _ => return,
        };
        match unknown {
            None => tally.holds(),
            Some(name) => tally.breaks(format!("{name} is new"), *origin),
        }
    }
}

/// Assumes that a subscription is answered with the book of each token.
struct FirstBooks {
    /// Maximum time between the subscription and the books.
    grace: Duration,
    opened_at: Option<Timestamp>,
    wanted_count: u64,
    /// Whether the run lasted long enough for the books to arrive.
    is_due: bool,
}

impl Assumption for FirstBooks {
    fn name(&self) -> &'static str {
        "a subscription sends every book"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Opened { token_count, at } => {
                self.opened_at = Some(*at);
                self.wanted_count = *token_count as u64;
            }
            Observation::Judged(Judged::FirstBook) => tally.holds(),
            Observation::Over { at } => {
                self.is_due =
                    self.opened_at.is_some_and(|opened| has_waited(opened, *at, self.grace));
            }
            _ => {}
        }
    }

    /// Some markets close between the request for their books and the subscription, so up to a
    /// tenth of the books may be missing.
    fn verdict(&self, tally: &Tally) -> Verdict {
        if self.is_due && tally.held() * 10 < self.wanted_count * 9 {
            Verdict::Broken
        } else {
            tally.verdict()
        }
    }

    fn saw(&self, tally: &Tally) -> String {
        match self.opened_at {
            Some(_) => format!("{} of {} tokens", tally.held(), self.wanted_count),
            None => String::new(),
        }
    }
}

/// Assumes that the connection stays open, which it does only if our `PING`s are answered.
struct StaysOpen;

impl Assumption for StaysOpen {
    fn name(&self) -> &'static str {
        "the socket stays open"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        match seen {
            Observation::Opened { .. } => tally.holds(),
            Observation::Lost { why } => tally.breaks(why, Origin::NONE),
            _ => {}
        }
    }
}

/// Assumes that the best prices in a `price_change` describe the book after that change.
struct ChangesStateTops;

impl Assumption for ChangesStateTops {
    fn name(&self) -> &'static str {
        "price changes carry the best prices"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Judged(Judged::Top { stated_by: Statement::Change, fit, text }) = seen
        else {
            return;
        };
        match fit {
            Some(_) => tally.holds(),
            None => tally.breaks("our book has others", Origin { request: "", payload: text }),
        }
    }
}

/// Assumes that each `best_bid_ask` is explained by a change that arrives before or after it.
struct TopsAreExplained;

impl Assumption for TopsAreExplained {
    fn name(&self) -> &'static str {
        "each best_bid_ask matches a change"
    }

    fn rests_on(&self) -> RestsOn {
        RestsOn::Fills
    }

    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally) {
        let Observation::Judged(Judged::Top { stated_by: Statement::BestBidAsk, fit, text }) = seen
        else {
            return;
        };
        match fit {
            Some(order) => tally.holds_with(*order),
            None => tally.breaks("no change explains it", Origin { request: "", payload: text }),
        }
    }
}
