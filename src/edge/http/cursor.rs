//! Cursors of lists that are paged by row number. They are opaque to clients, and encoded as in the
//! venue's API.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

/// The cursor of the first page.
pub(super) const START: &str = "MA==";
/// The cursor after the last page.
pub(super) const END: &str = "LTE=";

/// The start of a page: Base64 of the number of rows before it, or of `-1` after the last page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cursor {
    /// After this many rows.
    At(usize),
    /// After the last page.
    End,
}

impl Cursor {
    /// Parses a cursor that came with the previous page; `None` if the text is not one. Empty text
    /// means the first page.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "" | START => Some(Self::At(0)),
            END => Some(Self::End),
            _ => {
                let bytes = BASE64.decode(text).ok()?;
                let digits = Some(bytes).filter(|bytes| bytes.iter().all(u8::is_ascii_digit))?;
                std::str::from_utf8(&digits).ok()?.parse().ok().map(Self::At)
            }
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(offset) => formatter.write_str(&BASE64.encode(offset.to_string())),
            Self::End => formatter.write_str(END),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_read_as_the_venue_writes_them() {
        for (text, cursor) in [
            ("MA==", Cursor::At(0)),
            ("MTAw", Cursor::At(100)),
            ("MTAwMDAwMDAwMA==", Cursor::At(1_000_000_000)),
            ("LTE=", Cursor::End),
        ] {
            assert_eq!(cursor.to_string(), text);
            assert_eq!(Cursor::parse(text), Some(cursor));
        }
        assert_eq!(Cursor::parse(""), Some(Cursor::At(0)));
        // Not Base64, without padding, "-2", "+1", a number beyond 64 bits.
        for text in ["0", "MA", "LTI=", "KzE=", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"] {
            assert_eq!(Cursor::parse(text), None, "{text}");
        }
    }
}
