//! Accounts that operators act on. Each has at most one request in flight, and an act whose answer
//! is lost is repeated until it is answered. So the outcome of at most one act per account is
//! uncertain.

use std::collections::BTreeMap;
use std::ops::Range;

use super::clients::{Clients, RESTERS, Request, START_MICROS};
use crate::disk::simulated::random::Random;
use crate::engine::State;
use crate::engine::account::Account;
use crate::engine::admin::acts::{Acted, OperatorCommand};
use crate::engine::admin::standing::{Act, Operator};
use crate::engine::command::Identity;
use crate::engine::key::Key;
use crate::engine::rejection::Rejection;
use crate::ids::{AccountId, KeyId};
use crate::limits::tier::Tier;
use crate::money::Usd;

/// The traders on whose accounts operators act.
pub(super) const OPERATED: Range<usize> = RESTERS.end..RESTERS.end + 2;

/// A request from an account's owner or from an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ask {
    /// The owner opens the account.
    Open,
    /// The owner creates a key of this tier.
    Key(Tier),
    Act(Act),
}

/// The expected state of an account after its acts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Facts {
    /// Cash beyond the starting balance, in micro-dollars. These accounts do not trade.
    deposited: i64,
    is_suspended: bool,
    tier: Option<Tier>,
    /// The tier of each key that an answer reported; `None` once the key is erased.
    keys: BTreeMap<KeyId, Option<Tier>>,
    is_erased: bool,
}

/// An account that operators act on, as its owner and the operator see it.
pub(super) struct Operated {
    account: Option<AccountId>,
    facts: Facts,
    asked: Option<Ask>,
    is_in_flight: bool,
    /// Whether `asked` was sent before, and may have taken effect.
    may_have_happened: bool,
    /// The newest deposit that an answer confirmed.
    deposited: Option<Act>,
    deposit_count: u8,
    /// Whether the account may have keys that no answer reported.
    may_have_more_keys: bool,
    erased: Vec<AccountId>,
}

impl Facts {
    fn after(&self, act: &Act) -> Self {
        let mut facts = self.clone();
        match *act {
            Act::Suspend => facts.is_suspended = true,
            Act::Resume => facts.is_suspended = false,
            Act::Deposit { amount, .. } => facts.deposited += amount.micros(),
            Act::Reset => facts.deposited = 0,
            Act::Tier(tier) => {
                facts.tier = Some(tier);
                facts.keys.values_mut().for_each(|key| *key = Some(tier));
            }
            Act::Erase => {
                let keys = facts.keys.keys().map(|&key| (key, None)).collect();
                facts = Self { keys, is_erased: true, ..Self::default() };
            }
        }
        facts
    }

    /// Returns the account's facts as recorded in a shard's state.
    fn in_state(&self, state: &State, account: &Account) -> Self {
        let tier_of = |id: KeyId| state.key(id).map(|key| key.grant.tier);
        let is_erased = account.is_erased();
        let cash = account.ledger().cash().micros();
        Self {
            deposited: if is_erased { cash } else { cash - START_MICROS },
            is_suspended: account.is_suspended(),
            tier: account.tier(),
            keys: self.keys.keys().map(|&id| (id, tier_of(id))).collect(),
            is_erased,
        }
    }
}

impl Operated {
    pub(super) const fn new() -> Self {
        Self {
            account: None,
            facts: Facts {
                deposited: 0,
                is_suspended: false,
                tier: None,
                keys: BTreeMap::new(),
                is_erased: false,
            },
            asked: None,
            is_in_flight: false,
            may_have_happened: false,
            deposited: None,
            deposit_count: 0,
            may_have_more_keys: false,
            erased: Vec::new(),
        }
    }

    /// Returns the account, once an answer has reported it.
    pub(super) const fn account(&self) -> Option<AccountId> {
        self.account
    }

