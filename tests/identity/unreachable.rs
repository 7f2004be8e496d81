//! Providers that are slow, misreport themselves, or send too much.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use paperbourse::auth::identity::oidc::discovery::{
    DISCOVERY_BYTES_MAX, FetchError, KEY_SET_BYTES_MAX, fetch,
};
use paperbourse::venue::client::Client as Fetcher;
use paperbourse::venue::tls::{Roots, client_config};
use paperbourse_test_support::Client;
use paperbourse_test_support::process::ServerProcess;
use serde_json::{Value, json};

use super::forge::{Signer, now};
use super::scripted::{DISCOVERY, Reply, Scripted};

/// Longer than any request with a token may wait, with slack for a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(15);

fn serve(data: &tempfile::TempDir, provider: &Scripted, flags: &[&str]) -> ServerProcess {
    let source = format!("oidc:{}", provider.issuer());
    let fixed = ["--journal-segment-bytes", "1048576", "--address-limits", "off"];
    let unlimited = ["--tier", "free=unlimited/unlimited/2/5"];
    let identity = ["--identity", &source, "--audience", "paperbourse"];
    ServerProcess::start(
        super::BINARY,
        data.path(),
        &[&fixed[..], &unlimited, &identity, flags].concat(),
    )
}

fn token(signer: &Signer, provider: &Scripted, header: &Value) -> String {
    let claims = json!({
        "iss": provider.issuer(), "aud": "paperbourse", "sub": "ada", "exp": now() + 300,
    });
    signer.token(header, &claims)
}

fn ask(address: SocketAddr, token: &str) -> (u16, String) {
    let answer = Client::with_token(address, token).get("/v1/keys");
    (answer.status, answer.text)
}

#[test]
fn a_silent_provider_delays_no_other_request() {
    let signer = Signer::ed("ed");
    let provider = Scripted::start(&json!([signer.jwk(&json!({}))]));
    provider.reply(DISCOVERY, Reply::Silence);
    let data = tempfile::tempdir().unwrap();
    let server = serve(&data, &provider, &["--workers", "1"]);
    let token = token(&signer, &provider, &json!({}));
    let since = Instant::now();
    let address = server.address;
    let waiting = std::thread::spawn(move || ask(address, &token));
    // The only worker keeps answering other requests while that one waits for its keys.
    let mut others = 0;
    while !waiting.is_finished() {
        assert_eq!(Client::anonymous(server.address).get("/v1/keys/tiers").status, 200);
        others += 1;
    }
    assert!(others > 1, "{others} other requests were answered");
    let (status, body) = waiting.join().unwrap();
    assert!(status == 503 && body.contains("IDENTITY_UNAVAILABLE"), "{status} {body}");
    assert!(since.elapsed() < WAIT_MAX, "{:?}", since.elapsed());
}

#[test]
fn a_server_that_takes_over_knows_the_providers_keys_by_then() {
    let signer = Signer::ed("ed");
    let provider = Scripted::start(&json!([signer.jwk(&json!({}))]));
    let data = tempfile::tempdir().unwrap();
    let mut server = serve(&data, &provider, &[]);
    let next = serve(&data, &provider, &["--take-over"]);
    assert!(server.wait().success());
    assert_eq!(ask(next.address, &token(&signer, &provider, &json!({}))).0, 200);
    let log = next.interrupt();
    let place = |text: &str| log.iter().position(|line| line.contains(text)).expect(text);
    assert!(place("fetched the keys") < place("taking over"), "{log:?}");
}

#[test]
fn many_unknown_keys_cause_one_fetch_which_finds_a_new_key() {
    let (old, new) = (Signer::ed("old"), Signer::ec("new"));
    let provider = Scripted::start(&json!([old.jwk(&json!({}))]));
    let data = tempfile::tempdir().unwrap();
    let server = serve(&data, &provider, &[]);
    assert_eq!(ask(server.address, &token(&old, &provider, &json!({}))).0, 200);
    assert_eq!(provider.count("/keys"), 1);

    let both = json!({"keys": [new.jwk(&json!({})), old.jwk(&json!({}))]});
    provider.reply("/keys", Reply::Body(both.to_string()));
    let good = Arc::new(token(&new, &provider, &json!({})));
    let askers: Vec<_> = (0..40)
        .map(|index| {
            let unknown = token(&new, &provider, &json!({"kid": format!("unknown-{index}")}));
            let (address, good) = (server.address, good.clone());
            std::thread::spawn(move || {
                (index, ask(address, if index % 2 == 0 { &good } else { &unknown }))
            })
        })
        .collect();
    for asker in askers {
        let (index, (status, body)) = asker.join().unwrap();
        assert_eq!(status, if index % 2 == 0 { 200 } else { 401 }, "{body}");
    }
    assert_eq!(provider.count("/keys"), 2, "one fetch at the start, one for all unknown keys");
}

#[tokio::test]
async fn a_bad_response_of_a_provider_is_described() {
    let signer = Signer::ed("ed");
    let jwk = signer.jwk(&json!({}));
    let body = |value: &Value| Reply::Body(value.to_string());
    let many: Vec<&Value> = std::iter::repeat_n(&jwk, 101).collect();
    for (path, reply, expected) in [
        (DISCOVERY, Reply::Status(404, "x: y"), "the server answered with status 404"),
        (DISCOVERY, Reply::Status(500, "x: y"), "the server answered with status 500"),
        (DISCOVERY, Reply::Status(302, "location: /keys"), "a redirect (302), which is not"),
        (DISCOVERY, Reply::Status(308, "location: http://[::1]/"), "a redirect (308)"),
        (DISCOVERY, Reply::Silence, "no complete response within 500 ms"),
        (DISCOVERY, Reply::Body("<html>".into()), "is not JSON with an `issuer`"),
        (DISCOVERY, body(&json!({"issuer": "https://i.org", "jwks_uri": ""})), "https://i.org"),
        (DISCOVERY, Reply::Body(" ".repeat(DISCOVERY_BYTES_MAX + 1)), "longer than 65536 bytes"),
        ("/keys", Reply::Status(301, "location: /keys"), "a redirect (301)"),
        ("/keys", Reply::Silence, "no complete response within 500 ms"),
        ("/keys", Reply::Body("{}".into()), "not JSON with a list of `keys`"),
        ("/keys", body(&json!({"keys": []})), "none of the 0 keys"),
        ("/keys", body(&json!({"keys": many})), "has 101 keys; at most 100 are allowed"),
        ("/keys", Reply::Body(" ".repeat(KEY_SET_BYTES_MAX + 1)), "longer than 262144 bytes"),
    ] {
        let provider = Scripted::start(&json!([jwk]));
        let client =
            Fetcher::new(client_config(Roots::Nobody).unwrap(), Duration::from_millis(500), 0);
        let issuer = provider.issuer().parse().unwrap();
        assert_eq!(fetch(&client, &issuer).await.unwrap().key_count(), 1);
        provider.reply(path, reply);
        let error: FetchError = fetch(&client, &issuer).await.unwrap_err();
        assert!(error.to_string().contains(expected), "{path}: {error}");
    }
    // Nothing listens on this port.
    let client = Fetcher::new(client_config(Roots::Nobody).unwrap(), Duration::from_secs(5), 0);
    let error = fetch(&client, &"http://127.0.0.1:1".parse().unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
}
