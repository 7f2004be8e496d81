//! The rows of the table.

use std::time::Duration;

use super::row::{
    AHEAD, AT_ONCE, BACKOFF, BACKOFF_MOST, CHECK, CHECK_AND_SILENCE, DELAY, EXPIRY, LAG, Means,
    Row, Span, Stale, Walking,
};
use crate::standin::world::{condition_id, token_id};
use crate::standin::{
    Endpoint, EndpointFault, Fault, Injection, Payout, Side, StandIn, Which, World, now_us,
};

/// Frames that are wrong, missing, or unknown.
pub(super) const FRAMES: fn() -> Vec<Row> = || {
    vec![
        Row::new(
            "tells frames twice",
            |it| change_levels_with(it, Fault::Duplicate { frames: 2 }),
            |now, was| now.frames >= was.frames + 4,
        )
        .harmless(),
        Row::new(
            "swaps two frames",
            |it| change_levels_with(it, Fault::Swap { pairs: 1 }),
            |now, was| now.feed.hashes_mismatched > was.feed.hashes_mismatched,
        ),
        Row {
            means: Means::Books,
            ..Row::new(
                "tells a wrong hash",
                |it| {
                    it.misbehave(Which::Open, Fault::CorruptHash { frames: 1 });
                    it.change_level(&token_id(0, 0), Side::Buy, "0.1", "70");
                },
                |now, was| now.feed.hashes_mismatched > was.feed.hashes_mismatched,
            )
        },
        Row::new(
            "tells a time to come, once",
            |it| {
                it.misbehave(Which::Open, Fault::Ahead { frames: 1 });
                it.change_level(&token_id(0, 0), Side::Buy, "0.1", "70");
            },
            |now, was| now.ahead_messages > was.ahead_messages,
        ),
        Row {
            is_mutated: true,
            ..Row::new(
                "withholds a deep level, then tells another",
                |it| change_levels_with(it, Fault::Skip { frames: 1 }),
                |now, was| now.feed.hashes_mismatched > was.feed.hashes_mismatched,
            )
        },
        Row {
            // The socket repeats its book before the old one counts as stale.
            noticed: CHECK,
            stale: Stale::Nothing,
            is_mutated: true,
            ..Row::new(
                "withholds a deep level, then is quiet",
                |it| {
                    it.misbehave(Which::Open, Fault::Skip { frames: 1 });
                    it.change_level(&token_id(0, 0), Side::Buy, "0.1", "70");
                },
                |now, was| now.books_diverged > was.books_diverged,
            )
        },
        Row {
            noticed: AHEAD,
            ..Row::new(
                "withholds the best level",
                |it| {
                    it.misbehave(Which::Open, Fault::Skip { frames: 1 });
                    it.change_level(&token_id(0, 0), Side::Buy, "0.3", "0");
                },
                |now, was| now.feed.tops_mismatched > was.feed.tops_mismatched,
            )
        },
        Row {
            stale: Stale::Token,
            is_mutated: true,
            ..Row::new(
                "tells a crossed book",
                |it| inject(it, Injection::CrossedBook(&token_id(0, 0))),
                |now, was| now.feed.crossed > was.feed.crossed,
            )
        },
        Row::new(
            "tells a trade of one token only",
            |it| drop(it.trade(&token_id(0, 0), Side::Buy, "5")),
            |now, was| now.feed.trades > was.feed.trades,
        )
        .harmless(),
        Row::new(
            "says no JSON",
            |it| inject(it, Injection::Garbage),
            |now, was| now.unknown_messages > was.unknown_messages,
        )
        .harmless(),
        Row::new(
            "breaks off a JSON text",
            |it| inject(it, Injection::Text(BROKEN)),
            |now, was| now.connections_lost > was.connections_lost,
        )
        .reconnected(),
        Row {
            stale: Stale::Token,
            ..Row::new("names a level that is no number", inject_odd, |now, was| {
                now.unreadable_messages > was.unreadable_messages
            })
        },
        Row::new("speaks the format of 2025", inject_old, |now, was| {
            now.connections_lost > was.connections_lost
        })
        .reconnected(),
        Row::new(
            "announces a market that cannot be read",
            |it| inject(it, Injection::Text(r#"{"event_type":"new_market","market":[]}"#)),
            |now, was| now.unknown_messages > was.unknown_messages,
        )
        .harmless(),
        Row::new(
            "says nothing, NO NEW ASSETS, and what nobody knows",
            |it| {
                inject(it, Injection::Empty);
                inject(it, Injection::NoNewAssets);
                inject(it, Injection::UnknownEvent);
            },
            |now, was| now.unknown_messages > was.unknown_messages,
        )
        .harmless(),
        Row::new(
            "sends a frame of 1 MiB",
            |it| inject(it, Injection::Huge(1 << 20)),
            |now, was| now.unknown_messages > was.unknown_messages,
        )
        .harmless(),
        Row::new(
            "sends a frame of 17 MiB",
            |it| inject(it, Injection::Huge(17 << 20)),
            |now, was| now.connections_lost > was.connections_lost,
        )
        .reconnected(),
        Row::new(
            "sends a binary frame",
            |it| inject(it, Injection::Binary),
            |now, was| now.connections_lost > was.connections_lost,
        )
        .reconnected(),
    ]
};

/// Sockets that fall silent, or are late.
pub(super) const SILENCE: fn() -> Vec<Row> = || {
    let lost = || Row {
        walking: Walking::All,
        noticed: CHECK,
        ..Row::new("", |_| {}, |now, was| now.connections_lost > was.connections_lost).reconnected()
    };
    let mut delayed = Row {
        venue: "is late, all the time",
        act: |it| it.misbehave(Which::Open, Fault::Delay(DELAY)),
        sign: |now, was| now.late_messages > was.late_messages,
        noticed: LAG,
        ..lost()
    };
    // Otherwise the fault is found by other means first.
    delayed.timing.check_after = 10 * DELAY;
    delayed.timing.verified_max = 20 * DELAY;
    delayed.timing.pong_timeout = 10 * DELAY;
    vec![
        Row {
            venue: "freezes, and answers PING",
            act: |it| it.misbehave(Which::Open, Fault::Freeze { has_pong: true }),
            is_mutated: true,
            ..lost()
        },
        Row {
            venue: "freezes, and answers no PING",
            act: |it| it.misbehave(Which::Open, Fault::Freeze { has_pong: false }),
            ..lost()
        },
        Row {
            venue: "freezes every socket, new ones too",
            act: |it| it.misbehave(Which::Every, Fault::Freeze { has_pong: true }),
            sign: |now, was| now.connections_lost > was.connections_lost + 1,
            mend: |it| it.behave(Which::Every),
            recovered: CHECK_AND_SILENCE,
            ..lost()
        },
        Row {
            venue: "freezes, and has no books to ask for",
            act: |it| {
                it.misbehave(Which::Open, Fault::Freeze { has_pong: true });
                refuse(it, Endpoint::Books, 503, None, u32::MAX);
            },
            sign: |now, _| now.tokens[3] == 6,
            mend: |it| {
                it.behave_at(Endpoint::Books);
                it.misbehave(Which::Open, Fault::Drop);
            },
            noticed: EXPIRY,
            recovered: BACKOFF,
            ..lost()
        },
        delayed,
        Row {
            venue: "has no books of a market any more",
            act: |it| it.remove_books(&condition_id(0)),
            sign: |now, _| now.tokens[3] == 2,
            mend: |it| {
                let books = World::invented(1).markets.remove(0).books;
                it.replace_book(&token_id(0, 0), &books[0].as_ref().unwrap().ladder);
            },
            walking: Walking::Others,
            stale: Stale::Market,
            means: Means::Frames,
            recovered: AT_ONCE,
            ..lost()
        },
        Row {
            venue: "closes a market",
            act: |it| it.resolve(&condition_id(0), Payout::Winner(1)),
            sign: |now, was| now.tokens.iter().sum::<usize>() < was.tokens.iter().sum(),
            walking: Walking::Others,
            noticed: AT_ONCE,
            stale: Stale::Market,
            means: Means::Nothing,
            recovered: AT_ONCE,
            is_over: true,
            ..lost()
        },
    ]
};

/// Connections that end, and obstacles to reconnecting.
pub(super) const CONNECTIONS: fn() -> Vec<Row> = || {
    let ended = || Row {
        walking: Walking::All,
        ..Row::new("", |_| {}, |now, was| now.connections_lost > was.connections_lost).reconnected()
    };
    let refused = || Row {
        sign: |now, was| now.connections_lost > was.connections_lost + 3,
        recovered: BACKOFF_MOST,
        ..ended()
    };
    vec![
        Row { venue: "drops the socket", act: |it| drop_after(it, None), ..ended() },
        Row {
            venue: "closes its side of the socket",
            act: |it| it.misbehave(Which::Open, Fault::HalfClose),
            ..ended()
        },
        Row {
            venue: "drops it and refuses others, 425",
            act: |it| drop_after(it, Some((425, None))),
            ..refused()
        },
        Row {
            venue: "drops it and refuses others, 429",
            act: |it| drop_after(it, Some((429, None))),
            ..refused()
        },
        Row {
            venue: "drops it and refuses others, 403",
            act: |it| drop_after(it, Some((403, None))),
            ..refused()
        },
        Row {
            venue: "drops it and does not answer the next",
            act: |it| {
                it.misbehave_at(Endpoint::Upgrade, EndpointFault::Silent, 1);
                drop_after(it, None);
            },
            sign: |now, was| now.connections_lost > was.connections_lost + 1,
            recovered: BACKOFF_MOST,
            ..ended()
        },
    ]
};

/// A book that only the book endpoint can repair, and an endpoint that does not at first.
pub(super) const BOOK_ENDPOINT: fn() -> Vec<Row> = || {
    const AFTER_REFUSALS: fn(&'static str, fn(&StandIn), Span) -> Row =
        |venue, act, recovered| Row {
            recovered,
            ..Row::new(venue, act, |now, was| {
                now.feed.hashes_mismatched > was.feed.hashes_mismatched
            })
        };
    const PAUSE: Span = Span {
        name: "3 refusals.rate_limited",
        duration: |timing| 3 * timing.refusals.rate_limited + 4 * timing.book_request_pause,
    };
    const RETRY_AFTER: Span = Span {
        name: "2 × Retry-After",
        duration: |timing| Duration::from_secs(2) + 4 * timing.book_request_pause,
    };
    const EDGE: Span = Span {
        name: "3 refusals.forbidden",
        duration: |timing| 3 * timing.refusals.forbidden + 4 * timing.book_request_pause,
    };
    const RESTART: Span = Span {
        name: "3 refusals.restarting",
        duration: |timing| 3 * timing.refusals.restarting + 4 * timing.book_request_pause,
    };
    const FAILURE: Span = Span {
        name: "3 refusals.failing",
        duration: |timing| 3 * timing.refusals.failing + 4 * timing.book_request_pause,
    };
    const AGAIN: Span =
        Span { name: "7 book_request_pause", duration: |timing| 7 * timing.book_request_pause };
    const LATE: Span = Span {
        name: "3 answer_timeout",
        duration: |timing| 3 * timing.answer_timeout + 7 * timing.book_request_pause,
    };
    vec![
        AFTER_REFUSALS("lies, and /books answers 429", |it| lie(it, refusal(429, None)), PAUSE),
        AFTER_REFUSALS(
            "lies, and /books answers 429, Retry-After: 1",
            |it| lie(it, refusal(429, Some(1))),
            RETRY_AFTER,
        ),
        AFTER_REFUSALS("lies, and /books answers 403", |it| lie(it, refusal(403, None)), EDGE),
        AFTER_REFUSALS("lies, and /books answers 425", |it| lie(it, refusal(425, None)), RESTART),
        AFTER_REFUSALS("lies, and /books answers 500", |it| lie(it, refusal(500, None)), FAILURE),
        AFTER_REFUSALS(
            "lies, and /books is truncated",
            |it| lie(it, EndpointFault::Truncate),
            AGAIN,
        ),
        AFTER_REFUSALS("lies, and /books breaks off", |it| lie(it, EndpointFault::Cut), AGAIN),
        AFTER_REFUSALS(
            "lies, and /books is a web page",
            |it| lie(it, EndpointFault::Garbage),
            AGAIN,
        ),
        AFTER_REFUSALS(
            "lies, and /books is slow",
            |it| lie(it, EndpointFault::Slow(Duration::from_millis(700))),
            LATE,
        ),
        AFTER_REFUSALS("lies, and /books never answers", |it| lie(it, EndpointFault::Silent), LATE),
    ]
};

const BROKEN: &str = r#"{"event_type":"book","market":"0x"#;

/// Applies a fault of frames, then makes two changes of deep levels.
fn change_levels_with(venue: &StandIn, fault: Fault) {
    venue.misbehave(Which::Open, fault);
    for (price, size) in [("0.1", "70"), ("0.11", "80")] {
        venue.change_level(&token_id(0, 0), Side::Buy, price, size);
    }
}

fn inject(venue: &StandIn, injection: Injection<'_>) {
    assert_eq!(venue.inject(Which::Open, injection), 1);
}

/// A change of market 0 with one field that is not a number.
fn inject_odd(venue: &StandIn) {
    let text = format!(
        concat!(
            r#"{{"event_type":"price_change","market":"{}","timestamp":"{}","price_changes":"#,
            r#"[{{"asset_id":"{}","price":"dear","size":"1","side":"BUY"}}]}}"#
        ),
        condition_id(0),
        now_us() / 1_000,
        token_id(0, 0)
    );
    inject(venue, Injection::Text(&text));
}

fn inject_old(venue: &StandIn) {
    let text = format!(
        concat!(
            r#"{{"event_type":"price_change","market":"{}","asset_id":"{}","timestamp":"1","#,
            r#""hash":"00","changes":[{{"price":"0.1","size":"1","side":"BUY"}}]}}"#
        ),
        condition_id(0),
        token_id(0, 0)
    );
    inject(venue, Injection::Text(&text));
}

fn refusal(status: u16, retry_after_s: Option<u32>) -> EndpointFault {
    EndpointFault::Refuse { status, retry_after_s }
}

fn refuse(venue: &StandIn, at: Endpoint, status: u16, retry_after_s: Option<u32>, count: u32) {
    venue.misbehave_at(at, refusal(status, retry_after_s), count);
}

/// Drops the sockets, and refuses the next three upgrades if a status is given.
fn drop_after(venue: &StandIn, status: Option<(u16, Option<u32>)>) {
    if let Some((status, retry_after_s)) = status {
        refuse(venue, Endpoint::Upgrade, status, retry_after_s, 3);
    }
    venue.misbehave(Which::Open, Fault::Drop);
}

/// Corrupts a hash of market 0, and applies this fault to the next two requests for books.
fn lie(venue: &StandIn, fault: EndpointFault) {
    venue.misbehave_at(Endpoint::Books, fault, 2);
    venue.misbehave(Which::Open, Fault::CorruptHash { frames: 1 });
    venue.change_level(&token_id(0, 0), Side::Buy, "0.1", "70");
}
