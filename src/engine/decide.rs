//! Deciding everything but trades.

use smallvec::smallvec;

use super::account::Account;
use super::command::{CreateKey, Identity, Owner};
use super::comment::COMMENTS_PER_ORDER_MAX;
use super::event::{Event, Events};
use super::rejection::Rejection;
use super::{IDS_EXHAUSTED, Rules, State, Verdict};
use crate::ids::{AccountId, CommentId, KeyId, OrderId, Timestamp};

impl State {
    pub(super) fn decide_open(
        &self,
        identity: &Identity,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict, Rejection> {
        if self.account_of(&identity.digest).is_some() {
            return Ok(Verdict::Already);
        }
        let opening = opening(identity, self.next_account()?, now, rules);
        Ok(Verdict::Happens(smallvec![opening]))
    }

    pub(super) fn decide_create_key(
        &self,
        create: &CreateKey,
        now: Timestamp,
        rules: &Rules,
    ) -> Result<Verdict, Rejection> {
        let actor = self.actor(&create.owner)?;
        // A key that ends while its request is on its way makes no other key: what was revoked with
        // its descendants has none that came later.
        if let Some(maker) = create.created_by
            && !self.keys.slot(maker).is_some_and(|slot| self.keys[slot].is_active(now))
        {
            return Err(Rejection::MakerEnded);
        }
        let mut events = Events::from_iter(actor.opening(now, rules));
        if let Actor::Known(account) = actor {
            let active_count = self.keys_of(account).filter(|key| key.is_active(now)).count();
            if create.is_bootstrap && active_count > 0 {
                return Err(Rejection::BootstrapNotAllowed);
            }
            if active_count >= rules.active_keys_max as usize {
                let active_keys_max = rules.active_keys_max;
                return Err(Rejection::KeyLimitExceeded { active_keys_max });
            }
            let forgotten = self.forgotten_keys(account, now);
            events.extend(forgotten.into_iter().map(|key| Event::KeyForgotten { key }));
        }
        let key = KeyId::new(self.shard, self.keys_ever + 1).ok_or(IDS_EXHAUSTED)?;
        events.push(Event::KeyCreated {
            key,
            account: actor.id(),
            grant: create.grant.clone(),
            created_by: create.created_by,
            at: now,
        });
        Ok(Verdict::Happens(events))
    }

    pub(super) fn decide_revoke(
        &self,
        account: AccountId,
        key: KeyId,
        descendants: bool,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        let account = self.account(account).ok_or(Rejection::AccountNotFound)?;
        if !self.keys_of(account).any(|own| own.id == key) {
            return Err(Rejection::KeyNotFound);
        }
        let ended = self.revoked_with(key, descendants, now, account);
        if ended.is_empty() {
            return Ok(Verdict::Already);
        }
        Ok(Verdict::Happens(
            ended.into_iter().map(|key| Event::KeyRevoked { key, at: now }).collect(),
        ))
    }

    pub(super) fn decide_comment(
        &self,
        order: OrderId,
        author: AccountId,
        content: &str,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        self.order(order).ok_or(Rejection::OrderNotFound)?;
        let comment_count = self.comments_of.get(&order).map_or(0, |comments| comments.ids.len());
        if comment_count >= COMMENTS_PER_ORDER_MAX {
            return Err(Rejection::CommentLimitExceeded { comments_max: COMMENTS_PER_ORDER_MAX });
        }
        let comment = CommentId::new(self.shard, self.comments_ever + 1).ok_or(IDS_EXHAUSTED)?;
        Ok(Verdict::Happens(smallvec![Event::CommentAdded {
            comment,
            order,
            author,
            content: content.into(),
            at: now,
        }]))
    }

    pub(super) fn decide_delete(
        &self,
        comment: CommentId,
        author: AccountId,
    ) -> Result<Verdict, Rejection> {
        let comment = self.comment(comment).ok_or(Rejection::CommentNotFound)?;
        if comment.author != author {
            return Err(Rejection::CommentNotOwn);
        }
        Ok(Verdict::Happens(smallvec![Event::CommentDeleted { comment: comment.id }]))
    }

    /// The account that a command acts on.
    pub(super) fn actor<'a>(&'a self, owner: &'a Owner) -> Result<Actor<'a>, Rejection> {
        match owner {
            Owner::Account(id) => match self.account(*id) {
                Some(account) => Ok(Actor::Known(account)),
                None => Err(Rejection::AccountNotFound),
            },
            Owner::Identity(identity) => match self.account_of(&identity.digest) {
                Some(account) => Ok(Actor::Known(account)),
                None => Ok(Actor::New { id: self.next_account()?, identity }),
            },
        }
    }

    fn next_account(&self) -> Result<AccountId, Rejection> {
        AccountId::new(self.shard, self.accounts.len() as u64 + 1).ok_or(IDS_EXHAUSTED)
    }
}

/// The account that a command acts on.
#[derive(Clone, Copy)]
pub(super) enum Actor<'a> {
    /// One that is there.
    Known(&'a Account),
    /// One that the command opens.
    New {
        /// What it will be called.
        id: AccountId,
        /// Whose it is.
        identity: &'a Identity,
    },
}

impl<'a> Actor<'a> {
    pub(super) fn id(self) -> AccountId {
        match self {
            Self::Known(account) => account.id,
            Self::New { id, .. } => id,
        }
    }

    pub(super) fn known(self) -> Option<&'a Account> {
        match self {
            Self::Known(account) => Some(account),
            Self::New { .. } => None,
        }
    }

    /// The event that opens the account, unless it is there.
    pub(super) fn opening(self, now: Timestamp, rules: &Rules) -> Option<Event> {
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