    /// Returns the next request, or `None` while one is in flight.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<Ask> {
        if self.is_in_flight {
            return None;
        }
        self.is_in_flight = true;
        self.may_have_happened = self.asked.is_some();
        if self.asked.is_none() {
            self.asked = Some(self.next_new(random));
        }
        self.asked.clone()
    }

    fn next_new(&mut self, random: &mut Random) -> Ask {
        if self.account.is_none() {
            return Ask::Open;
        }
        let tier = Tier::ALL[random.below(Tier::ALL.len())];
        Ask::Act(match random.below(12) {
            0..3 => return Ask::Key(tier),
            3..6 => {
                self.deposit_count = self.deposit_count.wrapping_add(1);
                let amount = Usd::from_micros(1 + i64::from(self.deposit_count) * 1_000_001);
                Act::Deposit { amount, token: [self.deposit_count; 16] }
            }
            6 => self.deposited.clone().unwrap_or(Act::Reset),
            7 => Act::Reset,
            8 => Act::Tier(tier),
            9 if self.facts.is_suspended && random.one_in(3) => Act::Erase,
            9 | 10 => Act::Suspend,
            _ => Act::Resume,
        })
    }

    /// Returns the operator's command for an act.
    pub(super) fn command(&self, act: Act) -> OperatorCommand {
        let account = self.account.expect("it is open");
        let by = Operator { uid: 1000, user: Some("operator".into()) };
        OperatorCommand { account, act, by, reason: "a simulation".into() }
    }

    /// Records that the request in flight will not be answered.
    pub(super) fn lost(&mut self) {
        self.is_in_flight = false;
        // A request for a key is not repeated: any other key will do.
        let key = self.asked.take_if(|asked| matches!(asked, Ask::Key(_)));
        self.may_have_more_keys |= key.is_some();
    }

    pub(super) fn opened(&mut self, account: AccountId) -> Result<(), String> {
        ensure!(!self.erased.contains(&account), "the erased account {account} was given again");
        (self.account, self.facts) = (Some(account), Facts::default());
        self.done();
        Ok(())
    }

    /// Checks the answer to an act.
    pub(super) fn acted(&mut self, act: &Act, acted: Acted) -> Result<(), String> {
        let repeats = self.deposited.as_ref() == Some(act);
        let after = if repeats { self.facts.clone() } else { self.facts.after(act) };
        let is_new = after != self.facts;
        // The act may have been done when it was first sent. An unreported key may need a new tier.
        let is_unsure = self.may_have_happened && is_new
            || self.may_have_more_keys && matches!(act, Act::Tier(_));
        ensure!(
            acted.is_new == is_new || is_unsure,
            "{act:?} was answered {acted:?} by an account that was {:?}",
            self.facts
        );
        ensure!(!acted.has_more, "{act:?} has more to do: {acted:?}");
        self.facts = after;
        if let Act::Deposit { .. } = act {
            self.deposited = Some(act.clone());
        }
        if let (Act::Erase, Some(account)) = (act, self.account) {
            self.erased.push(account);
            (self.account, self.deposited, self.may_have_more_keys) = (None, None, false);
        }
        self.done();
        Ok(())
    }

    pub(super) fn made_key(&mut self, key: &Key) -> Result<(), String> {
        let is_above = self.facts.tier.is_some_and(|highest| key.grant.tier > highest);
        ensure!(!self.facts.is_suspended, "a suspended account made key {}", key.id);
        ensure!(!is_above, "key {} has a tier above that of its account", key.id);
        self.facts.keys.insert(key.id, Some(key.grant.tier));
        self.done();
        Ok(())
    }

    /// Checks that a key was refused for a valid reason.
    pub(super) fn refused(&mut self, rejection: &Rejection) -> Result<(), String> {
        let is_right = match (&self.asked, rejection) {
            (Some(Ask::Key(_)), Rejection::AccountSuspended) => self.facts.is_suspended,
            (Some(Ask::Key(tier)), Rejection::TierNotAuthorized) => {
                self.facts.tier.is_some_and(|highest| *tier > highest)
            }
            (Some(Ask::Key(_)), Rejection::KeyLimitExceeded { .. }) => true,
            _ => false,
        };
        ensure!(is_right, "{:?} of {:?} was refused: {rejection}", self.asked, self.facts);
        self.done();
        Ok(())
    }

    fn done(&mut self) {
        (self.asked, self.is_in_flight) = (None, false);
    }

    /// Checks the recovered state of the account. Returns the number of facts compared.
    pub(super) fn check(&self, state: &State, owner: &Identity) -> Result<u64, String> {
        for &id in &self.erased {
            let is_erased = state.account(id).is_some_and(Account::is_erased);
            ensure!(is_erased, "the erased account {id} is back");
        }
        let Some(id) = self.account else { return Ok(0) };
        let Some(account) = state.account(id) else { return Err(format!("account {id} is lost")) };
        let found = self.facts.in_state(state, account);
        let pending = match &self.asked {
            Some(Ask::Act(act)) => Some(self.facts.after(act)),
            _ => None,
        };
        ensure!(
            found == self.facts || pending.as_ref() == Some(&found),
            "account {id} is {found:?}, but was {:?}, and perhaps {pending:?}",
            self.facts
        );
        let owned = state.account_of(&owner.digest).map(Account::id);
        ensure!(found.is_erased || owned == Some(id), "the owner of account {id} has {owned:?}");
        Ok(1)
    }
}

impl Clients {
    pub(super) fn operated(&mut self, trader: usize) -> &mut Operated {
        &mut self.operated[trader - OPERATED.start]
    }

    /// Returns the next request for a random operated account, or `None` while that account has a
    /// request in flight.
    pub(super) fn next_operated(&mut self, random: &mut Random) -> Option<Request> {
        let trader = OPERATED.start + random.below(OPERATED.len());
        let ask = self.operated(trader).next(random)?;
        Some(Request::Operated { trader, ask })
    }

    /// Checks the recovered states of all operated accounts. Returns the number of facts compared.
    pub(super) fn check_operated(&self, states: &[&State]) -> Result<u64, String> {
        OPERATED.zip(&self.operated).try_fold(0, |compared, (trader, operated)| {
            let trader = &self.traders[trader];
            let state = states[trader.shard().index()];
            Ok(compared + operated.check(state, &trader.identity)?)
        })
    }
}
