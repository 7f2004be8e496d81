//! The fields of orders that may rest: their placement, their fills, and their [`OrderState`] in
//! snapshots.

use smallvec::SmallVec;

use super::field::{Fields, Read, Reader};
use super::kind;
use super::order::OrderHead;
use paperbourse_core::engine::account::extension::UsedLevel;
use paperbourse_core::engine::event::{OrderDelayed, OrderPlaced, RestingFilled};
use paperbourse_core::engine::order::delay::Delay;
use paperbourse_core::engine::order::order_state::{End, OrderState, Progress};
use paperbourse_core::engine::order::terms::{EndReason, OrderKind, Reserve, Terms, TimeInForce};
use paperbourse_core::ids::OrderId;
use paperbourse_core::market::book::Level;
use paperbourse_core::market::walk::Fills;
use paperbourse_core::money::{Price, Shares, Usd};

/// Flag for an order that was delayed, in the byte that also says whether the order awaited a book.
const WAS_DELAYED: u8 = 2;
/// Flag for an order that is delayed, in the byte that also says whether the order awaits a book.
const IS_DELAYED: u8 = 2;

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

    /// Writes a fill of an open order and returns its kind.
    pub(super) fn resting_filled(&mut self, filled: &RestingFilled) -> u16 {
        let RestingFilled { order, fill, displayed, book_sequence, used } = filled;
        self.u64(order.get());
        self.u64(*book_sequence);
        self.fill(fill);
        self.level(displayed);
        if used.is_empty() {
            return kind::RESTING_FILLED;
        }
        self.used_levels(used);
        kind::RESTING_FILLED_OF_LEVELS
    }

    /// Writes the levels that orders have used.
    pub(crate) fn used_levels(&mut self, levels: &[UsedLevel]) {
        self.length(levels.len());
        for UsedLevel { price, shown, left } in levels {
            self.i64(price.micros());
            self.i64(shown.micros());
            self.i64(left.micros());
        }
    }

    /// Writes the terms, progress and end of an order.
    pub(crate) fn order_state(&mut self, order_state: &OrderState) {
        let OrderState { terms, progress, end, awaits_book, is_delayed } = order_state;
        self.terms(terms);
        self.i64(progress.filled.micros());
        self.i64(progress.notional.micros());
        self.i64(progress.fee.micros());
        self.i64(progress.filled_at.nanos());
        self.u32(progress.fill_count);
        self.u8(u8::from(*awaits_book) | if *is_delayed { IS_DELAYED } else { 0 });
        self.u8(end.map_or(0, |end| end_reason_code(end.reason)));
        self.optional_time(end.map(|end| end.at));
    }

    pub(super) fn order_delayed(&mut self, delayed: &OrderDelayed) {
        let OrderDelayed { placement, terms, delay, at } = delayed;
        self.order_head(placement, None);
        self.order_names(placement);
        self.optional_text(placement.client_order_id.as_deref());
        self.terms(terms);
        self.delay(delay);
        self.i64(at.nanos());
    }

    /// Writes an order's delay: its end and reserve, and the order's amount and price limits.
    pub(crate) fn delay(&mut self, delay: &Delay) {
        let Delay { due, reserve, amount, expected_price, max_slippage_bps } = *delay;
        self.i64(due.nanos());
        self.i64(reserve.cash.micros());
        self.i64(reserve.shares.micros());
        self.optional_number(amount.map(Usd::micros));
        self.optional_number(expected_price.map(Price::micros));
        self.optional_number(max_slippage_bps.map(i64::from));
    }

    fn optional_number(&mut self, number: Option<i64>) {
        self.u8(u8::from(number.is_some()));
        self.i64(number.unwrap_or(0));
    }

    fn terms(&mut self, terms: &Terms) {
        let Terms { kind, time_in_force, post_only, awaited_book, quantity, price, delayed_ms } =
            *terms;
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
        self.u8(u8::from(awaited_book) | if delayed_ms > 0 { WAS_DELAYED } else { 0 });
        self.i64(quantity.micros());
        self.optional_number(price.map(Price::micros));
        self.optional_time(time_in_force.expires_at());
        if delayed_ms > 0 {
            self.u32(delayed_ms);
        }
    }

    fn level(&mut self, level: &Level) {
        self.i64(level.price.micros());
        self.i64(level.size.micros());
    }
}

