//! Markets on whether the price of an asset goes up or down within a window of time.
//!
//! Their outcomes are called Up and Down. The slug names the asset and the length of the window:
//! `btc-updown-5m-1784850900`, where the number is the start in Unix seconds,
//! `bitcoin-up-or-down-march-12-10pm-et` for an hour, `bitcoin-up-or-down-on-april-25-2026` for a
//! day. Slugs of other forms carry less information, or none.

use super::catalogue::MarketInfo;
use crate::ids::Timestamp;

/// Maximum number of digits of the seconds in a slug, enough until the year 2286.
const SECONDS_DIGITS_MAX: usize = 10;

/// Assets that some slugs spell out instead of using their symbols.
const NAMED_ASSETS: [(&str, &str); 7] = [
    ("bitcoin", "BTC"),
    ("ethereum", "ETH"),
    ("solana", "SOL"),
    ("ripple", "XRP"),
    ("dogecoin", "DOGE"),
    ("hyperliquid", "HYPE"),
    ("binance-coin", "BNB"),
];

/// The asset and the window of an up-or-down market. Parts that the slug does not state are `None`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpDown {
    /// The symbol of the asset, such as `BTC`.
    pub asset: Option<String>,
    /// The length of the window.
    pub interval: Option<Interval>,
    /// The start of the window.
    pub start: Option<Timestamp>,
    /// The end of the window.
    pub end: Option<Timestamp>,
}

/// The length of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interval {
    /// Five minutes.
    FiveMinutes,
    /// Fifteen minutes.
    QuarterHour,
    /// An hour.
    Hour,
    /// Four hours.
    FourHours,
    /// A day.
    Day,
}

impl Interval {
    /// All lengths, shortest first.
    pub const ALL: [Self; 5] =
        [Self::FiveMinutes, Self::QuarterHour, Self::Hour, Self::FourHours, Self::Day];

    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FiveMinutes => "5M",
            Self::QuarterHour => "15M",
            Self::Hour => "1H",
            Self::FourHours => "4H",
            Self::Day => "daily",
        }
    }

    const fn seconds(self) -> i64 {
        match self {
            Self::FiveMinutes => 300,
            Self::QuarterHour => 900,
            Self::Hour => 3_600,
            Self::FourHours => 14_400,
            Self::Day => 86_400,
        }
    }

    fn of_slug(text: &str) -> Option<Self> {
        Some(match text {
            "5m" => Self::FiveMinutes,
            "15m" => Self::QuarterHour,
            "1h" => Self::Hour,
            "4h" => Self::FourHours,
            "1d" | "24h" | "daily" => Self::Day,
            _ => return None,
        })
    }
}

impl UpDown {
    /// Reads a market's slug. Returns `None` if its outcomes are not Up and Down.
    pub fn of(info: &MarketInfo) -> Option<Self> {
        let [up, down] = info.outcomes.as_slice() else { return None };
        if !up.label.eq_ignore_ascii_case("up") || !down.label.eq_ignore_ascii_case("down") {
            return None;
        }
        let (asset, interval, start) = parse(info.slug.as_deref().unwrap_or_default());
        let seconds = interval.map(Interval::seconds);
        let shifted = |time: Option<Timestamp>, seconds: Option<i64>| {
            Some(Timestamp::from_seconds(time?.seconds().saturating_add(seconds?)))
        };
        Some(Self {
            asset,
            interval,
            start: start.or_else(|| shifted(info.end_date, seconds.map(|seconds| -seconds))),
            end: info.end_date.or_else(|| shifted(start, seconds)),
        })
    }
}

/// Returns the date and the hours of a window as the venue's question states them: `June 24` and
/// `3:50AM-3:55AM ET` of `Bitcoin Up or Down - June 24, 3:50AM-3:55AM ET`.
pub fn shown_window(question: &str) -> (Option<&str>, Option<&str>) {
    if let Some((_, window)) = question.split_once(" - ") {
        return match window.rsplit_once(", ") {
            Some((date, hours)) => (Some(date), Some(hours)),
            None => (Some(window), None),
        };
    }
    let date = question.rsplit_once(" on ").and_then(|(_, date)| date.strip_suffix('?'));
    (date, None)
}

