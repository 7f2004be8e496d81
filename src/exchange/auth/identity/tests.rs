use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use paperbourse_store::key_file::{KeyFile, KeyFileError};
use serde_json::{Value, json};

use super::embedded::{EMBEDDED_AUDIENCE, EMBEDDED_ISSUER, IssuerError, MintError};
use super::*;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

fn issuer() -> EmbeddedIssuer {
    EmbeddedIssuer::in_memory().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(NOW.seconds() + seconds)
}

/// Valid claims with these changes; null removes a claim.
fn claims(changes: &Value) -> Value {
    let mut claims = json!({
        "iss": EMBEDDED_ISSUER, "aud": EMBEDDED_AUDIENCE, "sub": "ada",
        "iat": NOW.seconds(), "exp": NOW.seconds() + 3600,
    });
    let map = claims.as_object_mut().unwrap();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            map.remove(name);
        } else {
            map.insert(name.clone(), value.clone());
        }
    }
    claims
}

fn eddsa() -> Header {
    Header::new(Algorithm::EdDSA)
}

pub(super) fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn assemble(header: &Value, payload: &Value, signature: &[u8]) -> String {
    let [header, payload] = [header, payload].map(|part| base64url(part.to_string().as_bytes()));
    format!("{header}.{payload}.{}", base64url(signature))
}

#[test]
fn a_minted_token_verifies() {
    let issuer = issuer();
    for (subject, tier) in [
        ("ada", None),
        ("Ada Lovelace <ada@example.org>", Some(Tier::Free)),
        ("é\0\u{1F600}", Some(Tier::Pro)),
        (&"界".repeat(256), Some(Tier::Enterprise)),
    ] {
        let token = issuer.mint(subject, tier, 600, NOW).unwrap();
        let expected = VerifiedIdentity {
            issuer: EMBEDDED_ISSUER.into(),
            subject: subject.into(),
            entitled_tier: tier,
            expires_at: after(600),
        };
        assert_eq!(issuer.verify(&token, NOW), Ok(expected));
    }
    for subject in ["", &"x".repeat(257)] {
        assert_eq!(issuer.mint(subject, None, 600, NOW), Err(MintError::Subject));
    }
}

#[test]
fn times_have_a_leeway_of_exactly_one_minute() {
    let issuer = issuer();
    let expired = |seconds| Err(TokenError::Expired { expired_at: after(seconds) });
    let early = |seconds| Err(TokenFlaw::NotYetValid { begins_at: after(seconds) }.into());
    let before = |time: Timestamp| Timestamp::from_nanos(time.nanos() - 1);
    for (changes, now, expected) in [
        (json!({"exp": NOW.seconds()}), NOW, Ok(())),
        (json!({"exp": NOW.seconds()}), before(after(60)), Ok(())),
        (json!({"exp": NOW.seconds()}), after(60), expired(0)),
        (json!({"exp": NOW.seconds()}), after(1_000_000), expired(0)),
        (json!({"nbf": NOW.seconds()}), after(-60), Ok(())),
        (json!({"nbf": NOW.seconds()}), before(after(-60)), early(0)),
        (json!({"exp": 1_800_000_000.9}), before(after(60)), Ok(())),
        (json!({"exp": 1_800_000_000.9}), after(60), expired(0)),
        (json!({"exp": u64::MAX}), NOW, Ok(())),
        (json!({"exp": 1e300}), NOW, Ok(())),
        (json!({"nbf": -1}), NOW, Ok(())),
        (json!({"exp": 0}), NOW, Err(TokenError::Expired { expired_at: Timestamp::EPOCH })),
    ] {
        let token = issuer.sign(&eddsa(), &claims(&changes));
        let found = issuer.verify(&token, now).map(|_| ());
        assert_eq!(found, expected, "{changes} at {now}");
    }
    let token = issuer.sign(&eddsa(), &claims(&json!({"exp": -1e300})));
    assert!(matches!(issuer.verify(&token, NOW), Err(TokenError::Expired { .. })));
}

