//! The parameters of the Data API.

use std::borrow::Cow;

use crate::http::error::ClobError;
use crate::http::operations::clob::data::facts::Facts;
use crate::http::operations::clob::request::filled;
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Rounding, micros_from_text};

/// The most rows of a page of the second version, and how many there are if the client names none.
pub(super) const PAGE_ROWS: Bounds = Bounds { default: 100, most: 1_000, offset_max: 0 };

/// How many rows a list has, and how many may be skipped, as at the venue.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub(super) default: usize,
    pub(super) most: usize,
    pub(super) offset_max: usize,
}

/// Part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) offset: usize,
    pub(super) limit: usize,
}

/// The markets to which a list is restricted.
#[derive(PartialEq, Eq, Debug, Default)]
pub(super) struct Selection {
    /// Condition ids; any if empty.
    pub(super) markets: Vec<Box<str>>,
    /// Ids of events; any if empty.
    events: Vec<Box<str>>,
    /// What the question contains, in lower case.
    title: Option<Box<str>>,
}

/// What an amount is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unit {
    Cash,
    Tokens,
}

/// A query of the Data API.
#[derive(Clone, Copy)]
pub(super) struct Parameters<'a>(pub(super) Option<&'a str>);

impl Selection {
    /// Whether a market is among the selected ones.
    pub(super) fn fits(&self, market_id: &str, facts: &Facts) -> bool {
        (self.markets.is_empty() || self.markets.iter().any(|id| condition::is_same(id, market_id)))
            && (self.events.is_empty()
                || self.events.iter().any(|id| Some(&**id) == facts.event_id()))
            && self
                .title
                .as_deref()
                .is_none_or(|title| facts.title().to_lowercase().contains(title))
    }

    /// The only market that can fit.
    pub(super) fn only_market(&self) -> Option<Box<str>> {
        if let [market] = &*self.markets { Some(market.clone()) } else { None }
    }
}

impl<'a> Parameters<'a> {
    /// Returns a parameter that is not empty.
    pub(super) fn text(self, name: &str) -> Option<Cow<'a, str>> {
        filled(self.0, name)
    }

    /// Reads which rows are asked for. More than the most are as many as that.
    pub(super) fn part(self, bounds: Bounds) -> Result<Part, ClobError> {
        let Bounds { default, most, offset_max } = bounds;
        let limit = self.whole("limit")?.unwrap_or(default).min(most);
        let offset = self.whole("offset")?.unwrap_or(0);
        if offset > offset_max {
            return Err(ClobError::INVALID_PAYLOAD);
        }
        Ok(Part { offset, limit })
    }

    /// Reads a whole number, at least 0.
    pub(super) fn whole(self, name: &str) -> Result<Option<usize>, ClobError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(ClobError::INVALID_PAYLOAD);
        }
        // Longer numbers are beyond every bound.
        Ok(Some(text.parse().unwrap_or(usize::MAX)))
    }

    /// Reads a list whose entries are separated by commas, in the first of these parameters that is
    /// there.
    pub(super) fn list(self, names: &[&str]) -> Vec<Box<str>> {
        let text = names.iter().find_map(|name| self.text(name)).unwrap_or_default();
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(Box::from).collect()
    }

    /// Reads an amount in millionths, at least 0.
    pub(super) fn amount(self, name: &str) -> Result<Option<i64>, ClobError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let amount = micros_from_text(&text, Rounding::HalfEven);
        amount.ok().filter(|&it| it >= 0).map(Some).ok_or(ClobError::INVALID_PAYLOAD)
    }

    /// Reads whether something is asked for.
    pub(super) fn flag(self, name: &str) -> Result<Option<bool>, ClobError> {
        self.choice(name, &[("true", true), ("false", false), ("1", true), ("0", false)])
    }

    /// Reads one of these words, in any case.
    pub(super) fn choice<T: Copy>(
        self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, ClobError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        found.map(|(_, value)| Some(*value)).ok_or(ClobError::INVALID_PAYLOAD)
    }

    /// Reads the side of trades.
    pub(super) fn side(self) -> Result<Option<Side>, ClobError> {
        let side = self.choice("side", &[("BUY", Side::Buy), ("SELL", Side::Sell)]);
        side.map_err(|_| ClobError::INVALID_SIDE)
    }

    /// Whether the list begins with its least element.
    pub(super) fn is_ascending(self, name: &str) -> Result<bool, ClobError> {
        Ok(self.choice(name, &[("ASC", true), ("DESC", false)])?.unwrap_or(false))
    }

    /// Reads the smallest amount of a row, and what it is compared with. The parameters have these
    /// names.
    pub(super) fn least(self, names: [&str; 2]) -> Result<Option<(Unit, i64)>, ClobError> {
        let [unit, amount] = names;
        let unit = self.choice(unit, &[("CASH", Unit::Cash), ("TOKENS", Unit::Tokens)])?;
        Ok(unit.zip(self.amount(amount)?))
    }

    /// Reads the markets. The parameters have the names of the first or the second version.
    pub(super) fn selection(self) -> Result<Selection, ClobError> {
        let markets = self.list(&["market", "condition_id", "condition"]);
        if markets.iter().any(|id| !is_condition(id)) {
            return Err(ClobError::INVALID_MARKET);
        }
        let events = self.list(&["eventId", "event_id"]);
        let title = self.text("title").map(|text| text.to_lowercase().into());
        Ok(Selection { markets, events, title })
    }

    /// Reads the first and the last moment, each of which may be absent.
    pub(super) fn period(self) -> Result<[Option<Timestamp>; 2], ClobError> {
        let seconds = |name| -> Result<Option<i64>, ClobError> {
            let seconds = self.whole(name)?.map(|it| i64::try_from(it).unwrap_or(i64::MAX));
            Ok(seconds.map(|it| it.saturating_mul(1_000_000_000)))
        };
        // Clients know whole seconds, so the last one counts up to its end.
        let end = seconds("end")?.map(|end| end.saturating_add(999_999_999));
        Ok([seconds("start")?, end].map(|nanos| nanos.map(Timestamp::from_nanos)))
    }
}

