//! What a signed order asks for: its amounts as a price and a size.
//!
//! A wallet signs two amounts, what it gives and what it takes. Their ratio is the price.
//!
//! A limit order says its price exactly, a market order not: it has the dollars to spend or the
//! shares to sell, and the other amount is computed from the limit price and rounded. Its price is
//! therefore the multiple of the tick next to the ratio. For the orders of the venue's clients, the
//! ratio is less than a quarter of a tick away.

use super::{MarketFacts, OrderError, OrderType, Side, SignedOrder};

const MICROS: u64 = 1_000_000;

/// Number of decimals of an amount in micro-units.
const DECIMALS: u32 = 6;

/// Number of decimals that the venue allows the size of an order.
const SIZE_DECIMALS_MAX: u32 = 2;

/// Number of decimals that the venue allows the dollars and the shares of a market order that buys.
const MARKET_BUY_DECIMALS_MAX: [u32; 2] = [2, 4];

/// What an order asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderTerms {
    /// The limit price in micro-dollars, a multiple of the market's tick between 0 and 1,000,000.
    pub price_micros: u64,
    /// How much to trade.
    pub size: OrderSize,
}

/// How much an order trades.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderSize {
    /// A number of shares, in micro-shares.
    Shares(u64),
    /// The dollars to spend in a market order that buys, in micro-dollars. At a better price than
    /// its limit, they buy more shares.
    Budget(u64),
}

impl SignedOrder {
    /// Returns what the order asks for, whatever the time is; [`check_expiration`] looks at that.
    ///
    /// [`check_expiration`]: Self::check_expiration
    pub fn terms(&self, market: &MarketFacts) -> Result<OrderTerms, OrderError> {
        if self.post_only && !self.order_type.may_rest() {
            return Err(OrderError::PostOnly);
        }
        if (self.order_type == OrderType::Gtd) != (self.expiration_s > 0) {
            return Err(OrderError::Expiration);
        }
        let price_micros = self.price_micros(market.tick_micros)?;
        let [dollars, shares] = self.dollars_and_shares();
        let size = match (self.side, self.order_type.may_rest()) {
            (Side::Buy, false) => OrderSize::Budget(dollars),
            _ => OrderSize::Shares(shares),
        };
        Ok(OrderTerms { price_micros, size })
    }

    /// Verifies that the amounts have no more decimals than the venue allows. It is stricter than
    /// its clients, some of which send market orders with more where the tick is below 0.01.
    pub fn check_decimals(&self, market: &MarketFacts) -> Result<(), OrderError> {
        let [dollars, shares] = self.dollars_and_shares();
        let dollar_decimals_max = decimals(market.tick_micros) + SIZE_DECIMALS_MAX;
        let is_sized = decimals(shares) <= SIZE_DECIMALS_MAX;
        match (self.side, self.order_type.may_rest()) {
            (Side::Buy, false) => {
                let [dollars_max, shares_max] = MARKET_BUY_DECIMALS_MAX;
                let is_allowed = decimals(dollars) <= dollars_max && decimals(shares) <= shares_max;
                if is_allowed { Ok(()) } else { Err(OrderError::MarketBuyDecimals) }
            }
            (Side::Buy, true) if !is_sized || decimals(dollars) > dollar_decimals_max => {
                Err(OrderError::BuyDecimals { dollar_decimals_max })
            }
            (Side::Sell, _) if !is_sized => Err(OrderError::SellDecimals { dollar_decimals_max }),
            _ => Ok(()),
        }
    }

    /// The amounts, in micro-units.
    fn dollars_and_shares(&self) -> [u64; 2] {
        match self.side {
            Side::Buy => [self.maker_amount_micros, self.taker_amount_micros],
            Side::Sell => [self.taker_amount_micros, self.maker_amount_micros],
        }
    }

    fn price_micros(&self, tick_micros: u64) -> Result<u64, OrderError> {
        assert!((1..MICROS).contains(&tick_micros), "a tick is between 0 and 1");
        let [dollars, shares] = self.dollars_and_shares().map(u128::from);
        assert!(shares > 0, "a signed order has no amount of 0");
        // In units of a tick, as a fraction. Both have less than 85 bits.
        let (numerator, denominator) =
            (dollars * u128::from(MICROS), shares * u128::from(tick_micros));
        let ticks = if self.order_type.may_rest() {
            Some(numerator / denominator).filter(|ticks| ticks * denominator == numerator)
        } else {
            // In the middle between two, the one that is better for the maker.
            let tie = u128::from(self.side == Side::Buy);
            Some((2 * numerator + denominator - tie) / (2 * denominator))
        };
        let price_micros = ticks.map(|ticks| ticks * u128::from(tick_micros));
        let prices = tick_micros..=MICROS - tick_micros;
        price_micros
            .and_then(|price| u64::try_from(price).ok())
            .filter(|price| prices.contains(price))
            .ok_or_else(|| OrderError::Tick {
                id: self.id,
                price: decimal(dollars, shares),
                tick: decimal(tick_micros.into(), MICROS.into()),
            })
    }
}

/// The number of decimals of an amount in micro-units.
fn decimals(micros: u64) -> u32 {
    let is_multiple = |decimals: &u32| micros.is_multiple_of(10_u64.pow(DECIMALS - decimals));
    (0..DECIMALS).find(is_multiple).unwrap_or(DECIMALS)
}

/// Formats a fraction of numbers below 2^64, rounded to 16 decimals as the venue does, without
/// trailing zeros.
fn decimal(numerator: u128, denominator: u128) -> String {
    const SCALE: u128 = 10_u128.pow(16);
    let scaled = (2 * numerator * SCALE + denominator) / (2 * denominator);
    let text = format!("{}.{:016}", scaled / SCALE, scaled % SCALE);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
