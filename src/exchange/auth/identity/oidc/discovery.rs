//! Discovers and fetches the keys that a provider publishes (OIDC Discovery 1.0).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use hyper::Uri;
use serde::Deserialize;

use super::key_set::{KeySet, KeySetError};
use paperbourse_venue::client::{Client, ClientError};

/// Size limit of a discovery document, in bytes. Large providers publish less than 10,000.
pub const DISCOVERY_BYTES_MAX: usize = 64 * 1024;

/// Size limit of a key set, in bytes. Sets with certificates take about 20,000.
pub const KEY_SET_BYTES_MAX: usize = 256 * 1024;

/// Length limit of an issuer's address, in bytes.
const URL_BYTES_MAX: usize = 512;

/// An issuer's identifier, which is also its address. Identifiers are compared byte for byte.
#[derive(Clone, PartialEq, Eq)]
pub struct IssuerUrl {
    text: String,
    uri: Uri,
}

/// The error for text that is not an issuer's address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IssuerUrlError {
    /// Not a URL, or a URL with parts that an issuer's address cannot have.
    #[error(
        "not the address of an issuer: use https://HOST/PATH without a query, a fragment or a \
             user, as the `issuer` of its discovery document has it"
    )]
    Malformed,
    /// Plain HTTP: anyone on the network path could replace the keys.
    #[error(
        "keys must be fetched over https; http is for providers on this machine (localhost, \
             127.0.0.1, [::1])"
    )]
    Insecure,
}

impl FromStr for IssuerUrl {
    type Err = IssuerUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > URL_BYTES_MAX || text.contains(['?', '#', '@', '\\']) {
            return Err(IssuerUrlError::Malformed);
        }
        let uri = secure_uri(text)?;
        Ok(Self { text: text.to_owned(), uri })
    }
}

impl IssuerUrl {
    /// Returns the address as written, which tokens must match exactly.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the issuer is reached over TLS.
    pub fn is_https(&self) -> bool {
        is_https(&self.uri)
    }

    fn discovery(&self) -> Uri {
        let base = self.text.strip_suffix('/').unwrap_or(&self.text);
        let address = format!("{base}/.well-known/openid-configuration");
        address.parse().expect("an address with a longer path is an address")
    }
}

impl fmt::Display for IssuerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

impl fmt::Debug for IssuerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, formatter)
    }
}

fn is_https(uri: &Uri) -> bool {
    uri.scheme_str() == Some("https")
}

/// Parses an address that cannot be impersonated on the network path: https, or http on loopback.
fn secure_uri(text: &str) -> Result<Uri, IssuerUrlError> {
    let uri: Uri = text.parse().map_err(|_| IssuerUrlError::Malformed)?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or(IssuerUrlError::Malformed)?;
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if is_loopback(host) => Ok(uri),
        Some("http") => Err(IssuerUrlError::Insecure),
        _ => Err(IssuerUrlError::Malformed),
    }
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The required fields of a discovery document.
#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// The error for keys that could not be fetched.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FetchError {
    /// A document could not be fetched.
    #[error("{address}: {error}")]
    Unreachable {
        /// The requested address.
        address: String,
        /// The error of the request.
        error: ClientError,
    },
    /// The response is not a discovery document.
    #[error("{address} is not JSON with an `issuer` and a `jwks_uri`")]
    Malformed {
        /// The requested address.
        address: String,
    },
    /// The document belongs to another issuer.
    #[error(
        "its discovery document names the issuer {named:?}; if that is the one you want, \
             start with --identity oidc:{named}"
    )]
    OtherIssuer {
        /// The issuer that the document names, truncated if long.
        named: String,
    },
    /// `jwks_uri` points to an address that cannot be trusted.
    #[error("its `jwks_uri` cannot be used: {error}")]
    KeysAddress {
        /// The flaw of the address.
        error: IssuerUrlError,
    },
    /// The key set was fetched, but none of its keys can be used.
    #[error("{address}: {error}")]
    Keys {
        /// The requested address.
        address: String,
        /// The flaw of the key set.
        error: KeySetError,
    },
}

/// Fetches the keys that the issuer currently publishes.
pub async fn fetch(client: &Client, issuer: &IssuerUrl) -> Result<KeySet, FetchError> {
    let address = issuer.discovery();
    let document = get(client, &address, DISCOVERY_BYTES_MAX).await?;
    let keys_address = keys_address(&document, issuer, &address)?;
    let keys = get(client, &keys_address, KEY_SET_BYTES_MAX).await?;
    KeySet::from_json(&keys)
        .map_err(|error| FetchError::Keys { address: shown(&keys_address.to_string()), error })
}

async fn get(client: &Client, address: &Uri, bytes_max: usize) -> Result<bytes::Bytes, FetchError> {
    let document = client.get(address.clone(), bytes_max).await;
    document
        .map_err(|error| FetchError::Unreachable { address: shown(&address.to_string()), error })
}

