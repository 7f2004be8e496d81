//! Account summaries for operators.

use crate::engine::account::Account;
use crate::engine::account::ledger::Ledger;
use crate::engine::admin::standing::Suspension;
use crate::engine::key::stored::KeyRow;
use crate::engine::state::State;
use crate::engine::state::view::{Observed, ROWS_PER_READ_MAX};
use crate::ids::{AccountId, Lsn, Timestamp};
use crate::limits::tier::Tier;
use crate::money::Usd;

/// A summary of an account for operators, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountSummary {
    /// The account's id.
    pub account: AccountId,
    /// The issuer of the owner's access tokens.
    pub issuer: Box<str>,
    /// The issuer's identifier for the owner.
    pub subject: Box<str>,
    /// When the account was opened.
    pub opened_at: Timestamp,
    /// The account's money.
    pub ledger: Ledger,
    /// The balance against which profit is measured.
    pub baseline: Usd,
    /// The number of times the account was reset.
    pub reset_count: u32,
    /// Whether the account was erased.
    pub is_erased: bool,
    /// The suspension; `None` if the account accepts writes.
    pub suspension: Option<Suspension>,
    /// The tier set by an operator, if any.
    pub given_tier: Option<Tier>,
    /// The highest tier among the active keys; `None` if there are none.
    pub tier: Option<Tier>,
    /// The number of active keys.
    pub active_key_count: usize,
    /// The number of open orders.
    pub open_order_count: usize,
    /// The number of open positions.
    pub open_position_count: usize,
    /// The number of fills the account has ever had.
    pub fill_count: u64,
}

/// A page of a shard's accounts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SummaryPage {
    /// At most [`ROWS_PER_READ_MAX`] accounts, in id order.
    pub accounts: Vec<AccountSummary>,
    /// Whether more accounts follow this page.
    pub has_more: bool,
}

impl State {
    /// Summarises an account at `now`; `None` if there is no such account.
    pub fn observe_summary(
        &self,
        account: AccountId,
        now: Timestamp,
    ) -> Observed<Option<AccountSummary>> {
        let value = self.account(account).map(|account| self.summary(account, now));
        Observed { value, lsn: self.account_lsn(account) }
    }

    /// Summarises, at `now`, up to `count` accounts with counters from `first` on, but never more
    /// than [`ROWS_PER_READ_MAX`].
    pub fn observe_summaries(
        &self,
        first: u64,
        count: usize,
        now: Timestamp,
    ) -> Observed<SummaryPage> {
        // An account's slot is its counter minus 1.
        let first = usize::try_from(first.saturating_sub(1)).unwrap_or(usize::MAX);
        let end = first.saturating_add(count.min(ROWS_PER_READ_MAX)).min(self.accounts.len());
        let mut page = SummaryPage { accounts: Vec::new(), has_more: end < self.accounts.len() };
        let mut lsn = Lsn::START;
        for slot in first..end {
            let account = &self.accounts[u32::try_from(slot).expect("slots are u32")];
            page.accounts.push(self.summary(account, now));
            lsn = lsn.max(self.lsn_at(account.position_in_log));
        }
        Observed { value: page, lsn }
    }

    /// Returns the issuers of all accounts' identities; usually there is only one.
    pub fn observe_issuers(&self) -> Observed<Vec<Box<str>>> {
        // No LSN is needed: reading an account of the issuer returns the account's own.
        Observed { value: self.issuers.clone(), lsn: Lsn::START }
    }

    fn summary(&self, account: &Account, now: Timestamp) -> AccountSummary {
        let active = || self.keys_of(account).filter(|key| key.is_active(now));
        AccountSummary {
            account: account.id,
            issuer: self.issuers[account.issuer as usize].clone(),
            subject: account.subject.clone(),
            opened_at: account.opened_at,
            ledger: account.ledger(),
            baseline: account.baseline(),
            reset_count: account.resets().map_or(0, |resets| resets.count),
            is_erased: account.is_erased(),
            suspension: account.suspension().cloned(),
            given_tier: account.tier(),
            tier: active().map(KeyRow::tier).max(),
            active_key_count: active().count(),
            open_order_count: account.open_order_count(),
            open_position_count: account.positions().iter().filter(|it| it.is_open()).count(),
            fill_count: account.fill_count_ever(),
        }
    }
}
