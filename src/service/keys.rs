//! Making, listing and ending keys, and the tokens for sockets.

use super::{Caller, Denied, Service, ServiceError, Visit};
use crate::auth::api_key::{KeyHash, RawKey};
use crate::engine::command::{Command, CreateKey};
use crate::engine::key::{Key, KeyGrant, Permission, Permissions};
use crate::engine::rejection::Rejection;
use crate::ids::{KeyId, Timestamp};
use crate::limits::tier::Tier;
use crate::shard::Outcome;

/// What a new key is asked to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewKeyRequest {
    /// What its owner calls it.
    pub name: Option<Box<str>>,
    /// How much it may ask.
    pub tier: Tier,
    /// What it may do.
    pub permissions: Permissions,
}

/// A key that was made, and the only copy of its raw form.
pub struct NewKey {
    /// The raw key.
    pub raw: RawKey,
    /// The key as its account keeps it.
    pub key: Key,
}

/// A key in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyListing {
    /// The key.
    pub key: Key,
    /// When it was used, to about a second; forgotten at a restart.
    pub last_used_at: Option<Timestamp>,
}

impl Service {
    /// Makes a key. With `is_bootstrap` only the first active one of the account.
    pub async fn create_key(
        &self,
        caller: &Caller,
        request: NewKeyRequest,
        is_bootstrap: bool,
        visit: Visit<'_>,
    ) -> Result<NewKey, ServiceError> {
        let owner = caller.owner()?;
        let actor = caller.actor().ok_or(Denied::MissingCredential)?;
        actor.may_create(request.permissions, request.tier).map_err(Denied::from)?;
        if !self.keys.has_room() {
            return Err(ServiceError::KeysFull);
        }
        let raw = RawKey::generate().map_err(|_| ServiceError::NoRandomBytes)?;
        let command = CreateKey {
            owner,
            is_bootstrap,
            created_by: caller.key_id(),
            grant: KeyGrant {
                hash: *raw.hash().as_bytes(),
                prefix: raw.prefix().into(),
                name: request.name,
                tier: request.tier,
                permissions: request.permissions,
                expires_at: None,
            },
        };
        let shard = command.owner.shard();
        let outcome =
            self.shards.execute(shard, Command::CreateKey(command), visit.waiters).await?;
        let Outcome::Key(key) = outcome else {
            unreachable!("making a key makes a key");
        };
        Ok(NewKey { raw, key: *key })
    }

    /// The keys of the caller's account; without `admin` only the caller's own. A token whose
    /// account is not open yet has none.
    pub async fn list_keys(
        &self,
        caller: &Caller,
        visit: Visit<'_>,
    ) -> Result<Vec<KeyListing>, ServiceError> {
        let account = match self.account(caller, visit).await {
            Err(ServiceError::Refused(refusal)) if refusal == Rejection::AccountNotFound.into() => {
                return Ok(Vec::new());
            }
            account => account?,
        };
        let keys = self
            .shards
            .observe(account.shard(), visit.waiters, move |state| state.observe_keys(account))
            .await?
            .ok_or(Rejection::AccountNotFound)?;
        let sees_all = caller.require(Permission::Admin).is_ok();
        let own = caller.key_id();
        Ok(keys
            .into_iter()
            .filter(|key| sees_all || Some(key.id) == own)
            .map(|key| KeyListing {
                last_used_at: self
                    .keys
                    .get(&KeyHash::from_bytes(key.grant.hash))
                    .and_then(|entry| entry.last_used()),
                key,
            })
            .collect())
    }

    /// Ends a key, and on request those made with it. A key without `admin` can end only itself.
    pub async fn revoke_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        descendants: bool,
        visit: Visit<'_>,
    ) -> Result<(), ServiceError> {
        let account = self.account(caller, visit).await?;
        if caller.key_id().is_some_and(|own| Some(own) != key) {
            caller.require(Permission::Admin)?;
        }
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let command = Command::RevokeKey { account, key, descendants };
        self.shards.execute(account.shard(), command, visit.waiters).await?;
        Ok(())
    }

    /// A token that opens sockets for a minute.
    pub async fn mint_ws_token(
        &self,
        caller: &Caller,
        visit: Visit<'_>,
    ) -> Result<String, ServiceError> {
        let account = self.account(caller, visit).await?;
        Ok(self.ws_tokens.mint(account, caller.key_id(), caller.tier(), visit.moment.now))
    }
}
