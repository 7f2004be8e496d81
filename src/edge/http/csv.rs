//! Writes CSV as RFC 4180 defines it: fields separated by commas, lines ended by a carriage return
//! and a line feed, and quotes around text that needs them.

use std::io::Write as _;

use paperbourse_core::wire::{Decimal, Time};

/// A line that is being written, field by field. [`Line::end`] ends it.
#[must_use = "a line goes on until its end"]
pub(super) struct Line<'a> {
    out: &'a mut Vec<u8>,
    is_empty: bool,
}

impl<'a> Line<'a> {
    /// Begins a line.
    pub(super) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, is_empty: true }
    }

    fn field(&mut self) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.is_empty) {
            self.out.push(b',');
        }
        self.out
    }

    /// Writes text, quoted if needed and otherwise unchanged. A spreadsheet may take text that
    /// begins with `=` for a formula.
    pub(super) fn text(&mut self, text: &str) {
        let out = self.field();
        if !text.contains(['"', ',', '\r', '\n']) {
            out.extend_from_slice(text.as_bytes());
            return;
        }
        out.push(b'"');
        for part in text.split_inclusive('"') {
            out.extend_from_slice(part.as_bytes());
            if part.ends_with('"') {
                out.push(b'"');
            }
        }
        out.push(b'"');
    }

    /// Writes an integer.
    pub(super) fn integer(&mut self, number: u64) {
        self.field().extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }

    /// Writes a decimal number.
    pub(super) fn decimal(&mut self, decimal: Decimal) {
        decimal.write(self.field());
    }

    /// Writes a time as RFC 3339 in UTC, or an empty field for `None`.
    pub(super) fn time(&mut self, time: Option<Time>) {
        let out = self.field();
        if let Some(Time(time)) = time {
            write!(out, "{time}").expect("a buffer takes every byte");
        }
    }

    /// Ends the line.
    pub(super) fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Parses the output of [`Line`], character by character.
#[cfg(test)]
pub(in crate::http) fn read(csv: &str) -> Vec<Vec<String>> {
    let mut lines = vec![vec![String::new()]];
    let mut characters = csv.chars().peekable();
    let mut is_quoted = false;
    while let Some(character) = characters.next() {
        let line = lines.last_mut().unwrap();
        let field = line.last_mut().unwrap();
        match character {
            '"' if !is_quoted && field.is_empty() => is_quoted = true,
            '"' if is_quoted && characters.next_if_eq(&'"').is_some() => field.push('"'),
            '"' if is_quoted => is_quoted = false,
            ',' if !is_quoted => line.push(String::new()),
            '\r' if !is_quoted && characters.next_if_eq(&'\n').is_some() => {
                lines.push(vec![String::new()]);
            }
            _ => field.push(character),
        }
    }
    assert_eq!(lines.pop(), Some(vec![String::new()]), "the last line has an end");
    lines
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::money::Usd;

    fn line(write: impl FnOnce(&mut Line<'_>)) -> String {
        let mut out = Vec::new();
        let mut line = Line::new(&mut out);
        write(&mut line);
        line.end();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_quoted_if_it_must_be() {
        for (text, expected) in [
            ("", ""),
            ("Yes", "Yes"),
            (" a b ", " a b "),
            ("=1+1", "=1+1"),
            ("'", "'"),
            ("a,b", "\"a,b\""),
            ("a\nb", "\"a\nb\""),
            ("\r", "\"\r\""),
            ("\"", "\"\"\"\""),
            ("a\"\"b", "\"a\"\"\"\"b\""),
            ("Zürich\u{85}", "Zürich\u{85}"),
        ] {
            assert_eq!(line(|line| line.text(text)), format!("{expected}\r\n"), "{text:?}");
        }
    }

    #[test]
    fn each_kind_of_field_has_its_form() {
        let written = line(|line| {
            line.integer(u64::MAX);
            line.decimal(Usd::from_micros(-500_000).into());
            line.text("");
            line.time(Some(Time(Timestamp::EPOCH)));
            line.time(None);
        });
        assert_eq!(written, "18446744073709551615,-0.5,,1970-01-01T00:00:00Z,\r\n");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(lines in proptest::collection::vec(
            proptest::collection::vec("[a\", \r\n=\u{e9}]{0,5}", 1..4), 0..4,
        )) {
            let mut out = Vec::new();
            for fields in &lines {
                let mut line = Line::new(&mut out);
                for text in fields {
                    line.text(text);
                }
                line.end();
            }
            prop_assert_eq!(read(std::str::from_utf8(&out).unwrap()), lines);
        }
    }
}
