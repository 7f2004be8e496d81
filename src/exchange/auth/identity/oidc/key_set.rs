//! The keys that an issuer publishes (RFC 7517), reduced to those that may verify a token.
//!
//! Pure. Each key is bound to one algorithm when it is read, and no token can change that. Keys
//! that are not for signatures, or are of an unsupported kind, are skipped, since issuers publish
//! them alongside the usable ones.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, ParsedPublicKey, RSA_PKCS1_2048_8192_SHA256,
    RsaPublicKeyComponents,
};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum number of keys in a set; a larger set is refused. Large providers publish about ten.
pub const KEYS_MAX: usize = 100;

/// Longest key id, in bytes; a key with a longer one is skipped.
const KEY_ID_BYTES_MAX: usize = 256;

/// Accepted sizes of an RSA modulus, in bits: smaller ones can be factored, larger ones are slow to
/// check.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// Longest RSA exponent, in bytes. The usual one takes three.
const RSA_EXPONENT_BYTES_MAX: usize = 5;

/// The accepted algorithms, whatever a token or a key says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SignatureAlgorithm {
    /// RSA with PKCS #1 v1.5 and SHA-256.
    Rs256,
    /// ECDSA over P-256 with SHA-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl SignatureAlgorithm {
    /// All algorithms.
    pub const ALL: [Self; 3] = [Self::Rs256, Self::Es256, Self::EdDsa];

    /// Returns the JWT library's constant for this algorithm.
    pub(super) const fn of_library(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }

    /// Returns the algorithm's name in keys and tokens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

/// A key that may verify tokens.
#[derive(Clone, Debug)]
pub(super) struct PublicKey {
    /// The key's `kid`. An issuer with a single key may omit it.
    id: Option<Box<str>>,
    pub(super) algorithm: SignatureAlgorithm,
    pub(super) key: DecodingKey,
}

/// The usable keys of an issuer; there is at least one.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<PublicKey>,
    /// Number of published keys that cannot be used.
    passed_over: usize,
}

/// The error for a key set that cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeySetError {
    /// Not an object with a list of keys.
    #[error("the key set is not JSON with a list of `keys`")]
    Malformed,
    /// More than [`KEYS_MAX`].
    #[error("the key set has {count} keys; at most {KEYS_MAX} are allowed")]
    TooMany {
        /// Number of keys in the set.
        count: usize,
    },
    /// No key is a public signature key of a supported algorithm.
    #[error("none of the {count} keys is a public key for RS256, ES256 or EdDSA signatures")]
    NoneUsable {
        /// Number of keys in the set.
        count: usize,
    },
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// The members of a JWK that decide whether and how the key is used.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    crv: Option<String>,
    x: Option<String>,
    y: Option<String>,
    n: Option<String>,
    e: Option<String>,
    /// The private part, which no issuer publishes on purpose.
    d: Option<serde::de::IgnoredAny>,
}

impl KeySet {
    /// Parses the key set of an issuer.
    pub fn from_json(document: &[u8]) -> Result<Self, KeySetError> {
        let document: Document<'_> =
            serde_json::from_slice(document).map_err(|_| KeySetError::Malformed)?;
        let count = document.keys.len();
        if count > KEYS_MAX {
            return Err(KeySetError::TooMany { count });
        }
        let readable = document.keys.iter().filter_map(|key| serde_json::from_str(key.get()).ok());
        let keys: Vec<PublicKey> = readable.filter_map(PublicKey::of_jwk).collect();
        if keys.is_empty() {
            return Err(KeySetError::NoneUsable { count });
        }
        let passed_over = count - keys.len();
        Ok(Self { keys, passed_over })
    }

    /// Finds a key by its id, or the first one if several share the id. Without an id, returns the
    /// only key of the set, or `None` if there are several.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&PublicKey> {
        match (id, self.keys.as_slice()) {
            (Some(id), keys) => keys.iter().find(|key| key.id.as_deref() == Some(id)),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }

    /// Returns the number of usable keys.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of published keys that cannot be used.
    pub fn passed_over(&self) -> usize {
        self.passed_over
    }

    /// Whether both sets have the same key ids, in the same order.
    pub fn has_names_of(&self, other: &Self) -> bool {
        let names = |set: &Self| set.keys.iter().map(|key| key.id.clone()).collect::<Vec<_>>();
        names(self) == names(other)
    }
}

impl PublicKey {
    fn of_jwk(jwk: Jwk) -> Option<Self> {
        let algorithm = jwk.algorithm()?;
        let is_meant = jwk.alg.as_deref().is_none_or(|name| name == algorithm.as_str())
            && jwk.purpose.as_deref().is_none_or(|purpose| purpose == "sig")
            && jwk.key_ops.as_ref().is_none_or(|list| list.iter().any(|entry| entry == "verify"));
        let is_short = jwk.kid.as_ref().is_none_or(|id| id.len() <= KEY_ID_BYTES_MAX);
        if !is_meant || !is_short || jwk.d.is_some() {
            return None;
        }
        let key = match algorithm {
            SignatureAlgorithm::Rs256 => DecodingKey::from_rsa_components(&jwk.n?, &jwk.e?),
            SignatureAlgorithm::Es256 => DecodingKey::from_ec_components(&jwk.x?, &jwk.y?),
            SignatureAlgorithm::EdDsa => DecodingKey::from_ed_components(&jwk.x?),
        };
        let key = key.ok().filter(|key| is_sound(key, algorithm))?;
        Some(Self { id: jwk.kid.map(Box::from), algorithm, key })
    }
}

impl Jwk {
    /// Returns the one algorithm accepted for keys of this kind.
    fn algorithm(&self) -> Option<SignatureAlgorithm> {
        match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => Some(SignatureAlgorithm::Rs256),
            ("EC", Some("P-256")) => Some(SignatureAlgorithm::Es256),
            ("OKP", Some("Ed25519")) => Some(SignatureAlgorithm::EdDsa),
            _ => None,
        }
    }
}

/// Whether the key is well formed and of a size that is neither weak nor too slow to check.
fn is_sound(key: &DecodingKey, algorithm: SignatureAlgorithm) -> bool {
    match (algorithm, key.kind()) {
        (SignatureAlgorithm::Rs256, DecodingKeyKind::RsaModulusExponent { n, e }) => {
            let bits = n.first().map_or(0, |first| n.len() * 8 - first.leading_zeros() as usize);
            let components = RsaPublicKeyComponents { n, e };
            RSA_BITS.contains(&bits)
                && e.len() <= RSA_EXPONENT_BYTES_MAX
                && components.to_parsed_public_key(&RSA_PKCS1_2048_8192_SHA256).is_ok()
        }
        // Both coordinates, 32 bytes each, after the byte that marks an uncompressed point.
        (SignatureAlgorithm::Es256, DecodingKeyKind::SecretOrDer(point)) => {
            point.len() == 65 && ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).is_ok()
        }
        (SignatureAlgorithm::EdDsa, DecodingKeyKind::SecretOrDer(point)) => {
            point.len() == 32 && ParsedPublicKey::new(&ED25519, point).is_ok()
        }
        _ => false,
    }
}
