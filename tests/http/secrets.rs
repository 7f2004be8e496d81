//! No secret appears in a log line, a metric, a file or a tool's output, whatever goes wrong.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use paperbourse::ids::Timestamp;
use paperbourse::key_file::KeyFile;
use paperbourse_clob::signature::Chain;
use paperbourse_clob::signing::{ApiCredentials, Signer};
use paperbourse_test_support::process::{Process, ServerProcess, command};
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::expect::eventually;
use super::recording;
use super::server::printed_token;
use paperbourse_test_support::socket::upgrade;

const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");
const SHARED_SECRET: &str = "a-secret-of-the-house-that-no-one-may-see";
const ISSUER: &str = "https://issuer.example.org";

/// A server whose entire output is kept.
struct Watched {
    folder: TempDir,
    flags: Vec<String>,
    server: ServerProcess,
    admin: SocketAddr,
}

impl Watched {
    fn start(identity: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        recording::write(&folder.path().join("recording"));
        let secret = folder.path().join("secret");
        fs::write(&secret, SHARED_SECRET).unwrap();
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
        let here = |name: &str| folder.path().join(name).display().to_string();
        let venue = format!("recorded:{}", here("recording"));
        let data = here("data");
        let mut flags: Vec<String> = [
            ["--listen", "127.0.0.1:0"],
            ["--admin-listen", "127.0.0.1:0"],
            ["--workers", "2"],
            ["--address-limits", "off"],
            ["--tier", "free=unlimited/unlimited/9/5"],
            ["--key-rate", "unlimited"],
            ["--journal-segment-bytes", "1048576"],
            ["--snapshot-bytes", "1"],
            ["--snapshot-cpu", "100"],
            ["--clob", "on"],
            ["--venue", &venue],
            ["--data", &data],
        ]
        .concat()
        .into_iter()
        .map(String::from)
        .collect();
        flags.extend(identity.iter().map(|flag| flag.replace("SECRET", &here("secret"))));
        let stderr = File::create(folder.path().join("stderr")).unwrap();
        let server = Process::spawn(command(BINARY).arg("serve").args(&flags).stderr(stderr));
        let server = server.ready();
        let line = server.logged("metrics on http://");
        let (_, admin) = line.split_once("metrics on http://").unwrap();
        let admin = admin[..admin.find('/').unwrap_or(admin.len())].trim().parse().unwrap();
        Self { folder, flags, server, admin }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn send(&self, request: &Request) -> Response {
        Connection::open(self.server.address).send(request)
    }

    /// Interrupts the server as an operator would. Returns its log and its standard error.
    fn end(self) -> (TempDir, String) {
        let log = self.server.interrupt().join("\n");
        let errors = fs::read_to_string(self.folder.path().join("stderr")).unwrap();
        (self.folder, log + &errors)
    }
}

/// A tool's standard output and standard error.
fn printed(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
}

/// Collects the files in a folder and its subfolders, with their content.
fn files(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
}

/// The secret part of a raw key, as hex digits and as the bytes they encode. The rest of a key is
/// shown as its prefix.
fn forms_of_key(raw_key: &str) -> [Vec<u8>; 2] {
    let digits = &raw_key[16..];
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
    [digits.into(), (0..digits.len()).step_by(2).map(byte).collect()]
}

/// Uses keys and tokens in every way, rightly and wrongly. Returns the secrets.
fn live(server: &Watched, token: &str) -> Vec<Vec<u8>> {
    let all = json!({"permissions": ["read", "trade", "admin"]});
    let make = |request: Request| server.send(&request);
    let first = make(Request::post("/v1/keys/bootstrap", &all).bearer(token)).ok(201);
    let second = make(Request::post("/v1/keys", &all).bearer(token)).ok(201);
    let rotate = format!("/v1/keys/{}/rotate", second["id"]);
    let third = make(Request::post(rotate, &json!({})).bearer(token)).ok(200);
    let raw = |key: &Value| key["raw_key"].as_str().unwrap().to_owned();
    let key = raw(&first);
    let by_key = |request: Request| server.send(&request.key(&key));
    by_key(Request::patch(format!("/v1/keys/{}", second["id"]), &json!({"name": "bot"}))).ok(200);
    let socket_token = by_key(Request::post("/v1/keys/ws-token", &json!({}))).ok(200);
    let socket_token = socket_token["token"].as_str().unwrap().to_owned();
    let order = by_key(Request::post("/trade", &recording::buy(1))).ok(200);
    let comments = format!("/trades/{}/comments", order["order_id"]);
    // More than one segment, so that the server makes a snapshot.
    let content = json!({"content": "💬".repeat(1000)});
    for _ in 0..300 {
        let comment = by_key(Request::post(&*comments, &content)).ok(200);
        by_key(Request::delete(format!("/comments/{}", comment["id"]))).ok(200);
    }
    by_key(Request::delete(format!("/v1/keys/{}", third["id"]))).ok(200);
    let credentials = live_as_wallet(server);

    let nobodys = format!("ps_live_{}", "5a".repeat(32));
    let tampered = format!("{token}A");
    let wrong = [&key, &raw(&third), &nobodys, token, &tampered, &socket_token, SHARED_SECRET];
    for text in wrong {
        let bad_bodies = [
            (Request::post("/v1/keys", &json!({"tier": text, "permissions": [text]})), 422),
            (Request::post("/v1/keys", &json!({"name": [text]})), 422),
            (Request::new("POST", "/v1/keys").body(format!("{{\"name\":{text}")), 422),
            (Request::new("POST", "/trade").body(format!("{{\"side\":\"{text}\",")), 422),
            (Request::post("/trade", &json!({"market_id": text, "side": text})), 422),
            (Request::patch(format!("/v1/keys/{text}"), &json!({"name": 1})), 422),
            (Request::get(format!("/v1/orders?limit={text}")), 422),
            (Request::get(format!("/{text}")), 404),
        ];
        for (request, status) in bad_bodies {
            assert_eq!(by_key(request).status, status, "{text}");
        }
        for request in [
            Request::get("/v1/account/balance").key(&format!("{text}x")),
            Request::get("/v1/account/balance").bearer(&format!("{text}x")),
            Request::get("/v1/account/balance").header("authorization", format!("Basic {text}")),
            Request::post("/v1/keys/bootstrap", &json!({})).bearer(&format!("x{text}")),
        ] {
            let refused = server.send(&request);
            assert_eq!(refused.status, 401, "{}", refused.text);
            assert!(!refused.text.contains(text), "{}", refused.text);
        }
        let socket = upgrade(&format!("/v1/ws/prices?token={text}")).key(text);
        let mut connection = Connection::open(server.server.address);
        connection.try_write(&socket.to_bytes());
        let mut broken = Connection::open(server.server.address);
        broken.try_write(format!("GET /{text} HTTP/9.9\r\nX-API-Key: {text}\r\n\r\n").as_bytes());
        assert_eq!(broken.read(false).status, 400);
        let large = Request::get("/v1/orders").header("x-padding", text.repeat(1000)).key(text);
        assert_eq!(server.send(&large).status, 431);
    }
    let signature = token.rsplit('.').next().unwrap();
    let claims = token.split('.').nth(1).unwrap();
    let mut secrets: Vec<Vec<u8>> = [&first, &second, &third]
        .iter()
        .flat_map(|key| forms_of_key(&raw(key)))
        .chain(forms_of_key(&nobodys))
        .collect();
    secrets.extend([signature, claims, &socket_token, SHARED_SECRET].map(Into::into));
    secrets.extend(credentials);
    secrets
}

/// Uses the credentials of a wallet, rightly and wrongly. Returns the secrets.
fn live_as_wallet(server: &Watched) -> Vec<Vec<u8>> {
    let signer = Signer::new(1);
    let send = |request: Request, headers: &[(&'static str, String)]| {
        let add = |request: Request, (name, text): &(&'static str, String)| {
            request.header(name, text.clone())
        };
        server.send(&headers.iter().fold(request, add))
    };
    let now_s = Timestamp::now().seconds();
    let proof = signer.l1_headers(Chain::Polygon, now_s, 0);
    let answer = send(Request::new("POST", "/auth/api-key"), &proof).ok(200);
    let text = |field: &str| answer[field].as_str().unwrap().to_owned();
    let (secret, passphrase) = (text("secret"), text("passphrase"));
    let credentials = ApiCredentials { api_key: text("apiKey"), secret, passphrase };
    let request = ("GET", "/auth/api-keys", &[][..]);
    let headers = credentials.l2_headers(signer.address(), now_s, request);
    send(Request::get("/auth/api-keys"), &headers).ok(200);
    let mut forged = headers.clone();
    for at in 0..headers.len() {
        forged[at].1 = format!("{}x", headers[at].1);
        assert_eq!(send(Request::get("/auth/api-keys"), &forged).status, 401);
        let target = format!("/{}?{}={}", headers[at].1.replace('=', ""), at, headers[at].1);
        assert_eq!(send(Request::get(target), &headers).status, 404);
    }
    let ApiCredentials { secret, passphrase, .. } = credentials;
    let master_key = fs::read(KeyFile::Wallets.path(&server.data())).unwrap();
    let bytes = URL_SAFE.decode(&secret).unwrap();
    vec![secret.into(), bytes, passphrase.into(), master_key]
}

fn wait_for_snapshot(server: &Watched) {
    let is_there = || {
        let names = fs::read_dir(server.data().join("snapshots")).into_iter().flatten();
        names.flatten().any(|entry| entry.path().extension().is_some_and(|end| end == "snapshot"))
    };
    eventually(|| {
        server.send(&Request::get("/v1/health"));
        is_there().then_some(())
    });
}

#[test]
fn no_secret_appears_anywhere() {
    let shared_secret = ["--identity", "hs256:SECRET", "--issuer", ISSUER];
    for identity in [&shared_secret[..], &["--identity", "embedded"]] {
        let server = Watched::start(identity);
        let data = server.data();
        let is_embedded = identity.contains(&"embedded");
        let token = if is_embedded {
            printed_token(&data, "someone").trim_end().to_owned()
        } else {
            let exp = Timestamp::now().seconds() + 600;
            let claims =
                json!({"iss": ISSUER, "aud": "authenticated", "sub": "someone", "exp": exp});
            let key = EncodingKey::from_secret(SHARED_SECRET.as_bytes());
            jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &key).unwrap()
        };
        let mut secrets = live(&server, &token);
        if is_embedded {
            // PKCS#8 of Ed25519: a fixed header of 16 bytes, then the seed.
            let key = fs::read(KeyFile::Issuer.path(&data)).unwrap();
            secrets.push(key[16..48].to_vec());
        }
        wait_for_snapshot(&server);
        let metrics = Connection::open(server.admin).send(&Request::get("/metrics"));
        assert!(metrics.status == 200 && metrics.text.contains("api_keys 4"), "{metrics:?}");
        let data = data.to_str().unwrap().to_owned();
        let flags: Vec<&str> = server.flags.iter().map(String::as_str).collect();
        let mut contents: BTreeMap<PathBuf, Vec<u8>> = BTreeMap::from([
            ("metrics".into(), metrics.text.into_bytes()),
            ("dump".into(), printed(&["journal", "dump", &data]).into_bytes()),
            ("dump --json".into(), printed(&["journal", "dump", "--json", &data]).into_bytes()),
            ("stats".into(), printed(&["journal", "stats", &data]).into_bytes()),
            ("verify".into(), printed(&["journal", "verify", &data]).into_bytes()),
            (
                "configuration".into(),
                printed(&[&["serve", "--print-config"], &flags[..]].concat()).into_bytes(),
            ),
        ]);
        let (folder, log) = server.end();
        assert!(log.contains("draining"), "{log}");
        contents.insert("log".into(), log.into_bytes());
        let data = folder.path().join("data");
        files(&data, &mut contents);
        for key in KeyFile::ALL {
            contents.remove(&key.path(&data));
        }
        let extensions: Vec<_> = contents.keys().filter_map(|path| path.extension()).collect();
        assert!(
            ["segment", "snapshot", "orders"]
                .iter()
                .all(|kind| extensions.contains(&kind.as_ref()))
        );
        // The search finds what may be shown, so it would find a secret too.
        let shown = b"ps_live_".to_vec();
        for place in ["dump", "dump --json"].map(Path::new) {
            assert_eq!(found(&contents[place], std::slice::from_ref(&shown)), Some(&shown));
        }
        for (place, content) in &contents {
            if let Some(secret) = found(content, &secrets) {
                panic!("{} has {}", place.display(), String::from_utf8_lossy(secret));
            }
        }
        check_private(&data);
        let backup = folder.path().join("backup");
        printed(&["backup", data.to_str().unwrap(), backup.to_str().unwrap()]);
        check_private(&backup);
    }
}

/// The first of these secrets that the content has.
fn found<'s>(content: &[u8], secrets: &'s [Vec<u8>]) -> Option<&'s Vec<u8>> {
    let mut begins = [false; 256];
    for secret in secrets {
        begins[usize::from(secret[0])] = true;
    }
    content
        .iter()
        .enumerate()
        .filter(|(_, byte)| begins[usize::from(**byte)])
        .find_map(|(at, _)| secrets.iter().find(|secret| content[at..].starts_with(secret)))
}

