//! The markets of the simulated venue: their descriptions, how they trade and how they end.
//!
//! They are set on a small invented coast with football clubs, coins and weather. Markets that
//! never close have no end date and a question that does not age.

use super::names;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::{
    Event, FeeCurve, FeeExponent, Fees, MarketInfo, MarketStatus, Outcome,
};
use paperbourse_core::money::{FeeRate, MICROS_PER_UNIT, Price, Usd};

/// The properties of a market that are fixed before its tape starts.
#[derive(Clone, Copy)]
pub(super) struct Script {
    /// The slug, from which the ids are derived.
    pub(super) slug: &'static str,
    pub(super) question: &'static str,
    /// The category, which determines the fee as it does at the venue.
    pub(super) category: &'static str,
    /// Whether takers pay no fee, regardless of the category.
    pub(super) is_free: bool,
    /// The slug and the title of the market's event, if any. Exactly one market of an event wins.
    pub(super) event: Option<(&'static str, &'static str)>,
    pub(super) labels: [&'static str; 2],
    pub(super) tick: Price,
    /// The initial fair value of a share of the first outcome.
    pub(super) fair: Price,
    /// Maximum distance of the fair value from its initial value, in millionths of a dollar.
    pub(super) fair_range_micros: i64,
    /// Maximum size of a single move of the fair value, in millionths of a dollar.
    pub(super) drift_micros_max: i64,
    pub(super) spread_ticks_max: i64,
    /// Number of levels per side, as far as the price range has room for them.
    pub(super) level_count: i64,
    /// The average number of shares at the best price; the n-th level has n times as many.
    pub(super) touch_shares: i64,
    pub(super) volume_usd: i64,
    pub(super) life: Life,
}

/// The lifecycle of a market. Times are in seconds after the start of the tape.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// The market never closes.
    Open,
    /// The market shows a book but never accepts an order.
    Paused,
    /// The market closes without a result.
    Closes { closes_after_s: i64 },
    /// The market closes, and resolves later.
    Resolves { closes_after_s: i64, resolves_after_s: i64, ending: Ending },
}

/// The payouts of a resolved market.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// Everything to one outcome, drawn at random. The fair value at the close is the first
    /// outcome's probability.
    Drawn,
    /// Half to each outcome, as for an abandoned match.
    Split,
}

impl Script {
    /// Returns the description at the start of a tape.
    pub(super) fn info(&self, start: Timestamp) -> MarketInfo {
        let outcomes = self.labels.map(|label| Outcome {
            label: label.into(),
            token_id: names::token_id(self.slug, label).into(),
        });
        let volume = Usd::from_micros(self.volume_usd * MICROS_PER_UNIT);
        MarketInfo {
            slug: Some(self.slug.into()),
            question: Some(self.question.into()),
            category: Some(self.category.into()),
            event: self.event.map(|(slug, title)| Event {
                id: slug.into(),
                slug: Some(slug.into()),
                title: Some(title.into()),
            }),
            status: match self.life {
                Life::Paused => MarketStatus::Paused,
                Life::Open | Life::Closes { .. } | Life::Resolves { .. } => MarketStatus::Open,
            },
            fees: if self.is_free { Fees::Free } else { fees_of(self.category) },
            tick: self.tick,
            neg_risk: self.event.is_some(),
            end_date: match self.life {
                Life::Open | Life::Paused => None,
                Life::Closes { closes_after_s } | Life::Resolves { closes_after_s, .. } => {
                    Some(super::after_millis(start, closes_after_s * 1_000))
                }
            },
            volume_24h: Some(Usd::from_micros(volume.micros() / 20)),
            volume_total: Some(volume),
            ..MarketInfo::bare(&names::condition_id(self.slug), outcomes)
        }
    }
}

