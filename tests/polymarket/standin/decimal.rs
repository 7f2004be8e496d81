//! The venue's numbers are texts; to order and mirror them, they are millionths.

/// One dollar, in millionths.
pub(crate) const ONE_MICROS: i64 = 1_000_000;

/// The number of this text in millionths; a missing leading zero is fine.
#[track_caller]
pub(crate) fn micros(text: &str) -> i64 {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    assert!(part.len() <= 6 && !text.is_empty(), "{text:?} is finer than a millionth, or nothing");
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().unwrap() };
    let digits = format!("{part:0<6}");
    whole * ONE_MICROS + digits.parse::<i64>().unwrap()
}

/// The text of this number as the venue writes it: without trailing zeros.
pub(crate) fn text(micros: i64) -> String {
    assert!(micros >= 0, "the venue has no negative numbers");
    let (whole, part) = (micros / ONE_MICROS, micros % ONE_MICROS);
    if part == 0 {
        return whole.to_string();
    }
    let digits = format!("{whole}.{part:06}");
    digits.trim_end_matches('0').to_owned()
}

/// The price of the other token: one dollar less this.
pub(crate) fn mirrored(price: &str) -> String {
    text(ONE_MICROS - micros(price))
}

/// With three decimals at least, as the venue tells the price of the newest trade in a book.
pub(crate) fn padded(price: &str) -> String {
    let (whole, part) = price.split_once('.').unwrap_or((price, ""));
    format!("{}.{part:0<3}", if whole.is_empty() { "0" } else { whole })
}
