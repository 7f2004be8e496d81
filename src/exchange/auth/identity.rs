//! Access tokens, and the identity sources that verify them.
//!
//! A token is accepted if its signature verifies under a key of the configured source, with the
//! algorithm bound to that key. Nothing in the token chooses an algorithm or an address to fetch a
//! key from: of its header, `alg` is compared, `kid` is looked up among the source's keys, and
//! `jwk`, `jku` and `x5u` are never followed. This module knows nothing about accounts; it turns a
//! token into an issuer and a subject, or says why it cannot.
//!
//! Checking a signature takes tens of microseconds, whether it is valid or not. The bucket of
//! failed credentials, from which [`Service::identify`](crate::service::Service::identify) draws
//! for the caller's address, keeps strangers from burning that time at will.

pub mod embedded;
pub mod oidc;
pub mod shared_secret;
pub mod tier_claim;
mod token;

use aws_lc_rs::digest::{Context, SHA256};

use std::sync::Arc;

use embedded::EmbeddedIssuer;
use oidc::OidcIssuer;
use shared_secret::SharedSecret;

use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::tier::Tier;

/// Longest accepted token, in bytes; a longer one is refused unread. Large providers stay below
/// half of this.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Longest subject, in characters.
pub const SUBJECT_CHARS_MAX: usize = 256;

/// How far the issuer's clock and ours may differ, in seconds.
pub const LEEWAY_SECONDS: i64 = 60;

/// Where identities come from. The operator chooses one source at startup.
#[derive(Debug)]
pub enum IdentitySource {
    /// The issuer built into this server.
    Embedded(EmbeddedIssuer),
    /// A provider whose signing secret this server shares.
    SharedSecret(SharedSecret),
    /// A provider that publishes its keys. Shared with the task that refreshes them.
    Oidc(Arc<OidcIssuer>),
}

impl IdentitySource {
    /// Verifies a token at the time `now`.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        match self {
            Self::Embedded(issuer) => issuer.verify(token, now).map_err(|error| match error {
                TokenError::Invalid(TokenFlaw::Signature) => TokenFlaw::OtherServer.into(),
                error => error,
            }),
            Self::SharedSecret(secret) => secret.verify(token, now),
            Self::Oidc(issuer) => issuer.verify(token, now),
        }
    }

    /// Resolves once tokens can be verified, which a provider's keys may keep waiting.
    pub async fn ready(&self) {
        if let Self::Oidc(issuer) = self {
            issuer.ready().await;
        }
    }

    /// Like [`Self::verify`], but fetches newer keys if [`TokenError::may_pass_with_newer_keys`].
    /// Waits at most [`oidc::WAIT_MAX`].
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

/// A verified user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedIdentity {
    /// The issuer that vouches for the user.
    pub issuer: String,
    /// The issuer's id for the user: 1 to [`SUBJECT_CHARS_MAX`] characters.
    pub subject: String,
    /// The highest tier that the token entitles its bearer to, if it carries one.
    pub entitled_tier: Option<Tier>,
    /// When the token expires, without leeway.
    pub expires_at: Timestamp,
}

impl VerifiedIdentity {
    /// The time from which the token is refused.
    pub const fn refused_from(&self) -> Timestamp {
        later_by_leeway(self.expires_at)
    }
}

/// The latest time that a clock may show at `time`.
const fn later_by_leeway(time: Timestamp) -> Timestamp {
    const LEEWAY_NS: i64 = LEEWAY_SECONDS * 1_000_000_000;
    Timestamp::from_nanos(time.nanos().saturating_add(LEEWAY_NS))
}

/// Identifies an account before it has a number: SHA-256(issuer, 0, subject).
///
/// The issuer is configured, not received, and contains no zero byte, so no two pairs hash the same
/// text. The first byte chooses the shard: [`paperbourse_core::ids::ShardId::of_digest`].
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
    /// `TOKEN_EXPIRED`: it was valid once; a fresh token of the same kind will be accepted.
    #[error("the access token expired at {expired_at}")]
    Expired {
        /// When it expired, without leeway.
        expired_at: Timestamp,
    },
    /// `IDENTITY_UNAVAILABLE`: the keys needed to check it could not be fetched.
    #[error("the access token cannot be checked: the identity provider does not respond")]
    Unavailable {
        /// Seconds until the next request to the issuer, at least 1.
        retry_after_seconds: u64,
    },
    /// `INVALID_TOKEN`: it was never valid here, or is not valid yet.
    #[error("the access token {0}")]
    Invalid(TokenFlaw),
}

impl TokenError {
    /// Whether keys that the issuer has published since could change the outcome.
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
    /// An `Authorization` header other than `Bearer TEXT`.
    #[error(
        "cannot be read: the header is `Authorization: Bearer`, a space, and the key or token; \
         a key may come as `X-API-Key`, too"
    )]
    Scheme,
    /// Not three parts of base64 with JSON of the expected types inside.
    #[error("is not a JSON web token, nor an API key, which begins with `ps_live_`")]
    Malformed,
    /// Signed with an algorithm that the source does not use.
    #[error("is not signed with the algorithm of the identity source")]
    Algorithm,
    /// It proves to a client who has signed in, but grants no access.
    #[error("is an ID token: send the access token, whose `aud` names this server")]
    IdToken,
    /// Its `typ` header marks it as something other than an access token.
    #[error("is not an access token: its `typ` header says otherwise")]
    Type,
    /// Its `crit` header requires extensions; this server supports none.
    #[error("requires an extension that is not supported")]
    Extension,
    /// It names a key that is not published or not meant for signatures, or names none.
    #[error("names no key that the issuer publishes for signatures")]
    UnknownKey,
    /// Signed by another key, or modified since.
    #[error("has a signature that does not match")]
    Signature,
    /// Signed by the key of another server with a built-in issuer, or modified since.
    #[error(
        "is signed by another key: run `paperbourse token --data DIR` with this server's folder"
    )]
    OtherServer,
    /// A required claim is missing or has the wrong type.
    #[error("has no usable claim `{claim}`")]
    MissingClaim {
        /// The claim's name.
        claim: &'static str,
    },
    /// Not from the configured issuer.
    #[error("comes from another issuer")]
    Issuer,
    /// Issued for another service.
    #[error("is for another audience")]
    Audience,
    /// Empty, or longer than [`SUBJECT_CHARS_MAX`].
    #[error("names no user: `sub` must have 1 to {SUBJECT_CHARS_MAX} characters")]
    Subject,
    /// Its validity starts in the future.
    #[error("is not valid before {begins_at}")]
    NotYetValid {
        /// When it becomes valid, without leeway.
        begins_at: Timestamp,
    },
    /// It claims to have been issued in the future.
    #[error("was issued at {issued_at}, which is in the future: compare the clocks")]
    IssuedLater {
        /// The time it claims to have been issued at.
        issued_at: Timestamp,
    },
    /// It entitles to a tier that does not exist.
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
