//! How the server is, in numbers, and what time it is.

use hyper::StatusCode;

use super::Call;
use super::health::venue_trouble;
use crate::http::json::write::JsonObject;
use crate::http::respond::Reply;
use crate::ids::Timestamp;
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::status::LiveSnapshot;

pub(super) fn status(call: &Call<'_>) -> Reply {
    let exchange = call.exchange;
    let trouble = venue_trouble(exchange);
    let mut body = Vec::with_capacity(1024);
    let mut object = JsonObject::new(&mut body);
    object.word("status", if trouble.is_some() { "degraded" } else { "ok" });
    object.time("timestamp", Timestamp::now());
    object.text("version", env!("CARGO_PKG_VERSION"));
    object.integer("uptime_seconds", exchange.began.elapsed().as_secs());

    let listing = exchange.service.markets().listing();
    let fresh = listing.markets().iter().filter(|market| market.snapshot().has_fresh_book());
    let mut markets = JsonObject::new(object.value("markets"));
    markets.integer("listed", listing.markets().len() as u64);
    markets.integer("tradable", fresh.count() as u64);
    markets.end();

    let mut sockets = JsonObject::new(object.value("websocket"));
    sockets.integer("connections", exchange.fanout.socket_count() as u64);
    sockets.end();

    let mut journal = JsonObject::new(object.value("journal"));
    match exchange.journal.metrics() {
        Some(metrics) => {
            let unflushed_ms = metrics.unflushed_age().as_millis();
            journal.word("kept", "on disk");
            journal.integer("unflushed_ms", u64::try_from(unflushed_ms).unwrap_or(u64::MAX));
        }
        None => journal.word("kept", "in memory"),
    }
    journal.end();

    let mut venue = JsonObject::new(object.value("venue"));
    venue.word("name", exchange.venue.name);
    venue.text_or_null("trouble", trouble);
    if let Some(live) = &exchange.venue.live {
        write_live(&mut venue, &live.get());
    }
    venue.end();
    object.end();
    Reply::json(StatusCode::OK, body)
}

fn write_live(venue: &mut JsonObject<'_>, live: &LiveSnapshot) {
    for (name, counts) in [("tokens", live.tokens), ("sockets", live.sockets)] {
        let mut states = JsonObject::new(venue.value(name));
        for (state, count) in Freshness::ALL.iter().zip(counts) {
            states.integer(state.as_str(), count as u64);
        }
        states.end();
    }
    venue.time_or_null("frame_received_at", live.frame_received_at);
    venue.integer("frames", live.frames);
    venue.integer("messages_ahead", live.ahead_messages);
    venue.integer("connections_lost", live.connections_lost);
    venue.integer("books_asked", live.books_asked);
    venue.integer("books_diverged", live.books_diverged);
    venue.integer("hashes_verified", live.feed.hashes_verified);
    venue.integer("hashes_mismatched", live.feed.hashes_mismatched);
}

/// The whole seconds since 1970, and nothing else.
pub(super) fn time(call: &Call<'_>) -> Reply {
    let seconds = call.visit.moment.now.seconds();
    Reply::json(StatusCode::OK, seconds.to_string().into_bytes())
}
