//! Faults of what a server depends on: its venue, and its identity provider.

use super::*;
use crate::standin::{Endpoint, EndpointFault, Fault, Injection, Payout, Which, now_us};

/// More changes than books can wait for the orders that they reach.
const BURST: usize = 10_000;

/// The market in which the burst happens. An order rests at its best bid.
const BURST_MARKET: usize = 0;
const BURST_PRICE: &str = "0.3";

/// The market that is resolved.
const RESOLVED_MARKET: usize = 1;

/// The flags of a server that follows this venue.
pub(super) fn following(venue: &StandIn) -> Vec<String> {
    let mut command = Command::new("");
    let flags = Served::follow(&mut command, venue, &["--venue-markets", "2"]).get_args();
    flags.map(|flag| flag.to_str().unwrap().to_owned()).collect()
}

/// A server that follows this venue, and whose books are fresh.
pub(super) fn follower(venue: &StandIn) -> Bourse {
    let flags = following(venue);
    let bourse = Bourse::start(&flags.iter().map(String::as_str).collect::<Vec<_>>());
    until_fresh(&bourse);
    bourse
}

fn until_fresh(bourse: &Bourse) {
    until(|| {
        let ready = Request::get("/v1/health/ready");
        let answer = Connection::open(bourse.server.address).send(&ready).json();
        if answer["status"] == "ok" { Ok(()) } else { Err(answer.to_string()) }
    });
}

/// The venue falls silent, and a bot goes on.
pub(super) fn fall_silent(venue: &StandIn, bourse: &Bourse, stage: &Stage<'_>) {
    venue.misbehave(Which::Every, Fault::Freeze { has_pong: false });
    let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
    venue.misbehave_at(Endpoint::Books, refused, u32::MAX);
    let mut trader = bourse.trader(&bourse.data()).in_market(condition_id(0));
    while !stage.is_over_soon() {
        trader.trade();
    }
}

/// The venue's hashes are wrong from now on.
pub(super) fn lie(venue: &StandIn, stage: &Stage<'_>) {
    venue.misbehave(Which::Every, Fault::CorruptHash { frames: u32::MAX });
    let mut sizes = 1..;
    while !stage.is_over_soon() {
        let size: u64 = sizes.next().unwrap();
        venue.change_level(&token_id(0, 0), Side::Buy, "0.02", &size.to_string());
    }
}

/// Sends in one frame more changes that may fill an order at rest than can wait for it.
pub(super) fn burst(venue: &StandIn, bourse: &Bourse, stage: &Stage<'_>) {
    let resting = json!({
        "market_id": condition_id(BURST_MARKET), "outcome": "Yes", "side": "BUY",
        "order_type": "limit", "price": BURST_PRICE, "quantity": 1_000_000,
    });
    let placed = bourse.trader(&bourse.data()).send(Request::post("/v1/orders", &resting)).ok(200);
    assert_eq!(placed["status"], "PENDING", "{placed}");
    let mut shown = 0;
    while !stage.is_over_soon() {
        let changes = (shown + 1..=shown + BURST).map(|size| change(Side::Sell, size));
        let changes: Vec<String> = [change(Side::Buy, 0)].into_iter().chain(changes).collect();
        let frame = format!("[{}]", changes.join(","));
        venue.inject(Which::Of(&token_id(BURST_MARKET, 0)), Injection::Text(&frame));
        shown += BURST;
    }
}

/// A change of the size shown at the price of the order, without a hash.
fn change(side: Side, size: usize) -> String {
    let entry = json!({
        "asset_id": token_id(BURST_MARKET, 0), "price": BURST_PRICE, "size": size.to_string(),
        "side": side.text(),
    });
    json!({
        "event_type": "price_change", "market": condition_id(BURST_MARKET),
        "timestamp": (now_us() / 1000).to_string(), "price_changes": [entry],
    })
    .to_string()
}

/// Uses up the journal of a server whose disk is full, and resolves a market in which it owes.
pub(super) fn resolve_unpaid(venue: &StandIn, trader: Trader, stage: &Stage<'_>) {
    let mut trader = trader.in_market(condition_id(RESOLVED_MARKET));
    while trader.trade() == 200 && !stage.is_over() {}
    venue.resolve(&condition_id(RESOLVED_MARKET), Payout::Winner(0));
}

/// The flags of a server whose identity provider cannot be reached.
pub(super) fn without_provider() -> [String; 4] {
    let issuer = format!("oidc:https://{NOBODY}/");
    ["--identity".to_owned(), issuer, "--audience".to_owned(), "paperbourse".to_owned()]
}

/// Asks with an access token that nobody can check.
pub(super) fn ask_with_token(bourse: &Bourse, stage: &Stage<'_>) {
    // The header is `{"alg":"EdDSA","kid":"k"}`, and there is nothing in the claims.
    const TOKEN: &str = "eyJhbGciOiJFZERTQSIsImtpZCI6ImsifQ.e30.AAAA";
    while !stage.is_over_soon() {
        let request = Request::get("/v1/account/balance").bearer(TOKEN);
        Connection::open(bourse.server.address).send(&request);
    }
}
