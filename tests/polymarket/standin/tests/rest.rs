//! The REST services.

use http_body_util::Full;
use hyper::Request;
use serde_json::{Value, json};

use super::super::ladder::Side;
use super::super::options::{EndCursor, Options};
use super::super::world::{condition_id, token_id};
use super::super::{StandIn, World};
use super::client::Asker;

fn plain() -> Options {
    Options { is_tls: false, ..Options::default() }
}

/// The slugs of a page of markets.
fn slugs(markets: &Value) -> Vec<String> {
    let markets = markets.as_array().unwrap().iter();
    markets.map(|market| market["slug"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_keyset_listing_has_every_market_once_while_the_set_changes() {
    for (end_cursor, last) in [(EndCursor::Absent, None), (EndCursor::Lte, Some("LTE="))] {
        let options = Options { end_cursor, ..plain() };
        let venue = StandIn::start(World::invented(230), options).await;
        let asker = Asker::new(&venue);
        let base = format!(
            "{}/markets/keyset?limit=1000&active=true&order=volume24hr&ascending=false",
            venue.gamma_url
        );
        let mut seen = Vec::new();
        let mut url = base.clone();
        loop {
            let page = asker.json(&url).await;
            seen.extend(slugs(&page["markets"]));
            let next = page["next_cursor"].as_str();
            if seen.len() >= 229 {
                assert_eq!(next, last);
                break;
            }
            assert_eq!(page["markets"].as_array().unwrap().len(), 100);
            url = format!("{base}&after_cursor={}", next.unwrap());
            // A listed market is closed, and the next page still begins where this one ended.
            venue.describe(&condition_id(0), |market| {
                market.insert("closed".to_owned(), json!(true));
            });
        }
        let expected: Vec<String> =
            (0..230).map(|number| format!("invented-thing-{number}")).collect();
        assert_eq!(seen, expected);
    }
}

#[tokio::test]
async fn gamma_applies_the_filters_of_a_query() {
    let venue = StandIn::start(World::invented(12), plain()).await;
    venue.describe(&condition_id(7), |market| {
        market.insert("closed".to_owned(), json!(true));
    });
    let asker = Asker::new(&venue);
    let (seven, three) = (condition_id(7), condition_id(3));
    for (query, expected) in [
        // Closed markets are hidden unless requested.
        (format!("condition_ids={seven}"), vec![]),
        (format!("condition_ids={seven}&closed=true"), vec![7]),
        (format!("condition_ids={seven}&condition_ids={three}"), vec![3]),
        ("slug=invented-thing-4&slug=invented-thing-5".to_owned(), vec![4, 5]),
        (format!("clob_token_ids={}", token_id(6, 1)), vec![6]),
        ("tag_id=1".to_owned(), vec![0, 4, 8]),
        ("limit=2&offset=1".to_owned(), vec![1, 2]),
        ("order=volumeNum&ascending=true&limit=2".to_owned(), vec![11, 10]),
        ("volume_num_min=3000000".to_owned(), vec![0, 1, 2]),
        // Not a parameter of this service.
        ("cursor=abc&limit=1".to_owned(), vec![0]),
    ] {
        let page = asker.json(&format!("{}/markets?{query}", venue.gamma_url)).await;
        let expected: Vec<String> =
            expected.iter().map(|number| format!("invented-thing-{number}")).collect();
        assert_eq!(slugs(&page), expected, "{query}");
    }
    let events = asker.json(&format!("{}/events?limit=2", venue.gamma_url)).await;
    assert_eq!(slugs(&events), ["invented-event-0", "invented-event-1"]);
    assert_eq!(slugs(&events[0]["markets"]).len(), 3);
}

#[tokio::test]
async fn gamma_fills_in_the_tokens_after_a_while() {
    let venue = StandIn::start(World::invented(1), plain()).await;
    venue.hydrate_after(&condition_id(0), 2);
    let asker = Asker::new(&venue);
    let mut has_tokens = Vec::new();
    for _ in 0..3 {
        let page = asker.json(&format!("{}/markets/keyset", venue.gamma_url)).await;
        has_tokens.push(page["markets"][0]["clobTokenIds"].as_str().unwrap().len() > 2);
    }
    assert_eq!(has_tokens, [false, false, true]);
}

#[tokio::test]
async fn refusals_match_the_venue() {
    let venue = StandIn::start(World::invented(1), plain()).await;
    let asker = Asker::new(&venue);
    let (gamma, clob) = (&venue.gamma_url, &venue.clob_url);
    let socket = venue.ws_url.replacen("ws", "http", 1);
    for (url, status, body) in [
        (format!("{clob}/book?token_id=1"), 404, "No orderbook exists"),
        (format!("{clob}/markets/0x12"), 404, "market not found"),
        (format!("{clob}/clob-markets/0x12"), 404, "market not found"),
        (format!("{clob}/nothing"), 404, "page not found"),
        (format!("{gamma}/markets/0x12"), 422, "id is invalid"),
        (format!("{gamma}/markets/12"), 404, "not found"),
        (format!("{gamma}/markets/keyset?offset=1"), 422, "offset"),
        (format!("{gamma}/markets/keyset?after_cursor=1"), 422, "after_cursor"),
        (socket.clone(), 404, "not found"),
    ] {
        let (answered, text) = asker.get(&url).await;
        assert!(answered == status && text.contains(body), "{url}: {answered} {text}");
    }
    for url in [format!("{gamma}/markets"), format!("{clob}/ok"), socket] {
        let request = Request::get(&url).body(Full::default()).unwrap();
        assert_eq!(asker.ask(request).await, (403, "error code: 1010".to_owned()), "{url}");
    }
    let (status, _) = asker.post(&format!("{clob}/books"), &json!({})).await;
    assert_eq!(status, 400);
    let statuses: Vec<u16> = venue.requests().iter().map(|request| request.status).collect();
    assert_eq!(statuses, [404, 404, 404, 404, 422, 404, 422, 422, 404, 403, 403, 403, 400]);
}

#[tokio::test]
async fn the_clob_serves_books_markets_and_the_time() {
    let venue = StandIn::start(World::invented(6), plain()).await;
    let asker = Asker::new(&venue);
    let clob = &venue.clob_url;
    let wanted: Vec<Value> =
        (0..6).map(|number| json!({"token_id": token_id(number, 0)})).collect();
    let unknown = [json!({"token_id": "1"})];
    let body = Value::Array([&wanted[..], &unknown].concat());
    let (_, books) = asker.post(&format!("{clob}/books"), &body).await;
    let books: Vec<Value> = serde_json::from_str(&books).unwrap();
    let ids: Vec<&str> = books.iter().map(|book| book["asset_id"].as_str().unwrap()).collect();
    let mut sorted = ids.clone();
    sorted.sort_unstable();
    let expected: Vec<String> = (0..6).map(|number| token_id(number, 0)).collect();
    assert_eq!(sorted, expected);
    assert_ne!(ids, expected, "the order is not guaranteed");

    let one = asker.json(&format!("{clob}/book?token_id={}", token_id(2, 0))).await;
    assert!(books.contains(&one));
    assert_eq!((&one["min_order_size"], &one["tick_size"]), (&json!("5"), &json!("0.01")));
    assert_eq!((&one["neg_risk"], &one["last_trade_price"]), (&json!(true), &json!("0.500")));
    let last = |side: &str| one[side].as_array().unwrap().last().unwrap()["price"].clone();
    assert_eq!((last("bids"), last("asks")), (json!("0.44"), json!("0.45")));

    let long = asker.json(&format!("{clob}/markets/{}", condition_id(2))).await;
    assert_eq!((&long["closed"], &long["minimum_tick_size"]), (&json!(false), &json!(0.01)));
    assert_eq!(long["tokens"][1]["token_id"], token_id(2, 1));
    let compact = asker.json(&format!("{clob}/clob-markets/{}", condition_id(2))).await;
    assert_eq!(compact["t"][1], json!({"t": token_id(2, 1), "o": "No"}));
    assert_eq!((&compact["nr"], &compact["mos"]), (&json!(true), &json!(5)));
    assert_eq!(compact["fd"], json!({"r": 0.05, "e": 1, "to": true}));
    assert!(asker.json(&format!("{clob}/time")).await.as_u64().unwrap() > 1_700_000_000);
    assert_eq!(asker.json(&format!("{clob}/ok")).await, "OK");
    let token_counts: Vec<usize> =
        venue.requests().iter().map(|request| request.token_count).collect();
    assert_eq!(token_counts, [7, 0, 0, 0, 0, 0]);
}

#[tokio::test]
async fn every_state_of_a_book_is_kept_with_its_time() {
    let venue = StandIn::start(World::invented(1), Options { history_max: 4, ..plain() }).await;
    let asker = Asker::new(&venue);
    let yes = token_id(0, 0);
    // Not shown, then shown by a request, then not shown.
    venue.change_level(&yes, Side::Buy, "0.1", "7");
    asker.json(&format!("{}/book?token_id={yes}", venue.clob_url)).await;
    venue.change_level(&yes, Side::Buy, "0.1", "8.5");
    let no = venue.published(&token_id(0, 1));
    let states = venue.published(&yes);
    let shown: Vec<bool> = states.iter().map(|state| state.is_shown).collect();
    assert_eq!(shown, [false, true, false]);
    let sizes: Vec<&str> = states.iter().map(|state| &*state.bids.last().unwrap().1).collect();
    assert_eq!(sizes, ["115.45", "7", "8.5"]);
    assert_eq!(no[2].asks.last().unwrap(), &("0.9".into(), "8.5".into()));
    for pair in states.windows(2) {
        assert_eq!(pair[0].until_us, Some(pair[1].from_us));
        assert!(pair[0].timestamp_ms <= pair[1].timestamp_ms && pair[0].hash != pair[1].hash);
    }
    // The oldest states are dropped, but not their effects.
    for size in ["1", "2", "3"] {
        venue.change_level(&yes, Side::Buy, "0.1", size);
    }
    let kept = venue.published(&yes);
    assert_eq!(kept.len(), 4);
    assert_eq!(kept[0].hash, states[2].hash);
    assert_eq!(kept[0].bids, states[2].bids);
    assert_eq!(kept[0].asks, states[2].asks);
    assert_eq!(kept[3].until_us, None);
}
