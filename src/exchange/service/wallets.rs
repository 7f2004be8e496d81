//! Wallets: granting them API keys, and identifying callers that sign with these keys.

mod contracts;

use std::net::IpAddr;
use std::sync::Arc;

use paperbourse_clob::credentials::{Credentials, MASTER_KEY_BYTES, MasterKey};
use paperbourse_clob::signature::address::Address;
use paperbourse_clob::signature::{ClobAuth, L1Headers};
use paperbourse_clob::timestamp;

use super::{Caller, Denied, Moment, RequestContext, Service, ServiceError, SocketCaller};
use crate::auth::api_key::KeyHash;
use crate::auth::key_table::KeyError;
use crate::auth::wallet::{
    GrantedWallet, L2Headers, SocketCredentials, WALLET_ISSUER, WalletError, require_current,
    stored_text, wallet_identity, wallet_key_name,
};
use crate::service::access::KeyCaller;
pub(super) use contracts::WalletContracts;
use paperbourse_core::engine::State;
use paperbourse_core::engine::command::{GrantWalletKey, Owner};
use paperbourse_core::engine::key::{Key, Permissions, WalletGrant, generation_of};
use paperbourse_core::ids::{AccountId, KeyId};

/// The error for a master key from which other credentials follow than those that were granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the API keys of wallets were derived from another master key: restore wallets/master.key from \
     a backup, or from another node of the cluster"
)]
pub struct WrongMasterKey;

/// The wallets that have an account.
#[derive(Default)]
pub struct KnownWallets(Vec<Address>);

impl KnownWallets {
    /// Those whose account is in one of these states.
    pub fn of<'s>(states: impl Iterator<Item = &'s State>) -> Self {
        let identities = states.flat_map(State::accounts).map(|row| row.identity);
        let wallets = identities.filter(|identity| identity.issuer == WALLET_ISSUER);
        Self(wallets.filter_map(|identity| Address::parse(identity.subject).ok()).collect())
    }
}

impl Service {
    /// Finds the accounts of these wallets by their contracts as well, and from now on those of
    /// wallets that open one. Takes some ten microseconds for each.
    #[must_use]
    pub fn with_wallets(self, wallets: KnownWallets) -> Self {
        wallets.0.into_iter().for_each(|wallet| self.contracts.add(wallet));
        self
    }

    /// Lets wallets call, with credentials that are derived from this master key. Fails if the
    /// table has keys that were derived from another one. Visits every key if no wallet has one.
    pub fn with_master_key(
        mut self,
        bytes: &[u8; MASTER_KEY_BYTES],
    ) -> Result<Self, WrongMasterKey> {
        let master = MasterKey::new(bytes);
        if let Some((hash, key, grant)) = self.keys.any_wallet()
            && stored_text(&granted(key, grant).credentials(&master)).hash != *hash.as_bytes()
        {
            return Err(WrongMasterKey);
        }
        self.master_key = Some(Arc::new(master));
        Ok(self)
    }

    fn master_key(&self) -> Result<&Arc<MasterKey>, WalletError> {
        self.master_key.as_ref().ok_or(WalletError::Off)
    }

    /// Verifies that a wallet has signed these headers just now. A failure counts against the
    /// address like a wrong key.
    ///
    /// Recovering the signer takes some 40 microseconds for each chain that is tried, so this
    /// yields to the worker's other tasks once.
    pub async fn verify_wallet(
        &self,
        headers: &L1Headers<'_>,
        address: IpAddr,
        moment: Moment,
    ) -> Result<ClobAuth, Denied> {
        let verify = || {
            self.master_key()?;
            // Before the signature, which takes a thousand times as long.
            if let Some(timestamp_s) = timestamp::parse(headers.timestamp) {
                require_current(timestamp_s, moment.now)?;
            }
            Ok(headers.verify()?)
        };
        let verified = verify();
        tokio::task::yield_now().await;
        verified.map_err(|error: WalletError| self.count_failure(error.into(), address, moment))
    }

    /// Returns the credentials of a wallet for the nonce that it has signed, if it has any.
    pub async fn find_wallet_credentials(
        &self,
        auth: &ClobAuth,
        context: RequestContext<'_>,
    ) -> Result<Option<Credentials>, ServiceError> {
        let master = self.master_key().map_err(Denied::from)?;
        let found = self.find_wallet(auth, context).await?;
        Ok(found.and_then(|(_, key)| key).map(|key| credentials_of(&key, master)))
    }

    /// Returns the credentials of a wallet for the nonce that it has signed, and grants them if it
    /// has none. Opens the wallet's account if it has none. However often and from however many
    /// threads this is called, the answer is the same until the credentials are deleted.
    ///
    /// A new account counts against the address, and a new key against the account.
    pub async fn wallet_credentials(
        &self,
        auth: &ClobAuth,
        context: RequestContext<'_>,
    ) -> Result<Credentials, ServiceError> {
        let master = self.master_key().map_err(Denied::from)?;
        let found = self.find_wallet(auth, context).await?;
        let account = match found {
            Some((_, Some(key))) => return Ok(credentials_of(&key, master)),
            Some((account, None)) => Some(account),
            None => None,
        };
        if !self.keys.has_room() {
            return Err(ServiceError::KeysFull);
        }
        match account {
            Some(account) => self.access.admit_key(account, context.moment)?,
            None => self.access.admit_account(context.address, context.moment)?,
        }
        let grant = grant_of(auth);
        let command = GrantWalletKey {
            owner: Owner::Identity(wallet_identity(auth.address)),
            wallet: grant,
            name: wallet_key_name(auth.address, auth.nonce),
            tier: self.default_tier(),
            permissions: Permissions::DEFAULT,
            derive: {
                let master = master.clone();
                move |generation| {
                    stored_text(&GrantedWallet { grant, generation }.credentials(&master))
                }
            },
        };
        let key = self.shards.execute(command.owner.shard(), command, context.waiters).await?;
        if account.is_none() {
            // This command opened the account, which had no bucket to draw from before.
            self.count_key(key.account, context.moment);
            self.contracts.add(auth.address);
        }
        Ok(credentials_of(&key, master))
    }

