//! Markets, books and prices.

use paperbourse::limits::tier::Tier;
use serde_json::{Value, json};

use super::expect::Kind::{Decimal, Flag, Integer, List, Null, Object, Text, Time};
use super::expect::{check_error, check_fields, check_invalid};
use super::recording::{
    BOOKLESS, DEEP, MARKETS, ODD_FEE, PAUSED, PLAIN, RESOLVED, WITH_FEE, WITH_FEE_SLUG, other,
    token_id,
};
use super::server::shared;

fn ids(rows: &Value) -> Vec<&str> {
    rows.as_array().unwrap().iter().map(|row| row["condition_id"].as_str().unwrap()).collect()
}

fn list_of_markets(query: &str) -> Value {
    shared().get(format!("/v1/markets{query}")).ok(200)
}

fn levels(book: &Value, side: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let levels = book[side].as_array().unwrap();
    levels.iter().map(|level| (text(&level["price"]), text(&level["size"]))).collect()
}

fn level(price: &str, size: &str) -> (String, String) {
    (price.to_owned(), size.to_owned())
}

#[test]
fn a_row_describes_the_market_and_its_fee() {
    let rows = shared().get("/v1/markets?limit=1&offset=1").ok(200);
    let row = &rows[0];
    check_fields(
        row,
        &[
            ("id", Text),
            ("condition_id", Text),
            ("slug", Text),
            ("question", Text),
            ("image_url", Null),
            ("category", Text),
            ("display_label", Null),
            ("outcomes", List),
            ("active", Flag),
            ("closed", Flag),
            ("accepting_orders", Flag),
            ("is_hot", Flag),
            ("clob_token_ids", List),
            ("volume_24h", Decimal),
            ("volume_total", Decimal),
            ("last_price", Decimal),
            ("live_price", Object),
        ],
    );
    check_fields(
        &row["live_price"],
        &[
            ("buy", Decimal),
            ("sell", Decimal),
            ("outcomes", List),
            ("source", Text),
            ("updated_at", Time),
            ("volume", Decimal),
        ],
    );
    assert_eq!((&row["id"], &row["condition_id"]), (&json!(PLAIN), &json!(PLAIN)));
    assert_eq!(row["outcomes"], json!(["Yes", "No"]));
    assert_eq!(row["clob_token_ids"], json!([token_id(0, 0), token_id(0, 1)]));
}

#[test]
fn a_list_is_a_page_and_filtered() {
    let list = list_of_markets;
    let all = list("?limit=200");
    assert_eq!(ids(&all).len(), MARKETS);
    // By volume, then in the venue's order.
    assert_eq!(ids(&all)[..3], [DEEP, PLAIN, WITH_FEE]);
    assert_eq!(ids(&list("")), ids(&all)[..50]);
    assert_eq!(ids(&list("?limit=2&offset=1")), [PLAIN, WITH_FEE]);
    assert!(ids(&list("?offset=67")).is_empty());
    let last = other(59);
    for (query, expected) in [
        ("?q=THING%201%20HAPPEN", vec![DEEP]),
        ("?search=invented-market-66", vec![&*last]),
        ("?category=coin", vec![WITH_FEE]),
        ("?hot_only=true", vec![DEEP]),
        ("?hot_only=true&category=coin", vec![]),
        ("?q=nothing+like+that", vec![]),
    ] {
        assert_eq!(ids(&list(query)), expected, "{query}");
    }
    for active in ["active_only=true", "closed=false", "status=Active"] {
        let active = list(&format!("?limit=200&{active}"));
        assert_eq!(ids(&active).len(), MARKETS - 1);
        assert!(!ids(&active).contains(&RESOLVED));
    }
    for closed in ["closed=true", "status=closed", "status=resolved", "closed=1&status=resolved"] {
        assert_eq!(ids(&list(&format!("?{closed}"))), [RESOLVED], "{closed}");
    }
    assert!(ids(&list("?closed=true&active_only=true")).is_empty());
    // The hot market is the only one with another volume.
    let sorted = list("?sort=volume&ascending=true&limit=200");
    assert_eq!(ids(&sorted)[..MARKETS - 1], ids(&all)[1..]);
    assert_eq!(ids(&sorted)[MARKETS - 1], DEEP);
    for sort in ["volume24hr", "endDate", "volume_total"] {
        assert_eq!(list(&format!("?sort={sort}&limit=200")), all, "{sort}");
    }
    let long = "q".repeat(121);
    for (query, field) in [
        ("limit=0", "query.limit: greater_than_equal"),
        ("limit=201", "query.limit: less_than_equal"),
        ("offset=-1", "query.offset: greater_than_equal"),
        ("offset=x", "query.offset: int_parsing"),
        ("active_only=perhaps", "query.active_only: bool_parsing"),
        ("closed=", "query.closed: bool_parsing"),
        ("status=open-ish", "query.status: enum"),
        ("sort=liquidity", "query.sort: enum"),
        ("next_cursor=0", "query.next_cursor: value_error"),
        (&format!("q={long}"), "query.q: string_too_long"),
    ] {
        check_invalid(&shared().get(format!("/v1/markets?{query}")), &[field]);
    }
}

