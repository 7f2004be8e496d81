//! The built-in issuer, so that a new operator needs no identity provider.
//!
//! The issuer signs with Ed25519. The command that mints tokens and the server that verifies them
//! are two processes that share only the key in the data directory.

use std::fmt;
use std::path::Path;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::Serialize;

use super::tier_claim::TierClaim;
use super::{SUBJECT_CHARS_MAX, TokenError, VerifiedIdentity, token};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::tier::Tier;
use paperbourse_store::key_file::{self, KeyFile, KeyFileError};

/// The `iss` claim of the built-in issuer's tokens. Account identities derive from it, so it never
/// changes, even if the key does.
pub const EMBEDDED_ISSUER: &str = "paperbourse";

/// The `aud` claim of the built-in issuer's tokens.
pub const EMBEDDED_AUDIENCE: &str = "paperbourse";

/// An issuer with a key pair that signs and verifies access tokens.
pub struct EmbeddedIssuer {
    signing: EncodingKey,
    verifying: DecodingKey,
    validation: Validation,
    tier_claim: TierClaim,
}

impl EmbeddedIssuer {
    /// Opens the issuer of this data directory, creating its key if it has none.
    ///
    /// Any number of processes may call this at the same time; all get the same key. Blocks on disk
    /// I/O.
    pub fn open(data_directory: &Path) -> Result<Self, IssuerError> {
        let pkcs8 = KeyFile::Issuer.load_or_create(data_directory, generate_pkcs8)?;
        let pair = key_file::key_pair(data_directory, &pkcs8)?;
        Ok(Self::with_key(&pkcs8, &pair))
    }

    /// Opens the issuer of this data directory. Returns `None` if the directory has no key.
    pub fn open_existing(data_directory: &Path) -> Result<Option<Self>, IssuerError> {
        let Some(pkcs8) = KeyFile::Issuer.load_existing(data_directory)? else { return Ok(None) };
        let pair = key_file::key_pair(data_directory, &pkcs8)?;
        Ok(Some(Self::with_key(&pkcs8, &pair)))
    }

    /// Creates an issuer whose key exists only as long as the process.
    pub fn in_memory() -> Result<Self, IssuerError> {
        let pkcs8 = generate_pkcs8().ok_or(IssuerError::Generate)?;
        let pair = Ed25519KeyPair::from_pkcs8(&pkcs8);
        let pair = pair.expect("the library reads the keys that it generates");
        Ok(Self::with_key(&pkcs8, &pair))
    }

    fn with_key(pkcs8: &[u8], pair: &Ed25519KeyPair) -> Self {
        Self {
            signing: EncodingKey::from_ed_der(pkcs8),
            verifying: DecodingKey::from_ed_der(pair.public_key().as_ref()),
            validation: token::validation(Algorithm::EdDSA, EMBEDDED_ISSUER, EMBEDDED_AUDIENCE),
            tier_claim: TierClaim::embedded(),
        }
    }

    /// Mints an access token for this user, valid from `now` for `expires_seconds`.
    ///
    /// Without a tier, the token entitles its bearer to the server's default.
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
        Ok(token.expect("text and numbers serialise, and the key was parsed before"))
    }

    /// Verifies a token at the time `now`.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        token::read_header(text)?;
        token::verify(text, &self.verifying, &self.validation, Some(&self.tier_claim), now)
    }

    /// Returns the raw 32 bytes of the public key.
    #[cfg(test)]
    pub(super) fn public_key(&self) -> &[u8] {
        self.verifying.try_get_as_bytes().unwrap()
    }

    /// Signs any header and claims, for tests that need tokens [`Self::mint`] would never produce.
    #[cfg(test)]
    pub(super) fn sign(&self, header: &Header, claims: &serde_json::Value) -> String {
        jsonwebtoken::encode(header, claims, &self.signing).unwrap()
    }

    /// Signs any bytes and returns the signature in base64.
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

/// Generates a key pair in PKCS#8, or returns `None` if the operating system provides no
/// randomness.
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

/// The error for an issuer that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// The key file cannot be read or created.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The operating system provided no randomness.
    #[error("cannot generate a key: the operating system provides no randomness")]
    Generate,
}

/// The error for a token that cannot be minted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MintError {
    /// The subject is empty or too long.
    #[error("a subject must have 1 to {SUBJECT_CHARS_MAX} characters")]
    Subject,
}
