//! The path of the venue's messages to published books, in nanoseconds per frame.
//!
//! `frame to published books` covers the live venue's path from the text of a frame, as read from
//! the socket, to the books that readers see, each verified by the venue's hash: a regression
//! delays every price. The other groups are its parts: parsing the text; applying and publishing
//! the result; and verifying, which is SHA-1 over a text as long as the whole book and so dominates
//! a small change. `bodies` is the parsing of HTTP pages alone.
//!
//! With `PAPERBOURSE_RECORDINGS`, recorded frames and books are measured too.

#[path = "venue/invented.rs"]
mod invented;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use paperbourse::ids::Timestamp;
use paperbourse::market::Markets;
use paperbourse::market::book::{Ladder, Level};
use paperbourse::money::{Price, Rounding, Shares, micros_from_text};
use paperbourse::venue::feed::verify::{HashedBook, Verifier as _};
use paperbourse::venue::feed::{Feed, FeedCounts, MismatchPolicy};
use paperbourse::venue::follow::timing::Timing;
use paperbourse::venue::polymarket::hash::BookHasher;
use paperbourse::venue::polymarket::live::unconnected::Unconnected;
use paperbourse::venue::polymarket::wire::socket::{Frame, Message, frame};
use paperbourse::venue::polymarket::wire::{Description, clob, gamma};
use paperbourse::venue::{NewestTrade, VenueChange, VenueEvent};

use simd_json::prelude::ValueIntoString as _;
use simd_json::tape;

use invented::{Book, TOKENS};

/// Levels on each side of a synthetic book, as in a busy market of the venue.
const LEVELS_PER_SIDE: u32 = 60;

/// Frames that can be replayed in a loop, and their market.
struct Tape {
    name: String,
    market: Description,
    /// Sent once after the connection opens.
    first: Vec<String>,
    /// Sent in turn.
    frames: Vec<String>,
    /// Number of hashes verified per round of frames.
    verified: u64,
    /// Whether a round is all frames, starting with a new connection; otherwise a round is the next
    /// frame.
    is_whole: bool,
}

fn tapes() -> Vec<Tape> {
    let book = Book::of_depth(LEVELS_PER_SIDE);
    let dump =
        |book: &Book| format!("[{},{}]", book.message(0, TOKENS[0]), book.message(1, TOKENS[1]));
    let tape = |name: &str, frames: Vec<String>, verified| Tape {
        name: name.to_owned(),
        market: gamma::market(&invented::description()).expect("the synthetic data is valid"),
        first: vec![dump(&book)],
        frames,
        verified,
        is_whole: false,
    };
    let changed = |level_count: usize, size: u32| {
        let mut book = book.clone();
        (0..level_count).for_each(|place| book.set_bid(place, size));
        book
    };
    let mut tapes = Vec::new();
    for level_count in [1, 5] {
        let frames =
            [50_025, 60_050].map(|size| changed(level_count, size).price_change(level_count));
        let name = format!("price_change, {level_count} of 60+60 levels, both tokens");
        // The reported hashes are those of the book in which only these levels have changed.
        tapes.push(tape(&name, frames.to_vec(), 4));
    }
    let whole = [50_025, 60_050].map(|size| changed(1, size).message(0, TOKENS[0]));
    tapes.push(tape("book, 60+60 levels", whole.to_vec(), 2));
    tapes.push(tape("two books in an array", vec![dump(&changed(1, 50_025)), dump(&book)], 4));
    tapes.extend(recordings().and_then(|folder| recorded_tape(&folder)));
    tapes
}

/// A recorded minute of one token: a whole book, then 24 changes, a trade and a book.
fn recorded_tape(folder: &Path) -> Option<Tape> {
    let frames =
        std::fs::read_to_string(folder.join("ws/fed_july_2026-07-20_frames.jsonl")).ok()?;
    let markets = std::fs::read_to_string(folder.join("gamma/markets_2026-07_tinli.jsonl")).ok()?;
    let condition_id = frames.split('"').nth(3)?;
    let market = markets.lines().filter_map(|line| gamma::market(line).ok());
    Some(Tape {
        name: "a recorded minute of 27 frames".to_owned(),
        market: market.into_iter().find(|market| &*market.info.condition_id == condition_id)?,
        first: Vec::new(),
        frames: frames.lines().map(str::to_owned).collect(),
        verified: 26,
        is_whole: true,
    })
}

