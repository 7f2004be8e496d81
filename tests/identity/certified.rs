//! A session with a certified provider: sign in, create a key and trade while the provider rotates
//! its keys, goes down and comes back.

use std::path::Path;
use std::time::{Duration, Instant};

use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Client, Response};
use serde_json::json;

use super::provider::{Provider, certificates, packages};

/// The market that every simulated venue has and never closes.
const MARKET: &str = "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

/// How long the server may take to notice that the provider is back.
const PATIENCE: Duration = Duration::from_secs(30);

const AUDIENCE: [&str; 2] = ["--audience", "paperbourse"];

fn serve(data: &Path, issuer: &str, flags: &[&str]) -> ServerProcess {
    let source = format!("oidc:{issuer}");
    let fixed = ["--journal-segment-bytes", "1048576", "--identity", &source];
    ServerProcess::start(super::BINARY, data, &[&fixed, &AUDIENCE[..], flags].concat())
}

fn with_token(server: &ServerProcess, token: &str) -> Client {
    Client::with_token(server.address, token)
}

fn balance(server: &ServerProcess, token: &str) -> Response {
    with_token(server, token).get("/v1/account/balance")
}

/// Opens the account of this token and returns its first key.
#[track_caller]
fn bootstrap(server: &ServerProcess, token: &str, tier: &str) -> String {
    let body = json!({"tier": tier});
    let key = with_token(server, token).post("/v1/keys/bootstrap", &body).ok(201);
    assert_eq!(key["rate_limit_tier"], tier);
    key["raw_key"].as_str().unwrap().to_owned()
}

#[track_caller]
fn buy(server: &ServerProcess, key: &str) {
    let mut client = Client::with_key(server.address, key);
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10});
    let trade = client.post("/trade", &order).ok(200);
    assert_eq!(trade["status"], "FILLED", "{trade}");
}

#[test]
fn a_user_trades_while_the_provider_rotates_its_keys_and_restarts() {
    let Some(packages) = packages() else { return };
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut provider = Provider::start(&packages, folder.path(), 0, false);
    let claim = ["--tier-claim", "https://example.org/tier"];
    let server = serve(data.path(), &provider.issuer, &claim);

    // Every key of the provider signs for the same user; the token entitles them to `pro`.
    let first = provider.token("RS256");
    let key = bootstrap(&server, &first, "pro");
    buy(&server, &key);
    for algorithm in ["ES256", "EdDSA"] {
        let token = provider.token(algorithm);
        let answer = balance(&server, &token).ok(200);
        assert_ne!(answer["balance"], "1000", "{algorithm}: {answer}");
        let again = with_token(&server, &token).post("/v1/keys/bootstrap", &json!({}));
        assert_eq!(again.ok(400)["error"], "BOOTSTRAP_NOT_ALLOWED", "{algorithm}");
    }

    // New keys work from the first request, and the old ones stay valid.
    provider.rotate();
    let second = provider.token("RS256");
    balance(&server, &second).ok(200);
    balance(&server, &first).ok(200);

    // Without the provider, known keys keep working.
    let port = provider.port();
    drop(provider);
    balance(&server, &first).ok(200);
    balance(&server, &second).ok(200);
    buy(&server, &key);

    // After a restart it has the same keys, and its new tokens are accepted.
    let mut provider = Provider::start(&packages, folder.path(), port, false);
    let third = provider.token("ES256");
    balance(&server, &third).ok(200);
    server.interrupt();
}

#[test]
fn a_server_starts_without_its_provider_and_accepts_its_tokens_later() {
    let Some(packages) = packages() else { return };
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut provider = Provider::start(&packages, folder.path(), 0, false);
    let token = provider.token("EdDSA");
    let (issuer, port) = (provider.issuer.clone(), provider.port());
    let server = serve(data.path(), &issuer, &[]);
    let key = bootstrap(&server, &token, "free");
    server.interrupt();
    drop(provider);

    let server = serve(data.path(), &issuer, &[]);
    let refused = balance(&server, &token).ok(503);
    assert_eq!(refused["error"], "IDENTITY_UNAVAILABLE");
    buy(&server, &key);

    let _provider = Provider::start(&packages, folder.path(), port, false);
    let since = Instant::now();
    while balance(&server, &token).status == 503 {
        assert!(since.elapsed() < PATIENCE, "the server did not notice that the provider is back");
    }
    balance(&server, &token).ok(200);
    let log = server.interrupt().join("\n");
    assert!(log.contains("failed to fetch the keys") && log.contains("keys=3"), "{log}");
}

#[test]
fn https_is_trusted_only_with_the_operators_own_authority() {
    let Some(packages) = packages() else { return };
    let (folder, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut provider = Provider::start(&packages, folder.path(), 0, true);
    let token = provider.token("RS256");

    let authority = certificates().join("authority.pem");
    let flags = ["--identity-ca", authority.to_str().unwrap()];
    let server = serve(data.path(), &provider.issuer, &flags);
    bootstrap(&server, &token, "free");
    server.interrupt();

    // A certificate that signed nothing.
    let stranger = certificates().join("localhost.pem");
    let flags = ["--identity-ca", stranger.to_str().unwrap()];
    let server = serve(data.path(), &provider.issuer, &flags);
    let refused = balance(&server, &token).ok(503);
    assert_eq!(refused["error"], "IDENTITY_UNAVAILABLE");
    let log = server.interrupt().join("\n");
    assert!(log.contains("UnknownIssuer"), "{log}");
}
