//! Rows that cannot be read, and names that are written in two ways.

use super::*;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};

/// What cannot be read is left out; everything else stays as it was.
#[test]
fn an_unreadable_row_affects_only_itself() {
    const SAME_AS_NUMBERS: &str = r#"[{"asset_id":"a1","market":"0xa","timestamp":1800000000000,
        "min_order_size":5,"tick_size":0.01,
        "bids":[{"price":0.4,"size":7}],"asks":[{"price":0.9,"size":"8"}]}]"#;
    const NOT_JSON: &str = r#"[{"asset_id":"a1","market":"0xa","timestamp":"1","bids":NaN},
        {"asset_id":"a2","market":"0xa","timestamp":"1800000000000",
        "bids":[{"price":"0.1","size":"7"}],"asks":[{"price":"0.9","size":"8"}]}]"#;
    const NO_TOKEN: &str = r#"[{"asset_id":[],"bids":7}]"#;
    const UNREAD: &str = "log UnreadableBooks";
    const LIVE: &str = "0.4 live 0.1 live";
    for (body, requests) in [
        // The venue has no book of `a2`.
        (SAME_AS_NUMBERS, "describe 0xa"),
        (NOT_JSON, UNREAD),
        (NO_TOKEN, UNREAD),
    ] {
        let mut scenario = Scenario::start();
        for (at_ms, step, _) in followed(vec![(60_000, Sweep, "")]) {
            scenario.take(at_ms, step);
        }
        let told = scenario.take(60_100, Answer(body));
        assert_eq!(told.split(" {").next(), Some(requests), "{body}");
        let is_missed = body == SAME_AS_NUMBERS;
        let expected = if is_missed { "0.4 live 0.1 stale" } else { "0.4 live 0.1 live" };
        assert_eq!(scenario.shown(), expected, "{body}");
    }
    let entry = |token: &str, price: &str| {
        format!(r#"{{"asset_id":"{token}","price":{price},"size":"3","side":"BUY"}}"#)
    };
    let changes = |entries: &[String]| {
        event("price_change", "0xa", &format!(r#","price_changes":[{}]"#, entries.join(",")))
    };
    for (text, requests, expected) in [
        // Trades and best prices change no book.
        (event("last_trade_price", "0xa", r#","asset_id":"a1","price":"""#), true, LIVE),
        (event("last_trade_price", "0xa", r#","asset_id":"a1","price":NaN"#), true, LIVE),
        (event("best_bid_ask", "0xa", r#","asset_id":"a1","best_bid":"much""#), true, LIVE),
        (
            event("last_trade_price", "0xa", r#","asset_id":"a1","price":0.5,"size":"","side":"""#),
            false,
            LIVE,
        ),
        (changes(&[entry("a1", "0.5"), entry("a2", r#""0.2""#)]), false, "0.5 live 0.2 live"),
        (changes(&[entry("a1", "NaN"), entry("a2", r#""0.2""#)]), true, "0.4 stale 0.2 live"),
        (changes(&[entry("a1", r#""0.5""#), entry("a2", "{}")]), true, "0.4 stale 0.1 stale"),
        (
            format!("[{},{}]", book("a1", "NaN", 1), book("a2", "0.2", 1)),
            true,
            "0.4 stale 0.2 live",
        ),
    ] {
        let is_logged = if requests { "log UnreadableMessage" } else { "" };
        check(followed(vec![(1, Frame(text), is_logged)]), expected);
    }
}

/// The catalogue writes 62 digits of a name, the other services 64.
#[test]
fn a_market_has_one_name_at_all_services() {
    let narrow = format!("0x{}", "a1".repeat(31));
    let wide = format!("{narrow}00");
    let described = |fields: &str| {
        let text = format!(
            r#"{{"conditionId":"{narrow}","version":"v2","outcomes":["Up","Down"],
                "positionIds":["1","2"],"active":true,"acceptingOrders":true,
                "enableOrderBook":true{fields}}}"#
        );
        gamma::market(&text).unwrap()
    };
    let mut scenario = Scenario::start();
    let asked = scenario.take(0, List(vec![described("")]));
    assert!(asked.contains(&format!("delay {narrow}")), "{asked}");
    let info = |scenario: &Scenario, id: &str| {
        let market = scenario.follower.books().markets().by_condition(id).unwrap();
        MarketInfo::clone(&market.info())
    };
    scenario.take(1, Open(1));
    let compact = clob::compact_market(&format!(r#"{{"c":"{wide}","itode":true}}"#)).unwrap();
    let now = Stamp { elapsed: Duration::ZERO, time: Timestamp::from_millis(START_MS) };
    scenario.follower.delay_described(&compact, now);
    scenario.take(
        2,
        Frame(event("tick_size_change", &wide, r#","asset_id":"1","new_tick_size":"0.001""#)),
    );
    for id in [&narrow, &wide] {
        let info = info(&scenario, id);
        assert_eq!((&*info.condition_id, info.has_unstated_delay), (&*narrow, true));
        assert_eq!(info.tick.to_string(), "0.001");
    }
    let told =
        scenario.take(3, Frame(event("market_resolved", &wide, r#","winning_asset_id":"1""#)));
    assert!(told.contains(&format!("describe {narrow}")), "{told}");
    assert_eq!(info(&scenario, &wide).status, MarketStatus::Closed);
    // An announcement of a known market is not news.
    let known = event("new_market", &wide, r#","outcomes":["Up","Down"],"assets_ids":["1","2"]"#);
    assert_eq!(scenario.take(4, Frame(known)), "");
    let ended = described(r#","closed":true,"umaResolutionStatus":"proposed""#);
    let row =
        format!(r#"{{"data":[{{"condition_id":"{wide}","status":"resolved","payouts":[1,0]}}]}}"#);
    let data = crate::polymarket::wire::data::resolution(&row, &ended).unwrap();
    assert!(data.is_some_and(|data| data.shown_payouts.is_some()));
}
