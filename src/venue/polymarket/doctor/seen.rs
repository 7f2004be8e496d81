//! What is seen of the venue: as it comes from the network, and as the assumptions get it.

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
    /// The catalogue.
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

/// What a service was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Asked {
    /// The CLOB service's clock.
    Time,
    /// A page of Gamma's open markets, after which there are more.
    Page {
        /// The most markets that it may have.
        limit: usize,
        /// The cursor that was sent.
        after: Option<String>,
    },
    /// Other markets of Gamma.
    Markets {
        /// Whether the connector does without this request, so that the service may refuse it.
        is_optional: bool,
    },
    /// The CLOB service's compact description of a market.
    Compact,
    /// Its long description of a market.
    Long,
    /// Books.
    Books,
    /// The data API's resolution of a market.
    Resolution,
}

/// The headers of an answer that matter here.
#[derive(Clone, Default, Debug)]
pub struct Headers {
    /// `Date`, in whole seconds.
    pub date: Option<Timestamp>,
    /// The names of those about rate limits, with their values.
    pub rate_limits: Vec<(String, String)>,
}

/// A complete answer.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Who answered.
    pub service: Service,
    /// What it was asked for.
    pub asked: Asked,
    /// The path of the request, without its query.
    pub path: String,
    /// Some of its headers.
    pub headers: Headers,
    /// When the request was sent.
    pub sent_at: Timestamp,
    /// When the answer was complete.
    pub received_at: Timestamp,
    /// The body.
    pub body: Arc<str>,
}

/// Why there is no usable answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// An error status.
    Status(u16),
    /// The connection failed, took too long, or sent something that is no answer.
    Unreachable(String),
}

/// Something that was seen.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A service answered.
    Answered(Answered),
    /// A service did not answer, or the socket did not open.
    Failed {
        /// Who.
        service: Service,
        /// What it was asked for; `None` for the socket.
        asked: Option<Asked>,
        /// Why.
        failure: Failure,
    },
    /// What three sources say about a closed market.
    Closed {
        /// Gamma's description.
        gamma: String,
        /// The CLOB service's long description, if it answered.
        clob: Option<Arc<str>>,
        /// The answer of the data API, if there is one.
        data: Option<Arc<str>>,
    },
    /// The socket is open.
    Opened {
        /// How many tokens are subscribed to.
        token_count: usize,
        /// Since when.
        at: Timestamp,
    },
    /// The socket sent a text frame.
    Frame {
        /// The text.
        text: String,
        /// When it was received.
        at: Timestamp,
    },
    /// The open socket was closed, or gave no sign of life.
    Lost {
        /// Why.
        why: String,
    },
}

/// Where something was seen, for samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    /// The path of the request; empty for the socket.
    pub(super) request: &'a str,
    /// The JSON in question; empty if there is none to show.
    pub(super) payload: &'a str,
}

impl Origin<'_> {
    /// Of something that cannot be shown.
    pub(super) const NONE: Self = Origin { request: "", payload: "" };
}

/// A document of a service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// Gamma's description of a market.
    Gamma,
    /// The CLOB service's compact description.
    Compact,
    /// Its long description.
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
    /// Whether it is traded under version 2 of the protocol.
    pub(super) is_v2: bool,
    pub(super) description: Result<&'a Description, &'a WireError>,
    pub(super) origin: Origin<'a>,
}

/// A page of a listing.
pub(super) struct PageSeen<'a> {
    /// The most markets that it may have.
    pub(super) limit: usize,
    /// The cursor that was sent.
    pub(super) after: Option<&'a str>,
    /// The condition ids of its markets.
    pub(super) ids: &'a [String],
    /// The cursor of the next page.
    pub(super) next_cursor: Option<&'a str>,
    pub(super) origin: Origin<'a>,
}

/// Something that was seen, read once for all assumptions.
pub(super) enum Observation<'a> {
    /// A service answered.
    Answered(&'a Answered),
    /// A service did not, or the socket did not open.
    Failed { service: Service, asked: &'a Option<Asked>, failure: &'a Failure },
    /// An answer that is no list.
    Unreadable { what: Source, problem: &'a str, origin: Origin<'a> },
    /// A page of a listing.
    Page(PageSeen<'a>),
    /// A description.
    Market(&'a MarketSeen<'a>),
    /// Two descriptions of one market.
    Twice { gamma: &'a Description, clob: &'a Description, origin: Origin<'a> },
    /// A requested book, and Gamma's description of its market, if known.
    Book {
        fields: &'a Value,
        /// Whether its market is traded under version 2 of the protocol.
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
        /// Why it cannot be read.
        error: Option<&'a WireError>,
        /// Its timestamp, if that is when it was sent.
        sent_at: Option<Timestamp>,
        received_at: Timestamp,
        origin: Origin<'a>,
    },
    /// How a hash or a best price fits the book that it is about.
    Judged(&'a Judged),
    /// What the sources say about a closed market.
    Resolution {
        id: &'a str,
        reports: &'a [SourceReport],
        decision: &'a Resolution,
        origin: Origin<'a>,
    },
    /// The look is over.
    Over { at: Timestamp },
}
