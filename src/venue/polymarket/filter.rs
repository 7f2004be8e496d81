//! Selects the Polymarket markets to follow.

use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::Usd;

/// Maximum number of markets that can be requested.
pub const MARKETS_WANTED_MAX: usize = 5_000;

/// A selection of the day's most traded markets among those that match.
#[derive(Clone, Debug, Default)]
pub struct MarketFilter {
    /// Number of markets to select, from 1 to [`MARKETS_WANTED_MAX`]. A market stays followed until
    /// it closes, so up to twice as many may be followed.
    pub count_max: usize,
    /// Tag ids. A market must have at least one of these tags. If empty, all markets match.
    pub tags: Vec<String>,
    /// Slugs of markets. If empty, all markets match.
    pub slugs: Vec<String>,
    /// Condition ids of markets. If empty, all markets match.
    pub condition_ids: Vec<String>,
    /// Series ids. The market's event must belong to one of these series. If empty, all markets
    /// match. Otherwise the markets that end soonest are selected instead of the most traded: the
    /// venue opens families of short markets long before they trade.
    pub series: Vec<String>,
    /// Minimum volume of the last day, in dollars.
    pub volume_24h_min: Option<Usd>,
}

impl MarketFilter {
    /// Returns whether the filter selects by tag, slug, condition id or series, not by volume
    /// alone.
    pub fn is_selective(&self) -> bool {
        [&self.tags, &self.slugs, &self.condition_ids, &self.series]
            .into_iter()
            .any(|wanted| !wanted.is_empty())
    }

    /// Returns whether a listed market is open and traded enough. A placeholder that the venue
    /// trades is listed like an open market but takes no orders here.
    ///
    /// The end date is only a schedule: games and decisions run over, and trade most heavily then.
    /// But abandoned markets stay open for months, so past its end date a market must have been
    /// traded in the last day.
    pub fn wants(&self, info: &MarketInfo, now: Timestamp) -> bool {
        let volume = info.volume_24h.unwrap_or(Usd::ZERO);
        let is_quiet = volume == Usd::ZERO;
        let is_past = info.end_date.is_some_and(|end| end < now);
        let is_traded = self.volume_24h_min.is_none_or(|least| volume >= least);
        info.is_open_at_venue() && is_traded && !(is_past && is_quiet)
    }

    /// Returns whether a market matches the slugs and the condition ids. An empty list matches any
    /// market.
    pub fn names(&self, info: &MarketInfo) -> bool {
        let Self { slugs, condition_ids, .. } = self;
        let is_slug = |slug: &String| info.slug.as_deref() == Some(slug);
        let is_id = |id: &String| condition::is_same(id, &info.condition_id);
        (slugs.is_empty() || slugs.iter().any(is_slug))
            && (condition_ids.is_empty() || condition_ids.iter().any(is_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::market::catalogue::MarketStatus;

    #[test]
    fn abandoned_and_quiet_markets_are_not_wanted() {
        let now = Timestamp::from_seconds(1_000);
        let dollars = |dollars: i64| Some(Usd::from_micros(dollars * 1_000_000));
        let at = |seconds| Some(Timestamp::from_seconds(seconds));
        for (status, end_date, volume, least, expected) in [
            (MarketStatus::Open, None, None, None, true),
            (MarketStatus::Open, at(1_000), None, None, true),
            // Games and decisions that run over, then abandoned markets.
            (MarketStatus::Open, at(999), dollars(26_000_000), None, true),
            (MarketStatus::Open, at(999), dollars(1), None, true),
            (MarketStatus::Open, at(999), dollars(0), None, false),
            (MarketStatus::Open, at(999), None, None, false),
            (MarketStatus::Paused, at(999), dollars(1), None, false),
            (MarketStatus::Closed, at(999), dollars(1), None, false),
            (MarketStatus::Paused, None, None, None, false),
            (MarketStatus::Hydrating, None, None, None, false),
            (MarketStatus::Closed, None, None, None, false),
            (MarketStatus::Open, None, dollars(10), dollars(10), true),
            (MarketStatus::Open, None, dollars(9), dollars(10), false),
            (MarketStatus::Open, None, None, dollars(10), false),
        ] {
            let filter = MarketFilter { volume_24h_min: least, ..MarketFilter::default() };
            let mut info = MarketInfo::bare("0xa", []);
            (info.status, info.end_date, info.volume_24h) = (status, end_date, volume);
            assert_eq!(filter.wants(&info, now), expected, "{info:?}");
        }
    }

    #[test]
    fn placeholders_are_listed_although_they_are_paused() {
        for (status, expected) in [
            (MarketStatus::Hydrating, false),
            (MarketStatus::Open, true),
            (MarketStatus::Paused, true),
            (MarketStatus::Closed, false),
            (MarketStatus::Resolved, false),
        ] {
            let info =
                MarketInfo { status, is_placeholder: true, ..MarketInfo::bare_yes_no("0xa") };
            let is_wanted = MarketFilter::default().wants(&info, Timestamp::EPOCH);
            assert_eq!(is_wanted, expected, "{status:?}");
        }
    }
}
