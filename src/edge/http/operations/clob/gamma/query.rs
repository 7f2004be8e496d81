//! What clients ask Gamma for: pages, orders, and filters. Parameters that nobody named are
//! ignored, and empty ones count as absent.

use std::borrow::Cow;

use crate::http::call::Call;
use crate::http::cursor::Cursor;
use crate::http::error::ClobError;
use crate::http::query::OFFSET_MAX;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::{Rounding, Usd};
use paperbourse_exchange::service::{Bounds, MarketOrder, MarketValue, Page};

/// Number of rows in a page if the request has no `limit`.
const ROWS_DEFAULT: usize = 20;

/// The values to sort by that are known here.
const ORDERS: [(&str, MarketValue); 9] = [
    ("volume", MarketValue::VolumeTotal),
    ("volumeNum", MarketValue::VolumeTotal),
    ("volume_num", MarketValue::VolumeTotal),
    ("volumeClob", MarketValue::VolumeTotal),
    ("volume24hr", MarketValue::Volume24h),
    ("volume_24hr", MarketValue::Volume24h),
    ("volume24hrClob", MarketValue::Volume24h),
    ("endDate", MarketValue::EndDate),
    ("end_date", MarketValue::EndDate),
];

/// The parameters of a request, decoded.
pub(super) struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    pub(super) fn of(call: &Call<'a>) -> Self {
        let query = call.head.uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes());
        Self(pairs.filter(|(_, value)| !value.is_empty()).collect())
    }

    /// Returns the value of a parameter, the last one if it is repeated.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find(|(field, _)| field == name).map(|(_, value)| &**value)
    }

    /// Returns all values of a parameter, which is repeated for a list.
    pub(super) fn all(&self, name: &str) -> Vec<Box<str>> {
        let named = self.0.iter().filter(|(field, _)| field == name);
        named.map(|(_, value)| value.as_ref().into()).collect()
    }

    pub(super) fn has_any(&self, names: &[&str]) -> bool {
        self.0.iter().any(|(field, _)| names.contains(&&**field))
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<Option<bool>, ClobError> {
        self.read(name, |text| match text {
            "true" | "True" | "1" => Some(true),
            "false" | "False" | "0" => Some(false),
            _ => None,
        })
    }

    pub(super) fn number(&self, name: &'static str) -> Result<Option<usize>, ClobError> {
        self.read(name, |text| text.parse().ok())
    }

    pub(super) fn dollars(
        &self,
        min: &'static str,
        max: &'static str,
    ) -> Result<Bounds<Usd>, ClobError> {
        let read = |text: &str| Usd::from_text(text, Rounding::TowardZero).ok();
        Ok(Bounds { min: self.read(min, read)?, max: self.read(max, read)? })
    }

    pub(super) fn times(
        &self,
        min: &'static str,
        max: &'static str,
    ) -> Result<Bounds<Timestamp>, ClobError> {
        Ok(Bounds { min: self.read(min, time)?, max: self.read(max, time)? })
    }

    fn read<T>(
        &self,
        name: &'static str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ClobError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        read(text).map(Some).ok_or_else(|| ClobError::invalid_field(name))
    }

    /// Reads the page of a list that is paged by row number.
    pub(super) fn page(&self, limit_max: usize) -> Result<Page, ClobError> {
        let offset = self.number("offset")?.unwrap_or(0).min(OFFSET_MAX);
        Ok(Page { limit: self.limit(limit_max)?, offset })
    }

    /// Reads the page of a list that is paged by cursor. The venue refuses an offset there.
    pub(super) fn page_by_cursor(&self, limit_max: usize) -> Result<Page, ClobError> {
        if self.get("offset").is_some() {
            return Err(ClobError::invalid_field("offset"));
        }
        let read = |text: &str| match Cursor::parse(text)? {
            Cursor::At(offset) => (offset <= OFFSET_MAX).then_some(offset),
            Cursor::End => Some(OFFSET_MAX),
        };
        let offset = match self.read("after_cursor", read)? {
            Some(offset) => Some(offset),
            None => self.read("next_cursor", read)?,
        };
        Ok(Page { limit: self.limit(limit_max)?, offset: offset.unwrap_or(0) })
    }

    /// Reads the number of rows. The venue cuts what is more than it sends.
    fn limit(&self, limit_max: usize) -> Result<usize, ClobError> {
        Ok(self.number("limit")?.unwrap_or(ROWS_DEFAULT).clamp(1, limit_max))
    }

    /// Reads the order of a list: the first of several that is known here, ascending unless the
    /// request says otherwise.
    pub(super) fn order(&self, name: &'static str) -> Result<Option<MarketOrder>, ClobError> {
        let ascending = self.flag("ascending")?.unwrap_or(true);
        let lists = self.0.iter().filter(|(field, _)| field == name);
        let mut words = lists.flat_map(|(_, list)| list.split(',')).map(str::trim);
        let by = words.find_map(|word| {
            ORDERS.iter().find(|(known, _)| *known == word).map(|(_, value)| *value)
        });
        Ok(by.map(|by| MarketOrder { by, ascending }))
    }
}

