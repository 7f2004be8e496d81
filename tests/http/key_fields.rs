//! Each field of a request for a key, for both operations that create one.

use std::sync::atomic::{AtomicU64, Ordering};

use paperbourse::limits::tier::Tier;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Outcome::{self, Done, Invalid, Refused};
use super::expect::check_invalid;
use super::server::{Server, shared};

/// Requests a key with both operations, each time for an account without keys.
#[track_caller]
fn check(server: &Server, body: &Value, outcome: Outcome<'_>) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    println!("{body}");
    for path in ["/v1/keys/bootstrap", "/v1/keys"] {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let token = server.token(&format!("asks-{number}"), Some(Tier::Pro));
        outcome.check(&server.send(&Request::post(path, body).bearer(&token)));
    }
}

#[test]
fn name() {
    let too_long = Invalid(&["body.name: string_too_long"]);
    let control = Invalid(&["body.name: string_pattern_mismatch"]);
    for (name, outcome) in [
        (json!("x".repeat(99)), Done),
        (json!("x".repeat(100)), Done),
        (json!("é".repeat(100)), Done),
        (json!("💹".repeat(100)), Done),
        (json!("x".repeat(101)), too_long),
        (json!("é".repeat(101)), too_long),
        (json!("💹".repeat(101)), too_long),
        (json!(""), Done),
        (json!("a\nb"), control),
        (json!("a\u{1b}[2Jb"), control),
        (json!("a\u{85}b"), control),
        (json!(null), Done),
        (json!(5), Invalid(&["body.name: string_type"])),
        (json!(["a"]), Invalid(&["body.name: string_type"])),
    ] {
        check(shared(), &json!({"name": name}), outcome);
    }
}

#[test]
fn tier() {
    let wrong = Invalid(&["body.tier: enum"]);
    for (tier, outcome) in [
        (json!("free"), Done),
        (json!("pro"), Done),
        (json!("enterprise"), Refused(403, "TIER_NOT_AUTHORIZED")),
        (json!("Free"), wrong),
        (json!("gold"), wrong),
        (json!(""), wrong),
        (json!(1), wrong),
        (json!(null), Done),
    ] {
        check(shared(), &json!({"tier": tier}), outcome);
    }
    let server = shared();
    let token = server.token("enterprise-of-its-own", Some(Tier::Enterprise));
    let request = Request::post("/v1/keys/bootstrap", &json!({"tier": "enterprise"}));
    let key = server.send(&request.bearer(&token)).ok(201);
    assert_eq!(key["rate_limit_tier"], "enterprise");
}

#[test]
fn permissions() {
    for (permissions, outcome) in [
        (json!(["read"]), Done),
        (json!(["trade"]), Done),
        (json!(["admin"]), Done),
        (json!(["read", "trade", "admin"]), Done),
        (json!(["read", "read"]), Done),
        (json!(null), Done),
        (json!([]), Invalid(&["body.permissions: too_short"])),
        (json!(["Read"]), Invalid(&["body.permissions.0: enum"])),
        (
            json!(["read", "write", 7, null]),
            Invalid(&[
                "body.permissions.1: enum",
                "body.permissions.2: enum",
                "body.permissions.3: enum",
            ]),
        ),
        (json!("read"), Invalid(&["body.permissions: list_type"])),
        (json!({"read": true}), Invalid(&["body.permissions: list_type"])),
    ] {
        check(shared(), &json!({"permissions": permissions}), outcome);
    }
}

#[test]
fn missing_fields_have_defaults() {
    let server = shared();
    let nothing: [&[u8]; 4] =
        [b"", b"{}", b" \r\n", br#"{"name":null,"tier":null,"permissions":null}"#];
    for (number, body) in nothing.into_iter().enumerate() {
        let token = server.token(&format!("says-nothing-{number}"), Some(Tier::Pro));
        let request = Request::new("POST", "/v1/keys/bootstrap").body(body).bearer(&token);
        let key = server.send(&request).ok(201);
        assert_eq!(key["name"], json!(null));
        assert_eq!(key["rate_limit_tier"], "free");
        assert_eq!(key["permissions"], json!(["read", "trade"]));
    }
}

#[test]
fn every_failing_field_is_reported() {
    let token = shared().token("fails-everywhere", None);
    let body = json!({"name": "n".repeat(101), "tier": "x", "permissions": ["y"]});
    let response = shared().send(&Request::post("/v1/keys/bootstrap", &body).bearer(&token));
    check_invalid(
        &response,
        &["body.name: string_too_long", "body.tier: enum", "body.permissions.0: enum"],
    );
}