/// Only the owner can read what a server has written.
#[track_caller]
fn check_private(folder: &Path) {
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(folder), 0o700, "{}", folder.display());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            check_private(&path);
        } else {
            assert_eq!(mode(&path), 0o600, "{}", path.display());
        }
    }
}

#[test]
fn a_start_is_refused_if_others_can_read_the_issuers_key() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    printed_token(&data, "first");
    let key = KeyFile::Issuer.path(&data);
    for (target, mode, cure) in [
        (&*key, 0o640, "chmod 600 "),
        (&*key, 0o604, "chmod 600 "),
        (key.parent().unwrap(), 0o755, "chmod 700 "),
    ] {
        let before = fs::metadata(target).unwrap().permissions();
        fs::set_permissions(target, Permissions::from_mode(mode)).unwrap();
        let data = data.to_str().unwrap();
        for arguments in [
            &["serve", "--listen", "127.0.0.1:0", "--data", data][..],
            &["serve", "--listen", "127.0.0.1:0", "--data", "memory", "--issuer-data", data],
            &["token", "--subject", "x", "--data", data],
        ] {
            let output = Command::new(BINARY).args(arguments).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success());
            let expected =
                format!("(mode {mode:04o}); make it private: {cure}{}", target.display());
            assert!(errors.contains(&expected), "{errors}");
        }
        fs::set_permissions(target, before).unwrap();
    }
}
