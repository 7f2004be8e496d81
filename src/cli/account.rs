//! `paperbourse account`: shows and changes the accounts of a running server.

use std::fmt::{self, Display, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand};

use super::print_report;
use crate::config::server_folder;
use crate::inspect::count;
use crate::limits::tier::Tier;
use crate::operators::{
    self, AccountChange, AccountLine, AccountList, AskError, CommentLine, CommentList,
    LIMIT_DEFAULT, LIMIT_MAX, Named, Question, SuspensionLine,
};
use crate::telemetry::OneLine;

#[derive(Args, Debug)]
pub(super) struct AccountArgs {
    #[command(subcommand)]
    command: AccountCommand,

    /// Data folder of the server
    #[arg(long, env = "PAPERBOURSE_DATA", default_value = "./data", value_name = "DIR",
          value_parser = server_folder, global = true)]
    data: PathBuf,

    /// Print JSON instead of text: one object
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand, Debug)]
enum AccountCommand {
    /// List accounts, in the order of their ids
    List {
        /// Only accounts with higher ids
        #[arg(long, value_name = "ID")]
        after: Option<u64>,

        /// The most accounts to list
        #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT,
              value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
        limit: u32,
    },
    /// Show an account
    Show(AccountName),
    /// Cancel an account's open orders, and refuse its writes until it is resumed
    Suspend(Act),
    /// Lift an account's suspension
    Resume(Act),
    /// Give an account play money, which does not count as profit
    Deposit(Deposit),
    /// Cancel an account's open orders, close its positions, and make its cash the starting balance
    Reset(Act),
    /// Permanently erase an account's personal data and trading history
    Erase(Act),
    /// Set the tier of all keys of an account, and the highest that new ones can have
    Tier(TierArgs),
    /// List an account's comments, in the order of their ids
    Comments(CommentsArgs),
    /// Delete a comment by any author
    DeleteComment {
        /// Id of the comment
        #[arg(value_name = "COMMENT")]
        comment: u64,

        /// Why, for the log: at most 500 bytes
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Args, Debug)]
struct CommentsArgs {
    #[command(flatten)]
    name: AccountName,

    /// Only comments with higher ids
    #[arg(long, value_name = "COMMENT")]
    after: Option<u64>,

    /// The most comments to list
    #[arg(long, value_name = "N", default_value_t = LIMIT_DEFAULT,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(LIMIT_MAX)))]
    limit: u32,
}

#[derive(Args, Debug)]
struct TierArgs {
    #[command(flatten)]
    act: Act,

    /// The tier
    #[arg(long, value_name = "TIER", value_parser = Tier::ALL.map(Tier::as_str))]
    tier: String,
}

#[derive(Args, Debug)]
struct Deposit {
    #[command(flatten)]
    act: Act,

    /// How much, in dollars
    #[arg(long, value_name = "USD")]
    amount: String,

    /// Repeats the deposit with this token, unless it was made: 32 hexadecimal digits. Without it,
    /// the deposit is a new one
    #[arg(long, value_name = "TOKEN")]
    token: Option<String>,
}

#[derive(Args, Debug)]
struct Act {
    #[command(flatten)]
    name: AccountName,

