//! What a follower asks its carrier to do, and what it asks it to log.

use std::sync::Arc;
use std::time::Duration;

/// The tokens of one request to the book endpoint. The number counts the changes of a token's
/// connection so far, so that an answer from before such a change can be discarded.
pub type BookRequest = Vec<(Arc<str>, u32)>;

/// An action for the carrier, to be carried out in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// This socket carries these tokens from now on, besides its earlier ones.
    Assign {
        /// The number of the socket.
        socket: usize,
        /// The new tokens.
        tokens: Vec<Arc<str>>,
    },
    /// Subscribe this socket to exactly these tokens; open it if it is new.
    Subscribe {
        /// Numbered from 0, without gaps.
        socket: usize,
        /// All of its tokens; none closes the socket.
        tokens: Arc<[Arc<str>]>,
    },
    /// Have this socket send the full book of one of its tokens again.
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
    /// Fetch this market's description soon: a message concerns it.
    Describe {
        /// The market's condition id.
        condition_id: Arc<str>,
        /// It was just announced and is not followed yet.
        is_new: bool,
    },
    /// Fetch what the venue says only about single markets: how long this one holds marketable
    /// orders.
    Delay {
        /// The market's condition id.
        condition_id: Arc<str>,
    },
    /// From now on, poll the descriptions of these markets, by condition id.
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
        /// How many tokens it carries.
        tokens: usize,
    },
    /// A timestamp from the future; logged once per connection.
    Ahead {
        /// The number of the socket.
        socket: usize,
        /// How far ahead it is.
        ahead: Duration,
    },
    /// A message of an unknown type.
    UnknownMessage {
        /// The number of the socket.
        socket: usize,
        /// What is wrong with it.
        error: String,
    },
    /// A message that cannot be parsed.
    UnreadableMessage {
        /// The number of the socket.
        socket: usize,
        /// What is wrong with it.
        error: String,
    },
    /// A text frame that is not a message.
    UnknownFrame {
        /// The number of the socket.
        socket: usize,
        /// The beginning of its text.
        text: String,
    },
    /// An answer of the book endpoint that cannot be parsed.
    UnreadableAnswer {
        /// What is wrong with it.
        error: String,
    },
    /// Books of an answer that cannot be parsed.
    UnreadableBooks {
        /// How many.
        books: usize,
        /// What is wrong with the first of them.
        first_error: String,
    },
    /// Markets are followed from now on.
    Following {
        /// How many.
        markets: usize,
        /// They are followed because accounts hold shares of them.
        is_held: bool,
    },
    /// An unknown name for the stage of a resolution; logged once per name.
    UnknownStage {
        /// The name.
        stage: Box<str>,
        /// The condition id of the first such market.
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
        /// What each source reported.
        evidence: Box<str>,
    },
    /// A description lists other tokens than the market has; logged once until they match again.
    TokensChanged {
        /// The condition id.
        market: Arc<str>,
    },
}
