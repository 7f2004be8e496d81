//! Every known way to forge or tamper with a token, in one table, against a running server.

use aws_lc_rs::hmac;
use paperbourse_test_support::Client;
use paperbourse_test_support::process::ServerProcess;
use serde_json::{Value, json};

use super::forge::{Signer, base64url, merge, message, now, rsa_components};
use super::scripted::Scripted;

/// The keys of a provider, and one that it never published.
struct Keys {
    rsa: Signer,
    ec: Signer,
    ed: Signer,
    /// Published, but for encryption.
    encryption: Signer,
    /// Published, but for another algorithm.
    other_algorithm: Signer,
    /// Published with its private part.
    leaked: Signer,
    /// Not published.
    stranger: Signer,
}

impl Keys {
    fn new() -> Self {
        Self {
            rsa: Signer::rsa("rsa"),
            ec: Signer::ec("ec"),
            ed: Signer::ed("ed"),
            encryption: Signer::rsa("encryption"),
            other_algorithm: Signer::rsa("other-algorithm"),
            leaked: Signer::ed("leaked"),
            stranger: Signer::rsa("rsa"),
        }
    }

    fn published(&self) -> Value {
        json!([
            self.rsa.jwk(&json!({"use": "sig", "alg": "RS256"})),
            self.ec.jwk(&json!({"key_ops": ["verify"]})),
            self.ed.jwk(&json!({"alg": "EdDSA"})),
            self.encryption.jwk(&json!({"use": "enc"})),
            self.other_algorithm.jwk(&json!({"alg": "RS512"})),
            self.leaked.jwk(&json!({"d": "AAAA"})),
            {"kty": "oct", "kid": "shared", "k": base64url(&[7; 32]), "alg": "HS256"},
            {"kty": "unheard-of", "kid": "new"},
        ])
    }
}

/// A token with a MAC instead of a signature.
fn mac(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = message(&header.to_string(), &claims.to_string());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", base64url(tag.as_ref()))
}

