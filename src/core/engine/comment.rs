//! Comments on orders.

pub(in crate::engine) mod commands;

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, CommentId, OrderId, Timestamp};

/// Maximum number of comments on one order.
pub const COMMENTS_PER_ORDER_MAX: usize = 1_000;

/// Maximum number of comments by one author on one order, so that no author can use up all of an
/// order's comments.
pub const COMMENTS_PER_AUTHOR_MAX: usize = 20;

/// A comment on an order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comment {
    /// The comment's id.
    pub id: CommentId,
    /// The order commented on.
    pub order: OrderId,
    /// The author's account.
    pub author: AccountId,
    /// The text.
    pub content: Box<str>,
    /// When the comment was written.
    pub at: Timestamp,
}

/// A summary of an author's comments in one or more shards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// The number of comments, not counting deleted ones.
    pub count: usize,
    /// The oldest comment and when it was written; `None` if there are no comments.
    pub oldest: Option<(Timestamp, CommentId)>,
}

impl Written {
    /// Combines this summary with a summary of other shards.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let oldest = [self.oldest, other.oldest].into_iter().flatten().min();
        Self { count: self.count + other.count, oldest }
    }
}

/// The comments of one order.
#[derive(Clone, Debug, Default)]
pub(super) struct OrderComments {
    /// The ids of the comments, oldest first.
    pub(super) ids: Vec<CommentId>,
    /// The log position of the newest record that added or removed a comment.
    pub(super) position_in_log: u64,
}

impl Comment {
    /// Returns the comment's term in the state hash.
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