/// Whether text can name a market.
fn is_condition(text: &str) -> bool {
    !text.starts_with("0x") || condition::ConditionId::of(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKET: &str = "0x0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";
    const INVALID: ClobError = ClobError::INVALID_PAYLOAD;

    #[test]
    fn a_part_is_bounded() {
        let bounds = Bounds { default: 100, most: 500, offset_max: 10_000 };
        for (query, expected) in [
            ("", Ok((0, 100))),
            ("limit=&offset=", Ok((0, 100))),
            ("limit=0&offset=10000", Ok((10_000, 0))),
            ("limit=501", Ok((0, 500))),
            ("limit=99999999999999999999999", Ok((0, 500))),
            ("offset=10001", Err(INVALID)),
            ("limit=-1", Err(INVALID)),
            ("offset=x", Err(INVALID)),
        ] {
            let part = Parameters(Some(query)).part(bounds);
            assert_eq!(part, expected.map(|(offset, limit)| Part { offset, limit }), "{query}");
        }
    }

    #[test]
    fn filters_are_read_or_refused() {
        let of = |query| Parameters(Some(query));
        assert_eq!(of("sizeThreshold=0.1").amount("sizeThreshold"), Ok(Some(100_000)));
        for query in ["sizeThreshold=-1", "sizeThreshold=x"] {
            assert_eq!(of(query).amount("sizeThreshold"), Err(INVALID), "{query}");
        }
        assert_eq!(of("takerOnly=False").flag("takerOnly"), Ok(Some(false)));
        assert_eq!(of("takerOnly=maybe").flag("takerOnly"), Err(INVALID));
        assert_eq!(of("side=buy").side(), Ok(Some(Side::Buy)));
        assert_eq!(of("side=HOLD").side(), Err(ClobError::INVALID_SIDE));
        assert_eq!(of("d=asc").is_ascending("d"), Ok(true));
        assert_eq!(of("d=up").is_ascending("d"), Err(INVALID));
        let names = ["filterType", "filterAmount"];
        let least = of("filterType=CASH&filterAmount=2.5").least(names);
        assert_eq!(least, Ok(Some((Unit::Cash, 2_500_000))));
        assert_eq!(of("filterAmount=2.5").least(names), Ok(None));
        assert_eq!(of("filterType=SHARES&filterAmount=1").least(names), Err(INVALID));
        let query = format!("market={MARKET},%20{MARKET}&eventId=7,8&title=Will");
        let selection = of(&query).selection().unwrap();
        assert_eq!(selection.markets.len(), 2);
        assert_eq!(selection.only_market(), None);
        assert_eq!(selection.events, ["7".into(), "8".into()]);
        assert_eq!(selection.title.as_deref(), Some("will"));
        let query = format!("condition_id={MARKET}");
        assert_eq!(of(&query).selection().unwrap().only_market(), Some(MARKET.into()));
        assert_eq!(of("market=0x7").selection(), Err(ClobError::INVALID_MARKET));
        let [start, end] = of("start=7&end=7").period().unwrap().map(Option::unwrap);
        assert_eq!((start.nanos(), end.nanos()), (7_000_000_000, 7_999_999_999));
        let far = of("end=99999999999999999999").period().unwrap()[1].unwrap();
        assert!(far > end);
        assert_eq!(of("start=now").period(), Err(INVALID));
    }
}
