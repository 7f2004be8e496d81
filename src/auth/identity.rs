//! Whose account it is: access tokens, and the sources that vouch for them.
//!
//! A token is believed when its signature verifies under a key of the one configured source, with
//! the algorithm that belongs to that key. Nothing that the token says of itself chooses an
//! algorithm or an address to fetch a key from: of its header, `alg` is compared, `kid` is looked
//! up among the keys of the source, and `jwk`, `jku` and `x5u` are never followed. This module does
//! not know accounts; it turns a text into an issuer and a subject, or says why not.
//!
//! A signature costs tens of microseconds to check, whether it is good or not. What keeps a
//! stranger from spending them at will is the bucket of failed credentials that
//! [`Service::identify`](crate::service::Service::identify) draws from for the caller's address.

pub mod embedded;
pub mod key_file;
pub mod oidc;
pub mod shared_secret;
pub mod tier_claim;
mod token;

use aws_lc_rs::digest::{Context, SHA256};

use std::sync::Arc;

use embedded::EmbeddedIssuer;
use oidc::OidcIssuer;
use shared_secret::SharedSecret;

use crate::ids::Timestamp;
use crate::limits::tier::Tier;

/// A longer token is refused unread, in bytes. Large providers stay below half of it.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// The longest name of a user, in characters.
pub const SUBJECT_CHARS_MAX: usize = 256;

/// How far the clocks of the issuer and of this machine may be apart.
pub const LEEWAY_SECONDS: i64 = 60;

/// Where identities come from: one source at a time, chosen at start.
#[derive(Debug)]
pub enum IdentitySource {
    /// The issuer that is part of this server.
    Embedded(EmbeddedIssuer),
    /// A provider that signs with a secret which this server knows as well.
    SharedSecret(SharedSecret),
    /// A provider that publishes the keys it signs with. Shared with the task that reads them.
    Oidc(Arc<OidcIssuer>),
}

impl IdentitySource {
    /// Whom the token stands for, at this time.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        match self {
            Self::Embedded(issuer) => issuer.verify(token, now),
            Self::SharedSecret(secret) => secret.verify(token, now),
            Self::Oidc(issuer) => issuer.verify(token, now),
        }
    }

    /// The same after a look for newer keys, where [`TokenError::may_pass_with_newer_keys`] gives
    /// hope. Waits at most [`oidc::WAIT_MAX`].
    pub async fn verify_with_newer_keys(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Result<VerifiedIdentity, TokenError> {
        match self {
            Self::Oidc(issuer) => issuer.verify_with_newer_keys(token, now).await,
            Self::Embedded(_) | Self::SharedSecret(_) => self.verify(token, now),
        }
    }
}

/// What a source vouches for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedIdentity {
    /// Who vouches.
    pub issuer: String,
    /// The issuer's name for the user: 1 to [`SUBJECT_CHARS_MAX`] characters.
    pub subject: String,
    /// The highest tier that the token entitles to, if it says.
    pub entitled_tier: Option<Tier>,
    /// When the token ends, without leeway.
    pub expires_at: Timestamp,
}

impl VerifiedIdentity {
    /// From when on the token is refused.
    pub const fn refused_from(&self) -> Timestamp {
        later_by_leeway(self.expires_at)
    }
}

/// The moment that a clock may show which is as far ahead as clocks may be apart.
const fn later_by_leeway(time: Timestamp) -> Timestamp {
    const LEEWAY_NS: i64 = LEEWAY_SECONDS * 1_000_000_000;
    Timestamp::from_nanos(time.nanos().saturating_add(LEEWAY_NS))
}

/// The name of an account before it has a number: SHA-256(issuer, 0, subject).
///
/// An issuer is configured, not received, and holds no zero byte, so no two pairs share a text. The
/// first byte chooses the shard: [`ShardId::of_digest`](crate::ids::ShardId::of_digest).
pub fn identity_digest(issuer: &str, subject: &str) -> [u8; 32] {
    debug_assert!(!issuer.contains('\0'), "an issuer has no zero byte");
    let mut context = Context::new(&SHA256);
    context.update(issuer.as_bytes());
    context.update(&[0]);
    context.update(subject.as_bytes());
    super::digest_bytes(&context.finish())
}

/// Why a token is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// `TOKEN_EXPIRED`: it was good once; a new one of the same kind will be.
    #[error("the access token expired at {expired_at}")]
    Expired {
        /// When it ended, without leeway.
        expired_at: Timestamp,
    },
    /// `IDENTITY_UNAVAILABLE`: the keys that could tell are not to be had.
    #[error("the access token cannot be checked: its issuer does not answer")]
    Unavailable {
        /// In how many seconds the issuer is asked again, at least 1.
        retry_after_seconds: u64,
    },
    /// `INVALID_TOKEN`: it never was good here, or is not yet.
    #[error("the access token {0}")]
    Invalid(TokenFlaw),
}

impl TokenError {
    /// Whether keys that the issuer has published since could tell another story.
    pub fn may_pass_with_newer_keys(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Invalid(TokenFlaw::UnknownKey))
    }
}

/// What is wrong with a token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenFlaw {
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("is longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// Not three parts of base64 with JSON of the expected types inside.
    #[error("is not a JSON web token")]
    Malformed,
    /// Signed in another way than the source signs.
    #[error("is not signed with the algorithm of the identity source")]
    Algorithm,
    /// It tells a client who has signed in, and gives access to nothing.
    #[error("is an ID token: send the access token, whose `aud` names this server")]
    IdToken,
    /// Its header says that it was made for something else than access.
    #[error("is not an access token: its header has another `typ`")]
    Type,
    /// It demands that its reader understands extensions; this one knows none.
    #[error("demands an extension that is not supported")]
    Extension,
    /// Signed, as it says, by a key that is not published, or is not for this; or it does not say.
    #[error("names no key that the issuer publishes for signatures")]
    UnknownKey,
    /// Signed by another key, or changed since.
    #[error("has a signature that does not match")]
    Signature,
    /// A claim that is needed is absent or of the wrong type.
    #[error("has no usable claim `{claim}`")]
    MissingClaim {
        /// Its name.
        claim: &'static str,
    },
    /// Not from the configured issuer.
    #[error("comes from another issuer")]
    Issuer,
    /// Made for another service.
    #[error("is for another audience")]
    Audience,
    /// Empty, or longer than [`SUBJECT_CHARS_MAX`].
    #[error("names no user: `sub` has to have 1 to {SUBJECT_CHARS_MAX} characters")]
    Subject,
    /// It begins later than now.
    #[error("is not valid before {begins_at}")]
    NotYetValid {
        /// When it begins, without leeway.
        begins_at: Timestamp,
    },
    /// It says that it was made later than now.
    #[error("was issued at {issued_at}, which is in the future: compare the clocks")]
    IssuedLater {
        /// When it says that it was made.
        issued_at: Timestamp,
    },
    /// It entitles to something that is not a tier.
    #[error("entitles to a tier that does not exist")]
    Tier,
}

impl From<TokenFlaw> for TokenError {
    fn from(flaw: TokenFlaw) -> Self {
        Self::Invalid(flaw)
    }
}

#[cfg(test)]
mod tests;
