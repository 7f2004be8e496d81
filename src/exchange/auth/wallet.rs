//! Wallets as callers: their identity, and the credentials that they present.
//!
//! A wallet proves itself once, with a signature (L1, [`paperbourse_clob::signature`]). It gets an
//! API key, a secret and a passphrase, and signs each request with them (L2). All three are derived
//! from a master key and from facts that a shard has recorded when it granted the key, so that no
//! secret is stored.
//!
//! An L2 request is checked in two steps, since its signature covers the body. [`L2Headers::check`]
//! covers what the head alone can show; with the body, [`L2Headers::is_signed`] covers the rest.

use std::fmt;

use paperbourse_clob::credentials::{Credentials, MasterKey, SignedRequest};
use paperbourse_clob::signature::L1Error;
use paperbourse_clob::signature::address::{ADDRESS_BYTES, Address, AddressError};
use paperbourse_clob::timestamp::{self, AHEAD_SECONDS_MAX, BEHIND_SECONDS_MAX};
use paperbourse_core::engine::command::{Identity, WalletKeyText};
use paperbourse_core::engine::key::{WALLET_ADDRESS_BYTES, WalletGrant};
use paperbourse_core::ids::Timestamp;

use super::api_key::KeyHash;
use super::identity::identity_digest;

const _: () = assert!(ADDRESS_BYTES == WALLET_ADDRESS_BYTES);

/// The issuer of the identities of wallets. Accounts derive from it, so it never changes.
pub const WALLET_ISSUER: &str = "wallet";

/// Number of characters of an API key that are shown in lists.
const PREFIX_CHARS: usize = 8;

/// The L2 headers of a request, each as it was sent; empty if it was not.
///
/// `Debug` shows none of them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct L2Headers<'a> {
    /// `POLY_ADDRESS`: the wallet.
    pub address: &'a [u8],
    /// `POLY_API_KEY`: the text of a UUID.
    pub api_key: &'a [u8],
    /// `POLY_PASSPHRASE`.
    pub passphrase: &'a [u8],
    /// `POLY_TIMESTAMP`: seconds since 1970 in decimal digits.
    pub timestamp: &'a [u8],
    /// `POLY_SIGNATURE`: an HMAC in padded URL-safe base64.
    pub signature: &'a [u8],
}

/// What the first message on a socket brings in place of headers.
///
/// `Debug` shows none of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SocketCredentials<'a> {
    /// The text of a UUID.
    pub api_key: &'a [u8],
    /// The secret itself: padded URL-safe base64.
    pub secret: &'a [u8],
    /// The passphrase.
    pub passphrase: &'a [u8],
}

/// The reason why the credentials of a wallet prove nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum WalletError {
    /// The server does not let wallets call.
    #[error("this server takes no requests that are signed by wallets")]
    Off,
    /// The L1 headers do not show the wallet.
    #[error(transparent)]
    L1(#[from] L1Error),
    /// `POLY_API_KEY` is not the text of a UUID.
    #[error("POLY_API_KEY: should be a UUID in lower case, as /auth/api-key returns it")]
    ApiKey,
    /// No wallet was granted the API key.
    #[error("POLY_API_KEY: unknown to this server; POST /auth/api-key returns one")]
    UnknownApiKey,
    /// `POLY_ADDRESS` is not an address.
    #[error("POLY_ADDRESS: {0}")]
    Address(#[from] AddressError),
    /// The API key was granted to another wallet.
    #[error("POLY_ADDRESS: not the wallet to which the API key was granted")]
    OtherWallet,
    /// `POLY_TIMESTAMP` is not a number.
    #[error("POLY_TIMESTAMP: should be whole seconds since 1970, such as 1800000000")]
    Timestamp,
    /// The request was signed too long ago, or too far in the future.
    #[error(
        "POLY_TIMESTAMP: may lie {BEHIND_SECONDS_MAX} s behind and {AHEAD_SECONDS_MAX} s ahead of \
         the server, whose time is {now_s}"
    )]
    NotCurrent {
        /// The time of the server, in seconds since 1970.
        now_s: i64,
    },
    /// The passphrase is not that of the API key.
    #[error("POLY_PASSPHRASE: not that of the API key")]
    Passphrase,
    /// The secret is not that of the API key.
    #[error("secret: not that of the API key")]
    Secret,
    /// The signature is not that of this request.
    #[error(
        "POLY_SIGNATURE: not that of this request: it is the HMAC of timestamp, method, path \
         without query, and body"
    )]
    Signature,
}

