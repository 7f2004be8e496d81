//! Which markets of Polymarket are followed.

use crate::ids::Timestamp;
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::money::Usd;

/// At most this many markets are asked for.
pub const MARKETS_WANTED_MAX: usize = 5_000;

/// Which markets are followed: the most traded of the day among those that match.
#[derive(Clone, Debug, Default)]
pub struct MarketFilter {
    /// At most so many, 1 to [`MARKETS_WANTED_MAX`]. A market that is followed stays followed until
    /// it closes, so there may be twice as many.
    pub count_max: usize,
    /// Ids of tags, of which a market must have one; none for all.
    pub tags: Vec<String>,
    /// Names in addresses; none for all.
    pub slugs: Vec<String>,
    /// Condition ids; none for all.
    pub condition_ids: Vec<String>,
    /// Ids of series, of which a market's event must be one; none for all. The markets that end
    /// soonest come first then, since the venue opens families of short ones long before.
    pub series: Vec<String>,
    /// Dollars traded in the last day.
    pub volume_24h_min: Option<Usd>,
}

impl MarketFilter {
    /// Whether it asks for some markets and not for whichever are traded most.
    pub fn is_selective(&self) -> bool {
        [&self.tags, &self.slugs, &self.condition_ids, &self.series]
            .into_iter()
            .any(|wanted| !wanted.is_empty())
    }

    /// Whether a market of the list is one to follow: open, and traded as much as is asked for. The
    /// end is a schedule: games and decisions go on after it, and are the busiest then. But old
    /// markets stay open for months, so past its end a market must have been traded in the last
    /// day.
    pub fn wants(&self, info: &MarketInfo, now: Timestamp) -> bool {
        let volume = info.volume_24h.unwrap_or(Usd::ZERO);
        let is_quiet = volume == Usd::ZERO;
        let is_past = info.end_date.is_some_and(|end| end < now);
        let is_traded = self.volume_24h_min.is_none_or(|least| volume >= least);
        info.status == MarketStatus::Open && is_traded && !(is_past && is_quiet)
    }

    /// Whether a market is among those that the filter names, if it names any.
    pub fn names(&self, info: &MarketInfo) -> bool {
        let has = |names: &[String], name: Option<&str>| {
            names.is_empty() || name.is_some_and(|name| names.iter().any(|wanted| wanted == name))
        };
        has(&self.slugs, info.slug.as_deref()) && has(&self.condition_ids, Some(&info.condition_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_and_quiet_markets_are_not_wanted() {
        let now = Timestamp::from_seconds(1_000);
        let dollars = |dollars: i64| Some(Usd::from_micros(dollars * 1_000_000));
        let at = |seconds| Some(Timestamp::from_seconds(seconds));
        for (status, end_date, volume, least, expected) in [
            (MarketStatus::Open, None, None, None, true),
            (MarketStatus::Open, at(1_000), None, None, true),
            // In-play sports and decisions that drag on; and markets that were left open.
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
}
