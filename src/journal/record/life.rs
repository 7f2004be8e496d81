//! The fields of orders that may rest: their placement, their fills, and their lives in snapshots.

use super::field::{Fields, Read, Reader};
use crate::engine::event::{OrderPlaced, RestingFilled};
use crate::engine::fill::Placement;
use crate::engine::idempotency::{Fingerprint, NameHash};
use crate::engine::life::{End, Life, Progress};
use crate::engine::terms::{EndReason, OrderKind, Terms, TimeInForce};
use crate::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex};
use crate::market::book::Level;
use crate::market::walk::Fills;
use crate::money::{Price, Shares, Usd};

impl Fields<'_> {
    pub(super) fn order_placed(&mut self, placed: &OrderPlaced) {
        let OrderPlaced { placement, terms, fill, levels, book_sequence, slippage_bps, end } =
            placed;
        self.order_head(placement, *slippage_bps);
        self.length(levels.len());
        self.u64(*book_sequence);
        self.fill(fill);
        self.order_names(placement);
        for level in levels {
            self.level(level);
        }
        self.optional_text(placement.client_order_id.as_deref());
        self.terms(terms);
        self.u8(end.map_or(0, end_reason_code));
    }

    pub(super) fn resting_filled(&mut self, filled: &RestingFilled) {
        let RestingFilled { order, fill, displayed, book_sequence } = filled;
        self.u64(order.get());
        self.u64(*book_sequence);
        self.fill(fill);
        self.level(displayed);
    }

    /// Terms, progress and end of an order.
    pub(crate) fn life(&mut self, life: &Life) {
        let Life { terms, progress, end, awaits_book } = life;
        self.terms(terms);
        self.i64(progress.filled.micros());
        self.i64(progress.notional.micros());
        self.i64(progress.fee.micros());
        self.i64(progress.filled_at.nanos());
        self.u32(progress.fill_count);
        self.u8(u8::from(*awaits_book));
        self.u8(end.map_or(0, |end| end_reason_code(end.reason)));
        self.optional_time(end.map(|end| end.at));
    }

    fn terms(&mut self, terms: &Terms) {
        let Terms { kind, time_in_force, post_only, awaited_book, quantity, price } = *terms;
        self.u8(match kind {
            OrderKind::Market => 0,
            OrderKind::Limit => 1,
        });
        self.u8(match time_in_force {
            TimeInForce::GoodTilCancelled => 0,
            TimeInForce::GoodTilDate(_) => 1,
            TimeInForce::FillOrKill => 2,
            TimeInForce::FillAndKill => 3,
        });
        self.u8(u8::from(post_only));
        self.u8(u8::from(awaited_book));
        self.i64(quantity.micros());
        self.u8(u8::from(price.is_some()));
        self.i64(price.map_or(0, Price::micros));
        self.optional_time(time_in_force.expires_at());
    }

    fn level(&mut self, level: &Level) {
        self.i64(level.price.micros());
        self.i64(level.size.micros());
    }
}

