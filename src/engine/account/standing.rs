//! What operators have done to an account.

use super::Account;
use crate::engine::rejection::Rejection;
use crate::engine::standing::{Standing, Suspension};

impl Account {
    /// What operators have done to the account, if anything is left of it.
    #[inline]
    pub fn standing(&self) -> Option<&Standing> {
        self.resting()?.standing.as_deref()
    }

    /// The suspension, while there is one.
    #[inline]
    pub fn suspension(&self) -> Option<&Suspension> {
        self.standing()?.suspension.as_ref()
    }

    /// Whether the account takes no writes.
    #[inline]
    pub fn is_suspended(&self) -> bool {
        self.suspension().is_some()
    }

    #[inline]
    pub(in crate::engine) fn require_writable(&self) -> Result<(), Rejection> {
        if self.is_suspended() { Err(Rejection::AccountSuspended) } else { Ok(()) }
    }

    pub(in crate::engine) fn change_standing(&mut self, change: impl FnOnce(&mut Standing)) {
        let kept = &mut self.resting_mut().standing;
        let standing = kept.get_or_insert_default();
        change(standing);
        if standing.is_empty() {
            *kept = None;
        }
    }
}
