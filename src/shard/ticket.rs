//! The wait for a task that somebody else runs.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::primitives::Mutex;
use crate::engine::view::Observed;
use crate::journal::Waiters;

/// Where the runner of a task leaves its result for the owner.
pub(super) struct Ticket<T> {
    state: Mutex<State<T>>,
    /// The owner's group: its waker goes there when the result has yet to reach the disk.
    waiters: Arc<Waiters>,
}

enum State<T> {
    Waiting(Option<Waker>),
    Filled(Observed<T>),
    Taken,
}

impl<T> Ticket<T> {
    pub(super) fn new(waiters: Arc<Waiters>) -> Self {
        Self { state: Mutex::new(State::Waiting(None)), waiters }
    }

    /// Leaves the result. The owner is woken once: by the flush that covers the result, or at once
    /// when it is on disk already.
    pub(super) fn fill(&self, observed: Observed<T>) {
        let place = observed.place;
        let before = std::mem::replace(&mut *self.state.lock(), State::Filled(observed));
        match before {
            State::Waiting(Some(waker)) => self.waiters.wake_when_durable(place, waker),
            State::Waiting(None) => {}
            State::Filled(_) | State::Taken => unreachable!("a task runs once"),
        }
    }

    /// Polled by the owner until the runner has left the result.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Observed<T>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Filled(observed) => Poll::Ready(observed),
            State::Waiting(_) => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Taken => unreachable!("a result is taken once"),
        }
    }
}
