//! The record of one traced request, which shows where the request's time went.
//!
//! While the future of a traced request is polled, the request's record is the thread's current
//! one, so that no code in between has to pass it along. No other request runs on the thread
//! meanwhile. A task that another thread runs for the request carries the record with it. A request
//! that is not traced has no record, and every function here does nothing for it.
//!
//! Other modules send the records elsewhere.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use smallvec::SmallVec;

/// Maximum number of parts of a request that are recorded. A trade has six.
pub const PARTS_MAX: usize = 32;

thread_local!(static CURRENT: RefCell<Option<Arc<Record>>> = const { RefCell::new(None) });

/// The stages in which a request spends its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Checking the credential and the limits.
    Admission,
    /// Waiting for the body, and reading it.
    Body,
    /// Waiting for the shard, which is working on other requests.
    Queue,
    /// Reading the shard, or deciding a command, applying it and giving its record to the journal.
    Decision,
    /// Waiting for the venue's delay of marketable orders.
    Delay,
    /// Waiting until everything that the answer depends on is on disk.
    Journal,
    /// Sending the answer, until the kernel has all of it.
    Response,
}

/// A part of a request. Times are nanoseconds since the request's start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The stage that the request was in.
    pub stage: Stage,
    /// When the part began.
    pub began_ns: u64,
    /// When the part ended; `None` if it has not.
    pub ended_ns: Option<u64>,
    /// The journal position that had to be on disk; only set for [`Stage::Journal`].
    pub position: Option<u64>,
}

/// Everything recorded about a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    /// The first [`PARTS_MAX`] parts, in the order in which they were recorded.
    pub parts: SmallVec<[Part; 8]>,
    /// Number of parts beyond [`PARTS_MAX`], which were left out.
    pub left_out: u32,
    /// The id of the caller's account.
    pub account_id: Option<u64>,
}

impl Parts {
    fn push(&mut self, part: Part) {
        if self.parts.len() < PARTS_MAX {
            self.parts.push(part);
        } else {
            self.left_out += 1;
        }
    }
}

/// The record of one traced request.
#[derive(Debug)]
pub struct Record {
    began: Instant,
    parts: Mutex<Parts>,
}

impl Record {
    /// Creates an empty record of a request that began at this time.
    pub fn new(began: Instant) -> Arc<Self> {
        Arc::new(Self { began, parts: Mutex::default() })
    }

    /// Makes this the thread's current record until the returned guard is dropped.
    pub fn enter(self: &Arc<Self>) -> Entered {
        CURRENT.set(Some(self.clone()));
        Entered(())
    }

    /// Starts timing a stage of this request. The part ends when the timer is dropped.
    pub fn start(self: &Arc<Self>, stage: Stage) -> Timer {
        Timer { began_ns: self.elapsed_ns(), record: Some(self.clone()), stage }
    }

    /// Returns the nanoseconds since the request began.
    pub fn elapsed_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Takes everything recorded so far.
    pub fn take(&self) -> Parts {
        std::mem::take(&mut *self.parts.lock())
    }

    fn push(&self, stage: Stage, began_ns: u64, ended_ns: Option<u64>, position: Option<u64>) {
        self.parts.lock().push(Part { stage, began_ns, ended_ns, position });
    }
}

/// A guard that keeps a record the thread's current one.
#[must_use = "the record is the current one only as long as this exists"]
pub struct Entered(());

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(None);
    }
}

/// A part that has begun. It ends when the timer is dropped.
#[derive(Debug)]
#[must_use = "a part ends when this is dropped"]
pub struct Timer {
    /// `None` if the request is not traced.
    record: Option<Arc<Record>>,
    stage: Stage,
    began_ns: u64,
}

impl Timer {
    /// Ends this part and begins the next one.
    pub fn then(mut self, stage: Stage) -> Self {
        let began_ns = self.end().unwrap_or_default();
        Self { record: self.record.take(), stage, began_ns }
    }

    /// Ends this part and begins to wait for the disk, unless `position` is 0, for which there is
    /// no wait. [`durable`] ends the wait.
    pub fn then_wait_for(mut self, position: u64) {
        if let Some(ended_ns) = self.end()
            && let Some(record) = self.record.take()
            && position > 0
        {
            record.push(Stage::Journal, ended_ns, None, Some(position));
        }
    }

    /// Records the part and returns its end.
    fn end(&self) -> Option<u64> {
        let record = self.record.as_ref()?;
        let ended_ns = record.elapsed_ns();
        record.push(self.stage, self.began_ns, Some(ended_ns), None);
        Some(ended_ns)
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        self.end();
    }
}

/// Begins a part of the current request.
pub fn start(stage: Stage) -> Timer {
    CURRENT.with_borrow(|current| match current {
        Some(record) => record.start(stage),
        None => Timer { record: None, stage, began_ns: 0 },
    })
}

/// Records that everything up to this position is on disk, which ends the current request's wait.
pub fn durable(position: u64) {
    of_current(|record| {
        let now_ns = record.elapsed_ns();
        for part in &mut record.parts.lock().parts {
            if part.ended_ns.is_none() && part.position.is_some_and(|it| it <= position) {
                part.ended_ns = Some(now_ns);
            }
        }
    });
}

/// Records the account of the current request's caller.
pub fn account(account_id: u64) {
    of_current(|record| record.parts.lock().account_id = Some(account_id));
}

fn of_current(change: impl FnOnce(&Record)) {
    CURRENT.with_borrow(|current| current.as_deref().map(change));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages(parts: &Parts) -> Vec<(Stage, Option<u64>)> {
        parts.parts.iter().map(|part| (part.stage, part.position)).collect()
    }

    #[test]
    fn a_record_takes_what_happens_while_it_is_the_current_one() {
        drop(start(Stage::Body));
        let record = Record::new(Instant::now());
        let entered = record.enter();
        account(7);
        drop(start(Stage::Admission));
        start(Stage::Queue).then(Stage::Decision).then_wait_for(5);
        let late = start(Stage::Body);
        durable(4);
        drop(entered);
        durable(5);
        drop(start(Stage::Response));
        drop(late);
        let parts = record.take();
        let expected = [
            (Stage::Admission, None),
            (Stage::Queue, None),
            (Stage::Decision, None),
            (Stage::Journal, Some(5)),
            (Stage::Body, None),
        ];
        assert_eq!(stages(&parts), expected);
        assert_eq!(parts.account_id, Some(7));
        let open: Vec<_> = parts.parts.iter().filter(|part| part.ended_ns.is_none()).collect();
        assert_eq!(open.len(), 1, "another position, and another request, end no wait: {open:?}");
        assert_eq!(parts.parts[2].ended_ns, Some(parts.parts[3].began_ns));
    }

    #[test]
    fn a_wait_ends_once_and_position_0_is_not_waited_for() {
        let record = Record::new(Instant::now());
        let _entered = record.enter();
        start(Stage::Decision).then_wait_for(0);
        start(Stage::Decision).then_wait_for(3);
        durable(3);
        let ended = record.parts.lock().parts[2].ended_ns;
        assert!(ended.is_some());
        durable(9);
        let parts = record.take();
        assert_eq!(parts.parts[2].ended_ns, ended);
        assert_eq!(parts.parts.len(), 3);
    }

    #[test]
    fn a_record_is_bounded() {
        let record = Record::new(Instant::now());
        let _entered = record.enter();
        (0..PARTS_MAX + 5).for_each(|_| drop(start(Stage::Decision)));
        let parts = record.take();
        assert_eq!((parts.parts.len(), parts.left_out), (PARTS_MAX, 5));
    }
}