/// Returns the fees that the venue has charged takers in a category since July 2026. Makers pay
/// nothing.
pub(super) fn fees_of(category: &str) -> Fees {
    let rate_micros = match category {
        "Crypto" => 70_000,
        "Finance" | "Mentions" | "Politics" | "Tech" => 40_000,
        "Geopolitics" => return Fees::Free,
        // Economics, sports, culture, weather and all others.
        _ => 50_000,
    };
    let exponent = FeeExponent::One;
    Fees::Curve(FeeCurve { rate: FeeRate::from_micros(rate_micros), exponent })
}

/// A market with a tick of 0.01 and medium depth.
const BINARY: Script = Script {
    slug: "",
    question: "",
    category: "Weather",
    is_free: false,
    event: None,
    labels: ["Yes", "No"],
    tick: Price::from_micros(10_000),
    fair: Price::from_micros(500_000),
    fair_range_micros: 100_000,
    drift_micros_max: 2_500,
    spread_ticks_max: 3,
    level_count: 10,
    touch_shares: 120,
    volume_usd: 20_000,
    life: Life::Open,
};

/// A market on the victory of one club in a cup, which exactly one club wins.
const CUP: Script = Script {
    category: "Sports",
    event: Some(("lantern-cup", "Lantern Cup winner")),
    fair_range_micros: 50_000,
    spread_ticks_max: 2,
    level_count: 8,
    touch_shares: 200,
    ..BINARY
};

/// A market on the month of the first snow, with a tick of 0.001.
const SNOW: Script = Script {
    event: Some(("mount-corrin-snow", "First snow on Mount Corrin")),
    tick: Price::from_micros(1_000),
    drift_micros_max: 900,
    spread_ticks_max: 6,
    level_count: 15,
    touch_shares: 60,
    ..BINARY
};

/// A market on whether a coin's price ends above or below its start.
const COIN: Script = Script {
    category: "Crypto",
    labels: ["Up", "Down"],
    fair_range_micros: 400_000,
    drift_micros_max: 12_000,
    spread_ticks_max: 4,
    ..BINARY
};

const fn cents(cents: i64) -> Price {
    Price::from_micros(cents * 10_000)
}

