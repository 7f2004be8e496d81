//! Whose large bodies and answers take memory: everybody gets a part of it, so that nobody can keep
//! others from getting any.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::bucket::Origin;
use paperbourse_core::limits::budget::{ByteBudget, Share};

/// Strangers together get one part in so many of a budget, so that they leave some to others.
const STRANGERS_PARTS: usize = 2;

/// Who makes us hold memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Holder {
    /// A caller with this account.
    Account(AccountId),
    /// A caller without an account, or one that is not known yet, from here.
    Stranger(Origin),
    /// A caller from here whose connection has shown a valid credential before.
    #[cfg(feature = "cluster")]
    Recognized(Origin),
}

impl Holder {
    /// The holder for a caller with this account, if it has one, from this address.
    pub(super) fn of(account: Option<AccountId>, address: IpAddr) -> Self {
        account.map_or_else(|| Self::Stranger(Origin::of(address)), Self::Account)
    }

    /// What it has of the budget, nothing so far. Strangers leave some to others.
    pub(super) fn share(self, budget: &Arc<ByteBudget>) -> Share {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let parts = if matches!(self, Self::Stranger(_)) { STRANGERS_PARTS } else { 1 };
        budget.share_of(SECRET.hash_one(self), budget.bytes_max() / parts)
    }
}
