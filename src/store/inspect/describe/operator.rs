//! Describes operator actions.

use std::fmt;

use serde::Serialize;

use crate::inspect::text::Text;
use paperbourse_core::engine::admin::standing::Act;
use paperbourse_core::engine::event::OperatorActed;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::Usd;

/// An action of an operator.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct ActRow<'a> {
    pub account: u64,
    pub act: &'static str,
    /// The tier that the account was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<&'static str>,
    /// The amount deposited, in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub amount: Option<Text<Usd>>,
    /// The deposit's token in hexadecimal, which distinguishes a repeated deposit from a new one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    pub uid: u32,
    pub user: Option<&'a str>,
    pub reason: &'a str,
    pub at: Text<Timestamp>,
    #[serde(skip)]
    done: &'a Act,
}

impl<'a> ActRow<'a> {
    pub(super) fn new(acted: &'a OperatorActed) -> Self {
        let OperatorActed { account, act, by, reason, at } = acted;
        let deposit = match act {
            Act::Deposit { amount, token } => Some((*amount, token)),
            Act::Suspend | Act::Resume | Act::Erase | Act::Reset | Act::Tier(_) => None,
        };
        Self {
            account: account.get(),
            act: act.as_str(),
            tier: if let Act::Tier(tier) = act { Some(tier.as_str()) } else { None },
            amount: deposit.map(|(amount, _)| Text(amount)),
            token: deposit.map(|(_, token)| format!("{:032x}", u128::from_be_bytes(*token))),
            uid: by.uid,
            user: by.user.as_deref(),
            reason,
            at: Text(*at),
            done: act,
        }
    }
}

impl fmt::Display for ActRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, uid, user, reason, done, .. } = self;
        match user {
            Some(user) => write!(formatter, "operator {user:?} (uid {uid}) ")?,
            None => write!(formatter, "operator with uid {uid} ")?,
        }
        match done {
            Act::Suspend => write!(formatter, "suspended account {account}")?,
            Act::Resume => write!(formatter, "resumed account {account}")?,
            Act::Erase => write!(formatter, "erased account {account}")?,
            Act::Reset => write!(formatter, "reset account {account}")?,
            Act::Tier(tier) => write!(formatter, "gave account {account} the tier {tier}")?,
            Act::Deposit { amount, .. } => {
                write!(formatter, "deposited {amount} in account {account}")?;
            }
        }
        write!(formatter, ": {reason:?}")
    }
}
