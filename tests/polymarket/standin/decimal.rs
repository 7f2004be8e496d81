//! The venue writes numbers as texts; to sort and mirror them, they are converted to millionths.

/// One dollar, in millionths.
pub(crate) const ONE_MICROS: i64 = 1_000_000;

/// Parses a number into millionths; the leading zero may be missing.
#[track_caller]
pub(crate) fn micros(text: &str) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    assert!(part.len() <= 6 && !text.is_empty(), "{text:?} is empty or finer than a millionth");
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().unwrap() };
    let digits = format!("{part:0<6}");
    whole * ONE_MICROS + digits.parse::<i64>().unwrap()
}

/// The number as the venue writes it, without trailing zeros.
pub(crate) fn text(micros: i64) -> String {
    assert!(micros >= 0, "the venue uses no negative numbers");
    let (whole, part) = (micros / ONE_MICROS, micros % ONE_MICROS);
    if part == 0 {
        return whole.to_string();
    }
    let digits = format!("{whole}.{part:06}");
    digits.trim_end_matches('0').to_owned()
}

/// The price of the other token: one dollar minus this price.
pub(crate) fn mirrored(price: &str) -> String {
    text(ONE_MICROS - micros(price))
}

/// The price with at least three decimals, as the venue writes the last trade price of a book.
pub(crate) fn padded(price: &str) -> String {
    let (whole, part) = price.split_once('.').unwrap_or((price, ""));
    format!("{}.{part:0<3}", if whole.is_empty() { "0" } else { whole })
}
