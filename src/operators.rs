//! The operators' socket: what operators ask of a running server about accounts.
//!
//! It is a Unix socket in the data folder that only the user of the server may open, so it asks for
//! no credential. A question is the JSON body of a `POST /`, its answer the body of the response:
//!
//! ```sh
//! curl --unix-socket data/operator.sock --json '{"command": "list"}' http://paperbourse/
//! ```

mod answer;
mod client;
mod serve;
mod socket;

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
    /// Whether it may write: `active`.
    pub state: String,
    /// The owner's name at the issuer.
    pub subject: String,
    /// The issuer of the owner's access tokens.
    pub issuer: String,
    /// The highest tier of its keys; `None` without a key that works.
    pub tier: Option<String>,
    /// Its cash, in dollars, including what open orders hold back.
    pub balance: String,
    /// What open orders hold back, in dollars.
    pub reserved: String,
    /// The balance from which profit counts, in dollars.
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
