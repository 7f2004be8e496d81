//! A bounded queue of lines waiting to be written, which never blocks its callers. When it is full,
//! lines are dropped and counted as a gap.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

use super::file::Folder;
use paperbourse_core::ids::Timestamp;

/// Default size of the queue in bytes, which holds some seconds of a busy venue.
pub const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Bytes that an entry counts for in addition to its text and payload.
const ENTRY_BYTES: usize = 128;

/// Approximate size of the writer's batches, in bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// A line to be written.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// The time at which the data arrived.
    pub at: Timestamp,
    /// The folder that the line belongs to.
    pub folder: Folder,
    /// The keys between `ns` and the payload, as JSON without braces.
    pub fields: String,
    /// The received bytes.
    pub payload: Payload,
}

/// The payload of a line.
#[derive(Clone, PartialEq, Debug)]
pub enum Payload {
    /// No payload.
    None,
    /// Text.
    Text(String),
    /// Bytes, which may be text.
    Bytes(Bytes),
    /// The reason why no answer was received.
    Error(String),
}

impl Payload {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::None => &[],
            Self::Text(text) | Self::Error(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

impl Entry {
    fn cost(&self) -> usize {
        ENTRY_BYTES + self.fields.len() + self.payload.bytes().len()
    }
}

/// Lines dropped while the queue was full.
#[derive(Clone, Copy)]
struct Gap {
    since: Timestamp,
    lines: u64,
    bytes: u64,
}

impl Gap {
    fn entry(self, at: Timestamp) -> Entry {
        let mut fields = String::from(r#""kind":"gap""#);
        let _ = write!(
            fields,
            r#","since_ns":{},"lines":{},"bytes":{}"#,
            self.since.nanos(),
            self.lines,
            self.bytes
        );
        Entry { at, folder: Folder::Ws, fields, payload: Payload::None }
    }
}

pub(super) struct Queue {
    bytes_max: usize,
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Default)]
struct State {
    entries: VecDeque<Entry>,
    bytes: usize,
    gap: Option<Gap>,
    gap_count: u64,
    lines_lost: u64,
    /// The reason for closing the queue; `None` while it is open.
    end: Option<String>,
}

/// Entries for the writer.
pub(super) struct Batch {
    pub(super) entries: Vec<Entry>,
    /// The reason for closing the queue, if these are its last entries.
    pub(super) end: Option<String>,
}

impl Queue {
    pub(super) fn new(bytes_max: usize) -> Self {
        Self { bytes_max, state: Mutex::default(), filled: Condvar::new() }
    }

    /// Adds an entry if there is room, and counts it as lost otherwise. After a loss, all entries
    /// are lost until the queue is half empty, since one long gap is better than many short ones.
    pub(super) fn push(&self, entry: Entry) {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return;
        }
        let bytes_max = if state.gap.is_some() { self.bytes_max / 2 } else { self.bytes_max };
        if state.bytes + entry.cost() > bytes_max {
            let at = entry.at;
            let gap = state.gap.get_or_insert(Gap { since: at, lines: 0, bytes: 0 });
            gap.lines += 1;
            gap.bytes += entry.payload.bytes().len() as u64;
            state.lines_lost += 1;
            return;
        }
        state.end_gap(entry.at);
        state.add(entry);
        drop(state);
        self.filled.notify_one();
    }

    /// Takes the next entries, or none if none arrive within the timeout.
    pub(super) fn take(&self, timeout: Duration) -> Batch {
        let mut state = self.state.lock();
        if state.entries.is_empty() && state.end.is_none() {
            self.filled.wait_for(&mut state, timeout);
        }
        // A gap at the end has no later entry that would report it.
        if state.end.is_some()
            && let Some(gap) = state.gap
        {
            state.end_gap(gap.since);
        }
        let mut entries = Vec::new();
        let mut bytes = 0;
        while bytes < BATCH_BYTES_MAX
            && let Some(entry) = state.entries.pop_front()
        {
            bytes += entry.cost();
            entries.push(entry);
        }
        state.bytes -= bytes;
        let is_last = state.entries.is_empty();
        Batch { entries, end: state.end.clone().filter(|_| is_last) }
    }

    /// Closes the queue: entries are ignored from now on.
    pub(super) fn close(&self, why: &str) {
        self.state.lock().end.get_or_insert_with(|| why.to_owned());
        self.filled.notify_one();
    }

    /// Returns the number of gaps and of lost lines.
    pub(super) fn losses(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.gap_count, state.lines_lost)
    }
}

impl State {
    fn add(&mut self, entry: Entry) {
        self.bytes += entry.cost();
        self.entries.push_back(entry);
    }

    /// Ends the current gap, if there is one, and adds an entry for it.
    fn end_gap(&mut self, at: Timestamp) {
        if let Some(gap) = self.gap.take() {
            self.gap_count += 1;
            self.add(gap.entry(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: i64, bytes: usize) -> Entry {
        let payload = Payload::Text("x".repeat(bytes));
        let at = Timestamp::from_nanos(number);
        Entry { at, folder: Folder::Ws, fields: format!(r#""kind":"{number}""#), payload }
    }

    fn kinds(batch: &Batch) -> Vec<&str> {
        batch.entries.iter().map(|entry| entry.fields.split('"').nth(3).unwrap()).collect()
    }

    #[test]
    fn lost_lines_become_a_gap_in_their_place() {
        let queue = Queue::new(1_000);
        for number in 1..=4 {
            queue.push(entry(number, 300));
        }
        assert_eq!((queue.losses(), queue.take(Duration::ZERO).entries.len()), ((0, 2), 2));
        queue.push(entry(5, 800));
        assert_eq!(queue.losses(), (0, 3), "the gap lasts until the queue is half empty");
        queue.push(entry(6, 200));
        let batch = queue.take(Duration::ZERO);
        assert_eq!(kinds(&batch), ["gap", "6"]);
        assert_eq!(batch.entries[0].fields, r#""kind":"gap","since_ns":3,"lines":3,"bytes":1400"#,);
        assert_eq!((queue.losses(), batch.end), ((1, 3), None));
    }

    #[test]
    fn the_end_comes_after_all_entries_and_a_last_gap() {
        let queue = Queue::new(1_000);
        queue.push(entry(1, 100));
        queue.push(entry(2, 900));
        queue.close("asked");
        queue.push(entry(3, 1));
        let batch = queue.take(Duration::from_mins(1));
        assert_eq!((kinds(&batch), batch.end.as_deref()), (vec!["1", "gap"], Some("asked")));
    }

    #[test]
    fn the_writer_takes_batches() {
        let queue = Queue::new(QUEUE_BYTES_MAX);
        for number in 0..3 {
            queue.push(entry(number, BATCH_BYTES_MAX));
        }
        queue.close("asked");
        for is_last in [false, false, true] {
            let batch = queue.take(Duration::ZERO);
            assert_eq!((batch.entries.len(), batch.end.is_some()), (1, is_last));
        }
    }
}
