//! Tracks what a connection is doing, and detects when it makes no progress for too long.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::Deadlines;
#[cfg(feature = "traces")]
use crate::telemetry::Trace;
use paperbourse_core::limits::budget::Share;

/// The phases of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// No byte of the next request has arrived.
    Idle,
    /// A head is being received.
    Head,
    /// The handler is waiting for the body.
    Body,
    /// The handler is working, or the next part of a stream is being produced. There is no time
    /// limit.
    Handling,
    /// The response is being sent.
    Responding,
    /// The response is an endless stream, and the client has taken all of it so far.
    Streaming,
    /// The response has been sent, the connection is closing, and the client is still sending.
    Lingering,
}

impl Phase {
    const ALL: [Self; 7] = [
        Self::Idle,
        Self::Head,
        Self::Body,
        Self::Handling,
        Self::Responding,
        Self::Streaming,
        Self::Lingering,
    ];

    const fn deadline(self, deadlines: &Deadlines) -> Option<Duration> {
        match self {
            Self::Idle => Some(deadlines.idle),
            Self::Head => Some(deadlines.head),
            Self::Body => Some(deadlines.body),
            Self::Handling | Self::Streaming => None,
            Self::Responding => Some(deadlines.write),
            Self::Lingering => Some(deadlines.linger),
        }
    }
}

/// The progress of one connection: its phase, and a count of the events that restart the phase's
/// deadline.
///
/// This type is also the waker passed to hyper. Once the last piece of a body is taken, hyper wakes
/// the connection to read the next piece, although there is none; the whole connection would be
/// polled once more per request. So wakes are held back while a body is polled, and forwarded only
/// if something is left to do.
///
/// The transport, the body and the handler are polled by the same task as the watchdog, so these
/// writes need no ordering. They are atomic because any thread may hold and use the waker.
#[derive(Debug, Default)]
pub struct Activity {
    note: AtomicU32,
    /// Whether part of the current request's body was not read.
    has_unread_body: AtomicBool,
    /// Number of transfers begun: bodies waited for and answers started. `transfer_bytes` is the
    /// number of bytes moved in the newest transfer.
    transfer_count: AtomicU32,
    transfer_bytes: AtomicU32,
    /// The phase that follows once everything written is flushed: [`Phase::Idle`],
    /// [`Phase::Handling`] in a stream, or [`Phase::Streaming`] in an endless one.
    after_flush: AtomicU8,
    /// Whether a part of the stream has not been flushed yet.
    has_unflushed: AtomicBool,
    /// Whether hyper must be polled again after the flush.
    owes_poll: AtomicBool,
    /// Whether the connection ends once its requests in flight are finished.
    is_ending: AtomicBool,
    /// Whether an ending connection closes, rather than moving to another process.
    is_closing: AtomicBool,
    is_pipelined: AtomicBool,
    /// Whether the connection becomes a socket.
    is_socket: AtomicBool,
    /// The memory reserved for the answer being sent: a share of the answer budget for a large
    /// answer, or the share of an endless stream.
    held: Mutex<Option<Share>>,
    /// Whether `held` has memory to release at the next flush.
    has_held: AtomicBool,
    /// Whether the client of an endless stream did not take the last part in full at once.
    was_refused: AtomicBool,
    /// Whether the budget had no room for data that the client of an endless stream did not take.
    lacks_room: AtomicBool,
    /// The connection's task, once it has been polled.
    task: Mutex<Option<Waker>>,
    /// Whether wakes are held back.
    is_holding: AtomicBool,
    /// Whether a wake was held back.
    was_woken: AtomicBool,
    /// The trace of the request whose answer is being sent.
    #[cfg(feature = "traces")]
    trace: Mutex<Option<Box<Trace>>>,
    #[cfg(feature = "traces")]
    is_traced: AtomicBool,
}

// The low bits of `note` are the phase. The bits above count events, so that every event changes
// `note`.
const PHASE_BITS: u32 = 3;

