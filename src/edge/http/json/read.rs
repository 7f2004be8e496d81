//! Reads JSON one level at a time: the fields of an object and the elements of a list, each still
//! as text. Only the code that knows the type of a value parses it further.
//!
//! Most objects are plain: names and values without escapes, and nothing nested. A plain object is
//! read in one pass. Everything else, including all invalid JSON, is left to serde, whose error
//! messages reach the client.
//!
//! This reader is stricter than most: the whole text must be one value, an object may not name a
//! field twice, and nothing may nest deeper than [`DEPTH_MAX`].

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserializer as _, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use smallvec::SmallVec;

use super::plain::plain_length;
use super::scan::scan;
use crate::http::invalid::{FieldError, Location};

/// Maximum nesting depth that is accepted.
const DEPTH_MAX: usize = 64;
/// Maximum number of fields for which repeated names are found by comparing all pairs.
pub(super) const FIELDS_COMPARED_MAX: usize = 16;

/// One JSON value, not parsed any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) enum RawText<'a> {
    /// A string without escapes, as the text between its quotes.
    Plain(&'a str),
    /// Any other value, without spaces around it.
    Other(&'a str),
}

impl RawText<'_> {
    pub(in crate::http) const NULL: Self = Self::Other("null");

    pub(in crate::http) fn is_string(self) -> bool {
        match self {
            Self::Plain(_) => true,
            Self::Other(text) => text.starts_with('"'),
        }
    }
}

/// The fields of an object, in the order in which they were sent.
#[derive(PartialEq, Debug, Default)]
pub(in crate::http) struct Object<'a>(pub(super) ObjectFields<'a>);

pub(super) type ObjectFields<'a> = SmallVec<[(Cow<'a, str>, RawText<'a>); 10]>;

impl<'a> Object<'a> {
    /// Reads a body, which should be an object.
    pub(in crate::http) fn of_body(body: &'a [u8]) -> Result<Self, FieldError> {
        let location = Location::body();
        let Some(first) = body.iter().find(|byte| !is_space(**byte)) else {
            return Err(error(location, "missing", "a JSON object is required"));
        };
        let text = std::str::from_utf8(body).map_err(|invalid| {
            let place = invalid.valid_up_to();
            error(location.clone(), "json_invalid", format!("not UTF-8 at byte {place}"))
        })?;
        if *first == b'{' {
            return Self::read(text, &location);
        }
        match serde_json::from_str::<&RawValue>(text) {
            Ok(_) => Err(error(location, "model_attributes_type", "should be a JSON object")),
            Err(_) if is_form(text) => {
                let message =
                    "a form was sent: send a JSON object, in Python with json=, not data=";
                Err(error(location, "json_invalid", message))
            }
            Err(cause) => Err(malformed(&cause)),
        }
    }

    /// Reads the value at `location`, which should be an object.
    pub(in crate::http) fn of_value(
        value: RawText<'a>,
        location: &Location,
    ) -> Result<Self, FieldError> {
        match value {
            RawText::Other(text) if text.starts_with('{') => Self::read(text, location),
            _ => Err(error(location.clone(), "model_attributes_type", "should be a JSON object")),
        }
    }

    #[inline]
    fn read(text: &'a str, location: &Location) -> Result<Self, FieldError> {
        let mut fields = ObjectFields::new();
        match scan(text, &mut fields) {
            Some(()) => Ok(Self(fields)),
            None => Self::read_any(text, location),
        }
    }

    #[cold]
    pub(super) fn read_any(text: &'a str, location: &Location) -> Result<Self, FieldError> {
        let mut reader = serde_json::Deserializer::from_str(text);
        let object = reader.deserialize_map(ObjectVisitor).map_err(|cause| malformed(&cause))?;
        reader.end().map_err(|cause| malformed(&cause))?;
        for (_, value) in &object.0 {
            // Each step of the location is a level above the value. There are always fewer steps
            // than `DEPTH_MAX`.
            if nests_deeper(*value, DEPTH_MAX - location.steps().count()) {
                let message = format!("nested deeper than {DEPTH_MAX} levels");
                return Err(error(Location::body(), "json_invalid", message));
            }
        }
        Ok(object)
    }

