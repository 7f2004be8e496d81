//! Our own signing keys, and tokens with any header and claims.

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    KeyPair as _, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PKCS1_SHA512, RSA_PSS_SHA256,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// A private key and its id.
pub(crate) struct Signer {
    pub(crate) id: &'static str,
    key: Key,
}

enum Key {
    Rsa(Box<RsaKeyPair>),
    Ec(Box<EcdsaKeyPair>),
    Ed(Ed25519KeyPair),
}

impl Signer {
    pub(crate) fn rsa(id: &'static str) -> Self {
        Self { id, key: Key::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).unwrap().into()) }
    }

    pub(crate) fn ec(id: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        Self { id, key: Key::Ec(pair.into()) }
    }

    pub(crate) fn ed(id: &'static str) -> Self {
        Self { id, key: Key::Ed(Ed25519KeyPair::generate().unwrap()) }
    }

    /// The usual algorithm of this kind of key.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self.key {
            Key::Rsa(_) => "RS256",
            Key::Ec(_) => "ES256",
            Key::Ed(_) => "EdDSA",
        }
    }

    /// The public key as its issuer publishes it, with these members added.
    pub(crate) fn jwk(&self, members: &Value) -> Value {
        let public = self.public();
        let mut jwk = match &self.key {
            Key::Rsa(_) => {
                let (n, e) = rsa_components(&public);
                json!({"kty": "RSA", "n": base64url(n), "e": base64url(e)})
            }
            Key::Ec(_) => {
                let (x, y) = public[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": base64url(x), "y": base64url(y)})
            }
            Key::Ed(_) => json!({"kty": "OKP", "crv": "Ed25519", "x": base64url(&public)}),
        };
        jwk["kid"] = self.id.into();
        for (name, value) in members.as_object().unwrap() {
            jwk[name] = value.clone();
        }
        jwk
    }

    /// The public key: a PKCS #1 structure, a point, or 32 bytes.
    pub(crate) fn public(&self) -> Vec<u8> {
        match &self.key {
            Key::Rsa(pair) => pair.public_key().as_ref().to_vec(),
            Key::Ec(pair) => pair.public_key().as_ref().to_vec(),
            Key::Ed(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    /// Signs with this algorithm if the key supports it, otherwise with the key's usual one.
    pub(crate) fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.key {
            Key::Rsa(pair) => {
                let mut signature = vec![0; 256];
                let padding: &dyn aws_lc_rs::signature::RsaEncoding = match algorithm {
                    "RS384" => &RSA_PKCS1_SHA384,
                    "RS512" => &RSA_PKCS1_SHA512,
                    "PS256" => &RSA_PSS_SHA256,
                    _ => &RSA_PKCS1_SHA256,
                };
                pair.sign(padding, &random, message, &mut signature).unwrap();
                signature
            }
            Key::Ec(pair) => pair.sign(&random, message).unwrap().as_ref().to_vec(),
            Key::Ed(pair) => pair.sign(message).as_ref().to_vec(),
        }
    }

    /// An ECDSA signature in the encoding of X.509, which is invalid in a token.
    pub(crate) fn sign_as_certificate(message: &[u8]) -> Vec<u8> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).unwrap();
        pair.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }

    /// A token with these claims and this header, completed with the usual members.
    pub(crate) fn token(&self, header: &Value, claims: &Value) -> String {
        let mut whole = json!({"alg": self.algorithm(), "kid": self.id, "typ": "at+jwt"});
        merge(&mut whole, header);
        self.token_of_texts(&whole.to_string(), &claims.to_string())
    }

    /// A token with these exact texts, which a JSON library might not write.
    pub(crate) fn token_of_texts(&self, header: &str, claims: &str) -> String {
        let algorithm = serde_json::from_str::<Value>(header).ok();
        let algorithm = algorithm.as_ref().and_then(|header| header["alg"].as_str());
        let message = message(header, claims);
        let signature = self.sign(algorithm.unwrap_or_default(), message.as_bytes());
        format!("{message}.{}", base64url(&signature))
    }
}

/// The modulus and the exponent in an RSA public key of 2048 bits.
pub(crate) fn rsa_components(public: &[u8]) -> (&[u8], &[u8]) {
    assert_eq!(public.len(), 270, "a modulus of 256 bytes and an exponent of three");
    (&public[9..265], &public[267..])
}

/// The part of a token that is signed.
pub(crate) fn message(header: &str, claims: &str) -> String {
    format!("{}.{}", base64url(header.as_bytes()), base64url(claims.as_bytes()))
}

/// Overwrites members of `target` with `changes`; a null removes one.
pub(crate) fn merge(target: &mut Value, changes: &Value) {
    let target = target.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            target.remove(name);
        } else {
            target.insert(name.clone(), value.clone());
        }
    }
}

/// The Unix time in seconds.
pub(crate) fn now() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(elapsed.as_secs()).unwrap()
}

pub(crate) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