#[test]
fn claims_are_checked_even_under_a_valid_signature() {
    let issuer = issuer();
    let missing = |claim| TokenFlaw::MissingClaim { claim };
    for (changes, expected) in [
        (json!({"iss": "https://evil.example"}), TokenFlaw::Issuer),
        (json!({"iss": "Paperbourse"}), TokenFlaw::Issuer),
        (json!({"iss": null}), missing("iss")),
        (json!({"iss": [EMBEDDED_ISSUER]}), TokenFlaw::Malformed),
        (json!({"aud": "another-service"}), TokenFlaw::Audience),
        (json!({"aud": ["another", "service"]}), TokenFlaw::Audience),
        (json!({"aud": []}), TokenFlaw::Audience),
        (json!({"aud": 5}), missing("aud")),
        (json!({"aud": null}), missing("aud")),
        (json!({"exp": null}), missing("exp")),
        (json!({"exp": "2100-01-01"}), TokenFlaw::Malformed),
        (json!({"exp": true}), TokenFlaw::Malformed),
        (json!({"nbf": "soon"}), TokenFlaw::Malformed),
        (json!({"nbf": NOW.seconds() + 61}), TokenFlaw::NotYetValid { begins_at: after(61) }),
        (
            json!({"nbf": 1e300}),
            TokenFlaw::NotYetValid { begins_at: Timestamp::from_nanos(i64::MAX) },
        ),
        (json!({"sub": null}), missing("sub")),
        (json!({"sub": ""}), TokenFlaw::Subject),
        (json!({"sub": "x".repeat(257)}), TokenFlaw::Subject),
        (json!({"sub": 7}), TokenFlaw::Malformed),
        (json!({"tier": "gold"}), TokenFlaw::Tier),
        (json!({"tier": 2}), TokenFlaw::Tier),
        (json!({"iat": NOW.seconds() + 61}), TokenFlaw::IssuedLater { issued_at: after(61) }),
        (json!({"iat": "now"}), TokenFlaw::Malformed),
    ] {
        let token = issuer.sign(&eddsa(), &claims(&changes));
        assert_eq!(issuer.verify(&token, NOW), Err(expected.into()), "{changes}");
    }
    let several = issuer.sign(&eddsa(), &claims(&json!({"aud": ["other", EMBEDDED_AUDIENCE]})));
    assert!(issuer.verify(&several, NOW).is_ok());
}

#[test]
fn an_id_token_is_not_an_access_token() {
    let issuer = issuer();
    let (own, both) = (json!(EMBEDDED_AUDIENCE), json!(["other", EMBEDDED_AUDIENCE]));
    // Whether a token with these claims passes as `JWT` and without `typ`; as `at+jwt` all pass.
    for (changes, passes) in [
        (json!({}), true),
        (json!({"nonce": "x"}), false),
        (json!({"nonce": null}), true),
        (json!({"nonce": {"not": ["a", "text"]}}), false),
        (json!({"at_hash": "x"}), false),
        (json!({"c_hash": "x"}), false),
        (json!({"s_hash": "x"}), false),
        (json!({"nonce": "x", "aud": both}), false),
        // Issued to the client that asked for it, and to nobody else.
        (json!({"azp": own}), false),
        (json!({"azp": own, "aud": [own]}), false),
        (json!({"azp": own, "aud": both}), true),
        (json!({"azp": "a client"}), true),
        (json!({"azp": 5}), true),
        // If the provider states the type, that decides.
        (json!({"typ": "ID"}), false),
        (json!({"typ": "Bearer", "azp": own, "nonce": "x"}), true),
        (json!({"typ": "other"}), true),
        (json!({"typ": "other", "nonce": "x"}), false),
    ] {
        let claims = claims(&changes);
        for (kind, passes) in [
            (Some("at+jwt"), true),
            (Some("application/AT+JWT"), true),
            (Some("JWT"), passes),
            (None, passes),
        ] {
            let header = Header { typ: kind.map(Into::into), ..eddsa() };
            let found = issuer.verify(&issuer.sign(&header, &claims), NOW).map(|_| ());
            let expected = if passes { Ok(()) } else { Err(TokenFlaw::IdToken.into()) };
            assert_eq!(found, expected, "{changes} as {kind:?}");
        }
    }
}

