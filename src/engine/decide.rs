//! What every command has: a decision, an answer, and the record that the answer rests on.

use super::event::Events;
use super::rejection::Rejection;
use super::rules::Rules;
use super::state::State;
use crate::ids::{Place, Timestamp};
use crate::market::quote::Quote;

/// Something that may change a shard's state. It is validated, owned and complete, but for what the
/// shard reads at the moment of decision: its own state, the clock and the quote.
pub trait Command {
    /// What the facts are about, and the answer is read from.
    type Subject;
    /// What the caller gets.
    type Answer;

    /// The market whose quote the decision needs.
    fn market_id(&self) -> Option<&str> {
        None
    }

    /// Refuses with a reason, or says what follows. Nothing changes.
    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<Self::Subject>, Rejection>;

    /// The answer, read when the facts are applied. `is_new` unless nothing had to happen.
    fn answer(state: &State, subject: Self::Subject, is_new: bool) -> Self::Answer;

    /// The newest record that an answer rests on when the command changes nothing.
    fn rests_on(&self, state: &State) -> Place;

    /// The newest record that this refusal rests on.
    fn refusal_rests_on(&self, state: &State, _: &Rejection) -> Place {
        self.rests_on(state)
    }
}

/// What a decision is given besides the state.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a, 'q> {
    /// That of the market that the command names; `None` where there is no such market.
    pub quote: Option<&'a Quote<'q>>,
    /// When.
    pub now: Timestamp,
    /// What the operator decides.
    pub rules: &'a Rules,
}

/// What follows from a command that was not refused.
#[derive(Clone, PartialEq, Debug)]
pub enum Verdict<S> {
    /// These facts about something, once they are applied and journaled.
    Happens(Events, S),
    /// Nothing: this is so already, or was done before.
    Already(S),
}

impl State {
    /// What would follow from a command, on this quote, at this time; nothing changes.
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

/// No client gets this far: a shard would have to hold 2⁴⁷ records of one kind.
pub(super) const IDS_EXHAUSTED: Rejection =
    Rejection::Broken { rule: "a shard has used all of its ids" };
