//! What a connection is doing, and whether it has done it for too long.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

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
/// Transport, body and handler are polled by the same task as the watchdog, so nothing is ordered
/// by these writes. They are atomic because an upgraded transport may move to another thread.
#[derive(Debug, Default)]
pub struct Activity {
    note: AtomicU32,
    /// Part of the newest request's body was not read.
    has_unread_body: AtomicBool,
}

const PHASE_BITS: u32 = 3;

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

    /// A request has come, or its body was given up before its end.
    pub(in crate::http) fn note_unread_body(&self, is_unread: bool) {
        self.has_unread_body.store(is_unread, Ordering::Relaxed);
    }

    /// Whether the client may still be sending something that nobody will read: a body that was
    /// given up, or the rest of a head that was refused.
    pub(super) fn has_unread(&self) -> bool {
        self.has_unread_body.load(Ordering::Relaxed) || self.phase() == Phase::Head
    }

    fn phase_of(note: u32) -> Phase {
        Phase::ALL[(note & ((1 << PHASE_BITS) - 1)) as usize]
    }
}

/// Fires when a phase has made no progress until its deadline.
///
/// The clock is read once for each poll that finds a new note. The timer is set only when there is
/// none or it would fire too late; one that fires too early is set again.
pub(super) struct Watchdog<'a> {
    activity: &'a Activity,
    deadlines: Deadlines,
    /// The note that was seen last, and when.
    seen: u32,
    since: Instant,
    timer: Pin<Box<Sleep>>,
}

impl<'a> Watchdog<'a> {
    pub(super) fn new(activity: &'a Activity, deadlines: Deadlines) -> Self {
        let since = Instant::now();
        let timer = Box::pin(tokio::time::sleep_until(since + deadlines.idle));
        let seen = activity.note.load(Ordering::Relaxed);
        Self { activity, deadlines, seen, since, timer }
    }

    /// Ready with the phase that took too long.
    pub(super) fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Phase> {
        let note = self.activity.note.load(Ordering::Relaxed);
        if note != self.seen {
            self.seen = note;
            self.since = Instant::now();
        }
        let phase = Activity::phase_of(note);
        let Some(limit) = phase.deadline(&self.deadlines) else {
            return Poll::Pending;
        };
        let deadline = self.since + limit;
        if deadline < self.timer.deadline() {
            self.timer.as_mut().reset(deadline);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            if self.timer.deadline() >= deadline {
                return Poll::Ready(phase);
            }
            self.timer.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}
