//! Resolves the account of a command, and opens an account for an identity that has none.

use std::hash::BuildHasher as _;

use smallvec::smallvec;

use crate::engine::account::Account;
use crate::engine::command::{Identity, OpenAccount, Owner};
use crate::engine::contradiction::{Flaw, NOT_NEXT};
use crate::engine::decide::{Command, Given, IDS_EXHAUSTED, Verdict};
use crate::engine::event::Event;
use crate::engine::rejection::Rejection;
use crate::engine::rules::Rules;
use crate::engine::state::State;
use crate::ids::{AccountId, Lsn, Timestamp};
use crate::money::Usd;

impl Command for OpenAccount {
    type Subject = AccountId;
    type Answer = AccountId;

    fn decide(&self, state: &State, given: Given<'_, '_>) -> Result<Verdict<AccountId>, Rejection> {
        let Self(identity) = self;
        if let Some(account) = state.account_of(&identity.digest) {
            return Ok(Verdict::Already(account.id));
        }
        let account = state.next_account()?;
        let opening = opening(identity, account, given.now, given.rules);
        Ok(Verdict::Happens(smallvec![opening], account))
    }

    fn answer(_: &State, account: AccountId, _: bool) -> AccountId {
        account
    }

    fn depends_on(&self, state: &State) -> Lsn {
        state.identity_lsn(&self.0)
    }
}

/// The account that a command acts on.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Actor<'a> {
    /// An existing account.
    Known(&'a Account),
    /// An account that the command opens.
    New { id: AccountId, identity: &'a Identity },
}

impl<'a> Actor<'a> {
    pub(in crate::engine) fn id(self) -> AccountId {
        match self {
            Self::Known(account) => account.id,
            Self::New { id, .. } => id,
        }
    }

    pub(in crate::engine) fn known(self) -> Option<&'a Account> {
        match self {
            Self::Known(account) => Some(account),
            Self::New { .. } => None,
        }
    }

    /// Returns the event that opens the account, if it is new.
    pub(in crate::engine) fn opening(self, now: Timestamp, rules: &Rules) -> Option<Event> {
        match self {
            Self::Known(_) => None,
            Self::New { id, identity } => Some(opening(identity, id, now, rules)),
        }
    }
}

fn opening(identity: &Identity, account: AccountId, now: Timestamp, rules: &Rules) -> Event {
    assert_eq!(identity.shard(), account.shard(), "an account lives in the shard of its identity");
    Event::AccountOpened {
        account,
        identity: identity.clone(),
        granted: rules.starting_balance,
        at: now,
    }
}

impl State {
    /// Resolves a command's owner to an account. Fails if the account accepts no writes.
    #[inline]
    pub(in crate::engine) fn actor<'a>(&'a self, owner: &'a Owner) -> Result<Actor<'a>, Rejection> {
        match owner {
            Owner::Account(id) => self.writable_account(*id).map(Actor::Known),
            Owner::Identity(identity) => match self.account_of(&identity.digest) {
                Some(account) => {
                    account.require_writable()?;
                    Ok(Actor::Known(account))
                }
                None => Ok(Actor::New { id: self.next_account()?, identity }),
            },
        }
    }

    fn next_account(&self) -> Result<AccountId, Rejection> {
        AccountId::new(self.shard, self.accounts.len() as u64 + 1).ok_or(IDS_EXHAUSTED)
    }

    pub(in crate::engine) fn open_account(
        &mut self,
        id: AccountId,
        identity: &Identity,
        granted: Usd,
        at: Timestamp,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Err(Flaw::account(id, flaw));
        if id.shard() != self.shard || id.counter() != self.accounts.len() as u64 + 1 {
            return flaw(NOT_NEXT);
        }
        if identity.shard() != self.shard {
            return flaw("is not in the shard of its identity");
        }
        if self.account_of(&identity.digest).is_some() {
            return flaw("has the identity of another one");
        }
        if granted < Usd::ZERO {
            return flaw("begins with a debt");
        }
        let issuer = self.issuer(&identity.issuer);
        let subject = identity.subject.clone();
        let mut account = Account::opened(id, identity.digest, issuer, subject, granted, at);
        account.position_in_log = position_in_log;
        self.insert_account(account);
        Ok(())
    }

    /// Appends an account, and indexes its identity, heartbeat and positions.
    pub(in crate::engine) fn insert_account(&mut self, account: Account) {
        self.hash += account.all_terms();
        if account.heartbeat_ms().is_some() {
            // The time of the last beat is not stored, so a restored account starts with a full
            // interval.
            self.silences.insert(account.id, Timestamp::EPOCH);
        }
        let hash = self.hasher.hash_one(account.digest);
        let slot = self.accounts.insert(account);
        for position in self.accounts[slot].positions() {
            if position.is_open() || !self.is_settled(position.market) {
                self.holders[position.market.0 as usize].push_back((slot, position.outcome));
            }
        }
        let (accounts, hasher) = (&self.accounts, &self.hasher);
        let hash_at = |&slot: &u32| hasher.hash_one(accounts[slot].digest);
        self.account_of.insert_unique(hash, slot, hash_at);
    }

    /// Returns the index of an issuer, adding it if it is new.
    pub(in crate::engine) fn issuer(&mut self, issuer: &str) -> u32 {
        let known = self.issuers.iter().position(|known| **known == *issuer);
        let index = known.unwrap_or_else(|| {
            self.issuers.push(issuer.into());
            self.issuers.len() - 1
        });
        u32::try_from(index).expect("fewer issuers than a u32 counts")
    }
}
