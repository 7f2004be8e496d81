//! Gamma, the venue's catalogue: below `/gamma` and at the venue's host.

use std::collections::BTreeSet;

use paperbourse::http::operations::clob::gamma::GAMMA;
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::clob::{add_markets, transcript};
use super::recording::{
    BOOKLESS, DEEP, MARKETS, ODD_FEE, OTHERS, PAUSED, PLAIN, RESOLVED, WITH_FEE, WITH_FEE_SLUG,
    token_id,
};
use super::server::{Server, shared, shared_with_clob as server};

const HOST: &str = "gamma-api.polymarket.com";

/// Filters that both lists have, by what this server does not know.
const UNKNOWN: [&str; 9] = [
    "cyom=false",
    "game_id=1",
    "liquidity_min=1",
    "liquidity_max=1",
    "start_date_min=2020-01-01",
    "start_date_max=2030-01-01",
    "tag_id=1",
    "version=v1",
    "featured=true",
];

/// Parameters that select nothing.
const IGNORED: &str = "include_tag=true&include_chat=true&locale=de&related_tags=true&\
                       decimalized=true&tag_match=any&geo_block_token=x&tag_id=&game_id=";

#[track_caller]
fn rows(path: &str) -> Vec<Value> {
    let answer = server().get(path).ok(200);
    answer.as_array().unwrap().clone()
}

fn names(rows: &[Value], key: &str) -> BTreeSet<String> {
    rows.iter().map(|row| row[key].as_str().unwrap().to_owned()).collect()
}

/// Returns the list in a text.
fn list(text: &Value) -> Value {
    serde_json::from_str(text.as_str().unwrap()).unwrap()
}

/// Paths of requests for things of every kind, without the folder.
fn paths() -> Vec<String> {
    let coin = rows(&format!("/gamma/markets?slug={WITH_FEE_SLUG}"));
    let id = coin[0]["id"].as_str().unwrap();
    let markets = [DEEP, PAUSED, ODD_FEE, BOOKLESS];
    let markets = markets.map(|cid| format!("/markets?condition_ids={cid}"));
    let fixed = [
        "/markets?limit=1&order=volumeNum&ascending=false",
        "/markets/keyset?limit=1",
        "/markets/keyset?slug=no-such-market",
        "/events?slug=first-things",
        "/events/55",
        "/events/slug/first-things",
        "/events/slug/invented-market-6",
        "/events/keyset?limit=1",
        "/events/55/tags",
        "/public-search?q=FIRST+things&limit_per_type=1",
        "/public-search?q=no+such+thing",
    ]
    .map(String::from);
    let resolved = format!("/markets?condition_ids={RESOLVED}&closed=true");
    let single = [
        format!("/markets/{id}"),
        format!("/markets/{id}/tags"),
        format!("/markets/slug/{WITH_FEE_SLUG}"),
    ];
    markets.into_iter().chain([resolved]).chain(single).chain(fixed).collect()
}

fn below(path: &str) -> Request {
    Request::get(format!("/gamma{path}"))
}

#[test]
fn the_catalogue_is_answered_as_the_venue_does() {
    let requests: Vec<_> = paths().iter().map(|path| below(path)).collect();
    insta::assert_snapshot!(transcript(server(), requests));
}

#[test]
fn the_status_is_plain_text() {
    for request in [below("/status"), Request::get("/status").host(HOST)] {
        let status = server().send(&request);
        assert_eq!((status.status, &*status.text), (200, "OK"));
        assert_eq!(status.header("content-type"), Some("text/plain; charset=utf-8"));
    }
}

#[test]
fn what_this_server_lacks_is_empty_or_not_found() {
    let requests = GAMMA.iter().skip_while(|row| row.path.as_str() != "/gamma/tags").map(|row| {
        let parameter = format!("{{{}}}", row.path.parameter());
        Request::get(row.path.as_str().replace(&parameter, "77"))
    });
    insta::assert_snapshot!(transcript(server(), requests));
}

#[test]
fn refusals_have_the_venues_texts() {
    let requests = [
        "/markets/77",
        "/markets/77/tags",
        "/markets/0x77",
        "/markets/99999999999999999999999",
        "/markets/slug/no-such-market",
        "/events/77",
        "/events/77/tags",
        "/events/slug/no-such-event",
        "/markets?limit=x",
        "/markets?offset=-1",
        "/markets?closed=maybe",
        "/markets?id=x",
        "/markets?volume_num_min=much",
        "/markets?end_date_max=soon",
        "/markets/keyset?after_cursor=x",
        "/markets/keyset?offset=1",
        "/events?closed=maybe",
        "/events/keyset?after_cursor=LTI=",
        "/events?volume_max=much",
        "/public-search",
        "/public-search?q=x&page=-1",
    ];
    insta::assert_snapshot!(transcript(server(), requests.map(below)));
}

