//! The fields of an order and of its fill, in the order in which they are stored.

use smallvec::SmallVec;

use super::RecordError;
use super::field::{Chunk, Fields, Read, Reader};
use super::kind;
use paperbourse_core::engine::event::{FillUndone, OrderFilled};
use paperbourse_core::engine::fills::fill::{Fill, Placement};
use paperbourse_core::engine::order::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use paperbourse_core::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Level, Side};
use paperbourse_core::market::walk::Fills;
use paperbourse_core::money::{FeeRate, Price, Shares, Usd};

/// Offsets of the fixed-size fields, which precede a filled order's names, levels and text.
mod order_at {
    pub(super) const ORDER: usize = 0;
    pub(super) const ACCOUNT: usize = ORDER + 8;
    pub(super) const MARKET: usize = ACCOUNT + 8;
    pub(super) const OUTCOME: usize = MARKET + 4;
    pub(super) const SIDE: usize = OUTCOME + 1;
    pub(super) const NAME_COUNT: usize = SIDE + 1;
    pub(super) const SLIPPAGE_FLAG: usize = NAME_COUNT + 1;
    pub(super) const SLIPPAGE: usize = SLIPPAGE_FLAG + 1;
    pub(super) const LEVEL_COUNT: usize = SLIPPAGE + 4;
    pub(super) const BOOK_SEQUENCE: usize = LEVEL_COUNT + 4;
    pub(super) const FILL: usize = BOOK_SEQUENCE + 8;
    pub(super) const FINGERPRINT: usize = FILL + super::FILL_BYTES;
    pub(super) const END: usize = FINGERPRINT + 16;
}

/// Length of a fill, in bytes: eight numbers.
const FILL_BYTES: usize = 8 * 8;

/// Lengths in bytes of a name, and of a level: its price and its size.
const NAME_BYTES: usize = 16;
const LEVEL_BYTES: usize = 16;

impl Fields<'_> {
    pub(super) fn order_filled(&mut self, filled: &OrderFilled) {
        let OrderFilled { placement, fill, levels, book_sequence, slippage_bps } = filled;
        self.order_head(placement, *slippage_bps);
        self.length(levels.len());
        self.u64(*book_sequence);
        self.fill(fill);
        self.order_names(placement);
        for level in levels {
            self.i64(level.price.micros());
            self.i64(level.size.micros());
        }
        self.optional_text(placement.client_order_id.as_deref());
    }

    /// Appends the head of an order, for a record or a snapshot, in a single write.
    #[inline]
    pub(crate) fn order_head(&mut self, placement: &Placement, slippage_bps: Option<u32>) {
        use order_at as at;
        let name_count =
            u8::try_from(placement.names.len()).expect("an order has at most two names");
        let mut head = [0; at::LEVEL_COUNT];
        head[at::ORDER..at::ACCOUNT].copy_from_slice(&placement.order.get().to_le_bytes());
        head[at::ACCOUNT..at::MARKET].copy_from_slice(&placement.account.get().to_le_bytes());
        head[at::MARKET..at::OUTCOME].copy_from_slice(&placement.market.0.to_le_bytes());
        head[at::OUTCOME] = placement.outcome.0;
        head[at::SIDE] = side_code(placement.side);
        head[at::NAME_COUNT] = name_count;
        head[at::SLIPPAGE_FLAG] = u8::from(slippage_bps.is_some());
        head[at::SLIPPAGE..].copy_from_slice(&slippage_bps.unwrap_or(0).to_le_bytes());
        self.0.extend_from_slice(&head);
    }

    /// Appends the fingerprint and the names of an order. The number of names is in the order's
    /// head.
    #[inline]
    pub(crate) fn order_names(&mut self, placement: &Placement) {
        self.0.extend_from_slice(&placement.fingerprint.to_bytes());
        for name in &placement.names {
            self.0.extend_from_slice(&name.to_bytes());
        }
    }

    pub(super) fn fill_undone(&mut self, undone: &FillUndone) -> u16 {
        let FillUndone { account, number, order, part, balance, .. } = *undone;
        let FillUndone { position_shares, position_cost, realised, at, .. } = *undone;
        self.u64(account.get());
        self.u64(number);
        self.u64(order.get());
        self.u32(part);
        self.i64(balance.micros());
        self.i64(position_shares.micros());
        self.i64(position_cost.micros());
        self.i64(realised.micros());
        self.i64(at.nanos());
        kind::FILL_UNDONE
    }

    pub(crate) fn side(&mut self, side: Side) {
        self.u8(side_code(side));
    }

    /// Appends the numbers of a fill, [`FILL_BYTES`] in all, in a single write.
    #[inline]
    pub(crate) fn fill(&mut self, fill: &Fill) {
        let numbers = [
            fill.quantity.micros(),
            fill.notional.micros(),
            fill.fee.micros(),
            fill.fee_rate.micros(),
            fill.balance.micros(),
            fill.position_shares.micros(),
            fill.position_cost.micros(),
            fill.at.nanos(),
        ];
        let mut bytes = [0; FILL_BYTES];
        for (place, number) in bytes.as_chunks_mut().0.iter_mut().zip(numbers) {
            *place = number.to_le_bytes();
        }
        self.0.extend_from_slice(&bytes);
    }
}

