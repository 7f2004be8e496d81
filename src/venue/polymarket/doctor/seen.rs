//! Observations of the venue, both as received from the network and as passed to the assumptions.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::books::Judged;
use crate::polymarket::resolution::{Resolution, SourceReport};
use crate::polymarket::wire::clob::BookMessage;
use crate::polymarket::wire::{Description, WireError};
use paperbourse_core::ids::Timestamp;

/// A service of the venue.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Service {
    /// The catalogue of markets.
    Gamma,
    /// The order books.
    Clob,
    /// The resolutions.
    Data,
    /// The market socket.
    Socket,
}

impl fmt::Display for Service {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gamma => "Gamma",
            Self::Clob => "CLOB",
            Self::Data => "data API",
            Self::Socket => "socket",
        })
    }
}

/// A request to a service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The CLOB service's clock.
    Time,
    /// A page of Gamma's listing of open markets.
    Page {
        /// Maximum number of markets on the page.
        limit: usize,
        /// The cursor that was sent; `None` for the first page.
        after: Option<String>,
    },
    /// Other markets from Gamma.
    Markets {
        /// Whether the connector can do without this request, so that the service may refuse it.
        is_optional: bool,
    },
    /// The CLOB service's compact description of a market.
    Compact,
    /// The CLOB service's long description of a market.
    Long,
    /// Books from the CLOB service.
    Books,
    /// The data API's resolution of a market.
    Resolution,
}

/// The headers of an answer that the doctor uses.
#[derive(Clone, Default, Debug)]
pub struct Headers {
    /// The `Date` header, in whole seconds.
    pub date: Option<Timestamp>,
    /// Names and values of the rate-limit headers.
    pub rate_limits: Vec<(String, String)>,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The service that answered.
    pub service: Service,
    /// The request that was answered.
    pub asked: Asked,
    /// The path of the request, without its query.
    pub path: String,
    /// The headers that the doctor uses.
    pub headers: Headers,
    /// The time at which the request was sent.
    pub sent_at: Timestamp,
    /// The time at which the answer was complete.
    pub received_at: Timestamp,
    /// The body of the answer.
    pub body: Arc<str>,
}

/// The reason why a request has no usable answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An error status.
    Status(u16),
    /// The connection failed, timed out, or did not yield a valid answer.
    Unreachable(String),
}

/// An event while the doctor observes the venue.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A service answered.
    Answered(Answered),
    /// A service did not answer, or the socket did not open.
    Failed {
        /// The service.
        service: Service,
        /// The request; `None` for the socket.
        asked: Option<Asked>,
        /// The reason.
        failure: Failure,
    },
    /// The reports of three sources on a closed market.
    Closed {
        /// Gamma's description.
        gamma: String,
        /// The CLOB service's long description, if that service answered.
        clob: Option<Arc<str>>,
        /// The data API's answer, if there is one.
        data: Option<Arc<str>>,
    },
    /// The socket is open.
    Opened {
        /// Number of subscribed tokens.
        token_count: usize,
        /// The time at which the socket opened.
        at: Timestamp,
    },
    /// The socket sent a text frame.
    Frame {
        /// The text of the frame.
        text: String,
        /// The time at which the frame was received.
        at: Timestamp,
    },
    /// The open socket was closed or went silent.
    Lost {
        /// The reason.
        why: String,
    },
}

/// The origin of an observation, for samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    /// The path of the request; empty for the socket.
    pub(super) request: &'a str,
    /// The JSON in question; empty if there is none to show.
    pub(super) payload: &'a str,
}

impl Origin<'_> {
    /// The origin of an observation that has nothing to show.
    pub(super) const NONE: Self = Origin { request: "", payload: "" };
}

/// A kind of document that a service returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Gamma's description of a market.
    Gamma,
    /// The CLOB service's compact description.
    Compact,
    /// The CLOB service's long description.
    Long,
    /// A requested book.
    Book,
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Gamma => "Gamma",
            Self::Compact => "/clob-markets",
            Self::Long => "/markets",
            Self::Book => "/books",
        })
    }
}

/// A description of a market.
pub(super) struct MarketSeen<'a> {
    pub(super) source: Source,
    pub(super) fields: &'a Value,
    /// Whether the market is traded under version 2 of the protocol.
    pub(super) is_v2: bool,
    pub(super) description: Result<&'a Description, &'a WireError>,
    pub(super) origin: Origin<'a>,
}

/// A page of a listing.
pub(super) struct PageSeen<'a> {
    /// Maximum number of markets on the page.
    pub(super) limit: usize,
    /// The cursor that was sent; `None` for the first page.
    pub(super) after: Option<&'a str>,
    /// The condition ids of the page's markets.
    pub(super) ids: &'a [String],
    /// The cursor of the next page, if stated.
    pub(super) next_cursor: Option<&'a str>,
    pub(super) origin: Origin<'a>,
}

/// An observation, parsed once for all assumptions.
pub(super) enum Observation<'a> {
    /// A service answered.
    Answered(&'a Answered),
    /// A service did not answer, or the socket did not open.
    Failed { service: Service, asked: &'a Option<Asked>, failure: &'a Failure },
    /// An answer that cannot be parsed as a list.
    Unreadable { what: Source, problem: &'a str, origin: Origin<'a> },
    /// A page of a listing.
    Page(PageSeen<'a>),
    /// A description of a market.
    Market(&'a MarketSeen<'a>),
    /// Two descriptions of one market.
    Twice { gamma: &'a Description, clob: &'a Description, origin: Origin<'a> },
    /// A requested book, and Gamma's description of its market, if known.
    Book {
        fields: &'a Value,
        /// Whether the book's market is traded under version 2 of the protocol.
        is_v2: bool,
        book: &'a Result<BookMessage<'a>, WireError>,
        gamma: Option<&'a Description>,
        origin: Origin<'a>,
    },
    /// The socket is open and subscribed.
    Opened { token_count: usize, at: Timestamp },
    /// The open socket was closed.
    Lost { why: &'a str },
    /// A frame that is not JSON.
    NotJson { origin: Origin<'a> },
    /// A message from the socket.
    Message {
        fields: &'a Value,
        /// The parse error, if the message cannot be parsed.
        error: Option<&'a WireError>,
        /// The message's timestamp, if that is the time at which the message was sent.
        sent_at: Option<Timestamp>,
        received_at: Timestamp,
        origin: Origin<'a>,
    },
    /// The result of comparing a hash or best prices with the book that they describe.
    Judged(&'a Judged),
    /// The reports of the sources on a closed market.
    Resolution {
        id: &'a str,
        reports: &'a [SourceReport],
        decision: &'a Resolution,
        origin: Origin<'a>,
    },
    /// The run is over.
    Over { at: Timestamp },
}
