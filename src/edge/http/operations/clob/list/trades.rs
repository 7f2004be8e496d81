//! Trades: the fills of the caller's orders.
//!
//! Here nobody is on the other side of a fill, and no transaction settles it. Clients fail on a
//! trade without either, and some wait until a trade has a transaction, so both are made up.

use std::borrow::Cow;

use serde::Serialize;

use super::{
    PAGE_ROWS, Page, Party, hash_of, order_id, read_cursor, read_market, transaction_hash,
};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::operations::clob::{Awaited, request};
use crate::http::operations::data::{
    CONFIRMED, MakerOrderRow, Seconds, fee_rate_bps, read_trade_id, times_between,
};
use crate::http::reply::Reply;
use paperbourse_clob::signature::address::{ADDRESS_BYTES, Address};
use paperbourse_clob::signature::wallets::Wallets;
use paperbourse_core::engine::fills::{FillCursor, FillFilter, FillRow, PastFill};
use paperbourse_core::ids::condition;
use paperbourse_core::market::book::Side;
use paperbourse_core::money::Usd;
use paperbourse_core::wire::Decimal;

/// The parameters that name a party of the trades. A client sends the last two in place of the
/// first.
const PARTIES: [&str; 3] = ["maker_address", "maker", "taker"];

/// The owner of whatever nobody owns.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// Lists the trades of the caller's wallets, newest first.
pub(in crate::http::operations::clob) async fn list(call: &Call<'_>) -> Awaited {
    let party = Party::of(call);
    let Some(request) = read_trades(call.head.uri.query(), party.wallet)? else {
        return Ok(Reply::ok(&Page::<TradeRow<'_>>::new(Vec::new(), None)));
    };
    let TradesRequest { filter, from, limit } = request;
    let is_one = filter.part_of.is_some();
    let service = call.service();
    let found = service.fill_history(&call.caller, filter, from, limit, call.context).await?;
    let rows = found.fills.iter().map(|past| TradeRow::of(past, &party)).collect();
    let next = found.next.filter(|_| !is_one).map(|next| next.before.to_string());
    Ok(Reply::ok(&Page::new(rows, next)))
}

#[derive(PartialEq, Eq, Debug)]
struct TradesRequest {
    filter: FillFilter,
    from: FillCursor,
    limit: usize,
}

/// Reads the filter and the page; `None` after the last page, and if no trade can match.
fn read_trades(query: Option<&str>, wallet: Address) -> Result<Option<TradesRequest>, ClobError> {
    let [market_id, token_id] = read_market(query)?;
    let [after, before] = ["after", "before"].map(|name| request::filled(query, name));
    let [from, to] =
        times_between(after.as_deref(), before.as_deref()).ok_or(ClobError::INVALID_PAYLOAD)?;
    let cursor = read_cursor(query, u64::MAX, |text| text.parse().ok())?;
    let is_own = are_of(query, wallet)?;
    let part_of = request::filled(query, "id").map(|id| read_trade_id(&id));
    let (Some(before), true, None | Some(Some(_))) = (cursor, is_own, part_of) else {
        return Ok(None);
    };
    let part_of = part_of.flatten();
    let filter = FillFilter { market_id, token_id, side: None, part_of, from, to };
    // Once the trade with an id is found, older ones need not be examined.
    let limit = if part_of.is_some() { 1 } else { PAGE_ROWS };
    Ok(Some(TradesRequest { filter, from: FillCursor { before, skip: 0 }, limit }))
}

/// Whether each party in the query is this wallet or one of its contracts.
fn are_of(query: Option<&str>, wallet: Address) -> Result<bool, ClobError> {
    let mut are_own = true;
    for name in PARTIES {
        let Some(text) = request::filled(query, name) else { continue };
        let named = Address::parse(&*text).map_err(|_| ClobError::INVALID_PAYLOAD)?;
        are_own &= named == wallet || {
            let Wallets { proxy, safe, deposit, deposit_without_beacon } = Wallets::of(wallet);
            [proxy, safe, deposit, deposit_without_beacon].contains(&named)
        };
    }
    Ok(are_own)
}

/// A trade, as of the side that took liquidity.
#[derive(Serialize)]
struct TradeRow<'a> {
    /// The number of the caller's order and that of the fill within it.
    id: String,
    taker_order_id: Cow<'a, str>,
    market: Cow<'a, str>,
    asset_id: &'a str,
    side: &'static str,
    /// In shares.
    size: Decimal,
    fee_rate_bps: Decimal,
    price: Decimal,
    status: &'static str,
    /// In seconds since 1970.
    match_time: Seconds,
    last_update: Seconds,
    outcome: &'a str,
    bucket_index: u32,
    /// The taker's API key.
    owner: &'a str,
    /// The taker's wallet.
    maker_address: String,
    transaction_hash: String,
    /// The side that the caller was on.
    trader_side: &'static str,
    /// The order that rested.
    maker_orders: [MakerOrderRow<'a>; 1],
}

/// One of the two orders of a trade.
struct Half<'a> {
    order_id: Cow<'a, str>,
    owner: &'a str,
    wallet: Address,
    side: Side,
    fee_rate_bps: Decimal,
}

impl<'a> Half<'a> {
    fn own(row: &'a FillRow, party: &Party<'a>) -> Self {
        Self {
            order_id: order_id(row.order, row.client_order_id.as_deref()),
            owner: party.owner,
            wallet: party.wallet,
            side: row.side,
            fee_rate_bps: fee_rate_bps(&row.fill),
        }
    }

    /// Makes up the other one.
    fn made_up(row: &'a FillRow) -> Self {
        Self {
            order_id: hash_of("counterparty", row.order, row.part).into(),
            owner: NOBODY,
            wallet: Address::from_bytes([0; ADDRESS_BYTES]),
            side: row.side.opposite(),
            fee_rate_bps: Usd::ZERO.into(),
        }
    }
}

impl<'a> TradeRow<'a> {
    fn of(past: &'a PastFill, party: &Party<'a>) -> Self {
        let PastFill { row, token_id, .. } = past;
        let fill = &row.fill;
        let (own, other) = (Half::own(row, party), Half::made_up(row));
        let is_taker = past.is_taker();
        let (taker, maker) = if is_taker { (own, other) } else { (other, own) };
        Self {
            id: format!("{}-{}", row.order, row.part),
            taker_order_id: taker.order_id,
            market: condition::wide(&row.market_id),
            asset_id: token_id,
            side: taker.side.as_str(),
            size: fill.quantity.into(),
            fee_rate_bps: taker.fee_rate_bps,
            price: fill.price().into(),
            status: CONFIRMED,
            match_time: Seconds(fill.at),
            last_update: Seconds(fill.at),
            outcome: &row.outcome,
            bucket_index: 0,
            owner: taker.owner,
            maker_address: taker.wallet.checksummed(),
            transaction_hash: transaction_hash(row.order, row.part),
            trader_side: if is_taker { "TAKER" } else { "MAKER" },
            maker_orders: [MakerOrderRow {
                order_id: maker.order_id.into_owned(),
                owner: maker.owner.to_owned(),
                maker_address: maker.wallet.checksummed(),
                matched_amount: fill.quantity.into(),
                price: fill.price().into(),
                fee_rate_bps: maker.fee_rate_bps,
                asset_id: token_id,
                outcome: &row.outcome,
                side: maker.side.as_str(),
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::engine::fills::fill::Fill;
    use paperbourse_core::ids::{OrderId, Timestamp};
    use paperbourse_core::money::{FeeRate, Shares};

    const DIGEST: &str = "0x00000000000000000000000000000000000000000000000000000000deadbeef";

    fn wallet() -> Address {
        Address::parse("0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266").unwrap()
    }

    #[test]
    fn trades_are_filtered() {
        let read = |query: &str| read_trades(Some(query), wallet());
        let all = || {
            let from = FillCursor { before: u64::MAX, skip: 0 };
            Ok(Some(TradesRequest { filter: FillFilter::default(), from, limit: 100 }))
        };
        assert_eq!(read_trades(None, wallet()), all());
        assert_eq!(read("id=&maker_address=&before=&after=&limit=x"), all());
        let query = format!("market={DIGEST}&asset_id=7&before=5&after=2&id=711-2&next_cursor=9");
        let filter = FillFilter {
            market_id: Some(DIGEST.into()),
            token_id: Some("7".into()),
            side: None,
            part_of: OrderId::from_raw(711).map(|order| (order, 2)),
            from: Some(Timestamp::from_nanos(2_000_000_001)),
            to: Some(Timestamp::from_nanos(4_999_999_999)),
        };
        let from = FillCursor { before: 9, skip: 0 };
        assert_eq!(read(&query), Ok(Some(TradesRequest { filter, from, limit: 1 })));
        for query in ["next_cursor=LTE=", "id=711", "id=x-1", "id=7-1"] {
            assert_eq!(read(query), Ok(None), "{query}");
        }
        for query in ["after=x", "before=-1", "next_cursor=o9", "maker=0x1", "taker=me"] {
            assert_eq!(read(query), Err(ClobError::INVALID_PAYLOAD), "{query}");
        }
        // All wallets of a signer are one account.
        let Wallets { proxy, safe, deposit, deposit_without_beacon } = Wallets::of(wallet());
        for own in [wallet(), proxy, safe, deposit, deposit_without_beacon] {
            for name in PARTIES {
                assert_eq!(read(&format!("{name}={own}")), all());
                assert_eq!(read(&format!("{name}={}", own.checksummed())), all());
            }
        }
        let other = Address::from_bytes([7; ADDRESS_BYTES]);
        for name in PARTIES {
            let query = format!("{name}={other}");
            assert_eq!(read(&query), Ok(None));
        }
        assert_eq!(read(&format!("maker={safe}&taker={other}")), Ok(None));
    }

    /// Shows a fill of an order that rested, beside a fill that was taken at once.
    #[test]
    fn a_trade_has_both_sides_and_a_transaction() {
        let at = Timestamp::from_millis(1_784_578_686_071);
        let row = FillRow {
            number: 7,
            order: OrderId::from_raw(711).unwrap(),
            part: 2,
            market_id: DIGEST.into(),
            outcome: "Yes".into(),
            side: Side::Sell,
            fill: Fill {
                quantity: Shares::from_micros(3_000_000),
                notional: Usd::from_micros(1_000_000),
                fee: Usd::ZERO,
                fee_rate: FeeRate::ZERO,
                balance: Usd::ZERO,
                position_shares: Shares::ZERO,
                position_cost: Usd::ZERO,
                at,
            },
            client_order_id: Some(DIGEST.into()),
        };
        let made = PastFill { row, token_id: "77".into(), placed_at: Some(Timestamp::EPOCH) };
        let mut taken = made.clone();
        (taken.row.part, taken.placed_at) = (1, Some(at));
        taken.row.fill.fee_rate = FeeRate::from_micros(70_050);
        let party = Party { owner: "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab", wallet: wallet() };
        let fills = [made, taken];
        let rows = fills.iter().map(|past| TradeRow::of(past, &party)).collect();
        let json = serde_json::to_string_pretty(&Page::new(rows, None)).unwrap();
        assert!(!json.contains("null"));
        insta::assert_snapshot!(json);
    }
}
