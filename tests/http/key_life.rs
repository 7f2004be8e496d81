//! Renaming and rotating keys.

use std::time::{Duration, Instant};

use paperbourse::ids::Timestamp;
use paperbourse::limits::tier::Tier;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Flag, Integer, List, Null, Text, Time};
use super::expect::{check_error, check_fields, check_invalid, eventually};
use super::records::check_new_key;
use super::server::{Account, Server, shared};
use paperbourse_test_support::socket::{Socket, upgrade};

fn raw(key: &Value) -> &str {
    key["raw_key"].as_str().unwrap()
}

fn path(key: &Value) -> String {
    format!("/v1/keys/{}", key["id"])
}

/// Rotates a key with the account's token. Returns the new key.
#[track_caller]
fn rotated(account: &Account<'_>, key: &Value, body: &Value) -> Value {
    let request = Request::post(format!("{}/rotate", path(key)), body).bearer(&account.token);
    account.server.send(&request).ok(200)
}

/// The row of a key in the list of its account.
#[track_caller]
fn row(account: &Account<'_>, key: &Value) -> Value {
    let rows = account.server.send(&Request::get("/v1/keys").bearer(&account.token)).ok(200);
    let mut rows = rows.as_array().unwrap().iter();
    rows.find(|row| row["id"] == key["id"]).unwrap().clone()
}

#[test]
fn a_key_is_renamed() {
    let account = shared().account();
    let key = account.new_key(&json!({"name": "old", "permissions": ["trade"]}));
    for name in [json!("new"), json!("new"), json!(""), json!("💹".repeat(100)), json!(null)] {
        let renamed = account.patch(path(&key), &json!({"name": name})).ok(200);
        assert_eq!(renamed["name"], name);
        assert_eq!(renamed, row(&account, &key), "the list shows another row");
    }
    let never_used = row(&account, &key);
    check_fields(
        &never_used,
        &[
            ("id", Integer),
            ("key_prefix", Text),
            ("name", Null),
            ("rate_limit_tier", Text),
            ("permissions", List),
            ("is_active", Flag),
            ("created_at", Time),
            ("last_used_at", Null),
            ("expires_at", Null),
            ("created_by", Null),
        ],
    );
    let own = shared().send(&Request::patch(path(&key), &json!({"name": "mine"})).key(raw(&key)));
    assert!(own.ok(200)["last_used_at"].is_string(), "renaming is not counted as a use");
    check_invalid(&account.patch(path(&key), &json!({})), &["body.name: missing"]);
    check_invalid(
        &account.patch("/v1/keys/x", &json!({"name": "x".repeat(101)})),
        &["path.key_id: int_parsing", "body.name: string_too_long"],
    );
    check_error(&account.patch("/v1/keys/64000", &json!({"name": "x"})), 404, "KEY_NOT_FOUND");
    account.delete(path(&key)).ok(200);
    let named = account.patch(path(&key), &json!({"name": "stolen"})).ok(200);
    assert_eq!((&named["name"], &named["is_active"]), (&json!("stolen"), &json!(false)));
}

#[test]
fn a_rotated_key_has_a_successor_and_an_end() {
    let request = json!({"name": "bot", "tier": "pro", "permissions": ["read", "trade"]});
    let account = shared().account_with(&request, Some(Tier::Pro));
    let old = json!({"id": account.key_id});
    for (body, overlap_seconds) in [(json!({}), 86_400), (json!({"overlap_seconds": 600}), 600)] {
        let old = if overlap_seconds == 600 { account.new_key(&request) } else { old.clone() };
        let new = rotated(&account, &old, &body);
        check_new_key(&new, Text);
        assert_ne!(new["id"], old["id"]);
        assert_eq!(new["name"], "bot");
        assert_eq!(new["rate_limit_tier"], "pro");
        assert_eq!(new["permissions"], json!(["read", "trade"]));
        let row_of_new = row(&account, &new);
        assert_eq!(row_of_new["created_by"], old["id"]);
        assert_eq!(row_of_new["expires_at"], json!(null));
        assert_eq!(row_of_new["is_active"], true);
        let row_of_old = row(&account, &old);
        assert_eq!(row_of_old["is_active"], true);
        let seconds = |text: &Value| -> i64 {
            text.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second()
        };
        let lasts = seconds(&row_of_old["expires_at"]) - seconds(&row_of_new["created_at"]);
        assert_eq!(lasts, overlap_seconds);
        assert!(seconds(&row_of_new["created_at"]) <= Timestamp::now().seconds());
        shared().send(&Request::get("/v1/orders").key(raw(&new))).ok(200);
    }
    // Both keys can read the balance.
    account.buy(1);
}