#[test]
fn at_the_venues_host_the_answers_are_the_same() {
    // The second host is one that a proxy passes on, with a port.
    for path in paths().iter().map(String::as_str).chain(["/markets/x", "/events/x", "/tags/1"]) {
        let expected = server().send(&below(path));
        for host in [HOST, "Gamma-API.example.org:8080"] {
            for path in [path.to_owned(), format!("/gamma{path}")] {
                let found = server().send(&Request::get(&*path).host(host));
                assert_eq!((found.status, &found.text), (expected.status, &expected.text));
            }
        }
    }
    // Elsewhere, the list at the root is that of the order book's interface, and this server's own
    // paths are the same everywhere.
    assert!(server().get("/markets").ok(200)["data"].is_array());
    let own = |host| server().send(&Request::get("/v1/markets?limit=1").host(host)).text;
    assert_eq!(own(HOST), own("test"));
    let head = server().send(&Request::new("HEAD", "/events").host(HOST));
    assert_eq!(head.status, 200);
    let wrong = server().send(&Request::new("POST", "/events").host(HOST));
    assert_eq!((wrong.status, wrong.header("allow")), (405, Some("GET, HEAD")));
}

#[test]
fn without_the_option_each_path_is_answered_as_before() {
    for row in &GAMMA {
        let parameter = format!("{{{}}}", row.path.parameter());
        let path = row.path.as_str().replace(&parameter, "77");
        let response = shared().get(&*path);
        assert_eq!(response.status, 404, "{row:?}");
        assert_eq!(response.header("x-polysim-code"), Some("NOT_FOUND"), "{row:?}");
        // The host makes no difference.
        let rest = path.strip_prefix("/gamma").unwrap();
        let [at, off] = [HOST, "test"].map(|host| shared().send(&Request::get(rest).host(host)));
        let start = |response: &Response| response.text.split("request").next().map(str::to_owned);
        assert_eq!((at.status, start(&at)), (off.status, start(&off)), "{row:?}");
    }
}

/// Checks a market against the order book's interface and this server's own.
fn check_market(row: &Value, long: &Value, own: &Value) {
    let tokens = long["tokens"].as_array().unwrap();
    let of_tokens = |key: &str| tokens.iter().map(|it| it[key].clone()).collect::<Value>();
    assert_eq!(list(&row["outcomes"]), of_tokens("outcome"), "{row}");
    assert_eq!(list(&row["clobTokenIds"]), of_tokens("token_id"), "{row}");
    for (key, other) in [
        ("conditionId", "condition_id"),
        ("question", "question"),
        ("slug", "market_slug"),
        ("endDate", "end_date_iso"),
        ("active", "active"),
        ("closed", "closed"),
        ("archived", "archived"),
        ("acceptingOrders", "accepting_orders"),
        ("enableOrderBook", "enable_order_book"),
        ("orderPriceMinTickSize", "minimum_tick_size"),
        ("orderMinSize", "minimum_order_size"),
        ("negRisk", "neg_risk"),
        ("makerBaseFee", "maker_base_fee"),
        ("takerBaseFee", "taker_base_fee"),
    ] {
        assert_eq!(row[key], long[other], "{key} of {row}");
    }
    assert_eq!(row["volume"], own["volume_total"], "{row}");
    assert_eq!(row["volumeNum"].to_string(), own["volume_total"].as_str().unwrap(), "{row}");
    assert_eq!(row["volume24hr"].to_string(), own["volume_24h"].as_str().unwrap(), "{row}");
    assert_eq!(row["category"], own["category"], "{row}");
    let prices = row.get("outcomePrices").map(list);
    if prices.is_none() {
        // Nothing is known of it but its description.
        assert_eq!(row["conditionId"], BOOKLESS);
        assert!(row.get("bestBid").is_none() && row.get("lastTradePrice").is_none());
        return;
    }
    for (price, token) in prices.unwrap().as_array().unwrap().iter().zip(tokens) {
        assert_eq!(price.as_str().unwrap(), token["price"].to_string(), "{row}");
    }
    let number = |key: &str| row[key].as_f64();
    match (number("bestBid"), number("bestAsk"), number("spread")) {
        (Some(bid), Some(ask), Some(spread)) => {
            let token = tokens[0]["token_id"].as_str().unwrap();
            let book = server().get(format!("/book?token_id={token}")).ok(200);
            let best = |side: &str| {
                let level = book[side].as_array().unwrap().last().unwrap().clone();
                level["price"].as_str().unwrap().parse::<f64>().unwrap()
            };
            assert_eq!((bid, ask), (best("bids"), best("asks")), "{row}");
            assert!((ask - bid - spread).abs() < 1e-9, "{row}");
        }
        none => {
            assert_eq!(none, (None, None, None), "{row}");
            assert_eq!(row["umaResolutionStatus"], "resolved");
        }
    }
}

