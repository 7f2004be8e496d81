//! The end of a connection at the server's request: when it closes, and what it sends first.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use tokio::time::Sleep;

use super::activity::{Activity, Phase};
use super::{ConnectionError, Deadlines, Ending, SETTLE};

/// Ends a connection once `ending` resolves.
pub(super) struct Parting<'a, F> {
    activity: &'a Arc<Activity>,
    deadlines: Deadlines,
    ending: Pin<&'a mut F>,
    signal: Arc<EndSignal>,
    waker: Waker,
    has_begun: bool,
    is_handed_over: bool,
    /// The timer that keeps an idle connection open, and the progress when the end began.
    settling: Option<(Pin<Box<Sleep>>, u32)>,
    /// The timer for the client to take the last bytes of an endless stream.
    farewell: Option<Pin<Box<Sleep>>>,
}

impl<'a, F: Future<Output = Ending>> Parting<'a, F> {
    pub(super) fn new(
        activity: &'a Arc<Activity>,
        deadlines: Deadlines,
        ending: Pin<&'a mut F>,
    ) -> Self {
        let is_set = AtomicBool::new(true);
        let signal = Arc::new(EndSignal { is_set, activity: activity.clone() });
        let waker = Waker::from(signal.clone());
        Self {
            activity,
            deadlines,
            ending,
            signal,
            waker,
            has_begun: false,
            is_handed_over: false,
            settling: None,
            farewell: None,
        }
    }

    /// Polls `ending` and starts the end of the connection if it resolves. Fails if the connection
    /// must end at once.
    pub(super) fn poll_ending(&mut self) -> Result<(), ConnectionError> {
        // The load comes first to spare a busy connection the swap on every poll.
        if !self.has_begun
            && self.signal.is_set.load(Ordering::Acquire)
            && self.signal.is_set.swap(false, Ordering::AcqRel)
            && let Poll::Ready(ending) =
                self.ending.as_mut().poll(&mut Context::from_waker(&self.waker))
        {
            if ending == Ending::Abrupt {
                return Err(ConnectionError::Dismissed);
            }
            self.has_begun = true;
            self.is_handed_over = ending == Ending::HandedOver;
            self.activity.begin_ending(self.is_handed_over);
            if !self.is_handed_over {
                let wait = if self.activity.is_new() { self.deadlines.first } else { SETTLE };
                let timer = Box::pin(tokio::time::sleep(wait));
                self.settling = Some((timer, self.activity.note()));
            }
        }
        Ok(())
    }

    /// Whether the server has asked for the end.
    pub(super) const fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether hyper should now close the connection as soon as nothing is in flight. Returns true
    /// only once.
    pub(super) fn has_settled(&mut self, context: &mut Context<'_>) -> bool {
        let Some((timer, note)) = &mut self.settling else { return false };
        let phase = self.activity.phase();
        // hyper would close a connection that has received only part of a head.
        let has_settled = phase != Phase::Head
            && (phase != Phase::Idle
                || self.activity.note() != *note
                || timer.as_mut().poll(context).is_ready());
        if has_settled {
            self.settling = None;
        }
        has_settled
    }

    /// Whether an endless stream is about to be cut off.
    pub(super) fn cuts_off(&self) -> bool {
        self.has_begun && self.activity.is_endless()
    }

    /// Resolves when the client has had its time for the last bytes of an endless stream.
    pub(super) fn poll_farewell(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let wait = self.deadlines.farewell;
        let farewell = self.farewell.get_or_insert_with(|| Box::pin(tokio::time::sleep(wait)));
        farewell.as_mut().poll(context)
    }

    /// Whether the connection is at rest and must be handed over. Call this only after a poll that
    /// has read everything that had arrived.
    pub(super) fn hands_over(&self) -> bool {
        self.is_handed_over && self.activity.phase() == Phase::Idle
    }
}

/// The waker of the `ending` future. It records that the future is worth polling, so that a busy
/// connection need not poll it every time.
struct EndSignal {
    is_set: AtomicBool,
    activity: Arc<Activity>,
}

impl Wake for EndSignal {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.activity.pass_on();
    }
}
