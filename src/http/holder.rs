//! Whose large bodies and answers take memory: everybody gets a part of it, so that nobody can keep
//! others from getting any.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use crate::ids::AccountId;
use crate::limits::bucket::Origin;
use crate::limits::budget::{ByteBudget, Share};

/// Strangers together get one part in so many of a budget, so that they leave some to others.
const STRANGERS_PARTS: usize = 2;

/// Who makes us hold memory. Each gets an eighth of a budget at most.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Holder {
    /// A caller with this account.
    Account(AccountId),
    /// A caller without an account, or one that is not known yet, from here.
    Stranger(Origin),
}

impl Holder {
    /// What it has of the budget, nothing so far.
    pub(super) fn share(&self, budget: &Arc<ByteBudget>) -> Share {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        budget.share_of(SECRET.hash_one(self))
    }

    /// How many bytes of the budget may be held once this holder has taken more.
    pub(super) fn bytes_max(self, budget: &ByteBudget) -> usize {
        match self {
            Self::Account(_) => budget.bytes_max(),
            Self::Stranger(_) => budget.bytes_max() / STRANGERS_PARTS,
        }
    }
}