    /// Returns the value of a field; `None` if it is absent or null.
    pub(in crate::http) fn get(&self, name: &str) -> Option<RawText<'a>> {
        self.find(name).filter(|value| *value != RawText::NULL)
    }

    /// Returns the value of a field, even if it is null; `None` if it is absent.
    #[inline]
    pub(in crate::http) fn find(&self, name: &str) -> Option<RawText<'a>> {
        let (_, value) = self.0.iter().find(|(field, _)| field == name)?;
        Some(*value)
    }

    /// Returns the number of fields.
    pub(in crate::http) fn field_count(&self) -> usize {
        self.0.len()
    }

    /// Returns the fields, in the order in which they were sent.
    pub(in crate::http) fn fields(&self) -> impl Iterator<Item = (&str, RawText<'a>)> {
        self.0.iter().map(|(name, value)| (&**name, *value))
    }

    /// Whether the field is present, even as null.
    pub(in crate::http) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(field, _)| field == name)
    }
}

/// The first elements of a list, and the number of all its elements.
pub(in crate::http) struct List<'a> {
    /// At most `kept_max` elements.
    pub(in crate::http) elements: Vec<RawText<'a>>,
    /// The number of all elements.
    pub(in crate::http) count: usize,
}

impl<'a> List<'a> {
    /// Reads a list and keeps at most `kept_max` elements; `None` if the value is not a list.
    pub(in crate::http) fn of_value(value: RawText<'a>, kept_max: usize) -> Option<Self> {
        let RawText::Other(text) = value else { return None };
        if !text.starts_with('[') {
            return None;
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let list = reader.deserialize_seq(ListVisitor { kept_max });
        Some(list.expect("the text was read as a value before"))
    }
}

/// Returns the text of a JSON string; `None` if the value is not a string or has an escape that is
/// not valid Unicode.
pub(in crate::http) fn text(value: RawText<'_>) -> Option<Cow<'_, str>> {
    match value {
        RawText::Plain(text) => Some(Cow::Borrowed(text)),
        RawText::Other(text) if text.starts_with('"') => {
            serde_json::from_str::<String>(text).ok().map(Cow::Owned)
        }
        RawText::Other(_) => None,
    }
}

/// Reads the name of a field, borrowed if it has no escapes.
struct FieldName;

impl<'de> serde::de::DeserializeSeed<'de> for FieldName {
    type Value = Cow<'de, str>;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for FieldName {
    type Value = Cow<'de, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the name of a field")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(name))
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(name.to_owned()))
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut fields = ObjectFields::new();
        // Comparing all pairs of names is cheap for an order, but not for 10,000 fields.
        let mut names: HashSet<Cow<'de, str>, foldhash::fast::RandomState> = HashSet::default();
        while let Some(name) = map.next_key_seed(FieldName)? {
            let is_known = if fields.len() < FIELDS_COMPARED_MAX {
                fields.iter().any(|(field, _)| *field == name)
            } else {
                if names.is_empty() {
                    names.extend(fields.iter().map(|(field, _)| field.clone()));
                }
                !names.insert(name.clone())
            };
            if is_known {
                return Err(M::Error::custom("a field is named twice"));
            }
            fields.push((name, raw_text(map.next_value()?)));
        }
        Ok(Object(fields))
    }
}

struct ListVisitor {
    kept_max: usize,
}

impl<'de> Visitor<'de> for ListVisitor {
    type Value = List<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut sequence: S) -> Result<Self::Value, S::Error> {
        let mut list = List { elements: Vec::new(), count: 0 };
        while list.elements.len() < self.kept_max {
            match sequence.next_element()? {
                Some(element) => list.elements.push(raw_text(element)),
                None => break,
            }
        }
        list.count = list.elements.len();
        while sequence.next_element::<IgnoredAny>()?.is_some() {
            list.count += 1;
        }
        Ok(list)
    }
}

fn raw_text(value: &RawValue) -> RawText<'_> {
    let text = value.get();
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        Some(inner) if plain_length(inner.as_bytes()) == inner.len() => RawText::Plain(inner),
        _ => RawText::Other(text),
    }
}

/// Whether the text looks like the body of an HTML form: `market_id=0xa&side=BUY`.
fn is_form(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%');
    name.len() < text.len() && !name.is_empty() && name.bytes().all(is_name)
}

/// Whether brackets outside of strings nest deeper than `depth_max`.
fn nests_deeper(value: RawText<'_>, depth_max: usize) -> bool {
    let RawText::Other(text) = value else { return false };
    if !text.starts_with(['{', '[']) {
        return false;
    }
    let mut depth = 0;
    let mut in_string = false;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > depth_max {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth -= 1,
            _ => {}
        }
    }
    false
}

pub(super) const fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn malformed(cause: &serde_json::Error) -> FieldError {
    error(Location::body(), "json_invalid", format!("not valid JSON: {cause}"))
}