/// Reads the address of the keys from a discovery document.
fn keys_address(document: &[u8], issuer: &IssuerUrl, address: &Uri) -> Result<Uri, FetchError> {
    let document: Document = serde_json::from_slice(document)
        .map_err(|_| FetchError::Malformed { address: address.to_string() })?;
    if document.issuer != issuer.as_str() {
        return Err(FetchError::OtherIssuer { named: shown(&document.issuer) });
    }
    let failed = |error| FetchError::KeysAddress { error };
    let keys = secure_uri(&document.jwks_uri).map_err(failed)?;
    // A remote provider has no business directing us to this machine.
    if issuer.is_https() && !is_https(&keys) {
        return Err(failed(IssuerUrlError::Insecure));
    }
    Ok(keys)
}

/// Returns the beginning of text that another server sent, safe for a log line.
fn shown(text: &str) -> String {
    const CHARACTERS_MAX: usize = 200;
    text.chars().filter(|c| !c.is_control()).take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_needs_an_address_that_cannot_be_impersonated() {
        for (text, expected) in [
            ("https://id.example.org", Ok("https://id.example.org")),
            ("https://tenant.auth0.com/", Ok("https://tenant.auth0.com")),
            ("https://id.example.org:8443/realms/a", Ok("https://id.example.org:8443/realms/a")),
            ("http://localhost:3000", Ok("http://localhost:3000")),
            ("http://127.8.9.1/x", Ok("http://127.8.9.1/x")),
            ("http://[::1]:3000", Ok("http://[::1]:3000")),
            ("http://id.example.org", Err(IssuerUrlError::Insecure)),
            ("http://localhost.example.org", Err(IssuerUrlError::Insecure)),
            ("http://10.0.0.1", Err(IssuerUrlError::Insecure)),
            ("http://localhost@example.org", Err(IssuerUrlError::Malformed)),
            ("https://a:b@example.org", Err(IssuerUrlError::Malformed)),
            ("https://example.org/?tenant=a", Err(IssuerUrlError::Malformed)),
            ("https://example.org/#a", Err(IssuerUrlError::Malformed)),
            ("https://", Err(IssuerUrlError::Malformed)),
            ("ftp://example.org", Err(IssuerUrlError::Malformed)),
            ("example.org", Err(IssuerUrlError::Malformed)),
            ("/path", Err(IssuerUrlError::Malformed)),
            ("https://exa mple.org", Err(IssuerUrlError::Malformed)),
            ("", Err(IssuerUrlError::Malformed)),
        ] {
            let found = text.parse::<IssuerUrl>().map(|url| url.discovery().to_string());
            let expected = expected.map(|base| format!("{base}/.well-known/openid-configuration"));
            assert_eq!(found, expected, "{text}");
        }
        let long = format!("https://example.org/{}", "x".repeat(URL_BYTES_MAX));
        assert_eq!(long.parse::<IssuerUrl>(), Err(IssuerUrlError::Malformed));
    }

    #[test]
    fn a_document_must_name_its_own_issuer() {
        let insecure = FetchError::KeysAddress { error: IssuerUrlError::Insecure };
        let other = |named: &str| FetchError::OtherIssuer { named: named.to_owned() };
        let malformed = || FetchError::Malformed { address: "https://i.org/d".into() };
        for (issuer, document, expected) in [
            ("https://i.org", r#"{"issuer":"https://i.org","jwks_uri":"https://k.org/k"}"#, Ok(())),
            (
                "http://[::1]",
                r#"{"issuer":"http://[::1]","jwks_uri":"http://localhost/k"}"#,
                Ok(()),
            ),
            ("http://[::1]", r#"{"issuer":"http://[::1]","jwks_uri":"https://k.org/k"}"#, Ok(())),
            (
                "https://i.org",
                r#"{"issuer":"https://i.org/","jwks_uri":"https://k.org/k"}"#,
                Err(other("https://i.org/")),
            ),
            (
                "https://i.org",
                r#"{"issuer":"\u0007https://evil.org","jwks_uri":"https://k.org/k"}"#,
                Err(other("https://evil.org")),
            ),
            (
                "https://i.org",
                r#"{"issuer":"https://i.org","jwks_uri":"http://k.org/k"}"#,
                Err(insecure.clone()),
            ),
            (
                "https://i.org",
                r#"{"issuer":"https://i.org","jwks_uri":"http://127.0.0.1/k"}"#,
                Err(insecure.clone()),
            ),
            (
                "https://i.org",
                r#"{"issuer":"https://i.org","jwks_uri":"file:///etc/passwd"}"#,
                Err(FetchError::KeysAddress { error: IssuerUrlError::Malformed }),
            ),
            ("https://i.org", r#"{"issuer":"https://i.org"}"#, Err(malformed())),
            ("https://i.org", r#"{"issuer":["https://i.org"],"jwks_uri":""}"#, Err(malformed())),
            ("https://i.org", "<html>", Err(malformed())),
            ("https://i.org", "", Err(malformed())),
        ] {
            let address = "https://i.org/d".parse().unwrap();
            let found = keys_address(document.as_bytes(), &issuer.parse().unwrap(), &address);
            assert_eq!(found.map(|_| ()), expected, "{document}");
        }
    }
}