/// Returns the asset, the interval and the start found in a slug.
fn parse(slug: &str) -> (Option<String>, Option<Interval>, Option<Timestamp>) {
    if let Some((asset, window)) = slug.split_once("-updown-") {
        let (interval, start) = window.split_once('-').unwrap_or((window, ""));
        return (symbol(asset), Interval::of_slug(interval), seconds(start));
    }
    let Some((asset, window)) = slug.split_once("-up-or-down-") else { return (None, None, None) };
    let is_hour = |window: &str| window.ends_with("am") || window.ends_with("pm");
    let interval = if window.starts_with("on-") {
        Some(Interval::Day)
    } else if window.strip_suffix("-et").is_some_and(is_hour) {
        Some(Interval::Hour)
    } else {
        None
    };
    (symbol(asset), interval, None)
}

fn symbol(asset: &str) -> Option<String> {
    let named = NAMED_ASSETS.iter().find(|(name, _)| *name == asset);
    let symbol = named.map_or_else(|| asset.to_ascii_uppercase(), |(_, symbol)| (*symbol).into());
    (!symbol.is_empty()).then_some(symbol)
}

fn seconds(text: &str) -> Option<Timestamp> {
    let is_number = (1..=SECONDS_DIGITS_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = if is_number { text.parse().ok() } else { None };
    seconds.map(Timestamp::from_seconds)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;
    use crate::market::catalogue::Outcome;

    fn market(slug: &str, labels: &[&str], end_s: Option<i64>) -> MarketInfo {
        let outcomes =
            labels.iter().map(|&label| Outcome { label: label.into(), token_id: label.into() });
        MarketInfo {
            slug: Some(slug.into()),
            end_date: end_s.map(Timestamp::from_seconds),
            ..MarketInfo::bare("0xabc", outcomes)
        }
    }

    #[test]
    fn slugs_name_asset_and_window() {
        let mut table = String::new();
        for (slug, end_s) in [
            ("btc-updown-5m-1784850900", Some(1_784_851_200)),
            ("hype-updown-15m-1784850900", None),
            ("eth-updown-4h-1784850900", None),
            ("tern-updown-daily", Some(1_784_851_200)),
            ("tern-updown-daily", None),
            ("btc-updown-7m-1784850900", None),
            ("btc-updown-5m-17848509001", None),
            ("btc-updown-5m-x", None),
            ("btc-updown-", None),
            ("-updown-5m", None),
            ("bitcoin-up-or-down-march-12-10pm-et", Some(7_200)),
            ("spx-up-or-down-on-april-25-2026", Some(86_400)),
            ("solana-up-or-down-this-week", Some(86_400)),
            ("who-wins", Some(5)),
            ("", None),
        ] {
            let shown = UpDown::of(&market(slug, &["Up", "DOWN"], end_s)).unwrap();
            let times = [shown.start, shown.end].map(|time| time.map(Timestamp::seconds));
            let interval = shown.interval.map(Interval::as_str);
            writeln!(table, "{slug}: {:?} {interval:?} {times:?}", shown.asset).unwrap();
        }
        insta::assert_snapshot!(table);
    }

    #[test]
    fn the_labels_make_the_market() {
        for (labels, expected) in [
            (&["Up", "Down"][..], true),
            (&["up", "down"], true),
            (&["Down", "Up"], false),
            (&["Yes", "No"], false),
            (&["Up"], false),
            (&["Up", "Down", "Same"], false),
        ] {
            let shown = UpDown::of(&market("btc-updown-5m-1", labels, None));
            assert_eq!(shown.is_some(), expected, "{labels:?}");
        }
    }

    #[test]
    fn a_question_shows_its_window() {
        for (question, expected) in [
            (
                "Hyperliquid Up or Down - June 24, 3:50AM-3:55AM ET",
                (Some("June 24"), Some("3:50AM-3:55AM ET")),
            ),
            ("Bitcoin Up or Down - July 2, 11PM ET", (Some("July 2"), Some("11PM ET"))),
            ("Bitcoin Up or Down - today", (Some("today"), None)),
            ("Bitcoin Up or Down on April 25?", (Some("April 25"), None)),
            ("Up or down?", (None, None)),
        ] {
            assert_eq!(shown_window(question), expected, "{question}");
        }
    }
}