impl Reader<'_> {
    pub(super) fn order_placed(&mut self) -> Read<Box<OrderPlaced>> {
        let order = self.id("order", OrderId::from_raw)?;
        let account = self.id("account", AccountId::from_raw)?;
        let market = MarketIndex(self.u32("market index")?);
        let outcome = OutcomeIndex(self.u8("outcome index")?);
        let side = self.side()?;
        let name_count = self.name_count()?;
        let slippage_bps = self.slippage()?;
        let level_count = self.u32("level count")?;
        let book_sequence = self.u64("book sequence")?;
        let fill = self.fill("fill")?;
        let fingerprint = Fingerprint::from_bytes(self.array("fingerprint")?);
        let mut names = smallvec::SmallVec::new();
        for _ in 0..name_count {
            names.push(NameHash::from_bytes(self.array("name")?));
        }
        let mut levels = Fills::new();
        for _ in 0..level_count {
            levels.push(self.level()?);
        }
        let client_order_id = self.optional_text("client order id")?;
        let placement = Placement {
            order,
            account,
            market,
            outcome,
            side,
            fingerprint,
            names,
            client_order_id,
        };
        let terms = self.terms()?;
        let end = self.optional_end_reason()?;
        Ok(Box::new(OrderPlaced {
            placement,
            terms,
            fill,
            levels,
            book_sequence,
            slippage_bps,
            end,
        }))
    }

    pub(super) fn resting_filled(&mut self) -> Read<Box<RestingFilled>> {
        let order = self.id("order", OrderId::from_raw)?;
        let book_sequence = self.u64("book sequence")?;
        let fill = self.fill("fill")?;
        let displayed = self.level()?;
        Ok(Box::new(RestingFilled { order, fill, displayed, book_sequence }))
    }

    pub(crate) fn life(&mut self) -> Read<Life> {
        let terms = self.terms()?;
        let progress = Progress {
            filled: Shares::from_micros(self.i64("filled quantity")?),
            notional: Usd::from_micros(self.i64("filled notional")?),
            fee: Usd::from_micros(self.i64("fee")?),
            filled_at: self.timestamp("time of the newest fill")?,
            fill_count: self.u32("count of fills")?,
        };
        let awaits_book = self.flag("whether the order awaits a book")?;
        let end = self.valid("end of the order", |reader| {
            let reason = reader.optional_end_reason()?;
            Ok(match (reason, reader.optional_time("time of the end")?) {
                (Some(reason), Some(at)) => Some(Some(End { reason, at })),
                (None, None) => Some(None),
                _ => None,
            })
        })?;
        Ok(Life { terms, progress, end, awaits_book })
    }

    fn terms(&mut self) -> Read<Terms> {
        let kind = self.valid("kind of order", |reader| {
            Ok(match reader.u8("kind of order")? {
                0 => Some(OrderKind::Market),
                1 => Some(OrderKind::Limit),
                _ => None,
            })
        })?;
        let offset = self.offset();
        let code = self.u8("time in force")?;
        let post_only = self.flag("whether the order is post-only")?;
        let awaited_book = self.flag("whether the order awaited a book")?;
        let quantity = Shares::from_micros(self.i64("quantity")?);
        let price = self.valid("price", |reader| {
            let is_some = reader.flag("price flag")?;
            let price = Price::from_micros(reader.i64("price")?);
            Ok(if is_some { Some(Some(price)) } else { (price == Price::ZERO).then_some(None) })
        })?;
        let time_in_force = match (code, self.optional_time("expiry")?) {
            (0, None) => TimeInForce::GoodTilCancelled,
            (1, Some(at)) => TimeInForce::GoodTilDate(at),
            (2, None) => TimeInForce::FillOrKill,
            (3, None) => TimeInForce::FillAndKill,
            _ => {
                return Err(super::RecordError::Invalid { offset, field: "time in force" });
            }
        };
        Ok(Terms { kind, time_in_force, post_only, awaited_book, quantity, price })
    }

    pub(super) fn end_reason(&mut self) -> Read<EndReason> {
        self.valid("reason", Self::optional_end_reason)
    }

    fn optional_end_reason(&mut self) -> Read<Option<EndReason>> {
        self.valid("reason", |reader| {
            let code = reader.u8("reason")?;
            if code == 0 {
                return Ok(Some(None));
            }
            let known = EndReason::ALL.into_iter().find(|&reason| end_reason_code(reason) == code);
            Ok(known.map(Some))
        })
    }

    fn level(&mut self) -> Read<Level> {
        Ok(Level {
            price: Price::from_micros(self.i64("price of a level")?),
            size: Shares::from_micros(self.i64("size of a level")?),
        })
    }
}

/// The number of a reason on disk, above 0.
pub(super) const fn end_reason_code(reason: EndReason) -> u8 {
    match reason {
        EndReason::User => 1,
        EndReason::GtdExpired => 2,
        EndReason::Heartbeat => 3,
        EndReason::Reset => 4,
        EndReason::GameStart => 5,
        EndReason::Suspended => 6,
        EndReason::PostOnlyWouldCross => 7,
        EndReason::InsufficientBalance => 8,
        EndReason::FokNotFilled => 9,
        EndReason::FakNotFilled => 10,
        EndReason::Resolved => 11,
    }
}