#[test]
fn a_cursor_leads_through_the_list() {
    let all = shared().get("/v1/markets?limit=200").ok(200);
    let mut listed = Vec::new();
    let mut cursor = "MA==".to_owned();
    while cursor != "LTE=" {
        let page = shared().get(format!("/v1/markets?limit=30&next_cursor={cursor}")).ok(200);
        check_fields(
            &page,
            &[("data", List), ("next_cursor", Text), ("limit", Integer), ("count", Integer)],
        );
        let rows = page["data"].as_array().unwrap();
        assert_eq!((&page["limit"], &page["count"]), (&json!(30), &json!(rows.len())));
        listed.extend(rows.clone());
        page["next_cursor"].as_str().unwrap().clone_into(&mut cursor);
    }
    assert_eq!(Value::Array(listed), all);
    let after = shared().get("/v1/markets?next_cursor=LTE=").ok(200);
    assert_eq!((&after["data"], &after["next_cursor"]), (&json!([]), &json!("LTE=")));
    let enveloped = shared().get("/v1/markets?limit=200&envelope=true").ok(200);
    assert_eq!((&enveloped["data"], &enveloped["next_cursor"]), (&all, &json!("LTE=")));
    let bare = shared().get("/v1/markets?limit=2&next_cursor=NQ==&envelope=false").ok(200);
    assert_eq!(ids(&bare), ids(&all)[5..7]);
}

#[test]
fn the_status_of_a_market_is_shown() {
    for (market, active, closed, accepting) in [
        (PLAIN, true, false, true),
        (PAUSED, true, false, false),
        (ODD_FEE, true, false, false),
        (RESOLVED, false, true, false),
    ] {
        let row = shared().get(format!("/v1/markets/{market}")).ok(200);
        let flags = [&row["active"], &row["closed"], &row["accepting_orders"]];
        assert_eq!(flags, [active, closed, accepting], "{market}");
    }
    let resolved = shared().get(format!("/v1/markets/{RESOLVED}")).ok(200);
    assert_eq!(resolved["resolved_outcome"], "Yes");
    assert_eq!(resolved["tokens"][0]["winner"], true);
    check_error(&shared().get("/v1/markets/0xnone"), 404, "MARKET_NOT_FOUND");
}

#[test]
fn a_market_is_found_by_its_slug() {
    let by_id = shared().get(format!("/v1/markets/{WITH_FEE}"));
    let by_slug = shared().get(format!("/v1/markets/by-slug/{WITH_FEE_SLUG}"));
    assert_eq!((by_slug.ok(200), by_slug.text), (by_id.ok(200), by_id.text));
    for slug in ["invented-market", "Invented-Market-1", "book", WITH_FEE] {
        let unknown = shared().get(format!("/v1/markets/by-slug/{slug}"));
        check_error(&unknown, 404, "MARKET_NOT_FOUND");
    }
}

