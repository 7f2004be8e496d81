//! HS256 with a secret that the provider and this server share, as used by Supabase.

use std::fmt;
use std::path::{Path, PathBuf};

use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use super::tier_claim::TierClaim;
use super::{TokenError, VerifiedIdentity, token};
use paperbourse_core::ids::Timestamp;
use paperbourse_store::key_file::{self, KeyFileError};

/// Shortest secret, in bytes. A shorter secret can be guessed from a single token (RFC 7518,
/// section 3.2).
pub const SECRET_BYTES_MIN: usize = 32;

/// The `aud` claim in Supabase's tokens for signed-in users.
pub const AUDIENCE_DEFAULT: &str = "authenticated";

/// A shared secret, and the checks that a token must pass.
pub struct SharedSecret {
    key: DecodingKey,
    validation: Validation,
    tier_claim: Option<TierClaim>,
}

impl SharedSecret {
    /// Reads the secret from a file that only its owner may access. Blocks on disk I/O.
    ///
    /// A trailing line end is not part of the secret, since editors and `echo` add one.
    pub fn open(
        path: &Path,
        issuer: &str,
        audience: &str,
        tier_claim: Option<TierClaim>,
    ) -> Result<Self, SecretError> {
        let content = key_file::load(path)?;
        let content = content.ok_or_else(|| SecretError::Missing { path: path.into() })?;
        let secret = without_line_end(&content);
        if secret.len() < SECRET_BYTES_MIN {
            return Err(SecretError::TooShort { path: path.into(), byte_count: secret.len() });
        }
        Ok(Self::new(secret, issuer, audience, tier_claim))
    }

    fn new(secret: &[u8], issuer: &str, audience: &str, tier_claim: Option<TierClaim>) -> Self {
        Self {
            key: DecodingKey::from_secret(secret),
            validation: token::validation(Algorithm::HS256, issuer, audience),
            tier_claim,
        }
    }

    /// Verifies a token at the time `now`.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<VerifiedIdentity, TokenError> {
        token::read_header(text)?;
        token::verify(text, &self.key, &self.validation, self.tier_claim.as_ref(), now)
    }
}

impl fmt::Debug for SharedSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedSecret").finish_non_exhaustive()
    }
}

fn without_line_end(content: &[u8]) -> &[u8] {
    let content = content.strip_suffix(b"\n").unwrap_or(content);
    content.strip_suffix(b"\r").unwrap_or(content)
}

/// The error for a secret that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read, or other users can read it.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// The file does not exist.
    #[error("there is no file {}", path.display())]
    Missing {
        /// The configured path.
        path: PathBuf,
    },
    /// The secret is short enough to guess.
    #[error("the secret in {} has {byte_count} bytes; it needs at least {SECRET_BYTES_MIN}",
            path.display())]
    TooShort {
        /// The file.
        path: PathBuf,
        /// Length of the secret, without the trailing line end.
        byte_count: usize,
    },
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use jsonwebtoken::{EncodingKey, Header};
    use serde_json::{Value, json};

    use super::*;
    use crate::auth::identity::TokenFlaw;
    use paperbourse_core::limits::tier::Tier;

    const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
    const ISSUER: &str = "https://abc.supabase.co/auth/v1";
    const SECRET: &[u8] = b"super-secret-jwt-token-with-at-least-32-characters-long";

    fn write(content: &[u8], mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    fn open(content: &[u8], mode: u32) -> Result<SharedSecret, SecretError> {
        let (_folder, path) = write(content, mode);
        let claim = Some("app_metadata.tier".parse().unwrap());
        SharedSecret::open(&path, ISSUER, AUDIENCE_DEFAULT, claim)
    }

    /// Signs a Supabase token whose claims include these changes.
    fn signed(algorithm: Algorithm, secret: &[u8], changes: &Value) -> String {
        let mut claims = json!({
            "iss": ISSUER, "sub": "3f333df6-90a4-4fda-8dd3-9485d27cee36", "aud": "authenticated",
            "exp": NOW.seconds() + 3600, "iat": NOW.seconds(), "email": "ada@example.org",
            "app_metadata": {"provider": "email", "tier": "pro"},
            "user_metadata": {"tier": "enterprise"}, "role": "authenticated",
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let key = EncodingKey::from_secret(secret);
        jsonwebtoken::encode(&Header::new(algorithm), &claims, &key).unwrap()
    }

    #[test]
    fn a_supabase_token_is_accepted() {
        let token = signed(Algorithm::HS256, SECRET, &json!({}));
        for line_end in ["", "\n", "\r\n"] {
            let content = [SECRET, line_end.as_bytes()].concat();
            let found = open(&content, 0o600).unwrap().verify(&token, NOW).unwrap();
            assert_eq!(found.subject, "3f333df6-90a4-4fda-8dd3-9485d27cee36");
            assert_eq!(found.issuer, ISSUER);
            assert_eq!(found.entitled_tier, Some(Tier::Pro));
        }
        let other = open(&[SECRET, b"\n\n"].concat(), 0o600).unwrap();
        assert_eq!(other.verify(&token, NOW), Err(TokenFlaw::Signature.into()));
    }

    #[test]
    fn any_other_token_is_refused() {
        let source = open(SECRET, 0o600).unwrap();
        for (algorithm, secret, changes, expected) in [
            (Algorithm::HS256, &b"another secret"[..], json!({}), TokenFlaw::Signature),
            (Algorithm::HS256, &b""[..], json!({}), TokenFlaw::Signature),
            (Algorithm::HS384, SECRET, json!({}), TokenFlaw::Algorithm),
            (Algorithm::HS512, SECRET, json!({}), TokenFlaw::Algorithm),
            (Algorithm::HS256, SECRET, json!({"aud": "anon"}), TokenFlaw::Audience),
            (Algorithm::HS256, SECRET, json!({"iss": "supabase"}), TokenFlaw::Issuer),
            (Algorithm::HS256, SECRET, json!({"app_metadata": {"tier": 1}}), TokenFlaw::Tier),
        ] {
            let token = signed(algorithm, secret, &changes);
            let found = source.verify(&token, NOW);
            assert_eq!(found, Err(expected.into()), "{algorithm:?} {changes}");
        }
    }

    #[test]
    fn an_unusable_secret_file_is_reported_with_the_fix() {
        let short = [&SECRET[..31], b"\n"].concat();
        for (content, mode, expected) in [
            (SECRET, 0o640, "make it private: chmod 600"),
            (SECRET, 0o604, "make it private: chmod 600"),
            (&short, 0o600, "has 31 bytes; it needs at least 32"),
            (b"", 0o600, "has 0 bytes"),
            (&[b'x'; 5000], 0o600, "longer than any key"),
        ] {
            let error = open(content, mode).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("super-secret"), "{error}");
        }
        let missing = SharedSecret::open(Path::new("/nowhere/secret"), "i", "a", None);
        assert_eq!(missing.unwrap_err().to_string(), "there is no file /nowhere/secret");
    }

    #[test]
    fn debug_shows_no_secret() {
        assert_eq!(format!("{:?}", open(SECRET, 0o600).unwrap()), "SharedSecret { .. }");
    }
}