/// The decoded head of an order.
pub(crate) struct OrderHead {
    /// The placement. Its fingerprint, names and text have yet to be read.
    pub(crate) placement: Placement,
    name_count: u8,
    pub(crate) slippage_bps: Option<u32>,
}

impl Reader<'_> {
    /// Reads a filled order. Most records are fills, and startup reads millions of them. So the
    /// fixed-size part is read as one array, whose fields are then loads from constant offsets.
    pub(super) fn order_filled(&mut self) -> Read<Box<OrderFilled>> {
        let base = self.offset();
        let fixed = self.chunk::<{ order_at::END }>("fill")?;
        let invalid = |at, field| RecordError::Invalid { offset: base + at, field };
        let order = OrderId::from_raw(fixed.u64(order_at::ORDER));
        let account = AccountId::from_raw(fixed.u64(order_at::ACCOUNT));
        let side = side_of(fixed.u8(order_at::SIDE));
        let name_count = usize::from(fixed.u8(order_at::NAME_COUNT));
        let slippage_bps = fixed.u32(order_at::SLIPPAGE);
        let slippage_bps = match fixed.u8(order_at::SLIPPAGE_FLAG) {
            0 if slippage_bps == 0 => None,
            1 => Some(slippage_bps),
            _ => return Err(invalid(order_at::SLIPPAGE_FLAG, "slippage")),
        };
        if name_count > NAMES_PER_ORDER_MAX {
            return Err(invalid(order_at::NAME_COUNT, "name count"));
        }
        let names = self.take(name_count * NAME_BYTES, "names")?;
        let level_count = fixed.u32(order_at::LEVEL_COUNT) as usize;
        let levels = self.take(level_count.saturating_mul(LEVEL_BYTES), "levels")?;
        let names = names.as_chunks::<NAME_BYTES>().0.iter();
        let levels = levels.as_chunks::<LEVEL_BYTES>().0.iter();
        // Fill the lists in place, inside the box, so that they are not moved afterwards.
        let mut filled = Box::new(OrderFilled {
            placement: Placement {
                order: order.ok_or_else(|| invalid(order_at::ORDER, "order"))?,
                account: account.ok_or_else(|| invalid(order_at::ACCOUNT, "account"))?,
                market: MarketIndex(fixed.u32(order_at::MARKET)),
                outcome: OutcomeIndex(fixed.u8(order_at::OUTCOME)),
                side: side.ok_or_else(|| invalid(order_at::SIDE, "side"))?,
                fingerprint: Fingerprint::from_bytes(fixed.array(order_at::FINGERPRINT)),
                names: SmallVec::new(),
                client_order_id: self.optional_text("client order id")?,
            },
            fill: fill_of(Chunk(&fixed.array(order_at::FILL))),
            levels: Fills::new(),
            book_sequence: fixed.u64(order_at::BOOK_SEQUENCE),
            slippage_bps,
        });
        filled.levels.extend(levels.map(level));
        filled.placement.names.extend(names.map(|name| NameHash::from_bytes(*name)));
        Ok(filled)
    }

    /// Reads the numbers of a fill. `field` is used in errors.
    #[inline]
    pub(crate) fn fill(&mut self, field: &'static str) -> Read<Fill> {
        self.chunk(field).map(fill_of)
    }

    pub(super) fn fill_undone(&mut self) -> Read<Box<FillUndone>> {
        Ok(Box::new(FillUndone {
            account: self.id("account", AccountId::from_raw)?,
            number: self.u64("number of the fill")?,
            order: self.id("order", OrderId::from_raw)?,
            part: self.u32("number of the fill within its order")?,
            balance: Usd::from_micros(self.i64("balance")?),
            position_shares: Shares::from_micros(self.i64("position shares")?),
            position_cost: Usd::from_micros(self.i64("position cost")?),
            realised: Usd::from_micros(self.i64("realised profit")?),
            at: self.timestamp("time")?,
        }))
    }

    #[inline]
    pub(crate) fn side(&mut self) -> Read<Side> {
        self.valid("side", |reader| Ok(side_of(reader.u8("side")?)))
    }

    /// Reads the head of an order, from a record or a snapshot. The order's names and text follow
    /// later.
    pub(crate) fn order_head(&mut self) -> Read<OrderHead> {
        let placement = Placement {
            order: self.id("order", OrderId::from_raw)?,
            account: self.id("account", AccountId::from_raw)?,
            market: MarketIndex(self.u32("market index")?),
            outcome: OutcomeIndex(self.u8("outcome index")?),
            side: self.side()?,
            fingerprint: Fingerprint::from_bytes([0; 16]),
            names: SmallVec::new(),
            client_order_id: None,
        };
        let name_count = self.valid("name count", |reader| {
            let count = reader.u8("name count")?;
            Ok((usize::from(count) <= NAMES_PER_ORDER_MAX).then_some(count))
        })?;
        let slippage_bps = self.slippage()?;
        Ok(OrderHead { placement, name_count, slippage_bps })
    }

    /// Reads the fingerprint and the names of the order with this head.
    pub(crate) fn order_names(&mut self, head: &mut OrderHead) -> Read<()> {
        head.placement.fingerprint = Fingerprint::from_bytes(self.array("fingerprint")?);
        for _ in 0..head.name_count {
            head.placement.names.push(NameHash::from_bytes(self.array("name")?));
        }
        Ok(())
    }

    fn slippage(&mut self) -> Read<Option<u32>> {
        self.valid("slippage", |reader| {
            let is_some = reader.flag("slippage flag")?;
            let bps = reader.u32("slippage")?;
            Ok(if is_some { Some(Some(bps)) } else { (bps == 0).then_some(None) })
        })
    }
}

const fn side_code(side: Side) -> u8 {
    match side {
        Side::Buy => 0,
        Side::Sell => 1,
    }
}

const fn side_of(code: u8) -> Option<Side> {
    match code {
        0 => Some(Side::Buy),
        1 => Some(Side::Sell),
        _ => None,
    }
}

fn level(bytes: &[u8; LEVEL_BYTES]) -> Level {
    let level = Chunk(bytes);
    Level {
        price: Price::from_micros(level.u64(0).cast_signed()),
        size: Shares::from_micros(level.u64(8).cast_signed()),
    }
}

#[inline]
fn fill_of(bytes: Chunk<'_, FILL_BYTES>) -> Fill {
    let number = |index: usize| bytes.u64(8 * index).cast_signed();
    Fill {
        quantity: Shares::from_micros(number(0)),
        notional: Usd::from_micros(number(1)),
        fee: Usd::from_micros(number(2)),
        fee_rate: FeeRate::from_micros(number(3)),
        balance: Usd::from_micros(number(4)),
        position_shares: Shares::from_micros(number(5)),
        position_cost: Usd::from_micros(number(6)),
        at: Timestamp::from_nanos(number(7)),
    }
}
