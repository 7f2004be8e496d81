//! Converts decimal text to millionths and back, without floats.

use std::fmt;

use super::MICROS_PER_UNIT;

/// Longest accepted number, in characters. No client needs more, and this bounds the work of
/// parsing.
pub const DECIMAL_TEXT_BYTES_MAX: usize = 40;

/// The treatment of digits after the sixth decimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// Refuse further digits: the text is meant literally.
    Exact,
    /// Truncate further digits: the text is a quantity or an amount with float noise.
    TowardZero,
    /// Round to the nearest millionth, halves to even: the text is a price with float noise.
    HalfEven,
}

/// The error for text that cannot be read as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecimalError {
    /// The text is not a decimal number.
    #[error("not a decimal number")]
    Malformed,
    /// The text has more than [`DECIMAL_TEXT_BYTES_MAX`] characters.
    #[error("a number of more than {DECIMAL_TEXT_BYTES_MAX} characters")]
    TooLong,
    /// The number has more than six decimals, which the caller does not allow.
    #[error("a number of more than 6 decimals")]
    TooPrecise,
}

/// Parses decimal text as millionths: an optional `-`, digits with an optional point, and an
/// optional exponent. The digit before the point may be missing (`.48`), as in the venue's data.
///
/// A value out of the range of an `i64` is clamped, so that the field's range check reports the
/// error.
pub fn micros_from_text(text: &str, rounding: Rounding) -> Result<i64, DecimalError> {
    if let Some(micros) = short(text.as_bytes()) {
        return Ok(micros);
    }
    if text.len() > DECIMAL_TEXT_BYTES_MAX {
        return Err(DecimalError::TooLong);
    }
    let number = Digits::read(text).ok_or(DecimalError::Malformed)?;
    if rounding == Rounding::Exact && number.decimal_count() > 6 {
        return Err(DecimalError::TooPrecise);
    }
    let magnitude = number.micros(rounding);
    Ok(if number.negative { magnitude.saturating_neg() } else { magnitude })
}

/// Fast path for the usual form: at most 12 characters, digits with an optional point and at most
/// six decimals. Returns `None` for any other text, valid or not.
fn short(text: &[u8]) -> Option<i64> {
    const BYTES_MAX: usize = 12;
    const SCALES: [i64; 7] = [1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
    if text.len() > BYTES_MAX {
        return None;
    }
    let mut digits: i64 = 0;
    let mut point = None;
    for (place, &byte) in text.iter().enumerate() {
        match byte {
            b'0'..=b'9' => digits = digits * 10 + i64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(place),
            _ => return None,
        }
    }
    let decimal_count = match point {
        Some(place) => text.len() - place - 1,
        None => 0,
    };
    // Without a final digit, the slow path decides whether this is a number.
    let is_number = text.last().is_some_and(u8::is_ascii_digit);
    SCALES.get(decimal_count).filter(|_| is_number).map(|scale| digits * scale)
}

/// The digits of a number and the position of its point.
struct Digits {
    negative: bool,
    values: [u8; DECIMAL_TEXT_BYTES_MAX],
    count: usize,
    /// Number of digits before the point. An exponent can make it negative, or larger than the
    /// number of digits.
    point: i32,
}

impl Digits {
    fn read(text: &str) -> Option<Self> {
        let mut bytes = text.as_bytes();
        let negative = bytes.first() == Some(&b'-');
        if negative {
            bytes = &bytes[1..];
        }
        let mut number = Self { negative, values: [0; DECIMAL_TEXT_BYTES_MAX], count: 0, point: 0 };
        let mut point_seen = false;
        let mut fraction_count = 0;
        while let Some((&byte, rest)) = bytes.split_first() {
            match byte {
                b'0'..=b'9' => {
                    number.values[number.count] = byte - b'0';
                    number.count += 1;
                    fraction_count += i32::from(point_seen);
                }
                b'.' if !point_seen => point_seen = true,
                b'e' | b'E' => break,
                _ => return None,
            }
            bytes = rest;
        }
        // A point needs a digit after it: `5.` is not JSON, and `.` is not a number.
        if number.count == 0 || (point_seen && fraction_count == 0) {
            return None;
        }
        let exponent = match bytes.split_first() {
            None => 0,
            Some((_, exponent)) => read_exponent(exponent)?,
        };
        let integer_count = i32::try_from(number.count).ok()? - fraction_count;
        number.point = integer_count + exponent;
        Some(number)
    }

    /// Returns the number of decimals after applying the exponent.
    fn decimal_count(&self) -> i32 {
        let digit_count = i32::try_from(self.count).expect("at most 40 digits");
        digit_count - self.point
    }

    fn micros(&self, rounding: Rounding) -> i64 {
        let kept = self.point.saturating_add(6);
        let mut micros: i64 = 0;
        for place in 0..kept {
            let digit = usize::try_from(place)
                .ok()
                .and_then(|place| self.values[..self.count].get(place))
                .copied();
            if digit.is_none() && micros == 0 {
                // All digits are used up and all are zeros: the rest of the exponent changes
                // nothing.
                break;
            }
            micros =
                match micros.checked_mul(10).and_then(|m| m.checked_add(digit.unwrap_or(0).into()))
                {
                    Some(micros) => micros,
                    None => return i64::MAX,
                };
        }
        if rounding == Rounding::HalfEven && self.rounds_up(kept, micros) {
            micros = micros.saturating_add(1);
        }
        micros
    }

    /// Whether the digits from `kept` on are more than half a unit, or exactly half after an odd
    /// digit.
    fn rounds_up(&self, kept: i32, micros: i64) -> bool {
        let Ok(kept) = usize::try_from(kept) else {
            return false; // Below a tenth of a millionth: nearer to 0.
        };
        let Some((&first, rest)) =
            self.values[..self.count].get(kept..).and_then(<[u8]>::split_first)
        else {
            return false;
        };
        match first {
            0..=4 => false,
            5 => micros % 2 == 1 || rest.iter().any(|&digit| digit != 0),
            _ => true,
        }
    }
}

/// Parses the digits after the `e`. The result is clamped to a range that suffices for 40
/// characters.
fn read_exponent(bytes: &[u8]) -> Option<i32> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let magnitude =
        digits.iter().fold(0_i32, |sum, digit| (sum * 10 + i32::from(digit - b'0')).min(1000));
    Some(if negative { -magnitude } else { magnitude })
}

