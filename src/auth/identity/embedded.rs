//! The issuer that is part of this server, so that a newcomer needs no identity provider.
//!
//! It signs with Ed25519. The command that mints tokens and the server that verifies them are two
//! processes that share nothing but the key in the data directory.

use std::fmt;
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::Serialize;

use super::key_file::{self, KeyFileError};
use super::tier_claim::TierClaim;
use super::{SUBJECT_CHARS_MAX, TokenError, VerifiedIdentity, token};
use crate::ids::Timestamp;
use crate::limits::tier::Tier;

/// The `iss` of its tokens. It names accounts, so it never changes, not even with the key.
pub const EMBEDDED_ISSUER: &str = "paperbourse";

/// The `aud` of its tokens.
pub const EMBEDDED_AUDIENCE: &str = "paperbourse";

/// A key pair that signs and verifies access tokens.
pub struct EmbeddedIssuer {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
    tier_claim: TierClaim,
}

impl EmbeddedIssuer {
    /// The issuer of this data directory, whose key is made when there is none.
    ///
    /// Any number of processes may do this at the same time: all get the same key. Blocks on the
    /// disk.
    pub fn open(data_directory: &Path) -> Result<Self, IssuerError> {
        let pkcs8 = key_file::load_or_create(data_directory, generate_pkcs8)?;
        Self::from_pkcs8(&pkcs8).map_err(|reason| IssuerError::Unusable {
            path: key_file::path(data_directory),
            reason,
        })
    }

    /// An issuer whose key lives and dies with the process.
    pub fn in_memory() -> Result<Self, IssuerError> {
        let pkcs8 = generate_pkcs8().ok_or(IssuerError::Generate)?;
        Ok(Self::from_pkcs8(&pkcs8).expect("the library reads the keys that it makes"))
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, aws_lc_rs::error::KeyRejected> {
        let pair = Ed25519KeyPair::from_pkcs8(pkcs8)?;
        Ok(Self {
            signing: EncodingKey::from_ed_der(pkcs8),
            verifying: DecodingKey::from_ed_der(pair.public_key().as_ref()),
            validation: token::validation(Algorithm::EdDSA, EMBEDDED_ISSUER, EMBEDDED_AUDIENCE),
            tier_claim: TierClaim::embedded(),
        })
    }

    /// An access token for this user, good from `now` for so many seconds.
    ///
    /// Without a tier the token entitles to whatever the server gives by default.
    pub fn mint(
        &self,
        subject: &str,
        tier: Option<Tier>,
        expires_seconds: u32,
        now: Timestamp,
    ) -> Result<String, MintError> {
        if !token::is_subject(subject) {
            return Err(MintError::Subject);
        }
        let claims = MintedClaims {
            iss: EMBEDDED_ISSUER,
            aud: EMBEDDED_AUDIENCE,
            sub: subject,
            iat: now.seconds(),
            exp: now.seconds() + i64::from(expires_seconds),
            tier: tier.map(Tier::as_str),
        };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::EdDSA), &claims, &self.signing);
        Ok(token.expect("claims of text and numbers serialise, and the key was read before"))
    }

    /// Whom the token stands for, at this time.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        token::read_header(text)?;
        token::verify(text, &self.verifying, &self.validation, Some(&self.tier_claim), now)
    }

    /// The public key in its 32 raw bytes.
    #[cfg(test)]
    pub(super) fn public_key(&self) -> &[u8] {
        self.verifying.try_get_as_bytes().unwrap()
    }

    /// Signs any header and claims: for tests that need what [`Self::mint`] would never make.
    #[cfg(test)]
    pub(super) fn sign(&self, header: &Header, claims: &serde_json::Value) -> String {
        jsonwebtoken::encode(header, claims, &self.signing).unwrap()
    }

    /// The signature of any bytes, in base64.
    #[cfg(test)]
    pub(super) fn sign_bytes(&self, message: &[u8]) -> String {
        jsonwebtoken::crypto::sign(message, &self.signing, Algorithm::EdDSA).unwrap()
    }
}

impl fmt::Debug for EmbeddedIssuer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("EmbeddedIssuer").finish_non_exhaustive()
    }
}

/// A new key pair; `None` when the operating system gives no randomness.
fn generate_pkcs8() -> Option<Vec<u8>> {
    let pair = Ed25519KeyPair::generate().ok()?;
    Some(pair.to_pkcs8().ok()?.as_ref().to_vec())
}

#[derive(Serialize)]
struct MintedClaims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    iat: i64,
    exp: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<&'a str>,
}

/// Why there is no issuer.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The file that holds the key cannot be read or made.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The file was read, but holds no key.
    #[error("{path} holds no Ed25519 key ({reason}); restore it from a backup, or remove it \
             to have a new one made, after which the tokens of the old one are refused",
            path = path.display())]
    Unusable {
        /// The file.
        path: std::path::PathBuf,
        /// What the crypto library says.
        reason: aws_lc_rs::error::KeyRejected,
    },
    /// The operating system gave no randomness.
    #[error("no key can be made: the operating system gives no randomness")]
    Generate,
}

/// Why no token is minted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MintError {
    /// No user can have that name.
    #[error("a subject has to have 1 to {SUBJECT_CHARS_MAX} characters")]
    Subject,
}
