//! Answers the operators' questions.

use std::sync::Arc;

use hyper::StatusCode;

use super::serve::json;
use super::{
    AccountChange, AccountLine, AccountList, CommentLine, CommentList, Failure, LIMIT_MAX, Named,
    Question, SuspensionLine,
};
use crate::engine::admin::acts::OperatorCommand;
use crate::engine::admin::standing::{Act, DEPOSIT_MAX, Operator, REASON_BYTES_MAX, Suspension};
use crate::engine::admin::summary::AccountSummary;
use crate::engine::comment::Comment;
use crate::http::app::AppState;
use crate::http::body::BodyError;
use crate::http::error::ApiError;
use crate::ids::{AccountId, CommentId};
use crate::journal::Waiters;
use crate::limits::tier::Tier;
use crate::money::{Rounding, Usd};
use crate::service::{Service, ServiceError};

/// The handler of questions.
pub(super) struct Desk {
    pub(super) app: Arc<AppState>,
    pub(super) waiters: Arc<Waiters>,
}

/// The status and error body for a question that is refused.
pub(super) struct Refused {
    pub(super) status: StatusCode,
    pub(super) failure: Failure,
}

impl Desk {
    pub(super) async fn answer(
        &self,
        question: Question,
        by: Operator,
    ) -> Result<Vec<u8>, Refused> {
        match question {
            Question::List { after, limit } => {
                let limit = limit.clamp(1, LIMIT_MAX) as usize;
                let after = after.and_then(AccountId::from_raw);
                let (accounts, has_more) =
                    self.service().accounts(after, limit, &self.waiters).await?;
                let last = accounts.last().filter(|_| has_more);
                let next = last.map(|summary| summary.account.get());
                let accounts = accounts.into_iter().map(AccountLine::from).collect();
                Ok(json(&AccountList { accounts, next }))
            }
            Question::Show { account } => {
                let account = self.find(account).await?;
                Ok(json(&self.line(account).await?))
            }
            Question::Suspend { account, reason } => {
                self.act(account, Act::Suspend, by, reason).await
            }
            Question::Deposit { account, amount, token, reason } => {
                let act = deposit(&amount, &token)?;
                self.act(account, act, by, reason).await
            }
            Question::Erase { account, reason } => self.act(account, Act::Erase, by, reason).await,
            Question::Reset { account, reason } => self.act(account, Act::Reset, by, reason).await,
            Question::Tier { account, tier, reason } => {
                let tier = Tier::parse(&tier)
                    .ok_or_else(|| Refused::invalid("the tier must be free, pro or enterprise"))?;
                self.act(account, Act::Tier(tier), by, reason).await
            }
            Question::Resume { account, reason } => {
                self.act(account, Act::Resume, by, reason).await
            }
            Question::Comments { account, after, limit } => {
                let author = self.find(account).await?;
                let limit = limit.clamp(1, LIMIT_MAX) as usize;
                let after = after.and_then(CommentId::from_raw);
                let (comments, has_more) =
                    self.service().comments_by(author, after, limit, &self.waiters).await?;
                let next = comments.last().filter(|_| has_more).map(|comment| comment.id.get());
                let comments = comments.into_iter().map(CommentLine::from).collect();
                Ok(json(&CommentList { comments, next }))
            }
            Question::DeleteComment { comment, reason } => {
                let reason = checked_reason(&reason)?;
                let id = CommentId::from_raw(comment);
                let deleted = self.service().remove_comment(id, &self.waiters).await?;
                let account = deleted.author.get();
                let (uid, user) = (by.uid, by.user.as_deref().unwrap_or_default());
                tracing::info!(account, comment, uid, user, %reason, "operator deleted a comment");
                Ok(json(&CommentLine::from(deleted)))
            }
        }
    }

    /// Applies an act to an account. Returns the account's state afterwards, as JSON.
    async fn act(
        &self,
        account: Named,
        act: Act,
        by: Operator,
        reason: String,
    ) -> Result<Vec<u8>, Refused> {
        let reason = checked_reason(&reason)?;
        let account = self.find(account).await?;
        let (name, uid) = (act.as_str(), by.uid);
        let user = by.user.as_deref().unwrap_or_default().to_owned();
        let command = OperatorCommand { account, act, by, reason: reason.clone() };
        let is_erasure = command.act == Act::Erase;
        let acted = if is_erasure {
            self.service().erase(command, &self.waiters).await?
        } else {
            self.service().act(command, &self.waiters).await?
        };
        if acted.is_new {
            let account = account.get();
            tracing::info!(account, act = name, uid, %user, %reason, "operator acted");
        }
        Ok(json(&AccountChange {
            act: name.to_owned(),
            is_new: acted.is_new,
            orders_cancelled: acted.order_count,
            positions_closed: acted.position_count,
            held_through_segment: self.app.journal.segment().filter(|_| is_erasure),
            account: self.line(account).await?,
        }))
    }

    fn service(&self) -> &Service {
        &self.app.service
    }

