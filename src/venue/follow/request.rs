//! A follower's requests to its carrier, including lines to log.

use std::sync::Arc;
use std::time::Duration;

/// The tokens of one request to the book endpoint. Each token comes with the number of times its
/// connection has been opened or lost, so that an answer to a request from an earlier connection is
/// discarded.
pub type BookRequest = Vec<(Arc<str>, u32)>;

/// An action for the carrier. Actions must be executed in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// Assign these tokens to a socket, in addition to the tokens that it already has.
    Assign {
        /// The number of the socket.
        socket: usize,
        /// The new tokens.
        tokens: Vec<Arc<str>>,
    },
    /// Subscribe this socket to exactly these tokens; open it if it is new.
    Subscribe {
        /// The number of the socket. Sockets are numbered from 0, without gaps.
        socket: usize,
        /// All tokens of the socket; an empty list closes it.
        tokens: Arc<[Arc<str>]>,
    },
    /// Request the full book of one of the socket's tokens again.
    Renew {
        /// The number of the socket.
        socket: usize,
        /// The token.
        token: Arc<str>,
    },
    /// Close this connection if it is still open, and reconnect.
    GiveUp {
        /// The number of the socket.
        socket: usize,
        /// The number of the connection to close.
        connection: u64,
        /// The reason, for the log and the tape.
        why: &'static str,
    },
    /// Record that the proof of these books expired. They are already stale.
    Expired(Vec<Arc<str>>),
    /// Fetch this market's description soon, because a message concerns it.
    Describe {
        /// The market's condition id.
        condition_id: Arc<str>,
        /// Whether the market was just announced and is not followed yet.
        is_new: bool,
    },
    /// Fetch the market's delay: how long the venue holds marketable orders. The venue reports it
    /// only in responses about a single market.
    Delay {
        /// The market's condition id.
        condition_id: Arc<str>,
    },
    /// Poll the descriptions of these markets from now on, by condition id.
    Unresolved(Arc<[Arc<str>]>),
    /// Write a line to the log.
    Log(Notice),
}

/// A line for the log.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// A connection was opened.
    Opened {
        /// The number of the socket.
        socket: usize,
        /// Number of tokens that the socket carries.
        tokens: usize,
    },
    /// A timestamp from the future; logged once per connection.
    Ahead {
        /// The number of the socket.
        socket: usize,
        /// How far the timestamp is ahead of the venue's clock.
        ahead: Duration,
    },
    /// A message of an unknown type.
    UnknownMessage {
        /// The number of the socket.
        socket: usize,
        /// The parse error.
        error: String,
    },
    /// A message that cannot be parsed.
    UnreadableMessage {
        /// The number of the socket.
        socket: usize,
        /// The parse error.
        error: String,
    },
    /// A text frame that is not a message.
    UnknownFrame {
        /// The number of the socket.
        socket: usize,
        /// The beginning of the frame's text.
        text: String,
    },
    /// An answer from the book endpoint that cannot be parsed.
    UnreadableAnswer {
        /// The parse error.
        error: String,
    },
    /// Unparsable books in an answer from the book endpoint.
    UnreadableBooks {
        /// Number of unparsable books.
        books: usize,
        /// The first parse error.
        first_error: String,
    },
    /// Further markets are followed from now on.
    Following {
        /// Number of markets.
        markets: usize,
        /// Whether they are followed because accounts hold their shares.
        is_held: bool,
    },
    /// A resolution stage with an unknown name; logged once per name.
    UnknownStage {
        /// The name.
        stage: Box<str>,
        /// The condition id of the first market with this stage.
        market: Arc<str>,
    },
    /// The catalogue shows that a socket wrongly reported the end of a market.
    EndRetracted {
        /// The condition id.
        market: Arc<str>,
    },
    /// A closed market whose sources disagree on its payouts.
    Contradiction {
        /// The condition id.
        market: Arc<str>,
    },
    /// A market is resolved.
    Resolved {
        /// The condition id.
        market: Arc<str>,
        /// The report of each source.
        evidence: Box<str>,
    },
    /// A description whose tokens differ from the market's; logged once until they match again.
    TokensChanged {
        /// The condition id.
        market: Arc<str>,
    },
}
