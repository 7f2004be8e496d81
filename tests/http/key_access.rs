//! Every key route with every kind of credential and every set of permissions.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::check_error;
use super::server::shared;

/// Every set of permissions but the empty one.
fn permission_sets() -> Vec<Vec<&'static str>> {
    let names = ["read", "trade", "admin"];
    (1..8_u8)
        .map(|bits| (0..3).filter(|bit| bits >> bit & 1 == 1).map(|bit| names[bit]).collect())
        .collect()
}

/// A request for each route of one key.
fn changes(key: &Value) -> [Request; 3] {
    let path = format!("/v1/keys/{}", key["id"]);
    [
        Request::patch(&*path, &json!({"name": "changed"})),
        Request::post(format!("{path}/rotate"), &json!({"overlap_seconds": 0})),
        Request::delete(&*path),
    ]
}

fn raw(key: &Value) -> &str {
    key["raw_key"].as_str().unwrap()
}

#[test]
fn a_key_changes_itself_and_with_admin_the_others() {
    for permissions in permission_sets() {
        let is_admin = permissions.contains(&"admin");
        for route in 0..3 {
            let account = shared().account();
            let request = json!({"permissions": permissions});
            let [caller, other] = [(); 2].map(|()| account.new_key(&request));
            // A key with fewer permissions than the caller is still another key.
            let change = changes(&other)[route].clone().key(raw(&caller));
            let response = shared().send(&change);
            let alive =
                shared().send(&Request::post("/v1/keys/ws-token", &json!({})).key(raw(&other)));
            if is_admin {
                response.ok(200);
                assert_eq!(alive.status == 200, route == 0, "route {route}");
            } else {
                check_error(&response, 403, "INSUFFICIENT_PERMISSION");
                alive.ok(200);
            }
            shared().send(&changes(&caller)[route].clone().key(raw(&caller))).ok(200);
        }
    }
}

#[test]
fn a_token_changes_every_key_of_its_account_and_none_of_another() {
    for route in 0..3 {
        let (account, stranger) = (shared().account(), shared().account());
        let key = account.new_key(&json!({"permissions": ["read"]}));
        let change = || changes(&key)[route].clone();
        for request in [change().bearer(&stranger.token), change().key(&stranger.key)] {
            check_error(&shared().send(&request), 404, "KEY_NOT_FOUND");
        }
        check_error(&shared().send(&change()), 401, "MISSING_AUTH");
        shared().send(&Request::get("/v1/orders").key(raw(&key))).ok(200);
        shared().send(&change().bearer(&account.token)).ok(200);
    }
}

#[test]
fn a_key_makes_what_it_has_and_with_admin_anything() {
    for own in permission_sets() {
        let account = shared().account();
        let caller = account.new_key(&json!({"permissions": own}));
        for asked in permission_sets() {
            let create = Request::post("/v1/keys", &json!({"permissions": asked}));
            let response = shared().send(&create.key(raw(&caller)));
            let is_within = own.contains(&"admin") || asked.iter().all(|name| own.contains(name));
            if is_within {
                let made = response.ok(201);
                account.delete(format!("/v1/keys/{}", made["id"])).ok(200);
            } else {
                check_error(&response, 403, "INSUFFICIENT_PERMISSION");
            }
        }
    }
}

#[test]
fn a_list_needs_the_read_permission() {
    let account = shared().account();
    for permissions in permission_sets() {
        let caller = account.new_key(&json!({"permissions": permissions}));
        let response = shared().send(&Request::get("/v1/keys").key(raw(&caller)));
        let rows = || response.ok(200).as_array().unwrap().len();
        match (permissions.contains(&"read"), permissions.contains(&"admin")) {
            (false, _) => check_error(&response, 403, "INSUFFICIENT_PERMISSION"),
            (true, false) => assert_eq!(rows(), 1),
            (true, true) => assert!(rows() > 1),
        }
        account.delete(format!("/v1/keys/{}", caller["id"])).ok(200);
    }
}
