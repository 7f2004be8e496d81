//! Numbers and bytes, as clients write them.

use std::str::FromStr;

const HEX_DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Parses a number of decimal digits, without a sign; `None` if `T` cannot hold it.
pub(crate) fn decimal<T: FromStr>(text: &[u8]) -> Option<T> {
    // An integer's own parser accepts a sign, and refuses an empty text.
    let digits = Some(text).filter(|text| text.iter().all(u8::is_ascii_digit))?;
    str::from_utf8(digits).ok()?.parse().ok()
}

/// Parses a number of decimal digits below 2^256 into its 32 bytes, most significant first.
pub(crate) fn decimal_word(text: &[u8]) -> Option<[u8; 32]> {
    let digits = Some(text).filter(|text| !text.is_empty())?;
    // 64 bits each, least significant first.
    let mut limbs = [0_u64; 4];
    for &digit in digits {
        let mut carried = u64::from(Some(digit).filter(u8::is_ascii_digit)? - b'0');
        for limb in &mut limbs {
            let (low, high) = limb.carrying_mul(10, carried);
            (*limb, carried) = (low, high);
        }
        if carried > 0 {
            return None;
        }
    }
    let mut bytes = [0; 32];
    for (bytes, limb) in bytes.rchunks_exact_mut(size_of::<u64>()).zip(limbs) {
        bytes.copy_from_slice(&limb.to_be_bytes());
    }
    Some(bytes)
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