impl Wake for Activity {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_holding.load(Ordering::Relaxed) {
            self.was_woken.store(true, Ordering::Relaxed);
        } else {
            self.pass_on();
        }
    }
}

impl Activity {
    /// Returns the current phase.
    pub fn phase(&self) -> Phase {
        Self::phase_of(self.note.load(Ordering::Relaxed))
    }

    /// Enters a phase, or records progress within it.
    pub fn enter(&self, phase: Phase) {
        let count = (self.note.load(Ordering::Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.note.store(count << PHASE_BITS | phase as u32, Ordering::Relaxed);
    }

    /// Returns a value that changes whenever a phase begins or makes progress.
    pub(in crate::http) fn note(&self) -> u32 {
        self.note.load(Ordering::Relaxed)
    }

    /// Records that the handler starts to handle a request.
    pub(super) fn begin_request(&self) {
        // A phase other than `Head` means that no byte was read since the previous response.
        self.is_pipelined.store(self.phase() != Phase::Head, Ordering::Relaxed);
        self.enter(Phase::Handling);
        self.has_unread_body.store(false, Ordering::Relaxed);
    }

    /// Whether the current request was pipelined, that is, read together with the one before it.
    pub(in crate::http) fn is_pipelined(&self) -> bool {
        self.is_pipelined.load(Ordering::Relaxed)
    }

    /// Records that the handler starts waiting for its request's body.
    pub(in crate::http) fn begin_body(&self) {
        self.begin_transfer();
    }

    fn begin_transfer(&self) {
        let count = self.transfer_count.load(Ordering::Relaxed).wrapping_add(1);
        self.transfer_count.store(count, Ordering::Relaxed);
        self.transfer_bytes.store(0, Ordering::Relaxed);
    }

    /// Records that this many more bytes of the body have arrived.
    pub(super) fn note_body(&self, bytes: usize) {
        self.note_moved(bytes);
        self.enter(Phase::Body);
    }

    fn note_moved(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let sum = self.transfer_bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.transfer_bytes.store(sum, Ordering::Relaxed);
    }

    /// Records that an answer is being sent.
    pub(super) fn begin_answer(&self) {
        self.begin_transfer();
        self.enter(Phase::Responding);
    }

    /// Records that the client has accepted this many more bytes. An answer may take several
    /// writes, between which the connection looks idle.
    pub(super) fn note_written(&self, bytes: usize) {
        match self.phase() {
            // The client had taken everything written before.
            Phase::Idle => self.begin_answer(),
            Phase::Responding => self.enter(Phase::Responding),
            Phase::Head | Phase::Body | Phase::Handling | Phase::Streaming | Phase::Lingering => {
                return;
            }
        }
        self.note_moved(bytes);
    }

    /// Records that the current request's body was dropped before its end.
    pub(in crate::http) fn note_unread_body(&self) {
        self.has_unread_body.store(true, Ordering::Relaxed);
    }

    /// Whether the current request's body was dropped before its end.
    pub(super) fn has_unread_body(&self) -> bool {
        self.has_unread_body.load(Ordering::Relaxed)
    }

    /// Records that the response is a stream. An endless stream may have a share of the memory
    /// budget for data that clients have not read.
    pub(super) fn begin_stream(&self, is_endless: bool, unsent: Option<Share>) {
        let phase = if is_endless { Phase::Streaming } else { Phase::Handling };
        self.after_flush.store(phase as u8, Ordering::Relaxed);
        *self.held.lock() = unsent.filter(|_| is_endless);
    }

    /// Records that hyper has dropped the body of a finite stream, nearly always because it has
    /// taken the whole body. If hyper knows the length, it does not even poll for the end.
    pub(super) fn drop_stream(&self) {
        self.after_flush.store(Phase::Idle as u8, Ordering::Relaxed);
        // hyper may have read the next request by then, and would wait for more bytes before
        // parsing it.
        self.owes_poll.store(true, Ordering::Relaxed);
        if self.phase() == Phase::Handling {
            self.enter(Phase::Idle);
        }
    }

    /// Whether the next part of a finite stream is being produced.
    fn is_making_part(&self) -> bool {
        self.phase() == Phase::Handling && self.after_flush() == Phase::Handling
    }

    /// Records that the connection ends once its requests in flight are finished, so that an
    /// endless stream sends its farewell.
    pub(super) fn begin_ending(&self, is_handed_over: bool) {
        self.is_ending.store(true, Ordering::Relaxed);
        self.is_closing.store(!is_handed_over, Ordering::Relaxed);
    }

    /// Whether the next answer is the last one on the connection, which then closes.
    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Relaxed)
    }

