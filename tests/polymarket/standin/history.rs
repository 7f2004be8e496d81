//! Every state that a book was in, and when: what an auditor holds fills against.
//!
//! A state is kept as the change that led to it, so that an hour of them fits into memory.

use std::collections::VecDeque;

use super::ladder::{Ladder, Level, Side};

/// A state of a token's book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PublishedBook {
    /// Best level first.
    pub(crate) bids: Vec<Level>,
    /// Best level first.
    pub(crate) asks: Vec<Level>,
    /// The venue's hash of it.
    pub(crate) hash: String,
    /// The venue's time of it, in milliseconds since 1970.
    pub(crate) timestamp_ms: u64,
    /// Since when it was the venue's book, in microseconds since 1970.
    pub(crate) from_us: u64,
    /// Until when; `None` while it is.
    pub(crate) until_us: Option<u64>,
    /// Whether anybody was shown it: a frame was put on a socket, or a request was answered.
    pub(crate) is_shown: bool,
}

/// How a state came from the one before.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// Levels changed to these sizes.
    Levels(Vec<(Side, Level)>),
    /// Another book.
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

/// The states of one token's book, the newest of them at most so many.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// What the book was before the first entry.
    base: Ladder,
    entries: VecDeque<Entry>,
    entry_count_max: usize,
}

impl History {
    pub(crate) fn new(entry_count_max: usize) -> Self {
        Self { base: Ladder::default(), entries: VecDeque::new(), entry_count_max }
    }

    /// A new state, from this moment.
    pub(crate) fn push(&mut self, change: Change, hash: &str, timestamp_ms: u64, from_us: u64) {
        if self.entries.len() >= self.entry_count_max
            && let Some(oldest) = self.entries.pop_front()
        {
            apply(&mut self.base, &oldest.change);
        }
        let entry = Entry { change, hash: hash.into(), timestamp_ms, from_us, is_shown: false };
        self.entries.push_back(entry);
    }

    /// Somebody was shown the newest state.
    pub(crate) fn shown(&mut self) {
        if let Some(newest) = self.entries.back_mut() {
            newest.is_shown = true;
        }
    }

    /// All states that are kept, oldest first.
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
