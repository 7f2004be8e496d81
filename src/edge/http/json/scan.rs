//! Reads an object of plain fields in one pass over its text.
//!
//! The scanner reports no errors: anything that it cannot read is left to serde.

use std::borrow::Cow;

use super::plain::plain_length;
use super::read::{FIELDS_COMPARED_MAX, ObjectFields, RawText, is_space};

/// Reads the whole text as an object into `fields`. Returns `None` if it is not an object, is not
/// plain, or has too many fields. `fields` must be empty; after `None` its content is meaningless.
#[inline]
pub(super) fn scan<'a>(text: &'a str, fields: &mut ObjectFields<'a>) -> Option<()> {
    Scanner { text, place: 0 }.object(fields)
}

struct Scanner<'a> {
    text: &'a str,
    /// The position up to which the text was read.
    place: usize,
}

impl<'a> Scanner<'a> {
    #[inline]
    fn object(mut self, fields: &mut ObjectFields<'a>) -> Option<()> {
        self.skip_spaces();
        self.expect(b'{')?;
        self.skip_spaces();
        if self.expect(b'}').is_none() {
            self.fields(fields)?;
            self.expect(b'}')?;
        }
        self.skip_spaces();
        (self.place == self.text.len()).then_some(())
    }

    #[inline]
    fn fields(&mut self, fields: &mut ObjectFields<'a>) -> Option<()> {
        loop {
            let name = self.string()?;
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
            if self.expect(b',').is_none() {
                return Some(());
            }
            self.skip_spaces();
        }
    }

    #[inline]
    fn value(&mut self) -> Option<RawText<'a>> {
        match self.peek()? {
            b'"' => Some(RawText::Plain(self.string()?)),
            b't' => self.word("true"),
            b'f' => self.word("false"),
            b'n' => self.word("null"),
            _ => self.number(),
        }
    }

    /// Reads a string without escapes and returns its text.
    fn string(&mut self) -> Option<&'a str> {
        self.expect(b'"')?;
        let start = self.place;
        self.place += plain_length(&self.text.as_bytes()[start..]);
        let text = &self.text[start..self.place];
        self.expect(b'"')?;
        Some(text)
    }

    fn word(&mut self, word: &str) -> Option<RawText<'a>> {
        let start = self.place;
        let is_there = self.text.as_bytes()[start..].starts_with(word.as_bytes());
        // Moving past a missing word is harmless, because the scan then fails as a whole.
        self.place += word.len();
        is_there.then(|| self.since(start))
    }

    /// Reads a number in JSON syntax: no plus sign, no leading zero, digits on both sides of a
    /// point.
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

    /// Reads at least one digit.
    fn digits(&mut self) -> Option<()> {
        let start = self.place;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.place += 1;
        }
        (self.place > start).then_some(())
    }

    #[inline]
    fn skip_spaces(&mut self) {
        while self.peek().is_some_and(is_space) {
            self.place += 1;
        }
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Option<()> {
        if self.peek()? != byte {
            return None;
        }
        self.place += 1;
        Some(())
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.place).copied()
    }

    /// Returns the text read since `start`. Both ends are next to ASCII, so they are character
    /// boundaries.
    fn since(&self, start: usize) -> RawText<'a> {
        RawText::Other(&self.text[start..self.place])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::invalid::Location;
    use crate::http::json::read::Object;

    /// Generates fragments of valid and invalid JSON.
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

    /// Generates plain values of every kind.
    fn plain_value() -> impl Strategy<Value = String> {
        prop_oneof![
            "\"[^\"\\\\\\x00-\\x1f]{0,20}\"",
            "-?(0|[1-9][0-9]{0,9})(\\.[0-9]{1,9})?([eE][-+]?[0-9]{1,3})?",
            "true|false|null",
        ]
    }

    #[track_caller]
    fn check_scanned(text: &str) {
        let mut fields = ObjectFields::new();
        if scan(text, &mut fields).is_some() {
            assert_eq!(Ok(Object(fields)), Object::read_any(text, &Location::body()), "{text}");
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
            prop_assert!(scan(&text, &mut ObjectFields::new()).is_some(), "{}", text);
            check_scanned(&text);
        }
    }
}
