//! Up-or-down markets, read without involving a shard.

use std::collections::BTreeMap;

use super::Service;
use paperbourse_core::market::updown::{Interval, UpDown};
use paperbourse_core::market::{Listing, MarketSnapshot};

/// A list of markets that are not closed, with the number of markets per asset and per interval.
pub struct UpDownList {
    /// The requested markets, soonest end first.
    pub markets: Vec<(UpDown, MarketSnapshot)>,
    /// Number of markets that match the request, including those beyond its limit.
    pub total: usize,
    /// Number of markets per asset, for the requested interval.
    pub asset_counts: BTreeMap<String, usize>,
    /// Number of markets per interval, in the order of [`Interval::ALL`], for the requested asset.
    pub interval_counts: [usize; Interval::ALL.len()],
}

impl Service {
    /// Lists at most `limit` markets with this asset, ignoring case, and this interval. `None`
    /// matches any asset or interval.
    pub fn list_updown(
        &self,
        asset: Option<&str>,
        interval: Option<Interval>,
        limit: usize,
    ) -> UpDownList {
        UpDownList::of(&self.markets.listing(), asset, interval, limit)
    }
}

impl UpDownList {
    fn of(
        listing: &Listing,
        asset: Option<&str>,
        interval: Option<Interval>,
        limit: usize,
    ) -> Self {
        let mut asset_counts = BTreeMap::new();
        let mut interval_counts = [0; Interval::ALL.len()];
        let mut wanted = Vec::new();
        for market in listing.markets() {
            let info = market.info();
            let Some(updown) = UpDown::of(&info).filter(|_| !info.status.is_closed()) else {
                continue;
            };
            let is_called = |asset: &str| {
                updown.asset.as_ref().is_some_and(|it| it.eq_ignore_ascii_case(asset))
            };
            let is_of_asset = asset.is_none_or(is_called);
            let is_of_interval = interval.is_none() || updown.interval == interval;
            if let Some(asset) = updown.asset.as_ref().filter(|_| is_of_interval) {
                *asset_counts.entry(asset.clone()).or_default() += 1;
            }
            if let Some(interval) = updown.interval.filter(|_| is_of_asset) {
                interval_counts[interval as usize] += 1;
            }
            if is_of_asset && is_of_interval {
                wanted.push((updown, market));
            }
        }
        wanted.sort_by_key(|(updown, _)| (updown.end.is_none(), updown.end));
        let total = wanted.len();
        let shown = wanted.into_iter().take(limit);
        let markets = shown.map(|(updown, market)| (updown, market.snapshot())).collect();
        Self { markets, total, asset_counts, interval_counts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::Markets;
    use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};

    #[test]
    fn markets_are_listed_by_asset_and_interval_and_counted_by_the_other() {
        let markets = Markets::new();
        let rows = [
            ("btc-updown-5m-900", MarketStatus::Open, None),
            ("btc-updown-5m-600", MarketStatus::Paused, None),
            ("btc-updown-5m-300", MarketStatus::Closed, None),
            ("eth-updown-5m-600", MarketStatus::Open, None),
            ("bitcoin-up-or-down-on-july-2", MarketStatus::Hydrating, Some(10)),
            ("tern-updown-daily", MarketStatus::Open, None),
            ("of-another-form", MarketStatus::Open, Some(20)),
        ];
        let infos = rows.map(|(slug, status, end_s)| MarketInfo {
            slug: Some(slug.into()),
            status,
            end_date: end_s.map(Timestamp::from_seconds),
            ..MarketInfo::bare(
                slug,
                ["Up", "Down"].map(|it| Outcome { label: it.into(), token_id: "".into() }),
            )
        });
        markets.list(infos.into()).unwrap();
        markets.list(vec![MarketInfo::bare_yes_no("btc-updown-5m-1")]).unwrap();
        let [five, day] = [Some(Interval::FiveMinutes), Some(Interval::Day)];
        for (asset, interval, limit, expected, total, assets, intervals) in [
            (
                None,
                None,
                9,
                "bitcoin-up-or-down-on-july-2 of-another-form btc-updown-5m-600 \
                 eth-updown-5m-600 btc-updown-5m-900 tern-updown-daily",
                6,
                "BTC 3, ETH 1, TERN 1",
                [3, 0, 0, 0, 2],
            ),
            (
                Some("Btc"),
                None,
                1,
                "bitcoin-up-or-down-on-july-2",
                3,
                "BTC 3, ETH 1, TERN 1",
                [2, 0, 0, 0, 1],
            ),
            (Some("BTC"), five, 1, "btc-updown-5m-600", 2, "BTC 2, ETH 1", [2, 0, 0, 0, 1]),
            (None, day, 1, "bitcoin-up-or-down-on-july-2", 2, "BTC 1, TERN 1", [3, 0, 0, 0, 2]),
            (Some("BTC"), day, 0, "", 1, "BTC 1, TERN 1", [2, 0, 0, 0, 1]),
            (Some("BT"), None, 9, "", 0, "BTC 3, ETH 1, TERN 1", [0; 5]),
        ] {
            let list = UpDownList::of(&markets.listing(), asset, interval, limit);
            let slugs: Vec<_> =
                list.markets.iter().map(|(_, it)| it.info().slug.clone().unwrap()).collect();
            let counts: Vec<_> =
                list.asset_counts.iter().map(|(asset, count)| format!("{asset} {count}")).collect();
            let what = format!("{asset:?} {interval:?}");
            assert_eq!((slugs.join(" ").as_str(), list.total), (expected, total), "{what}");
            assert_eq!(
                (counts.join(", ").as_str(), list.interval_counts),
                (assets, intervals),
                "{what}"
            );
        }
    }
}