#[test]
fn a_rotated_key_keeps_working_but_manages_no_keys() {
    let account = shared().account();
    let old = json!({"id": account.key_id});
    let new = rotated(&account, &old, &json!({}));
    let own = path(&old);
    for request in [
        Request::post("/v1/keys", &json!({})),
        Request::post("/v1/keys", &json!({"name": 5})),
        Request::patch(&*own, &json!({"name": "x"})),
        Request::patch(path(&new), &json!({"name": "x"})),
        Request::post(format!("{own}/rotate"), &json!({})),
        Request::post(format!("{}/rotate", path(&new)), &json!({})),
    ] {
        let refused = account.send(request);
        check_error(&refused, 403, "INSUFFICIENT_PERMISSION");
        assert!(refused.json()["message"].as_str().unwrap().contains("was rotated"));
    }
    account.buy(1);
    account.get("/v1/account/balance").ok(200);
    account.post("/v1/keys/ws-token", &json!({})).ok(200);
    Socket::prices(shared(), &account.key).end();
    let by_new = |request: Request| shared().send(&request.key(raw(&new)));
    let again = by_new(Request::post(format!("{own}/rotate"), &json!({})));
    check_error(&again, 409, "KEY_ROTATED");
    by_new(Request::patch(&*own, &json!({"name": "old"}))).ok(200);
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&account.token);
    check_error(&shared().send(&bootstrap), 400, "BOOTSTRAP_NOT_ALLOWED");
    // It may revoke itself.
    account.delete(own).ok(200);
    check_error(&account.get("/v1/orders"), 401, "KEY_DEACTIVATED");
    let ended = by_new(Request::post(format!("{}/rotate", path(&old)), &json!({})));
    check_error(&ended, 409, "KEY_ENDED");
}

#[test]
fn without_an_overlap_the_old_key_ends_at_once() {
    let account = shared().account();
    let rotate = format!("/v1/keys/{}/rotate", account.key_id);
    let body = json!({"overlap_seconds": 0});
    let new = account.post(rotate, &body).ok(200);
    check_error(&account.get("/v1/orders"), 401, "KEY_DEACTIVATED");
    let old = row(&account, &json!({"id": account.key_id}));
    assert_eq!((&old["is_active"], &old["expires_at"]), (&json!(false), &json!(null)));
    shared().send(&Request::get("/v1/orders").key(raw(&new))).ok(200);
    for (body, expected) in [
        (json!({"overlap_seconds": -1}), "body.overlap_seconds: greater_than_equal"),
        (json!({"overlap_seconds": 2_592_001}), "body.overlap_seconds: less_than_equal"),
        (json!({"overlap_seconds": "x"}), "body.overlap_seconds: int_parsing"),
    ] {
        let request = Request::post(format!("{}/rotate", path(&new)), &body).key(raw(&new));
        check_invalid(&shared().send(&request), &[expected]);
    }
}

#[test]
fn a_successor_replaces_its_key_among_five() {
    let account = shared().account();
    let mut keys = vec![json!({"id": account.key_id})];
    keys.extend((0..4).map(|_| account.new_key(&json!({}))));
    let successors: Vec<Value> =
        keys.iter().map(|key| rotated(&account, key, &json!({}))).collect();
    let one_more = Request::post("/v1/keys", &json!({})).bearer(&account.token);
    check_error(&shared().send(&one_more), 400, "TIER_KEY_LIMIT_EXCEEDED");
    let rows = shared().send(&Request::get("/v1/keys").bearer(&account.token)).ok(200);
    assert!(rows.as_array().unwrap().iter().all(|row| row["is_active"] == true));
    assert_eq!(rows.as_array().unwrap().len(), 10);
    // Up to twenty may overlap; five do here.
    let mut newest = successors[0].clone();
    for _ in 5..20 {
        newest = rotated(&account, &newest, &json!({}));
    }
    let rotate = |overlap_seconds: u32| {
        let body = json!({"overlap_seconds": overlap_seconds});
        Request::post(format!("{}/rotate", path(&newest)), &body).bearer(&account.token)
    };
    let refused = shared().send(&rotate(1));
    check_error(&refused, 400, "TIER_KEY_LIMIT_EXCEEDED");
    assert!(refused.json()["message"].as_str().unwrap().contains("overlap_seconds 0"));
    shared().send(&rotate(0)).ok(200);
}

#[test]
fn rotating_gives_no_higher_tier() {
    let request = json!({"tier": "free", "permissions": ["admin"]});
    let account = shared().account_with(&request, Some(Tier::Pro));
    let pro = account.new_key(&json!({"tier": "pro", "permissions": ["read"]}));
    let rotate = || Request::post(format!("{}/rotate", path(&pro)), &json!({}));
    check_error(&account.send(rotate()), 403, "TIER_NOT_AUTHORIZED");
    // A token now entitled to less cannot rotate a key of the tier, but the key itself can.
    let lesser = shared().token(&account.subject, None);
    check_error(&shared().send(&rotate().bearer(&lesser)), 403, "TIER_NOT_AUTHORIZED");
    let new = shared().send(&rotate().key(raw(&pro))).ok(200);
    assert_eq!(new["rate_limit_tier"], "pro");
}

