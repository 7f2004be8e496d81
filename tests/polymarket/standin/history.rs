//! Every state of a book and when it held: the auditor checks fills against them.
//!
//! A state is stored as a change from the previous one, so that an hour of states fits into memory.

use std::collections::VecDeque;

use super::ladder::{Ladder, Level, Side};

/// A state of a token's book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PublishedBook {
    /// Best level first.
    pub(crate) bids: Vec<Level>,
    /// Best level first.
    pub(crate) asks: Vec<Level>,
    /// The venue's hash.
    pub(crate) hash: String,
    /// The venue's timestamp, in milliseconds since 1970.
    pub(crate) timestamp_ms: u64,
    /// When it became the venue's book, in microseconds since 1970.
    pub(crate) from_us: u64,
    /// When it was replaced; `None` for the current book.
    pub(crate) until_us: Option<u64>,
    /// Whether any client was shown it, in a frame or an answer.
    pub(crate) is_shown: bool,
}

/// The difference between a state and the previous one.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// These levels have new sizes.
    Levels(Vec<(Side, Level)>),
    /// The whole book was replaced.
    Whole(Box<Ladder>),
}

#[derive(Clone, Debug)]
struct Entry {
    change: Change,
    hash: Box<str>,
    timestamp_ms: u64,
    from_us: u64,
    is_shown: bool,
}

/// The states of one token's book: the newest `entry_count_max` of them.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The book before the first entry.
    base: Ladder,
    entries: VecDeque<Entry>,
    entry_count_max: usize,
}

impl History {
    pub(crate) fn new(entry_count_max: usize) -> Self {
        Self { base: Ladder::default(), entries: VecDeque::new(), entry_count_max }
    }

    /// Adds a state that holds from `from_us` on.
    pub(crate) fn push(&mut self, change: Change, hash: &str, timestamp_ms: u64, from_us: u64) {
        if self.entries.len() >= self.entry_count_max
            && let Some(oldest) = self.entries.pop_front()
        {
            apply(&mut self.base, &oldest.change);
        }
        let entry = Entry { change, hash: hash.into(), timestamp_ms, from_us, is_shown: false };
        self.entries.push_back(entry);
    }

    /// Marks the newest state as shown to a client.
    pub(crate) fn shown(&mut self) {
        if let Some(newest) = self.entries.back_mut() {
            newest.is_shown = true;
        }
    }

    /// All states kept, oldest first.
    pub(crate) fn published(&self) -> Vec<PublishedBook> {
        let mut ladder = self.base.clone();
        let ends = self.entries.iter().skip(1).map(|entry| Some(entry.from_us)).chain([None]);
        let mut books = Vec::with_capacity(self.entries.len());
        for (entry, until_us) in self.entries.iter().zip(ends) {
            apply(&mut ladder, &entry.change);
            books.push(PublishedBook {
                bids: ladder.best_first(Side::Buy).cloned().collect(),
                asks: ladder.best_first(Side::Sell).cloned().collect(),
                hash: entry.hash.to_string(),
                timestamp_ms: entry.timestamp_ms,
                from_us: entry.from_us,
                until_us,
                is_shown: entry.is_shown,
            });
        }
        books
    }
}

fn apply(ladder: &mut Ladder, change: &Change) {
    match change {
        Change::Whole(whole) => ladder.clone_from(whole),
        Change::Levels(levels) => {
            for (side, (price, size)) in levels {
                ladder.set(*side, price, size);
            }
        }
    }
}