/// Longest text of a number of millionths: a sign, thirteen digits, a point and six decimals.
pub const MICROS_TEXT_BYTES_MAX: usize = 21;

/// Appends millionths as trimmed decimal text.
#[inline]
pub fn write_micros(out: &mut Vec<u8>, micros: i64) {
    let mut text = [0; MICROS_TEXT_BYTES_MAX];
    let end = out.len() + put_micros(&mut text, micros);
    // Copying a fixed number of bytes needs no call. The bytes beyond the text are truncated
    // afterwards.
    out.extend_from_slice(&text);
    out.truncate(end);
}

/// Appends millionths as decimal text with at least three decimals: `0.420`, `0.4312`, `1.000`.
pub fn write_micros_to_thousandths(out: &mut Vec<u8>, micros: i64) {
    let start = out.len();
    write_micros(out, micros);
    let text = &out[start..];
    let decimals = text.iter().position(|&byte| byte == b'.').map(|point| text.len() - point - 1);
    if decimals.is_none() {
        out.push(b'.');
    }
    out.extend((decimals.unwrap_or(0)..3).map(|_| b'0'));
}

/// Writes millionths as trimmed decimal text to the start of `text` and returns its length. The
/// bytes after it are unspecified.
pub fn put_micros(text: &mut [u8; MICROS_TEXT_BYTES_MAX], micros: i64) -> usize {
    let (whole, fraction) = split(micros);
    let mut end = 0;
    if micros < 0 {
        text[0] = b'-';
        end = 1;
    }
    if let digit @ 0..=9 = whole {
        text[end] = b'0' + u8::try_from(digit).expect("the value is a single digit");
        end += 1;
    } else {
        let mut buffer = itoa::Buffer::new();
        let digits = buffer.format(whole).as_bytes();
        text[end..end + digits.len()].copy_from_slice(digits);
        end += digits.len();
    }
    if fraction == 0 {
        return end;
    }
    text[end] = b'.';
    let pairs = [fraction / 10_000, fraction / 100 % 100, fraction % 100];
    for (place, pair) in text[end + 1..end + 7].chunks_exact_mut(2).zip(pairs) {
        place.copy_from_slice(&PAIRS[usize::try_from(pair).expect("the value is below a hundred")]);
    }
    end += 7;
    while text[end - 1] == b'0' {
        end -= 1;
    }
    end
}

/// The numbers below 100, each as two digits.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[b'0'; 2]; 100];
    let mut number: u8 = 0;
    while number < 100 {
        pairs[number as usize] = [b'0' + number / 10, b'0' + number % 10];
        number += 1;
    }
    pairs
};

/// Writes the same text as [`write_micros`] to a formatter.
pub(super) fn format_micros(micros: i64, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut text = Vec::with_capacity(24);
    write_micros(&mut text, micros);
    formatter.pad(std::str::from_utf8(&text).expect("digits, a point and a sign are ASCII"))
}

fn split(micros: i64) -> (u64, u64) {
    let magnitude = micros.unsigned_abs();
    let unit = MICROS_PER_UNIT.unsigned_abs();
    (magnitude / unit, magnitude % unit)
}
