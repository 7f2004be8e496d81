//! A one-shot slot for the result of a task that another thread runs.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::primitives::Mutex;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_store::journal::Waiters;

/// Passes a task's result from the thread that ran it to the task's owner.
pub(super) struct Ticket<T> {
    state: Mutex<State<T>>,
    /// The waiters of the owner's worker. If the result is not durable yet, the owner's waker is
    /// left with them.
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

    /// Stores the result. The owner is woken once: by the flush that makes the result durable, or
    /// at once if the result is already durable.
    pub(super) fn fill(&self, observed: Observed<T>) {
        let lsn = observed.lsn;
        let before = std::mem::replace(&mut *self.state.lock(), State::Filled(observed));
        match before {
            State::Waiting(Some(waker)) => self.waiters.wake_when_durable(lsn, waker),
            State::Waiting(None) => {}
            State::Filled(_) | State::Taken => unreachable!("a task runs once"),
        }
    }

    /// Takes the result once it is available. Polled by the owner.
    pub(super) fn poll(&self, context: &Context<'_>) -> Poll<Observed<T>> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Filled(observed) => Poll::Ready(observed),
            State::Waiting(_) => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Taken => unreachable!("polled after completion"),
        }
    }
}
