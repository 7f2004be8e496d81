//! Trades: the fills of the caller's orders.

use super::{PAGE_ROWS, Page, read_cursor, read_market};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::operations::clob::{Awaited, request};
use crate::http::operations::data::{read_trade_id, times_between};
use crate::http::reply::Reply;
use crate::rows::Party;
use crate::rows::clob_trade::{Trade, TradeRow};
use crate::trouble::{Stage, Trouble};
use paperbourse_clob::signature::address::Address;
use paperbourse_clob::signature::wallets::Wallets;
use paperbourse_core::engine::fills::{FillCursor, FillFilter};
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_exchange::service::ServiceError;

/// The parameters that name a party of the trades. A client sends the last two in place of the
/// first.
const PARTIES: [&str; 3] = ["maker_address", "maker", "taker"];

/// Lists the trades of the caller's wallets, newest first.
pub(in crate::http::operations::clob) async fn list(call: &Call<'_>) -> Awaited {
    let party = Party::of(call);
    let Some(request) = read_trades(call.head.uri.query(), party.wallet)? else {
        return Ok(Reply::ok(&Page::<TradeRow<'_>>::new(Vec::new(), None)));
    };
    let TradesRequest { filter, from, limit } = request;
    let is_one = filter.part_of.is_some();
    let service = call.service();
    let _still = call.hold_still().await;
    let found = service.fill_history(&call.caller, filter, from, limit, call.context).await?;
    let stages = Stages::of(call, &party)?;
    let rows = found.fills.iter().map(|past| {
        let trade = past.into();
        let stage = match past.row.undone_at {
            Some(_) => Stage::Failed,
            None => stages.of_trade(&trade),
        };
        TradeRow::of(&trade, &party).in_stage(stage)
    });
    let rows = rows.collect();
    let next = found.next.filter(|_| !is_one).map(|next| next.before.to_string());
    Ok(Reply::ok(&Page::new(rows, next)))
}

/// How far the settlement of the caller's trades is.
pub(in crate::http::operations::clob) struct Stages<'a> {
    trouble: Option<(&'a Trouble, AccountId, String)>,
    now: Timestamp,
}

impl<'a> Stages<'a> {
    pub(in crate::http::operations::clob) fn of(
        call: &Call<'a>,
        party: &Party<'_>,
    ) -> Result<Self, ServiceError> {
        let now = call.context.moment.now;
        let Some(trouble) = &call.app.trouble else { return Ok(Self { trouble: None, now }) };
        let account = call.caller.account()?;
        Ok(Self { trouble: Some((trouble, account, party.wallet.to_string())), now })
    }

    pub(in crate::http::operations::clob) fn of_trade(&self, trade: &Trade<'_>) -> Stage {
        self.trouble.as_ref().map_or(Stage::Confirmed, |(trouble, account, wallet)| {
            trouble.stage((*account, wallet), trade, self.now)
        })
    }
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
    let after = |rows| FillCursor::newest(rows as u64);
    let read = |text: &str| Some(FillCursor { before: text.parse().ok()?, skip: 0 });
    let from_row = read_cursor(query, after, read)?;
    let is_own = are_of(query, wallet)?;
    let part_of = request::filled(query, "id").map(|id| read_trade_id(&id));
    let (Some(from_row), true, None | Some(Some(_))) = (from_row, is_own, part_of) else {
        return Ok(None);
    };
    let part_of = part_of.flatten();
    let filter = FillFilter { market_id, token_id, side: None, part_of, from, to };
    // Once the trade with an id is found, older ones need not be examined.
    let limit = if part_of.is_some() { 1 } else { PAGE_ROWS };
    Ok(Some(TradesRequest { filter, from: from_row, limit }))
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

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_clob::signature::address::ADDRESS_BYTES;
    use paperbourse_core::engine::fills::fill::Fill;
    use paperbourse_core::engine::fills::{FillRow, PastFill};
    use paperbourse_core::ids::OrderId;
    use paperbourse_core::market::book::Side;
    use paperbourse_core::money::{FeeRate, Shares, Usd};

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
        let from = FillCursor { before: u64::MAX, skip: 300 };
        let skipping = TradesRequest { filter: FillFilter::default(), from, limit: 100 };
        assert_eq!(read("next_cursor=MzAw"), Ok(Some(skipping)));
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
            undone_at: None,
        };
        let made = PastFill { row, token_id: "77".into(), placed_at: Some(Timestamp::EPOCH) };
        let mut taken = made.clone();
        (taken.row.part, taken.placed_at) = (1, Some(at));
        taken.row.fill.fee_rate = FeeRate::from_micros(70_050);
        let party = Party { owner: "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab", wallet: wallet() };
        let fills = [made, taken];
        let rows = fills.iter().map(|past| TradeRow::of(&past.into(), &party)).collect();
        let json = serde_json::to_string_pretty(&Page::new(rows, None)).unwrap();
        assert!(!json.contains("null"));
        insta::assert_snapshot!(json);
    }
}
