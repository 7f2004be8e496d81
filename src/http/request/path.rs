//! Ids as they stand in paths.

use crate::http::invalid::{FieldError, Location};
use crate::ids::{CommentId, KeyId, OrderId};

/// An id that a path can name.
pub trait PathId: Sized {
    /// What the parameter is called.
    const NAME: &'static str;

    /// The id with this number, if there can be one.
    fn from_number(number: u64) -> Option<Self>;
}

impl PathId for OrderId {
    const NAME: &'static str = "order_id";

    fn from_number(number: u64) -> Option<Self> {
        Self::from_raw(number)
    }
}

impl PathId for KeyId {
    const NAME: &'static str = "key_id";

    fn from_number(number: u64) -> Option<Self> {
        Self::from_raw(number)
    }
}

impl PathId for CommentId {
    const NAME: &'static str = "comment_id";

    fn from_number(number: u64) -> Option<Self> {
        Self::from_raw(number)
    }
}

/// Reads an id. What is not an integer is an error; an integer that nothing can have as its id is
/// `None`, and what it names is not found.
pub fn read_id<T: PathId>(text: &str) -> Result<Option<T>, FieldError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FieldError {
            location: Location::of("path").field(T::NAME),
            kind: "int_parsing",
            message: "should be an integer".into(),
        });
    }
    if text.starts_with('-') {
        return Ok(None);
    }
    Ok(digits.parse().ok().and_then(T::from_number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_told_from_an_id() {
        let id = |number| Ok(OrderId::from_raw(number));
        for (text, expected) in [
            ("64", id(64)),
            ("0064", id(64)),
            ("+64", id(64)),
            ("9007199254740991", id(9_007_199_254_740_991)),
            ("0", Ok(None)),
            ("63", Ok(None)),
            ("-64", Ok(None)),
            ("9007199254740992", Ok(None)),
            ("99999999999999999999999999", Ok(None)),
        ] {
            assert_eq!(read_id::<OrderId>(text), expected, "{text}");
        }
        for text in ["", "-", "+-1", "6 4", " 64", "64.0", "1e3", "0x40", "x", "٦٤"] {
            let error = read_id::<CommentId>(text).unwrap_err();
            assert_eq!(error.location.to_string(), "path.comment_id", "{text}");
            assert_eq!(error.kind, "int_parsing");
        }
    }
}
