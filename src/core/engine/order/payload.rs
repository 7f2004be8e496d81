//! An order as the caller wrote it, with every optional field, and the rules for combining fields.

use smallvec::SmallVec;

use crate::engine::order::idempotency::{Fingerprint, RequestedOrder};
use crate::engine::order::terms::{OrderKind, Terms, TimeInForce};
use crate::ids::Timestamp;
use crate::market::book::Side;
use crate::money::{Price, Shares, Usd};

/// An order of any kind, as the caller wrote it. Each field is within its range.
/// [`NewOrder::intent`] checks the combination of fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOrder {
    /// The market's condition id.
    pub market_id: Box<str>,
    /// The label of the outcome, as the caller wrote it.
    pub outcome: Box<str>,
    /// Buy or sell.
    pub side: Side,
    /// Market or limit.
    pub kind: OrderKind,
    /// The number of shares; above 0, at most a million.
    pub quantity: Option<Shares>,
    /// The dollars to spend, above 0.
    pub amount: Option<Usd>,
    /// The limit price, or the worst price that a market order accepts.
    pub price: Option<Price>,
    /// The time in force, if the caller gave one.
    pub time_in_force: Option<NamedTimeInForce>,
    /// When a good-til-date order expires. The epoch counts as absent, since clients send it with
    /// orders that do not expire.
    pub expiration: Option<Timestamp>,
    /// Whether the order must not take liquidity when it is placed.
    pub post_only: bool,
    /// The price that the caller saw: the reference for slippage. If `None`, the reference is the
    /// best price in the book.
    pub expected_price: Option<Price>,
    /// The maximum slippage from the reference price in basis points, 0 to 10,000.
    pub max_slippage_bps: Option<u16>,
}

/// A time in force, by its name in the API.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NamedTimeInForce {
    /// Good til cancelled.
    Gtc,
    /// Good til date.
    Gtd,
    /// Fill or kill.
    Fok,
    /// Fill and kill, also called immediate or cancel.
    Fak,
}

/// An invalid combination of fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PayloadFlaw {
    /// An order with neither a quantity nor an amount.
    #[error("an order needs a quantity, or a market buy an amount")]
    NoSize,
    /// An order with both a quantity and an amount.
    #[error("send either a quantity or an amount, not both")]
    TwoSizes,
    /// A sale or a limit order with an amount.
    #[error("only a market buy takes an amount; send a quantity")]
    AmountNotTaken,
    /// A limit order without a price.
    #[error("a limit order needs a price")]
    NoPrice,
    /// A good-til-date market order.
    #[error("a market order cannot be GTD; send FOK or FAK")]
    MarketGtd,
    /// A good-til-date order without an expiration in the future.
    #[error("a GTD order needs an expiration, in unix seconds, that lies in the future")]
    Expiration,
    /// An expiration for an order that is not good-til-date.
    #[error("only a GTD order takes an expiration; send `time_in_force` GTD with it")]
    ExpirationNotTaken,
    /// A post-only order that cannot rest.
    #[error("only a GTC or GTD limit order can be post-only")]
    PostOnly,
}

/// A well-formed order, without its market.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Intent {
    /// Buy or sell.
    pub side: Side,
    /// The terms. For an order by amount, the quantity is 0.
    pub terms: Terms,
    /// The dollars to spend, if the order has an amount instead of a quantity.
    pub amount: Option<Usd>,
    /// The price that the caller saw: the reference for slippage. If `None`, the reference is the
    /// best price in the book.
    pub expected_price: Option<Price>,
    /// The maximum slippage from the reference price in basis points, 0 to 10,000.
    pub max_slippage_bps: Option<u16>,
}

impl NewOrder {
    /// Creates a good-til-cancelled limit order.
    #[must_use]
    pub fn limit(
        market_id: &str,
        outcome: &str,
        side: Side,
        quantity: Shares,
        price: Price,
    ) -> Self {
        Self {
            market_id: market_id.into(),
            outcome: outcome.into(),
            side,
            kind: OrderKind::Limit,
            quantity: Some(quantity),
            amount: None,
            price: Some(price),
            time_in_force: None,
            expiration: None,
            post_only: false,
            expected_price: None,
            max_slippage_bps: None,
        }
    }

    /// Checks the combination of fields at `now`, and returns the order's intent.
    pub fn intent(&self, now: Timestamp) -> Result<Intent, PayloadFlaw> {
        match (self.quantity, self.amount) {
            (Some(_), Some(_)) => return Err(PayloadFlaw::TwoSizes),
            (None, None) => return Err(PayloadFlaw::NoSize),
            (None, Some(_)) if self.side == Side::Sell || self.kind == OrderKind::Limit => {
                return Err(PayloadFlaw::AmountNotTaken);
            }
            _ => {}
        }
        if self.time_in_force != Some(NamedTimeInForce::Gtd) && self.has_expiration() {
            return Err(PayloadFlaw::ExpirationNotTaken);
        }
        let time_in_force = match self.kind {
            OrderKind::Market => self.market_time_in_force()?,
            OrderKind::Limit => self.limit_time_in_force(now)?,
        };
        let quantity = self.quantity.unwrap_or(Shares::ZERO);
        let terms = Terms::of_order(self.kind, time_in_force, quantity, self.price);
        Ok(Intent {
            side: self.side,
            terms: Terms { post_only: self.post_only, ..terms },
            amount: self.amount,
            expected_price: self.expected_price,
            max_slippage_bps: self.max_slippage_bps,
        })
    }

