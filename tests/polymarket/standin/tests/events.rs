//! Frames of the socket other than changes of levels.

use serde_json::{Value, json};

use super::super::ladder::{Ladder, Side};
use super::super::market::Payout;
use super::super::options::Options;
use super::super::world::{MarketSeed, condition_id, token_id};
use super::super::{StandIn, World};
use super::books::Copy;
use super::client::{Asker, Socket};

/// Subscribes to both tokens of the market with this number, and copies their books.
async fn follow(asker: &Asker, venue: &StandIn, number: usize) -> (Socket, Vec<Copy>) {
    let ids = [token_id(number, 0), token_id(number, 1)];
    let (socket, dump) = asker.subscribed(venue, &[&ids[0], &ids[1]]).await;
    let neg_risk = number % 3 == 2;
    let copies = dump.as_array().unwrap().iter().map(|book| Copy::of_book(book, neg_risk));
    (socket, copies.collect())
}

fn plain() -> Options {
    Options { is_tls: false, ..Options::default() }
}

/// The next frame, which must be of this kind, past those that repeat the top.
async fn next(socket: &mut Socket, kind: &str) -> Value {
    loop {
        let frame = socket.json().await;
        if frame["event_type"] != "best_bid_ask" {
            assert_eq!(frame["event_type"], kind, "{frame}");
            return frame;
        }
    }
}

#[tokio::test]
async fn a_trade_is_sent_as_levels_then_books_then_trades() {
    let venue = StandIn::start(World::invented(1), plain()).await;
    let asker = Asker::new(&venue);
    let (mut socket, mut copies) = follow(&asker, &venue, 0).await;
    // Asks of the first token: 10 at 0.31, 15.55 at 0.32.
    let trades = venue.trade(&token_id(0, 0), Side::Buy, "12.25");
    let traded = |price: &str, size: &str| (price.to_owned(), size.to_owned());
    assert_eq!(trades, [traded("0.31", "10"), traded("0.32", "2.25")]);
    let frame = next(&mut socket, "price_change").await;
    for copy in &mut copies {
        copy.check(&frame);
    }
    for copy in &mut copies {
        let book = next(&mut socket, "book").await;
        assert!(book["tick_size"].is_null() && book["last_trade_price"].is_null());
        // The hash already covers the trade, which is only sent afterwards.
        assert_ne!(copy.hash(&book["timestamp"]), book["hash"]);
        copy.last_trade_price = "0.320".to_owned();
        assert_eq!(copy.hash(&book["timestamp"]), book["hash"]);
    }
    for (price, size) in &trades {
        let trade = next(&mut socket, "last_trade_price").await;
        assert_eq!((&trade["price"], &trade["size"]), (&json!(price), &json!(size)));
        assert_eq!((&trade["side"], &trade["asset_id"]), (&json!("BUY"), &json!(token_id(0, 0))));
    }
    assert_eq!(venue.trade(&token_id(0, 0), Side::Sell, "0"), []);
}

#[tokio::test]
async fn a_new_tick_size_is_sent_twice_for_each_token_and_then_the_books() {
    let venue = StandIn::start(World::invented(2), plain()).await;
    let asker = Asker::new(&venue);
    let (mut socket, mut copies) = follow(&asker, &venue, 1).await;
    venue.change_tick_size(&condition_id(1), "0.001");
    for turn in 0..4 {
        let frame = next(&mut socket, "tick_size_change").await;
        assert_eq!(frame["asset_id"], token_id(1, turn % 2));
        assert_eq!(
            (&frame["old_tick_size"], &frame["new_tick_size"]),
            (&json!("0.01"), &json!("0.001"))
        );
    }
    for copy in &mut copies {
        let book = next(&mut socket, "book").await;
        copy.tick_size = "0.001".to_owned();
        assert_eq!(copy.hash(&book["timestamp"]), book["hash"]);
    }
    // A book with one level a side, which the other token mirrors.
    let mut ladder = Ladder::default();
    ladder.set(Side::Buy, "0.123", "5");
    ladder.set(Side::Sell, "0.9", "6.5");
    venue.replace_book(&token_id(1, 0), &ladder);
    next(&mut socket, "book").await;
    let book = next(&mut socket, "book").await;
    assert_eq!(book["asks"], json!([{"price": "0.877", "size": "5"}]));
    assert_eq!(book["bids"], json!([{"price": "0.1", "size": "6.5"}]));
}

