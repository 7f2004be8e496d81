//! The claim that holds the tier to which a token entitles its bearer.
//!
//! Providers put the claim where their rules allow: at the top level, below `app_metadata`, or
//! under a name that is a URL. Pure.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::TokenFlaw;
use paperbourse_core::limits::tier::Tier;

/// Maximum nesting depth of the claim.
const STEPS_MAX: usize = 8;

/// Longest path to the claim, in bytes.
const PATH_BYTES_MAX: usize = 256;

/// The claim that common providers let users edit themselves.
const USERS_OWN: &str = "user_metadata";

/// The path to the tier in a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TierClaim {
    /// Member names, from the outermost object inwards; never empty.
    steps: Box<[Box<str>]>,
}

/// The error for text that is not a path to a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TierClaimError {
    /// Users could grant themselves any tier.
    #[error(
        "users can edit what is below `{USERS_OWN}`: choose a claim that only the provider \
             can set, such as one below `app_metadata`"
    )]
    UsersOwn,
    /// A name is empty, or the path is too long.
    #[error(
        "not a claim: use a name, or up to {STEPS_MAX} names with dots between them, \
             at most {PATH_BYTES_MAX} bytes"
    )]
    Malformed,
}

impl FromStr for TierClaim {
    type Err = TierClaimError;

    /// Parses `tier`, `app_metadata.tier` or `https://example.org/tier`. A URL is a single name,
    /// even if it contains dots.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.split(['.', '/']).any(|name| name == USERS_OWN) {
            return Err(TierClaimError::UsersOwn);
        }
        let names: Vec<&str> =
            if text.contains("://") { vec![text] } else { text.split('.').collect() };
        if text.len() > PATH_BYTES_MAX || names.len() > STEPS_MAX || names.contains(&"") {
            return Err(TierClaimError::Malformed);
        }
        Ok(Self { steps: names.into_iter().map(Box::from).collect() })
    }
}

impl TierClaim {
    /// Returns the claim that the embedded issuer uses.
    pub(super) fn embedded() -> Self {
        Self { steps: [Box::from("tier")].into() }
    }

    /// Returns the tier in these claims, or `None` if the claim is absent or null.
    pub(super) fn read(&self, claims: &RawValue) -> Result<Option<Tier>, TokenFlaw> {
        let mut value = claims;
        for step in &self.steps {
            if !value.get().starts_with('{') {
                return Err(TokenFlaw::Tier);
            }
            let mut reader = serde_json::Deserializer::from_str(value.get());
            let found = reader.deserialize_map(Member { name: step });
            match found.map_err(|_| TokenFlaw::Malformed)? {
                Some(inner) if inner.get() != "null" => value = inner,
                _ => return Ok(None),
            }
        }
        let name: String = serde_json::from_str(value.get()).map_err(|_| TokenFlaw::Tier)?;
        Tier::parse(&name).map(Some).ok_or(TokenFlaw::Tier)
    }
}

/// Finds the member with this name in an object. A duplicate is an error.
struct Member<'n> {
    name: &'n str,
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = members.next_key::<String>()? {
            if name != self.name {
                members.next_value::<IgnoredAny>()?;
            } else if found.replace(members.next_value()?).is_some() {
                return Err(A::Error::custom("duplicate claim"));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_dotted_names_or_a_url() {
        let long = "x".repeat(257);
        for (text, expected) in [
            ("tier", Ok(&["tier"][..])),
            ("app_metadata.tier", Ok(&["app_metadata", "tier"])),
            ("https://example.org/v1.0/tier", Ok(&["https://example.org/v1.0/tier"])),
            ("my_user_metadata.tier", Ok(&["my_user_metadata", "tier"])),
            ("user_metadata", Err(TierClaimError::UsersOwn)),
            ("user_metadata.tier", Err(TierClaimError::UsersOwn)),
            ("a.user_metadata.tier", Err(TierClaimError::UsersOwn)),
            ("https://example.org/user_metadata/tier", Err(TierClaimError::UsersOwn)),
            ("", Err(TierClaimError::Malformed)),
            (".", Err(TierClaimError::Malformed)),
            ("a..b", Err(TierClaimError::Malformed)),
            ("a.b.c.d.e.f.g.h.i", Err(TierClaimError::Malformed)),
            (&long, Err(TierClaimError::Malformed)),
        ] {
            let found = text.parse::<TierClaim>();
            let steps = found.as_ref().map(|claim| claim.steps.iter().map(|step| &**step));
            let steps = steps.map(Iterator::collect::<Vec<&str>>).map_err(|error| *error);
            assert_eq!(steps, expected.map(<[&str]>::to_vec), "{text}");
        }
    }

    #[test]
    fn the_claim_is_found_at_its_path() {
        let check = |path: &str, claims: &str, expected: Result<Option<Tier>, TokenFlaw>| {
            let claims = RawValue::from_string(claims.to_owned()).unwrap();
            let found = path.parse::<TierClaim>().unwrap().read(&claims);
            assert_eq!(found, expected, "{path} in {claims}");
        };
        check("tier", r#"{"tier":"pro"}"#, Ok(Some(Tier::Pro)));
        check("tier", r#"{"t\u0069er":"p\u0072o"}"#, Ok(Some(Tier::Pro)));
        check("tier", r"{}", Ok(None));
        check("tier", r#"{"tier":null}"#, Ok(None));
        check("tier", r#"{"app_metadata":{"tier":"pro"}}"#, Ok(None));
        check("tier", r#"{"tier":"gold"}"#, Err(TokenFlaw::Tier));
        check("tier", r#"{"tier":["pro"]}"#, Err(TokenFlaw::Tier));
        check("tier", r#"{"tier":2}"#, Err(TokenFlaw::Tier));
        check("tier", r#"{"tier":"free","tier":"pro"}"#, Err(TokenFlaw::Malformed));
        check("tier", r#"{"tier":null,"tier":"pro"}"#, Err(TokenFlaw::Malformed));
        check("a.b", r#"{"x":{"b":"free"},"a":{"c":1,"b":"pro"}}"#, Ok(Some(Tier::Pro)));
        check("a.b", r#"{"a.b":"pro"}"#, Ok(None));
        check("a.b", r#"{"a":{}}"#, Ok(None));
        check("a.b", r#"{"a":null}"#, Ok(None));
        check("a.b", r#"{"a":"b"}"#, Err(TokenFlaw::Tier));
        check("a.b", r#"{"a":{"b":"free"},"a":{"b":"pro"}}"#, Err(TokenFlaw::Malformed));
        check("https://x/a.b", r#"{"https://x/a.b":"free"}"#, Ok(Some(Tier::Free)));
    }
}
