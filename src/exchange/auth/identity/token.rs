//! Token rules shared by all identity sources.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::tier_claim::TierClaim;
use super::{
    SUBJECT_CHARS_MAX, TOKEN_BYTES_MAX, TokenError, TokenFlaw, VerifiedIdentity, later_by_leeway,
};
use paperbourse_core::ids::Timestamp;

/// The claims that are read here; `jsonwebtoken` also validates `iss` and `aud`.
#[derive(Deserialize)]
struct Claims<'t> {
    iss: Option<String>,
    #[serde(borrow)]
    aud: Option<&'t RawValue>,
    azp: Option<&'t RawValue>,
    typ: Option<&'t RawValue>,
    nonce: Option<IgnoredAny>,
    at_hash: Option<IgnoredAny>,
    c_hash: Option<IgnoredAny>,
    s_hash: Option<IgnoredAny>,
    sub: Option<String>,
    exp: Option<NumericDate>,
    nbf: Option<NumericDate>,
    iat: Option<NumericDate>,
}

/// Seconds since 1970, possibly with a fraction (RFC 7519).
#[derive(Deserialize)]
struct NumericDate(serde_json::Number);

impl NumericDate {
    fn timestamp(&self) -> Timestamp {
        #[expect(clippy::cast_possible_truncation, reason = "saturating is intended")]
        let seconds = self.0.as_i64().or_else(|| self.0.as_f64().map(|float| float.floor() as i64));
        Timestamp::from_seconds(seconds.unwrap_or(0))
    }
}

/// Returns the checks that the library performs: all but the time checks, for which it would read a
/// clock.
pub(super) fn validation(algorithm: Algorithm, issuer: &str, audience: &str) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.set_required_spec_claims(&["iss", "aud"]);
    validation.set_issuer(&[issuer]);
    validation.set_audience(&[audience]);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation
}

/// Reads the header of a token that is not verified yet.
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

/// Whether a token of this `typ` can be an access token. Issuers also sign logout tokens
/// (`logout+jwt`) and security events (`secevent+jwt`), for the same audience and with the same
/// key.
fn is_access_type(kind: &str) -> bool {
    ["JWT", ACCESS_TYPE].into_iter().any(|known| is_type(kind, known))
}

/// Compares a `typ` value, with or without the `application/` prefix.
fn is_type(kind: &str, known: &str) -> bool {
    let short = kind
        .get(.."application/".len())
        .filter(|prefix| prefix.eq_ignore_ascii_case("application/"));
    short.map_or(kind, |prefix| &kind[prefix.len()..]).eq_ignore_ascii_case(known)
}

/// The `typ` of an access token (RFC 9068).
const ACCESS_TYPE: &str = "at+jwt";

impl Claims<'_> {
    /// Whether these claims are from an ID token, which the same issuer signs with the same key.
    ///
    /// OIDC puts some claims only into ID tokens: the `nonce` of a sign-in, a hash of something
    /// issued together with the token, or the requesting client (`azp`) as the only audience.
    /// Keycloak states the type in a `typ` claim, which takes precedence, because its access tokens
    /// used to carry a `nonce`, too. An ID token with none of these differs from an access token
    /// only in its audience.
    fn are_of_id_token(&self) -> bool {
        match self.typ.map(text_of).as_deref() {
            Some("ID") => return true,
            Some("Bearer") => return false,
            _ => {}
        }
        let of_sign_in = [&self.nonce, &self.at_hash, &self.c_hash, &self.s_hash];
        let is_for_client = self.azp.zip(self.aud).is_some_and(|(client, audience)| {
            let several: Option<Vec<&RawValue>> = serde_json::from_str(audience.get()).ok();
            let audience = match several.as_deref() {
                None => audience,
                Some([only]) => only,
                Some(_) => return false,
            };
            text_of(client) == text_of(audience)
        });
        is_for_client || of_sign_in.into_iter().any(Option::is_some)
    }
}

/// Returns the text of a claim, or its JSON if it is not a string.
fn text_of(value: &RawValue) -> String {
    serde_json::from_str(value.get()).unwrap_or_else(|_| value.get().to_owned())
}

/// Verifies a token whose header has been checked: its signature under this key, and its times
/// against `now`.
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
    let expires_at =
        claims.exp.as_ref().ok_or(TokenFlaw::MissingClaim { claim: "exp" })?.timestamp();
    let subject = claims.sub.clone().ok_or(TokenFlaw::MissingClaim { claim: "sub" })?;
    let issuer = claims.iss.clone().ok_or(TokenFlaw::MissingClaim { claim: "iss" })?;
    if !is_subject(&subject) {
        return Err(TokenFlaw::Subject.into());
    }
    let says_access = decoded.header.typ.is_some_and(|kind| is_type(&kind, ACCESS_TYPE));
    if !says_access && claims.are_of_id_token() {
        return Err(TokenFlaw::IdToken.into());
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
    // Checked last, so that only a token without any other flaw is reported as expired.
    if now >= later_by_leeway(expires_at) {
        return Err(TokenError::Expired { expired_at: expires_at });
    }
    Ok(VerifiedIdentity { issuer, subject, entitled_tier, expires_at })
}

/// Whether `text` can be a subject.
pub(super) fn is_subject(text: &str) -> bool {
    (1..=SUBJECT_CHARS_MAX).contains(&text.chars().count())
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