#[test]
fn events_have_their_markets() {
    let list = |query: &str| shared().get(format!("/v1/events{query}")).ok(200);
    let all = list("?limit=200");
    check_fields(
        &all,
        &[("events", List), ("total", Integer), ("limit", Integer), ("offset", Integer)],
    );
    let first = &all["events"][0];
    check_fields(
        first,
        &[
            ("id", Text),
            ("slug", Text),
            ("title", Text),
            ("image", Null),
            ("category", Text),
            ("end_date", Time),
            ("is_hot", Flag),
            ("market_count", Integer),
            ("markets", List),
        ],
    );
    assert_eq!((&first["id"], &first["title"]), (&json!("55"), &json!("First things")));
    assert_eq!(ids(&first["markets"]), [DEEP, PLAIN]);
    assert_eq!(first["markets"][1], list_of_markets("?limit=1&offset=1")[0]);
    // The resolved market is no event of its own, and two markets share one.
    assert_eq!(all["total"], MARKETS - 2);
    assert_eq!(all["events"].as_array().unwrap().len(), MARKETS - 2);
    let second = &all["events"][1];
    assert_eq!((&second["id"], &second["slug"]), (&json!(WITH_FEE), &json!(WITH_FEE_SLUG)));

    let page = list("?limit=1&offset=1");
    assert_eq!((&page["events"][0], &page["total"]), (second, &all["total"]));
    let cut = list("?limit=1&markets_per_event=1");
    assert_eq!(ids(&cut["events"][0]["markets"]), [DEEP]);
    assert_eq!(cut["events"][0]["market_count"], 2);
    for (query, total) in [("?search=first+THINGS", 1), ("?category=coins", 1), ("?hot_only=1", 1)]
    {
        assert_eq!(list(query)["total"], total, "{query}");
    }
    check_invalid(&shared().get("/v1/events?offset=-1"), &["query.offset: greater_than_equal"]);
}

#[test]
fn markets_on_a_price_are_listed_with_their_windows() {
    let list = shared().get("/v1/markets/updown").ok(200);
    check_fields(
        &list,
        &[
            ("markets", List),
            ("total", Integer),
            ("interval_counts", Object),
            ("available_intervals", List),
            ("asset_counts", Object),
            ("available_assets", List),
            ("crypto_prices", Object),
            ("timestamp", Time),
        ],
    );
    let row = &list["markets"][0];
    assert_eq!((&list["total"], &row["condition_id"]), (&json!(1), &json!(WITH_FEE)));
    assert_eq!((&row["asset"], &row["interval"]), (&json!("COIN"), &json!("5M")));
    assert_eq!(row["start_date"], "2026-01-31T23:55:00Z");
    assert_eq!(row["end_date"], "2026-02-01T00:00:00Z");
    assert_eq!(
        row["live_price"],
        json!({"buy": 0.49, "sell": 0.51, "updated_at": "2026-01-10T10:00:05Z"})
    );
    let token_ids: Value =
        serde_json::from_str(row["markets"][0]["token_ids"].as_str().unwrap()).unwrap();
    assert_eq!(token_ids, json!([token_id(2, 0), token_id(2, 1)]));
    assert_eq!(list["interval_counts"], json!({"5M": 1, "15M": 0, "1H": 0, "4H": 0, "daily": 0}));
    assert_eq!(list["available_intervals"], json!(["5M"]));
    assert_eq!((&list["asset_counts"], &list["crypto_prices"]), (&json!({"COIN": 1}), &json!({})));

    let rows =
        |query: &str| shared().get(format!("/v1/markets/updown{query}")).ok(200)["markets"].clone();
    for (query, expected) in
        [("?asset=coin", 1), ("?asset=BTC", 0), ("?interval=5m", 1), ("?interval=daily", 0)]
    {
        assert_eq!(rows(query).as_array().unwrap().len(), expected, "{query}");
    }
    assert_eq!(shared().get("/markets/updown").ok(200)["markets"], list["markets"]);
    let invalid = shared().get("/v1/markets/updown?interval=7M&limit=0");
    check_invalid(&invalid, &["query.interval: enum", "query.limit: greater_than_equal"]);
    for (query, asset, intervals) in [
        ("", Value::Null, json!(["5M"])),
        ("?asset=coin", json!("coin"), json!(["5M"])),
        ("?asset=BTC", json!("BTC"), json!([])),
    ] {
        let shown = shared().get(format!("/v1/markets/updown/intervals{query}")).ok(200);
        assert_eq!((&shown["asset"], &shown["available_intervals"]), (&asset, &intervals));
    }
}