fn recordings() -> Option<PathBuf> {
    std::env::var_os("PAPERBOURSE_RECORDINGS").map(Into::into)
}

impl Tape {
    /// The live venue after the first books.
    fn venue(&self) -> Unconnected {
        // The times on a tape do not advance while it is replayed in a loop.
        let timing = Timing { lag_max: Duration::MAX, ..Timing::VENUE };
        let feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
        let mut venue = Unconnected::new(timing, feed, vec![self.market.clone()]);
        self.first.iter().for_each(|text| venue.frame(text));
        venue
    }

    fn play(&self, venue: &mut Unconnected) {
        if self.is_whole {
            venue.open();
        }
        self.frames.iter().for_each(|text| venue.frame(text));
    }

    /// Checks that every round does the work that is measured.
    fn check(&self) {
        let mut venue = self.venue();
        let mut before = venue.status().feed;
        for round in 0..3 {
            self.play(&mut venue);
            let FeedCounts { hashes_verified, hashes_mismatched, .. } = venue.status().feed;
            let verified = hashes_verified - before.hashes_verified;
            let name = &self.name;
            assert_eq!((verified, hashes_mismatched), (self.verified, 0), "{name}, {round}");
            before = venue.status().feed;
        }
    }

    fn frames_per_round(&self) -> u64 {
        if self.is_whole { self.frames.len() as u64 } else { 1 }
    }
}

fn messages(text: &str) -> impl Iterator<Item = Message<'_>> {
    let Frame::Messages(messages) = frame(text) else { panic!("{text} has no messages") };
    messages.into_iter().map(|message| message.expect("the frame is valid"))
}