    /// Whether no request can follow the next answer.
    pub(super) fn is_last_answer(&self) -> bool {
        self.has_unread_body() || self.is_closing()
    }

    /// Whether no byte has arrived yet.
    pub(super) fn is_new(&self) -> bool {
        self.note() == 0
    }

    /// Whether the connection ends once its requests in flight are finished.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// Records that the response makes the connection a socket.
    pub(super) fn begin_socket(&self) {
        self.is_socket.store(true, Ordering::Relaxed);
    }

    /// Whether data is sent as events happen: on a socket, or in an endless stream.
    pub(super) fn is_live(&self) -> bool {
        self.is_socket.load(Ordering::Relaxed) || self.is_endless()
    }

    /// Whether the response is an endless stream, the last response on the connection.
    pub(super) fn is_endless(&self) -> bool {
        self.after_flush() == Phase::Streaming
    }

    fn after_flush(&self) -> Phase {
        Phase::ALL[usize::from(self.after_flush.load(Ordering::Relaxed))]
    }

    /// Records that the next part of the stream is being sent.
    pub(super) fn note_unflushed(&self) {
        self.has_unflushed.store(true, Ordering::Relaxed);
        self.enter(Phase::Responding);
    }

    /// Whether all of the stream so far has been flushed, so that more may be produced. If not,
    /// hyper, which has asked for more, is polled again after the flush.
    pub(super) fn wants_more(&self) -> bool {
        let wants_more = !self.has_unflushed.load(Ordering::Relaxed);
        self.owes_poll.store(!wants_more, Ordering::Relaxed);
        wants_more
    }

    /// Whether everything so far has been flushed, including the head. If not, hyper is polled
    /// again after the flush.
    pub(super) fn is_flushed(&self) -> bool {
        let is_flushed = self.phase() != Phase::Responding;
        self.has_unflushed.store(!is_flushed, Ordering::Relaxed);
        self.owes_poll.store(!is_flushed, Ordering::Relaxed);
        is_flushed
    }

    /// Whether hyper must be polled again now, because nothing else will wake it. Returns true only
    /// once.
    pub(super) fn takes_poll(&self) -> bool {
        let takes_poll =
            self.owes_poll.load(Ordering::Relaxed) && !self.has_unflushed.load(Ordering::Relaxed);
        if takes_poll {
            self.owes_poll.store(false, Ordering::Relaxed);
        }
        takes_poll
    }

    /// Records that the client has taken everything that was written.
    pub(super) fn note_flushed(&self) {
        if self.phase() == Phase::Responding {
            self.has_unflushed.store(false, Ordering::Relaxed);
            self.enter(self.after_flush());
            if self.has_held.load(Ordering::Relaxed) {
                self.has_held.store(false, Ordering::Relaxed);
                self.release_held();
            }
            #[cfg(feature = "traces")]
            self.end_trace();
        }
    }

    /// Keeps this share until the client has taken the answer being sent.
    pub(super) fn hold_until_sent(&self, held: Share) {
        *self.held.lock() = Some(held);
        self.has_held.store(true, Ordering::Relaxed);
    }