/// Reads a time with a zone, or one in UTC without, or the start of a day.
fn time(text: &str) -> Option<Timestamp> {
    let completed = |end: &str| format!("{text}{end}").parse().ok();
    text.parse().ok().or_else(|| completed("Z")).or_else(|| completed("T00:00:00Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(query: &str) -> Parameters<'_> {
        let pairs = form_urlencoded::parse(query.as_bytes());
        Parameters(pairs.filter(|(_, value)| !value.is_empty()).collect())
    }

    #[test]
    fn times_have_the_forms_that_clients_send() {
        for (text, seconds) in [
            ("2026-01-02T03:04:05Z", Some(1_767_323_045)),
            ("2026-01-02T03:04:05+00:00", Some(1_767_323_045)),
            ("2026-01-02T03:04:05", Some(1_767_323_045)),
            ("2026-01-02T03:04:05.25", Some(1_767_323_045)),
            ("2026-01-02", Some(1_767_312_000)),
            ("soon", None),
            ("", None),
        ] {
            assert_eq!(time(text).map(Timestamp::seconds), seconds, "{text}");
        }
    }

    #[test]
    fn pages_have_bounds() {
        let page = |query| parameters(query).page(500).map(|page| (page.limit, page.offset)).ok();
        for (query, expected) in [
            ("", Some((20, 0))),
            ("limit=&offset=", Some((20, 0))),
            ("limit=501&offset=7", Some((500, 7))),
            ("limit=0", Some((1, 0))),
            ("offset=99999999999", Some((20, OFFSET_MAX))),
            ("limit=-1", None),
            ("offset=x", None),
        ] {
            assert_eq!(page(query), expected, "{query}");
        }
        let page = |query| parameters(query).page_by_cursor(100).map(|page| page.offset).ok();
        for (query, expected) in [
            ("", Some(0)),
            ("after_cursor=MTAw&next_cursor=x", Some(100)),
            ("next_cursor=MTAw", Some(100)),
            ("after_cursor=LTE%3D", Some(OFFSET_MAX)),
            ("after_cursor=x", None),
            ("offset=0", None),
        ] {
            assert_eq!(page(query), expected, "{query}");
        }
    }

    #[test]
    fn the_first_known_order_counts() {
        let order = |query| {
            let order = parameters(query).order("order").ok().flatten();
            order.map(|order| (order.by, order.ascending))
        };
        for (query, expected) in [
            ("ascending=false", None),
            ("order=volumeNum", Some((MarketValue::VolumeTotal, true))),
            ("order=id,volume24hr&ascending=false", Some((MarketValue::Volume24h, false))),
            ("order=id&order=endDate&ascending=0", Some((MarketValue::EndDate, false))),
            ("order=liquidity", None),
        ] {
            assert_eq!(order(query), expected, "{query}");
        }
        assert!(parameters("ascending=maybe").order("order").is_err());
    }
}
