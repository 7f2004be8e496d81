//! What a client says about a key that it wants.

use super::field::Fields;
use super::json::{self, Object, RawText};
use super::{Invalid, Location, unless_invalid};
use crate::engine::key::{Permission, Permissions};
use crate::limits::tier::Tier;

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
        let name = fields
            .optional("name")
            .and_then(|value| fields.bounded_text("name", value, 0, KEY_NAME_CHARACTERS_MAX))
            .map(Into::into);
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
    use super::super::tests::told;
    use super::*;

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
