//! Attributes the memory of large bodies and answers to callers. Each caller gets only a part of
//! the budget, so no caller can keep the others from getting a part.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::bucket::Origin;
use paperbourse_core::limits::budget::{ByteBudget, Share};

/// A stranger may take memory only while the total stays within one part in this many of the
/// budget. The rest is left to other callers.
const STRANGERS_PARTS: usize = 2;

/// The caller that memory is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Holder {
    /// A caller with this account.
    Account(AccountId),
    /// A caller from this origin that has no account or has not been identified yet.
    Stranger(Origin),
    /// A caller from this origin whose connection has presented a valid credential before.
    #[cfg(feature = "cluster")]
    Recognized(Origin),
}

impl Holder {
    /// Returns the holder to charge: the account if the caller has one, otherwise its address.
    pub(super) fn of(account: Option<AccountId>, address: IpAddr) -> Self {
        account.map_or_else(|| Self::Stranger(Origin::of(address)), Self::Account)
    }

    /// Returns the holder's share of the budget, initially empty. Strangers cannot fill the whole
    /// budget.
    pub(super) fn share(self, budget: &Arc<ByteBudget>) -> Share {
        static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let parts = if matches!(self, Self::Stranger(_)) { STRANGERS_PARTS } else { 1 };
        budget.share_of(SECRET.hash_one(self), budget.bytes_max() / parts)
    }
}
