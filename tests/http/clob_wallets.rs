//! The venue's interface: wallets that sign, what they get for it, and what they may read.

use std::fmt::Write as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use paperbourse::http::operation::{Access, Verb};
use paperbourse::http::operations::clob::CLOB;
use paperbourse::ids::Timestamp;
use paperbourse_clob::signature::Chain;
use paperbourse_clob::signing::{ApiCredentials, Signer};
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::recording::token_id;
use super::server::{Server, shared_with_clob as server};

const ON: [&str; 2] = ["--clob", "on"];

pub(super) const UNAUTHORIZED: &str = "Unauthorized/Invalid api key";
const NOT_L1: &str = "Invalid L1 Request headers";

pub(super) fn now_s() -> i64 {
    Timestamp::now().seconds()
}

pub(super) fn with(
    request: Request,
    headers: impl IntoIterator<Item = (&'static str, String)>,
) -> Request {
    headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// A request for credentials.
fn ask(server: &Server, method: &'static str, path: &str, signer: &Signer, nonce: u64) -> Response {
    let headers = signer.l1_headers(Chain::Amoy, now_s(), nonce);
    server.send(&with(Request::new(method, path), headers))
}

pub(super) fn create(server: &Server, signer: &Signer, nonce: u64) -> ApiCredentials {
    credentials(&ask(server, "POST", "/auth/api-key", signer, nonce).ok(200))
}

fn credentials(answer: &Value) -> ApiCredentials {
    let text = |field: &str| answer[field].as_str().unwrap().to_owned();
    ApiCredentials {
        api_key: text("apiKey"),
        secret: text("secret"),
        passphrase: text("passphrase"),
    }
}

/// A wallet with credentials.
pub(super) struct Client<'s> {
    pub(super) server: &'s Server,
    pub(super) signer: Signer,
    pub(super) credentials: ApiCredentials,
}

impl<'s> Client<'s> {
    /// The wallet with this number, which no other test uses.
    pub(super) fn new(server: &'s Server, number: u64) -> Self {
        let signer = Signer::new(number);
        let credentials = create(server, &signer, 0);
        Self { server, signer, credentials }
    }

    /// Signs a request; the body is signed as `signed`.
    pub(super) fn sign(
        &self,
        method: &'static str,
        target: &str,
        body: &str,
        signed: &str,
    ) -> Request {
        let path = target.split('?').next().unwrap();
        let request = (method, path, signed.as_bytes());
        let headers = self.credentials.l2_headers(self.signer.address(), now_s(), request);
        let request = with(Request::new(method, target), headers);
        if body.is_empty() { request } else { request.body(body) }
    }

    pub(super) fn call(&self, method: &'static str, target: &str, body: &str) -> Response {
        self.server.send(&self.sign(method, target, body, body))
    }

    pub(super) fn get(&self, target: &str) -> Response {
        self.call("GET", target, "")
    }
}

#[track_caller]
pub(super) fn check_refused(response: &Response, text: &str, reason: &str) {
    assert_eq!(response.status, 401, "{response:?}");
    assert_eq!(response.json(), json!({ "error": text }));
    let shown = response.header("x-paperbourse-reason").unwrap_or_default();
    assert!(shown.starts_with(reason), "{reason:?}: {shown:?}");
    assert_eq!(response.header("x-polysim-code"), None);
}

#[test]
fn a_wallet_gets_the_same_credentials_until_it_deletes_them() {
    let server = Server::unlimited_with(&ON);
    let signer = Signer::new(1);
    let derived = ask(&server, "GET", "/auth/derive-api-key", &signer, 0);
    assert_eq!(derived.status, 400);
    assert_eq!(derived.json(), json!({"error": "Could not derive api key!"}));
    let first = create(&server, &signer, 0);
    assert_eq!(create(&server, &signer, 0), first);
    let second = create(&server, &signer, 7);
    assert_ne!(second, first);

    let server = server.crash_and_restart_with(&ON);
    let derived = ask(&server, "GET", "/auth/derive-api-key", &signer, 0);
    assert_eq!(credentials(&derived.ok(200)), first);
    let client = Client { server: &server, signer: signer.clone(), credentials: first.clone() };
    let keys = client.get("/auth/api-keys").ok(200);
    assert_eq!(keys, json!({"apiKeys": [first.api_key, second.api_key]}));

    assert_eq!(client.call("DELETE", "/auth/api-key", "").ok(200), json!("OK"));
    check_refused(&client.get("/auth/api-keys"), UNAUTHORIZED, "The API key was revoked.");
    let third = create(&server, &signer, 0);
    assert!(third != first && third != second);
    // Both nonces open one account.
    let client = Client { server: &server, signer, credentials: third.clone() };
    let keys = client.get("/auth/api-keys").ok(200);
    assert_eq!(keys, json!({"apiKeys": [second.api_key, third.api_key]}));
}

#[test]
fn what_a_new_wallet_reads() {
    let client = Client::new(server(), 2);
    let token = token_id(0, 0);
    let mut transcript = String::new();
    for (method, target, body) in [
        ("GET", "/auth/ban-status/closed-only", ""),
        ("GET", "/balance-allowance?asset_type=COLLATERAL&signature_type=2", ""),
        ("GET", &format!("/balance-allowance?asset_type=CONDITIONAL&token_id={token}"), ""),
        ("GET", "/balance-allowance/update?asset_type=COLLATERAL&signature_type=0", ""),
        ("GET", "/balance-allowance", ""),
        ("GET", "/balance-allowance?asset_type=cash", ""),
        ("GET", "/balance-allowance?asset_type=COLLATERAL&signature_type=4", ""),
        ("GET", "/balance-allowance?asset_type=CONDITIONAL", ""),
        ("GET", "/balance-allowance?asset_type=CONDITIONAL&token_id=1", ""),
        ("GET", "/data/orders?next_cursor=MA==", ""),
        ("GET", "/data/trades?next_cursor=MA==", ""),
        ("GET", "/data/pre-migration-orders", ""),
        ("GET", "/notifications?signature_type=0", ""),
        ("DELETE", "/notifications?ids=1,2", ""),
        ("GET", "/order-scoring?order_id=0x1", ""),
        ("POST", "/orders-scoring", r#"["0x1","0x2","0x1"]"#),
        ("POST", "/orders-scoring", r#"["0x1",2]"#),
        ("POST", "/orders-scoring", ""),
        ("GET", "/rewards/user?date=2026-01-01", ""),
        ("GET", "/rewards/user/total?date=2026-01-01", ""),
        ("GET", "/rewards/user/markets?date=2026-01-01", ""),
        ("GET", "/rewards/user/percentages", ""),
        ("GET", "/auth/readonly-api-keys", ""),
        ("POST", "/auth/readonly-api-key", ""),
        ("DELETE", "/auth/readonly-api-key", r#"{"key":"k"}"#),
        ("GET", "/auth/builder-api-key", ""),
        ("POST", "/auth/builder-api-key", ""),
        ("DELETE", "/auth/builder-api-key", ""),
    ] {
        let response = client.call(method, target, body);
        let Response { status, text, .. } = &response;
        writeln!(transcript, "# {method} {target} {body}\n{status}\n{text}\n").unwrap();
        assert_eq!(response.status == 200, response.json().get("error").is_none());
    }
    insta::assert_snapshot!(transcript);
}

/// Two clients sign a body with `"` in place of each `'`.
#[test]
fn an_apostrophe_may_be_signed_as_a_quote() {
    let client = Client::new(server(), 3);
    let body = r#"["it's"]"#;
    for signed in [body, r#"["it"s"]"#] {
        let response = server().send(&client.sign("POST", "/orders-scoring", body, signed));
        assert_eq!(response.ok(200), json!({"it's": false}));
    }
    let response = server().send(&client.sign("POST", "/orders-scoring", body, r#"["its"]"#));
    check_refused(&response, UNAUTHORIZED, "POLY_SIGNATURE: not that of this request");
}

#[test]
fn each_flaw_of_a_signed_request_is_named() {
    let client = Client::new(server(), 4);
    let other = Client::new(server(), 5);
    let headers = || {
        let request = ("GET", "/data/orders", &[][..]);
        client.credentials.l2_headers(client.signer.address(), now_s(), request)
    };
    let late = now_s() - 3_600;
    let old =
        client.credentials.l2_headers(client.signer.address(), late, ("GET", "/data/orders", b""));
    for (name, value, reason) in [
        ("POLY_ADDRESS", String::new(), "POLY_ADDRESS: "),
        ("POLY_ADDRESS", other.signer.address().checksummed(), "POLY_ADDRESS: not the wallet"),
        ("POLY_SIGNATURE", String::new(), "POLY_SIGNATURE: not that of this request"),
        ("POLY_TIMESTAMP", "soon".into(), "POLY_TIMESTAMP: should be whole seconds"),
        ("POLY_TIMESTAMP", late.to_string(), "POLY_TIMESTAMP: may lie"),
        ("POLY_API_KEY", String::new(), "POLY_API_KEY: should be a UUID"),
        ("POLY_API_KEY", "00000000-0000-4000-8000-000000000000".into(), "POLY_API_KEY: unknown"),
        ("POLY_API_KEY", other.credentials.api_key.clone(), "POLY_ADDRESS: not the wallet"),
        ("POLY_PASSPHRASE", other.credentials.passphrase.clone(), "POLY_PASSPHRASE: not that of"),
    ] {
        let sent = headers()
            .map(|(field, text)| (field, if field == name { value.clone() } else { text }));
        let response = server().send(&with(Request::get("/data/orders"), sent));
        check_refused(&response, UNAUTHORIZED, reason);
    }
    let response = server().send(&with(Request::get("/data/orders"), old));
    check_refused(&response, UNAUTHORIZED, "POLY_TIMESTAMP: may lie");
    // For another path, another method, and in the name of our own key.
    for request in [Request::get("/data/trades"), Request::new("DELETE", "/notifications")] {
        let response = server().send(&with(request, headers()));
        check_refused(&response, UNAUTHORIZED, "POLY_SIGNATURE: not that of this request");
    }
    for (name, _) in headers() {
        let sent = headers().into_iter().filter(|(field, _)| *field != name);
        let response = server().send(&with(Request::get("/data/orders"), sent));
        let reason = if name == "POLY_API_KEY" { "send POLY_ADDRESS" } else { name };
        check_refused(&response, UNAUTHORIZED, reason);
    }
}

#[test]
fn each_flaw_of_a_wallets_proof_is_named() {
    let signer = Signer::new(6);
    let headers = || signer.l1_headers(Chain::Polygon, now_s(), 0);
    let other = Signer::new(7).l1_headers(Chain::Polygon, now_s(), 0);
    for (name, value, reason) in [
        ("POLY_ADDRESS", "0x1".into(), "POLY_ADDRESS: "),
        ("POLY_ADDRESS", other[0].1.clone(), "POLY_SIGNATURE: not by the wallet"),
        ("POLY_SIGNATURE", "0x".into(), "POLY_SIGNATURE: a signature is"),
        ("POLY_SIGNATURE", other[1].1.clone(), "POLY_SIGNATURE: not by the wallet"),
        ("POLY_TIMESTAMP", "1700000000".into(), "POLY_TIMESTAMP: may lie"),
        ("POLY_NONCE", "-1".into(), "POLY_NONCE: should be a whole number"),
        ("POLY_NONCE", "1".into(), "POLY_SIGNATURE: not by the wallet"),
    ] {
        for (method, path) in [("POST", "/auth/api-key"), ("GET", "/auth/derive-api-key")] {
            let sent = headers()
                .map(|(field, text)| (field, if field == name { value.clone() } else { text }));
            let response = server().send(&with(Request::new(method, path), sent));
            check_refused(&response, NOT_L1, reason);
        }
    }
    check_refused(&server().send(&Request::new("POST", "/auth/api-key")), NOT_L1, "POLY_ADDRESS: ");
}

/// No row that needs a signature answers without one, and none takes another credential for it.
#[test]
fn every_row_that_needs_a_wallet_refuses_others() {
    let account = server().account();
    let mut count = 0;
    for operation in CLOB.iter().filter(|it| !it.is_in_both) {
        let text = match operation.access {
            Access::Wallet => NOT_L1,
            Access::WalletKey(_) => UNAUTHORIZED,
            _ => continue,
        };
        count += 1;
        let request = || Request::new(operation.method.as_str(), operation.path.as_str());
        for request in [request(), request().key(&account.key), request().bearer(&account.token)] {
            let response = server().send(&request);
            assert_eq!(response.status, 401, "{operation:?}: {response:?}");
            assert_eq!(response.json(), json!({ "error": text }), "{operation:?}");
        }
    }
    assert!(count > 20);
    assert!(CLOB.iter().any(|it| it.method == Verb::Delete));
}

/// Wrong credentials of a wallet count against the address like wrong keys, right ones never do.
#[test]
fn wrong_signatures_use_up_the_bucket_of_their_address() {
    let unlimited = "free=unlimited/unlimited/2/5";
    let flags = ["--clob", "on", "--public-rate", "1000/1000", "--tier", unlimited];
    let server = Server::start(&flags);
    let client = Client::new(&server, 8);
    let body = r#"["0x1"]"#;
    let forged = || client.sign("POST", "/orders-scoring", body, "[]");
    let statuses: Vec<u16> = (0..80).map(|_| server.send(&forged()).status).collect();
    assert_eq!(statuses[..40], [401; 40]);
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(client.call("POST", "/orders-scoring", body).status, 200);
    let refused = (0..80).map(|_| {
        let [address, signature, timestamp, _] = Signer::new(9).l1_headers(Chain::Amoy, now_s(), 0);
        let nonce = ("POLY_NONCE", "5".to_owned());
        let headers = [address, signature, timestamp, nonce];
        server.send(&with(Request::new("POST", "/auth/api-key"), headers))
    });
    let limited = refused.into_iter().find(|response| response.status == 429).unwrap();
    assert_eq!(limited.json()["error"], "Too Many Requests");
    assert!(limited.header("retry-after").is_some());
}

#[test]
fn without_the_interface_wallets_are_nobody() {
    let server = Server::unlimited();
    assert_eq!(ask(&server, "POST", "/auth/api-key", &Signer::new(1), 0).status, 404);
    assert!(!server.data().join("wallets").exists());
}

/// A server that lost its master key would hand out other credentials in place of the old ones.
#[test]
fn a_server_does_not_start_without_the_master_key_of_its_wallets() {
    let mut server = Server::unlimited_with(&ON);
    create(&server, &Signer::new(1), 0);
    server.terminate();
    assert!(server.wait().success());
    let (data, key) = (server.data(), server.data().join("wallets/master.key"));
    let refusal = || {
        let mut serve = Command::new(env!("CARGO_BIN_EXE_paperbourse"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--clob", "on", "--data"]).arg(&data);
        let output = serve.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    fs::remove_file(&key).unwrap();
    let text = refusal();
    assert!(text.contains("wallets/master.key is missing, and wallets have credentials"), "{text}");
    assert!(!key.exists(), "no other key takes its place");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    let text = refusal();
    assert!(text.contains("were derived from another master key"), "{text}");
}