/// All markets, in the order of their listing.
pub(super) static SCRIPTS: [Script; 22] = [
    Script {
        slug: super::DEEP_MARKET_SLUG,
        question: "Will the tide at Port Amber pass the old mark this season?",
        is_free: true,
        fair: cents(52),
        spread_ticks_max: 2,
        touch_shares: 5_000,
        volume_usd: 4_800_000,
        ..BINARY
    },
    Script {
        slug: "lantern-cup-amber-rovers",
        question: "Will Amber Rovers win the Lantern Cup?",
        fair: cents(34),
        volume_usd: 910_000,
        ..CUP
    },
    Script {
        slug: "lantern-cup-northmere-united",
        question: "Will Northmere United win the Lantern Cup?",
        fair: cents(27),
        volume_usd: 760_000,
        ..CUP
    },
    Script {
        slug: "lantern-cup-saltmarsh-athletic",
        question: "Will Saltmarsh Athletic win the Lantern Cup?",
        fair: cents(19),
        volume_usd: 540_000,
        ..CUP
    },
    Script {
        slug: "lantern-cup-quillford-town",
        question: "Will Quillford Town win the Lantern Cup?",
        fair: cents(12),
        volume_usd: 330_000,
        ..CUP
    },
    Script {
        slug: "lantern-cup-another-club",
        question: "Will another club win the Lantern Cup?",
        fair: cents(8),
        volume_usd: 120_000,
        ..CUP
    },
    Script {
        slug: "mount-corrin-snow-october",
        question: "Will the first snow on Mount Corrin fall in October?",
        fair: Price::from_micros(215_000),
        volume_usd: 64_000,
        ..SNOW
    },
    Script {
        slug: "mount-corrin-snow-november",
        question: "Will the first snow on Mount Corrin fall in November?",
        fair: Price::from_micros(540_000),
        volume_usd: 81_000,
        ..SNOW
    },
    Script {
        slug: "mount-corrin-snow-december-or-later",
        question: "Will the first snow on Mount Corrin fall in December or later?",
        fair: Price::from_micros(245_000),
        volume_usd: 58_000,
        ..SNOW
    },
    Script {
        slug: "kestrel-probe-lands",
        question: "Will the Kestrel probe land in one piece?",
        category: "Science",
        tick: Price::from_micros(1_000),
        fair: Price::from_micros(957_500),
        fair_range_micros: 25_000,
        drift_micros_max: 500,
        spread_ticks_max: 5,
        level_count: 14,
        touch_shares: 400,
        volume_usd: 1_250_000,
        ..BINARY
    },
    Script {
        slug: "amber-updown-5m",
        question: "Amber Coin up or down in five minutes?",
        fair_range_micros: 450_000,
        volume_usd: 42_000,
        life: Life::Resolves { closes_after_s: 300, resolves_after_s: 360, ending: Ending::Drawn },
        ..COIN
    },
    Script {
        slug: "tern-updown-daily",
        question: "Tern Coin up or down at the end of the session?",
        volume_usd: 275_000,
        ..COIN
    },
    Script {
        slug: "amber-coin-above-ten-dollars",
        question: "Will Amber Coin trade above ten dollars?",
        category: "Crypto",
        fair: cents(41),
        volume_usd: 390_000,
        ..BINARY
    },
    Script {
        slug: "glass-coin-halves",
        question: "Will Glass Coin lose half of its price?",
        category: "Crypto",
        fair: cents(23),
        volume_usd: 150_000,
        ..BINARY
    },
    Script {
        slug: "northmere-noon-rain",
        question: "Will it rain in Northmere when the noon bell rings?",
        fair: cents(63),
        drift_micros_max: 6_000,
        volume_usd: 17_000,
        life: Life::Resolves { closes_after_s: 120, resolves_after_s: 180, ending: Ending::Drawn },
        ..BINARY
    },
    Script {
        slug: "quillford-saltmarsh-match",
        question: "Quillford Town or Saltmarsh Athletic: who wins today's match?",
        category: "Sports",
        labels: ["Quillford Town", "Saltmarsh Athletic"],
        fair: cents(45),
        volume_usd: 98_000,
        life: Life::Resolves { closes_after_s: 240, resolves_after_s: 480, ending: Ending::Split },
        ..BINARY
    },
    Script {
        slug: "rovers-united-goals",
        question: "Amber Rovers against Northmere United: more than two goals?",
        category: "Sports",
        labels: ["Over", "Under"],
        fair: cents(48),
        volume_usd: 185_000,
        ..BINARY
    },
    Script {
        slug: "saltmarsh-regatta-starts",
        question: "Will the Saltmarsh regatta start on time?",
        category: "Sports",
        fair: cents(71),
        volume_usd: 12_000,
        life: Life::Closes { closes_after_s: 150 },
        ..BINARY
    },
    Script {
        slug: "quillford-bridge-vote",
        question: "Will Quillford vote for the new bridge?",
        category: "Politics",
        fair: cents(56),
        volume_usd: 73_000,
        life: Life::Paused,
        ..BINARY
    },
    Script {
        slug: "northmere-lighthouse-relit",
        question: "Will the Northmere lighthouse be lit again?",
        category: "Culture",
        fair: cents(37),
        volume_usd: 45_000,
        ..BINARY
    },
    Script {
        slug: "port-amber-ferry-record",
        question: "Will the Port Amber ferry carry more people than last year?",
        category: "Economy",
        fair: cents(82),
        volume_usd: 31_000,
        ..BINARY
    },
    Script {
        slug: "saltmarsh-heron-sighting",
        question: "Will a white heron be seen in Saltmarsh this winter?",
        category: "Science",
        fair: cents(7),
        fair_range_micros: 40_000,
        spread_ticks_max: 4,
        level_count: 6,
        touch_shares: 25,
        volume_usd: 2_400,
        ..BINARY
    },
];
