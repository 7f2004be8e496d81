//! Reads an object of plain fields in one pass over its text.
//!
//! It reports no errors: whatever it cannot read is left to serde.

use std::borrow::Cow;

use super::plain::plain_length;
use super::read::{FIELDS_COMPARED_MAX, Object, ObjectFields, RawText, is_space};

/// Reads the whole text as an object. `None` if it is not one, is not plain, or has many fields.
pub(super) fn scan(text: &str) -> Option<Object<'_>> {
    Scanner { text, place: 0 }.object()
}

struct Scanner<'a> {
    text: &'a str,
    /// The position up to which the text was read.
    place: usize,
}

impl<'a> Scanner<'a> {
    fn object(mut self) -> Option<Object<'a>> {
        let mut fields = ObjectFields::new();
        self.skip_spaces();
        self.expect(b'{')?;
        self.skip_spaces();
        let mut is_open = self.expect(b'}').is_none();
        while is_open {
            let name = self.string()?.get();
            let name = &name[1..name.len() - 1];
            self.skip_spaces();
            self.expect(b':')?;
            self.skip_spaces();
            let value = self.value()?;
            let is_known = fields.iter().any(|(field, _)| field == name);
            if is_known || fields.len() >= FIELDS_COMPARED_MAX {
                return None;
            }
            fields.push((Cow::Borrowed(name), value));
            self.skip_spaces();
            is_open = self.expect(b',').is_some();
            if is_open {
                self.skip_spaces();
            } else {
                self.expect(b'}')?;
            }
        }
        self.skip_spaces();
        (self.place == self.text.len()).then_some(Object(fields))
    }

    fn value(&mut self) -> Option<RawText<'a>> {
        match self.peek()? {
            b'"' => self.string(),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    /// A string without escapes, with its quotes.
    fn string(&mut self) -> Option<RawText<'a>> {
        let start = self.place;
        self.expect(b'"')?;
        self.place += plain_length(&self.text.as_bytes()[self.place..]);
        self.expect(b'"')?;
        Some(self.since(start))
    }

    fn word(&mut self, word: &str) -> Option<RawText<'a>> {
        let start = self.place;
        let is_there = self.text.as_bytes()[start..].starts_with(word.as_bytes());
        self.place += word.len();
        is_there.then(|| self.since(start))
    }

    /// A number in JSON syntax: no plus sign, no leading zero, digits on both sides of a point.
    fn number(&mut self) -> Option<RawText<'a>> {
        let start = self.place;
        let _ = self.expect(b'-');
        if self.expect(b'0').is_none() {
            self.digits()?;
        }
        if self.expect(b'.').is_some() {
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.place += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.place += 1;
            }
            self.digits()?;
        }
        Some(self.since(start))
    }

    /// At least one digit.
    fn digits(&mut self) -> Option<()> {
        let rest = &self.text.as_bytes()[self.place..];
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.place += count;
        (count > 0).then_some(())
    }

    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.place += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let is_there = self.peek() == Some(byte);
        self.place += usize::from(is_there);
        is_there.then_some(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.place).copied()
    }

    /// The text read since `start`. Both ends are next to ASCII, so they are character boundaries.
    fn since(&self, start: usize) -> RawText<'a> {
        RawText(&self.text[start..self.place])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::invalid::Location;

    /// Fragments of valid and invalid JSON.
    fn piece() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "{",
            "}",
            "[",
            "]",
            ":",
            ",",
            " ",
            "\n",
            "\"a\"",
            "\"b\"",
            "\"\"",
            "\"\\u0061\"",
            "\"é\"",
            "\"market_id\"",
            "\"\u{1}\"",
            "\"",
            "\\",
            "0",
            "1",
            "-",
            "-0",
            "1.5",
            "01",
            "1e5",
            "1E-07",
            "+",
            ".",
            "e",
            "true",
            "false",
            "null",
            "nul",
            "x",
            "\u{feff}",
            "\u{7f}",
            "\0",
        ])
    }

    /// Plain values of every kind.
    fn plain_value() -> impl Strategy<Value = String> {
        prop_oneof![
            "\"[^\"\\\\\\x00-\\x1f]{0,20}\"",
            "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,9})?([eE][-+]?[0-9]{1,3})?",
            "true|false|null",
        ]
    }

    #[track_caller]
    fn check_scanned(text: &str) {
        if let Some(scanned) = scan(text) {
            assert_eq!(Ok(scanned), Object::read_any(text, &Location::body()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_scanned_is_what_serde_reads(
            pieces in prop::collection::vec(piece(), 0..12),
            value in plain_value(),
        ) {
            let pieces = pieces.concat();
            check_scanned(&pieces);
            check_scanned(&format!("{{\"a\":{pieces}}}"));
            check_scanned(&format!("{{\"a\":{value}{pieces}"));
            check_scanned(&format!("{{\"a\":{value},{pieces}}}"));
        }

        #[test]
        fn a_plain_object_is_scanned(
            values in prop::collection::vec(plain_value(), 0..FIELDS_COMPARED_MAX),
            space in "[ \t\r\n]{0,2}",
        ) {
            let fields: Vec<_> = (0..)
                .zip(values)
                .map(|(name, value)| format!("{space}\"{name}\"{space}:{space}{value}{space}"))
                .collect();
            let text = format!("{space}{{{}}}{space}", fields.join(","));
            prop_assert!(scan(&text).is_some(), "{}", text);
            check_scanned(&text);
        }
    }
}
