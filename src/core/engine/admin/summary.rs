//! Accounts as an operator sees them.

use crate::engine::account::Account;
use crate::engine::account::ledger::Ledger;
use crate::engine::admin::standing::Suspension;
use crate::engine::key::stored::KeyRow;
use crate::engine::state::State;
use crate::engine::state::view::{Observed, ROWS_PER_READ_MAX};
use crate::ids::{AccountId, Place, Timestamp};
use crate::limits::tier::Tier;
use crate::money::Usd;

/// An account in a list for operators, at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccountSummary {
    /// The account's id.
    pub account: AccountId,
    /// The issuer of the owner's access tokens.
    pub issuer: Box<str>,
    /// Who owns it, as the issuer names them.
    pub subject: Box<str>,
    /// When the account was opened.
    pub opened_at: Timestamp,
    /// The account's money.
    pub ledger: Ledger,
    /// The balance from which profit counts.
    pub baseline: Usd,
    /// How often the account was reset.
    pub reset_count: u32,
    /// Whether nothing is left of the account.
    pub is_erased: bool,
    /// Why the account takes no writes; `None` if it does.
    pub suspension: Option<Suspension>,
    /// The tier that an operator gave it.
    pub given_tier: Option<Tier>,
    /// The highest tier of the keys that work; `None` without such a key.
    pub tier: Option<Tier>,
    /// The number of keys that work.
    pub active_key_count: usize,
    /// How many orders are open.
    pub open_order_count: usize,
    /// How many positions are open.
    pub open_position_count: usize,
    /// How many fills the account ever had.
    pub fill_count: u64,
}

/// A page of the accounts of a shard.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SummaryPage {
    /// At most [`ROWS_PER_READ_MAX`] accounts, in id order.
    pub accounts: Vec<AccountSummary>,
    /// Whether there are accounts after these.
    pub has_more: bool,
}

impl State {
    /// An account as an operator sees it at `now`.
    pub fn observe_summary(
        &self,
        account: AccountId,
        now: Timestamp,
    ) -> Observed<Option<AccountSummary>> {
        let value = self.account(account).map(|account| self.summary(account, now));
        Observed { value, place: self.account_place(account) }
    }

    /// The accounts with counters from `first` on, at most `count` and [`ROWS_PER_READ_MAX`], as an
    /// operator sees them at `now`.
    pub fn observe_summaries(
        &self,
        first: u64,
        count: usize,
        now: Timestamp,
    ) -> Observed<SummaryPage> {
        // The slot of an account is its counter less 1.
        let first = usize::try_from(first.saturating_sub(1)).unwrap_or(usize::MAX);
        let end = first.saturating_add(count.min(ROWS_PER_READ_MAX)).min(self.accounts.len());
        let mut page = SummaryPage { accounts: Vec::new(), has_more: end < self.accounts.len() };
        let mut place = Place::START;
        for slot in first..end {
            let account = &self.accounts[u32::try_from(slot).expect("slots are u32")];
            page.accounts.push(self.summary(account, now));
            place = place.max(self.place_at(account.position_in_log));
        }
        Observed { value: page, place }
    }

    /// The issuers of the identities of all accounts; usually one.
    pub fn observe_issuers(&self) -> Observed<Vec<Box<str>>> {
        // An account that it leads to has a place of its own.
        Observed { value: self.issuers.clone(), place: Place::START }
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
