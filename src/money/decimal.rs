//! Decimal text to millionths and back, without a float in between.

use std::fmt;

use super::MICROS_PER_UNIT;

/// Number text longer than this is refused, whatever its value: no client needs it, and it bounds
/// the work of reading one.
pub const DECIMAL_TEXT_BYTES_MAX: usize = 40;

/// What becomes of digits past the sixth decimal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rounding {
    /// They are refused: the text is meant literally.
    Exact,
    /// They are cut off: a quantity or an amount that carries float noise.
    TowardZero,
    /// The nearest millionth, halves to the even one: a price that carries float noise.
    HalfEven,
}

/// Why text is not a number that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecimalError {
    /// It is not decimal text.
    #[error("not a decimal number")]
    Malformed,
    /// It has more than [`DECIMAL_TEXT_BYTES_MAX`] characters.
    #[error("a number of more than {DECIMAL_TEXT_BYTES_MAX} characters")]
    TooLong,
    /// It has more than six decimals, and was to be taken literally.
    #[error("a number of more than 6 decimals")]
    TooPrecise,
}

/// Reads decimal text as millionths: an optional `-`, digits with an optional point, and an
/// optional exponent. A missing digit before the point is accepted (`.48`), as the venue writes it.
///
/// A value past the range of an `i64` is clamped to it, so that the range check of the field, and
/// not this function, says what is wrong with it.
pub fn micros_from_text(text: &str, rounding: Rounding) -> Result<i64, DecimalError> {
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

/// The digits of a number and where its point stands.
struct Digits {
    negative: bool,
    values: [u8; DECIMAL_TEXT_BYTES_MAX],
    count: usize,
    /// How many of the digits stand before the point; negative or past the end with an exponent.
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
        // A point needs a digit behind it: `5.` is not JSON, and `.` is not a number.
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

    /// How many decimals are written, once the exponent has moved the point.
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
                // Only zeros so far and no digit left: the rest of an exponent changes nothing.
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

    /// Whether the digits from `kept` on are more than half a unit, or half beside an odd one.
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

/// Reads the digits behind the `e`, clamped to what can matter for 40 characters.
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

/// Appends the trimmed decimal text of so many millionths.
pub fn write_micros(out: &mut Vec<u8>, micros: i64) {
    let (whole, fraction) = split(micros);
    if micros < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(itoa::Buffer::new().format(whole).as_bytes());
    if let Some((digits, digit_count)) = trimmed(fraction) {
        out.push(b'.');
        out.extend_from_slice(&digits[..digit_count]);
    }
}

/// The same text for a formatter.
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

/// The six digits of a fraction and how many are left without its trailing zeros.
fn trimmed(fraction: u64) -> Option<([u8; 6], usize)> {
    if fraction == 0 {
        return None;
    }
    let mut digits = [b'0'; 6];
    let mut rest = fraction;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).expect("a digit is below 10");
        rest /= 10;
    }
    let last = digits.iter().rposition(|&digit| digit != b'0').expect("the fraction is not 0");
    Some((digits, last + 1))
}
