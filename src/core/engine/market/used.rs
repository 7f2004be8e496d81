//! A shard's record of a market that it has used.

use std::sync::Arc;

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::heap::text_bytes;
use crate::ids::OutcomeIndex;
use crate::market::catalogue::Outcome;

/// A market that the shard has used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedMarket {
    /// The market's condition id.
    pub condition_id: Arc<str>,
    /// Label and token of each outcome.
    pub outcomes: Vec<(Arc<str>, Arc<str>)>,
}

impl UsedMarket {
    /// Whether these outcomes have the same tokens in the same order as when the market was first
    /// used. Labels may differ, because the venue may correct them and payouts are by token.
    pub(in crate::engine) fn is_still(&self, outcomes: &[Outcome]) -> bool {
        let tokens = outcomes.iter().map(|outcome| &outcome.token_id);
        self.outcomes.iter().map(|(_, token_id)| token_id).eq(tokens)
    }

    /// Returns the label of an outcome.
    pub fn label(&self, outcome: OutcomeIndex) -> Arc<str> {
        self.outcomes[outcome.index()].0.clone()
    }

    /// Returns the token of an outcome.
    pub fn token(&self, outcome: OutcomeIndex) -> &Arc<str> {
        &self.outcomes[outcome.index()].1
    }

    /// Returns the heap memory of the condition id and the labels, including their reference
    /// counts, in bytes.
    pub(in crate::engine) fn text_bytes(&self) -> usize {
        let labels = self.outcomes.iter().map(|(label, _)| label);
        let texts = labels.chain([&self.condition_id]);
        texts.map(|text| text_bytes(text.len() + 2 * size_of::<usize>())).sum()
    }

    /// Returns the market's term in the state hash.
    pub(in crate::engine) fn term(&self, index: u32) -> StateHash {
        let term = Term::new(TermKind::Market).number(index.into());
        let term = term.bytes(self.condition_id.as_bytes());
        let outcomes = self.outcomes.iter();
        outcomes
            .fold(term, |term, (label, token_id)| {
                term.bytes(label.as_bytes()).bytes(token_id.as_bytes())
            })
            .finish()
    }
}