/// The wallet to which a key was granted, and what its credentials are derived from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantedWallet {
    /// The wallet, and the nonce that it has signed.
    pub grant: WalletGrant,
    /// Tells the key from those that the wallet had for the same nonce before.
    pub generation: u32,
}

impl GrantedWallet {
    /// Derives the credentials. Takes less than a microsecond.
    pub fn credentials(&self, master: &MasterKey) -> Credentials {
        let WalletGrant { address, nonce } = self.grant;
        master.credentials(Address::from_bytes(address), nonce, self.generation)
    }
}

impl L2Headers<'_> {
    /// Checks all but the signature at the time `now`.
    pub fn check(
        &self,
        wallet: &GrantedWallet,
        master: &MasterKey,
        now: Timestamp,
    ) -> Result<(), WalletError> {
        if *Address::parse(self.address)?.bytes() != wallet.grant.address {
            return Err(WalletError::OtherWallet);
        }
        let timestamp_s = timestamp::parse(self.timestamp).ok_or(WalletError::Timestamp)?;
        require_current(timestamp_s, now)?;
        if wallet.credentials(master).has_passphrase(self.passphrase) {
            Ok(())
        } else {
            Err(WalletError::Passphrase)
        }
    }

    /// Whether the headers sign a request with this method, in upper case, this path, without the
    /// query, and this body.
    pub fn is_signed(
        &self,
        wallet: &GrantedWallet,
        master: &MasterKey,
        (method, path, body): (&str, &str, &[u8]),
    ) -> bool {
        let request = SignedRequest { timestamp: self.timestamp, method, path, body };
        wallet.credentials(master).has_signed(&request, self.signature)
    }
}

impl SocketCredentials<'_> {
    /// Checks passphrase and secret.
    pub fn check(&self, wallet: &GrantedWallet, master: &MasterKey) -> Result<(), WalletError> {
        let credentials = wallet.credentials(master);
        if !credentials.has_passphrase(self.passphrase) {
            return Err(WalletError::Passphrase);
        }
        if credentials.has_secret(self.secret) { Ok(()) } else { Err(WalletError::Secret) }
    }
}

impl fmt::Debug for L2Headers<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("L2Headers(…)")
    }
}

impl fmt::Debug for SocketCredentials<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SocketCredentials(…)")
    }
}

/// Refuses a request that was signed too long before `now`, or too far ahead of it.
pub fn require_current(timestamp_s: i64, now: Timestamp) -> Result<(), WalletError> {
    let now_s = now.seconds();
    if timestamp::is_current(timestamp_s, now_s) {
        Ok(())
    } else {
        Err(WalletError::NotCurrent { now_s })
    }
}

/// Returns the identity of a wallet's account.
pub fn wallet_identity(address: Address) -> Identity {
    let subject = address.to_string();
    Identity {
        digest: identity_digest(WALLET_ISSUER, &subject),
        issuer: WALLET_ISSUER.into(),
        subject: subject.into(),
    }
}

/// Returns the name of a wallet's key in lists.
pub fn wallet_key_name(address: Address, nonce: u64) -> Box<str> {
    format!("{address}, nonce {nonce}").into()
}

/// Returns what is stored of credentials: the hash of their API key, and its first characters.
pub fn stored_text(credentials: &Credentials) -> WalletKeyText {
    let api_key = credentials.api_key();
    let hash = KeyHash::of_uuid(api_key.as_bytes()).expect("an API key is a UUID in lower case");
    WalletKeyText { hash: *hash.as_bytes(), prefix: api_key[..PREFIX_CHARS].into() }
}

#[cfg(test)]
mod tests;
