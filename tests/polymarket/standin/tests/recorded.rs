//! Recordings as worlds and tapes.

use serde_json::{Value, json};

use super::super::ladder::{Head, Ladder, text_of};
use super::super::options::Options;
use super::super::recordings::{Played, Recordings, visit};
use super::super::{StandIn, World};
use super::books::Copy;
use super::client::{Asker, Received};

const FED_FRAMES: &str = "ws/fed_july_2026-07-20_frames.jsonl";

async fn start(world: World) -> (StandIn, Asker) {
    let options = Options { is_tls: false, ..Options::default() };
    let venue = StandIn::start(world, options).await;
    let asker = Asker::new(&venue);
    (venue, asker)
}

#[test]
fn the_hash_of_every_recorded_book_is_reproduced() {
    let Some(recordings) = Recordings::open() else { return };
    let mut book_count = 0;
    for file in recordings.files().iter().filter(|file| file.starts_with("clob/")) {
        for value in recordings.values(file) {
            visit(&value, &mut |_, book| {
                if !(book["hash"].is_string() && book["min_order_size"].is_string()) {
                    return;
                }
                let [market, asset_id, timestamp, min_order_size, tick_size, last_trade_price] = [
                    "market",
                    "asset_id",
                    "timestamp",
                    "min_order_size",
                    "tick_size",
                    "last_trade_price",
                ]
                .map(|name| text_of(&book[name]));
                let head = Head {
                    is_v2: false,
                    market,
                    asset_id,
                    timestamp_ms: timestamp.parse().unwrap(),
                    min_order_size,
                    tick_size,
                    neg_risk: book["neg_risk"].as_bool().unwrap(),
                    last_trade_price,
                };
                assert_eq!(Ladder::of_json(book).hash(head), book["hash"], "{file}: {asset_id}");
                book_count += 1;
            });
        }
    }
    assert_eq!(book_count, 526);
}

#[tokio::test]
async fn recorded_frames_arrive_verbatim_and_match_both_books() {
    let Some(recordings) = Recordings::open() else { return };
    let (venue, asker) = start(recordings.world()).await;
    let tape = recordings.tape(FED_FRAMES);
    let texts: Vec<String> =
        recordings.values(FED_FRAMES).iter().map(|value| value.get().to_owned()).collect();
    let first: Value = serde_json::from_str(&texts[0]).unwrap();
    let token = text_of(&first[0]["asset_id"]);
    let (mut socket, _) = asker.subscribed(&venue, &[token]).await;
    let mut copy = Copy::of_book(&first[0], true);
    let mut sister: Option<Copy> = None;
    let mut checked = 0;
    for (played, text) in tape.iter().zip(&texts) {
        assert_eq!(venue.play(played), 1);
        assert_eq!(&socket.text().await, text);
        let frame: Value = serde_json::from_str(text).unwrap();
        if frame["event_type"] == "price_change" {
            let other = frame["price_changes"].as_array().unwrap().iter();
            let other = other.map(|entry| text_of(&entry["asset_id"])).find(|id| *id != token);
            sister.get_or_insert_with(|| copy.mirrored(other.unwrap())).check(&frame);
            copy.check(&frame);
            checked += 2;
        }
    }
    assert_eq!((tape.len(), checked), (27, 48));
    // The REST services agree.
    let book = asker.json(&format!("{}/book?token_id={token}", venue.clob_url)).await;
    assert_eq!(copy.hash(&book["timestamp"]), book["hash"]);
    assert_eq!(Ladder::of_json(&book), copy.ladder);
    let states = venue.published(token);
    assert_eq!(states.len(), 1 + 1 + 24 + 1);
    assert!(states.iter().all(|state| state.is_shown));
}

