//! What following a venue asks of the world: to be done, to be asked, or to be logged.

use std::sync::Arc;
use std::time::Duration;

/// Tokens, each with the number of its connection.
pub type Asked = Vec<(Arc<str>, u32)>;

/// Something to be done, in order.
#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    /// From now on this socket is the one that tells of these tokens, besides those of before.
    Assign {
        /// Which socket.
        socket: usize,
        /// The new tokens.
        tokens: Vec<Arc<str>>,
    },
    /// Subscribe this socket to these tokens and no others; open it if it was never asked for.
    Subscribe {
        /// Which socket; numbers come one after the other.
        socket: usize,
        /// All of its tokens; none to close it.
        tokens: Arc<[Arc<str>]>,
    },
    /// Close this connection, if it is still open, and open another one.
    GiveUp {
        /// Which socket.
        socket: usize,
        /// Its connection.
        connection: u64,
        /// For the log.
        why: &'static str,
    },
    /// The proof of these books is too old, as the clock says. They are stale already.
    Expired(Vec<Arc<str>>),
    /// Describe this market soon: something was heard of it.
    Describe {
        /// By its condition id.
        condition_id: Arc<str>,
        /// It was announced, and is not followed yet.
        is_new: bool,
    },
    /// From now on these are the markets to describe now and then, by their condition ids.
    Unresolved(Arc<[Arc<str>]>),
    /// Log this.
    Log(Notice),
}

/// Something for the log.
#[derive(Clone, PartialEq, Debug)]
pub enum Notice {
    /// A connection is open.
    Opened {
        /// Of which socket.
        socket: usize,
        /// How many tokens it tells of.
        tokens: usize,
    },
    /// A connection tells times that are yet to come; named once for a connection.
    Ahead {
        /// Of which socket.
        socket: usize,
        /// By how much.
        ahead: Duration,
    },
    /// A message of a kind that is not known.
    UnknownMessage {
        /// Of which socket.
        socket: usize,
        /// What is wrong with it.
        error: String,
    },
    /// A message that cannot be read.
    UnreadableMessage {
        /// Of which socket.
        socket: usize,
        /// What is wrong with it.
        error: String,
    },
    /// A frame that is no message.
    OddFrame {
        /// Of which socket.
        socket: usize,
        /// How it begins.
        text: String,
    },
    /// An answer of the book endpoint that cannot be read.
    UnreadableBooks {
        /// What is wrong with it.
        error: String,
    },
    /// One book of an answer that cannot be read.
    UnreadableBook {
        /// What is wrong with it.
        error: String,
    },
    /// Markets are followed from now on.
    Following {
        /// How many.
        markets: usize,
        /// Somebody holds shares of them.
        is_held: bool,
    },
    /// The venue calls the stage of a resolution by a word that is not known; named once.
    UnknownStage {
        /// The word.
        stage: Box<str>,
        /// The first market, by its condition id.
        market: Arc<str>,
    },
    /// The catalogue shows that a socket was wrong about the end of a market.
    EndTakenBack {
        /// By its condition id.
        market: Arc<str>,
    },
    /// A market has closed, and its sources contradict each other on what it pays.
    Contradiction {
        /// By its condition id.
        market: Arc<str>,
    },
    /// A market is resolved.
    Resolved {
        /// By its condition id.
        market: Arc<str>,
        /// Who said what.
        evidence: Box<str>,
    },
    /// A description names other tokens than the market has; named once until it names them again.
    OtherTokens {
        /// By its condition id.
        market: Arc<str>,
    },
}
