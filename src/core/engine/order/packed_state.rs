//! Packed storage of order lives.

use std::num::NonZeroU32;

use crate::engine::order::open::BookVersion;
use crate::engine::order::order_state::{End, OrderState, Progress};
use crate::engine::order::terms::{EndReason, OrderKind, Terms, TimeInForce};
use crate::ids::Timestamp;
use crate::money::{Price, Shares, Usd};

/// A packed [`OrderState`], with the book on which the order came to rest.
#[derive(Clone, Debug)]
pub(in crate::engine) struct PackedOrderState {
    quantity: Shares,
    filled: Shares,
    notional: Usd,
    fee: Usd,
    filled_at: Timestamp,
    /// The expiry of a good-til-date order.
    expires_at: Timestamp,
    ended_at: Timestamp,
    /// The book on which the order came to rest; `None` if it came to rest before this process
    /// started. Older books do not fill the order.
    pub(in crate::engine) placed_on: Option<BookVersion>,
    /// The price in micro-dollars, plus 1; 0 if there is none.
    price: u32,
    fill_count: u32,
    delayed_ms: u32,
    flags: NonZeroU32,
}

const _: () = assert!(size_of::<Option<PackedOrderState>>() == 80, "there may be a million");

/// Always set, so that the flags are never 0.
const FLAG_SOME: u32 = 1;
const FLAG_LIMIT: u32 = 1 << 1;
const FLAG_POST_ONLY: u32 = 1 << 2;
const FLAG_AWAITED_BOOK: u32 = 1 << 3;
const FLAG_AWAITS_BOOK: u32 = 1 << 4;
const FLAG_DELAYED: u32 = 1 << 5;
/// The bit position of the time in force, which takes two bits.
const TIME_IN_FORCE_SHIFT: u32 = 8;
/// The bit position of the end reason, which takes the remaining bits. Reasons count from 1; 0
/// means that the order has not ended.
const REASON_SHIFT: u32 = 16;

impl PackedOrderState {
    /// Packs an order state; `None` if its price is out of range.
    pub(in crate::engine) fn pack(
        order_state: &OrderState,
        placed_on: Option<BookVersion>,
    ) -> Option<Self> {
        let OrderState { terms, progress, end, awaits_book, is_delayed } = *order_state;
        let Progress { filled, notional, fee, fill_count, filled_at } = progress;
        let Terms { kind, time_in_force, post_only, awaited_book, quantity, price, delayed_ms } =
            terms;
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        let (named, expires_at) = match time_in_force {
            TimeInForce::GoodTilCancelled => (0, Timestamp::EPOCH),
            TimeInForce::GoodTilDate(at) => (1, at),
            TimeInForce::FillOrKill => (2, Timestamp::EPOCH),
            TimeInForce::FillAndKill => (3, Timestamp::EPOCH),
        };
        let flags = FLAG_SOME
            | flag(kind == OrderKind::Limit, FLAG_LIMIT)
            | flag(post_only, FLAG_POST_ONLY)
            | flag(awaited_book, FLAG_AWAITED_BOOK)
            | flag(awaits_book, FLAG_AWAITS_BOOK)
            | flag(is_delayed, FLAG_DELAYED)
            | named << TIME_IN_FORCE_SHIFT
            | end.map_or(0, |end| 1 + end.reason as u32) << REASON_SHIFT;
        Some(Self {
            quantity,
            filled,
            notional,
            fee,
            filled_at,
            expires_at,
            ended_at: end.map_or(Timestamp::EPOCH, |end| end.at),
            placed_on,
            price: match price {
                Some(price) => u32::try_from(price.micros()).ok()?.checked_add(1)?,
                None => 0,
            },
            fill_count,
            delayed_ms,
            flags: NonZeroU32::new(flags)?,
        })
    }

    pub(in crate::engine) fn unpack(&self) -> OrderState {
        let flags = self.flags.get();
        let has = |flag: u32| flags & flag != 0;
        let reason = (flags >> REASON_SHIFT).checked_sub(1);
        let reason = reason.map(|index| EndReason::ALL[index as usize]);
        let price = self.price.checked_sub(1);
        OrderState {
            terms: Terms {
                kind: if has(FLAG_LIMIT) { OrderKind::Limit } else { OrderKind::Market },
                time_in_force: match flags >> TIME_IN_FORCE_SHIFT & 3 {
                    0 => TimeInForce::GoodTilCancelled,
                    1 => TimeInForce::GoodTilDate(self.expires_at),
                    2 => TimeInForce::FillOrKill,
                    _ => TimeInForce::FillAndKill,
                },
                post_only: has(FLAG_POST_ONLY),
                awaited_book: has(FLAG_AWAITED_BOOK),
                quantity: self.quantity,
                price: price.map(|micros| Price::from_micros(micros.into())),
                delayed_ms: self.delayed_ms,
            },
            progress: Progress {
                filled: self.filled,
                notional: self.notional,
                fee: self.fee,
                fill_count: self.fill_count,
                filled_at: self.filled_at,
            },
            end: reason.map(|reason| End { reason, at: self.ended_at }),
            awaits_book: has(FLAG_AWAITS_BOOK),
            is_delayed: has(FLAG_DELAYED),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_state_survives_packing() {
        let at = Timestamp::from_seconds(5);
        let forces = [
            TimeInForce::GoodTilCancelled,
            TimeInForce::GoodTilDate(at),
            TimeInForce::FillOrKill,
            TimeInForce::FillAndKill,
        ];
        let ends = std::iter::once(None).chain(EndReason::ALL.map(Some));
        let mut index = 0_u32;
        for (time_in_force, reason) in
            forces.into_iter().flat_map(|force| ends.clone().map(move |end| (force, end)))
        {
            index += 1;
            let bit = |bit: u32| index >> bit & 1 != 0;
            let order_state = OrderState {
                terms: Terms {
                    kind: if bit(0) { OrderKind::Limit } else { OrderKind::Market },
                    time_in_force,
                    post_only: bit(1),
                    awaited_book: bit(2),
                    quantity: Shares::from_micros(i64::MAX),
                    price: [None, Some(Price::ZERO), Some(Price::ONE)][index as usize % 3],
                    delayed_ms: u32::MAX - index,
                },
                progress: Progress {
                    filled: Shares::from_micros(1),
                    notional: Usd::from_micros(2),
                    fee: Usd::from_micros(3),
                    fill_count: 4,
                    filled_at: at,
                },
                end: reason.map(|reason| End { reason, at }),
                awaits_book: bit(3),
                is_delayed: bit(4),
            };
            assert_eq!(PackedOrderState::pack(&order_state, None).unwrap().unpack(), order_state);
        }
        assert_eq!(index, 48);
    }
}
