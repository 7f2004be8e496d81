//! Records what the connector receives from a stand-in, and plays it: the same books and the same
//! resolutions result.

mod binary;
pub(crate) mod taped;

use std::collections::HashMap;
use std::time::Duration;

use paperbourse::market::catalogue::MarketStatus;
use paperbourse::venue::follow::freshness::Freshness;
use paperbourse::venue::recorded::TapePlayer;
use paperbourse::venue::tape::{Tape, TapeLimits};
use tokio::time::Instant;

use crate::standin::world::{MarketSeed, condition_id, token_id};
use crate::standin::{
    Endpoint, EndpointFault, Fault, Host, Injection, Options, Payout, Sent, Side, StandIn, Which,
    World,
};
use taped::{Played, Taped, feed, tokens};

/// Markets of the stand-in, all followed.
const MARKET_COUNT: usize = 4;

/// Leaves room for one market that is listed later.
const FOLLOWED_MAX: usize = MARKET_COUNT + 1;

async fn venue() -> StandIn {
    let options = Options { keeps_sent: true, ..Options::default() };
    StandIn::start(World::invented(MARKET_COUNT), options).await
}

/// What the venue does, how, and the sign that the connector has noticed.
type Row = (&'static str, fn(&StandIn), fn(&Taped) -> bool);

fn lost_at_least(taped: &Taped, count: u64) -> bool {
    taped.status().connections_lost >= count && taped.is_settled(&tokens(MARKET_COUNT))
}

/// A day at the venue, within seconds. Each row ends with every book fresh.
const DAY: [Row; 13] = [
    ("books move", |it| it.walk(1, 400), |taped| taped.is_settled(&tokens(MARKET_COUNT))),
    (
        "a new tick size",
        |it| {
            it.change_tick_size(&condition_id(1), "0.001");
            it.change_level(&token_id(1, 0), Side::Buy, "0.011", "5");
        },
        |taped| taped.is_settled(&tokens(MARKET_COUNT)),
    ),
    (
        "messages without news",
        |it| {
            for injection in [
                Injection::Garbage,
                Injection::Empty,
                Injection::NoNewAssets,
                Injection::UnknownEvent,
                Injection::Text("{\"event_type\":\n\"later\"}"),
                Injection::Text(" \u{1f600}\"\\ "),
            ] {
                it.inject(Which::Open, injection);
            }
        },
        |taped| taped.status().unknown_messages >= 4,
    ),
    (
        "a dropped connection",
        |it| it.misbehave(Which::Open, Fault::Drop),
        |taped| lost_at_least(taped, 1),
    ),
    (
        "an unreadable message",
        |it| {
            it.inject(Which::Open, Injection::Text(r#"{"event_type":"book","bids":7}"#));
            it.walk(2, 20);
        },
        |taped| lost_at_least(taped, 2),
    ),
    (
        "a binary frame",
        |it| assert_eq!(it.inject(Which::Open, Injection::Binary), 1),
        |taped| lost_at_least(taped, 3),
    ),
    (
        "wrong hashes, and a book endpoint that refuses at first",
        |it| {
            let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
            it.misbehave_at(Endpoint::Books, refused, 1);
            it.misbehave(Which::Open, Fault::CorruptHash { frames: 2 });
            it.change_level(&token_id(0, 0), Side::Buy, "0.02", "3");
            it.change_level(&token_id(2, 0), Side::Buy, "0.02", "4");
        },
        |taped| taped.status().books_requested > 0 && taped.is_settled(&tokens(MARKET_COUNT)),
    ),
    (
        "a silent socket whose books expire",
        |it| {
            it.misbehave(Which::Open, Fault::Freeze { has_pong: true });
            it.misbehave_at(Endpoint::Books, EndpointFault::Garbage, 2);
            it.walk(3, 50);
        },
        |taped| lost_at_least(taped, 4),
    ),
    (
        "a silent socket, and no book endpoint",
        |it| {
            let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
            it.misbehave_at(Endpoint::Books, refused, u32::MAX);
            it.misbehave(Which::Open, Fault::Freeze { has_pong: true });
        },
        |taped| !tokens(MARKET_COUNT).iter().any(|token| taped.is_fresh(token)),
    ),
    (
        "both are back",
        |it| {
            it.behave_at(Endpoint::Books);
            it.behave(Which::Open);
        },
        |taped| taped.is_settled(&tokens(MARKET_COUNT)),
    ),
    (
        "a failing catalogue, and a new market",
        |it| {
            it.misbehave_at(Endpoint::Keyset, EndpointFault::Garbage, 1);
            it.list_market(&MarketSeed::invented(MARKET_COUNT));
            it.describe(&condition_id(3), |fields| {
                fields.insert("question".into(), "Another question?".into());
            });
        },
        |taped| taped.is_settled(&tokens(FOLLOWED_MAX)),
    ),
    (
        "a market whose payout the data API confirms",
        |it| {
            it.remove_books(&condition_id(2));
            it.resolve_on_chain(&condition_id(2), Payout::Winner(1));
            it.resolve_on_gamma(&condition_id(2), Payout::Winner(1));
            it.describe(&condition_id(2), |fields| drop(fields.remove("umaResolutionStatus")));
        },
        |taped| taped.status_of(2) == Some(MarketStatus::Resolved),
    ),
    (
        "books move again",
        |it| it.walk(4, 200),
        |taped| {
            let open: Vec<String> = [0, 1, 3, 4].into_iter().flat_map(taped::both).collect();
            taped.is_settled(&open)
        },
    ),
];

/// The tape plays what was published: every book at every moment, every description, and the end.
#[tokio::test]
async fn a_tape_plays_what_was_published_during_recording() {
    let limits = TapeLimits { rotate_after: Duration::from_millis(700), ..TapeLimits::default() };
    let taped = Taped::start(venue().await, FOLLOWED_MAX, limits);
    taped.until("the first books", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
    for (what, act, sign) in DAY {
        act(&taped.venue);
        taped.until(what, sign).await;
    }
    let status = taped.status();
    assert!(
        status.tokens[Freshness::Live as usize] >= 8 && status.books_requested > 0,
        "{status:?}"
    );
    let recorded = taped.finish().await;
    assert!(recorded.totals.files > 9, "{:?}", recorded.totals);
    assert_eq!((recorded.totals.gaps, recorded.totals.lines_lost), (0, 0));

    let played = Played::of(recorded.folder.path());
    assert_eq!((played.report.missing_count, played.report.torn_count), (0, 0));
    let counts = played.counts;
    assert_eq!((counts.gaps, counts.unbegun, counts.unknown), (0, 0, 0), "{counts}");
    recorded.seen.check_played(&played.seen);
    recorded.check_sent(&played.lines);

    // Played line by line or all at once, the last books are the same.
    let tape = Tape::open(recorded.folder.path()).unwrap().unwrap();
    let player = TapePlayer::start(tape, "max".parse().unwrap(), feed());
    assert_eq!(taped::last_books(player.feed().markets()), played.seen.last_books());
    assert_eq!(player.feed().counts(), played.feed_counts);
}

/// The time between lines is the time between the recorded events, divided by the speed.
#[test]
fn a_tape_plays_at_the_recorded_pace() {
    /// How long each session lasts: far longer than the error of a clock that counts milliseconds.
    const SESSION: Duration = Duration::from_millis(100);
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for session in 0..2 {
            let venue = venue().await;
            let taped = Taped::start_in(venue, MARKET_COUNT, TapeLimits::default(), folder.path());
            taped.until("the first books", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
            let (began, mut seed) = (Instant::now(), session);
            while began.elapsed() < SESSION {
                taped.venue.walk(seed, 10);
                taped.until("a walk", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
                seed += 2;
            }
            taped.finish().await;
        }
    });
    let played = Played::of(folder.path());
    let mut spans: HashMap<usize, (i64, i64)> = HashMap::new();
    let mut session = 0;
    for line in &played.lines {
        session += usize::from(line.kind == "begin");
        let span = spans.entry(session).or_insert((line.ns, line.ns));
        span.1 = span.1.max(line.ns);
    }
    let recorded: i64 = spans.values().map(|(first, last)| last - first).sum();
    assert!(spans.len() == 2 && recorded > 50_000_000, "{spans:?}");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    for (speed, times) in [("1", 1), ("4", 4)] {
        runtime.block_on(async {
            let tape = Tape::open(folder.path()).unwrap().unwrap();
            let mut player = TapePlayer::start(tape, speed.parse().unwrap(), feed());
            assert!(
                player.feed().markets().listing().markets().is_empty(),
                "nothing is published before run"
            );
            let began = Instant::now();
            player.run().await;
            let elapsed = i64::try_from(began.elapsed().as_nanos()).unwrap();
            // The runtime's clock counts milliseconds.
            assert!((elapsed - recorded / times).abs() < 5_000_000, "{elapsed} of {recorded}");
            assert_eq!(taped::last_books(player.feed().markets()), played.seen.last_books());
        });
    }
}

/// What the disk is too slow for becomes a gap, followed by whole books.
#[tokio::test]
async fn a_gap_is_recorded_and_repaired() {
    const QUEUE_BYTES: usize = 200_000;
    let limits = TapeLimits { queue_bytes_max: QUEUE_BYTES, ..TapeLimits::default() };
    let taped = Taped::start(venue().await, MARKET_COUNT, limits);
    taped.until("the first books", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
    taped.venue.inject(Which::Open, Injection::Huge(2 * QUEUE_BYTES));
    taped.venue.walk(1, 50);
    taped.until("another connection", |it| lost_at_least(it, 1)).await;
    taped.venue.walk(2, 50);
    taped.until("books", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
    let recorded = taped.finish().await;
    assert_eq!((recorded.totals.gaps, recorded.totals.lines_lost), (1, 1));
    let played = Played::of(recorded.folder.path());
    assert_eq!((played.counts.gaps, played.report.missing_count), (1, 0));
    let (live, tape) = (recorded.seen.last_books(), played.seen.last_books());
    assert_eq!(live.len(), tape.len());
    for (token, book) in &live {
        let other = &tape[token];
        assert_eq!((book.ladder(), book.stale, &book.hash), (other.ladder(), false, &other.hash));
    }
}

/// Missing lines lose only what they recorded.
#[tokio::test]
async fn books_after_missing_lines_are_stale_until_recorded_again() {
    let limits = TapeLimits { rotate_after: Duration::ZERO, ..TapeLimits::default() };
    let taped = Taped::start(venue().await, MARKET_COUNT, limits);
    taped.until("the first books", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
    taped.venue.walk(1, 20);
    taped.until("a walk", |it| it.is_settled(&tokens(MARKET_COUNT))).await;
    let recorded = taped.finish().await;
    let files = std::fs::read_dir(recorded.folder.path().join("ws")).unwrap();
    let mut files: Vec<_> = files.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    // The last line records the end, not a frame.
    std::fs::remove_file(&files[files.len() - 3]).unwrap();
    let played = Played::of(recorded.folder.path());
    assert_eq!((played.report.missing_count, played.counts.gaps), (1, 1));
    let books = played.seen.last_books();
    assert!(books.len() == 2 * MARKET_COUNT && books.values().all(|book| book.stale), "{books:?}");

    // Without its first line nothing of a session can be used.
    std::fs::remove_file(&files[0]).unwrap();
    let played = Played::of(recorded.folder.path());
    assert_eq!(played.counts.unbegun, played.report.line_count);
    assert!(played.seen.last_books().is_empty());
}

/// Every byte that the stand-in sent is on the tape, in order.
impl taped::Recorded {
    fn check_sent(&self, lines: &[taped::OwnedLine]) {
        let mut connections: Vec<Vec<&[u8]>> = Vec::new();
        for line in lines {
            match &*line.kind {
                "open" => connections.push(Vec::new()),
                "frame" => {
                    let frames = connections.last_mut().expect("a connection is open");
                    frames.push(line.payload.as_deref().unwrap());
                }
                _ => {}
            }
        }
        let mut sent: HashMap<u64, Vec<&[u8]>> = HashMap::new();
        let mut answers: [Vec<(&str, &[u8])>; 2] = Default::default();
        for entry in &self.sent {
            match entry {
                Sent::Frame { text, .. } if **text == *b"PONG" => {}
                Sent::Frame { socket, text } => sent.entry(*socket).or_default().push(text),
                // One of these is enough for the replay to reach the same end.
                Sent::Answer { host: Host::Data, .. } => {}
                Sent::Answer { host, get, status: 200, body } => {
                    let get = get.trim_end_matches('?');
                    answers[usize::from(*host == Host::Clob)].push((get, body));
                }
                Sent::Answer { .. } => {}
            }
        }
        assert!(connections.len() >= 5, "{} connections", connections.len());
        for (number, frames) in (1..).zip(&connections) {
            let sent = &sent[&number];
            // What was sent just before a connection ended may not have arrived.
            assert!(sent.starts_with(frames), "connection {number}");
        }
        assert_eq!(
            connections.last(),
            sent.get(&(connections.len() as u64)),
            "the whole last connection"
        );

        let payload = |line: &'_ &taped::OwnedLine| line.payload.is_some();
        let gamma: Vec<(&str, &[u8])> = lines
            .iter()
            .filter(|line| line.kind == "answer" && line.get.starts_with("/markets"))
            .filter(payload)
            .map(|line| (line.get.as_str(), line.payload.as_deref().unwrap()))
            .collect();
        let (markets, gamma): (Vec<_>, Vec<_>) =
            gamma.into_iter().partition(|(get, _)| get.starts_with("/markets/0x"));
        // The last answer may have arrived after the end.
        assert!(answers[0].starts_with(&gamma) && answers[0].len() <= gamma.len() + 1);
        let books = lines.iter().filter(|line| line.kind == "books").filter(payload);
        let books = books.map(|line| ("/books", line.payload.as_deref().unwrap()));
        let mut clob: Vec<_> = markets.into_iter().chain(books).collect();
        assert!(clob.len() > 3, "{} answers", clob.len());
        // Two concurrent requests may be answered in either order.
        clob.sort_unstable();
        answers[1].sort_unstable();
        assert!(clob.iter().all(|answer| answers[1].binary_search(answer).is_ok()));
        assert!(answers[1].len() <= clob.len() + 2);
    }
}
