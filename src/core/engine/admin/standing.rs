//! What operators do to accounts, and what an account keeps of it.

use crate::engine::state::hash::{StateHash, Term, TermKind};
use crate::engine::state::heap::{text_bytes, vec_bytes};
use crate::ids::{AccountId, Timestamp};
use crate::limits::tier::Tier;
use crate::money::Usd;

/// The longest reason of an operator, in bytes.
pub const REASON_BYTES_MAX: usize = 500;

/// The longest name of an operator that is kept, in bytes.
pub const USER_BYTES_MAX: usize = 64;

/// How many deposits an account remembers, the newest ones. Only these are found again by their
/// tokens, and have a time in the account's equity.
pub const DEPOSITS_KEPT_MAX: usize = 64;

/// The largest deposit: a billion dollars.
pub const DEPOSIT_MAX: Usd = Usd::from_micros(1_000_000_000_000_000);

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
    /// All that tells of its owner and of what they did is gone, for good. It is suspended before,
    /// and has no open orders.
    Erase,
    /// It is reset, as its owner could.
    Reset,
    /// Its keys get this tier, and its owner may give no higher one from here on.
    Tier(Tier),
    /// It gets play money, which is not profit.
    Deposit {
        /// How much: above 0, at most [`DEPOSIT_MAX`].
        amount: Usd,
        /// Tells a repeat from another deposit.
        token: DepositToken,
    },
}

/// Tells the repeat of a deposit from another deposit of the account: random bytes.
pub type DepositToken = [u8; 16];

/// A deposit that an account remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deposit {
    /// The token that came with it.
    pub token: DepositToken,
    /// How much.
    pub amount: Usd,
    /// When.
    pub at: Timestamp,
}

/// What operators have done to an account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// The suspension, while there is one.
    pub suspension: Option<Suspension>,
    /// When the account was erased. Nothing else is left of it.
    pub erased_at: Option<Timestamp>,
    /// The tier that an operator gave the account, whatever its owner's access tokens say.
    pub tier: Option<Tier>,
    /// All that was deposited since the account was opened or last reset, forgotten deposits
    /// included.
    pub deposited: Usd,
    /// The newest deposits, oldest first: at most [`DEPOSITS_KEPT_MAX`], whenever they were.
    pub deposits: Vec<Deposit>,
}

/// The suspension of an account, which refuses writes meanwhile.
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
            Self::Erase => "erase",
            Self::Reset => "reset",
            Self::Tier(_) => "tier",
            Self::Deposit { .. } => "deposit",
        }
    }
}

impl Standing {
    /// The terms in the state hash.
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

    /// Whether there is nothing to keep.
    pub(in crate::engine) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The memory of this and of what it owns.
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