fn error(
    location: Location,
    kind: &'static str,
    message: impl Into<Cow<'static, str>>,
) -> FieldError {
    FieldError { location, kind, message: message.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn refused(body: &[u8], kind: &str) -> String {
        match Object::of_body(body) {
            Ok(_) => panic!("accepted {}", body.escape_ascii()),
            Err(error) => {
                assert_eq!(error.kind, kind, "{}: {error:?}", body.escape_ascii());
                assert_eq!(error.location, Location::body());
                error.message.into_owned()
            }
        }
    }

    #[test]
    fn anything_but_one_json_object_is_refused() {
        for (body, kind) in [
            (&b""[..], "missing"),
            (b" \r\n", "missing"),
            (b"[]", "model_attributes_type"),
            (b"\"a\"", "model_attributes_type"),
            (b"null", "model_attributes_type"),
            (b"-0.5e3", "model_attributes_type"),
            (b"nul", "json_invalid"),
            (b"{", "json_invalid"),
            (b"{}x", "json_invalid"),
            (b"{} {}", "json_invalid"),
            (b"{\"a\":1,}", "json_invalid"),
            (b"{a:1}", "json_invalid"),
            (b"{\"a\":NaN}", "json_invalid"),
            (b"{\"a\":Infinity}", "json_invalid"),
            (b"{\"a\":01}", "json_invalid"),
            (b"{\"a\":+1}", "json_invalid"),
            (b"{\"a\":.5}", "json_invalid"),
            (b"{\"a\":'b'}", "json_invalid"),
            (b"{\"a\":\"\n\"}", "json_invalid"),
            (b"{\"a\":\"\xff\"}", "json_invalid"),
            (b"{\"\xc3\":1}", "json_invalid"),
            (b"\xef\xbb\xbf{}", "json_invalid"),
            (b"{\"a\":1,\"a\":1}", "json_invalid"),
            (b"{\"a\":1,\"\\u0061\":2}", "json_invalid"),
        ] {
            refused(body, kind);
        }
        assert!(refused(b"{\n \"a\":x}", "json_invalid").contains("line 2 column"));
        assert!(refused(b"{\"a\":1,\"a\":1}", "json_invalid").contains("named twice at line 1"));
    }

    #[test]
    fn repeated_names_are_found_among_many() {
        let fields = |names: &mut dyn Iterator<Item = usize>| {
            let fields: Vec<String> = names.map(|name| format!("\"{name}\":0")).collect();
            format!("{{{}}}", fields.join(","))
        };
        let distinct = fields(&mut (0..9_000));
        assert!(Object::of_body(distinct.as_bytes()).is_ok());
        for repeated in [0, 8, 15, 16, 17, 8_999] {
            let body = fields(&mut (0..9_000).chain([repeated]));
            refused(body.as_bytes(), "json_invalid");
        }
    }

    #[test]
    fn nesting_is_limited_everywhere() {
        let nested = |depth: usize| format!("{{\"x\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
        assert!(Object::of_body(nested(DEPTH_MAX - 1).as_bytes()).is_ok());
        refused(nested(DEPTH_MAX).as_bytes(), "json_invalid");
        refused(nested(30_000).as_bytes(), "json_invalid");
        let brackets = format!("{{\"x\":[\"{}\\\"[\"]}}", "[".repeat(1_000));
        assert!(Object::of_body(brackets.as_bytes()).is_ok(), "brackets in strings do not nest");
    }

    #[test]
    fn fields_are_found_by_their_unescaped_name() {
        let body = br#" {"\u0061":"x\ty","b":null,"c":[1,[2],{"d":3}],"e":"plain"} "#;
        let object = Object::of_body(body).unwrap_or_else(|error| panic!("{error:?}"));
        assert_eq!(object.get("a").and_then(text).as_deref(), Some("x\ty"));
        assert!(object.get("b").is_none(), "null is as good as absent");
        assert!(object.get("z").is_none());
        assert!(matches!(object.get("e").and_then(text), Some(Cow::Borrowed("plain"))));
        let list = List::of_value(object.get("c").unwrap(), 2).unwrap();
        assert_eq!(list.elements, ["1", "[2]"].map(RawText::Other));
        assert_eq!(list.count, 3);
        assert!(List::of_value(object.get("e").unwrap(), 2).is_none());
        assert_eq!(
            text(RawText::Other(r#""\ud800""#)),
            None,
            "half of a surrogate pair is no text"
        );
    }
}