#[test]
fn no_header_chooses_the_algorithm() {
    let issuer = issuer();
    let good = claims(&json!({}));
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        let key = EncodingKey::from_secret(issuer.public_key());
        let token = jsonwebtoken::encode(&Header::new(algorithm), &good, &key).unwrap();
        assert_eq!(issuer.verify(&token, NOW), Err(TokenFlaw::Algorithm.into()), "{algorithm:?}");
    }
    for (algorithm, expected) in [
        ("none", TokenFlaw::Malformed),
        ("None", TokenFlaw::Malformed),
        ("", TokenFlaw::Malformed),
        ("eddsa", TokenFlaw::Malformed),
        ("RS256", TokenFlaw::Algorithm),
        ("ES256", TokenFlaw::Algorithm),
    ] {
        let header = json!({"alg": algorithm, "typ": "JWT"});
        for signature in [&b""[..], &[0; 64]] {
            let token = assemble(&header, &good, signature);
            assert_eq!(issuer.verify(&token, NOW), Err(expected.clone().into()), "{algorithm}");
        }
    }
    // An HMAC keyed with the public key, under a header that claims the right algorithm.
    let key = hmac::Key::new(hmac::HMAC_SHA256, issuer.public_key());
    let tag = hmac::sign(&key, b"anything");
    let token = assemble(&json!({"alg": "EdDSA"}), &good, tag.as_ref());
    assert_eq!(issuer.verify(&token, NOW), Err(TokenFlaw::Signature.into()));
}

#[test]
fn no_header_chooses_the_key() {
    let (issuer, stranger) = (issuer(), issuer());
    let header = Header {
        jku: Some("http://127.0.0.1:1/keys".into()),
        x5u: Some("http://127.0.0.1:1/certificate".into()),
        kid: Some("../../etc/passwd".into()),
        jwk: serde_json::from_value(json!({
            "kty": "OKP", "crv": "Ed25519", "x": base64url(stranger.public_key()),
        }))
        .unwrap(),
        ..eddsa()
    };
    let good = claims(&json!({}));
    let foreign = stranger.sign(&header, &good);
    assert_eq!(issuer.verify(&foreign, NOW), Err(TokenFlaw::Signature.into()));
    let own = issuer.sign(&header, &good);
    assert_eq!(issuer.verify(&own, NOW).unwrap().subject, "ada");

    let critical = Header { crit: Some(vec!["exp".into()]), ..eddsa() };
    let demanding = issuer.sign(&critical, &good);
    assert_eq!(issuer.verify(&demanding, NOW), Err(TokenFlaw::Extension.into()));
}

#[test]
fn a_modified_token_is_refused() {
    let issuer = issuer();
    let token = issuer.mint("ada", Some(Tier::Free), 600, NOW).unwrap();
    for index in 0..token.len() {
        for replacement in ['A', 'z', '.', ' ', '='] {
            let mut changed = token.clone();
            changed.replace_range(index..=index, &replacement.to_string());
            let found = issuer.verify(&changed, NOW);
            assert_eq!(found.is_ok(), changed == token, "byte {index} to {replacement:?}");
        }
        assert!(issuer.verify(&token[..index], NOW).is_err(), "cut at {index}");
    }
    let parts: Vec<_> = token.split('.').collect();
    let richer = base64url(claims(&json!({"tier": "enterprise"})).to_string().as_bytes());
    let tampered = format!("{}.{richer}.{}", parts[0], parts[2]);
    assert_eq!(issuer.verify(&tampered, NOW), Err(TokenFlaw::Signature.into()));
}

