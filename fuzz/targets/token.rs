//! Any credential is refused, or yields what its issuer signed; anything that a provider publishes
//! is a bounded set of keys or an error.
//!
//! The first byte selects the meaning of the rest: `a` for values of the headers `X-API-Key` and
//! `Authorization`, `t` for a token, `s` for a header and claims that are signed here, `k` for a
//! key set, `p` for a path to the tier claim and claims that are signed here. Two parts are
//! separated by a zero byte.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, LazyLock};

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::auth::identity::oidc::OidcIssuer;
use paperbourse::auth::identity::oidc::key_set::{KEYS_MAX, KeySet};
use paperbourse::auth::identity::shared_secret::SharedSecret;
use paperbourse::auth::identity::tier_claim::TierClaim;
use paperbourse::auth::identity::{
    IdentitySource, LEEWAY_SECONDS, SUBJECT_CHARS_MAX, TOKEN_BYTES_MAX, TokenError,
};
use paperbourse::auth::presented::{Precedence, Presented};
use paperbourse::http::error::ApiError;
use paperbourse::ids::Timestamp;
use paperbourse::limits::tier::Tier;
use paperbourse::service::Denied;
use serde_json::Value;

const SECRET: &[u8; 32] = b"a secret of thirty-two bytes ...";
const ISSUER: &str = "https://i.org";
const AUDIENCE: &str = "a";
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// The public key from RFC 8037; nothing here is signed with its private key.
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k",
    "x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

static SOURCES: LazyLock<[IdentitySource; 3]> = LazyLock::new(|| {
    let embedded = EmbeddedIssuer::in_memory().unwrap();
    [
        IdentitySource::Embedded(embedded),
        IdentitySource::SharedSecret(shared_secret("tier")),
        IdentitySource::Oidc(provider()),
    ]
});

pub(crate) fn run(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let (first, second) = match rest.iter().position(|&byte| byte == 0) {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        None => (rest, &rest[..0]),
    };
    match kind {
        b'a' => check_headers(first, second),
        b't' => check_stranger(&String::from_utf8_lossy(rest)),
        b's' => check_signed(&SOURCES[1], "tier", first, second),
        b'k' => {
            if let Ok(keys) = KeySet::from_json(rest) {
                assert!((1..=KEYS_MAX).contains(&keys.key_count()));
                assert!(keys.key_count() + keys.passed_over() <= KEYS_MAX);
            }
        }
        b'p' => {
            let Ok(path) = std::str::from_utf8(first) else { return };
            if path.parse::<TierClaim>().is_ok() {
                assert!(!path.split(['.', '/']).any(|name| name == "user_metadata"));
                let source = IdentitySource::SharedSecret(shared_secret(path));
                check_signed(&source, path, br#"{"alg":"HS256"}"#, second);
            }
        }
        _ => {}
    }
}

fn check_headers(api_key: &[u8], authorization: &[u8]) {
    let header = |value| Some(value).filter(|value: &&[u8]| !value.is_empty());
    for precedence in [Precedence::Key, Precedence::Bearer] {
        let presented = Presented::from_headers(header(api_key), header(authorization), precedence);
        match presented {
            Presented::Token(token) => {
                assert!(authorization.to_ascii_lowercase().contains(&b'b'));
                assert!(!token.starts_with("ps_live_"), "a key is looked up, never verified");
                check_stranger(token);
            }
            Presented::Key(key) => assert!(!key.is_empty()),
            Presented::Nothing | Presented::Unreadable => {}
        }
        assert!(!format!("{presented:?}").contains("ps_live_"));
    }
}

/// The token is not signed by any of the issuers.
fn check_stranger(token: &str) {
    for source in &*SOURCES {
        let error = source.verify(token, NOW).expect_err("no issuer signed it");
        check_refusal(error);
    }
}

/// A refusal is JSON for the client, and a single line in the log.
fn check_refusal(error: TokenError) {
    assert!(!error.to_string().contains(['\n', '\r', '\0']));
    let answer = ApiError::from(Denied::Token(error));
    assert!(answer.status.as_u16() == 401 || answer.status.as_u16() == 503);
    serde_json::from_slice::<serde::de::IgnoredAny>(&answer.body()).expect("errors are JSON");
}

/// What is accepted from a signed token is what it states.
fn check_signed(source: &IdentitySource, path: &str, header: &[u8], claims: &[u8]) {
    let message = format!("{}.{}", base64url(header), base64url(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), message.as_bytes());
    let token = format!("{message}.{}", base64url(tag.as_ref()));
    let identity = match source.verify(&token, NOW) {
        Ok(identity) => identity,
        Err(error) => return check_refusal(error),
    };
    assert!(token.len() <= TOKEN_BYTES_MAX);
    let header: Value = serde_json::from_slice(header).unwrap();
    assert_eq!(header["alg"], "HS256");
    assert!(header["crit"].is_null());
    let claims: Value = serde_json::from_slice(claims).unwrap();
    assert_eq!(claims["iss"], ISSUER);
    assert_eq!(identity.issuer, ISSUER);
    let audience = &claims["aud"];
    let is_ours = |value: &Value| value == AUDIENCE;
    assert!(is_ours(audience) || audience.as_array().is_some_and(|all| all.iter().any(is_ours)));
    assert_eq!(claims["sub"], identity.subject);
    assert!((1..=SUBJECT_CHARS_MAX).contains(&identity.subject.chars().count()));
    assert!(identity.expires_at.seconds() + LEEWAY_SECONDS > NOW.seconds());
    for name in ["nbf", "iat"] {
        // Times may have fractions, of which there is none to lose at this size.
        #[expect(clippy::cast_precision_loss)]
        let latest = (NOW.seconds() + LEEWAY_SECONDS + 1) as f64;
        assert!(claims[name].as_f64().unwrap_or(0.0) < latest, "{name}");
    }
    let names = if path.contains("://") { vec![path] } else { path.split('.').collect() };
    let named = names.iter().try_fold(&claims, |value, name| value.get(name));
    let named = named.and_then(Value::as_str);
    assert_eq!(identity.entitled_tier.map(Tier::as_str), named);
}

fn shared_secret(path: &str) -> SharedSecret {
    static FILE: LazyLock<tempfile::NamedTempFile> = LazyLock::new(|| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), SECRET).unwrap();
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file.path(), private).unwrap();
        file
    });
    let claim = path.parse().unwrap();
    SharedSecret::open(FILE.path(), ISSUER, AUDIENCE, Some(claim)).unwrap()
}

/// A provider whose keys are known.
fn provider() -> Arc<OidcIssuer> {
    let issuer = OidcIssuer::new(ISSUER.parse().unwrap(), AUDIENCE, None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let keys = KeySet::from_json(KEYS.as_bytes()).unwrap();
        // Verifying any well-formed token waits for the keys.
        let token = format!("{}.e30.AA", base64url(br#"{"alg":"EdDSA","kid":"k"}"#));
        let fetch = || std::future::ready(Ok(keys.clone()));
        tokio::select! {
            () = issuer.keep_fresh(fetch) => unreachable!("the refresh never ends"),
            result = issuer.verify_with_newer_keys(&token, NOW) => {
                assert!(matches!(result, Err(TokenError::Invalid(_))), "{result:?}");
            }
        }
    });
    Arc::new(issuer)
}

fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
