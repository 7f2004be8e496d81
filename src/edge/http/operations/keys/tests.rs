use super::*;
use crate::http::invalid::tests::errors_of;
use crate::http::query::tests::query;
use paperbourse_core::engine::key::KeyGrant;
use paperbourse_core::ids::AccountId;
use paperbourse_exchange::auth::api_key::{KEY_SECRET_BYTES, RawKey};

#[test]
fn absent_fields_have_defaults() {
    let plain = NewKeyRequest { name: None, tier: Tier::Free, permissions: Permissions::DEFAULT };
    for body in ["", " \n", "{}", r#"{"name":null,"tier":null,"permissions":null,"x":1}"#] {
        assert_eq!(read_new_key(body.as_bytes()), Ok(plain.clone()), "{body:?}");
    }
}

#[test]
fn all_fields_are_read() {
    let name = "é".repeat(KEY_NAME_CHARACTERS_MAX);
    let body = format!(
        r#"{{"name":"{name}","tier":"enterprise","permissions":["admin","read","admin"]}}"#
    );
    let permissions = Permissions::of([Permission::Read, Permission::Admin]).unwrap();
    let expected = NewKeyRequest { name: Some(name.into()), tier: Tier::Enterprise, permissions };
    assert_eq!(read_new_key(body.as_bytes()), Ok(expected));
    let empty = read_new_key(br#"{"name":"","tier":"pro"}"#).unwrap();
    assert_eq!((empty.name.as_deref(), empty.tier), (Some(""), Tier::Pro));
}

#[test]
fn a_new_name_is_required_and_may_be_null() {
    let read = |body: &str| read_name(body.as_bytes());
    let named = |name: Option<&str>| Ok(name.map(Box::from));
    let longest = "é".repeat(KEY_NAME_CHARACTERS_MAX);
    assert_eq!(read(&format!(r#"{{"name":"{longest}"}}"#)), named(Some(&longest)));
    assert_eq!(read(r#"{"name":"","x":1}"#), named(Some("")));
    assert_eq!(read(r#"{"name":null}"#), named(None));
    for (body, expected) in [
        ("", "body: missing"),
        ("[]", "body: model_attributes_type"),
        ("{}", "body.name: missing"),
        (r#"{"Name":"x"}"#, "body.name: missing"),
        (r#"{"name":5}"#, "body.name: string_type"),
        (r#"{"name":"a","name":"b"}"#, "body: json_invalid"),
        (&format!(r#"{{"name":"{longest}x"}}"#), "body.name: string_too_long"),
    ] {
        assert_eq!(errors_of(&read(body)), [expected], "{body}");
    }
}

#[test]
fn an_overlap_is_a_number_of_seconds() {
    let read = |body: &str| read_overlap(body.as_bytes());
    for (body, overlap_seconds) in [
        ("", 86_400),
        ("{}", 86_400),
        (r#"{"overlap_seconds":null}"#, 86_400),
        (r#"{"overlap_seconds":0}"#, 0),
        (r#"{"overlap_seconds":"60"}"#, 60),
        (r#"{"overlap_seconds":2592000}"#, OVERLAP_SECONDS_MAX),
    ] {
        assert_eq!(read(body), Ok(overlap_seconds), "{body}");
    }
    for (value, kind) in [
        ("-1", "greater_than_equal"),
        ("2592001", "less_than_equal"),
        ("1e30", "less_than_equal"),
        ("0.5", "int_from_float"),
        ("true", "int_type"),
        (r#""soon""#, "int_parsing"),
    ] {
        let found = errors_of(&read(&format!(r#"{{"overlap_seconds":{value}}}"#)));
        assert_eq!(found, [format!("body.overlap_seconds: {kind}")], "{value}");
    }
}

#[test]
fn invalid_fields_are_reported() {
    let long = format!(r#"{{"name":"{}"}}"#, "x".repeat(KEY_NAME_CHARACTERS_MAX + 1));
    let many = format!(r#"{{"permissions":[{}]}}"#, ["\"read\""; 33].join(","));
    for (body, expected) in [
        ("[]", &["body: model_attributes_type"][..]),
        ("{", &["body: json_invalid"]),
        (&long, &["body.name: string_too_long"]),
        (&many, &["body.permissions: too_long"]),
        (
            r#"{"name":5,"tier":"gold","permissions":[]}"#,
            &["body.name: string_type", "body.tier: enum", "body.permissions: too_short"],
        ),
        (
            r#"{"tier":1,"permissions":["read","Trade",7]}"#,
            &["body.tier: enum", "body.permissions.1: enum", "body.permissions.2: enum"],
        ),
        (r#"{"permissions":"read"}"#, &["body.permissions: list_type"]),
    ] {
        assert_eq!(errors_of(&read_new_key(body.as_bytes())), expected, "{body}");
    }
}

#[test]
fn descendants_are_revoked_on_request() {
    let read = |text| read_descendants(query("DELETE /v1/keys/64", text));
    assert_eq!(read(Some("descendants=yes")), Ok(true));
    assert_eq!(read(None), Ok(false));
    assert_eq!(errors_of(&read(Some("descendants"))), ["query.descendants: bool_parsing"]);
}

fn key() -> Key {
    Key {
        id: KeyId::from_raw(70).unwrap(),
        account: AccountId::from_raw(64).unwrap(),
        grant: KeyGrant {
            hash: [7; 32],
            prefix: "ps_live_0123abcd".into(),
            name: Some("my \"bot\"".into()),
            tier: Tier::Pro,
            permissions: Permissions::of([Permission::Admin, Permission::Read]).unwrap(),
            expires_at: Some(Timestamp::from_seconds(1_800_000_000)),
            wallet: None,
        },
        created_by: KeyId::from_raw(64),
        kept_maker: None,
        created_at: Timestamp::from_seconds(1_700_000_000),
        revoked_at: None,
    }
}

#[test]
fn a_raw_key_is_shown_when_it_is_made() {
    let new = NewKey { raw: RawKey::from_secret([0x5b; KEY_SECRET_BYTES]), key: key() };
    let shown = serde_json::to_string(&NewKeyAnswer::of(&new)).unwrap();
    insta::assert_snapshot!(shown.replace(new.raw.expose(), "ps_live_0123abcd9"));
}

#[test]
fn a_list_never_shows_a_raw_key() {
    let mut plain = key();
    plain.grant.name = None;
    plain.grant.expires_at = None;
    plain.created_by = None;
    plain.revoked_at = Some(Timestamp::EPOCH);
    let used_at = Some(Timestamp::from_seconds(1_700_000_060));
    let listings = [
        KeyListing { key: key(), last_used_at: used_at },
        KeyListing { key: plain, last_used_at: None },
    ];
    let now = Timestamp::from_seconds(1_799_000_000);
    let rows: Vec<_> = listings.iter().map(|listing| KeyRow::of(listing, now)).collect();
    insta::assert_snapshot!(serde_json::to_string(&rows).unwrap());
}