    async fn line(&self, account: AccountId) -> Result<AccountLine, ServiceError> {
        Ok(self.service().account_summary(account, &self.waiters).await?.into())
    }

    async fn find(&self, named: Named) -> Result<AccountId, Refused> {
        let subject = match named {
            Named::Id(id) => {
                return AccountId::from_raw(id).ok_or_else(Refused::no_account);
            }
            Named::Subject(subject) => subject,
        };
        let accounts = self.service().accounts_of(&subject, &self.waiters).await?;
        match accounts[..] {
            [] => Err(Refused::no_account()),
            [account] => Ok(account),
            _ => {
                let ids: Vec<_> = accounts.iter().map(ToString::to_string).collect();
                Err(Refused::invalid(&format!(
                    "several issuers have a user of this name: use one of the ids {}",
                    ids.join(", ")
                )))
            }
        }
    }
}

fn checked_reason(reason: &str) -> Result<Box<str>, Refused> {
    let reason = reason.trim();
    if !(1..=REASON_BYTES_MAX).contains(&reason.len()) {
        let message = format!("the reason must have 1 to {REASON_BYTES_MAX} bytes");
        return Err(Refused::invalid(&message));
    }
    Ok(reason.into())
}

fn deposit(amount: &str, token: &str) -> Result<Act, Refused> {
    let amount = Usd::from_text(amount, Rounding::Exact)
        .map_err(|error| Refused::invalid(&format!("the amount {amount:?} is {error}")))?;
    if amount <= Usd::ZERO || amount > DEPOSIT_MAX {
        let message = format!("the amount must be above 0 and at most {DEPOSIT_MAX}");
        return Err(Refused::invalid(&message));
    }
    // `from_str_radix` would also accept a sign.
    let is_hex = token.len() == 32 && token.bytes().all(|digit| digit.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(token, 16).ok()).flatten();
    let number =
        number.ok_or_else(|| Refused::invalid("the token must be 32 hexadecimal digits"))?;
    Ok(Act::Deposit { amount, token: number.to_be_bytes() })
}

impl Refused {
    /// Builds the refusal of an invalid question: 422 with this message.
    pub(super) fn invalid(message: &str) -> Self {
        let error = "VALIDATION_FAILED".to_owned();
        let failure = Failure { error, message: message.to_owned() };
        Self { status: StatusCode::UNPROCESSABLE_ENTITY, failure }
    }

    /// Builds the refusal of a question whose body could not be read: 413.
    pub(super) fn unread(error: &BodyError) -> Self {
        let refused = Self::invalid(&error.to_string());
        Self { status: StatusCode::PAYLOAD_TOO_LARGE, ..refused }
    }

    fn no_account() -> Self {
        let message = "no such account; `paperbourse account list` shows all".to_owned();
        let error = "ACCOUNT_NOT_FOUND".to_owned();
        Self { status: StatusCode::NOT_FOUND, failure: Failure { error, message } }
    }
}

impl From<ServiceError> for Refused {
    fn from(error: ServiceError) -> Self {
        let error = ApiError::from(error);
        if error.code == "ACCOUNT_NOT_FOUND" {
            return Self::no_account();
        }
        let (code, message) = (error.code.to_owned(), error.message.into_owned());
        Self { status: error.status, failure: Failure { error: code, message } }
    }
}

impl From<AccountSummary> for AccountLine {
    fn from(summary: AccountSummary) -> Self {
        let ledger = &summary.ledger;
        Self {
            account: summary.account.get(),
            state: match &summary {
                AccountSummary { is_erased: true, .. } => "erased",
                AccountSummary { suspension: Some(_), .. } => "suspended",
                _ => "active",
            }
            .to_owned(),
            suspension: summary.suspension.map(SuspensionLine::from),
            subject: summary.subject.into(),
            issuer: summary.issuer.into(),
            tier: summary.tier.map(|tier| tier.as_str().to_owned()),
            given_tier: summary.given_tier.map(|tier| tier.as_str().to_owned()),
            balance: ledger.cash().to_string(),
            reserved: ledger.reserved.to_string(),
            starting_balance: summary.baseline.to_string(),
            open_orders: summary.open_order_count,
            open_positions: summary.open_position_count,
            fills: summary.fill_count,
            active_keys: summary.active_key_count,
            resets: summary.reset_count,
            created_at: summary.opened_at.to_string(),
        }
    }
}

impl From<Comment> for CommentLine {
    fn from(comment: Comment) -> Self {
        Self {
            comment: comment.id.get(),
            order: comment.order.get(),
            account: comment.author.get(),
            content: comment.content.into(),
            created_at: comment.at.to_string(),
        }
    }
}

impl From<Suspension> for SuspensionLine {
    fn from(suspension: Suspension) -> Self {
        let Suspension { at, by, reason } = suspension;
        let user = by.user.map(String::from);
        Self { at: at.to_string(), uid: by.uid, user, reason: reason.into() }
    }
}
