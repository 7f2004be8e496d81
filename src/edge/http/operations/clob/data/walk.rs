//! Fills and payouts of an account in the order of time, newest first.

use std::iter::Peekable;
use std::vec::IntoIter;

use super::facts::Facts;
use super::request::{Selection, Unit};
use crate::http::call::Call;
use crate::http::error::ClobRefusal;
use paperbourse_core::engine::fills::{FillCursor, FillFilter, PastFill};
use paperbourse_core::engine::state::view::{SettlementFilter, SettlementRow};
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_core::market::book::Side;

/// The number of fills that are read at a time.
const FILLS_PER_STEP: usize = 200;

/// Selects fills and payouts.
#[derive(Default)]
pub(super) struct Filter {
    pub(super) selection: Selection,
    pub(super) side: Option<Side>,
    pub(super) has_trades: bool,
    pub(super) has_payouts: bool,
    /// Only fills that took liquidity.
    pub(super) is_taker_only: bool,
    /// Only fills of at least so much.
    pub(super) least: Option<(Unit, i64)>,
    /// From the first to the second moment.
    pub(super) period: [Option<Timestamp>; 2],
}

/// A fill or a payout, with its market.
pub(super) struct Happened {
    pub(super) what: What,
    pub(super) facts: Facts,
}

pub(super) enum What {
    Trade(PastFill),
    Payout(SettlementRow),
}

/// Where a page begins: after the last fill and the last payout of the one before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    /// Only fills with a lower number.
    fills_before: u64,
    /// Only payouts before this one: the time in nanoseconds, and the number of the position.
    payouts_before: (i64, u64),
}

/// The fills and payouts that match a filter.
pub(super) struct Walk<'c> {
    call: &'c Call<'c>,
    account: AccountId,
    filter: Filter,
    fill_filter: FillFilter,
    fills: Peekable<IntoIter<PastFill>>,
    next: Option<FillCursor>,
    payouts: Peekable<IntoIter<SettlementRow>>,
    place: Place,
}

impl Place {
    /// Before everything.
    pub(super) const START: Self = Self { fills_before: u64::MAX, payouts_before: (i64::MAX, 0) };

    /// Reads what [`Self::to_text`] wrote.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        let place = Self {
            fills_before: numbers.next()?.parse().ok()?,
            payouts_before: (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?),
        };
        numbers.next().is_none().then_some(place)
    }

    /// Writes the cursor that clients send back.
    pub(super) fn to_text(self) -> String {
        let Self { fills_before, payouts_before: (nanos, number) } = self;
        format!("{fills_before}.{nanos}.{number}")
    }
}

impl Happened {
    /// When it happened.
    pub(super) fn at(&self) -> Timestamp {
        match &self.what {
            What::Trade(past) => past.row.fill.at,
            What::Payout(row) => row.settlement.at,
        }
    }

    /// The number of shares, in millionths.
    pub(super) fn shares_micros(&self) -> i64 {
        match &self.what {
            What::Trade(past) => past.row.fill.quantity.micros(),
            What::Payout(row) => row.settlement.shares.micros(),
        }
    }

    /// The dollars without fees, in millionths.
    pub(super) fn dollars_micros(&self) -> i64 {
        match &self.what {
            What::Trade(past) => past.row.fill.notional.micros(),
            What::Payout(row) => row.settlement.payout.micros(),
        }
    }

    pub(super) fn market_id(&self) -> &str {
        match &self.what {
            What::Trade(past) => &past.row.market_id,
            What::Payout(row) => &row.market_id,
        }
    }
}

impl<'c> Walk<'c> {
    pub(super) async fn begin(
        call: &'c Call<'c>,
        account: AccountId,
        filter: Filter,
        place: Place,
    ) -> Result<Self, ClobRefusal> {
        let [from, to] = filter.period;
        let market_id = filter.selection.only_market();
        let mut payouts = Vec::new();
        // A payout has no side.
        if filter.has_payouts && filter.side.is_none() {
            let filter = SettlementFilter { market_id: market_id.clone(), from, to };
            payouts = call.service().payouts_of(account, filter, call.context).await?;
            payouts.retain(|row| (row.settlement.at.nanos(), row.number) < place.payouts_before);
        }
        let side = filter.side;
        let next = FillCursor { before: place.fills_before, skip: 0 };
        Ok(Self {
            call,
            account,
            fill_filter: FillFilter { market_id, side, from, to, ..FillFilter::default() },
            fills: Vec::new().into_iter().peekable(),
            next: Some(next).filter(|_| filter.has_trades),
            payouts: payouts.into_iter().peekable(),
            filter,
            place,
        })
    }

    /// Where a page would begin after what was returned so far.
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// Returns the next fill or payout that matches; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Happened>, ClobRefusal> {
        loop {
            while let (None, Some(from)) = (self.fills.peek(), self.next) {
                let filter = self.fill_filter.clone();
                let (call, limit) = (self.call, FILLS_PER_STEP);
                let (service, context) = (call.service(), call.context);
                let list = service.fill_history_of(self.account, filter, from, limit, context);
                let list = list.await?;
                self.fills = list.fills.into_iter().peekable();
                self.next = list.next;
            }
            let paid_at = self.payouts.peek().map(|row| row.settlement.at);
            let filled_at = self.fills.peek().map(|past| past.row.fill.at);
            let what = if paid_at.is_some() && paid_at >= filled_at {
                self.payouts.next().map(What::Payout)
            } else {
                self.fills.next().map(What::Trade)
            };
            let Some(what) = what else { return Ok(None) };
            let before = self.place;
            match &what {
                What::Trade(past) => self.place.fills_before = past.row.number,
                What::Payout(row) => {
                    self.place.payouts_before = (row.settlement.at.nanos(), row.number);
                }
            }
            let market_id = match &what {
                What::Trade(past) => &past.row.market_id,
                What::Payout(row) => &row.market_id,
            };
            let facts = Facts::of(self.call, market_id);
            debug_assert_ne!(before, self.place, "a walk makes progress");
            let happened = Happened { what, facts };
            if self.fits(&happened) {
                return Ok(Some(happened));
            }
        }
    }

    fn fits(&self, happened: &Happened) -> bool {
        let Filter { selection, is_taker_only, least, .. } = &self.filter;
        let is_taker = match &happened.what {
            // It has never reached the chain.
            What::Trade(past) if past.row.undone_at.is_some() => return false,
            What::Trade(past) => past.is_taker(),
            What::Payout(_) => true,
        };
        let is_enough = least.is_none_or(|(unit, least)| match unit {
            Unit::Cash => happened.dollars_micros() >= least,
            Unit::Tokens => happened.shares_micros() >= least,
        });
        (is_taker || !is_taker_only)
            && is_enough
            && selection.fits(happened.market_id(), &happened.facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_back() {
        let place = Place { fills_before: 711, payouts_before: (1_800_000_000_000_000_007, 3) };
        for place in [Place::START, place] {
            assert_eq!(Place::parse(&place.to_text()), Some(place));
        }
        for text in ["", "7", "7.8", "7.8.9.10", "x.8.9", "-7.8.9"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
