//! Books that move at random.

use std::time::Duration;

use super::super::decimal::micros;
use super::super::ladder::Side;
use super::super::options::Options;
use super::super::world::token_id;
use super::super::{Pace, StandIn, World};
use super::books::Copy;
use super::client::Asker;

const MARKET_COUNT: usize = 3;

#[tokio::test]
async fn a_walk_is_followed_step_by_step_and_repeats_with_its_seed() {
    let mut ends = Vec::new();
    for seed in [7, 7, 8] {
        let options = Options { is_tls: false, ..Options::default() };
        let venue = StandIn::start(World::invented(MARKET_COUNT), options).await;
        let asker = Asker::new(&venue);
        // A trade is sent only for the token that was traded, so a client that follows one token
        // misses some.
        let ids: Vec<String> =
            (0..2 * MARKET_COUNT).map(|place| token_id(place / 2, place % 2)).collect();
        let wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
        let (mut socket, dump) = asker.subscribed(&venue, &wanted).await;
        let mut copies: Vec<Copy> =
            (0..ids.len()).map(|place| Copy::of_book(&dump[place], place / 2 == 2)).collect();
        venue.walk(seed, 300);
        assert!(venue.message_count() > 200 && venue.is_behind(200), "nobody has read them");
        socket.say("PING").await;
        let mut change_count = 0;
        loop {
            let text = socket.text().await;
            if text == "PONG" {
                break;
            }
            let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
            change_count += usize::from(frame["event_type"] == "price_change");
            for copy in copies.iter_mut().filter(|copy| copy.is_of(&frame)) {
                match frame["event_type"].as_str() {
                    Some("price_change") => copy.check(&frame),
                    Some("last_trade_price") => copy.traded(&frame),
                    _ => {}
                }
            }
        }
        assert!(change_count > 200, "{change_count} of 300 steps are sent as changes");
        assert!(!venue.is_behind(0));
        for id in &ids {
            for state in venue.published(id) {
                if let (Some(bid), Some(ask)) = (state.bids.first(), state.asks.first()) {
                    assert!(micros(&bid.0) < micros(&ask.0), "{state:?}");
                }
                assert!(state.is_shown);
            }
        }
        for id in &ids {
            let last = venue.published(id).pop().unwrap();
            let top = (last.timestamp_ms, last.bids[0].0.to_string(), last.asks[0].0.to_string());
            assert_eq!(venue.top(id), top);
        }
        let last = |id: &String| venue.published(id).pop().unwrap();
        ends.push(ids.iter().map(last).map(|book| (book.bids, book.asks)).collect::<Vec<_>>());
    }
    assert!(ends[0] == ends[1] && ends[0] != ends[2]);
}

#[tokio::test]
async fn a_walk_keeps_its_pace() {
    let options = Options { is_tls: false, history_max: 8, ..Options::default() };
    let venue = StandIn::start(World::invented(MARKET_COUNT), options).await;
    let step_count = venue.run_walk((1, false), 2_000, Duration::from_millis(200)).await;
    assert_eq!(step_count, 400);
    assert_eq!(venue.published(&token_id(0, 0)).len(), 8);
    // This trades although no client was subscribed.
    assert_eq!(venue.trade(&token_id(0, 0), Side::Buy, "0.01").len(), 1);
}

#[tokio::test]
async fn messages_arrive_at_the_configured_rate() {
    let options = Options { is_tls: false, ..Options::default() };
    let venue = StandIn::start(World::invented(MARKET_COUNT), options).await;
    let asker = Asker::new(&venue);
    let ids = [token_id(0, 0), token_id(1, 0), token_id(2, 0)];
    let wanted: Vec<&str> = ids.iter().map(String::as_str).collect();
    let _socket = asker.subscribed(&venue, &wanted).await;
    let duration = Duration::from_millis(200);
    let pace: Pace = venue.run_messages(7, 500, duration).await;
    // The last step may send several: a trade is sent as a change, two books and the trade itself.
    assert!((100..110).contains(&pace.message_count), "{pace:?}");
    assert!(pace.step_count >= 20 && pace.elapsed >= duration, "{pace:?}");
}
