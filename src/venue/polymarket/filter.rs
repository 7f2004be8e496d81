//! Chooses which of Polymarket's markets are followed.

use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::Usd;

/// The largest number of markets that can be requested.
pub const MARKETS_WANTED_MAX: usize = 5_000;

/// Selects the most traded markets of the day among those that match.
#[derive(Clone, Debug, Default)]
pub struct MarketFilter {
    /// How many markets to select, from 1 to [`MARKETS_WANTED_MAX`]. Followed markets stay followed
    /// until they close, so twice as many may be followed.
    pub count_max: usize,
    /// Ids of tags, of which a market must have one. If empty, all match.
    pub tags: Vec<String>,
    /// Slugs. If empty, all match.
    pub slugs: Vec<String>,
    /// Condition ids. If empty, all match.
    pub condition_ids: Vec<String>,
    /// Ids of series, to one of which the market's event must belong. If empty, all match.
    /// Otherwise the markets that end soonest are selected, not the most traded: the venue opens
    /// families of short markets long before they trade.
    pub series: Vec<String>,
    /// The least volume of the last day.
    pub volume_24h_min: Option<Usd>,
}

impl MarketFilter {
    /// Whether it names markets, rather than taking whichever are traded most.
    pub fn is_selective(&self) -> bool {
        [&self.tags, &self.slugs, &self.condition_ids, &self.series]
            .into_iter()
            .any(|wanted| !wanted.is_empty())
    }

    /// Whether a listed market is open and traded enough. A placeholder that the venue trades is
    /// listed like an open market, and takes no orders here.
    ///
    /// The end date is only a schedule: games and decisions run over, and are busiest then. But
    /// abandoned markets stay open for months, so past its end date a market must have been traded
    /// in the last day.
    pub fn wants(&self, info: &MarketInfo, now: Timestamp) -> bool {
        let volume = info.volume_24h.unwrap_or(Usd::ZERO);
        let is_quiet = volume == Usd::ZERO;
        let is_past = info.end_date.is_some_and(|end| end < now);
        let is_traded = self.volume_24h_min.is_none_or(|least| volume >= least);
        info.is_open_at_venue() && is_traded && !(is_past && is_quiet)
    }

    /// Whether a market has one of the slugs and one of the condition ids.
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
