//! Describes account resets.

use std::fmt;

use serde::Serialize;

use crate::inspect::text::{Text, count};
use paperbourse_core::engine::event::AccountReset;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::Usd;

/// A reset of an account.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct ResetRow {
    pub account: u64,
    pub position_count: u32,
    pub cost: Text<Usd>,
    pub granted: Text<Usd>,
    pub balance: Text<Usd>,
    pub at: Text<Timestamp>,
}

impl ResetRow {
    pub(super) fn new(reset: &AccountReset) -> Self {
        let AccountReset { account, position_count, cost, granted, balance, at } = *reset;
        Self {
            account: account.get(),
            position_count,
            cost: Text(cost),
            granted: Text(granted),
            balance: Text(balance),
            at: Text(at),
        }
    }
}

impl fmt::Display for ResetRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, position_count, cost, granted, balance, at: _ } = self;
        let positions = count((*position_count).into(), "position");
        write!(
            formatter,
            "reset account {account}: closed {positions} that cost {cost}, granted {granted}, \
             balance {balance}"
        )
    }
}