fn frames(criterion: &mut Criterion) {
    let tapes = tapes();
    tapes.iter().for_each(Tape::check);

    let mut group = criterion.benchmark_group("frame to published books");
    for tape in &tapes {
        let mut venue = tape.venue();
        let mut frames = tape.frames.iter().cycle();
        group.throughput(Throughput::Elements(tape.frames_per_round()));
        group.bench_function(&tape.name, |bencher| {
            if tape.is_whole {
                bencher.iter(|| tape.play(&mut venue));
            } else {
                bencher.iter(|| venue.frame(black_box(frames.next().expect("a cycle"))));
            }
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("frame read");
    for tape in &tapes {
        let mut frames = tape.frames.iter().cycle();
        group.throughput(Throughput::Elements(1));
        group.bench_function(&tape.name, |bencher| {
            bencher.iter(|| {
                black_box(frame(black_box(frames.next().expect("a cycle"))));
            });
        });
    }
    group.finish();

    let mut group = criterion.benchmark_group("events applied and published, nothing verified");
    for tape in tapes.iter().filter(|tape| !tape.is_whole) {
        let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Count);
        let info = tape.market.info.clone();
        feed.apply(VenueEvent { at: Timestamp::EPOCH, change: VenueChange::Listed(vec![info]) });
        let names: [Arc<str>; 2] = TOKENS.map(Into::into);
        let events: Vec<VenueEvent> = messages(&tape.frames[0])
            .map(|message| {
                let event = message.event(|id| names[usize::from(id == TOKENS[1])].clone());
                without_hash(event.expect("the frame changes a book"))
            })
            .collect();
        group.throughput(Throughput::Elements(1));
        group.bench_function(&tape.name, |bencher| {
            bencher.iter_batched(
                || events.clone(),
                |events| events.into_iter().for_each(|event| drop(feed.apply(event))),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn without_hash(mut event: VenueEvent) -> VenueEvent {
    match &mut event.change {
        VenueChange::Book(book) => book.hash = None,
        VenueChange::Levels(changes) => {
            for change in changes {
                change.hash = None;
            }
        }
        _ => {}
    }
    event
}

fn verification(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("book verified by its hash");
    for levels_per_side in [4, LEVELS_PER_SIDE] {
        let invented = Book::of_depth(levels_per_side);
        let (text, hash) = (invented.message(0, TOKENS[0]), invented.hash(0));
        let book = clob::book(&text).expect("the synthetic data is valid");
        let hashed = HashedBook {
            market: invented::MARKET,
            token_id: TOKENS[0],
            at: book.at,
            ladder: &book.ladder,
            order_size_min: book.order_size_min.expect("the book has a smallest order size"),
            tick: book.tick.expect("the book has a tick"),
            neg_risk: false,
            version: None,
        };
        let last_trade_price = book.newest_trade.and_then(NewestTrade::price);
        let mut hasher = BookHasher::default();
        assert!(hasher.matching(hashed, &hash, &[last_trade_price]).is_some());
        group.bench_function(format!("{levels_per_side}+{levels_per_side} levels"), |bencher| {
            bencher.iter(|| hasher.matching(black_box(hashed), &hash, &[last_trade_price]));
        });
    }
    group.finish();
}

/// What takes most of the time of reading books: their levels.
fn ladders(tape: &simd_json::Tape<'_>) -> Vec<Ladder> {
    let micros = |level: &tape::Value<'_, '_>, name: &str| {
        let text = level.get(name).and_then(tape::Value::into_string).expect("a level has it");
        micros_from_text(text, Rounding::Exact).expect("a number")
    };
    let levels = |book: &tape::Value<'_, '_>, side: &str| -> Vec<Level> {
        let levels = book.get_array(side).expect("a book has both sides");
        let level = |level: tape::Value<'_, '_>| Level {
            price: Price::from_micros(micros(&level, "price")),
            size: Shares::from_micros(micros(&level, "size")),
        };
        levels.iter().map(level).collect()
    };
    let books = tape.as_value().as_array().expect("an array");
    let ladder = |book: tape::Value<'_, '_>| {
        Ladder::from_levels(levels(&book, "bids"), levels(&book, "asks")).expect("a book")
    };
    books.iter().map(ladder).collect()
}

fn bodies(criterion: &mut Criterion) {
    const BOOKS: usize = 100;
    let mut group = criterion.benchmark_group("bodies");
    let book = Book::of_depth(LEVELS_PER_SIDE);
    let books: Vec<String> =
        (0..BOOKS).map(|number| book.message(number % 2, TOKENS[number % 2])).collect();
    let body = format!("[{}]", books.join(","));
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function(format!("{BOOKS} books"), |bencher| {
        bencher.iter(|| clob::books(black_box(&body)).expect("the body is valid"));
    });
    // The alternative: an index of the text, without types, from which the books are then read. It
    // parses in place, so it needs a copy. It keeps no number's text, which a page of Gamma needs.
    let mut copy = Vec::new();
    let mut buffers = simd_json::Buffers::new(body.len());
    group.bench_function(format!("{BOOKS} books, simd-json's tape alone"), |bencher| {
        bencher.iter(|| {
            copy.clear();
            copy.extend_from_slice(black_box(body.as_bytes()));
            let tape = simd_json::to_tape_with_buffers(&mut copy, &mut buffers);
            tape.expect("the body is valid").0.len()
        });
    });
    group.bench_function(format!("{BOOKS} books by simd-json's tape"), |bencher| {
        bencher.iter(|| {
            copy.clear();
            copy.extend_from_slice(black_box(body.as_bytes()));
            let tape = simd_json::to_tape_with_buffers(&mut copy, &mut buffers);
            ladders(&tape.expect("the body is valid"))
        });
    });
    let row = invented::description();
    group.throughput(Throughput::Bytes(row.len() as u64));
    group.bench_function("a market of Gamma", |bencher| {
        bencher.iter(|| gamma::market(black_box(&row)).expect("the row is valid"));
    });
    group.finish();
}

criterion_group!(benches, frames, verification, bodies);
criterion_main!(benches);
