//! The operators' socket: what operators ask of a running server about accounts, and do
//! to them.
//!
//! It is a Unix socket in the data folder that only the user of the server may open, so it asks for
//! no credential. A question is the JSON body of a `POST /`, its answer the body of the response,
//! after which the connection ends:
//!
//! ```sh
//! curl --unix-socket data/operator.sock --json '{"command": "list"}' http://paperbourse/
//! ```

mod answer;
mod client;
mod serve;
mod socket;
mod user;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use client::{AskError, ask};
pub use serve::serve;
pub use socket::OperatorSocket;

/// How many accounts one answer lists unless the question says otherwise.
pub const LIMIT_DEFAULT: u32 = 100;

/// The most accounts that one answer lists.
pub const LIMIT_MAX: u32 = 1_000;

/// Where the server of a data folder listens.
pub fn socket_path(data: &Path) -> PathBuf {
    data.join("operator.sock")
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Question {
    /// Which accounts there are.
    List {
        /// Only accounts with higher ids.
        #[serde(default)]
        after: Option<u64>,
        /// The most accounts to list, 1 to [`LIMIT_MAX`].
        #[serde(default = "limit_default")]
        limit: u32,
    },
    /// One account.
    Show {
        /// Which.
        account: Named,
    },
    /// Cancels an account's open orders and refuses its writes from here on.
    Suspend {
        /// Which.
        account: Named,
        /// Why, for the journal.
        reason: String,
    },
    /// Gives an account play money.
    Deposit {
        /// Which.
        account: Named,
        /// How much, in dollars: above 0, at most a billion.
        amount: String,
        /// 32 hexadecimal digits, at random, that tell a repeat from another deposit.
        token: String,
        /// Why, for the journal.
        reason: String,
    },
    /// Erases all that tells of an account's owner and of what they did, for good.
    Erase {
        /// Which.
        account: Named,
        /// Why, for the journal, which keeps it.
        reason: String,
    },
    /// Resets an account, as its owner could.
    Reset {
        /// Which.
        account: Named,
        /// Why, for the journal.
        reason: String,
    },
    /// Gives all keys of an account a tier, and lets its owner give no higher one.
    Tier {
        /// Which.
        account: Named,
        /// The tier: `free`, `pro` or `enterprise`.
        tier: String,
        /// Why, for the journal.
        reason: String,
    },
    /// Which comments an account has written.
    Comments {
        /// Whose.
        account: Named,
        /// Only comments with higher ids.
        #[serde(default)]
        after: Option<u64>,
        /// The most comments to list, 1 to [`LIMIT_MAX`].
        #[serde(default = "limit_default")]
        limit: u32,
    },
    /// Deletes a comment by any author.
    DeleteComment {
        /// Its id.
        comment: u64,
        /// Why, for the log.
        reason: String,
    },
    /// Takes an account's writes again.
    Resume {
        /// Which.
        account: Named,
        /// Why, for the journal.
        reason: String,
    },
}

/// How a question names an account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Named {
    /// By its id.
    Id(u64),
    /// By its owner's name at the issuer of their access tokens.
    Subject(String),
}

/// A list of accounts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountList {
    /// The accounts, in id order.
    pub accounts: Vec<AccountLine>,
    /// The `after` of the next question; `None` if there are no more accounts.
    pub next: Option<u64>,
}

/// An account, with amounts and times as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountLine {
    /// The account's id.
    pub account: u64,
    /// The state: `active`, `suspended` or `erased`. Only an active account may write.
    pub state: String,
    /// Who suspended it, when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<SuspensionLine>,
    /// The owner's name at the issuer.
    pub subject: String,
    /// The issuer of the owner's access tokens.
    pub issuer: String,
    /// The highest tier of its keys; `None` without a key that works.
    pub tier: Option<String>,
    /// The tier that an operator gave it, whatever its owner's access tokens say.
    pub given_tier: Option<String>,
    /// Its cash, in dollars, including what open orders hold back.
    pub balance: String,
    /// What open orders hold back, in dollars.
    pub reserved: String,
    /// The balance from which profit counts, in dollars, deposits included.
    pub starting_balance: String,
    /// How many orders are open.
    pub open_orders: usize,
    /// How many positions are open.
    pub open_positions: usize,
    /// How many fills it ever had.
    pub fills: u64,
    /// How many keys work.
    pub active_keys: usize,
    /// How often it was reset.
    pub resets: u32,
    /// When it was opened, in UTC.
    pub created_at: String,
}

/// A list of comments.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommentList {
    /// The comments, in id order.
    pub comments: Vec<CommentLine>,
    /// The `after` of the next question; `None` if there are no more comments.
    pub next: Option<u64>,
}

/// A comment on an order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommentLine {
    /// The comment's id.
    pub comment: u64,
    /// The order commented on.
    pub order: u64,
    /// The author's account.
    pub account: u64,
    /// The text.
    pub content: String,
    /// When it was written, in UTC.
    pub created_at: String,
}

/// Why an account takes no writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SuspensionLine {
    /// Since when, in UTC.
    pub at: String,
    /// The number of the user who suspended it.
    pub uid: u32,
    /// Their name on the server's machine, if it knows one.
    pub user: Option<String>,
    /// Why.
    pub reason: String,
}

/// What was done to an account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountChange {
    /// The name of the command that was requested.
    pub act: String,
    /// Whether this did it; if not, it was done before.
    pub is_new: bool,
    /// How many open orders were cancelled.
    pub orders_cancelled: usize,
    /// How many open positions were closed.
    pub positions_closed: u32,
    /// Of an erasure: the last segment of the journal that still holds what was erased.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_through_segment: Option<u64>,
    /// The account afterwards.
    pub account: AccountLine,
}

/// Why a question has no answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// What happened, for programs: a code of the API.
    pub error: String,
    /// What happened and what to do about it, for people.
    pub message: String,
}

const fn limit_default() -> u32 {
    LIMIT_DEFAULT
}
