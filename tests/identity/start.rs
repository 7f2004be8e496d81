//! The sources of identities that a server starts with, and the flags it refuses.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aws_lc_rs::hmac;
use paperbourse_test_support::Client;
use paperbourse_test_support::process::{Process, ServerProcess, command};
use serde_json::{Value, json};

use super::forge::{base64url, merge, message, now};

const SECRET: &[u8] = b"super-secret-jwt-token-with-at-least-32-characters-long";
const ISSUER: &str = "https://project.supabase.co/auth/v1";

fn write_secret(path: &Path, mode: u32) {
    std::fs::write(path, [SECRET, b"\n"].concat()).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A token as Supabase issues it, with these changes to its claims.
fn token(algorithm: &str, secret: &[u8], changes: &Value) -> String {
    let mut claims = json!({
        "iss": ISSUER, "aud": "authenticated", "sub": "3f333df6", "exp": now() + 300,
        "iat": now(), "role": "authenticated", "app_metadata": {"tier": "pro"},
        "user_metadata": {"tier": "enterprise"},
    });
    merge(&mut claims, changes);
    let header = json!({"alg": algorithm, "typ": "JWT", "kid": "anything"});
    let message = message(&header.to_string(), &claims.to_string());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", base64url(tag.as_ref()))
}

#[test]
fn a_supabase_user_opens_an_account_at_the_tier_that_the_project_sets() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    write_secret(&secret, 0o600);
    let source = format!("hs256:{}", secret.display());
    let fixed = ["--journal-segment-bytes", "1048576", "--address-limits", "off"];
    let identity = ["--identity", &source, "--issuer", ISSUER, "--tier-claim", "app_metadata.tier"];
    let data = folder.path().join("data");
    let server = ServerProcess::start(super::BINARY, &data, &[&fixed[..], &identity].concat());
    let bootstrap = |token: &str, tier: &str| {
        let body = json!({"tier": tier});
        let answer = Client::with_token(server.address, token).post("/v1/keys/bootstrap", &body);
        let answered = answer.json();
        (answer.status, answered["error"].as_str().unwrap_or("none").to_owned())
    };
    for (algorithm, secret, changes, tier, expected) in [
        ("HS256", &b"another secret of more than 32 bytes"[..], json!({}), "free", "INVALID_TOKEN"),
        ("none", SECRET, json!({}), "free", "INVALID_TOKEN"),
        ("HS384", SECRET, json!({}), "free", "INVALID_TOKEN"),
        ("RS256", SECRET, json!({}), "free", "INVALID_TOKEN"),
        ("HS256", SECRET, json!({"aud": "anon"}), "free", "INVALID_TOKEN"),
        ("HS256", SECRET, json!({"aud": null, "role": "anon"}), "free", "INVALID_TOKEN"),
        ("HS256", SECRET, json!({"iss": "supabase"}), "free", "INVALID_TOKEN"),
        ("HS256", SECRET, json!({"exp": now() - 61}), "free", "TOKEN_EXPIRED"),
        ("HS256", SECRET, json!({}), "enterprise", "TIER_NOT_AUTHORIZED"),
        ("HS256", SECRET, json!({"app_metadata": {}}), "pro", "TIER_NOT_AUTHORIZED"),
        ("HS256", SECRET, json!({}), "pro", "none"),
    ] {
        let (status, code) = bootstrap(&token(algorithm, secret, &changes), tier);
        assert_eq!(code, expected, "{algorithm} {changes}: {status}");
    }
}

/// The server's error about these flags.
fn refusal(folder: &Path, flags: &str) -> String {
    let flags = flags.replace("FOLDER", folder.to_str().unwrap());
    let output = command(super::BINARY)
        .args(["serve", "--listen", "127.0.0.1:0", "--data", "memory"])
        .args(flags.split_whitespace())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{flags}: the server started");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.contains("super-secret"), "{errors}");
    errors
}

#[test]
fn unsafe_or_useless_flags_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    write_secret(&folder.path().join("secret"), 0o600);
    write_secret(&folder.path().join("open"), 0o644);
    std::fs::write(folder.path().join("ca.pem"), "none").unwrap();
    let hs256 = "--identity hs256:FOLDER/secret --issuer i";
    let oidc = "--identity oidc:https://id.example.org --audience a";
    for (flags, expected) in [
        ("--identity google", "use `embedded`, `oidc:URL` or `hs256:FILE`"),
        ("--identity hs256:FOLDER/secret", "needs --issuer"),
        ("--identity hs256:FOLDER/missing --issuer i", "there is no file"),
        ("--identity hs256:FOLDER/open --issuer i", "(mode 0644); make it private: chmod 600"),
        (&format!("{hs256} --tier-claim user_metadata.tier"), "users can edit what is below"),
        ("--identity oidc:https://id.example.org", "needs --audience"),
        ("--identity oidc:http://id.example.org --audience a", "keys must be fetched over https"),
        (&format!("{oidc} --tier-claim x.user_metadata.tier"), "users can edit what is below"),
        (&format!("{oidc} --identity-ca FOLDER/ca.pem"), "holds no certificate in PEM"),
        (&format!("{oidc} --identity-ca FOLDER/missing"), "cannot read certificates from"),
        ("--audience a", "--identity embedded takes no --audience"),
    ] {
        let errors = refusal(folder.path(), flags);
        assert!(errors.contains(expected), "{flags}: {errors}");
    }
}

/// The complete log of a server with these flags.
fn log_of_a_run(folder: &Path, flags: &str) -> String {
    let flags = flags.replace("FOLDER", folder.to_str().unwrap());
    let mut command = command(super::BINARY);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data", "memory"]);
    command.args(flags.split_whitespace());
    Process::spawn(&mut command).ready().interrupt().join("\n")
}

#[test]
fn the_log_names_the_source_of_identities() {
    let folder = tempfile::tempdir().unwrap();
    write_secret(&folder.path().join("secret"), 0o600);
    for (flags, expected) in [
        ("--identity embedded", "accepting tokens of the embedded issuer"),
        (
            "--identity hs256:FOLDER/secret --issuer https://i.org",
            "accepting tokens signed with a shared secret issuer=\"https://i.org\" \
             audience=\"authenticated\" secret=/",
        ),
        (
            "--identity oidc:http://127.0.0.1:1/realm --audience bourse",
            "accepting tokens of an OIDC provider url=http://127.0.0.1:1/realm audience=\"bourse\"",
        ),
    ] {
        let log = log_of_a_run(folder.path(), flags);
        assert!(log.contains(expected), "{flags}: {log}");
        assert_eq!(log.matches("accepting tokens").count(), 1, "{flags}: {log}");
    }
}