#[test]
fn key_names_and_expiries_survive_a_crash() {
    let server = Server::unlimited();
    let (subject, key, token, rows, new) = {
        let account = server.account();
        let old = json!({"id": account.key_id});
        account.patch(path(&old), &json!({"name": "before"})).ok(200);
        let new = rotated(&account, &old, &json!({}));
        let gone = account.new_key(&json!({}));
        rotated(&account, &gone, &json!({"overlap_seconds": 0}));
        let request = Request::get("/v1/keys").bearer(&account.token);
        let rows = server.send(&request).ok(200);
        (account.subject.clone(), account.key.clone(), account.token.clone(), rows, new)
    };
    let server = server.crash_and_restart();
    let mut found = server.send(&Request::get("/v1/keys").bearer(&token)).ok(200);
    let mut expected = rows;
    for rows in [&mut found, &mut expected] {
        for row in rows.as_array_mut().unwrap() {
            row["last_used_at"] = json!(null);
        }
    }
    assert_eq!(found, expected, "{subject}");
    assert_eq!(found[0]["name"], "before");
    server.send(&Request::get("/v1/orders").key(&key)).ok(200);
    let create = Request::post("/v1/keys", &json!({"permissions": ["read"]}));
    check_error(&server.send(&create.clone().key(&key)), 403, "INSUFFICIENT_PERMISSION");
    server.send(&create.key(raw(&new))).ok(201);
}

/// A key, its child and grandchild, the key's successor, and a child of the successor.
fn family(account: &Account<'_>, overlap_seconds: u32) -> [Value; 5] {
    let request = json!({"tier": "pro", "permissions": ["read"]});
    let make =
        |with: &Value| shared().send(&Request::post("/v1/keys", &request).key(raw(with))).ok(201);
    let root = account.new_key(&request);
    let child = make(&root);
    let successor = rotated(account, &root, &json!({"overlap_seconds": overlap_seconds}));
    [root, make(&child), child, make(&successor), successor]
}

/// Open connections of every key, on any worker, fail with the next request, and open sockets are
/// closed within a second.
#[test]
fn an_ended_key_fails_everywhere_at_once() {
    for (overlap_seconds, query, ended, code) in [
        (600, Some(""), [true, false, false, false, false], "KEY_DEACTIVATED"),
        (600, Some("?descendants=true"), [true; 5], "KEY_DEACTIVATED"),
        (4, None, [true, false, false, false, false], "KEY_EXPIRED"),
    ] {
        let request = json!({"tier": "pro", "permissions": ["admin"]});
        let account = shared().account_with(&request, Some(Tier::Pro));
        let keys = family(&account, overlap_seconds);
        let balance = |key: &Value| Request::get("/v1/account/balance").key(raw(key));
        let mut connections: Vec<_> = keys
            .iter()
            .flat_map(|key| std::iter::repeat_with(move || (key, shared().connect())).take(4))
            .collect();
        for (key, connection) in &mut connections {
            connection.send(&balance(key)).ok(200);
        }
        let mut sockets: Vec<_> = keys
            .iter()
            .zip(ended)
            .flat_map(|(key, is_ended)| {
                let token =
                    shared().send(&Request::post("/v1/keys/ws-token", &json!({})).key(raw(key)));
                let token = token.ok(200)["token"].as_str().unwrap().to_owned();
                let by_token = upgrade(&format!("/v1/ws/prices?token={token}"));
                let by_token = Socket::open(shared(), &by_token).unwrap();
                [(Socket::prices(shared(), raw(key)), is_ended), (by_token, is_ended)]
            })
            .collect();
        if let Some(query) = query {
            account.delete(format!("{}{query}", path(&keys[0]))).ok(200);
        } else {
            let mut connection = shared().connect();
            eventually(|| (connection.send(&balance(&keys[0])).status != 200).then_some(()));
        }
        let ended_at = Instant::now();
        for (key, connection) in &mut connections {
            let is_ended = ended[keys.iter().position(|other| other == *key).unwrap()];
            let response = connection.send(&balance(key));
            if is_ended {
                check_error(&response, 401, code);
            } else {
                response.ok(200);
            }
        }
        for (socket, _) in sockets.iter_mut().filter(|(_, is_ended)| *is_ended) {
            assert_eq!(socket.close_code(), 4001);
        }
        // A second by the contract, with slack for a machine that is busy with other tests.
        assert!(ended_at.elapsed() < Duration::from_secs(3), "{:?}", ended_at.elapsed());
        for (mut socket, _) in sockets.into_iter().filter(|(_, is_ended)| !is_ended) {
            socket.say(&json!({"action": "ping"}));
            socket.text_of("pong");
        }
        let row = row(&account, &keys[0]);
        assert_eq!(row["is_active"], false);
        assert!(row["expires_at"].is_string() && row["last_used_at"].is_string(), "{row}");
    }
}
