//! The encoding of one shard's state: a section of a snapshot, and one of an order file. Pure.
//!
//! ```text
//! section of a snapshot
//! ┌──────────┬───────────┬──────────┬──────────┬──────────┬───────┬──────────┬────────────┬──────
//! │ sequence │ accounts  │ keys     │ orders   │ comments │ state │ epoch    │ time of the│ rows
//! │ u64      │ ever u64  │ ever u64 │ ever u64 │ ever u64 │ hash  │ u64      │ newest i64 │
//! └──────────┴───────────┴──────────┴──────────┴──────────┴───────┴──────────┴────────────┴──────
//! rows: eleven lists, each a count u64 and its rows
//!   markets     body of a MarketIntroduced
//!   settled     body of a MarketSettled with time 0; whether it is paid u8
//!   accounts    body of an AccountOpened; purchases, sales, fees, payouts i64;
//!               orders ever u64; oldest kept order u64, 0 for none; fills less orders i64;
//!               heartbeat interval u32, 0 for none;
//!               count of resets u32; if there are some, the balance after the newest and
//!               its time i64;
//!               whether operators have acted on it u8; if they have, whether it is
//!               suspended u8; if it is, the time i64, the user's number u32, name (flag u8,
//!               text) and reason text; when it was erased (flag u8, i64);
//!               tier u8, 0 for none; deposited i64,
//!               count of deposits u32; for each: token 16,
//!               amount i64, time i64
//!               count of positions u32; for each: market u32, outcome u8,
//!               shares, cost, realised i64, and if there are resets, closed by one u8
//!   keys        whether it is of a wallet u8, body of a KeyCreated; revoked at (flag u8, i64);
//!               kept maker u64, 0 for none
//!   open orders an order and its order state
//!   comments    body of a CommentAdded
//!   settlements account u64, place of the position u32, shares, cost, payout i64,
//!               payout a share i64, time i64
//!   decisions   body of a SettlementDecided
//!   fill logs   account u64, fills before the log u64, count of fills u32; for each:
//!               order u64, number within the order u32, market u32, outcome u8, side u8,
//!               quantity, notional, fee, fee rate, balance, position shares, position cost i64,
//!               time i64
//!   used levels account u64, market u32, outcome u8, side u8, count of levels u32; for each:
//!               price, size shown, size left i64
//!   undone      account u64, number within it u64, order u64, number within the order u32,
//!   fills       market u32, outcome u8, newest fill at that time u64, time i64
//!
//! version 1 has no settlements, no decisions, and no row in the list of settled markets
//! version 2 has no open orders, no order states, no count of fills, and no fill logs
//! version 3 has no resets
//! version 4 has nothing of operators
//! version 5 has no used levels
//! version 6 has no keys of wallets, and nothing before the body of a KeyCreated
//! version 7 has no undone fills
//!
//! section of an order file: finished orders up to its end, those of an account in the order in
//! which they finished
//!
//! an order
//!   order u64, account u64, market u32, outcome u8, side u8, names u8, has slippage u8,
//!   slippage u32, levels u16, 0 u16, quantity, notional, fee, fee rate, balance,
//!   position shares, position cost i64, time i64, fingerprint 16, names × 16,
//!   client order id (flag u8, text), has order state u8, order state, delay if the order state
//!   says so
//!
//! an order state
//!   kind u8, time in force u8, is post-only u8, awaited book 1 or was delayed 2 u8, quantity i64,
//!   price (flag u8, i64), expiry (flag u8, i64), milliseconds delayed u32 if it was delayed,
//!   filled, notional, fee i64, newest fill i64, fills u32, awaits book 1 or is delayed 2 u8,
//!   reason u8, end (flag u8, i64)
//!
//! a delay
//!   end of the wait i64, reserved cash, reserved shares i64, amount (flag u8, i64),
//!   expected price (flag u8, i64), most slippage (flag u8, i64)
//! ```
//!
//! Bodies, texts and numbers are encoded as in journal records ([`crate::journal::record`]) and
//! read as strictly. When the state is assembled, each row is checked against the others, and the
//! whole state against its hash.