impl Reader<'_> {
    pub(super) fn order_placed(&mut self) -> Read<Box<OrderPlaced>> {
        let mut head = self.order_head()?;
        let level_count = self.u32("level count")?;
        let book_sequence = self.u64("book sequence")?;
        let fill = self.fill("fill")?;
        self.order_names(&mut head)?;
        let mut levels = Fills::new();
        for _ in 0..level_count {
            levels.push(self.level()?);
        }
        let OrderHead { mut placement, slippage_bps, .. } = head;
        placement.client_order_id = self.optional_text("client order id")?;
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

    pub(super) fn order_delayed(&mut self) -> Read<Box<OrderDelayed>> {
        let mut head = self.valid("slippage", |reader| {
            let head = reader.order_head()?;
            Ok(head.slippage_bps.is_none().then_some(head))
        })?;
        self.order_names(&mut head)?;
        let mut placement = head.placement;
        placement.client_order_id = self.optional_text("client order id")?;
        let (terms, delay) = (self.terms()?, self.delay()?);
        let at = self.timestamp("time of the decision")?;
        Ok(Box::new(OrderDelayed { placement, terms, delay, at }))
    }

    pub(super) fn resting_filled(&mut self) -> Read<Box<RestingFilled>> {
        let order = self.id("order", OrderId::from_raw)?;
        let book_sequence = self.u64("book sequence")?;
        let fill = self.fill("fill")?;
        let displayed = self.level()?;
        let used = SmallVec::new();
        Ok(Box::new(RestingFilled { order, fill, displayed, book_sequence, used }))
    }

    pub(super) fn resting_filled_of_levels(&mut self) -> Read<Box<RestingFilled>> {
        let mut filled = self.resting_filled()?;
        filled.used = self.valid("used levels", |reader| {
            let used = reader.used_levels()?;
            Ok((!used.is_empty()).then_some(used.into()))
        })?;
        Ok(filled)
    }

    pub(crate) fn used_levels(&mut self) -> Read<Vec<UsedLevel>> {
        let mut levels = Vec::new();
        for _ in 0..self.u32("count of used levels")? {
            levels.push(UsedLevel {
                price: Price::from_micros(self.i64("price of a used level")?),
                shown: Shares::from_micros(self.i64("size shown")?),
                left: Shares::from_micros(self.i64("size left")?),
            });
        }
        Ok(levels)
    }

    pub(crate) fn order_state(&mut self) -> Read<OrderState> {
        let terms = self.terms()?;
        let progress = Progress {
            filled: Shares::from_micros(self.i64("filled quantity")?),
            notional: Usd::from_micros(self.i64("filled notional")?),
            fee: Usd::from_micros(self.i64("fee")?),
            filled_at: self.timestamp("time of the newest fill")?,
            fill_count: self.u32("count of fills")?,
        };
        let (awaits_book, is_delayed) = self.two_flags("what the order waits for")?;
        let end = self.valid("end of the order", |reader| {
            let reason = reader.optional_end_reason()?;
            Ok(match (reason, reader.optional_time("time of the end")?) {
                (Some(reason), Some(at)) => Some(Some(End { reason, at })),
                (None, None) => Some(None),
                _ => None,
            })
        })?;
        Ok(OrderState { terms, progress, end, awaits_book, is_delayed })
    }

    pub(crate) fn delay(&mut self) -> Read<Delay> {
        let due = self.timestamp("end of the wait")?;
        let reserve = Reserve {
            cash: Usd::from_micros(self.i64("reserved cash")?),
            shares: Shares::from_micros(self.i64("reserved shares")?),
        };
        let amount = self.optional_number("amount")?.map(Usd::from_micros);
        let expected_price = self.optional_number("expected price")?.map(Price::from_micros);
        let max_slippage_bps = self.valid("most slippage", |reader| {
            let slippage = reader.optional_number("most slippage")?.map(u16::try_from);
            Ok(slippage.transpose().ok())
        })?;
        Ok(Delay { due, reserve, amount, expected_price, max_slippage_bps })
    }

    /// Reads a flag and the number after it, which must be 0 if the flag is unset.
    fn optional_number(&mut self, field: &'static str) -> Read<Option<i64>> {
        self.valid(field, |reader| {
            let is_some = reader.flag(field)?;
            let number = reader.i64(field)?;
            Ok(if is_some { Some(Some(number)) } else { (number == 0).then_some(None) })
        })
    }

    /// Reads two flags from one byte.
    fn two_flags(&mut self, field: &'static str) -> Read<(bool, bool)> {
        self.valid(field, |reader| {
            let byte = reader.u8(field)?;
            Ok((byte < 4).then_some((byte & 1 != 0, byte & 2 != 0)))
        })
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
        let (awaited_book, was_delayed) = self.two_flags("what the order waited for")?;
        let quantity = Shares::from_micros(self.i64("quantity")?);
        let price = self.optional_number("price")?.map(Price::from_micros);
        let time_in_force = match (code, self.optional_time("expiry")?) {
            (0, None) => TimeInForce::GoodTilCancelled,
            (1, Some(at)) => TimeInForce::GoodTilDate(at),
            (2, None) => TimeInForce::FillOrKill,
            (3, None) => TimeInForce::FillAndKill,
            _ => {
                return Err(super::RecordError::Invalid { offset, field: "time in force" });
            }
        };
        let delayed_ms = self.valid("time held", |reader| {
            let delayed_ms = if was_delayed { reader.u32("time held")? } else { 0 };
            Ok((was_delayed == (delayed_ms > 0)).then_some(delayed_ms))
        })?;
        Ok(Terms { kind, time_in_force, post_only, awaited_book, quantity, price, delayed_ms })
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

/// Returns the number that stands for a reason on disk; at least 1.
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
