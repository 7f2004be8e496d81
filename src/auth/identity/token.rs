//! What a token has to look like and to say, under whichever key: the rules that all sources share.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::tier_claim::TierClaim;
use super::{
    LEEWAY_SECONDS, SUBJECT_CHARS_MAX, TOKEN_BYTES_MAX, TokenError, TokenFlaw, VerifiedIdentity,
};
use crate::ids::Timestamp;

/// The claims that are read here; `iss` and `aud` are compared by the library as well.
#[derive(Deserialize)]
struct Claims {
    iss: Option<String>,
    sub: Option<String>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iat: Option<NumericDate>,
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
pub(super) fn validation(algorithm: Algorithm, issuer: &str, audience: &str) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_required_spec_claims(&["iss", "aud"]);
    validation.set_issuer(&[issuer]);
    validation.set_audience(&[audience]);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation
}

/// Reads the header of a token that nobody has vouched for yet.
pub(super) fn read_header(token: &str) -> Result<Header, TokenFlaw> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(TokenFlaw::TooLong);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|error| flaw_of(error.kind()))?;
    if header.typ.as_deref().is_some_and(|kind| !is_access_type(kind)) {
        return Err(TokenFlaw::Type);
    }
    if header.crit.is_some() {
        return Err(TokenFlaw::Extension);
    }
    Ok(header)
}

/// Whether a token of this `typ` can be meant for us. Issuers also sign, for the same audience and
/// with the same key, that somebody has signed out (`logout+jwt`) or what has happened
/// (`secevent+jwt`).
fn is_access_type(kind: &str) -> bool {
    let short = kind
        .get(.."application/".len())
        .filter(|prefix| prefix.eq_ignore_ascii_case("application/"));
    let kind = short.map_or(kind, |prefix| &kind[prefix.len()..]);
    ["JWT", "at+jwt"].iter().any(|known| kind.eq_ignore_ascii_case(known))
}

/// Verifies a token, whose header was read, under this key, and its times against `now`.
pub(super) fn verify(
    token: &str,
    key: &DecodingKey,
    validation: &Validation,
    tier_claim: Option<&TierClaim>,
    now: Timestamp,
) -> Result<VerifiedIdentity, TokenError> {
    let decoded = jsonwebtoken::decode::<Box<RawValue>>(token, key, validation)
        .map_err(|error| flaw_of(error.kind()))?;
    let claims: Claims =
        serde_json::from_str(decoded.claims.get()).map_err(|_| TokenFlaw::Malformed)?;
    let expires_at = claims.exp.ok_or(TokenFlaw::MissingClaim { claim: "exp" })?.timestamp();
    let subject = claims.sub.ok_or(TokenFlaw::MissingClaim { claim: "sub" })?;
    let issuer = claims.iss.ok_or(TokenFlaw::MissingClaim { claim: "iss" })?;
    if !is_subject(&subject) {
        return Err(TokenFlaw::Subject.into());
    }
    let entitled_tier = tier_claim.map(|claim| claim.read(&decoded.claims)).transpose()?.flatten();
    let begins_at = claims.nbf.as_ref().map_or(Timestamp::EPOCH, NumericDate::timestamp);
    if later_by_leeway(now) < begins_at {
        return Err(TokenFlaw::NotYetValid { begins_at }.into());
    }
    let issued_at = claims.iat.as_ref().map_or(Timestamp::EPOCH, NumericDate::timestamp);
    if later_by_leeway(now) < issued_at {
        return Err(TokenFlaw::IssuedLater { issued_at }.into());
    }
    if now >= later_by_leeway(expires_at) {
        return Err(TokenError::Expired { expired_at: expires_at });
    }
    Ok(VerifiedIdentity { issuer, subject, entitled_tier, expires_at })
}

/// Whether a user can have this name.
pub(super) fn is_subject(text: &str) -> bool {
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
