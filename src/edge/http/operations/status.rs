//! The server's status in numbers, and its time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use hyper::StatusCode;

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::health::{memory_trouble, venue_trouble};
use crate::allocator;
use crate::build::{self, BUILD, Build};
use crate::http::call::Call;
use crate::http::reply::Reply;
use crate::trouble::Trouble;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::wire::Time;
use paperbourse_venue::follow::freshness::Freshness;
use paperbourse_venue::follow::status::LiveSnapshot;

pub(in crate::http) fn status(call: &Call<'_>) -> Reply {
    let app = call.app;
    let trouble = venue_trouble(app);
    let of_memory = memory_trouble(app);
    let listing = call.service().markets().listing();
    let fresh = listing.markets().iter().filter(|market| market.snapshot().has_fresh_book());
    let journal = app.journal.metrics();
    let unflushed_ms = journal.map(|metrics| metrics.unflushed_age().as_millis());
    Reply::ok(&StatusAnswer {
        status: if trouble.or(of_memory).is_some() { "degraded" } else { "ok" },
        timestamp: Time(Timestamp::now()),
        version: build::VERSION,
        build: &BUILD,
        uptime_seconds: app.began.elapsed().as_secs(),
        markets: Markets { listed: listing.markets().len(), tradable: fresh.count() },
        websocket: Open { connections: app.sockets.total() },
        sse: Open { connections: app.streams.total() },
        readers: Readers {
            subscriptions: app.fanout.subscription_count(),
            unsent_bytes: app.unsent.held_bytes(),
            unsent_bytes_max: app.unsent.bytes_max(),
            conflated: app.fanout.conflated_count(),
            closed_1013: app.turned_away.load(Ordering::Relaxed),
            streams_cut_off: app.streams_cut_off.load(Ordering::Relaxed),
        },
        journal: Journal {
            kept: if journal.is_some() { "on disk" } else { "in memory" },
            unflushed_ms: unflushed_ms.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        },
        memory: Memory {
            in_use_bytes: allocator::in_use_bytes(),
            limit_bytes: call.service().room().limit_bytes(),
            trouble: of_memory,
        },
        venue: Venue {
            name: app.venue.name,
            trouble,
            live: app.venue.live.as_ref().map(|live| Live::of(&live.get())),
        },
        clob_trouble: app.trouble.as_deref().map(ClobTrouble::of),
    })
}

/// Returns the whole seconds since 1970, as a bare number.
pub(in crate::http) fn time(call: &Call<'_>) -> Reply {
    let seconds = call.context.moment.now.seconds();
    Reply::json(StatusCode::OK, seconds.to_string().into_bytes())
}

/// How the server is doing.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Status")]
pub(in crate::http) struct StatusAnswer {
    /// `ok` or `degraded`.
    status: &'static str,
    /// The server's time.
    timestamp: Time,
    /// The server's version.
    version: &'static str,
    build: &'static Build,
    uptime_seconds: u64,
    markets: Markets,
    websocket: Open,
    sse: Open,
    readers: Readers,
    journal: Journal,
    memory: Memory,
    venue: Venue,
    /// Absent without `--clob-trouble`.
    #[serde(skip_serializing_if = "Option::is_none")]
    clob_trouble: Option<ClobTrouble>,
}

/// The trouble that clients of Polymarket's interface meet on purpose.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusClobTrouble")]
pub(in crate::http) struct ClobTrouble {
    /// The plan, as `--clob-trouble` takes it.
    plan: String,
    /// How often each kind was met since the start.
    met: BTreeMap<&'static str, u64>,
    /// Lines that did not fit into the record.
    unrecorded: u64,
}

impl ClobTrouble {
    pub(in crate::http) fn of(trouble: &Trouble) -> Self {
        Self {
            plan: trouble.plan().to_string(),
            met: trouble.counts().map(|(kind, count)| (kind.name(), count)).collect(),
            unrecorded: trouble.unrecorded_count(),
        }
    }
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusMarkets")]
struct Markets {
    /// All known markets.
    listed: usize,
    /// Those that take orders now.
    tradable: usize,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusConnections")]
struct Open {
    connections: usize,
}

/// Of all sockets and price streams together.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusReaders")]
struct Readers {
    /// The number of subscriptions to markets. A market counts once for each of its subscribers.
    subscriptions: usize,
    /// The memory held by what their clients have yet to read, in bytes.
    unsent_bytes: usize,
    /// The limit of that.
    unsent_bytes_max: usize,
    /// Prices that replaced several since the start, because the reader or the server could not
    /// keep up.
    conflated: u64,
    /// Sockets that were closed with 1013 since the start: too slow, or there was no room for them.
    closed_1013: u64,
    /// Price streams that were cut off since the start: too slow, or there was no memory left for
    /// what their clients had yet to read.
    streams_cut_off: u64,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusJournal")]
struct Journal {
    /// Where data is kept.
    kept: &'static str,
    /// The age of the oldest record that is not on disk yet, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    unflushed_ms: Option<u64>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusMemory")]
struct Memory {
    /// What was allocated and not freed.
    in_use_bytes: Option<u64>,
    /// Above it, requests that need more memory are refused.
    limit_bytes: Option<u64>,
    /// What is refused for lack of memory, if anything is.
    trouble: Option<&'static str>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusVenue")]
struct Venue {
    /// Where prices come from.
    name: &'static str,
    /// Why no book is fresh, if none is.
    trouble: Option<&'static str>,
    /// Additional fields for a venue that is followed live.
    #[serde(flatten)]
    live: Option<Live>,
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "StatusLiveVenue")]
struct Live {
    tokens: States,
    sockets: States,
    frame_received_at: Option<Time>,
    frames: u64,
    messages_ahead: u64,
    connections_lost: u64,
    books_asked: u64,
    books_diverged: u64,
    hashes_verified: u64,
    hashes_mismatched: u64,
}

/// The number of books in each state of freshness.
#[derive(JsonSchema)]
#[schemars(inline)]
struct States(#[schemars(with = "BTreeMap<String, u64>")] [usize; Freshness::ALL.len()]);

impl Serialize for States {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = Freshness::ALL.iter().map(|state| state.as_str());
        serializer.collect_map(names.zip(self.0))
    }
}

impl Live {
    fn of(live: &LiveSnapshot) -> Self {
        Self {
            tokens: States(live.tokens),
            sockets: States(live.sockets),
            frame_received_at: live.frame_received_at.map(Time),
            frames: live.frames,
            messages_ahead: live.ahead_messages,
            connections_lost: live.connections_lost,
            books_asked: live.books_requested,
            books_diverged: live.books_diverged,
            hashes_verified: live.feed.hashes_verified,
            hashes_mismatched: live.feed.hashes_mismatched,
        }
    }
}
