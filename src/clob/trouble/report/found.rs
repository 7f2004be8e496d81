//! What was found: how often, and the first examples.

use serde::Serialize;

use super::Mistake;
use crate::trouble::{Act, OrderAct};

/// Maximum number of examples of a mistake.
const EXAMPLES_MAX: usize = 3;

/// A mistake that somebody made.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Finding {
    /// The mistake.
    pub mistake: Mistake,
    /// How often it was made.
    pub count: u64,
    /// What to do instead.
    pub advice: &'static str,
    /// The first times.
    pub examples: Vec<Example>,
}

/// One time that a mistake was made.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Debug)]
pub struct Example {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// The id of the order, if it was taken.
    pub order: Option<Box<str>>,
    /// The salt of the order.
    pub salt: Option<Box<str>>,
    /// The outcome's token.
    pub token: Option<Box<str>>,
}

/// The mistakes of one party.
#[derive(Debug)]
pub(super) struct Found([(u64, Vec<Example>); Mistake::ALL.len()]);

impl Default for Found {
    fn default() -> Self {
        Self([const { (0, Vec::new()) }; Mistake::ALL.len()])
    }
}

impl Found {
    pub(super) fn add(&mut self, mistake: Mistake, example: impl FnOnce() -> Example) {
        let (count, examples) = &mut self.0[mistake as usize];
        *count += 1;
        if examples.len() < EXAMPLES_MAX {
            examples.push(example());
        }
    }

    /// Returns the mistakes that were made.
    pub(super) fn into_findings(self) -> Vec<Finding> {
        let all = Mistake::ALL.into_iter().zip(self.0);
        let made = all.filter(|(_, (count, _))| *count > 0);
        let finding = |(mistake, (count, examples)): (Mistake, _)| Finding {
            mistake,
            count,
            advice: mistake.advice(),
            examples,
        };
        made.map(finding).collect()
    }
}

impl Example {
    pub(super) fn of_order(at_ms: u64, order: &OrderAct) -> Self {
        let OrderAct { id, salt, token, .. } = order.clone();
        Self { at_ms, order: id, salt: Some(salt), token: Some(token) }
    }

    pub(super) fn of_act(act: &Act) -> Self {
        match &act.order {
            Some(order) => Self::of_order(act.at_ms, order),
            None => {
                Self { at_ms: act.at_ms, token: act.tokens.first().cloned(), ..Self::default() }
            }
        }
    }
}
