//! What a client says about a key that it wants, or has.

use crate::engine::key::{OVERLAP_SECONDS_DEFAULT, OVERLAP_SECONDS_MAX, Permission, Permissions};
use crate::http::fields::{Fields, Range};
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::{self as json, Object, RawText};
use crate::limits::tier::Tier;
use crate::money::MICROS_PER_UNIT;

/// The name of a key has at most this many characters.
pub const KEY_NAME_CHARACTERS_MAX: usize = 100;
/// A list of permissions holds at most this many, repetitions included.
pub const PERMISSIONS_LISTED_MAX: usize = 32;

/// The body of both operations that make a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyRequest {
    /// What to call it.
    pub name: Option<Box<str>>,
    /// How much it may ask; `free` when not said.
    pub tier: Tier,
    /// What it may do; reading and trading when not said.
    pub permissions: Permissions,
}

impl KeyRequest {
    /// Reads the body. An empty one asks for a key with nothing special about it.
    pub fn read(body: &[u8]) -> Result<Self, Invalid> {
        let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
        let mut errors = Vec::new();
        let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
        let name = fields.optional("name");
        let name = name.and_then(|value| read_name(&mut fields, value));
        let tier = match fields.optional("tier") {
            None => Some(Tier::Free),
            Some(value) => read_tier(&mut fields, value),
        };
        let permissions = match fields.optional("permissions") {
            None => Some(Permissions::DEFAULT),
            Some(value) => read_permissions(&mut fields, value),
        };
        let request = tier.zip(permissions);
        let request = request.map(|(tier, permissions)| Self { name, tier, permissions });
        unless_invalid(errors, request)
    }
}

/// The body of `PATCH /v1/keys/{key_id}`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenameRequest {
    /// What to call it; null takes the name away.
    pub name: Option<Box<str>>,
}

impl RenameRequest {
    /// Reads the body. It has to say something about the name.
    pub fn read(body: &[u8]) -> Result<Self, Invalid> {
        let mut errors = Vec::new();
        let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
        let name = fields.nullable("name");
        let name = name.and_then(|value| read_name(&mut fields, value));
        unless_invalid(errors, Some(Self { name }))
    }
}

/// The body of `POST /v1/keys/{key_id}/rotate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RotateRequest {
    /// How much longer the old key works.
    pub overlap_seconds: u32,
}

impl RotateRequest {
    /// Reads the body, which may be empty.
    pub fn read(body: &[u8]) -> Result<Self, Invalid> {
        const RANGE: Range =
            Range { above: None, min: 0, max: OVERLAP_SECONDS_MAX as i64 * MICROS_PER_UNIT };
        let body = if body.trim_ascii().is_empty() { b"{}" } else { body };
        let mut errors = Vec::new();
        let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
        let overlap_seconds = match fields.optional("overlap_seconds") {
            None => Some(OVERLAP_SECONDS_DEFAULT),
            Some(value) => {
                let seconds = fields.integer("overlap_seconds", value, &RANGE);
                seconds.map(|seconds| u32::try_from(seconds).expect("it is in range"))
            }
        };
        let request = overlap_seconds.map(|overlap_seconds| Self { overlap_seconds });
        unless_invalid(errors, request)
    }
}

fn read_name<'a>(fields: &mut Fields<'a, '_>, value: RawText<'a>) -> Option<Box<str>> {
    fields.bounded_text("name", value, 0, KEY_NAME_CHARACTERS_MAX).map(Into::into)
}

fn read_tier(fields: &mut Fields<'_, '_>, value: RawText<'_>) -> Option<Tier> {
    let tier = json::text(value).as_deref().and_then(Tier::parse);
    if tier.is_none() {
        fields.note("tier", "enum", "should be free, pro or enterprise");
    }
    tier
}

fn read_permissions<'a>(fields: &mut Fields<'a, '_>, value: RawText<'a>) -> Option<Permissions> {
    let listed = fields.list("permissions", value, 1, PERMISSIONS_LISTED_MAX)?;
    let mut permissions = Vec::with_capacity(listed.len());
    for (index, element) in listed.into_iter().enumerate() {
        let permission = json::text(element).as_deref().and_then(Permission::from_name);
        if permission.is_none() {
            let mistake = ("enum", "should be read, trade or admin".into());
            fields.note_element("permissions", index, mistake);
        }
        permissions.extend(permission);
    }
    Permissions::of(permissions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::told;

    #[test]
    fn what_is_not_said_has_a_default() {
        let plain = KeyRequest { name: None, tier: Tier::Free, permissions: Permissions::DEFAULT };
        for body in ["", " \n", "{}", r#"{"name":null,"tier":null,"permissions":null,"x":1}"#] {
            assert_eq!(KeyRequest::read(body.as_bytes()), Ok(plain.clone()), "{body:?}");
        }
    }

    #[test]
    fn what_is_said_is_read() {
        let name = "é".repeat(KEY_NAME_CHARACTERS_MAX);
        let body = format!(
            r#"{{"name":"{name}","tier":"enterprise","permissions":["admin","read","admin"]}}"#
        );
        let permissions = Permissions::of([Permission::Read, Permission::Admin]).unwrap();
        let expected = KeyRequest { name: Some(name.into()), tier: Tier::Enterprise, permissions };
        assert_eq!(KeyRequest::read(body.as_bytes()), Ok(expected));
        let empty = KeyRequest::read(br#"{"name":"","tier":"pro"}"#).unwrap();
        assert_eq!((empty.name.as_deref(), empty.tier), (Some(""), Tier::Pro));
    }

    #[test]
    fn a_new_name_has_to_be_said_and_may_be_none() {
        let read = |body: &str| RenameRequest::read(body.as_bytes());
        let named = |name: Option<&str>| Ok(RenameRequest { name: name.map(Into::into) });
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
            assert_eq!(told(&read(body)), [expected], "{body}");
        }
    }

    #[test]
    fn an_overlap_is_a_number_of_seconds() {
        let read = |body: &str| RotateRequest::read(body.as_bytes());
        for (body, overlap_seconds) in [
            ("", 86_400),
            ("{}", 86_400),
            (r#"{"overlap_seconds":null}"#, 86_400),
            (r#"{"overlap_seconds":0}"#, 0),
            (r#"{"overlap_seconds":"60"}"#, 60),
            (r#"{"overlap_seconds":2592000}"#, OVERLAP_SECONDS_MAX),
        ] {
            assert_eq!(read(body), Ok(RotateRequest { overlap_seconds }), "{body}");
        }
        for (value, kind) in [
            ("-1", "greater_than_equal"),
            ("2592001", "less_than_equal"),
            ("1e30", "less_than_equal"),
            ("0.5", "int_from_float"),
            ("true", "int_type"),
            (r#""soon""#, "int_parsing"),
        ] {
            let found = told(&read(&format!(r#"{{"overlap_seconds":{value}}}"#)));
            assert_eq!(found, [format!("body.overlap_seconds: {kind}")], "{value}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_told() {
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
            assert_eq!(told(&KeyRequest::read(body.as_bytes())), expected, "{body}");
        }
    }
}