#[test]
fn malformed_tokens_are_refused() {
    let issuer = issuer();
    let good = issuer.mint("ada", None, 600, NOW).unwrap();
    let padded = |length: usize| format!("{good}{}", "A".repeat(length - good.len()));
    for (text, expected) in [
        ("", TokenFlaw::Malformed),
        (".", TokenFlaw::Malformed),
        ("..", TokenFlaw::Malformed),
        ("...", TokenFlaw::Malformed),
        ("a.b.c", TokenFlaw::Malformed),
        ("é.\0.\u{1F600}", TokenFlaw::Malformed),
        (&"{".repeat(TOKEN_BYTES_MAX), TokenFlaw::Malformed),
        (&base64url("[".repeat(5000).as_bytes()), TokenFlaw::Malformed),
        (&format!("{good}."), TokenFlaw::Malformed),
        (&format!(" {good}"), TokenFlaw::Malformed),
        (&padded(TOKEN_BYTES_MAX + 1), TokenFlaw::TooLong),
        (&"A".repeat(1 << 20), TokenFlaw::TooLong),
    ] {
        let shown = &text[..text.floor_char_boundary(40)];
        assert_eq!(issuer.verify(text, NOW), Err(expected.into()), "{shown}");
    }
    assert!(issuer.verify(&padded(TOKEN_BYTES_MAX), NOW).is_err());
}

#[test]
fn a_duplicate_claim_is_refused() {
    let issuer = issuer();
    // The library serialises maps, which cannot repeat a name, so this text is signed by hand.
    let header = base64url(br#"{"alg":"EdDSA"}"#);
    let twice = base64url(
        br#"{"iss":"paperbourse","aud":"paperbourse","exp":9999999999,"sub":"ada","sub":"bob"}"#,
    );
    let message = format!("{header}.{twice}");
    let signature = issuer.sign_bytes(message.as_bytes());
    let token = format!("{message}.{signature}");
    assert_eq!(issuer.verify(&token, NOW), Err(TokenFlaw::Malformed.into()));
}

#[test]
fn a_data_directory_keeps_its_issuer() {
    let directory = tempfile::tempdir().unwrap();
    let first = EmbeddedIssuer::open(directory.path()).unwrap();
    let token = first.mint("ada", None, 600, NOW).unwrap();
    let second = IdentitySource::Embedded(EmbeddedIssuer::open(directory.path()).unwrap());
    assert_eq!(second.verify(&token, NOW).unwrap().subject, "ada");
    assert_eq!(issuer().verify(&token, NOW), Err(TokenFlaw::Signature.into()));
}

#[test]
fn an_invalid_key_file_is_named_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    EmbeddedIssuer::open(directory.path()).unwrap();
    let path = KeyFile::Issuer.path(directory.path());
    let whole = std::fs::read(&path).unwrap();
    for content in [&b""[..], b"not a key", &whole[..whole.len() - 1]] {
        std::fs::write(&path, content).unwrap();
        let error = EmbeddedIssuer::open(directory.path()).unwrap_err();
        assert!(matches!(error, IssuerError::File(KeyFileError::Unusable { .. })), "{error}");
        assert!(error.to_string().contains("issuer/ed25519.pk8"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn debug_shows_no_key() {
    assert_eq!(format!("{:?}", issuer()), "EmbeddedIssuer { .. }");
}

#[test]
fn the_digest_covers_issuer_zero_byte_and_subject() {
    // printf 'paperbourse\0ada' | sha256sum
    let expected = "c8029e2e472bafb81da22a69f259b0904d427d8accd3e555447ba472f2e44f6d";
    let digest = identity_digest("paperbourse", "ada");
    let hex = crate::auth::hex(&digest);
    assert_eq!(hex, expected);
    assert_ne!(identity_digest("a", "bc"), identity_digest("ab", "c"));
}
