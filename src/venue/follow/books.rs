//! The books as whoever follows a venue changes them, and what each change shows of them.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::ids::Timestamp;
use crate::market::book::Ladder;
use crate::venue::event::VenueEvent;

/// What an event shows of a book that it touched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Finding {
    /// The book is what the venue shows: its own full book, or one that gives the venue's hash.
    Proven,
    /// Its best prices are the venue's, and nothing proves the rest.
    Agrees,
    /// There was nothing to compare, or only what is older than the book.
    Unproven,
    /// It is not what the venue shows, or it cannot be: a hash or a best price differs, or the
    /// sides cross.
    Contradicted,
}

/// Every book that an event touched, by its token.
pub type Findings = SmallVec<[(Arc<str>, Finding); 2]>;

/// Where events take effect.
pub trait Books {
    /// Takes an event that counts as one of this time, or of its book's where that is later: the
    /// time that the event names may be one that cannot be. Hashes cover the named time.
    fn apply_as_of(&mut self, event: VenueEvent, believed_at: Timestamp) -> Findings;

    /// The venue's time of the newest change of a token's book, if a book is known.
    fn updated_at(&self, token_id: &str) -> Option<Timestamp>;

    /// Whether the book that is known of a token has exactly these levels.
    fn has_levels(&self, token_id: &str, ladder: &Ladder) -> bool;

    /// Forgets the levels of a token: the next full book is taken whatever time it names. What
    /// readers see stays.
    fn forget_levels(&mut self, token_id: &str);

    /// Whether this market is resolved, by its condition id.
    fn is_resolved(&self, condition_id: &str) -> bool;
}
