//! The stream of prices as server-sent events.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Method, StatusCode};

use crate::http::call::{Answer, Call};
use crate::http::connection::{CutOff, ReplyBody, Source};
use crate::http::error::ApiError;
use crate::http::invalid::{FieldError, Location};
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::http::route::RouteError;
use crate::ws::event_stream::{EventStream, MARKETS_MAX, OpenError};
use crate::ws::protocol::MARKET_ID_BYTES_MAX;
use crate::ws::subscriptions::SubscribeError;
use paperbourse_core::limits::bucket::Origin;

/// The parameter with the markets, separated by commas.
const CONDITION_IDS: &str = "condition_ids";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(in crate::http) const HEADERS: [Parameter; 1] = [Parameter::own(
    "Last-Event-ID",
    "",
    "the `id` of the last event that the client got: markets that have not changed since are left \
     out; an id that does not apply is ignored",
)];

/// Tells nginx to pass on each event immediately.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// If no markets are named, the original service streams currency prices here.
const NO_MARKETS: RouteError = RouteError::NotOffered {
    reason: "This server has no prices of currencies: name markets in condition_ids.",
};

pub(in crate::http) const QUERY: [Parameter; 1] = [Parameter::own(
    CONDITION_IDS,
    ".*[^, ].*",
    "the condition ids of up to 50 markets, separated by commas",
)
.required()];

pub(in crate::http) fn open(call: &Call<'_>) -> Answer {
    call.require_streams()?;
    let condition_ids = condition_ids(&call.query())?;
    if condition_ids.is_empty() {
        return Err(NO_MARKETS.into());
    }
    let mut reply = Reply::json(StatusCode::OK, Vec::new());
    let headers = &mut reply.headers;
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    if call.head.method != Method::HEAD {
        let stream = open_stream(call, &condition_ids)?;
        let unsent = call.app.unsent.share();
        reply.instead = Some(ReplyBody::Stream(Box::new(stream), Some(unsent)));
    }
    Ok(reply)
}

fn open_stream(call: &Call<'_>, condition_ids: &[String]) -> Result<EventStream, ApiError> {
    let app = call.app;
    if !app.service.room().has_room_for_readers() {
        return Err(ApiError::server_busy());
    }
    let streams_max = app.streams_per_address_max.load(Ordering::Relaxed);
    let open = app.streams.try_open(Origin::of(call.context.address), streams_max);
    let open = open.ok_or_else(|| ApiError::stream_limit_exceeded(streams_max))?;
    let now = call.context.moment.now;
    let last_event_id = call.header(&LAST_EVENT_ID);
    let last_event_id = last_event_id.as_deref().and_then(|id| std::str::from_utf8(id).ok());
    let from = (&app.fanout, call.turns);
    let stream = EventStream::open(from, condition_ids, last_event_id, open, now);
    stream.map_err(|error| match error {
        OpenError::Busy | OpenError::Markets(SubscribeError::Full) => ApiError::server_busy(),
        OpenError::Markets(_) => unreachable!("the ids were counted"),
    })
}

/// Returns the requested ids, in the order of the request and without duplicates.
fn condition_ids(query: &Query<'_>) -> Result<Vec<String>, FieldError> {
    let list = query.get(CONDITION_IDS).unwrap_or_default();
    let refuse = |kind, message: String| {
        let location = Location::of("query").field(CONDITION_IDS);
        Err(FieldError { location, kind, message: message.into() })
    };
    let mut ids: Vec<String> = Vec::new();
    for id in list.split(',').map(str::trim).filter(|id| !id.is_empty()) {
        if id.len() > MARKET_ID_BYTES_MAX {
            let message = format!("each id should have at most {MARKET_ID_BYTES_MAX} bytes");
            return refuse("string_too_long", message);
        }
        if !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
        if ids.len() > MARKETS_MAX as usize {
            let message = format!("should have at most {MARKETS_MAX} different ids");
            return refuse("too_long", message);
        }
    }
    Ok(ids)
}

impl Source for EventStream {
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>> {
        Self::poll_bytes(self, context).map(|bytes| Some(Ok(bytes)))
    }

    fn note_slow(&mut self) {
        Self::note_slow(self);
    }

    fn is_endless(&self) -> bool {
        true
    }

    fn farewell(&mut self) -> Bytes {
        Self::farewell(self)
    }
}