    /// Why, for the journal: at most 500 bytes
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct AccountName {
    /// Id of the account
    #[arg(value_name = "ID")]
    id: Option<u64>,

    /// Select the account by its owner: the `sub` of their access tokens
    #[arg(long, value_name = "NAME")]
    subject: Option<String>,
}

impl From<&AccountName> for Named {
    fn from(name: &AccountName) -> Self {
        match (name.id, &name.subject) {
            (Some(id), _) => Self::Id(id),
            (None, subject) => Self::Subject(subject.clone().unwrap_or_default()),
        }
    }
}

pub(super) fn run(arguments: &AccountArgs) -> anyhow::Result<()> {
    let AccountArgs { command, data, json } = arguments;
    match command {
        AccountCommand::List { after, limit } => {
            let question = Question::List { after: *after, limit: *limit };
            print_report(&operators::ask::<AccountList>(data, &question)?, *json)
        }
        AccountCommand::Show(name) => {
            let question = Question::Show { account: name.into() };
            print_report(&operators::ask::<AccountLine>(data, &question)?, *json)
        }
        AccountCommand::Suspend(Act { name, reason }) => {
            let question = Question::Suspend { account: name.into(), reason: reason.clone() };
            print_report(&operators::ask::<AccountChange>(data, &question)?, *json)
        }
        AccountCommand::Deposit(Deposit { act: Act { name, reason }, amount, token }) => {
            let token = token.clone().map_or_else(told_token, Ok)?;
            let (amount, reason) = (amount.clone(), reason.clone());
            let question =
                Question::Deposit { account: name.into(), amount, token: token.clone(), reason };
            let answer = operators::ask::<AccountChange>(data, &question).map_err(|error| {
                let is_lost = matches!(error, AskError::Broken { .. });
                let error = anyhow::Error::new(error);
                if is_lost {
                    error.context(format!(
                        "it is not known whether the deposit was made; repeat it with --token \
                         {token}, which deposits at most once"
                    ))
                } else {
                    error
                }
            })?;
            print_report(&answer, *json)
        }
        AccountCommand::Reset(Act { name, reason }) => {
            let question = Question::Reset { account: name.into(), reason: reason.clone() };
            print_report(&operators::ask::<AccountChange>(data, &question)?, *json)
        }
        AccountCommand::Erase(Act { name, reason }) => {
            let question = Question::Erase { account: name.into(), reason: reason.clone() };
            print_report(&operators::ask::<AccountChange>(data, &question)?, *json)
        }
        AccountCommand::Tier(TierArgs { act: Act { name, reason }, tier }) => {
            let (tier, reason) = (tier.clone(), reason.clone());
            let question = Question::Tier { account: name.into(), tier, reason };
            print_report(&operators::ask::<AccountChange>(data, &question)?, *json)
        }
        AccountCommand::Comments(CommentsArgs { name, after, limit }) => {
            let question =
                Question::Comments { account: name.into(), after: *after, limit: *limit };
            print_report(&operators::ask::<CommentList>(data, &question)?, *json)
        }
        AccountCommand::DeleteComment { comment, reason } => {
            let question = Question::DeleteComment { comment: *comment, reason: reason.clone() };
            print_report(&operators::ask::<CommentLine>(data, &question)?, *json)
        }
        AccountCommand::Resume(Act { name, reason }) => {
            let question = Question::Resume { account: name.into(), reason: reason.clone() };
            print_report(&operators::ask::<AccountChange>(data, &question)?, *json)
        }
    }
}

/// Creates a deposit token and prints it before the request, so that the operator can repeat the
/// deposit if the answer is lost.
fn told_token() -> anyhow::Result<String> {
    let token = new_token()?;
    eprintln!("repeat with --token {token} to deposit at most once");
    Ok(token)
}

/// Returns 32 random hexadecimal digits.
fn new_token() -> anyhow::Result<String> {
    let mut token = [0; 16];
    getrandom::fill(&mut token).context("the system gives no random bytes")?;
    Ok(format!("{:032x}", u128::from_be_bytes(token)))
}

/// Writes how to continue the list, if there are more rows.
fn write_next(formatter: &mut fmt::Formatter<'_>, rows: &str, next: Option<u64>) -> fmt::Result {
    match next {
        Some(after) => write!(formatter, "\nmore {rows} follow: continue with --after {after}"),
        None => Ok(()),
    }
}

/// Formats a table with one account per row.
impl Display for AccountList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:>10}  {:<9}  {:<10}  {:>14}  {:>6}  {:>9}  {:<20}  SUBJECT",
            "ID", "STATE", "TIER", "BALANCE", "ORDERS", "POSITIONS", "CREATED"
        )?;
        for line in &self.accounts {
            let AccountLine { account, state, balance, open_orders, open_positions, .. } = line;
            let tier = line.tier.as_deref().unwrap_or("-");
            // Whole seconds are enough here.
            let (seconds, _) = line.created_at.split_once('.').unwrap_or((&line.created_at, ""));
            let created = format!("{}Z", seconds.trim_end_matches('Z'));
            let subject = OneLine(&line.subject);
            write!(
                formatter,
                "\n{account:>10}  {state:<9}  {tier:<10}  {balance:>14}  {open_orders:>6}  \
                 {open_positions:>9}  {created:<20}  {subject}"
            )?;
        }
        write_next(formatter, "accounts", self.next)
    }
}