mod fills;

use super::replay::ShardState;
use crate::journal::record::RecordError;
use crate::journal::record::field::{Fields, Reader};
use crate::journal::record::kind;
use crate::journal::record::order::OrderHead;
use paperbourse_core::engine::account::ledger::{Ledger, Resets};
use paperbourse_core::engine::account::position::Position;
use paperbourse_core::engine::admin::standing::Standing;
use paperbourse_core::engine::command::Identity;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::market::payout::Settlement;
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::order::open::BookSide;
use paperbourse_core::engine::order::receipt::OrderRow;
use paperbourse_core::engine::state::hash::StateHash;
use paperbourse_core::engine::state::restore::{RestoreError, Restorer};
use paperbourse_core::engine::state::rows::{AccountRow, IdentityRow, StateHead, UsedRow};
use paperbourse_core::engine::{UsedMarket, comment::Comment, key::Key};
use paperbourse_core::faults::{self, Fault};
use paperbourse_core::ids::{
    AccountId, KeyId, MarketIndex, OrderId, OutcomeIndex, ShardId, Timestamp,
};
use paperbourse_core::money::{Price, Shares, Usd};

/// Error reading a shard's state.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The bytes are malformed.
    #[error(transparent)]
    Bytes(#[from] RecordError),
    /// The rows contradict each other.
    #[error(transparent)]
    Rows(#[from] RestoreError),
}

/// Encodes the mutable state of a shard.
pub(super) fn encode(shard: &ShardState, out: &mut Vec<u8>) {
    let state = &shard.state;
    let head = state.head();
    let mut fields = Fields(out);
    for number in [
        head.sequence,
        head.accounts_ever,
        head.keys_ever,
        head.orders_ever,
        head.comments_ever,
        head.hash.get(),
        shard.epoch,
    ] {
        fields.u64(number);
    }
    fields.i64(shard.decided_at.nanos());
    list(&mut fields, state.markets().iter().enumerate(), |fields, (index, market)| {
        let index = u32::try_from(index).expect("a market's index is a u32");
        fields.event(&Event::MarketIntroduced {
            index: MarketIndex(index),
            condition_id: market.condition_id.clone(),
            outcomes: market.outcomes.clone(),
        });
    });
    list(&mut fields, state.settled_markets(), |fields, (market, settled)| {
        let (payouts, at) = (settled.payouts.clone(), Timestamp::EPOCH);
        fields.event(&Event::MarketSettled { market, payouts, at });
        fields.u8(settled.is_paid.into());
    });
    list(&mut fields, state.accounts(), |fields, account| write_account(fields, &account));
    list(&mut fields, state.keys(), |fields, key| {
        fields.u8(key.grant.wallet.is_some().into());
        fields.event(&Event::KeyCreated {
            key: key.id,
            account: key.account,
            grant: key.grant.clone(),
            created_by: key.created_by,
            at: key.created_at,
        });
        fields.optional_time(key.revoked_at);
        fields.u64(key.kept_maker.map_or(0, KeyId::get));
    });
    list(&mut fields, state.open_orders(), |fields, order| encode_order(&order, fields.0));
    list(&mut fields, state.comments(), |fields, comment| {
        fields.event(&Event::CommentAdded {
            comment: comment.id,
            order: comment.order,
            author: comment.author,
            content: comment.content.clone(),
            at: comment.at,
        });
    });
    list(&mut fields, state.settlements(), |fields, (account, position, settlement)| {
        fields.u64(account.get());
        fields.u32(position);
        fields.i64(settlement.shares.micros());
        fields.i64(settlement.cost.micros());
        fields.i64(settlement.payout.micros());
        fields.i64(settlement.payout_per_share.micros());
        fields.i64(settlement.at.nanos());
    });
    list(&mut fields, state.decisions(), |fields, decided| {
        let (decision, at) = (decided.decision.clone(), decided.at);
        fields.event(&Event::SettlementDecided { decision, at });
    });
    list(&mut fields, state.fill_logs(), |fields, log| fills::write_log(fields, &log));
    list(&mut fields, state.used_rows(), |fields, row| {
        fields.u64(row.account.get());
        fields.u32(row.on.market.0);
        fields.u8(row.on.outcome.0);
        fields.side(row.on.side);
        fields.used_levels(&row.levels);
    });
    list(&mut fields, state.undone_fills(), |fields, row| fills::write_undone(fields, &row));
}

/// Writes a list, preceded by its count, which is filled in after the rows.
fn list<T>(
    fields: &mut Fields<'_>,
    rows: impl Iterator<Item = T>,
    mut write: impl FnMut(&mut Fields<'_>, T),
) {
    let count_at = fields.0.len();
    fields.u64(0);
    let mut count = 0_u64;
    for row in rows {
        write(fields, row);
        count += 1;
    }
    fields.0[count_at..count_at + 8].copy_from_slice(&count.to_le_bytes());
}

fn read_list(
    reader: &mut Reader<'_>,
    field: &'static str,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<(), ShardError>,
) -> Result<(), ShardError> {
    // Every row takes at least one byte, so a count that is too high fails at the end of the
    // section.
    for _ in 0..reader.u64(field)? {
        read(reader)?;
    }
    Ok(())
}

fn write_account(fields: &mut Fields<'_>, account: &AccountRow<'_>) {
    let ledger = &account.ledger;
    fields.event(&Event::AccountOpened {
        account: account.id,
        identity: Identity {
            digest: *account.identity.digest,
            issuer: account.identity.issuer.into(),
            subject: account.identity.subject.into(),
        },
        granted: ledger.granted,
        at: account.opened_at,
    });
    for sum in [ledger.purchases, ledger.sales, ledger.fees, ledger.payouts] {
        fields.i64(sum.micros());
    }
    fields.u64(account.order_count_ever);
    fields.u64(account.oldest_order.map_or(0, OrderId::get));
    fields.i64(account.fill_surplus);
    fields.u32(account.heartbeat_ms.unwrap_or(0));
    fields.u32(account.resets.map_or(0, |resets| resets.count));
    if let Some(resets) = account.resets {
        fields.i64(resets.balance.micros());
        fields.i64(resets.at.nanos());
    }
    write_standing(fields, account.standing);
    fields.length(account.positions.len());
    for position in account.positions {
        fields.u32(position.market.0);
        fields.u8(position.outcome.0);
        fields.i64(position.shares.micros());
        fields.i64(position.cost.micros());
        fields.i64(position.realised.micros());
        if account.resets.is_some() {
            fields.u8(position.closed_by_reset.into());
        }
    }
}

fn read_account(
    reader: &mut Reader<'_>,
    version: u32,
    restorer: &mut Restorer,
) -> Result<(), ShardError> {
    let opened = read_event(reader, kind::ACCOUNT_OPENED)?;
    let Event::AccountOpened { account, identity, granted, at } = opened else {
        unreachable!("an event of the kind that was asked for")
    };
    let mut usd = |field| reader.i64(field).map(Usd::from_micros);
    let ledger = Ledger {
        granted,
        purchases: usd("purchases")?,
        sales: usd("sales")?,
        fees: usd("fees")?,
        payouts: usd("payouts")?,
        reserved: Usd::ZERO,
    };
    let order_count_ever = reader.u64("count of orders")?;
    let oldest_order = optional_id(reader, "oldest order", OrderId::from_raw)?;
    let fill_surplus = if version > 2 { reader.i64("fills less orders")? } else { 0 };
    let heartbeat_ms = if version > 2 { reader.u32("heartbeat interval")? } else { 0 };
    let reset_count = if version > 3 { reader.u32("count of resets")? } else { 0 };
    let resets = if reset_count > 0 {
        let balance = Usd::from_micros(reader.i64("balance after the reset")?);
        let at = Timestamp::from_nanos(reader.i64("time of the reset")?);
        Some(Resets { count: reset_count, balance, at })
    } else {
        None
    };
    let standing = if version > 4 { read_standing(reader)? } else { None };
    let count = reader.u32("count of positions")?;
    let mut positions = Vec::new();
    for _ in 0..count {
        positions.push(Position {
            market: MarketIndex(reader.u32("market index")?),
            outcome: OutcomeIndex(reader.u8("outcome index")?),
            shares: Shares::from_micros(reader.i64("position shares")?),
            cost: Usd::from_micros(reader.i64("position cost")?),
            realised: Usd::from_micros(reader.i64("realised profit")?),
            closed_by_reset: resets.is_some() && reader.flag("whether a reset closed it")?,
        });
    }
    Ok(restorer.account(AccountRow {
        id: account,
        identity: IdentityRow {
            digest: &identity.digest,
            issuer: &identity.issuer,
            subject: &identity.subject,
        },
        opened_at: at,
        ledger,
        positions: &positions,
        oldest_order,
        order_count_ever,
        fill_surplus,
        heartbeat_ms: Some(heartbeat_ms).filter(|&interval_ms| interval_ms != 0),
        resets,
        standing: standing.as_ref(),
    })?)
}

fn write_standing(fields: &mut Fields<'_>, standing: Option<&Standing>) {
    fields.u8(standing.is_some().into());
    let Some(Standing { suspension, erased_at, tier, deposited, deposits }) = standing else {
        return;
    };
    fields.u8(suspension.is_some().into());
    if let Some(suspension) = suspension {
        fields.suspension(suspension);
    }
    fields.optional_time(*erased_at);
    fields.optional_tier(*tier);
    fields.i64(deposited.micros());
    fields.length(deposits.len());
    for deposit in deposits {
        fields.deposit(deposit);
    }
}

fn read_standing(reader: &mut Reader<'_>) -> Result<Option<Standing>, RecordError> {
    if !reader.flag("whether operators have acted on the account")? {
        return Ok(None);
    }
    let is_suspended = reader.flag("whether the account is suspended")?;
    let suspension = if is_suspended { Some(reader.suspension()?) } else { None };
    let erased_at = reader.optional_time("time of the erasure")?;
    let tier = reader.optional_tier()?;
    let deposited = Usd::from_micros(reader.i64("sum of deposits")?);
    let count = reader.u32("count of deposits")?;
    let mut deposits = Vec::new();
    for _ in 0..count {
        deposits.push(reader.deposit()?);
    }
    Ok(Some(Standing { suspension, erased_at, tier, deposited, deposits }))
}

/// Reads an optional id, stored as 0 if there is none.
fn optional_id<T>(
    reader: &mut Reader<'_>,
    field: &'static str,
    of: fn(u64) -> Option<T>,
) -> Result<Option<T>, RecordError> {
    reader.valid(field, |reader| {
        Ok(match reader.u64(field)? {
            0 => Some(None),
            id => of(id).map(Some),
        })
    })
}

fn read_event(reader: &mut Reader<'_>, kind: u16) -> Result<Event, RecordError> {
    Ok(reader.event(kind)?.expect("the kinds of rows are known"))
}

/// Returns the time of the newest record in a section of a snapshot.
pub(super) fn newest_time(bytes: &[u8]) -> Result<Timestamp, RecordError> {
    const NUMBERS_BEFORE: usize = 7;
    let mut reader = Reader::new(bytes);
    for _ in 0..NUMBERS_BEFORE {
        reader.u64("numbers before the time")?;
    }
    reader.timestamp("time of the newest record")
}

/// A partly read state: orders, comments and the lists after them have yet to be read.
pub(super) struct Reading<'a> {
    reader: Reader<'a>,
    restorer: Restorer,
    /// The format version of the file.
    version: u32,
    epoch: u64,
    decided_at: Timestamp,
}

impl<'a> Reading<'a> {
    /// Reads a section of a snapshot up to the point where the orders are needed.
    pub(super) fn begin(shard: ShardId, version: u32, bytes: &'a [u8]) -> Result<Self, ShardError> {
        let mut reader = Reader::new(bytes);
        let head = StateHead {
            shard,
            sequence: reader.u64("sequence")?,
            accounts_ever: reader.u64("count of accounts")?,
            keys_ever: reader.u64("count of keys")?,
            orders_ever: reader.u64("count of orders")?,
            comments_ever: reader.u64("count of comments")?,
            hash: StateHash::from_u64(reader.u64("state hash")?),
        };
        let epoch = reader.u64("epoch")?;
        let decided_at = reader.timestamp("time of the newest record")?;
        let mut restorer = Restorer::new(head);
        let mut next = 0;
        read_list(&mut reader, "count of markets", |reader| {
            let (condition_id, outcomes) = reader.valid("market index", |reader| {
                let market = read_event(reader, kind::MARKET_INTRODUCED)?;
                let Event::MarketIntroduced { index, condition_id, outcomes } = market else {
                    unreachable!("an event of the kind that was asked for")
                };
                Ok((index.0 == next).then_some((condition_id, outcomes)))
            })?;
            next += 1;
            Ok(restorer.market(UsedMarket { condition_id, outcomes })?)
        })?;
        read_list(&mut reader, "count of settled markets", |reader| {
            if version == 1 {
                let (offset, field) = (reader.offset(), "market settled by version 1");
                return Err(RecordError::Invalid { offset, field }.into());
            }
            let (market, payouts) = reader.valid("market settled at time 0", |reader| {
                let settled = read_event(reader, kind::MARKET_SETTLED)?;
                let Event::MarketSettled { market, payouts, at } = settled else {
                    unreachable!("an event of the kind that was asked for")
                };
                Ok((at == Timestamp::EPOCH).then_some((market, payouts)))
            })?;
            let is_paid = reader.flag("whether the market is paid")?;
            Ok(restorer.settled(market, &payouts, is_paid)?)
        })?;
        read_list(&mut reader, "count of accounts", |reader| {
            read_account(reader, version, &mut restorer)
        })?;
        read_list(&mut reader, "count of keys", |reader| {
            let is_of_wallet = version > 6 && reader.flag("whether the key is of a wallet")?;
            let kind = if is_of_wallet { kind::WALLET_KEY_CREATED } else { kind::KEY_CREATED };
            let created = read_event(reader, kind)?;
            let Event::KeyCreated { key, account, grant, created_by, at } = created else {
                unreachable!("an event of the kind that was asked for")
            };
            let revoked_at = reader.optional_time("time of revocation")?;
            let kept_maker = optional_id(reader, "kept maker", KeyId::from_raw)?;
            let id = key;
            Ok(restorer.key(Key {
                id,
                account,
                grant,
                created_by,
                kept_maker,
                created_at: at,
                revoked_at,
            })?)
        })?;
        Ok(Self { reader, restorer, version, epoch, decided_at })
    }

    /// Reads the shard's section of an order file. Must be called once for each file, oldest first,
    /// with that file's format version. Returns the number of orders read.
    pub(super) fn orders(&mut self, version: u32, bytes: &[u8]) -> Result<u64, ShardError> {
        let mut reader = Reader::new(bytes);
        let mut rows = 0;
        while !reader.is_empty() {
            self.restorer.order(read_order(&mut reader, version)?)?;
            rows += 1;
        }
        Ok(rows)
    }

    /// Reads the remaining lists and assembles the state.
    pub(super) fn finish(self) -> Result<ShardState, ShardError> {
        let Self { mut reader, mut restorer, version, epoch, decided_at } = self;
        if version > 2 {
            read_list(&mut reader, "count of open orders", |reader| {
                Ok(restorer.open_order(read_order(reader, version)?)?)
            })?;
        }
        read_list(&mut reader, "count of comments", |reader| {
            let added = read_event(reader, kind::COMMENT_ADDED)?;
            let Event::CommentAdded { comment, order, author, content, at } = added else {
                unreachable!("an event of the kind that was asked for")
            };
            Ok(restorer.comment(Comment { id: comment, order, author, content, at })?)
        })?;
        if version > 1 {
            read_list(&mut reader, "count of settlements", |reader| {
                let account = reader.id("account", AccountId::from_raw)?;
                let position = reader.u32("place of a position")?;
                let settlement = Settlement {
                    shares: Shares::from_micros(reader.i64("settled shares")?),
                    cost: Usd::from_micros(reader.i64("settled cost")?),
                    payout: Usd::from_micros(reader.i64("payout")?),
                    payout_per_share: Price::from_micros(reader.i64("payout a share")?),
                    at: reader.timestamp("time of the settlement")?,
                };
                Ok(restorer.settlement(account, position, settlement)?)
            })?;
            read_list(&mut reader, "count of decisions", |reader| {
                let decided = read_event(reader, kind::SETTLEMENT_DECIDED)?;
                let Event::SettlementDecided { decision, at } = decided else {
                    unreachable!("an event of the kind that was asked for")
                };
                Ok(restorer.decision(&decision, at)?)
            })?;
        }
        if version > 2 {
            read_list(&mut reader, "count of fill logs", |reader| {
                fills::read_log(reader, &mut restorer)
            })?;
        }
        if version > 5 {
            read_list(&mut reader, "count of sides with used levels", |reader| {
                let account = reader.id("account", AccountId::from_raw)?;
                let on = BookSide {
                    market: MarketIndex(reader.u32("market index")?),
                    outcome: OutcomeIndex(reader.u8("outcome index")?),
                    side: reader.side()?,
                };
                let levels = reader.used_levels()?;
                Ok(restorer.used(UsedRow { account, on, levels })?)
            })?;
        }
        if version > 7 {
            read_list(&mut reader, "count of undone fills", |reader| {
                fills::read_undone(reader, &mut restorer)
            })?;
        }
        reader.end("end of the state")?;
        Ok(ShardState { state: restorer.finish()?, epoch, decided_at })
    }
}

/// Encodes an order with its order state and hold.
pub(super) fn encode_order(order: &OrderRow, out: &mut Vec<u8>) {
    let OrderRow { placement, fill, level_count, slippage_bps, order_state, delay } = order;
    let mut fields = Fields(out);
    fields.order_head(placement, *slippage_bps);
    fields.u16(*level_count);
    fields.u16(0);
    fields.fill(fill);
    fields.order_names(placement);
    fields.optional_text(placement.client_order_id.as_deref());
    fields.u8(u8::from(order_state.is_some()));
    if let Some(order_state) = order_state {
        fields.order_state(order_state);
    }
    if let Some(delay) = delay {
        fields.delay(delay);
    }
}

fn read_order(reader: &mut Reader<'_>, version: u32) -> Result<OrderRow, RecordError> {
    let mut head = reader.order_head()?;
    let level_count = reader.u16("level count")?;
    reader.zeros(2, "zeros after the level count")?;
    let fill = reader.fill("fill")?;
    reader.order_names(&mut head)?;
    let OrderHead { mut placement, slippage_bps, .. } = head;
    if faults::is_on(Fault::IdempotencyNotRestored) {
        for name in &mut placement.names {
            *name = NameHash::from_bytes(name.to_bytes().map(|byte| !byte));
        }
    }
    placement.client_order_id = reader.optional_text("client order id")?;
    let has_order_state = version > 2 && reader.flag("whether the order has a life")?;
    let order_state = if has_order_state { Some(reader.order_state()?) } else { None };
    let is_delayed =
        order_state.is_some_and(|order_state| order_state.is_delayed && order_state.is_open());
    let delay = if is_delayed { Some(reader.delay()?) } else { None };
    Ok(OrderRow { placement, fill, level_count, slippage_bps, order_state, delay })
}
