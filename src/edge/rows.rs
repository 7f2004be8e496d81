//! Orders and trades as clients see them, in answers and on sockets.

pub(crate) mod clob_order;
pub(crate) mod clob_trade;
pub(crate) mod settlement;
pub(crate) mod stage;

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, digest};
use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use paperbourse_clob::signature::address::Address;
use paperbourse_core::engine::fills::fill::Fill;
use paperbourse_core::ids::{AccountId, OrderId, Timestamp};
use paperbourse_core::money::Usd;
use paperbourse_core::wire::Decimal;

/// Length of the text of a digest: `0x` and 64 hexadecimal digits.
const DIGEST_BYTES: usize = 66;

/// A fill is final as soon as it is shown.
pub(crate) const CONFIRMED: &str = "CONFIRMED";

/// A wallet and the API key with which it has signed, as rows show them.
pub(crate) struct Party<'a> {
    pub(crate) owner: &'a str,
    pub(crate) wallet: Address,
}

/// A time as text of whole seconds.
#[derive(JsonSchema)]
#[schemars(inline)]
pub(crate) struct Seconds(
    #[schemars(with = "String", extend("pattern" = "^[0-9]+$"))] pub(crate) Timestamp,
);

/// An order that rested, in the venue's form.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "VenueMakerOrder")]
pub(crate) struct MakerOrderRow<'a> {
    pub(crate) order_id: String,
    pub(crate) owner: String,
    pub(crate) maker_address: String,
    pub(crate) matched_amount: Decimal,
    pub(crate) price: Decimal,
    pub(crate) fee_rate_bps: Decimal,
    pub(crate) asset_id: &'a str,
    pub(crate) outcome: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    pub(crate) side: &'static str,
}

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.seconds())
    }
}

/// Whether text is the digest of an order: `0x` and 64 hexadecimal digits in lower case.
pub(crate) fn is_digest(text: &str) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == DIGEST_BYTES && text.strip_prefix("0x").is_some_and(|it| it.bytes().all(is_digit))
}

/// Returns the id under which clients know an order with this number and client order id.
pub(crate) fn order_id(order: OrderId, client_order_id: Option<&str>) -> Cow<'_, str> {
    match client_order_id.filter(|id| is_digest(id)) {
        Some(digest) => digest.into(),
        None => order.to_string().into(),
    }
}

/// Returns the rate of a fill's fee, in basis points.
pub(crate) fn fee_rate_bps(fill: &Fill) -> Decimal {
    // A rate in millionths, times 10,000, is basis points in millionths.
    Usd::from_micros(fill.fee_rate.micros() * 10_000).into()
}

/// Returns a hash in place of that of the transaction that settles a fill: `0x` and 64 hexadecimal
/// digits, always the same for the same fill. `part` is the fill's number within its order.
pub(crate) fn transaction_hash(order: OrderId, part: u32) -> String {
    hash_of("transaction", order, part)
}

/// Returns a hash in place of that of the transaction that redeems a position, like
/// [`transaction_hash`]. `number` is the position's number within its account.
pub(crate) fn payout_hash(account: Option<AccountId>, number: u64) -> String {
    let account = account.map_or(0, AccountId::get);
    made_up_hash(&format!("paperbourse payout {account}-{number}"))
}

/// Returns a made-up hash that belongs to a fill.
pub(crate) fn hash_of(label: &str, order: OrderId, part: u32) -> String {
    made_up_hash(&format!("paperbourse {label} {order}-{part}"))
}

fn made_up_hash(name: &str) -> String {
    let digits = digest(&SHA256, name.as_bytes());
    digits.as_ref().iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