/// Formats one comment per line.
impl Display for CommentList {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.comments.is_empty() {
            return formatter.write_str("no comments");
        }
        for (index, line) in self.comments.iter().enumerate() {
            let CommentLine { comment, order, created_at, content, .. } = line;
            let start = if index > 0 { "\n" } else { "" };
            let content = OneLine(content);
            write!(formatter, "{start}{comment} on order {order} at {created_at}: {content}")?;
        }
        write_next(formatter, "comments", self.next)
    }
}

/// Formats the report of a deleted comment.
impl Display for CommentLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { comment, order, account, content, .. } = self;
        let content = OneLine(content);
        write!(
            formatter,
            "deleted comment {comment} of account {account} on order {order}: {content}"
        )
    }
}

/// Formats one property per line.
impl Display for AccountLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        let mut row =
            |name: &str, value: &dyn Display| writeln!(text, "{name:<17} {}", OneLine(value));
        row("account", &self.account)?;
        row("state", &self.state)?;
        if let Some(SuspensionLine { at, uid, user, reason }) = &self.suspension {
            row("suspended at", at)?;
            let user = user.as_deref().map(|user| format!("{user} "));
            row("suspended by", &format!("{}(uid {uid})", user.unwrap_or_default()))?;
            row("suspended for", reason)?;
        }
        row("subject", &self.subject)?;
        row("issuer", &self.issuer)?;
        row("tier", &self.tier.as_deref().unwrap_or("-"))?;
        if let Some(tier) = &self.given_tier {
            row("given tier", tier)?;
        }
        row("balance", &self.balance)?;
        row("reserved", &self.reserved)?;
        row("starting balance", &self.starting_balance)?;
        row("open orders", &self.open_orders)?;
        row("open positions", &self.open_positions)?;
        row("fills", &self.fills)?;
        row("active keys", &self.active_keys)?;
        row("resets", &self.resets)?;
        row("created", &self.created_at)?;
        formatter.write_str(text.trim_end())
    }
}

/// Formats the outcome of a command; after an erasure, also which files still hold the data.
impl Display for AccountChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { act, is_new, orders_cancelled, positions_closed, account, .. } = self;
        let id = account.account;
        match (act.as_str(), is_new) {
            ("suspend", true) => write!(formatter, "suspended account {id}")?,
            ("suspend", false) => write!(formatter, "account {id} was already suspended")?,
            ("resume", true) => write!(formatter, "resumed account {id}")?,
            ("reset", true) => write!(formatter, "reset account {id}")?,
            ("reset", false) => write!(formatter, "account {id} has nothing to reset")?,
            ("erase", true) => write!(formatter, "erased account {id}")?,
            ("erase", false) => write!(formatter, "account {id} was already erased")?,
            ("tier", true) => {
                let tier = account.given_tier.as_deref().unwrap_or("-");
                write!(formatter, "gave account {id} the tier {tier}")?;
            }
            ("tier", false) => write!(formatter, "account {id} already has this tier")?,
            ("deposit", true) => {
                let balance = &account.balance;
                write!(formatter, "deposited in account {id}, whose balance is {balance}")?;
            }
            ("deposit", false) => write!(formatter, "account {id} already has this deposit")?,
            _ => write!(formatter, "account {id} is not suspended")?,
        }
        if *orders_cancelled > 0 {
            let orders = count(*orders_cancelled as u64, "open order");
            write!(formatter, ", cancelled {orders}")?;
        }
        if *positions_closed > 0 {
            let positions = count((*positions_closed).into(), "position");
            write!(formatter, ", closed {positions}")?;
        }
        if let Some(segment) = self.held_through_segment {
            write!(
                formatter,
                "\nthe journal holds what was erased until its segment {segment} has left the \
                 archive, the two newest snapshots do until two more are taken, and all backups \
                 made before a snapshot covers that segment do: delete those"
            )?;
        }
        Ok(())
    }
}