#[test]
fn a_token_leads_to_its_market() {
    for (place, market, labels) in [(0, PLAIN, ["Yes", "No"]), (2, WITH_FEE, ["Up", "Down"])] {
        for (index, label) in labels.into_iter().enumerate() {
            let token = token_id(place, index);
            let expected = json!({
                "condition_id": market, "primary_token_id": token, "secondary_token_id": null,
                "outcome": label,
            });
            let shown = shared().get(format!("/v1/markets-by-token/{token}")).ok(200);
            assert_eq!(shown, expected);
        }
    }
    check_error(&shared().get("/v1/markets-by-token/1"), 404, "TOKEN_NOT_FOUND");
}

#[test]
fn fee_rates() {
    let rate = |token: &str| shared().get(format!("/v1/fee-rate?token_id={token}"));
    let free = json!({"base_fee": 0, "fee_rate_bps": 0});
    assert_eq!(rate(&token_id(0, 1)).ok(200), free);
    // The recording's rate of 0.05.
    let five_percent = json!({"base_fee": 1000, "fee_rate_bps": 500});
    assert_eq!(rate(&token_id(2, 0)).ok(200), five_percent);
    check_error(&rate(&token_id(5, 0)), 404, "FEE_RATE_NOT_FOUND");
    check_error(&rate("1"), 404, "TOKEN_NOT_FOUND");
    for token in ["", "0xabc", "7e5"] {
        check_error(&rate(token), 400, "INVALID_TOKEN_ID");
    }
    check_error(&shared().get("/v1/fee-rate"), 400, "INVALID_TOKEN_ID");
}

#[test]
fn a_book_has_the_best_level_last() {
    let by_market = shared().get(format!("/v1/markets/{PLAIN}/book")).ok(200);
    check_fields(
        &by_market,
        &[
            ("token_id", Text),
            ("market", Text),
            ("asset_id", Text),
            ("hash", Null),
            ("timestamp", Text),
            ("bids", List),
            ("asks", List),
            ("min_order_size", Decimal),
            ("tick_size", Decimal),
            ("neg_risk", Flag),
            ("last_trade_price", Text),
            ("mid", Decimal),
            ("spread", Decimal),
        ],
    );
    assert_eq!(by_market["last_trade_price"], "0.490");
    assert_eq!(levels(&by_market, "bids"), [level("0.47", "200"), level("0.48", "100")]);
    assert_eq!(levels(&by_market, "asks"), [level("0.53", "1000"), level("0.5", "100")]);
    let by_token = shared().get(format!("/v1/book?token_id={}", token_id(0, 0))).ok(200);
    assert_eq!(by_token, by_market);
    let mirror = shared().get(format!("/v1/markets/{PLAIN}/book?outcome=no")).ok(200);
    assert_eq!(levels(&mirror, "asks"), [level("0.53", "200"), level("0.52", "100")]);
    assert_eq!(levels(&mirror, "bids"), [level("0.47", "1000"), level("0.5", "100")]);
    assert_eq!(mirror, shared().get(format!("/v1/book?token_id={}", token_id(0, 1))).ok(200));
}