    fn has_expiration(&self) -> bool {
        self.expiration.is_some_and(|at| at != Timestamp::EPOCH)
    }

    fn market_time_in_force(&self) -> Result<TimeInForce, PayloadFlaw> {
        if self.post_only {
            return Err(PayloadFlaw::PostOnly);
        }
        match self.time_in_force {
            // Clients send GTC with market orders too, although a market order never waits.
            None | Some(NamedTimeInForce::Gtc | NamedTimeInForce::Fok) => {
                Ok(TimeInForce::FillOrKill)
            }
            Some(NamedTimeInForce::Fak) => Ok(TimeInForce::FillAndKill),
            Some(NamedTimeInForce::Gtd) => Err(PayloadFlaw::MarketGtd),
        }
    }

    fn limit_time_in_force(&self, now: Timestamp) -> Result<TimeInForce, PayloadFlaw> {
        if self.price.is_none() {
            return Err(PayloadFlaw::NoPrice);
        }
        let time_in_force = match self.time_in_force {
            None | Some(NamedTimeInForce::Gtc) => TimeInForce::GoodTilCancelled,
            Some(NamedTimeInForce::Gtd) => {
                let at = self.expiration.filter(|&at| at > now).ok_or(PayloadFlaw::Expiration)?;
                TimeInForce::GoodTilDate(at)
            }
            Some(NamedTimeInForce::Fok) => TimeInForce::FillOrKill,
            Some(NamedTimeInForce::Fak) => TimeInForce::FillAndKill,
        };
        if self.post_only && !time_in_force.may_rest() {
            return Err(PayloadFlaw::PostOnly);
        }
        Ok(time_in_force)
    }
}

impl RequestedOrder for NewOrder {
    fn market_id(&self) -> &str {
        &self.market_id
    }

