//! Writes JSON straight into a buffer, without intermediate values and without floats.

use std::io::Write as _;

use super::plain::plain_length;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::write_micros;

/// An object that is being written. [`JsonObject::end`] closes it.
#[must_use = "an object is open until its end"]
pub struct JsonObject<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> JsonObject<'a> {
    /// Opens an object.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    /// Writes a name, which must need no escapes, and returns the buffer for its value.
    pub fn value(&mut self, name: &'static str) -> &mut Vec<u8> {
        debug_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
        self.out.extend_from_slice(if self.is_empty { b"\"" } else { b",\"" });
        self.is_empty = false;
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    /// Writes a string.
    pub fn text(&mut self, name: &'static str, text: &str) {
        write_text(self.value(name), text);
    }

    /// Writes a string or null.
    pub fn text_or_null(&mut self, name: &'static str, text: Option<&str>) {
        match text {
            Some(text) => self.text(name, text),
            None => self.null(name),
        }
    }

    /// Writes a string that must need no escapes.
    pub fn word(&mut self, name: &'static str, word: &'static str) {
        let out = self.value(name);
        out.push(b'"');
        out.extend_from_slice(word.as_bytes());
        out.push(b'"');
    }

    /// Writes an integer.
    pub fn integer(&mut self, name: &'static str, number: u64) {
        let out = self.value(name);
        out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes millionths as a JSON number.
    pub fn number(&mut self, name: &'static str, micros: i64) {
        write_micros(self.value(name), micros);
    }

    /// Writes millionths as a JSON number, or null.
    pub fn number_or_null(&mut self, name: &'static str, micros: Option<i64>) {
        match micros {
            Some(micros) => self.number(name, micros),
            None => self.null(name),
        }
    }

    /// Writes millionths as decimal text in a string.
    pub fn decimal(&mut self, name: &'static str, micros: i64) {
        write_decimal(self.value(name), micros);
    }

    /// Writes millionths as decimal text in a string, or null.
    pub fn decimal_or_null(&mut self, name: &'static str, micros: Option<i64>) {
        match micros {
            Some(micros) => self.decimal(name, micros),
            None => self.null(name),
        }
    }

    /// Writes a time as RFC 3339 in UTC.
    pub fn time(&mut self, name: &'static str, time: Timestamp) {
        write!(self.value(name), "\"{time}\"").expect("a buffer takes every byte");
    }

    /// Writes a time or null.
    pub fn time_or_null(&mut self, name: &'static str, time: Option<Timestamp>) {
        match time {
            Some(time) => self.time(name, time),
            None => self.null(name),
        }
    }

    /// Writes true or false.
    pub fn flag(&mut self, name: &'static str, flag: bool) {
        let text: &[u8] = if flag { b"true" } else { b"false" };
        self.value(name).extend_from_slice(text);
    }

    /// Writes null.
    pub fn null(&mut self, name: &'static str) {
        self.value(name).extend_from_slice(b"null");
    }

    /// Closes the object.
    pub fn end(self) {
        self.out.push(b'}');
    }
}

/// Writes a list, each element with `write`.
pub fn write_list<T>(
    out: &mut Vec<u8>,
    elements: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    out.push(b'[');
    for (index, element) in elements.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(out, element);
    }
    out.push(b']');
}

/// Writes millionths as decimal text in a string.
pub fn write_decimal(out: &mut Vec<u8>, micros: i64) {
    out.push(b'"');
    write_micros(out, micros);
    out.push(b'"');
}

/// Writes a string with quotes, escaping only what JSON requires.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((&byte, after)) = special.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            _ => {
                out.extend_from_slice(b"\\u00");
                out.push(HEX[usize::from(byte >> 4)]);
                out.push(HEX[usize::from(byte & 15)]);
            }
        }
        rest = after;
    }
    out.push(b'"');
}

/// Returns the output of `write`, which must be valid JSON.
#[cfg(test)]
pub(in crate::http) fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut out = Vec::new();
    write(&mut out);
    serde_json::from_slice::<serde::de::IgnoredAny>(&out).expect("valid JSON");
    String::from_utf8(out).unwrap()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn written(text: &str) -> String {
        let mut out = Vec::new();
        write_text(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_ascii_character_is_escaped_as_serde_json_does() {
        let all: String = (0..=0x7f_u8).map(char::from).collect();
        assert_eq!(written(&all), serde_json::to_string(&all).unwrap());
    }

    proptest! {
        #[test]
        fn text_is_escaped_as_serde_json_does(text in any::<String>()) {
            prop_assert_eq!(written(&text), serde_json::to_string(&text).unwrap());
        }
    }

    #[test]
    fn an_object_is_valid_json() {
        let mut out = Vec::new();
        JsonObject::new(&mut out).end();
        assert_eq!(out, b"{}");
        out.clear();
        let mut object = JsonObject::new(&mut out);
        object.text("a", "\"");
        object.word("b", "BUY");
        object.integer("c", u64::MAX);
        object.number("d", -500_000);
        object.decimal("e", 1);
        object.decimal_or_null("f", None);
        object.time("g", Timestamp::EPOCH);
        object.time_or_null("h", None);
        object.flag("i", true);
        object.text_or_null("j", None);
        write_list(object.value("k"), [1_i64, 2_000_000], write_decimal);
        object.end();
        assert_eq!(
            std::str::from_utf8(&out).unwrap(),
            "{\"a\":\"\\\"\",\"b\":\"BUY\",\"c\":18446744073709551615,\"d\":-0.5,\
             \"e\":\"0.000001\",\"f\":null,\"g\":\"1970-01-01T00:00:00Z\",\"h\":null,\"i\":true,\
             \"j\":null,\"k\":[\"0.000001\",\"2\"]}"
        );
    }
}