#[tokio::test]
async fn a_new_market_is_announced_in_strings() {
    let venue = StandIn::start(World::invented(1), plain()).await;
    let asker = Asker::new(&venue);
    let (mut socket, _) = follow(&asker, &venue, 0).await;
    let mut seed = MarketSeed::invented(1);
    seed.describe(|fields| {
        fields.insert("slug".to_owned(), json!("another"));
    });
    venue.list_market(&seed);
    let frame = next(&mut socket, "new_market").await;
    assert_eq!(frame["condition_id"], condition_id(1));
    assert_eq!(frame["clob_token_ids"], json!(seed.token_ids));
    assert_eq!(frame["fee_schedule"]["rate"], "0.05");
    assert_eq!(frame["slug"], "another");
    let ids = [token_id(1, 0)];
    socket.say(&json!({"assets_ids": ids, "operation": "subscribe"}).to_string()).await;
    assert_eq!(socket.json().await[0]["asset_id"], ids[0]);
    socket.say(&json!({"assets_ids": ids, "operation": "unsubscribe"}).to_string()).await;
    socket.say("PING").await;
    assert_eq!(socket.text().await, "PONG");
    venue.change_level(&ids[0], Side::Buy, "0.1", "1");
    venue.change_level(&token_id(0, 0), Side::Buy, "0.1", "1");
    let frame = next(&mut socket, "price_change").await;
    assert_eq!(frame["market"], condition_id(0), "the other market is no longer followed");
    assert_eq!(venue.sockets(), [(1, 2)]);
}

#[tokio::test]
async fn a_resolution_happens_at_once_or_step_by_step() {
    for (payout, prices, winners) in [
        (Payout::Winner(0), r#"["1","0"]"#, [true, false]),
        (Payout::Winner(1), r#"["0","1"]"#, [false, true]),
        (Payout::Half, r#"["0.5","0.5"]"#, [false, false]),
    ] {
        let venue = StandIn::start(World::invented(2), plain()).await;
        let asker = Asker::new(&venue);
        let (mut socket, _) = follow(&asker, &venue, 1).await;
        venue.resolve(&condition_id(1), payout);
        if let Payout::Winner(winner) = payout {
            let frame = next(&mut socket, "market_resolved").await;
            assert_eq!(frame["winning_asset_id"], token_id(1, winner));
        }
        let query = format!("condition_ids={}&closed=true", condition_id(1));
        let gamma = asker.json(&format!("{}/markets?{query}", venue.gamma_url)).await;
        assert_eq!(gamma[0]["outcomePrices"], prices);
        assert_eq!(gamma[0]["umaResolutionStatus"], "resolved");
        let url = format!("{}/markets/{}", venue.clob_url, condition_id(1));
        let long = asker.json(&url).await;
        let won = |outcome: usize| long["tokens"][outcome]["winner"].as_bool().unwrap();
        assert_eq!((&long["closed"], [won(0), won(1)]), (&json!(true), winners));
        assert_eq!(long["is_50_50_outcome"], json!(payout == Payout::Half));
        let book = format!("{}/book?token_id={}", venue.clob_url, token_id(1, 0));
        assert_eq!(asker.get(&book).await.0, 404);
    }
    // First one source resolves; the other has not yet.
    let venue = StandIn::start(World::invented(1), plain()).await;
    let asker = Asker::new(&venue);
    let market = condition_id(0);
    let long = format!("{}/markets/{market}", venue.clob_url);
    let gamma = format!("{}/markets?condition_ids={market}", venue.gamma_url);
    venue.remove_books(&market);
    assert_eq!(asker.json(&long).await["closed"], false);
    venue.resolve_on_clob(&market, Payout::Winner(1));
    assert_eq!(asker.json(&long).await["closed"], true);
    assert_eq!(asker.json(&gamma).await[0]["closed"], false);
    venue.resolve_on_gamma(&market, Payout::Winner(1));
    assert_eq!(asker.json(&gamma).await, json!([]));
    let (mut socket, dump) = asker.subscribed(&venue, &[&token_id(0, 0)]).await;
    assert_eq!(dump, json!([]));
    venue.announce_resolved(&market, 1);
    assert_eq!(next(&mut socket, "market_resolved").await["winning_outcome"], "No");
}
