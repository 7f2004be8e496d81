//! What operators do to accounts, and what an account keeps of it.

use super::heap::text_bytes;
use super::state_hash::{StateHash, Term, TermKind};
use crate::ids::{AccountId, Timestamp};

/// The longest reason of an operator, in bytes.
pub const REASON_BYTES_MAX: usize = 500;

/// The longest name of an operator that is kept, in bytes.
pub const USER_BYTES_MAX: usize = 64;

/// Who acts: a user of the server's machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operator {
    /// The user's number, from the kernel.
    pub uid: u32,
    /// The user's name; `None` if the machine knows none. At most [`USER_BYTES_MAX`] long.
    pub user: Option<Box<str>>,
}

/// What an operator does to an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Its open orders end, and it takes no more writes.
    Suspend,
    /// It takes writes again.
    Resume,
}

/// What operators have done to an account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The suspension, while there is one.
    pub suspension: Option<Suspension>,
}

/// Why an account takes no writes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspension {
    /// Since when.
    pub at: Timestamp,
    /// Who suspended it.
    pub by: Operator,
    /// Why; at most [`REASON_BYTES_MAX`] long.
    pub reason: Box<str>,
}

impl Act {
    /// The name of the command that does it.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Resume => "resume",
        }
    }
}

impl Standing {
    /// The terms in the state hash.
    pub(super) fn term(&self, account: AccountId) -> StateHash {
        self.suspension.as_ref().map(|it| it.term(account)).unwrap_or_default()
    }

    /// Whether there is nothing to keep.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The memory of this and of what it owns.
    pub(super) fn bytes(&self) -> usize {
        let suspension = self.suspension.as_ref().map_or(0, |suspension| {
            let user = suspension.by.user.as_ref().map_or(0, |user| text_bytes(user.len()));
            user + text_bytes(suspension.reason.len())
        });
        size_of::<Self>() + suspension
    }
}

impl Suspension {
    fn term(&self, account: AccountId) -> StateHash {
        Term::new(TermKind::Suspension)
            .pair(account.get(), self.by.uid.into())
            .signed(self.at.nanos())
            .optional_text(self.by.user.as_deref())
            .bytes(self.reason.as_bytes())
            .finish()
    }
}
