//! Making, listing, renaming, rotating and ending keys, and the tokens for sockets.

use super::{Caller, Denied, Moment, RequestContext, Service, ServiceError};
use crate::auth::api_key::{KeyHash, RawKey};
use crate::auth::ws_token::WsHolder;
use crate::engine::State;
use crate::engine::command::{CreateKey, RenameKey, RevokeKey, RotateKey};
use crate::engine::key::{Key, KeyGrant, Permission, Permissions};
use crate::engine::rejection::Rejection;
use crate::engine::view::Observed;
use crate::ids::{KeyId, Place, Timestamp};
use crate::limits::tier::Tier;

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

/// A key that was made, anew or in the place of another one, and the only copy of its raw form.
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
            },
        };
        let shard = command.owner.shard();
        let key = self.shards.execute(shard, command, context.waiters).await?;
        if caller.account().is_err() {
            // It was opened for this key, so that nothing could be counted before.
            self.count_key(key.account, context.moment);
        }
        Ok(NewKey { raw, key })
    }

    /// The keys of the caller's account; without `admin` only the caller's own. A token whose
    /// account is not open yet has none.
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
        let keys = self
            .shards
            .observe(account.shard(), context.waiters, move |state| state.observe_keys(account))
            .await?
            .ok_or(Rejection::AccountNotFound)?;
        let sees_all = caller.require(Permission::Admin).is_ok();
        let own = caller.key_id();
        Ok(keys
            .into_iter()
            .filter(|key| sees_all || Some(key.id) == own)
            .map(|key| self.listing(key))
            .collect())
    }

    /// Gives a key another name. A key without `admin` can rename only itself.
    pub async fn rename_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        name: Option<Box<str>>,
        context: RequestContext<'_>,
    ) -> Result<KeyListing, ServiceError> {
        let account = caller.account()?;
        caller.require_over(key)?;
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let command = RenameKey { account, key, name, asked_with: caller.key_id() };
        let key = self.shards.execute(account.shard(), command, context.waiters).await?;
        Ok(self.listing(key))
    }

    /// Makes a key that is and may do what another one is and may, and ends that one after so many
    /// seconds. A key without `admin` can rotate only itself; nobody gets what they could not have
    /// made.
    pub async fn rotate_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        overlap_seconds: u32,
        context: RequestContext<'_>,
    ) -> Result<NewKey, ServiceError> {
        let account = caller.account()?;
        caller.require_over(key)?;
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let actor = caller.actor().ok_or(Denied::MissingCredential)?;
        let allow = move |state: &State| {
            let Observed { value, place } = state.observe_key(account, key);
            let allowed = match value {
                None => Err(Rejection::KeyNotFound.into()),
                Some(Key { grant, .. }) => actor
                    .may_create(grant.permissions, grant.tier)
                    .map_err(|error| Denied::from(error).into()),
            };
            // Only a refusal is an answer already: the rotation is behind all that this rests on.
            let place = if allowed.is_ok() { Place::START } else { place };
            Observed { value: allowed, place }
        };
        // What a key may do never changes, so it need not be looked at once more.
        let allowed: Result<(), ServiceError> =
            self.shards.observe(account.shard(), context.waiters, allow).await?;
        allowed?;
        let raw = self.new_raw_key()?;
        let command = RotateKey {
            account,
            key,
            asked_with: caller.key_id(),
            overlap_seconds,
            hash: *raw.hash().as_bytes(),
            prefix: raw.prefix().into(),
        };
        let key = self.shards.execute(account.shard(), command, context.waiters).await?;
        Ok(NewKey { raw, key })
    }

    /// A raw key, as long as there is room for its key.
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

    /// Ends a key, and on request those made with it. A key without `admin` can end only itself.
    pub async fn revoke_key(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        descendants: bool,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        let account = caller.account()?;
        caller.require_over(key)?;
        let key = key.ok_or(Rejection::KeyNotFound)?;
        let command = RevokeKey { account, key, descendants };
        Ok(self.shards.execute(account.shard(), command, context.waiters).await?)
    }

    /// A token that opens sockets for a minute.
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
