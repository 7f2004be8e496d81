//! Describes what operators do.

use std::fmt;

use serde::Serialize;

use crate::engine::event::OperatorActed;
use crate::engine::standing::Act;
use crate::ids::Timestamp;
use crate::inspect::text::Text;

/// An act of an operator.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct ActRow<'a> {
    pub account: u64,
    pub act: &'static str,
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
        Self {
            account: account.get(),
            act: act.as_str(),
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
        }
        write!(formatter, ": {reason:?}")
    }
}
