//! The terms of an order beyond its market and side, and the ways in which an order ends.

use crate::ids::Timestamp;
use crate::market::book::Side;
use crate::money::{Notional, Price, Shares, Usd};

/// The kind of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderKind {
    /// Takes what the book offers.
    Market,
    /// Trades at its limit price or better.
    Limit,
}

impl OrderKind {
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Market => "market",
            Self::Limit => "limit",
        }
    }
}

/// The time in force of an order: how long it may wait for a fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TimeInForce {
    /// Rests until it is filled or cancelled.
    GoodTilCancelled,
    /// Rests until it is filled or cancelled, or until this time.
    GoodTilDate(Timestamp),
    /// Fills completely at once, or not at all.
    FillOrKill,
    /// Fills what it can at once; the rest is cancelled.
    FillAndKill,
}

impl TimeInForce {
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GoodTilCancelled => "GTC",
            Self::GoodTilDate(_) => "GTD",
            Self::FillOrKill => "FOK",
            Self::FillAndKill => "FAK",
        }
    }

    /// Whether the order may rest.
    pub const fn may_rest(self) -> bool {
        matches!(self, Self::GoodTilCancelled | Self::GoodTilDate(_))
    }

    /// Returns the time from which the order no longer fills, if it has one.
    pub const fn expires_at(self) -> Option<Timestamp> {
        match self {
            Self::GoodTilDate(at) => Some(at),
            _ => None,
        }
    }
}

/// The immutable terms of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// Market or limit.
    pub kind: OrderKind,
    /// The time in force.
    pub time_in_force: TimeInForce,
    /// Whether the order must not take liquidity when it is placed.
    pub post_only: bool,
    /// Whether there was no fresh book when the order was placed. If so, the order is matched like
    /// a new one with the first fresh book.
    pub awaited_book: bool,
    /// The quantity; for an order by amount, the quantity that the amount buys. If that is 0, the
    /// order ends at once.
    pub quantity: Shares,
    /// The limit price, or the worst price of a market order; `None` if a market order has none.
    pub price: Option<Price>,
    /// The time in milliseconds for which the venue's taker delay held the order; 0 if it was not
    /// delayed.
    pub delayed_ms: u32,
}

impl Terms {
    /// Creates the terms of an order that is not post-only, did not wait for a book and was not
    /// delayed.
    pub const fn of_order(
        kind: OrderKind,
        time_in_force: TimeInForce,
        quantity: Shares,
        price: Option<Price>,
    ) -> Self {
        Self {
            kind,
            time_in_force,
            post_only: false,
            awaited_book: false,
            quantity,
            price,
            delayed_ms: 0,
        }
    }
}

/// The reason why an order ended before it filled completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndReason {
    /// The account cancelled the order.
    User,
    /// The good-til-date order expired.
    GtdExpired,
    /// The account's heartbeat stopped.
    Heartbeat,
    /// The account was reset.
    Reset,
    /// The venue cleared its books at the start of a game.
    GameStart,
    /// The account was suspended.
    Suspended,
    /// The order was post-only, and its first fresh book crossed it.
    PostOnlyWouldCross,
    /// The account could not pay the fee when the order was matched with its first fresh book.
    InsufficientBalance,
    /// The order had to fill completely at once, and could not.
    FokNotFilled,
    /// The order had to fill at once, and a remainder was left.
    FakNotFilled,
    /// The market was resolved.
    Resolved,
}

impl EndReason {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::User,
        Self::GtdExpired,
        Self::Heartbeat,
        Self::Reset,
        Self::GameStart,
        Self::Suspended,
        Self::PostOnlyWouldCross,
        Self::InsufficientBalance,
        Self::FokNotFilled,
        Self::FakNotFilled,
        Self::Resolved,
    ];

    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::GtdExpired => "gtd_expired",
            Self::Heartbeat => "heartbeat",
            Self::Reset => "reset",
            Self::GameStart => "game_start",
            Self::Suspended => "suspended",
            Self::PostOnlyWouldCross => "post_only_would_cross",
            Self::InsufficientBalance => "insufficient_balance",
            Self::FokNotFilled => "fok_not_filled",
            Self::FakNotFilled => "fak_not_filled",
            Self::Resolved => "resolved",
        }
    }

    /// Whether an order can end for this reason while it is delayed.
    pub const fn ends_delayed_orders(self) -> bool {
        matches!(self, Self::Reset | Self::Suspended | Self::Resolved)
    }

    /// Whether an order can end for this reason only when it is placed.
    pub const fn is_at_placement(self) -> bool {
        matches!(self, Self::FokNotFilled | Self::FakNotFilled)
    }
}