    /// Records that the client accepts no bytes for now, and that `bytes` are left to write.
    /// Returns whether the budget has room for them, which is always true for a response without a
    /// share.
    pub(super) fn hold_refused(&self, bytes: usize) -> bool {
        if !self.is_endless() {
            return true;
        }
        self.was_refused.store(true, Ordering::Relaxed);
        let mut unsent = self.held.lock();
        let Some(unsent) = &mut *unsent else { return true };
        self.has_held.store(true, Ordering::Relaxed);
        let has_room = unsent.hold(bytes);
        self.lacks_room.store(!has_room, Ordering::Relaxed);
        has_room
    }

    /// Returns whether, since the last call, the client has failed to take a part of a stream in
    /// full at once.
    pub(super) fn takes_refusal(&self) -> bool {
        self.was_refused.swap(false, Ordering::Relaxed)
    }

    /// Whether the budget had no room for data that the client did not take.
    pub(super) fn lacks_room(&self) -> bool {
        self.lacks_room.load(Ordering::Relaxed)
    }

    fn release_held(&self) {
        let mut held = self.held.lock();
        if self.is_endless()
            && let Some(unsent) = &mut *held
        {
            let is_less = unsent.hold(0);
            assert!(is_less, "there is always room for nothing");
        } else {
            *held = None;
        }
    }

    /// Ends this trace once the answer is sent, or once the first part of an endless stream is
    /// sent.
    #[cfg(feature = "traces")]
    pub(in crate::http) fn end_trace_when_sent(&self, trace: Box<Trace>) {
        *self.trace.lock() = Some(trace);
        self.is_traced.store(true, Ordering::Relaxed);
    }

    #[cfg(feature = "traces")]
    fn end_trace(&self) {
        if self.is_traced.load(Ordering::Relaxed) && self.after_flush() != Phase::Handling {
            self.is_traced.store(false, Ordering::Relaxed);
            drop(self.trace.lock().take());
        }
    }

    /// Polls a body and forwards the wakes it causes, unless the poll completes the body.
    pub(in crate::http) fn poll_body<T>(&self, poll: impl FnOnce() -> (T, bool)) -> T {
        self.is_holding.store(true, Ordering::Relaxed);
        let (polled, is_complete) = poll();
        self.is_holding.store(false, Ordering::Relaxed);
        if self.was_woken.swap(false, Ordering::Relaxed) && !is_complete {
            self.pass_on();
        }
        polled
    }

    /// Sets the task to wake.
    pub(super) fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    /// Stops waking the task.
    pub(super) fn forget_task(&self) {
        *self.task.lock() = None;
    }

    pub(super) fn pass_on(&self) {
        if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }

    /// Whether the client may still be sending bytes that will not be read: a dropped body, the
    /// rest of a refused head, or requests that follow the last one to be answered.
    pub(super) fn has_unread(&self) -> bool {
        let sends_ahead = self.is_closing() && self.is_pipelined();
        self.has_unread_body() || self.phase() == Phase::Head || sends_ahead
    }

    fn phase_of(note: u32) -> Phase {
        Phase::ALL[(note & ((1 << PHASE_BITS) - 1)) as usize]
    }
}

