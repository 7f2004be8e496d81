//! The simulation's markets: books that never change, and the expected result of an order in them,
//! computed in plain integers.

use std::ops::Range;
use std::sync::Arc;

use crate::ids::{OutcomeIndex, Timestamp};
use crate::market::Markets;
use crate::market::book::{Book, Ladder, Level, Side};
use crate::market::catalogue::{Fees, MarketInfo, MarketStatus, Outcome};
use crate::money::{FeeRate, Price, Shares};

/// A price in micro-dollars and the micro-shares offered at it.
type Offer = (i64, i64);

/// A size that no order exceeds, in micro-shares.
const ENOUGH: i64 = 1_000_000_000_000;

/// A market whose book never changes.
pub(super) struct FixedMarket {
    pub(super) id: &'static str,
    /// Bids, best first.
    bids: &'static [Offer],
    /// Asks, best first.
    asks: &'static [Offer],
    /// The rate in millionths, and the exponent of the venue's fee curve.
    fee: (i64, u32),
}

/// The traded markets. The first [`LASTING_COUNT`] stay open; the others are resolved in order.
pub(super) const MARKETS: [FixedMarket; LASTING_COUNT + RESOLVING_COUNT] = [
    FixedMarket {
        id: "0xaa",
        bids: &[(400_000, 11_500_000), (390_000, 7_000_001), (350_000, ENOUGH)],
        asks: &[(500_000, 4_250_000), (510_000, 30_000_000), (560_000, ENOUGH)],
        fee: (70_000, 1),
    },
    FixedMarket {
        id: "0xbb",
        bids: &[(70_000, ENOUGH)],
        asks: &[(90_000, 20_000_000), (91_000, ENOUGH)],
        fee: (0, 1),
    },
    FixedMarket {
        id: "0xc0",
        bids: &[(310_000, 9_999_999), (300_000, ENOUGH)],
        asks: &[(320_000, ENOUGH)],
        fee: (250_000, 2),
    },
    FixedMarket {
        id: "0xc1",
        bids: &[(320_000, ENOUGH)],
        asks: &[(340_000, 12_345_678), (345_000, ENOUGH)],
        fee: (35_000, 1),
    },
    FixedMarket {
        id: "0xc2",
        bids: &[(330_000, 5_000_000), (329_000, 5_000_000), (328_000, ENOUGH)],
        asks: &[(360_000, ENOUGH)],
        fee: (0, 1),
    },
    FixedMarket { id: "0xc3", bids: &[(340_000, ENOUGH)], asks: &[(380_000, ENOUGH)], fee: (0, 1) },
    FixedMarket {
        id: "0xc4",
        bids: &[(350_000, 50_000_000), (340_000, ENOUGH)],
        asks: &[(400_000, 50_000_000), (410_000, ENOUGH)],
        fee: (70_000, 1),
    },
    FixedMarket {
        id: "0xc5",
        bids: &[(360_000, ENOUGH)],
        asks: &[(420_000, 1), (430_000, ENOUGH)],
        fee: (1_000_000, 2),
    },
];

pub(super) const LASTING_COUNT: usize = 2;
const RESOLVING_COUNT: usize = 6;

/// The result of an order, in micro-dollars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fill {
    pub(super) notional_micros: i64,
    pub(super) fee_micros: i64,
    pub(super) level_count: u16,
}

impl FixedMarket {
    /// Computes the result of an order, level by level.
    pub(super) fn fill(&self, side: Side, quantity_micros: i64) -> Fill {
        let offers = if side == Side::Buy { self.asks } else { self.bids };
        let (mut left, mut picos, mut fee_micros, mut level_count) = (quantity_micros, 0, 0, 0);
        for &(price, size) in offers {
            let taken = left.min(size);
            if taken == 0 {
                break;
            }
            left -= taken;
            picos += i128::from(price) * i128::from(taken);
            fee_micros += self.fee_micros(price, taken);
            level_count += 1;
        }
        // Rounded in the venue's favour.
        let notional =
            if side == Side::Buy { (picos + 999_999) / 1_000_000 } else { picos / 1_000_000 };
        let notional_micros = i64::try_from(notional).expect("less than the largest amount");
        Fill { notional_micros, fee_micros, level_count }
    }

    /// Computes shares × rate × (p × (1 − p))^exponent, to the nearest ten micro-dollars, half to
    /// even.
    fn fee_micros(&self, price: i64, taken: i64) -> i64 {
        let (rate, exponent) = self.fee;
        let spread = i128::from(price) * i128::from(1_000_000 - price);
        // Each factor is in millionths, and a step is a hundred-thousandth.
        let scale = 10_i128.pow(12 * (exponent + 1) - 5);
        let amount = i128::from(taken) * i128::from(rate) * spread.pow(exponent);
        let (steps, rest) = (amount / scale, amount % scale);
        let is_up = 2 * rest > scale || (2 * rest == scale && steps % 2 == 1);
        i64::try_from(10 * (steps + i128::from(is_up))).expect("less than the notional")
    }

    /// Returns the venue's description of the market while it is open.
    fn description(&self) -> MarketInfo {
        let outcomes = ["Yes", "No"]
            .map(|label| Outcome { label: label.into(), token_id: token(self.id, label) });
        let (rate, exponent) = self.fee;
        let fees = Fees::from_schedule(FeeRate::from_micros(rate), exponent.into());
        MarketInfo { fees, ..MarketInfo::bare(self.id, outcomes) }
    }

    /// Returns the venue's description of the market once it is resolved.
    pub(super) fn resolved(&self, market: usize) -> MarketInfo {
        let yes = Price::from_micros(payout_micros(market));
        let (status, payouts) = (MarketStatus::Resolved, vec![yes, yes.complement()]);
        MarketInfo { status, payouts, ..self.description() }
    }

    fn ladder(&self) -> Ladder {
        let levels = |offers: &[Offer]| {
            let level = |&(price, size)| Level {
                price: Price::from_micros(price),
                size: Shares::from_micros(size),
            };
            offers.iter().map(level).collect()
        };
        Ladder::from_levels(levels(self.bids), levels(self.asks)).expect("a book")
    }
}

/// Lists the markets for a starting process; those in `resolved` are resolved.
pub(super) fn list(markets: &Markets, resolved: &Range<usize>) {
    let described = MARKETS.iter().enumerate().map(|(index, market)| {
        if resolved.contains(&index) { market.resolved(index) } else { market.description() }
    });
    markets.list(described.collect()).expect("they are listed");
    for market in &MARKETS {
        let book = Arc::new(Book::new(market.ladder(), Timestamp::EPOCH));
        let listed = markets.by_condition(market.id).expect("just listed");
        markets.publish(&listed, OutcomeIndex(0), book);
    }
}

/// Returns the payout of one share of the traded outcome, in micro-dollars, once its market is
/// resolved.
pub(super) const fn payout_micros(market: usize) -> i64 {
    match market % 3 {
        0 => 1_000_000,
        1 => 0,
        _ => 500_000,
    }
}

fn token(id: &str, label: &str) -> Arc<str> {
    format!("{id} {label}").into()
}
