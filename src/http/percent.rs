//! Percent-decoding, of path segments and of query strings.

use std::borrow::Cow;

/// The bytes that `text` stands for, with `%XX` decoded and on request `+` read as a space. A `%`
/// that no two hexadecimal digits follow stands for itself. Borrowed when there is nothing to do.
pub(super) fn decode(text: &str, plus_is_space: bool) -> Cow<'_, [u8]> {
    let bytes = text.as_bytes();
    if !bytes.iter().any(|&byte| byte == b'%' || (plus_is_space && byte == b'+')) {
        return Cow::Borrowed(bytes);
    }
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        match byte {
            b'%' => {
                if let Some((value, after)) = hex_pair(tail) {
                    decoded.push(value);
                    rest = after;
                } else {
                    decoded.push(b'%');
                }
            }
            b'+' if plus_is_space => decoded.push(b' '),
            _ => decoded.push(byte),
        }
    }
    Cow::Owned(decoded)
}

/// The byte that two digits at the front stand for, and what follows them.
fn hex_pair(bytes: &[u8]) -> Option<(u8, &[u8])> {
    let (&[high, low], rest) = bytes.split_first_chunk()?;
    Some((hex(high)? << 4 | hex(low)?, rest))
}

const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_encoded_is_decoded() {
        for (text, plus_is_space, expected) in [
            ("", true, &b""[..]),
            ("plain", true, b"plain"),
            ("a%20b", false, b"a b"),
            ("a+b", true, b"a b"),
            ("a+b", false, b"a+b"),
            ("%2B%2b", true, b"++"),
            ("%c3%A9", false, "é".as_bytes()),
            ("%FF", false, b"\xff"),
            ("%", false, b"%"),
            ("%4", false, b"%4"),
            ("%zz%41", false, b"%zzA"),
            ("%%41", false, b"%A"),
        ] {
            assert_eq!(decode(text, plus_is_space).as_ref(), expected, "{text}");
        }
        assert!(matches!(decode("plain", true), Cow::Borrowed(_)));
    }
}