/// The attack, its token, and a part of the refusal's text.
type Row = (String, String, &'static str);

/// Forged and misdeclared signatures.
fn forged(keys: &Keys, good: &Value) -> Vec<Row> {
    const ALGORITHM: &str = "not signed with the algorithm";
    const SIGNATURE: &str = "signature that does not match";
    const MALFORMED: &str = "not a JSON web token";
    let mut rows = Vec::new();
    let mut add = |name: &str, token: String, text| rows.push((name.to_owned(), token, text));
    for name in ["none", "None", "NONE", "nOnE", "", "rs256", "HS1"] {
        for kid in ["rsa", "ec", "ed", "unknown"] {
            let header = json!({"alg": name, "kid": kid}).to_string();
            let message = message(&header, &good.to_string());
            add("alg none, unsigned", format!("{message}."), MALFORMED);
            add("alg none, signed", format!("{message}.{}", base64url(&[1; 64])), MALFORMED);
        }
    }
    let public = keys.rsa.public();
    let (modulus, _) = rsa_components(&public);
    let text = base64url(modulus);
    let pem = format!("-----BEGIN RSA PUBLIC KEY-----\n{text}\n-----END RSA PUBLIC KEY-----\n");
    let secrets = [&public[..], modulus, text.as_bytes(), pem.as_bytes(), b"", &[7; 32]];
    for (secret, kid) in secrets.into_iter().flat_map(|secret| [(secret, "rsa"), (secret, "ec")]) {
        let header = json!({"alg": "HS256", "kid": kid});
        add("the public key as a secret", mac(secret, &header, good), ALGORITHM);
        let header = json!({"alg": "RS256", "kid": "rsa"});
        add("a MAC that says RS256", mac(secret, &header, good), SIGNATURE);
    }
    let header = json!({"alg": "HS256", "kid": "shared"});
    add("a published secret", mac(&[7; 32], &header, good), "no key that");
    for name in ["RS384", "RS512", "PS256"] {
        add(name, keys.rsa.token(&json!({"alg": name}), good), ALGORITHM);
    }
    for (signer, kid) in [(&keys.ec, "rsa"), (&keys.rsa, "ec"), (&keys.ec, "ed"), (&keys.ed, "ec")]
    {
        add("the key of another kind", signer.token(&json!({"kid": kid}), good), ALGORITHM);
    }
    add("the key of a stranger", keys.stranger.token(&json!({}), good), SIGNATURE);
    let jwk = keys.stranger.jwk(&json!({}));
    add("its key in the header", keys.stranger.token(&json!({"jwk": jwk}), good), SIGNATURE);
    let certificate = json!({"x5c": [base64url(&keys.stranger.public())]});
    add("its certificate in the header", keys.stranger.token(&certificate, good), SIGNATURE);

    let whole = keys.ec.token(&json!({}), good);
    let (signed, signature) = whole.rsplit_once('.').unwrap();
    let with = |signature: &[u8]| format!("{signed}.{}", base64url(signature));
    for (name, signature) in [
        ("an ECDSA signature of zeros", vec![0; 64]),
        ("no signature", Vec::new()),
        ("an ECDSA signature of a certificate", Signer::sign_as_certificate(signed.as_bytes())),
    ] {
        add(name, with(&signature), SIGNATURE);
    }
    let (header, claims) = signed.split_once('.').unwrap();
    let mut richer = good.clone();
    merge(&mut richer, &json!({"sub": "somebody else"}));
    let richer = base64url(richer.to_string().as_bytes());
    add("other claims under a signature", format!("{header}.{richer}.{signature}"), SIGNATURE);
    for text in [
        signed.to_owned(),
        format!("{whole}."),
        format!("{whole}.{signature}"),
        format!("{whole}.{signature}.{signature}"),
        format!("{whole}=="),
        format!("{header}.{claims}=.{signature}"),
        format!("{header} .{claims}.{signature}"),
        format!(".{claims}.{signature}"),
        format!("..{signature}"),
        "..".to_owned(),
        "null.null.null".to_owned(),
    ] {
        add("the wrong shape", text, "The access token");
    }
    rows
}

/// Headers that point the server to another key or address.
fn misleading(keys: &Keys, good: &Value, evil: &str) -> Vec<Row> {
    const UNKNOWN: &str = "no key that the issuer publishes";
    let mut rows = Vec::new();
    let mut add = |name: &str, token: String, text| rows.push((name.to_owned(), token, text));
    let long = "k".repeat(5000);
    for kid in [
        "unknown",
        "RSA",
        "rsa ",
        "",
        "../../../../etc/passwd",
        "/dev/null",
        "' OR '1'='1",
        "rsa\0",
        "\u{1b}[2J\r\nSet-Cookie: a=b",
        "${jndi:ldap://127.0.0.1/x}",
        evil,
        &long,
    ] {
        add("a hostile kid", keys.rsa.token(&json!({"kid": kid}), good), UNKNOWN);
    }
    add("no kid, of several keys", keys.rsa.token(&json!({"kid": null}), good), UNKNOWN);
    for kid in [json!(5), json!(["rsa"]), json!({"kid": "rsa"})] {
        add("a kid that is no text", keys.rsa.token(&json!({"kid": kid}), good), "not a JSON");
    }
    for signer in [&keys.encryption, &keys.other_algorithm, &keys.leaked] {
        add("a key for something else", signer.token(&json!({}), good), UNKNOWN);
    }
    for member in ["jku", "x5u"] {
        let token = keys.stranger.token(&json!({member: evil}), good);
        add("the address of a key", token, "signature that does not match");
        let token = keys.stranger.token(&json!({member: evil, "kid": "evil"}), good);
        add("the address of a key", token, UNKNOWN);
    }
    for crit in [json!(["exp"]), json!(["b64"]), json!([])] {
        let header = json!({"crit": crit, "b64": false});
        add("a critical header", keys.rsa.token(&header, good), "requires an extension");
    }
    for kind in ["logout+jwt", "secevent+jwt", "application/dpop+jwt", ""] {
        let token = keys.rsa.token(&json!({"typ": kind}), good);
        add("a token for something else", token, "not an access token");
    }
    let claims = good.to_string();
    let deep =
        format!(r#"{{"alg":"RS256","kid":"rsa","x":{}{}}}"#, "[".repeat(900), "]".repeat(900));
    for header in [
        r#"{"alg":"none","alg":"RS256","kid":"rsa"}"#,
        r#"{"alg":"RS256","kid":"unknown","kid":"rsa"}"#,
        r#"{"kid":"rsa"}"#,
        r#"["RS256"]"#,
        r#"{"alg":["RS256"],"kid":"rsa"}"#,
        r#"{"alg":"RS256","kid":"rsa"} {}"#,
        &deep,
    ] {
        add("a header of another shape", keys.rsa.token_of_texts(header, &claims), "not a JSON");
    }
    rows
}

/// Claims that are refused although a valid key signed them.
fn unfit(keys: &Keys, good: &Value, issuer: &str) -> Vec<Row> {
    const MALFORMED: &str = "not a JSON web token";
    let mut rows = Vec::new();
    for (changes, text) in [
        (json!({"iss": "https://evil.example"}), "comes from another issuer"),
        (json!({"iss": format!("{issuer}/")}), "comes from another issuer"),
        (json!({"iss": issuer.to_uppercase()}), "comes from another issuer"),
        (json!({"iss": null}), "no usable claim `iss`"),
        (json!({"iss": [issuer]}), MALFORMED),
        (json!({"iss": {"a": issuer}}), "no usable claim `iss`"),
        (json!({"aud": "another-service"}), "is for another audience"),
        (json!({"aud": "Paperbourse"}), "is for another audience"),
        (json!({"aud": ["another", "service"]}), "is for another audience"),
        (json!({"aud": []}), "is for another audience"),
        (json!({"aud": ""}), "is for another audience"),
        (json!({"aud": null}), "no usable claim `aud`"),
        (json!({"aud": 5}), "no usable claim `aud`"),
        (json!({"nbf": now() + 300}), "is not valid before"),
        (json!({"nbf": 1e300}), "is not valid before"),
        (json!({"nbf": "soon"}), MALFORMED),
        (json!({"iat": now() + 300}), "in the future"),
        (json!({"iat": [now()]}), MALFORMED),
        (json!({"exp": null}), "no usable claim `exp`"),
        (json!({"exp": "2100-01-01"}), MALFORMED),
        (json!({"exp": true}), MALFORMED),
        (json!({"sub": null}), "no usable claim `sub`"),
        (json!({"sub": ""}), "names no user"),
        (json!({"sub": "x".repeat(257)}), "names no user"),
        (json!({"sub": 7}), MALFORMED),
        (json!({"sub": ["ada"]}), MALFORMED),
        (json!({"app_metadata": {"tier": "root"}}), "a tier that does not exist"),
        (json!({"app_metadata": {"tier": ["enterprise"]}}), "a tier that does not exist"),
        (json!({"app_metadata": "enterprise"}), "a tier that does not exist"),
        (json!({"padding": "x".repeat(7000)}), "is longer than 8192 bytes"),
    ] {
        let mut claims = good.clone();
        merge(&mut claims, &changes);
        let mut name = changes.to_string();
        name.truncate(60);
        rows.push((name, keys.ed.token(&json!({}), &claims), text));
    }
    // ID tokens: the provider issues them only to the client that signs the user in.
    for claims in [
        json!({"nonce": "n-0S6_WzA2Mj"}),
        json!({"at_hash": "77QmUPtjPfzWtF2AnpK9RQ"}),
        json!({"c_hash": "LDktKdoQak3Pk0cnXxCltA"}),
        json!({"azp": "paperbourse"}),
        json!({"typ": "ID"}),
    ] {
        for kind in [json!("JWT"), json!(null)] {
            let mut id_token = good.clone();
            merge(&mut id_token, &json!({"aud": "paperbourse"}));
            merge(&mut id_token, &claims);
            let token = keys.ed.token(&json!({"typ": kind}), &id_token);
            rows.push((claims.to_string(), token, "is an ID token"));
        }
    }
    let twice = |member: &str| {
        let text = good.to_string();
        format!("{},{member}}}", text.strip_suffix('}').unwrap())
    };
    let deep = format!("{}1{}", r#"{"sub":"#.repeat(500), "}".repeat(500));
    for claims in [
        twice(r#""sub":"somebody else""#),
        twice(r#""s\u0075b":"somebody else""#),
        twice(r#""exp":9999999999"#),
        twice(r#""aud":"another""#),
        twice(r#""app_metadata":{},"app_metadata":{"tier":"enterprise"}"#),
        twice(r#""app_metadata":{"tier":"free","tier":"enterprise"}"#),
        "[]".to_owned(),
        "null".to_owned(),
        "\u{feff}{}".to_owned(),
        format!("{good}{good}"),
        deep,
    ] {
        let header = json!({"alg": "EdDSA", "kid": "ed"}).to_string();
        let mut name = claims.clone();
        name.truncate(60);
        rows.push((name, keys.ed.token_of_texts(&header, &claims), "The access token"));
    }
    rows
}

#[test]
fn every_attack_on_a_token_is_refused_with_its_code() {
    let keys = Keys::new();
    let provider = Scripted::start(&keys.published());
    let issuer = provider.issuer();
    let source = format!("oidc:{issuer}");
    let data = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(
        super::BINARY,
        data.path(),
        &[
            &["--journal-segment-bytes", "1048576", "--address-limits", "off"][..],
            &["--tier", "free=unlimited/unlimited/2/5", "--identity", &source],
            &["--audience", "paperbourse", "--tier-claim", "app_metadata.tier"],
        ]
        .concat(),
    );
    let ask = |token: &str| {
        let answer = Client::with_token(server.address, token).get("/v1/keys");
        (answer.status, answer.text)
    };
    let good = json!({
        "iss": issuer, "aud": ["paperbourse", "account"], "sub": "ada", "exp": now() + 300,
        "iat": now() + 30, "nbf": now() + 30, "user_metadata": {"tier": "enterprise"},
        "deep": serde_json::from_str::<Value>(&format!("{}{}", "[".repeat(99), "]".repeat(99)))
            .unwrap(),
    });
    // The control: each attack differs from this token in one way.
    let check_good = || {
        for signer in [&keys.rsa, &keys.ec, &keys.ed] {
            for header in [json!({}), json!({"typ": "JWT"}), json!({"typ": null, "jku": issuer})] {
                let (status, body) = ask(&signer.token(&header, &good));
                assert_eq!((status, body.as_str()), (200, "[]"), "{} {header}", signer.id);
            }
        }
    };
    check_good();
    let evil = format!("{issuer}/evil");
    let mut rows = forged(&keys, &good);
    rows.extend(misleading(&keys, &good, &evil));
    rows.extend(unfit(&keys, &good, &issuer));
    for (name, token, text) in &rows {
        let (status, body) = ask(token);
        let code = body.contains(r#""error":"INVALID_TOKEN""#);
        assert!(status == 401 && code && body.contains(text), "{name}: {status} {body}");
    }
    for age in [61, 3600] {
        let mut claims = good.clone();
        merge(&mut claims, &json!({"exp": now() - age, "iat": 0, "nbf": 0}));
        for signer in [&keys.rsa, &keys.ec, &keys.ed] {
            let (status, body) = ask(&signer.token(&json!({}), &claims));
            assert!(status == 401 && body.contains("TOKEN_EXPIRED"), "{age}: {status} {body}");
        }
    }
    assert!(rows.len() > 150, "{} attacks", rows.len());
    check_good();
    assert_eq!(provider.count("/evil"), 0, "the server follows no address in a token");
    assert_eq!(provider.count("/keys"), 2, "one fetch at the start, one for all unknown keys");
}
