//! The acts of operators, and their lasting effects on an account.

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::heap::{text_bytes, vec_bytes};
use crate::ids::{AccountId, Timestamp};
use crate::limits::tier::Tier;
use crate::money::Usd;

/// The maximum length of an operator's reason, in bytes.
pub const REASON_BYTES_MAX: usize = 500;

/// The maximum length of an operator's user name, in bytes.
pub const USER_BYTES_MAX: usize = 64;

/// The maximum number of deposits an account keeps; the oldest are dropped first. Only kept
/// deposits are recognised by their tokens and appear with their dates in the account's equity.
pub const DEPOSITS_KEPT_MAX: usize = 64;

/// The maximum deposit: a billion dollars.
pub const DEPOSIT_MAX: Usd = Usd::from_micros(1_000_000_000_000_000);

/// An operator, identified as a user of the server's machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operator {
    /// The user id, as reported by the kernel.
    pub uid: u32,
    /// The user's name, at most [`USER_BYTES_MAX`] bytes; `None` if the machine has no name for the
    /// id.
    pub user: Option<Box<str>>,
}

/// An act of an operator on an account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Act {
    /// Ends the account's open orders and refuses further writes.
    Suspend,
    /// Lifts the suspension, so that the account accepts writes again.
    Resume,
    /// Permanently removes the owner's identity and all of their activity. The account must be
    /// suspended first and have no open orders.
    Erase,
    /// Resets the account, which its owner can do too.
    Reset,
    /// Sets the tier of the account's keys. From then on, the account's owner cannot create keys of
    /// a higher tier.
    Tier(Tier),
    /// Grants play money, which does not count as profit.
    Deposit {
        /// The amount, above 0 and at most [`DEPOSIT_MAX`].
        amount: Usd,
        /// Distinguishes a retry from a second deposit.
        token: DepositToken,
    },
}

/// Random bytes that distinguish the retry of a deposit from a second deposit to the account.
pub type DepositToken = [u8; 16];

/// A deposit that an account keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deposit {
    /// The token of the deposit.
    pub token: DepositToken,
    /// The amount.
    pub amount: Usd,
    /// The time of the deposit.
    pub at: Timestamp,
}

/// The lasting effects of operators' acts on an account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The suspension, if the account is suspended.
    pub suspension: Option<Suspension>,
    /// When the account was erased. The other fields are then at their defaults.
    pub erased_at: Option<Timestamp>,
    /// The tier set by an operator. It takes precedence over the owner's access tokens.
    pub tier: Option<Tier>,
    /// The sum of all deposits since the account was opened or last reset, including forgotten
    /// ones.
    pub deposited: Usd,
    /// The newest deposits, oldest first, at most [`DEPOSITS_KEPT_MAX`]. A reset does not remove
    /// them.
    pub deposits: Vec<Deposit>,
}

/// The suspension of an account, during which writes are refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Suspension {
    /// When the suspension began.
    pub at: Timestamp,
    /// The operator who suspended the account.
    pub by: Operator,
    /// The operator's reason, at most [`REASON_BYTES_MAX`] bytes.
    pub reason: Box<str>,
}

impl Act {
    /// Returns the name of the operator command for this act.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Suspend => "suspend",
            Self::Resume => "resume",
            Self::Erase => "erase",
            Self::Reset => "reset",
            Self::Tier(_) => "tier",
            Self::Deposit { .. } => "deposit",
        }
    }
}

impl Standing {
    /// Returns the sum of the standing's terms in the state hash.
    pub(in crate::engine) fn term(&self, account: AccountId) -> StateHash {
        let mut hash = self.suspension.as_ref().map(|it| it.term(account)).unwrap_or_default();
        if self.deposited != Usd::ZERO {
            let deposited = Term::new(TermKind::Deposited).number(account.get());
            hash += deposited.signed(self.deposited.micros()).finish();
        }
        if let Some(at) = self.erased_at {
            hash += Term::new(TermKind::Erased).number(account.get()).signed(at.nanos()).finish();
        }
        if let Some(tier) = self.tier {
            hash += Term::new(TermKind::AccountTier).pair(account.get(), tier as u64).finish();
        }
        for (index, deposit) in self.deposits.iter().enumerate() {
            hash += deposit.term(account, index);
        }
        hash
    }

    /// Whether the standing has no content, so that it need not be stored.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the memory of the standing in bytes, including its heap memory.
    pub(in crate::engine) fn bytes(&self) -> usize {
        let suspension = self.suspension.as_ref().map_or(0, |suspension| {
            let user = suspension.by.user.as_ref().map_or(0, |user| text_bytes(user.len()));
            user + text_bytes(suspension.reason.len())
        });
        size_of::<Self>() + suspension + vec_bytes(&self.deposits)
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

impl Deposit {
    fn term(&self, account: AccountId, index: usize) -> StateHash {
        Term::new(TermKind::Deposit)
            .pair(account.get(), index as u64)
            .sixteen(&self.token)
            .signed_pair(self.amount.micros(), self.at.nanos())
            .finish()
    }
}
