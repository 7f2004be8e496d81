//! Sockets that misbehave, as seen by a naive client.

use std::time::Duration;

use serde_json::{Value, json};

use super::super::fault::{Fault, Injection, Which};
use super::super::ladder::{Ladder, Side};
use super::super::options::Options;
use super::super::world::token_id;
use super::super::{StandIn, World};
use super::books::Copy;
use super::client::{Asker, Received, Socket};

fn plain() -> Options {
    Options { is_tls: false, ..Options::default() }
}

/// Subscribes to the first token of the first market, and copies its book.
async fn followed(options: Options) -> (StandIn, Socket, Copy, String) {
    let venue = StandIn::start(World::invented(2), options).await;
    let yes = token_id(0, 0);
    let (socket, dump) = Asker::new(&venue).subscribed(&venue, &[&yes]).await;
    let copy = Copy::of_book(&dump[0], false);
    (venue, socket, copy, yes)
}

/// Sets the bid at 0.1 to each of these sizes, far from the top.
fn change(venue: &StandIn, token: &str, sizes: &[&str]) {
    for size in sizes {
        venue.change_level(token, Side::Buy, "0.1", size);
    }
}

/// The size in a `price_change` for the first token.
fn size_of(frame: &Value) -> &str {
    frame["price_changes"][0]["size"].as_str().unwrap()
}

#[tokio::test]
async fn frames_are_withheld_duplicated_and_swapped() {
    for (fault, sent, received) in [
        (Fault::Skip { frames: 1 }, &["1", "2", "3"][..], &["2", "3"][..]),
        (Fault::Duplicate { frames: 2 }, &["1", "2", "3"], &["1", "1", "2", "2", "3"]),
        (Fault::Swap { pairs: 1 }, &["1", "2", "3"], &["2", "1", "3"]),
        (Fault::Swap { pairs: 2 }, &["1", "2", "3", "4", "5"], &["2", "1", "4", "3", "5"]),
        (Fault::CorruptHash { frames: 1 }, &["1", "2"], &["1", "2"]),
    ] {
        let (venue, mut socket, _, yes) = followed(plain()).await;
        venue.misbehave(Which::Of(&yes), fault);
        change(&venue, &yes, sent);
        for size in received {
            assert_eq!(size_of(&socket.json().await), *size, "{fault:?}");
        }
        let states = venue.published(&yes);
        assert_eq!(states.len(), sent.len() + 1);
        let is_skipped = matches!(fault, Fault::Skip { .. });
        assert_eq!(states[1].is_shown, !is_skipped, "{fault:?}");
    }
}

#[tokio::test]
async fn the_hash_reveals_a_withheld_or_corrupted_frame() {
    for (fault, wrong_at, sound) in
        [(Fault::Skip { frames: 1 }, 1, false), (Fault::CorruptHash { frames: 1 }, 0, true)]
    {
        let (venue, mut socket, mut copy, yes) = followed(plain()).await;
        venue.misbehave(Which::One(1), fault);
        change(&venue, &yes, &["1"]);
        venue.change_level(&yes, Side::Buy, "0.11", "2");
        venue.change_level(&yes, Side::Buy, "0.12", "3");
        let frames = if wrong_at == 1 { 2 } else { 3 };
        let mut agrees = Vec::new();
        for _ in 0..frames {
            let frame = socket.json().await;
            let (hash, _, _) = copy.apply(&frame).unwrap();
            agrees.push(copy.hash(&frame["timestamp"]) == hash);
        }
        assert!(!agrees[0], "{fault:?}");
        assert_eq!(agrees[1], sound, "{fault:?}");
    }
}

#[tokio::test]
async fn a_frozen_socket_answers_pings_or_ignores_them() {
    for has_pong in [true, false] {
        let (venue, mut socket, _, yes) = followed(plain()).await;
        venue.misbehave(Which::Open, Fault::Freeze { has_pong });
        change(&venue, &yes, &["1"]);
        socket.say("PING").await;
        if has_pong {
            assert_eq!(socket.text().await, "PONG");
        } else {
            // Wait until the venue has read the ping, which it does not answer.
            while venue.pings_unanswered() == 0 {
                tokio::task::yield_now().await;
            }
        }
        venue.behave(Which::Open);
        change(&venue, &yes, &["2"]);
        assert_eq!(size_of(&socket.json().await), "2");
    }
}