    /// A field at its default counts as absent, so a market order has the same fingerprint as the
    /// equivalent order sent to `POST /trade`.
    fn fingerprint(&self) -> Fingerprint {
        let is_default = match (self.kind, self.time_in_force) {
            (_, None) => true,
            (OrderKind::Market, Some(name)) => name != NamedTimeInForce::Fak,
            (OrderKind::Limit, Some(name)) => name == NamedTimeInForce::Gtc,
        };
        let time_in_force = self.time_in_force.filter(|_| !is_default);
        let is_gtd = self.time_in_force == Some(NamedTimeInForce::Gtd);
        let expiration = self.expiration.filter(|_| is_gtd);
        let mut extra: SmallVec<[(u8, [u8; 8]); 6]> = SmallVec::new();
        if self.kind == OrderKind::Limit {
            extra.push((b'k', 1_i64.to_le_bytes()));
        }
        let numbers = [
            (b'a', self.amount.map(Usd::micros)),
            (b'p', self.price.map(Price::micros)),
            (b't', time_in_force.map(|name| name as i64)),
            (b'g', expiration.map(Timestamp::nanos)),
            (b'y', self.post_only.then_some(1)),
        ];
        extra.extend(
            numbers.into_iter().filter_map(|(tag, number)| Some((tag, number?.to_le_bytes()))),
        );
        Fingerprint::of_order(
            (&self.market_id, &self.outcome, self.side),
            self.quantity,
            (self.expected_price, self.max_slippage_bps),
            &extra,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::command::TradeOrder;

    fn order(kind: OrderKind) -> NewOrder {
        let (quantity, price) = (Shares::from_micros(5_000_000), Price::from_micros(400_000));
        NewOrder { kind, ..NewOrder::limit("0xa", "Yes", Side::Buy, quantity, price) }
    }

    #[track_caller]
    fn check(order: &NewOrder, expected: Result<&str, PayloadFlaw>) {
        let now = Timestamp::from_seconds(100);
        let named = |intent: Intent| match (intent.terms.kind, intent.terms.time_in_force) {
            (OrderKind::Market, TimeInForce::FillOrKill) => "market FOK",
            (OrderKind::Market, _) => "market FAK",
            (OrderKind::Limit, time_in_force) => time_in_force.as_str(),
        };
        assert_eq!(order.intent(now).map(named), expected, "{order:?}");
    }

    #[test]
    fn fields_that_do_not_go_together_are_refused() {
        use NamedTimeInForce::{Fak, Fok, Gtc, Gtd};
        let [market, limit] = [OrderKind::Market, OrderKind::Limit].map(order);
        let now = Timestamp::from_seconds(100);
        let amount = Some(Usd::from_micros(1));
        let with = |base: &NewOrder, name| NewOrder { time_in_force: Some(name), ..base.clone() };
        let until = |order: NewOrder, at| NewOrder {
            expiration: Some(Timestamp::from_seconds(at)),
            ..order
        };
        let post_only = |order: NewOrder| NewOrder { post_only: true, ..order };
        check(&market, Ok("market FOK"));
        check(&with(&market, Gtc), Ok("market FOK"));
        check(&with(&market, Fak), Ok("market FAK"));
        check(&until(with(&market, Gtd), 101), Err(PayloadFlaw::MarketGtd));
        check(&post_only(market.clone()), Err(PayloadFlaw::PostOnly));
        check(&NewOrder { amount, ..market.clone() }, Err(PayloadFlaw::TwoSizes));
        check(&NewOrder { quantity: None, ..market.clone() }, Err(PayloadFlaw::NoSize));
        let by_amount = NewOrder { amount, quantity: None, ..market.clone() };
        check(&by_amount, Ok("market FOK"));
        let sale = NewOrder { side: Side::Sell, ..by_amount.clone() };
        check(&sale, Err(PayloadFlaw::AmountNotTaken));
        let limited = NewOrder { kind: OrderKind::Limit, ..by_amount };
        check(&limited, Err(PayloadFlaw::AmountNotTaken));
        check(&NewOrder { price: None, ..market.clone() }, Ok("market FOK"));

        check(&limit, Ok("GTC"));
        check(&NewOrder { price: None, ..limit.clone() }, Err(PayloadFlaw::NoPrice));
        check(&with(&limit, Fok), Ok("FOK"));
        check(&with(&limit, Fak), Ok("FAK"));
        check(&with(&limit, Gtd), Err(PayloadFlaw::Expiration));
        check(&until(with(&limit, Gtd), 100), Err(PayloadFlaw::Expiration));
        check(&until(with(&limit, Gtd), 101), Ok("GTD"));
        // Clients send 0 to mean no expiration.
        for base in [&market, &limit] {
            for name in [None, Some(Gtc), Some(Fok), Some(Fak)] {
                let named = NewOrder { time_in_force: name, ..base.clone() };
                check(&until(named.clone(), 101), Err(PayloadFlaw::ExpirationNotTaken));
                check(&until(named.clone(), 1), Err(PayloadFlaw::ExpirationNotTaken));
                assert_eq!(until(named.clone(), 0).intent(now), named.intent(now));
            }
        }
        check(&post_only(until(limit.clone(), 101)), Err(PayloadFlaw::ExpirationNotTaken));
        check(&post_only(limit.clone()), Ok("GTC"));
        check(&post_only(until(with(&limit, Gtd), 101)), Ok("GTD"));
        check(&post_only(with(&limit, Fak)), Err(PayloadFlaw::PostOnly));
    }

    #[test]
    fn a_field_at_its_default_does_not_change_the_fingerprint() {
        let market = NewOrder { price: None, ..order(OrderKind::Market) };
        let trade = TradeOrder {
            market_id: "0xa".into(),
            outcome: "YES".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(5_000_000),
            expected_price: None,
            max_slippage_bps: None,
        };
        assert_eq!(market.fingerprint(), trade.fingerprint());
        let name = |name| Some(name);
        let gtc = NewOrder { time_in_force: name(NamedTimeInForce::Gtc), ..market.clone() };
        assert_eq!(gtc.fingerprint(), market.fingerprint());
        let limit = order(OrderKind::Limit);
        let gtc = NewOrder { time_in_force: name(NamedTimeInForce::Gtc), ..limit.clone() };
        assert_eq!(gtc.fingerprint(), limit.fingerprint());
        let late = NewOrder { expiration: Some(Timestamp::from_seconds(9)), ..limit.clone() };
        assert_eq!(late.fingerprint(), limit.fingerprint(), "only GTD takes an expiration");
        let mut seen = vec![market.fingerprint(), limit.fingerprint()];
        let gtd = NewOrder { time_in_force: name(NamedTimeInForce::Gtd), ..late };
        for other in [
            NewOrder { kind: OrderKind::Market, ..limit.clone() },
            NewOrder { amount: Some(Usd::from_micros(5_000_000)), ..market.clone() },
            NewOrder { time_in_force: name(NamedTimeInForce::Fak), ..market },
            NewOrder { time_in_force: name(NamedTimeInForce::Fok), ..limit.clone() },
            NewOrder { expiration: Some(Timestamp::from_seconds(10)), ..gtd.clone() },
            NewOrder { post_only: true, ..limit },
            gtd,
        ] {
            assert!(!seen.contains(&other.fingerprint()), "{other:?}");
            seen.push(other.fingerprint());
        }
    }
}
