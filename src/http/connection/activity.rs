//! What a connection is doing, whether it has done it for too long, and who is woken for it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, Sleep};

use super::Deadlines;

/// What a connection is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Phase {
    /// Nothing has come since the last response.
    Idle,
    /// A head is coming in.
    Head,
    /// The handler waits for the body.
    Body,
    /// The handler works. It has all the time that it wants.
    Handling,
    /// The response is on its way out.
    Responding,
    /// The response is out, the connection is closing, and the client still sends.
    Lingering,
}

impl Phase {
    const ALL: [Self; 6] =
        [Self::Idle, Self::Head, Self::Body, Self::Handling, Self::Responding, Self::Lingering];

    const fn deadline(self, deadlines: &Deadlines) -> Option<Duration> {
        match self {
            Self::Idle => Some(deadlines.idle),
            Self::Head => Some(deadlines.head),
            Self::Body => Some(deadlines.body),
            Self::Handling => None,
            Self::Responding => Some(deadlines.write),
            Self::Lingering => Some(deadlines.linger),
        }
    }
}

/// The notes of one connection: its phase, and a count of what restarts the phase's deadline.
///
/// It is also what hyper wakes. When the last piece of a body is taken, hyper wakes the connection
/// to read the next one, although there is none: the whole connection would be polled once more
/// for each request. So wakes are held back while a body is polled, and passed on for a reason.
///
/// Transport, body and handler are polled by the same task as the watchdog, so nothing is ordered
/// by these writes. They are atomic because an upgraded transport may move to another thread.
#[derive(Debug, Default)]
pub struct Activity {
    note: AtomicU32,
    /// Something was read from the transport since the newest request began.
    has_read: AtomicBool,
    /// Part of the newest request's body was not read.
    has_unread_body: AtomicBool,
    /// How many bodies were waited for, and what has come of the newest one since.
    body_count: AtomicU32,
    body_bytes: AtomicU32,
    /// The task of the connection, once it was polled.
    task: Mutex<Option<Waker>>,
    /// Wakes are held back.
    is_holding: AtomicBool,
    /// A wake was held back.
    was_woken: AtomicBool,
}

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
    /// What the connection is doing.
    pub fn phase(&self) -> Phase {
        Self::phase_of(self.note.load(Ordering::Relaxed))
    }

    /// The connection starts to do something, or has made progress with what it does.
    pub fn enter(&self, phase: Phase) {
        let count = (self.note.load(Ordering::Relaxed) >> PHASE_BITS).wrapping_add(1);
        self.note.store(count << PHASE_BITS | phase as u32, Ordering::Relaxed);
    }

    /// Changes with each phase, and with each progress in one.
    pub(in crate::http) fn note(&self) -> u32 {
        self.note.load(Ordering::Relaxed)
    }

    /// Something was read from the transport.
    pub(super) fn note_read(&self) {
        self.has_read.store(true, Ordering::Relaxed);
    }

    /// The handler works on another request. Returns whether this request was read together with
    /// the one before it.
    pub(super) fn begin_request(&self) -> bool {
        self.enter(Phase::Handling);
        self.has_unread_body.store(false, Ordering::Relaxed);
        let is_pipelined = !self.has_read.load(Ordering::Relaxed);
        self.has_read.store(false, Ordering::Relaxed);
        is_pipelined
    }

    /// The handler begins to wait for the body of its request.
    pub(in crate::http) fn begin_body(&self) {
        let count = self.body_count.load(Ordering::Relaxed).wrapping_add(1);
        self.body_count.store(count, Ordering::Relaxed);
        self.body_bytes.store(0, Ordering::Relaxed);
    }

    /// So many bytes more of the body have come.
    pub(super) fn note_body(&self, bytes: usize) {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let sum = self.body_bytes.load(Ordering::Relaxed).saturating_add(bytes);
        self.body_bytes.store(sum, Ordering::Relaxed);
        self.enter(Phase::Body);
    }

    /// The body of the newest request was given up before its end.
    pub(in crate::http) fn note_unread_body(&self) {
        self.has_unread_body.store(true, Ordering::Relaxed);
    }

    /// Whether the body of the newest request was given up before its end.
    pub(super) fn has_unread_body(&self) -> bool {
        self.has_unread_body.load(Ordering::Relaxed)
    }

    /// Polls a body. What it wakes for is passed on, unless the poll says that nothing is left.
    pub(in crate::http) fn poll_body<T>(&self, poll: impl FnOnce() -> (T, bool)) -> T {
        self.is_holding.store(true, Ordering::Relaxed);
        let (polled, is_complete) = poll();
        self.is_holding.store(false, Ordering::Relaxed);
        if self.was_woken.swap(false, Ordering::Relaxed) && !is_complete {
            self.pass_on();
        }
        polled
    }

    /// From now on this task is woken.
    pub(super) fn set_task(&self, waker: &Waker) {
        let mut task = self.task.lock();
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
    }

    /// From now on nobody is woken.
    pub(super) fn forget_task(&self) {
        *self.task.lock() = None;
    }

    /// Wakes the task of the connection.
    pub(super) fn pass_on(&self) {
        if let Some(task) = &*self.task.lock() {
            task.wake_by_ref();
        }
    }

    /// Whether the client may still be sending something that nobody will read: a body that was
    /// given up, or the rest of a head that was refused.
    pub(super) fn has_unread(&self) -> bool {
        self.has_unread_body() || self.phase() == Phase::Head
    }

    fn phase_of(note: u32) -> Phase {
        Phase::ALL[(note & ((1 << PHASE_BITS) - 1)) as usize]
    }
}

/// Fires when a phase has made no progress until its deadline.
///
/// The clock is read once for each poll that finds a new note with a deadline. The timer is set
/// only when there is none or it would fire too late; one that fires too early is set again. It is
/// looked at only when it has fired or would wake somebody else: a busy connection leaves it alone.
pub(super) struct Watchdog<'a> {
    activity: &'a Activity,
    deadlines: Deadlines,
    /// The note that was seen last, and when.
    seen: u32,
    since: Instant,
    /// The body that was seen last, and when it was waited for first.
    body_seen: u32,
    body_since: Instant,
    timer: Pin<Box<Sleep>>,
    /// Whom the timer wakes; nobody while it has yet to be polled.
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
            body_seen: 0,
            body_since: since,
            timer,
            waker: None,
        }
    }

    /// Ready with the phase that took too long.
    pub(super) fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Phase> {
        let note = self.activity.note();
        let phase = Activity::phase_of(note);
        let Some(limit) = phase.deadline(&self.deadlines) else {
            return Poll::Pending;
        };
        if note != self.seen {
            self.seen = note;
            self.since = Instant::now();
        }
        let mut deadline = self.since + limit;
        if phase == Phase::Body {
            deadline = deadline.min(self.body_deadline());
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

    /// When a body is too late as a whole, however little it stalls.
    fn body_deadline(&mut self) -> Instant {
        let count = self.activity.body_count.load(Ordering::Relaxed);
        if count != self.body_seen {
            self.body_seen = count;
            self.body_since = self.since;
        }
        let Deadlines { body, body_total, body_bytes_per_second, .. } = self.deadlines;
        let bytes = self.activity.body_bytes.load(Ordering::Relaxed);
        let earned = Duration::from_secs(1) * bytes / body_bytes_per_second.get();
        self.body_since + body_total.min(body + earned)
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
    fn wakes_for_a_body_that_is_complete_go_nowhere() {
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
            assert_eq!(task.0.load(Ordering::Relaxed), expected, "nothing is held back now");
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
