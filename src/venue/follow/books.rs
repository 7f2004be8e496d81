//! The interface to the books that a follower maintains, and the findings of its checks.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::event::VenueEvent;
use paperbourse_core::ids::Timestamp;

/// The result of checking an event against a book that it touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The book matches the venue's: it is a full book from the venue, or its hash matches.
    Proven,
    /// The best prices match the venue's; nothing proves the other levels.
    Agrees,
    /// The message describes a newer book, and the change that leads to it has not arrived yet.
    Ahead,
    /// A requested book that the venue's changes have not confirmed. It is published only if there
    /// was no book before, and nothing fills on it until a change confirms it.
    Unconfirmed,
    /// There was nothing to compare, or only data older than the book.
    Unproven,
    /// The book differs from the venue's or is impossible: a hash or a best price differs, or the
    /// sides cross.
    Contradicted,
}

/// A finding for each book that an event touched, by token.
pub type Findings = SmallVec<[(Arc<str>, Finding); 2]>;

/// The destination of a venue's events.
pub trait Books {
    /// Applies an event as of `effective_at`, or as of its book's time if that is later. The event
    /// keeps its own timestamp, even if it is impossible, because hashes cover it.
    fn apply_as_of(&mut self, event: VenueEvent, effective_at: Timestamp) -> Findings;

    /// Returns the venue's timestamp of the newest change to a token's book; `None` without a book.
    fn updated_at(&self, token_id: &str) -> Option<Timestamp>;

    /// Discards a token's levels, so that the next full book is accepted regardless of its
    /// timestamp. The published book is unchanged.
    fn forget_levels(&mut self, token_id: &str);

    /// Returns whether the market with this condition id is resolved.
    fn is_resolved(&self, condition_id: &str) -> bool;
}
