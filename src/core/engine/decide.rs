//! The interface of commands: the decision, the answer, and the record that the answer depends on.

use crate::engine::event::Events;
use crate::engine::rejection::Rejection;
use crate::engine::rules::Rules;
use crate::engine::state::State;
use crate::ids::{Lsn, Timestamp};
use crate::market::quote::Quote;

/// A request to change a shard's state. It is validated and owns its data. The decision also
/// depends on the state, the clock and the quote, which are read when the command is decided.
pub trait Command {
    /// Identifies what the command acted on, so that the answer can be read from the state.
    type Subject;
    /// The result for the caller.
    type Answer;

    /// Whether the command moves one of the shard's deadlines even if it produces no event.
    const MOVES_TIMERS: bool = false;

    /// Returns the condition id of the market whose quote the decision needs, if any.
    fn market_id(&self) -> Option<&str> {
        None
    }

    /// Decides the command without changing the state.
    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<Self::Subject>, Rejection>;

    /// Reads the answer from the state once the command's events are applied. `is_new` is false if
    /// the command had no events.
    fn answer(state: &State, subject: Self::Subject, is_new: bool) -> Self::Answer;

    /// Updates the state's working memory, which is not journaled, once the events are applied.
    fn remember(_state: &mut State, _subject: &Self::Subject) {}

    /// Returns the LSN of the newest record that the answer depends on if the command changes
    /// nothing.
    fn depends_on(&self, state: &State) -> Lsn;

    /// Returns the LSN of the newest record that this rejection depends on.
    fn refusal_depends_on(&self, state: &State, _: &Rejection) -> Lsn {
        self.depends_on(state)
    }
}

/// The inputs of a decision other than the state.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a, 'q> {
    /// The quote of the command's market; `None` if the command names no market or the market is
    /// not listed.
    pub quote: Option<&'a Quote<'q>>,
    /// The time of the decision.
    pub now: Timestamp,
    /// The operator's rules.
    pub rules: &'a Rules,
}

/// The outcome of a command that was not rejected.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict<S> {
    /// The command takes effect through these events, which must be journaled and applied.
    Happens(Events, S),
    /// The command has no effect: its work is already done.
    Already(S),
}

impl<S> Verdict<S> {
    /// Returns [`Self::Happens`] with these events, or [`Self::Already`] if there are none.
    pub(super) fn of(events: Events, subject: S) -> Self {
        if events.is_empty() { Self::Already(subject) } else { Self::Happens(events, subject) }
    }
}

impl State {
    /// Decides a command for this quote and time, without changing the state.
    #[inline]
    pub fn decide<C: Command>(
        &self,
        command: &C,
        quote: Option<&Quote<'_>>,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict<C::Subject>, Rejection> {
        command.decide(self, Given { quote, now, rules })
    }
}

/// The rejection of a command that needs an id when none is left. Unreachable in practice: a shard
/// has 2⁴⁷ ids of each kind.
pub(super) const IDS_EXHAUSTED: Rejection =
    Rejection::Broken { rule: "a shard has used all of its ids" };
