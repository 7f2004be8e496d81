//! Deciding everything but trades.

use smallvec::smallvec;

use super::account::Account;
use super::command::{CreateKey, Identity, Owner, RotateKey};
use super::comment::{COMMENTS_PER_AUTHOR_MAX, COMMENTS_PER_ORDER_MAX};
use super::event::{Event, Events};
use super::key::{KeyGrant, OVERLAPPING_KEYS_PER_ACCOUNT_MAX};
use super::key_row::KeyRow;
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
        self.require_lasting(create.created_by, now)?;
        let mut events = Events::from_iter(actor.opening(now, rules));
        if let Actor::Known(account) = actor {
            if create.is_bootstrap && self.keys_of(account).any(|key| key.is_active(now)) {
                return Err(Rejection::BootstrapNotAllowed);
            }
            let lasting_count = self.keys_of(account).filter(|key| key.is_lasting(now)).count();
            if lasting_count >= rules.active_keys_max as usize {
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

    /// A key that ends while its request is on its way makes no other key: what was revoked with
    /// its descendants has none that came later. And one that was rotated is on its way out.
    fn require_lasting(&self, asked_with: Option<KeyId>, now: Timestamp) -> Result<(), Rejection> {
        let Some(id) = asked_with else { return Ok(()) };
        let key = self.keys.slot(id).map(|slot| &self.keys[slot]);
        match key.filter(|key| key.is_active(now)) {
            None => Err(Rejection::MakerEnded),
            Some(key) if !key.is_lasting(now) => Err(Rejection::MakerRotated),
            Some(_) => Ok(()),
        }
    }

    fn key_of(&self, account: &Account, key: KeyId) -> Result<&KeyRow, Rejection> {
        self.keys_of(account).find(|own| own.id == key).ok_or(Rejection::KeyNotFound)
    }

    pub(super) fn decide_rename(
        &self,
        account: AccountId,
        key: KeyId,
        name: Option<&str>,
        asked_with: Option<KeyId>,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        let account = self.account(account).ok_or(Rejection::AccountNotFound)?;
        self.require_lasting(asked_with, now)?;
        if self.key_of(account, key)?.name() == name {
            return Ok(Verdict::Already);
        }
        Ok(Verdict::Happens(smallvec![Event::KeyRenamed { key, name: name.map(Into::into) }]))
    }

    /// The new key counts as made by the old one: whatever ends the old one with its descendants
    /// ends it too.
    pub(super) fn decide_rotate(
        &self,
        rotate: &RotateKey,
        now: Timestamp,
    ) -> Result<Verdict, Rejection> {
        let account = self.account(rotate.account).ok_or(Rejection::AccountNotFound)?;
        self.require_lasting(rotate.asked_with, now)?;
        let old = self.key_of(account, rotate.key)?;
        if !old.is_active(now) {
            return Err(Rejection::KeyEnded);
        }
        if let Some(expires_at) = old.expires_at() {
            return Err(Rejection::KeyRotated { expires_at });
        }
        let is_overlapping = |key: &&KeyRow| key.is_active(now) && !key.is_lasting(now);
        let overlapping_keys_max = OVERLAPPING_KEYS_PER_ACCOUNT_MAX;
        if rotate.overlap_seconds > 0
            && self.keys_of(account).filter(is_overlapping).count() >= overlapping_keys_max
        {
            return Err(Rejection::OverlapLimitExceeded { overlapping_keys_max });
        }
        let key = KeyId::new(self.shard, self.keys_ever + 1).ok_or(IDS_EXHAUSTED)?;
        let forgotten = self.forgotten_keys(account, now);
        let mut events: Events =
            forgotten.into_iter().map(|key| Event::KeyForgotten { key }).collect();
        // An end at once is for good. An end at a time would be taken back by whoever sets the
        // clock back.
        events.push(match i64::from(rotate.overlap_seconds) {
            0 => Event::KeyRevoked { key: old.id, at: now },
            seconds => Event::KeyExpirySet {
                key: old.id,
                expires_at: Timestamp::from_nanos(
                    now.nanos().saturating_add(seconds * 1_000_000_000),
                ),
            },
        });
        let grant = KeyGrant {
            hash: rotate.hash,
            prefix: rotate.prefix.clone(),
            ..self.unpacked(old).grant
        };
        events.push(Event::KeyCreated {
            key,
            account: rotate.account,
            grant,
            created_by: Some(old.id),
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
        self.key_of(account, key)?;
        let ended = self.revoked_with(key, descendants, account);
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
        let comments = self.comments_of.get(&order).map_or(&[][..], |comments| &comments.ids);
        if comments.len() >= COMMENTS_PER_ORDER_MAX {
            return Err(Rejection::CommentLimitExceeded { comments_max: COMMENTS_PER_ORDER_MAX });
        }
        let is_own = |&id: &CommentId| self.comment(id).is_some_and(|own| own.author == author);
        if comments.iter().copied().filter(is_own).count() >= COMMENTS_PER_AUTHOR_MAX {
            return Err(Rejection::AuthorLimitExceeded { comments_max: COMMENTS_PER_AUTHOR_MAX });
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