#[test]
fn values_are_those_of_the_other_interfaces() {
    let mut markets = rows("/gamma/markets?limit=500");
    markets.extend(rows("/gamma/markets?limit=500&closed=true"));
    let long = server().get("/markets").ok(200);
    let long = long["data"].as_array().unwrap();
    assert_eq!((markets.len(), long.len()), (MARKETS, MARKETS));
    for row in &markets {
        let is_it = |it: &&Value| it["condition_id"] == row["conditionId"];
        let own = server().get(format!("/v1/markets/{}", row["conditionId"].as_str().unwrap()));
        check_market(row, long.iter().find(is_it).unwrap(), &own.ok(200));
        let by_id = server().get(format!("/gamma/markets/{}", row["id"].as_str().unwrap()));
        assert_eq!(by_id.ok(200), *row);
        let by_slug =
            server().get(format!("/gamma/markets/slug/{}", row["slug"].as_str().unwrap()));
        assert_eq!(by_slug.ok(200), *row);
    }
    assert_eq!(names(&markets, "id").len(), MARKETS, "ids differ");
}

#[test]
fn events_have_all_their_markets() {
    let events = rows("/gamma/events?limit=500");
    // Two markets share an event, and each other one is an event of its own.
    assert_eq!(events.len(), MARKETS - 1);
    let mut seen = 0;
    for event in &events {
        let id = event["id"].as_str().unwrap();
        let (by_id, by_slug) = (
            server().get(format!("/gamma/events/{id}")),
            server().get(format!("/gamma/events/slug/{}", event["slug"].as_str().unwrap())),
        );
        assert_eq!((&by_id.ok(200), &by_slug.ok(200)), (event, event));
        for market in event["markets"].as_array().unwrap() {
            let whole = server().get(format!("/gamma/markets/{}", market["id"].as_str().unwrap()));
            let mut whole = whole.ok(200);
            let names = json!({"id": id, "slug": event["slug"], "title": event["title"]});
            assert_eq!(whole.as_object_mut().unwrap().remove("events"), Some(json!([names])));
            assert_eq!(whole, *market);
            seen += 1;
        }
        let listed = rows(&format!("/gamma/markets?event_id={id}&limit=500"));
        let closed = rows(&format!("/gamma/markets?event_id={id}&closed=true"));
        assert_eq!(listed.len() + closed.len(), event["markets"].as_array().unwrap().len());
    }
    assert_eq!(seen, MARKETS);
}