#[test]
fn a_book_is_cut_to_a_depth() {
    for path in
        [format!("/v1/markets/{PLAIN}/book?x=y"), format!("/v1/book?token_id={}", token_id(0, 0))]
    {
        let best = shared().get(format!("{path}&depth=1")).ok(200);
        assert_eq!(levels(&best, "bids"), [level("0.48", "100")]);
        assert_eq!(levels(&best, "asks"), [level("0.5", "100")]);
        let all = shared().get(format!("{path}&depth=500")).ok(200);
        assert_eq!(all, shared().get(&*path).ok(200));
        for (depth, kind) in
            [("0", "greater_than_equal"), ("501", "less_than_equal"), ("x", "int_parsing")]
        {
            let response = shared().get(format!("{path}&depth={depth}"));
            check_invalid(&response, &[&format!("query.depth: {kind}")]);
        }
    }
}

#[test]
fn missing_books() {
    check_error(&shared().get("/v1/markets/0xnone/book"), 404, "MARKET_NOT_FOUND");
    let unknown = shared().get(format!("/v1/markets/{PLAIN}/book?outcome=Maybe"));
    check_error(&unknown, 404, "OUTCOME_NOT_FOUND");
    let bookless = shared().get(format!("/v1/markets/{BOOKLESS}/book"));
    check_error(&bookless, 404, "BOOK_UNAVAILABLE");
    check_error(&shared().get("/v1/book?token_id=1"), 404, "TOKEN_NOT_FOUND");
    check_invalid(&shared().get("/v1/book"), &["query.token_id: missing"]);
    let empty = shared().get("/v1/book?token_id=");
    check_invalid(&empty, &["query.token_id: string_too_short"]);
}

#[test]
fn prices_come_in_the_requested_order() {
    let account = shared().account();
    let wanted = [WITH_FEE, "0xnone", PLAIN, BOOKLESS, PLAIN];
    let rows = account.post("/v1/prices/batch", &json!({"market_ids": wanted})).ok(200);
    assert_eq!(ids(&rows), wanted);
    let priced = [
        ("condition_id", Text),
        ("buy", Decimal),
        ("sell", Decimal),
        ("outcomes", List),
        ("source", Text),
        ("updated_at", Time),
    ];
    check_fields(&rows[0], &priced);
    check_fields(&rows[2], &priced);
    check_fields(
        &rows[0]["outcomes"][0],
        &[("label", Text), ("price", Decimal), ("token_id", Text)],
    );
    assert_eq!(rows[0]["outcomes"][1]["label"], "Down");
    assert_eq!(rows[1], json!({"condition_id": "0xnone"}));
    assert_eq!((&rows[3]["buy"], &rows[3]["updated_at"]), (&Value::Null, &Value::Null));
}

#[test]
fn prices_are_capped() {
    let asks = |tier: &str, count: usize| {
        let tier_claim = Tier::parse(tier);
        let account = shared().account_with(&json!({"tier": tier}), tier_claim);
        let wanted: Vec<String> = (0..count).map(other).collect();
        account.post("/v1/prices/batch", &json!({"market_ids": wanted}))
    };
    for (tier, most) in [("free", 5), ("pro", 20), ("enterprise", 50)] {
        assert_eq!(asks(tier, most).ok(200).as_array().unwrap().len(), most);
        let response = asks(tier, most + 1);
        if most < 50 {
            check_error(&response, 400, "BATCH_LIMIT_EXCEEDED");
        } else {
            check_invalid(&response, &["body.market_ids: too_long"]);
        }
    }
    let account = shared().account();
    for (body, fields) in [
        (json!({}), &["body.market_ids: missing"][..]),
        (json!({"market_ids": []}), &["body.market_ids: too_short"]),
        (json!({"market_ids": "m"}), &["body.market_ids: list_type"]),
        (
            json!({"market_ids": ["m", "", 7, "m".repeat(257)]}),
            &[
                "body.market_ids.1: string_too_short",
                "body.market_ids.2: string_type",
                "body.market_ids.3: string_too_long",
            ],
        ),
    ] {
        check_invalid(&account.post("/v1/prices/batch", &body), fields);
    }
}
