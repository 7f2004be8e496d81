//! A comment on an order.

use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, CommentId, OrderId, Timestamp};

/// One order has at most this many comments at a time.
pub const COMMENTS_PER_ORDER_MAX: usize = 1_000;

/// One author has at most this many of them, so that nobody fills somebody else's order.
pub const COMMENTS_PER_AUTHOR_MAX: usize = 20;

/// What somebody wrote on an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    /// Its id.
    pub id: CommentId,
    /// On which order.
    pub order: OrderId,
    /// Who wrote it.
    pub author: AccountId,
    /// What.
    pub content: Box<str>,
    /// When.
    pub at: Timestamp,
}

/// The comments of one order.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderComments {
    /// Oldest first.
    pub(super) ids: Vec<CommentId>,
    /// The newest record that added one or took one away: its position in the log.
    pub(super) position_in_log: u64,
}

impl Comment {
    /// The comment's term in the state hash.
    pub(super) fn term(&self) -> StateHash {
        Term::new(TermKind::Comment)
            .number(self.id.get())
            .number(self.order.get())
            .number(self.author.get())
            .signed(self.at.nanos())
            .bytes(self.content.as_bytes())
            .finish()
    }
}
