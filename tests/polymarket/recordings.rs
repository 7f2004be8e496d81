//! Plays everything recorded through the stand-in to the live connector.

use std::collections::HashSet;
use std::time::Duration;

use paperbourse::venue::follow::timing::Timing;
use serde_json::{Value, json};

use crate::auditor::{levels_of, levels_of_state};
use crate::connector::{Connector, QUICK};
use crate::standin::world::BookSeed;
use crate::standin::{Fault, Options, Played, Recordings, Side, StandIn, Which, World};

/// More than were recorded.
const MARKETS_MAX: usize = 2_000;

/// The ticks of a whole game are many; the first thousand suffice.
const PLAYED_MAX: usize = 1_000;

const FED_FRAMES: &str = "ws/fed_july_2026-07-20_frames.jsonl";
const OLD_FORMAT: &str = "ws/btc_hourly_2025-07-03_oldformat_frames.jsonl";

/// Recorded timestamps are old, so they are no measure of lag.
fn timing() -> Timing {
    Timing { lag_max: Duration::MAX, ..QUICK }
}

/// The recorded markets, but still open: most of them have ended since.
fn reopened(mut world: World) -> World {
    for market in world.markets.iter_mut().filter(|market| market.description.is_some()) {
        market.describe(|fields| {
            for (name, value) in [
                ("active", json!(true)),
                ("closed", json!(false)),
                ("archived", json!(false)),
                ("acceptingOrders", json!(true)),
                ("enableOrderBook", json!(true)),
                ("endDate", json!("2099-12-31T00:00:00Z")),
                ("umaResolutionStatus", Value::Null),
            ] {
                fields.insert(name.to_owned(), value);
            }
        });
    }
    world
}

/// Starts a connector that follows every market, and waits until it has every book.
async fn followed(world: World) -> (StandIn, Connector, Vec<String>) {
    let world = reopened(world);
    let described = world.markets.iter().filter(|market| market.description.is_some());
    let tokens: Vec<String> =
        described.clone().flat_map(|market| market.token_ids.clone()).collect();
    let ids: Vec<String> = described.map(|market| market.condition_id.clone()).collect();
    let venue = StandIn::start(world, Options::default()).await;
    let connector = Connector::start(&venue, MARKETS_MAX, timing());
    let with_books: Vec<String> =
        tokens.into_iter().filter(|token| !venue.published(token).is_empty()).collect();
    connector.until_fresh(&with_books).await;
    let unlisted: Vec<_> =
        ids.into_iter().filter(|id| connector.markets.by_condition(id).is_none()).collect();
    assert_eq!(unlisted, [""; 0], "every described market is listed");
    (venue, connector, with_books)
}

/// Waits until the connector shows the venue's current book of every token that has one.
async fn until_current(what: &str, connector: &Connector, venue: &StandIn, tokens: &[String]) {
    let last = |token: &String| Some((token.clone(), venue.published(token).pop()?));
    let last: Vec<_> = tokens.iter().filter_map(last).collect();
    let last: Vec<_> =
        last.into_iter().map(|(token, state)| (token, levels_of_state(&state))).collect();
    let is_current = |it: &Connector| {
        last.iter()
            .all(|(token, levels)| it.fresh(token).is_some_and(|book| levels_of(&book) == *levels))
    };
    connector.until(what, is_current).await;
}

/// The venue's hash of our fresh book, if it was reported or verified.
fn proven_hash(connector: &Connector, token: &str) -> Option<Box<str>> {
    connector.fresh(token)?.hash.clone().map(|hash| hash.text)
}

#[tokio::test]
async fn every_hash_of_every_recorded_book_is_reproduced() {
    let Some(recordings) = Recordings::open() else { return };
    let (venue, connector, _) = followed(recordings.world()).await;
    let mut book_count = 0;
    for file in recordings.files().iter().filter(|file| {
        file.starts_with("clob/books")
            || file.starts_with("clob/rest")
            || file.starts_with("ws/book_10")
    }) {
        let books = recordings.tape(file).into_iter().map(|played| match played {
            Played::Book(book) => book,
            Played::Frame(frame) => serde_json::from_str(&frame).unwrap(),
            played => panic!("{file}: {played:?} is not a book"),
        });
        let books: Vec<Value> = books.collect();
        let mut left = &books[..];
        while !left.is_empty() {
            // As many books as have different tokens: what each token showed at one time.
            let mut seen = HashSet::new();
            let is_again = |book: &Value| !seen.insert(book["asset_id"].to_string());
            let count = left.iter().position(is_again).unwrap_or(left.len());
            let (round, others) = left.split_at(count);
            left = others;
            // On the next connection they are sent whole, with everything that the hash covers.
            venue.misbehave(Which::Open, Fault::Freeze { has_pong: true });
            for book in round {
                venue.play(&Played::Book(book.clone()));
            }
            venue.misbehave(Which::Open, Fault::Drop);
            let is_proven = |it: &Connector, book: &Value| {
                let token = book["asset_id"].as_str().unwrap();
                proven_hash(it, token).as_deref() == book["hash"].as_str()
            };
            connector.until(file, |it| round.iter().all(|book| is_proven(it, book))).await;
            book_count += round.len();
        }
    }
    assert_eq!(book_count, 526 + 10);
}

