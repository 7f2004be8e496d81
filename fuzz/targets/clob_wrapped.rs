//! Signatures of deposit wallets, which wrap that of the account.
//!
//! The first byte is the number of an order, and the signature to try in place of its own follows.
//! Only its own is accepted.

use paperbourse_clob::order::{Caller, MarketFacts, MarketKind, OrderError, PostedOrder};
use paperbourse_clob::signature::address::Address;

const ADDRESS: &str = "0x1a642f0e3c3af545e7acbd38b07251b3990914f1";
const API_KEY: &str = "d05bcbb9-efbd-47b6-a124-639933a50049";
const TICK_MICROS: u64 = 10_000;

/// Orders of such wallets, seeds of `clob_order`: for a standard market, for a neg-risk one on the
/// test chain, and for position ids.
const ORDERS: [&str; 3] = [
    include_str!("../seeds/clob_order/deposit"),
    include_str!("../seeds/clob_order/deposit_amoy_post_only"),
    include_str!("../seeds/clob_order/position_deposit"),
];

pub(crate) fn run(input: &[u8]) {
    let Some((number, signature)) = input.split_first() else { return };
    let number = usize::from(number.wrapping_sub(b'0'));
    let Some(order) = ORDERS.get(number) else { return };
    let own = own_signature(order);
    let tried = signature.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let expected = if tried == own { Ok(()) } else { Err(OrderError::Signature) };
    assert_eq!(verify(&order.replacen(own, &tried, 1)), expected);
}

/// The digits of the signature in the body of an order.
fn own_signature(order: &str) -> &str {
    let (_, rest) = order.split_once("\"signature\":\"0x").expect("an order is signed");
    rest.split('"').next().expect("text splits into one or more")
}

/// Verifies an order: the kind of its market, as in `clob_order`, and the body.
fn verify(order: &str) -> Result<(), OrderError> {
    let (kind, body) = order.split_at(1);
    let kind = match kind {
        "s" => MarketKind::Standard,
        "n" => MarketKind::NegRisk,
        _ => MarketKind::Position,
    };
    let market = MarketFacts { kind, tick_micros: TICK_MICROS };
    let address = Address::parse(ADDRESS).expect("an address");
    let caller = Caller { address, api_key: API_KEY };
    let posted = PostedOrder::parse(body.as_bytes())?;
    posted.verify(&caller, &market).map(|_| ())
}
