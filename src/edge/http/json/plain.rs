//! Finds where the text of a JSON string stops being plain: at a quote, a backslash or a control
//! character. Both the reader and the writer of JSON need this for every string.

/// A word whose bytes are all 1.
const ONES: u64 = u64::from_ne_bytes([1; 8]);
/// The highest bit of each byte of a word.
const HIGH_BITS: u64 = ONES << 7;

/// Returns the number of bytes at the start of `bytes` that need no escape in a JSON string.
pub(super) fn plain_length(bytes: &[u8]) -> usize {
    let mut length = 0;
    while let Some(word) = bytes[length..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return length + special.trailing_zeros() as usize / 8;
        }
        length += 8;
    }
    let is_plain = |byte: &u8| !matches!(byte, b'"' | b'\\' | 0..0x20);
    length + bytes[length..].iter().take_while(|byte| is_plain(byte)).count()
}

/// Returns the high bit of each byte that is not plain. Bits above the lowest such byte are
/// unreliable, since a subtraction borrows from the byte above.
const fn special_bytes(word: u64) -> u64 {
    let control = word.wrapping_sub(ONES * 0x20);
    let quote = (word ^ (ONES * b'"' as u64)).wrapping_sub(ONES);
    let backslash = (word ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    // Bytes from 0x80 up are plain.
    (control | quote | backslash) & !word & HIGH_BITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn naive(bytes: &[u8]) -> usize {
        let is_special = |&byte: &u8| byte < 0x20 || byte == b'"' || byte == b'\\';
        bytes.iter().position(is_special).unwrap_or(bytes.len())
    }

    #[test]
    fn every_byte_is_classified_at_every_place() {
        for byte in 0..=u8::MAX {
            for place in 0..20 {
                for around in [b'a', 0x7f, 0x80, 0xff, b' ', b'!', b'#', b'[', b']'] {
                    let mut bytes = [around; 20];
                    bytes[place] = byte;
                    assert_eq!(plain_length(&bytes), naive(&bytes), "{byte:#x} at {place}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn it_agrees_with_looking_at_each_byte(
            bytes in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            prop_assert_eq!(plain_length(&bytes), naive(&bytes));
        }
    }
}
