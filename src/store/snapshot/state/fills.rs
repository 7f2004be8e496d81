//! The encoding of the fills that accounts log, and of those that were undone.

use std::collections::VecDeque;

use super::ShardError;
use crate::journal::record::field::{Fields, Reader};
use paperbourse_core::engine::fills::log::{FillLogRow, LoggedFill};
use paperbourse_core::engine::fills::undone::{UndoneFill, UndoneRow};
use paperbourse_core::engine::state::restore::Restorer;
use paperbourse_core::ids::{AccountId, MarketIndex, OrderId, OutcomeIndex};

pub(super) fn write_log(fields: &mut Fields<'_>, log: &FillLogRow<'_>) {
    fields.u64(log.account.get());
    fields.u64(log.began_after);
    fields.length(log.fills.len());
    for LoggedFill { order, part, market, outcome, side, fill } in log.fills {
        fields.u64(order.get());
        fields.u32(*part);
        fields.u32(market.0);
        fields.u8(outcome.0);
        fields.side(*side);
        fields.fill(fill);
    }
}

pub(super) fn read_log(reader: &mut Reader<'_>, restorer: &mut Restorer) -> Result<(), ShardError> {
    let account = reader.id("account", AccountId::from_raw)?;
    let began_after = reader.u64("fills before the log")?;
    let count = reader.u32("count of fills")?;
    let mut fills = VecDeque::new();
    for _ in 0..count {
        fills.push_back(LoggedFill {
            order: reader.id("order", OrderId::from_raw)?,
            part: reader.u32("number of the fill within its order")?,
            market: MarketIndex(reader.u32("market index")?),
            outcome: OutcomeIndex(reader.u8("outcome index")?),
            side: reader.side()?,
            fill: reader.fill("fill")?,
        });
    }
    Ok(restorer.fill_log(account, began_after, fills)?)
}

pub(super) fn write_undone(fields: &mut Fields<'_>, row: &UndoneRow) {
    let UndoneRow { account, number, fill } = *row;
    let UndoneFill { order, part, market, outcome, newest, at } = fill;
    fields.u64(account.get());
    fields.u64(number);
    fields.u64(order.get());
    fields.u32(part);
    fields.u32(market.0);
    fields.u8(outcome.0);
    fields.u64(newest);
    fields.i64(at.nanos());
}

pub(super) fn read_undone(
    reader: &mut Reader<'_>,
    restorer: &mut Restorer,
) -> Result<(), ShardError> {
    let account = reader.id("account", AccountId::from_raw)?;
    let number = reader.u64("number of the fill")?;
    let fill = UndoneFill {
        order: reader.id("order", OrderId::from_raw)?,
        part: reader.u32("number of the fill within its order")?,
        market: MarketIndex(reader.u32("market index")?),
        outcome: OutcomeIndex(reader.u8("outcome index")?),
        newest: reader.u64("newest fill at that time")?,
        at: reader.timestamp("time of the undoing")?,
    };
    Ok(restorer.undone_fill(UndoneRow { account, number, fill })?)
}