/// The status of an order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderStatus {
    /// The order is open and waits for a fill.
    Pending,
    /// The order filled completely, or as far as a fill-and-kill order could.
    Filled,
    /// The order ended before it filled completely.
    Cancelled,
    /// The order ended because its market was resolved.
    Expired,
}

impl OrderStatus {
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Filled => "FILLED",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
        }
    }

    /// Returns the status of an order with this filled quantity and this end.
    pub fn of(filled: Shares, quantity: Shares, ended: Option<EndReason>) -> Self {
        match ended {
            // This arm comes before the comparison with the quantity, which is also 0 if an amount
            // buys no shares.
            Some(EndReason::FakNotFilled) if filled == Shares::ZERO => Self::Cancelled,
            _ if filled == quantity => Self::Filled,
            None => Self::Pending,
            Some(EndReason::FakNotFilled) => Self::Filled,
            Some(EndReason::Resolved) => Self::Expired,
            Some(_) => Self::Cancelled,
        }
    }
}

/// The cash or shares that an open order reserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reserve {
    /// For a purchase, limit price × remaining quantity, rounded up; otherwise 0.
    pub cash: Usd,
    /// For a sale, the remaining quantity; otherwise 0.
    pub shares: Shares,
}

impl Reserve {
    /// Returns the reserve of a resting order with this remaining quantity.
    pub fn of(side: Side, price: Price, remaining: Shares) -> Self {
        match side {
            Side::Buy => Self { cash: resting_notional(side, price, remaining), ..Self::default() },
            Side::Sell => Self { shares: remaining, ..Self::default() },
        }
    }
}

/// Returns the cost or proceeds of a resting order at its limit price. A partial fill is charged
/// the result for the quantity remaining before it, minus the result for the quantity remaining
/// after it, so the parts add up to exactly the whole.
pub fn resting_notional(side: Side, price: Price, quantity: Shares) -> Usd {
    let notional = Notional::of(price, quantity);
    match side {
        Side::Buy => notional.ceil(),
        Side::Sell => notional.floor(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The complete table of statuses.
    #[test]
    fn the_status_follows_from_the_fill_and_the_end() {
        let status = |filled, ended| {
            OrderStatus::of(Shares::from_micros(filled), Shares::from_micros(2), ended).as_str()
        };
        let rows: Vec<String> = std::iter::once(None)
            .chain(EndReason::ALL.map(Some))
            .map(|ended| {
                let name = ended.map_or("open", EndReason::as_str);
                let [none, part, all] = [0, 1, 2].map(|filled| status(filled, ended));
                format!("{name:<22}{none:<10} {part:<10} {all}")
            })
            .collect();
        insta::assert_snapshot!(rows.join("\n"), @r"
        open                  PENDING    PENDING    FILLED
        user                  CANCELLED  CANCELLED  FILLED
        gtd_expired           CANCELLED  CANCELLED  FILLED
        heartbeat             CANCELLED  CANCELLED  FILLED
        reset                 CANCELLED  CANCELLED  FILLED
        game_start            CANCELLED  CANCELLED  FILLED
        suspended             CANCELLED  CANCELLED  FILLED
        post_only_would_cross CANCELLED  CANCELLED  FILLED
        insufficient_balance  CANCELLED  CANCELLED  FILLED
        fok_not_filled        CANCELLED  CANCELLED  FILLED
        fak_not_filled        CANCELLED  FILLED     FILLED
        resolved              EXPIRED    EXPIRED    FILLED
        ");
    }

    #[test]
    fn the_parts_of_a_resting_order_add_up() {
        let (price, whole) = (Price::from_micros(333_300), Shares::from_micros(10_000_007));
        for side in [Side::Buy, Side::Sell] {
            let mut remaining = whole;
            let mut sum = Usd::ZERO;
            for part in [1, 3, 999_999, 7_000_001, 2_000_003] {
                let after = remaining - Shares::from_micros(part);
                let [before, left] =
                    [remaining, after].map(|left| resting_notional(side, price, left));
                sum += before - left;
                remaining = after;
            }
            assert_eq!(remaining, Shares::ZERO);
            assert_eq!(sum, resting_notional(side, price, whole));
        }
    }
}
