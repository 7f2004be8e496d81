//! The operators' socket: queries and commands for the accounts of a running server.
//!
//! It is a Unix socket in the data folder that only the server's user may open, so it needs no
//! credential. A question is the JSON body of a `POST /`. The answer is the body of the response,
//! after which the connection closes:
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

/// Default number of rows in a list of accounts or comments.
pub const LIMIT_DEFAULT: u32 = 100;

/// Maximum number of rows in a list of accounts or comments.
pub const LIMIT_MAX: u32 = 1_000;

/// Returns the path of the operators' socket in a data folder.
pub fn socket_path(data: &Path) -> PathBuf {
    data.join("operator.sock")
}

/// A query or a command from an operator.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Question {
    /// Lists accounts, in id order.
    List {
        /// Lists only accounts with ids above this one.
        #[serde(default)]
        after: Option<u64>,
        /// Maximum number of accounts to list; clamped to 1..=[`LIMIT_MAX`].
        #[serde(default = "limit_default")]
        limit: u32,
    },
    /// Shows one account.
    Show {
        /// The account to show.
        account: Named,
    },
    /// Cancels an account's open orders and rejects its writes until it is resumed.
    Suspend {
        /// The account to suspend.
        account: Named,
        /// The reason to record in the journal.
        reason: String,
    },
    /// Deposits play money into an account.
    Deposit {
        /// The account to credit.
        account: Named,
        /// The amount in dollars: above 0, at most a billion.
        amount: String,
        /// Idempotency token of 32 random hexadecimal digits. Of several deposits with the same
        /// token, only one is made.
        token: String,
        /// The reason to record in the journal.
        reason: String,
    },
    /// Permanently erases an account's personal data and trading history.
    Erase {
        /// The account to erase.
        account: Named,
        /// The reason to record in the journal, which outlives the erasure.
        reason: String,
    },
    /// Resets an account, as its owner can do through the API.
    Reset {
        /// The account to reset.
        account: Named,
        /// The reason to record in the journal.
        reason: String,
    },
    /// Sets the tier of all keys of an account, and the highest tier its owner may give new keys.
    Tier {
        /// The account whose tier to set.
        account: Named,
        /// The tier: `free`, `pro` or `enterprise`.
        tier: String,
        /// The reason to record in the journal.
        reason: String,
    },
    /// Lists the comments written by an account, in id order.
    Comments {
        /// The account of the author.
        account: Named,
        /// Lists only comments with ids above this one.
        #[serde(default)]
        after: Option<u64>,
        /// Maximum number of comments to list; clamped to 1..=[`LIMIT_MAX`].
        #[serde(default = "limit_default")]
        limit: u32,
    },
    /// Deletes a comment by any author.
    DeleteComment {
        /// The comment's id.
        comment: u64,
        /// The reason to write to the server's log.
        reason: String,
    },
    /// Lifts an account's suspension.
    Resume {
        /// The account to resume.
        account: Named,
        /// The reason to record in the journal.
        reason: String,
    },
}

/// The account a question refers to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Named {
    /// The account's id.
    Id(u64),
    /// The owner's name at the issuer of their access tokens.
    Subject(String),
}

/// One page of a list of accounts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountList {
    /// The accounts, in id order.
    pub accounts: Vec<AccountLine>,
    /// The `after` of the question for the next page; `None` on the last page.
    pub next: Option<u64>,
}

/// An account, with amounts and times as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountLine {
    /// The account's id.
    pub account: u64,
    /// The state: `active`, `suspended` or `erased`. Only an active account may write.
    pub state: String,
    /// The suspension, if the account is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspension: Option<SuspensionLine>,
    /// The owner's name at the issuer.
    pub subject: String,
    /// The issuer of the owner's access tokens.
    pub issuer: String,
    /// The highest tier of the account's active keys; `None` if it has none.
    pub tier: Option<String>,
    /// The tier that an operator set, which overrides the tiers in the owner's access tokens.
    pub given_tier: Option<String>,
    /// The cash balance in dollars, including the reserve of open orders.
    pub balance: String,
    /// The cash that open orders reserve, in dollars.
    pub reserved: String,
    /// The baseline for profit, in dollars: the starting balance plus deposits.
    pub starting_balance: String,
    /// Number of open orders.
    pub open_orders: usize,
    /// Number of open positions.
    pub open_positions: usize,
    /// Number of fills over the account's lifetime.
    pub fills: u64,
    /// Number of active keys.
    pub active_keys: usize,
    /// Number of resets.
    pub resets: u32,
    /// The time at which the account was opened, in UTC.
    pub created_at: String,
}

/// One page of a list of comments.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CommentList {
    /// The comments, in id order.
    pub comments: Vec<CommentLine>,
    /// The `after` of the question for the next page; `None` on the last page.
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
    /// The time at which it was written, in UTC.
    pub created_at: String,
}

/// The suspension of an account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SuspensionLine {
    /// The time of the suspension, in UTC.
    pub at: String,
    /// The uid of the user who suspended the account.
    pub uid: u32,
    /// The user's name on the server's machine; `None` if the machine has no name for the uid.
    pub user: Option<String>,
    /// The reason that the operator gave.
    pub reason: String,
}

/// The result of a command that changes an account.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct AccountChange {
    /// The name of the command, such as `suspend`.
    pub act: String,
    /// Whether this command made the change; false if it had been made before.
    pub is_new: bool,
    /// Number of open orders cancelled.
    pub orders_cancelled: usize,
    /// Number of open positions closed.
    pub positions_closed: u32,
    /// After an erasure, the last journal segment that still holds the erased data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_through_segment: Option<u64>,
    /// The account after the change.
    pub account: AccountLine,
}

/// The error body of a refused question.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The error code, for programs: one of the API's error codes.
    pub error: String,
    /// The error and its remedy, in words.
    pub message: String,
}

const fn limit_default() -> u32 {
    LIMIT_DEFAULT
}