#[tokio::test]
async fn a_connection_closes_fully_or_by_half() {
    for is_tls in [true, false] {
        let options = Options { is_tls, ..Options::default() };
        let (venue, mut socket, _, _) = followed(options.clone()).await;
        venue.misbehave(Which::Open, Fault::Drop);
        assert_eq!(socket.receive().await, Received::End);
        assert_eq!(venue.sockets(), []);

        let (venue, mut socket, _, yes) = followed(options).await;
        venue.misbehave(Which::Open, Fault::HalfClose);
        change(&venue, &yes, &["1"]);
        assert_eq!(socket.receive().await, Received::End);
        assert_eq!(venue.sockets(), [(1, 1)], "the venue still reads");
    }
}

#[tokio::test]
async fn sockets_opened_later_misbehave_too() {
    let (venue, mut first, _, yes) = followed(plain()).await;
    venue.misbehave(Which::Every, Fault::Freeze { has_pong: true });
    let asker = Asker::new(&venue);
    let mut second = asker.upgrade(&venue.ws_url).await.unwrap();
    second.subscribe(&[&yes]).await;
    for socket in [&mut first, &mut second] {
        socket.say("PING").await;
        assert_eq!(socket.text().await, "PONG");
    }
    venue.behave(Which::Every);
    let (_, dump) = asker.subscribed(&venue, &[&yes]).await;
    assert_eq!(dump[0]["asset_id"], *yes);
}

#[tokio::test]
async fn injected_frames_are_sent_as_given() {
    let (venue, mut socket, _, yes) = followed(plain()).await;
    for (injection, expected) in [
        (Injection::Empty, Received::Text(String::new())),
        (Injection::NoNewAssets, Received::Text("NO NEW ASSETS".to_owned())),
        (Injection::Binary, Received::Binary(4)),
        (Injection::Text("[]"), Received::Text("[]".to_owned())),
    ] {
        assert_eq!(venue.inject(Which::Open, injection), 1);
        assert_eq!(socket.receive().await, expected);
    }
    venue.inject(Which::Open, Injection::Huge(1_000_000));
    assert_eq!(socket.text().await.len(), 1_000_000);
    venue.inject(Which::Open, Injection::Garbage);
    assert!(serde_json::from_str::<Value>(&socket.text().await).is_err());
    venue.inject(Which::Open, Injection::UnknownEvent);
    assert_eq!(socket.json().await["event_type"], "moon_phase");

    venue.inject(Which::Of(&yes), Injection::CrossedBook(&yes));
    let book = socket.json().await;
    let ladder = Ladder::of_json(&book);
    assert_eq!(ladder.top(), ("0.98", "0.02"));
    let states = venue.published(&yes);
    assert!(states.iter().all(|state| state.hash != book["hash"]), "it was never the venue's book");
}

#[tokio::test]
async fn a_silent_client_is_dropped() {
    let short = Duration::from_millis(20);
    let (venue, mut socket, _, _) = followed(Options { ping_patience: short, ..plain() }).await;
    assert_eq!(socket.receive().await, Received::End);
    assert_eq!(venue.violations(), ["socket 1 was silent for too long"]);

    let options = Options { subscribe_patience: short, ..plain() };
    let venue = StandIn::start(World::invented(1), options).await;
    let mut socket = Asker::new(&venue).upgrade(&venue.ws_url).await.unwrap();
    assert_eq!(socket.receive().await, Received::End);
}

#[tokio::test]
async fn a_socket_with_too_many_tokens_gets_updates_but_no_snapshots() {
    let options = Options { snapshot_tokens_max: 3, frame_tokens_max: 2, ..plain() };
    let venue = StandIn::start(World::invented(4), options).await;
    let asker = Asker::new(&venue);
    let ids: Vec<String> = (0..4).map(|number| token_id(number, 0)).collect();
    let (mut socket, dump) = asker.subscribed(&venue, &[&ids[0], &ids[1]]).await;
    assert_eq!(dump.as_array().unwrap().len(), 2);
    let subscribe = json!({"assets_ids": [ids[2], ids[3]], "operation": "subscribe"}).to_string();
    socket.say(&subscribe).await;
    // The initial form a second time, too many tokens in one frame, and invalid JSON.
    socket.subscribe(&[&ids[0]]).await;
    let oversized = json!({"assets_ids": &ids[..3], "operation": "subscribe"}).to_string();
    socket.say(&oversized).await;
    socket.say("{").await;
    socket.say("PING").await;
    assert_eq!(socket.text().await, "PONG");
    venue.change_level(&ids[3], Side::Buy, "0.1", "1");
    assert_eq!(socket.json().await["event_type"], "price_change");
    assert_eq!(venue.violations().len(), 3);
}
