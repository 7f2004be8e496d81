//! Access tokens, and the identity sources that verify them.
//!
//! A token is accepted if its signature verifies under a key of the configured source, with the
//! algorithm bound to that key. Nothing in the token chooses an algorithm or an address from which
//! to fetch a key. Of the token's header, `alg` is compared, `kid` is looked up among the source's
//! keys, and `jwk`, `jku` and `x5u` are never followed. The result is an issuer and a subject, not
//! an account.
//!
//! Checking a signature takes tens of microseconds, whether it is valid or not. For each address,
//! [`Service::identify`](crate::service::Service::identify) draws from a bucket of failed
//! credentials, which keeps strangers from burning that time at will.

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

/// Longest accepted token, in bytes. A longer token is refused unread. Large providers stay below
/// half of this.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Longest subject, in characters.
pub const SUBJECT_CHARS_MAX: usize = 256;

/// Tolerated difference between the issuer's clock and ours, in seconds.
pub const LEEWAY_SECONDS: i64 = 60;

/// The source of identities, chosen by the operator at startup.
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

    /// Waits until tokens can be verified, which for a provider means that its keys have been
    /// fetched.
    pub async fn ready(&self) {
        if let Self::Oidc(issuer) = self {
            issuer.ready().await;
        }
    }

    /// Verifies like [`Self::verify`], but fetches newer keys if they could change the outcome; see
    /// [`TokenError::may_pass_with_newer_keys`]. Waits at most [`oidc::WAIT_MAX`].
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
    /// The highest tier that the token entitles its bearer to, if the token names one.
    pub entitled_tier: Option<Tier>,
    /// When the token expires, without leeway.
    pub expires_at: Timestamp,
}

impl VerifiedIdentity {
    /// Returns the time from which the token is refused.
    pub const fn refused_from(&self) -> Timestamp {
        later_by_leeway(self.expires_at)
    }
}

/// Returns the latest time that a clock within the leeway may show at `time`.
const fn later_by_leeway(time: Timestamp) -> Timestamp {
    const LEEWAY_NS: i64 = LEEWAY_SECONDS * 1_000_000_000;
    Timestamp::from_nanos(time.nanos().saturating_add(LEEWAY_NS))
}

/// Returns the digest that identifies an account before it has a number: SHA-256(issuer, 0,
/// subject).
///
/// The issuer is configured, not received, and contains no zero byte, so different pairs never
/// produce the same hash input. The first byte selects the shard:
/// [`paperbourse_core::ids::ShardId::of_digest`].
pub fn identity_digest(issuer: &str, subject: &str) -> [u8; 32] {
    debug_assert!(!issuer.contains('\0'), "an issuer has no zero byte");
    let mut context = Context::new(&SHA256);
    context.update(issuer.as_bytes());
    context.update(&[0]);
    context.update(subject.as_bytes());
    super::digest_bytes(&context.finish())
}

/// The error for a refused token.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TokenError {
    /// `TOKEN_EXPIRED`: the token was valid once; a fresh one of the same kind will be accepted.
    #[error("the access token expired at {expired_at}")]
    Expired {
        /// When the token expired, without leeway.
        expired_at: Timestamp,
    },
    /// `IDENTITY_UNAVAILABLE`: the keys needed to verify the token could not be fetched.
    #[error("the access token cannot be checked: the identity provider does not respond")]
    Unavailable {
        /// Seconds until the next request to the issuer, at least 1.
        retry_after_seconds: u64,
    },
    /// `INVALID_TOKEN`: the token was never valid here, or is not valid yet.
    #[error("the access token {0}")]
    Invalid(TokenFlaw),
}

impl TokenError {
    /// Whether keys that the issuer may have published since could change the outcome.
    pub fn may_pass_with_newer_keys(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::Invalid(TokenFlaw::UnknownKey))
    }
}

/// The flaw of an invalid token.
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
    /// An ID token. It tells a client who has signed in, but grants no access.
    #[error("is an ID token: send the access token, whose `aud` names this server")]
    IdToken,
    /// The `typ` header marks the token as something other than an access token.
    #[error("is not an access token: its `typ` header says otherwise")]
    Type,
    /// The `crit` header requires extensions; this server supports none.
    #[error("requires an extension that is not supported")]
    Extension,
    /// The token names no key, or names a key that is not published or not meant for signatures.
    #[error("names no key that the issuer publishes for signatures")]
    UnknownKey,
    /// Signed with another key, or modified since.
    #[error("has a signature that does not match")]
    Signature,
    /// Signed with the key of another server with a built-in issuer, or modified since.
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
    /// Not issued by the configured issuer.
    #[error("comes from another issuer")]
    Issuer,
    /// Issued for another service.
    #[error("is for another audience")]
    Audience,
    /// Empty, or longer than [`SUBJECT_CHARS_MAX`].
    #[error("names no user: `sub` must have 1 to {SUBJECT_CHARS_MAX} characters")]
    Subject,
    /// The token's validity begins in the future.
    #[error("is not valid before {begins_at}")]
    NotYetValid {
        /// When the token becomes valid, without leeway.
        begins_at: Timestamp,
    },
    /// The token claims to have been issued in the future.
    #[error("was issued at {issued_at}, which is in the future: compare the clocks")]
    IssuedLater {
        /// The claimed time of issue.
        issued_at: Timestamp,
    },
    /// The token entitles its bearer to a tier that does not exist.
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
