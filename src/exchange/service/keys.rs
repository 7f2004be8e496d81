//! Creating, listing, renaming, rotating and revoking keys, and minting socket tokens.

use super::{Caller, Denied, Moment, RequestContext, Service, ServiceError};
use crate::auth::api_key::{KeyHash, RawKey};
use crate::auth::ws_token::WsHolder;
use paperbourse_core::engine::State;
use paperbourse_core::engine::command::{CreateKey, RenameKey, RevokeKey, RotateKey};
use paperbourse_core::engine::key::{Key, KeyGrant, Permission, Permissions};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::ids::{KeyId, Lsn, Timestamp};
use paperbourse_core::limits::tier::Tier;

/// The properties of a key to create.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewKeyRequest {
    /// The owner's name for the key.
    pub name: Option<Box<str>>,
    /// The tier whose limits apply to the key.
    pub tier: Tier,
    /// The key's permissions.
    pub permissions: Permissions,
}

/// A created or rotated key, with the only copy of its raw form.
pub struct NewKey {
    /// The raw key.
    pub raw: RawKey,
    /// The key as stored.
    pub key: Key,
}

/// A key in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyListing {
    /// The key.
    pub key: Key,
    /// When the key was last used, to within about a second. Not kept across a restart.
    pub last_used_at: Option<Timestamp>,
}

impl Service {
    /// Creates a key. With `is_bootstrap`, fails if the account has an active key.
    pub async fn create_key(
        &self,
        caller: &Caller,
        request: NewKeyRequest,
        is_bootstrap: bool,
        context: RequestContext<'_>,
    ) -> Result<NewKey, ServiceError> {
        let owner = caller.owner()?;
        let actor = caller.actor().ok_or(Denied::MissingCredential)?;
        actor.may_create(request.permissions, request.tier).map_err(Denied::from)?;
        let raw = self.new_raw_key()?;
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
                wallet: None,
            },
        };
        let shard = command.owner.shard();
        let key = self.shards.execute(shard, command, context.waiters).await?;
        if caller.account().is_err() {
            // This command opened the account, which had no bucket to draw from before.
            self.count_key(key.account, context.moment);
        }
        Ok(NewKey { raw, key })
    }

    /// Returns the keys of the caller's account. A key without `admin` gets only itself. The list
    /// is empty for an access token without an account.
    pub async fn list_keys(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Vec<KeyListing>, ServiceError> {
        let account = match caller.account() {
            Err(ServiceError::Refused(refusal)) if refusal == Rejection::AccountNotFound.into() => {
                return Ok(Vec::new());
            }
            account => account?,
        };
        let keys = self.reads(account, context).next(State::observe_keys).await?;
        let sees_all = caller.require(Permission::Admin).is_ok();
        let own = caller.key_id();
        Ok(keys
            .into_iter()
            .filter(|key| sees_all || Some(key.id) == own)
            .map(|key| self.listing(key))
            .collect())
    }

    /// Renames a key. A key without `admin` can rename only itself.
    pub async fn rename_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        name: Option<Box<str>>,
        context: RequestContext<'_>,
    ) -> Result<KeyListing, ServiceError> {
        let account = caller.account()?;
        caller.require_control_of(key)?;
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let command = RenameKey { account, key, name, caller_key: caller.key_id() };
        let key = self.shards.execute(account.shard(), command, context.waiters).await?;
        Ok(self.listing(key))
    }

    /// Replaces a key with a new one that has the same name, tier and permissions. The old key
    /// works for another `overlap_seconds`. A key without `admin` can rotate only itself, and a
    /// caller can rotate only a key that it would be allowed to create.
    pub async fn rotate_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        overlap_seconds: u32,
        context: RequestContext<'_>,
    ) -> Result<NewKey, ServiceError> {
        let account = caller.account()?;
        caller.require_control_of(key)?;
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let actor = caller.actor().ok_or(Denied::MissingCredential)?;
        let allow = move |state: &State| {
            let Observed { value, lsn } = state.observe_key(account, key);
            let allowed = match value {
                None => Err(Rejection::KeyNotFound.into()),
                Some(Key { grant, .. }) => actor
                    .may_create(grant.permissions, grant.tier)
                    .map_err(|error| Denied::from(error).into()),
            };
            // Only a refusal is answered from this read. Otherwise, the answer waits for the
            // rotation's own record, which comes after everything read here.
            let lsn = if allowed.is_ok() { Lsn::START } else { lsn };
            Observed { value: allowed, lsn }
        };
        // A key's permissions never change. If an operator gives all keys another tier meanwhile,
        // the new key gets it too.
        let allowed: Result<(), ServiceError> =
            self.shards.observe(account.shard(), context.waiters, allow).await?;
        allowed?;
        let raw = self.new_raw_key()?;
        let command = RotateKey {
            account,
            key,
            caller_key: caller.key_id(),
            overlap_seconds,
            hash: *raw.hash().as_bytes(),
            prefix: raw.prefix().into(),
        };
        let key = self.shards.execute(account.shard(), command, context.waiters).await?;
        Ok(NewKey { raw, key })
    }

    /// Generates a raw key, unless the key table is full.
    fn new_raw_key(&self) -> Result<RawKey, ServiceError> {
        if !self.keys.has_room() {
            return Err(ServiceError::KeysFull);
        }
        RawKey::generate().map_err(|_| ServiceError::NoRandomBytes)
    }

    fn listing(&self, key: Key) -> KeyListing {
        let entry = self.keys.get(&KeyHash::from_bytes(key.grant.hash));
        KeyListing { last_used_at: entry.and_then(|entry| entry.last_used()), key }
    }

    /// Revokes a key and, with `descendants`, the keys that were created with it. A key without
    /// `admin` can revoke only itself.
    pub async fn revoke_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        descendants: bool,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let account = caller.account()?;
        caller.require_control_of(key)?;
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let command = RevokeKey { account, key, descendants };
        Ok(self.shards.execute(account.shard(), command, context.waiters).await?)
    }

    /// Mints a token that can open sockets for one minute.
    pub fn mint_ws_token(&self, caller: &Caller, moment: Moment) -> Result<String, ServiceError> {
        let account = caller.account()?;
        let holder = match caller {
            Caller::Anonymous => return Err(Denied::MissingCredential.into()),
            Caller::Key(key) => WsHolder::Key(key.facts().key_id),
            Caller::Token(token) => WsHolder::AccessToken { ends_at: token.ends_at },
        };
        Ok(self.ws_tokens.mint(account, holder, caller.tier(), moment.now))
    }
}
