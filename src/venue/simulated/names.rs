//! The ids of simulated markets, in Polymarket's format.
//!
//! They depend only on slug and label, so that an id in a document is valid for every seed. Anyone
//! can recompute them: a condition id is `0x` and the SHA-256, in hexadecimal, of `paperbourse
//! simulated market SLUG`; a token id is the SHA-256 of `paperbourse simulated token SLUG/LABEL`
//! without its highest bit, as a decimal number.

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};

/// Returns the condition id of the market with this slug: `0x` and 64 hexadecimal digits.
pub(super) fn condition_id(slug: &str) -> String {
    let mut text = String::from("0x");
    for byte in sha256(&format!("paperbourse simulated market {slug}")) {
        for half in [byte >> 4, byte & 0xF] {
            text.push(char::from_digit(half.into(), 16).expect("four bits are below 16"));
        }
    }
    text
}

/// Returns the token id of one outcome: a decimal number of at most 77 digits.
pub(super) fn token_id(slug: &str, label: &str) -> String {
    let mut number = sha256(&format!("paperbourse simulated token {slug}/{label}"));
    // 2²⁵⁵ has 77 digits, 2²⁵⁶ has 78.
    number[0] &= 0x7F;
    decimal(number)
}

fn sha256(text: &str) -> [u8; SHA256_OUTPUT_LEN] {
    digest(&SHA256, text.as_bytes()).as_ref().try_into().expect("a SHA-256 digest has 32 bytes")
}

/// Returns the decimal digits of a big-endian number.
fn decimal(mut number: [u8; SHA256_OUTPUT_LEN]) -> String {
    let mut digits = Vec::new();
    while number.iter().any(|&byte| byte != 0) {
        let mut rest: u16 = 0;
        for byte in &mut number {
            let dividend = rest * 256 + u16::from(*byte);
            *byte = u8::try_from(dividend / 10).expect("the rest is below 10");
            rest = dividend % 10;
        }
        digits.push(char::from(b'0' + u8::try_from(rest).expect("the rest is below 10")));
    }
    if digits.is_empty() { "0".to_owned() } else { digits.iter().rev().collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_in_decimal() {
        let number = |low: u128| {
            let mut bytes = [0; SHA256_OUTPUT_LEN];
            bytes[16..].copy_from_slice(&low.to_be_bytes());
            bytes
        };
        for low in [0, 1, 9, 10, 255, 256, 1_000_000_007, u128::MAX] {
            assert_eq!(decimal(number(low)), low.to_string());
        }
        let mut highest = [0xFF; SHA256_OUTPUT_LEN];
        highest[0] = 0x7F;
        let text = decimal(highest);
        assert_eq!(text.len(), 77);
        assert!(text.starts_with("57896044618658097711785492504343953926"), "{text}");
        assert!(text.ends_with("564819967"), "{text}");
    }
}