#[tokio::test]
async fn every_recorded_file_describes_markets_or_replays() {
    let Some(recordings) = Recordings::open() else { return };
    let world = recordings.world();
    let described = world.markets.iter().filter(|market| market.description.is_some()).count();
    let with_books = world.markets.iter().flat_map(|market| &market.books).flatten().count();
    let (venue, asker) = start(world.clone()).await;
    let mut tapes = Vec::new();
    for file in recordings.files() {
        let tape = recordings.tape(&file);
        // The ticks of a whole game are many; the first thousand suffice.
        let played = tape.iter().take(1000);
        played.for_each(|played| {
            venue.play(played);
        });
        if !tape.is_empty() {
            tapes.push((file, tape.len()));
        }
    }
    let tapes: Vec<(&str, usize)> =
        tapes.iter().map(|(file, count)| (file.as_str(), *count)).collect();
    assert_eq!(
        tapes,
        [
            ("clob/books_2026-07-21_5rounds.jsonl", 500),
            ("clob/books_2026-07_tinli.jsonl", 15),
            ("clob/books_fed-decision-in-june_negrisk.json", 10),
            ("clob/data_api_trades_global_2026-04.json", 500),
            ("clob/rest_probe_2026-06-20.json", 1),
            ("ws/book_10_2026-02-12.jsonl", 10),
            ("ws/btc_1h_2025-12-11_down_books.jsonl", 300),
            ("ws/btc_1h_2025-12-11_down_trades.jsonl", 100),
            ("ws/btc_1h_2025-12-11_up_books.jsonl", 300),
            ("ws/btc_1h_2025-12-11_up_trades.jsonl", 200),
            ("ws/btc_hourly_2025-07-03_oldformat_frames.jsonl", 158),
            (FED_FRAMES, 27),
            ("ws/last_trade_price_10_2026-02-12.jsonl", 10),
            ("ws/nhl_2026-06-07T0130Z_ticks.jsonl", 48_745),
            ("ws/single_frames_2026.jsonl", 9),
        ]
    );
    assert_eq!((described, with_books), (612, 144));
    // Descriptions are sent as recorded, whatever they contain.
    for is_closed in [true, false] {
        let query = format!("closed={is_closed}&limit=1000");
        let (_, body) = asker.get(&format!("{}/markets?{query}", venue.gamma_url)).await;
        let described = world.markets.iter().filter_map(|market| market.description.as_ref());
        let mut lengths = 0;
        for description in described.filter(|description| description.is("closed") == is_closed) {
            assert!(body.contains(description.raw()), "{}", description.raw());
            lengths += description.raw().len() + 1;
        }
        assert_eq!(body.len(), lengths + 1);
    }
}

#[tokio::test]
async fn texts_and_old_frames_are_replayed_too() {
    let Some(recordings) = Recordings::open() else { return };
    let (venue, asker) = start(recordings.world()).await;
    let tape = recordings.tape("ws/btc_hourly_2025-07-03_oldformat_frames.jsonl");
    let mut tokens: Vec<String> = Vec::new();
    for played in &tape {
        let Played::Frame(text) = played else { panic!("{played:?} is not a frame") };
        let events: Value = serde_json::from_str(text).unwrap_or_default();
        for event in events.as_array().into_iter().flatten() {
            let token = text_of(&event["asset_id"]).to_owned();
            if !tokens.contains(&token) {
                tokens.push(token);
            }
        }
    }
    assert_eq!(tokens.len(), 2);
    let (mut socket, dump) = asker.subscribed(&venue, &[&tokens[0], &tokens[1]]).await;
    assert_eq!(dump.as_array().unwrap().len(), 2);
    for played in &tape {
        venue.play(played);
        let Played::Frame(text) = played else { continue };
        assert_eq!(socket.receive().await, Received::Text(text.clone()));
    }
    let url = format!("{}/books", venue.clob_url);
    let (_, body) = asker.post(&url, &json!([{"token_id": tokens[0]}])).await;
    let books: Vec<Value> = serde_json::from_str(&body).unwrap();
    let last = venue.published(&tokens[0]).pop().unwrap();
    assert_eq!(books[0]["hash"], *last.hash);
}
