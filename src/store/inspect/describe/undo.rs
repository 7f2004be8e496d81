//! Describes undone fills.

use std::fmt;

use serde::Serialize;

use crate::inspect::text::Text;
use paperbourse_core::engine::event::FillUndone;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::{Shares, Usd};

/// A fill that was undone, and what the account has without it.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct UndoneRow {
    pub account: u64,
    pub number: u64,
    pub order: u64,
    pub part: u32,
    pub balance: Text<Usd>,
    pub position_shares: Text<Shares>,
    pub position_cost: Text<Usd>,
    pub realised: Text<Usd>,
    pub at: Text<Timestamp>,
}

impl UndoneRow {
    pub(super) fn new(undone: &FillUndone) -> Self {
        let FillUndone { account, number, order, part, balance, .. } = *undone;
        let FillUndone { position_shares, position_cost, realised, at, .. } = *undone;
        Self {
            account: account.get(),
            number,
            order: order.get(),
            part,
            balance: Text(balance),
            position_shares: Text(position_shares),
            position_cost: Text(position_cost),
            realised: Text(realised),
            at: Text(at),
        }
    }
}

impl fmt::Display for UndoneRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { account, number, order, part, balance, .. } = self;
        let Self { position_shares, position_cost, .. } = self;
        write!(
            formatter,
            "undid fill {part} of order {order}, fill {number} of account {account}: balance \
             {balance}, position {position_shares} that cost {position_cost}"
        )
    }
}