#[test]
fn each_filter_of_markets_selects() {
    let coin = rows(&format!("/gamma/markets?slug={WITH_FEE_SLUG}"));
    let id = coin[0]["id"].as_str().unwrap();
    let no_token = token_id(0, 1);
    let (shout, open) = (PLAIN.to_uppercase().replace("0X", "0x"), MARKETS - 1);
    for (query, expected) in [
        (String::new(), open),
        ("closed=false&active=true&archived=false".into(), open),
        ("closed=true".into(), 1),
        ("active=false".into(), 0),
        ("archived=true".into(), 0),
        (format!("condition_ids={PLAIN}&condition_ids={DEEP}&condition_ids=0x1"), 2),
        (format!("condition_ids={shout}"), 1),
        (format!("condition_ids={RESOLVED}"), 0),
        (format!("condition_ids={RESOLVED}&closed=true"), 1),
        ("condition_ids=0x1".into(), 0),
        (format!("clob_token_ids={no_token}&clob_token_ids=1"), 1),
        (format!("clob_token_ids={no_token}&condition_ids={WITH_FEE}"), 0),
        (format!("slug={WITH_FEE_SLUG}&slug=invented-market-0"), 2),
        ("slug=no-such-market".into(), 0),
        (format!("id={id}&id=77"), 1),
        ("id=77".into(), 0),
        ("event_id=55".into(), 2),
        ("event_id=77".into(), 0),
        ("volume_num_min=9000.5".into(), 1),
        ("volume_num_max=1000.25".into(), open - 1),
        ("volume_num_min=1000.26&volume_num_max=9000".into(), 0),
        ("end_date_min=2026-02-01T00:00:00Z&end_date_max=2026-02-01".into(), open),
        ("end_date_min=2026-02-01T00:00:01Z".into(), 0),
        ("end_date_max=2026-01-31T23:59:59%2B00:00".into(), 0),
        ("uma_resolution_status=resolved&closed=true".into(), 1),
        ("uma_resolution_status=resolved".into(), 0),
        ("uma_resolution_status=proposed".into(), 0),
        (IGNORED.into(), open),
    ] {
        for (path, key) in [("/gamma/markets", ""), ("/gamma/markets/keyset", "markets")] {
            let answer = server().get(format!("{path}?limit=100&{query}")).ok(200);
            let found = if key.is_empty() { &answer } else { &answer[key] };
            assert_eq!(found.as_array().unwrap().len(), expected, "{path} {query}");
        }
    }
    let lists = ["market_maker_address=0x1", "question_ids=0x1", "sports_market_types=totals"];
    let protocol = ["onchain_event_ids=0x1", "request_ids=0x1", "position_ids=1", "rfq_enabled=1"];
    let more = ["liquidity_num_min=1", "liquidity_num_max=1", "rewards_min_size=1"];
    let all = lists.iter().chain(&protocol).chain(&more).chain(&UNKNOWN);
    for query in all.chain(&["resolution_status=active"]) {
        assert_eq!(rows(&format!("/gamma/markets?{query}")), [Value::Null; 0], "{query}");
        let page = server().get(format!("/gamma/markets/keyset?{query}"));
        assert_eq!(page.text, r#"{"markets":[]}"#, "{query}");
    }
}

#[test]
fn each_filter_of_events_selects() {
    let all = MARKETS - 1;
    for (query, expected) in [
        ("", all),
        ("closed=false&active=true&archived=false", all - 1),
        ("closed=true", 1),
        ("active=false", 0),
        ("archived=true", 0),
        ("slug=first-things&slug=invented-market-4", 2),
        ("slug=invented-market-4&closed=false", 0),
        // It is the slug of a market in another event.
        ("slug=invented-market-0", 0),
        ("id=55&id=77", 1),
        ("id=77", 0),
        ("title_search=FIRST", 1),
        ("title_search=invented+thing+0", 0),
        ("volume_min=10000.75", 1),
        ("volume_max=1000.25", all - 1),
        ("end_date_min=2026-02-01&end_date_max=2026-02-01", all),
        ("end_date_min=2026-02-02", 0),
        (IGNORED, all),
    ] {
        for (path, key) in [("/gamma/events", ""), ("/gamma/events/keyset", "events")] {
            let answer = server().get(format!("{path}?limit=500&{query}")).ok(200);
            let found = if key.is_empty() { &answer } else { &answer[key] };
            assert_eq!(found.as_array().unwrap().len(), expected, "{path} {query}");
        }
    }
    let more = ["series_id=1", "tag_slug=x", "exclude_tag_id=1", "live=true", "ended=true"];
    let times = ["event_date=2026-02-01", "event_week=1", "recurrence=daily"];
    let start = ["start_time_min=2026-01-01", "start_time_max=2026-01-01", "partner_slug=x"];
    for query in UNKNOWN.iter().chain(&more).chain(&times).chain(&start) {
        assert_eq!(rows(&format!("/gamma/events?{query}")), [Value::Null; 0], "{query}");
        let page = server().get(format!("/gamma/events/keyset?{query}"));
        assert_eq!(page.text, r#"{"events":[]}"#, "{query}");
    }
}

#[test]
fn lists_are_sorted_by_what_is_known() {
    for path in ["/gamma/markets", "/gamma/events"] {
        let volumes = |query: &str| -> Vec<f64> {
            let rows = rows(&format!("{path}?limit=500&closed=false&{query}"));
            let key = if path.ends_with("markets") { "volumeNum" } else { "volume" };
            rows.iter().map(|row| row[key].as_f64().unwrap()).collect()
        };
        let least = volumes("order=volume");
        assert!(least.is_sorted() && least.first() < least.last(), "{path}");
        let most = volumes("order=liquidity,volume_24hr,volume&order=x&ascending=false");
        assert_eq!(most.len(), least.len());
        // Without an order that is known, the most traded comes first.
        for query in ["", "ascending=true", "order=startDate", "order=volume&ascending=false"] {
            assert!(volumes(query).is_sorted_by(|left, right| left >= right), "{path} {query}");
        }
    }
}

#[test]
fn a_search_has_pages_and_finds_titles_and_questions() {
    let page = |query: &str| {
        let found = server().get(format!("/gamma/public-search?{query}")).ok(200);
        let count = found["events"].as_array().unwrap().len();
        (count, found["pagination"]["hasMore"] == true, found["pagination"]["totalResults"].clone())
    };
    let all = MARKETS - 1;
    for (query, expected) in [
        ("q=first+THINGS", (1, false, 1)),
        ("q=invented+thing+0", (1, false, 1)),
        ("q=invented", (10, true, all)),
        ("q=invented&limit_per_type=40", (40, true, all)),
        ("q=invented&limit_per_type=40&page=2", (all - 40, false, all)),
        ("q=invented&limit_per_type=40&page=3", (0, false, all)),
        ("q=invented&events_status=active&limit_per_type=100", (all - 1, false, all - 1)),
        ("q=invented&events_status=resolved", (1, false, 1)),
        ("q=invented&events_status=unheard-of", (0, false, 0)),
        ("q=invented&events_tag=x", (0, false, 0)),
        ("q=invented&exclude_tag_id=1", (0, false, 0)),
        ("q=invented&recurrence=daily", (0, false, 0)),
        ("q=invented&presets=x", (0, false, 0)),
        ("q=first&cache=true&keep_closed_markets=1&optimized=true&sort=volume", (1, false, 1)),
    ] {
        let (count, has_more, total) = expected;
        assert_eq!(page(query), (count, has_more, json!(total)), "{query}");
    }
}

/// Reads a list by cursor to its end, and returns the number of pages and the ids in them.
fn walk(server: &Server, path: &str, key: &str) -> (usize, Vec<String>) {
    let (mut cursor, mut pages, mut found) = (String::new(), 0, Vec::new());
    loop {
        let page = server.get(format!("{path}&after_cursor={cursor}")).ok(200);
        found.extend(page[key].as_array().unwrap().iter().map(|it| it["id"].to_string()));
        pages += 1;
        assert!(pages < 20, "it does not end");
        let Some(next) = page.get("next_cursor") else { return (pages, found) };
        next.as_str().unwrap().clone_into(&mut cursor);
    }
}

#[test]
fn pages_end_and_show_each_row_once() {
    const MORE: usize = 1_000;
    let on = ["--clob", "on"];
    let server = Server::after_with(|recording| add_markets(recording, MORE), &on);
    let open = MARKETS - 1 + MORE;
    // The added markets are of the first one's event, all of which are listed with it.
    let events = OTHERS + 6;
    for (path, key, pages, count) in [
        ("/gamma/markets/keyset?limit=500", "markets", open.div_ceil(100), open),
        ("/gamma/markets/keyset?limit=97", "markets", open.div_ceil(97), open),
        ("/gamma/events/keyset?limit=500", "events", 1, events),
        ("/gamma/events/keyset?limit=11", "events", events.div_ceil(11), events),
        ("/gamma/events/keyset?limit=11&order=volume", "events", events.div_ceil(11), events),
    ] {
        let (found_pages, found) = walk(&server, path, key);
        assert_eq!((found_pages, found.len()), (pages, count), "{path}");
        assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), count, "{path}");
    }
    let lengths = |path: &str, limit: usize| -> Vec<usize> {
        let pages = (0..).step_by(limit).map(|offset| {
            let page = server.get(format!("{path}?limit={limit}&offset={offset}")).ok(200);
            page.as_array().unwrap().len()
        });
        let mut pages = pages.take(20).collect::<Vec<_>>();
        pages.dedup();
        pages
    };
    assert_eq!(lengths("/gamma/markets", 500), [500, open - 1_000, 0]);
    assert_eq!(lengths("/gamma/events", 50), [50, events - 50, 0]);
    let event = server.get("/gamma/events/55").ok(200);
    assert_eq!(event["markets"].as_array().unwrap().len(), MORE + 2);
}
