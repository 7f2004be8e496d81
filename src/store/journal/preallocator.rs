//! Preallocates segments on a thread of its own, so that the writer never waits for one. This is
//! the only part of the journal that a full disk can stop, and it resumes by itself once there is
//! room.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::SyncMode;
use super::log_id::LogId;
use super::ring::Ring;
use super::segment::{self, Header};
use crate::disk::{self, Disk, DiskError, DiskFile};

/// Pause before retrying on a full disk.
const FULL_DISK_PAUSE: Duration = Duration::from_secs(1);

/// Pause after writing each part of a segment's zeros.
const PART_PAUSE: Duration = Duration::from_millis(2);

/// A segment that holds only its header.
#[derive(Debug)]
pub(super) struct BlankSegment {
    /// Opened by [`SyncMode::open`].
    pub(super) file: DiskFile,
    pub(super) header: Header,
}

/// Parameters common to all segments of a directory.
pub(super) struct SegmentTemplate {
    pub(super) disk: Disk,
    pub(super) directory: PathBuf,
    pub(super) log: LogId,
    pub(super) segment_bytes: u64,
    pub(super) sync: SyncMode,
}

impl SegmentTemplate {
    /// Creates the segment with this number, syncs the file and its name, and opens it. Calls
    /// `between_parts` after each part of the zeros, so that the caller may pause there.
    pub(super) fn make(
        &self,
        number: u64,
        between_parts: impl FnMut(),
    ) -> Result<BlankSegment, DiskError> {
        let path = self.directory.join(segment::file_name(number));
        let header = Header {
            version: segment::VERSION,
            log: self.log,
            number,
            segment_bytes: self.segment_bytes,
        };
        let head = header.to_bytes();
        self.disk.create_zeroed(&path, &head, self.segment_bytes, between_parts)?;
        self.disk.sync_directory(&self.directory)?;
        Ok(BlankSegment { file: self.sync.open(&self.disk, &path)?, header })
    }
}

/// The preallocated segments.
pub(super) struct Stock {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    ready: VecDeque<BlankSegment>,
    /// Number of segments to keep ready.
    wanted: usize,
    /// Whether the last attempt to make a segment failed because the disk was full.
    was_full: bool,
    next_number: u64,
    is_closing: bool,
}

impl Stock {
    pub(super) fn new(ready: VecDeque<BlankSegment>, next_number: u64) -> Self {
        let state = State { ready, wanted: 1, was_full: false, next_number, is_closing: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes the next segment, if one is ready, and wakes the thread that makes another.
    pub(super) fn take(&self) -> Option<BlankSegment> {
        let segment = self.state.lock().ready.pop_front();
        self.changed.notify_all();
        segment
    }

    fn put(&self, segment: BlankSegment) {
        let mut state = self.state.lock();
        let number = segment.header.number;
        assert_eq!(number, state.next_number, "segments are made in order, without gaps");
        state.ready.push_back(segment);
        state.next_number += 1;
    }

    /// Returns the number of the next segment to make if fewer are ready than wanted.
    fn wanted_number(&self) -> Option<u64> {
        let state = self.state.lock();
        (state.ready.len() < state.wanted).then_some(state.next_number)
    }

    /// Doubles the number of segments to keep ready, unless the newest one is late because the disk
    /// was full.
    fn want_more(&self, wanted_max: usize) {
        let mut state = self.state.lock();
        if !state.was_full {
            state.wanted = (state.wanted * 2).min(wanted_max);
        }
    }

    /// Records whether the disk was full at the last attempt to make a segment. While it is full,
    /// one ready segment is enough. Returns whether any is ready.
    fn set_full(&self, is_full: bool) -> bool {
        let mut state = self.state.lock();
        state.was_full = is_full;
        if is_full {
            state.wanted = 1;
        }
        !state.ready.is_empty()
    }

    /// Blocks until a segment is wanted. Returns false when the journal is closing.
    fn wait_until_wanted(&self) -> bool {
        let mut state = self.state.lock();
        while !state.is_closing && state.ready.len() >= state.wanted {
            self.changed.wait(&mut state);
        }
        !state.is_closing
    }

    /// Waits for `duration`, or until the journal closes.
    fn pause(&self, duration: Duration) {
        let mut state = self.state.lock();
        if !state.is_closing {
            self.changed.wait_for(&mut state, duration);
        }
    }

    /// Stops the thread that makes segments.
    pub(super) fn close(&self) {
        self.state.lock().is_closing = true;
        self.changed.notify_all();
    }
}

pub(super) struct Preallocator {
    pub(super) template: SegmentTemplate,
    pub(super) stock: Arc<Stock>,
    pub(super) ring: Arc<Ring>,
    pub(super) segments_ahead_max: usize,
    pub(super) record_bytes_max: usize,
}

impl Preallocator {
    /// Makes segments until the stock is closed.
    pub(super) fn run(&self) -> Result<(), DiskError> {
        while self.stock.wait_until_wanted() {
            if !self.make_segment(|| self.give_way())? {
                self.stock.pause(FULL_DISK_PAUSE);
            }
        }
        Ok(())
    }

    /// Makes a segment if one is wanted. Returns false if none was wanted or the disk is full.
    pub(super) fn make_segment(&self, between_parts: impl FnMut()) -> Result<bool, DiskError> {
        let Some(number) = self.stock.wanted_number() else {
            return Ok(false);
        };
        match self.template.make(number, between_parts) {
            Ok(segment) => {
                let bytes = segment.header.segment_bytes;
                // Put the segment into stock before adding its space: once the space is promised,
                // the writer expects the segment to be ready.
                self.stock.put(segment);
                self.ring.set_disk_full(false);
                // Do this before `set_full` resets the flag: a full disk is no reason to
                // preallocate more.
                if self.is_needed_soon() {
                    self.stock.want_more(self.segments_ahead_max);
                }
                self.stock.set_full(false);
                self.ring.add_space(segment::usable_bytes(bytes, self.record_bytes_max));
                Ok(true)
            }
            Err(error) if error.is_full() => {
                self.give_back(number)?;
                if !self.stock.set_full(true) {
                    self.ring.set_disk_full(true);
                    tracing::warn!(
                        %error,
                        reason = %error.source,
                        "cannot preallocate a journal segment, out of disk space or file \
                         descriptors: writes will be refused once the preallocated space is used up"
                    );
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Pauses so that concurrent flushes get the disk, unless the segment is needed soon.
    fn give_way(&self) {
        if !self.is_needed_soon() {
            self.stock.pause(PART_PAUSE);
        }
    }

    /// Whether at most half a segment of preallocated space is left.
    fn is_needed_soon(&self) -> bool {
        self.ring.space_left() <= self.template.segment_bytes / 2
    }

    /// Removes the unfinished segment.
    fn give_back(&self, number: u64) -> Result<(), DiskError> {
        let path = self.template.directory.join(segment::file_name(number));
        let temporary = disk::temporary_name(&path);
        if self.template.disk.exists(&temporary)? {
            self.template.disk.remove_file(&temporary)?;
        }
        Ok(())
    }
}
