//! Whose account it is: access tokens, and the sources that vouch for them.
//!
//! A token is believed when its signature verifies under a key of the one configured source, with
//! the algorithm that the configuration fixes. Nothing that the token says of itself chooses a key,
//! an algorithm or an address to fetch one from: of its header only `alg` is compared, and `kid`,
//! `jwk`, `jku` and `x5u` are never followed. This module does not know accounts; it turns a text
//! into an issuer and a subject, or says why not.

pub mod embedded;
pub mod key_file;

use aws_lc_rs::digest::{Context, SHA256};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{DecodingKey, Validation};
use serde::Deserialize;

use embedded::EmbeddedIssuer;

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
}

impl IdentitySource {
    /// Whom the token stands for, at this time.
    pub fn verify(&self, token: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        match self {
            Self::Embedded(issuer) => issuer.verify(token, now),
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
    /// `INVALID_TOKEN`: it never was good here, or is not yet.
    #[error("the access token {0}")]
    Invalid(TokenFlaw),
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
    /// It demands that its reader understands extensions; this one knows none.
    #[error("demands an extension that is not supported")]
    Extension,
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
    /// It entitles to something that is not a tier.
    #[error("entitles to a tier that does not exist")]
    Tier,
}

impl From<TokenFlaw> for TokenError {
    fn from(flaw: TokenFlaw) -> Self {
        Self::Invalid(flaw)
    }
}

/// The claims that are read here; `iss` and `aud` are compared by the library as well.
#[derive(Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    tier: Option<String>,
}

/// Seconds since 1970, possibly with a fraction, as RFC 7519 has them.
#[derive(Deserialize)]
struct NumericDate(serde_json::Number);

impl NumericDate {
    fn timestamp(&self) -> Timestamp {
        #[expect(clippy::cast_possible_truncation, reason = "the cast saturates, as is meant")]
        let seconds = self.0.as_i64().or_else(|| self.0.as_f64().map(|float| float.floor() as i64));
        Timestamp::from_seconds(seconds.unwrap_or(0))
    }
}

/// What the library has to check: everything but time, for which it would look at a clock.
fn validation(algorithm: jsonwebtoken::Algorithm, issuer: &str, audience: &str) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_required_spec_claims(&["iss", "aud"]);
    validation.set_issuer(&[issuer]);
    validation.set_audience(&[audience]);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation
}

/// Verifies a token under this key, and its times against `now`.
fn verify(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
    now: Timestamp,
) -> Result<VerifiedIdentity, TokenError> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenFlaw::TooLong.into());
    }
    let decoded = jsonwebtoken::decode::<Claims>(token, key, validation)
        .map_err(|error| flaw_of(error.kind()))?;
    if decoded.header.crit.is_some() {
        return Err(TokenFlaw::Extension.into());
    }
    let claims = decoded.claims;
    let expires_at = claims.exp.ok_or(TokenFlaw::MissingClaim { claim: "exp" })?.timestamp();
    let subject = claims.sub.ok_or(TokenFlaw::MissingClaim { claim: "sub" })?;
    let issuer = claims.iss.ok_or(TokenFlaw::MissingClaim { claim: "iss" })?;
    if !is_subject(&subject) {
        return Err(TokenFlaw::Subject.into());
    }
    let entitled_tier =
        claims.tier.map(|name| Tier::parse(&name).ok_or(TokenFlaw::Tier)).transpose()?;
    let begins_at = claims.nbf.as_ref().map_or(Timestamp::EPOCH, NumericDate::timestamp);
    if later_by_leeway(now) < begins_at {
        return Err(TokenFlaw::NotYetValid { begins_at }.into());
    }
    if now >= later_by_leeway(expires_at) {
        return Err(TokenError::Expired { expired_at: expires_at });
    }
    Ok(VerifiedIdentity { issuer, subject, entitled_tier, expires_at })
}

/// Whether a user can have this name.
fn is_subject(text: &str) -> bool {
    (1..=SUBJECT_CHARS_MAX).contains(&text.chars().count())
}

fn later_by_leeway(time: Timestamp) -> Timestamp {
    const LEEWAY_NS: i64 = LEEWAY_SECONDS * 1_000_000_000;
    Timestamp::from_nanos(time.nanos().saturating_add(LEEWAY_NS))
}

fn flaw_of(error: &ErrorKind) -> TokenFlaw {
    match error {
        ErrorKind::InvalidSignature => TokenFlaw::Signature,
        ErrorKind::InvalidAlgorithm | ErrorKind::UnsupportedAlgorithm => TokenFlaw::Algorithm,
        ErrorKind::InvalidIssuer => TokenFlaw::Issuer,
        ErrorKind::InvalidAudience => TokenFlaw::Audience,
        ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => {
            TokenFlaw::MissingClaim { claim: "iss" }
        }
        ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => {
            TokenFlaw::MissingClaim { claim: "aud" }
        }
        _ => TokenFlaw::Malformed,
    }
}

#[cfg(test)]
mod tests;
