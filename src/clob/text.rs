//! Numbers and bytes, as clients write them.

use std::str::FromStr;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Parses a number of decimal digits, without a sign; `None` if `T` cannot hold it.
pub(crate) fn decimal<T: FromStr>(text: &[u8]) -> Option<T> {
    // An integer's own parser accepts a sign, and refuses an empty text.
    let digits = Some(text).filter(|text| text.iter().all(u8::is_ascii_digit))?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Formats bytes as hexadecimal digits in lower case, without `0x`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(HEX_DIGITS[usize::from(digit)])).collect()
}

/// Parses `0x` and two hexadecimal digits, in either case, for each of the bytes.
pub(crate) const fn bytes_from_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let [b'0', b'x', digits @ ..] = text else { return None };
    if digits.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        let (Some(high), Some(low)) = (digit(digits[2 * at]), digit(digits[2 * at + 1])) else {
            return None;
        };
        bytes[at] = high << 4 | low;
        at += 1;
    }
    Some(bytes)
}

const fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        b'A'..=b'F' => Some(character - b'A' + 10),
        _ => None,
    }
}