    async fn find_wallet(
        &self,
        auth: &ClobAuth,
        context: RequestContext<'_>,
    ) -> Result<Option<(AccountId, Option<Key>)>, ServiceError> {
        let identity = wallet_identity(auth.address);
        let (digest, grant) = (identity.digest, grant_of(auth));
        let find = move |state: &State| state.observe_wallet(&digest, &grant);
        Ok(self.shards.observe(identity.shard(), context.waiters, find).await?)
    }

    /// Returns the API keys of the caller's account that were granted to its wallet and neither
    /// revoked nor rotated, oldest first.
    pub async fn api_keys(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<Vec<String>, ServiceError> {
        let master = self.master_key().map_err(Denied::from)?;
        let keys = self.reads(caller.account()?, context).next(State::observe_keys).await?;
        let is_listed = |key: &&Key| key.grant.wallet.is_some() && !key.has_end();
        Ok(keys.iter().filter(is_listed).map(|key| credentials_of(key, master).api_key()).collect())
    }

    /// Revokes the API key with which the caller has signed. The wallet gets other credentials for
    /// the same nonce from then on.
    pub async fn delete_api_key(
        &self,
        caller: &Caller,
        context: RequestContext<'_>,
    ) -> Result<(), ServiceError> {
        self.revoke_key(caller, caller.key_id(), false, context).await
    }

    /// Identifies the caller by the head of a request, and counts the request against the key's
    /// limits. [`Self::require_signed`] has to follow. A failure counts against the address like a
    /// wrong key.
    pub fn identify_wallet(
        &self,
        headers: &L2Headers<'_>,
        address: IpAddr,
        moment: Moment,
    ) -> Result<Caller, Denied> {
        let identify = || {
            let master = self.master_key()?;
            let (hash, wallet) = self.wallet_of(headers.api_key)?;
            // Before the request is counted: an API key is no secret, and others must not use up
            // what its holder may send.
            headers.check(&wallet, master, moment.now)?;
            let (key, decision) = self.keys.admit(hash, moment.now, moment.monotonic_ns)?;
            Ok(Caller::Key(KeyCaller { key, decision: Some(decision) }))
        };
        identify().map_err(|denied| self.count_failure(denied, address, moment))
    }

    /// Checks the signature of a request whose head has identified its caller, once its body is
    /// there and before anything is done. `method` is in upper case, `path` without the query. A
    /// failure counts against the address like a wrong key.
    pub fn require_signed(
        &self,
        headers: &L2Headers<'_>,
        (method, path, body): (&str, &str, &[u8]),
        address: IpAddr,
        moment: Moment,
    ) -> Result<(), Denied> {
        let check = || {
            let master = self.master_key()?;
            let (_, wallet) = self.wallet_of(headers.api_key)?;
            if headers.is_signed(&wallet, master, (method, path, body)) {
                Ok(())
            } else {
                Err(WalletError::Signature.into())
            }
        };
        check().map_err(|denied| self.count_failure(denied, address, moment))
    }

    /// Identifies the opener of a socket and its wallet by what its first message brings. Each call
    /// counts against the account's limit; a failure counts against the address instead.
    pub fn identify_wallet_socket(
        &self,
        presented: &SocketCredentials<'_>,
        address: IpAddr,
        moment: Moment,
    ) -> Result<(SocketCaller, Address), ServiceError> {
        let check = || {
            let master = self.master_key()?;
            let (hash, wallet) = self.wallet_of(presented.api_key)?;
            presented.check(&wallet, master)?;
            let key = self.keys.get(&hash).ok_or(KeyError::Revoked)?;
            key.check(moment.now)?;
            Ok((key, Address::from_bytes(wallet.grant.address)))
        };
        let (key, wallet) =
            check().map_err(|denied: Denied| self.count_failure(denied, address, moment))?;
        let caller = SocketCaller::by_key(key)?;
        self.access.admit_socket(caller.account, moment)?;
        Ok((caller, wallet))
    }

    /// Looks up the wallet to which an API key was granted, whether or not the key has ended.
    fn wallet_of(&self, api_key: &[u8]) -> Result<(KeyHash, GrantedWallet), Denied> {
        let hash = KeyHash::of_uuid(api_key).ok_or(WalletError::ApiKey)?;
        let (key, grant) = self.keys.wallet(&hash).ok_or(WalletError::UnknownApiKey)?;
        Ok((hash, granted(key, grant)))
    }
}

fn granted(key: KeyId, grant: WalletGrant) -> GrantedWallet {
    let generation = generation_of(key).expect("no key of a wallet has a greater number");
    GrantedWallet { grant, generation }
}

fn grant_of(auth: &ClobAuth) -> WalletGrant {
    WalletGrant { address: *auth.address.bytes(), nonce: auth.nonce }
}

/// Derives the credentials of a key that was granted to a wallet.
fn credentials_of(key: &Key, master: &MasterKey) -> Credentials {
    let grant = key.grant.wallet.expect("the key was granted to a wallet");
    let credentials = GrantedWallet { grant, generation: key.generation() }.credentials(master);
    debug_assert_eq!(stored_text(&credentials).hash, key.grant.hash, "another master key");
    credentials
}

#[cfg(test)]
mod tests;
