//! The books as a follower changes them, and what each change reveals about them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::event::VenueEvent;
use paperbourse_core::ids::Timestamp;

/// What an event reveals about a book that it touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The book matches the venue's: it is a full book from the venue, or its hash matches.
    Proven,
    /// The best prices match the venue's; nothing proves the other levels.
    Agrees,
    /// The message describes a newer book: the change that makes it has yet to come.
    Ahead,
    /// Only a request shows this book. It has replaced a book on which nothing could fill, and
    /// nothing can fill on it either until the venue's changes prove it.
    Unconfirmed,
    /// There was nothing to compare, or only data older than the book.
    Unproven,
    /// The book differs from the venue's or is impossible: a hash or a best price differs, or the
    /// sides cross.
    Contradicted,
}

/// A finding for each book that an event touched, by token.
pub type Findings = SmallVec<[(Arc<str>, Finding); 2]>;

/// Where events take effect.
pub trait Books {
    /// Applies an event as of `effective_at`, or of its book's time if that is later. The event's
    /// own timestamp may be impossible, but it is the one that hashes cover.
    fn apply_as_of(&mut self, event: VenueEvent, effective_at: Timestamp) -> Findings;

    /// The venue's timestamp of the newest change to a token's book; `None` without a book.
    fn updated_at(&self, token_id: &str) -> Option<Timestamp>;

    /// Forgets a token's levels, so that the next full book is accepted whatever its timestamp.
    /// The published book stays.
    fn forget_levels(&mut self, token_id: &str);

    /// Whether the market with this condition id is resolved.
    fn is_resolved(&self, condition_id: &str) -> bool;
}
