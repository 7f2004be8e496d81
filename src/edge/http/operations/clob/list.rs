//! The caller's orders and trades, in pages and one by one.
//!
//! An order that was placed here is named by the digest that its wallet has signed, and has the
//! digest as its client order id. Any other is named by its number.

mod orders;
mod trades;

use serde::Serialize;

use super::auth::l2_headers;
use super::request;
use crate::http::call::Call;
use crate::http::cursor::{Cursor, END};
use crate::http::error::ClobError;
use crate::http::operations::order_fields::MARKET_ID_CHARACTERS_MAX;
use crate::http::query::OFFSET_MAX;
use crate::rows::{Party, is_digest};
use paperbourse_clob::signature::address::Address;
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::ids::OrderId;
use paperbourse_core::ids::condition::ConditionId;
use paperbourse_exchange::service::OnlyOrder;

pub(super) use orders::{find, get as order, list as orders};
pub(super) use trades::{Stages, list as trades};

/// Maximum number of rows in a page, the venue's. Clients cannot choose it.
const PAGE_ROWS: usize = 100;

/// A page of a list, with which clients ask for the next.
#[derive(Serialize)]
struct Page<Row> {
    data: Vec<Row>,
    /// `LTE=` on the last page.
    next_cursor: String,
    limit: usize,
    count: usize,
}

impl<Row> Page<Row> {
    fn new(data: Vec<Row>, next_cursor: Option<String>) -> Self {
        let next_cursor = next_cursor.unwrap_or_else(|| END.to_owned());
        Self { count: data.len(), data, next_cursor, limit: PAGE_ROWS }
    }
}

impl<'a> Party<'a> {
    /// Returns the wallet that has signed a request, and its API key.
    pub(in crate::http) fn of(call: &Call<'a>) -> Self {
        let headers = l2_headers(&call.head.headers).expect("its caller was identified by them");
        Self {
            owner: str::from_utf8(headers.api_key).expect("a known API key is a UUID"),
            wallet: Address::parse(headers.address).expect("it was compared with the wallet"),
        }
    }
}

/// Selects the order with this id, which is a digest or a number. Other text selects none.
pub(super) fn only_order(id: &str) -> OnlyOrder {
    let lower = id.to_ascii_lowercase();
    if is_digest(&lower) {
        OnlyOrder::Named(NameHash::of_order(&lower))
    } else {
        OnlyOrder::WithId(id.parse().ok().and_then(OrderId::from_raw))
    }
}

/// Reads the market and the token to which a list is restricted.
fn read_market(query: Option<&str>) -> Result<[Option<Box<str>>; 2], ClobError> {
    let read = |name, is_valid: fn(&str) -> bool, error| {
        let text = request::filled(query, name);
        let text = text.map(|text| if is_valid(&text) { Ok(text.into()) } else { Err(error) });
        text.transpose()
    };
    let is_market = |text: &str| {
        text.len() <= MARKET_ID_CHARACTERS_MAX
            && (!text.starts_with("0x") || ConditionId::of(text).is_some())
    };
    let is_token = |text: &str| text.len() <= MARKET_ID_CHARACTERS_MAX;
    let market_id = read("market", is_market, ClobError::INVALID_MARKET)?;
    Ok([market_id, read("asset_id", is_token, ClobError::INVALID_TOKEN)?])
}

/// Reads where a page begins: after a number of rows, as at the venue, or at a cursor of an earlier
/// page, which only `read` understands; `None` after the last page.
fn read_cursor<From>(
    query: Option<&str>,
    after: impl FnOnce(usize) -> From,
    read: impl FnOnce(&str) -> Option<From>,
) -> Result<Option<From>, ClobError> {
    let text = request::filled(query, "next_cursor").unwrap_or_default();
    if let Some(from) = read(&text) {
        return Ok(Some(from));
    }
    match Cursor::parse(&text) {
        Some(Cursor::At(rows)) if rows <= OFFSET_MAX => Ok(Some(after(rows))),
        Some(Cursor::End) => Ok(None),
        _ => Err(ClobError::INVALID_PAYLOAD),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{hash_of, order_id, payout_hash, transaction_hash};
    use paperbourse_core::ids::AccountId;

    const DIGEST: &str = "0x00000000000000000000000000000000000000000000000000000000deadbeef";

    fn order() -> OrderId {
        OrderId::from_raw(711).unwrap()
    }

    #[test]
    fn an_order_is_named_by_its_digest_or_its_number() {
        for (name, expected) in
            [(Some(DIGEST), DIGEST), (None, "711"), (Some("0xab"), "711"), (Some("mine"), "711")]
        {
            assert_eq!(order_id(order(), name), expected);
        }
        let upper = format!("0x{}", DIGEST[2..].to_uppercase());
        assert_eq!(order_id(order(), Some(&upper)), "711");
        for id in [DIGEST, &upper] {
            assert_eq!(only_order(id), OnlyOrder::Named(NameHash::of_order(DIGEST)));
        }
        assert_eq!(only_order("711"), OnlyOrder::WithId(Some(order())));
        for id in ["", "0x", "7x", "-1", &DIGEST[1..]] {
            assert_eq!(only_order(id), OnlyOrder::WithId(None), "{id}");
        }
    }

    #[test]
    fn each_fill_has_hashes_of_its_own() {
        let hash = transaction_hash(order(), 1);
        assert!(is_digest(&hash));
        // `printf 'paperbourse transaction 711-1' | sha256sum`
        let expected = "0x8a028eedd357d353fd4e6492868927ee80fd2ec0f9a37debe087ea50d9183557";
        assert_eq!(hash, expected);
        assert_ne!(hash, transaction_hash(order(), 2));
        assert_ne!(hash, hash_of("counterparty", order(), 1));
        let account = AccountId::from_raw(711);
        let payout = payout_hash(account, 1);
        assert!(is_digest(&payout));
        assert_ne!(payout, payout_hash(account, 2));
        assert_ne!(payout, hash);
    }

    #[test]
    fn filters_are_read_or_refused() {
        let read = |query: &str| read_market(Some(query));
        assert_eq!(read_market(None), Ok([None, None]));
        assert_eq!(read("market=&asset_id=&geo_block_token=x"), Ok([None, None]));
        let query = format!("asset_id=77&market={DIGEST}");
        assert_eq!(read(&query), Ok([Some(DIGEST.into()), Some("77".into())]));
        assert_eq!(read("market=KXBTC"), Ok([Some("KXBTC".into()), None]));
        let long = "7".repeat(300);
        for market in ["0xabc", &*long] {
            assert_eq!(read(&format!("market={market}")), Err(ClobError::INVALID_MARKET));
        }
        assert_eq!(read(&format!("asset_id={long}")), Err(ClobError::INVALID_TOKEN));
        let cursor = |query: &str| read_cursor(Some(query), |rows| rows, |text| text.parse().ok());
        for query in ["", "next_cursor=", "next_cursor=MA==", "next_cursor=MA%3D%3D"] {
            assert_eq!(cursor(query), Ok(Some(0)), "{query}");
        }
        assert_eq!(cursor("next_cursor=7"), Ok(Some(7)));
        assert_eq!(cursor("next_cursor=LTE="), Ok(None));
        assert_eq!(cursor("next_cursor=x"), Err(ClobError::INVALID_PAYLOAD));
    }
}