/// Fires when a phase makes no progress before its deadline.
///
/// The clock is read once per poll that finds new progress in a phase with a deadline. The timer is
/// reset only when it would fire too late; if it fires too early, it is set again. It is polled
/// only if it has fired or would wake another task, so a busy connection never touches it.
pub(super) struct Watchdog<'a> {
    activity: &'a Activity,
    deadlines: Deadlines,
    /// The last progress seen, and when it was seen.
    seen: u32,
    since: Instant,
    /// The last body or answer seen, and when it began.
    transfer_seen: u32,
    transfer_since: Instant,
    /// When work on the next part of a stream began, if that part is still being produced.
    making_since: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    /// The task that the timer wakes; `None` until the timer is polled.
    waker: Option<Waker>,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(activity: &'a Activity, deadlines: Deadlines) -> Self {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(since + deadlines.idle));
        let seen = activity.note();
        Self {
            activity,
            deadlines,
            seen,
            since,
            transfer_seen: 0,
            transfer_since: since,
            making_since: None,
            timer,
            waker: None,
        }
    }

    /// Resolves to the phase that took too long.
    pub(super) fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Phase> {
        let note = self.activity.note();
        let phase = Activity::phase_of(note);
        let Some(limit) = phase.deadline(&self.deadlines) else {
            if self.activity.is_making_part() {
                self.making_since.get_or_insert_with(Instant::now);
            }
            return Poll::Pending;
        };
        if note != self.seen {
            self.seen = note;
            self.since = Instant::now();
        }
        // Time spent producing a part must not count against the client's rate.
        if let Some(making_since) = self.making_since.take() {
            let made = self.since.saturating_duration_since(making_since);
            self.transfer_since += made;
        }
        let mut deadline = self.since + limit;
        // An endless stream has no deadline for the whole. Instead, the memory for data that its
        // client has not taken is limited.
        if phase == Phase::Body || phase == Phase::Responding && !self.activity.is_endless() {
            deadline = deadline.min(self.transfer_deadline(phase));
        }
        if deadline < self.timer.deadline() {
            self.reset(deadline);
        }
        let wakes_caller =
            self.waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker()));
        if wakes_caller && !self.timer.is_elapsed() {
            return Poll::Pending;
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.timer.deadline() >= deadline {
                return Poll::Ready(phase);
            }
            self.reset(deadline);
        }
        self.waker = Some(context.waker().clone());
        Poll::Pending
    }

    /// Returns the time at which a whole body or answer is overdue, even if it never stalls.
    fn transfer_deadline(&mut self, phase: Phase) -> Instant {
        let count = self.activity.transfer_count.load(Ordering::Relaxed);
        if count != self.transfer_seen {
            self.transfer_seen = count;
            self.transfer_since = self.since;
        }
        let Deadlines { body, body_total, body_bytes_per_second, .. } = self.deadlines;
        let Deadlines { write, write_bytes_per_second, .. } = self.deadlines;
        let bytes = self.activity.transfer_bytes.load(Ordering::Relaxed);
        let earned = |rate: NonZeroU32| Duration::from_secs(1) * bytes / rate.get();
        self.transfer_since
            + match phase {
                Phase::Body => body_total.min(body + earned(body_bytes_per_second)),
                _ => write + earned(write_bytes_per_second),
            }
    }

    fn reset(&mut self, deadline: Instant) {
        self.timer.as_mut().reset(deadline);
        self.waker = None;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_for_a_complete_body_are_dropped() {
        let activity = Arc::new(Activity::default());
        let waker = Waker::from(activity.clone());
        waker.wake_by_ref();
        let task = Arc::new(Count::default());
        activity.set_task(&task.clone().into());
        let mut expected = 0;
        for (is_woken, is_complete, is_passed_on) in [
            (true, true, false),
            (false, false, false),
            (true, false, true),
            (false, true, false),
            (true, false, true),
        ] {
            let polled = activity.poll_body(|| {
                if is_woken {
                    waker.wake_by_ref();
                }
                assert_eq!(task.0.load(Ordering::Relaxed), expected, "held back");
                (7, is_complete)
            });
            assert_eq!(polled, 7);
            expected += usize::from(is_passed_on);
            assert_eq!(task.0.load(Ordering::Relaxed), expected, "{is_woken} {is_complete}");
            waker.wake_by_ref();
            expected += 1;
            assert_eq!(task.0.load(Ordering::Relaxed), expected, "wakes are no longer held back");
        }
        let other = Arc::new(Count::default());
        activity.set_task(&other.clone().into());
        waker.wake();
        assert_eq!(
            (task.0.load(Ordering::Relaxed), other.0.load(Ordering::Relaxed)),
            (expected, 1)
        );
    }
}