#[tokio::test]
async fn every_recorded_price_change_yields_both_hashes() {
    let Some(recordings) = Recordings::open() else { return };
    let mut world = recordings.world();
    // The frames begin with one token's book; the other token's is its mirror image.
    let Some(Played::Frame(first)) = recordings.tape(FED_FRAMES).into_iter().next() else {
        panic!("the first frame is a book");
    };
    let first: Value = serde_json::from_str(&first).unwrap();
    for market in world.markets.iter_mut().filter(|it| first[0]["market"] == *it.condition_id) {
        let is_own = |token: &String| first[0]["asset_id"] == **token;
        let seeds =
            market.token_ids.iter().map(|it| is_own(it).then(|| BookSeed::of_json(&first[0])));
        market.books = seeds.collect();
    }
    let (venue, connector, with_books) = followed(world).await;
    let mut proven_count = 0;
    for played in recordings.tape(FED_FRAMES) {
        let Played::Frame(text) = &played else { panic!("{played:?} is not a frame") };
        assert_eq!(venue.play(&played), 1);
        let frame: Value = serde_json::from_str(text).unwrap();
        for entry in frame["price_changes"].as_array().into_iter().flatten() {
            let token = entry["asset_id"].as_str().unwrap();
            let is_proven =
                |it: &Connector| proven_hash(it, token).as_deref() == entry["hash"].as_str();
            connector.until("the hash of a change", is_proven).await;
            proven_count += 1;
        }
    }
    assert_eq!(proven_count, 48);
    until_current("all books", &connector, &venue, &with_books).await;
    let status = connector.status();
    assert_eq!((status.connections_lost, status.feed.hashes_mismatched), (0, 0), "{status:?}");
}

#[tokio::test]
async fn every_recorded_file_leaves_the_venues_books() {
    let Some(recordings) = Recordings::open() else { return };
    let (venue, connector, with_books) = followed(recordings.world()).await;
    for file in
        recordings.files().iter().filter(|file| ![OLD_FORMAT, FED_FRAMES].contains(&&***file))
    {
        for played in recordings.tape(file).iter().take(PLAYED_MAX) {
            venue.play(played);
        }
        // The hash of a resent book covers the trades before it.
        let tape = recordings.tape(file).into_iter().take(PLAYED_MAX);
        let moved: HashSet<String> = tape
            .filter_map(|played| match played {
                Played::Level { token, .. } => Some(token),
                _ => None,
            })
            .collect();
        for token in moved {
            venue.change_level(&token, Side::Buy, "0.01", "7");
        }
        let is_open = |token: &&String| {
            let listing = connector.markets.listing();
            let (market, _) = listing.by_token(token).unwrap();
            !market.info().status.is_closed()
        };
        let open: Vec<String> = with_books.iter().filter(is_open).cloned().collect();
        assert!(open.len() + 4 >= with_books.len(), "{file}: only two frames resolve a market");
        until_current(file, &connector, &venue, &open).await;
    }
}

#[tokio::test]
async fn the_format_of_2025_is_refused_loudly() {
    let Some(recordings) = Recordings::open() else { return };
    let (venue, connector, with_books) = followed(recordings.world()).await;
    let tape = recordings.tape(OLD_FORMAT);
    let is_change =
        |played: &Played| matches!(played, Played::Frame(text) if text.contains(r#""changes":"#));
    let first = tape.iter().position(is_change).expect("a change in the old format");
    for played in &tape[..=first] {
        assert!(venue.play(played) > 0);
    }
    connector.until("a refusal", |it| it.status().unreadable_messages > 0).await;
    connector.until("another connection", |it| it.status().connections_lost > 0).await;
    until_current("all books", &connector, &venue, &with_books).await;
}
