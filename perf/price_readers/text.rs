//! What is read from the text of a frame without parsing all of it.

use memchr::memmem;

/// Returns the time at which the server made a frame with prices, or `None` for any other frame.
pub(super) fn emitted_ms(text: &[u8]) -> Option<u64> {
    let is_price = text.starts_with(b"{\"type\":\"price\"");
    number_after(b"\"emit_ts_ms\":", text).filter(|_| is_price)
}

/// Returns the number after the first occurrence of this name.
pub(super) fn number_after(name: &[u8], text: &[u8]) -> Option<u64> {
    let at = memmem::find(text, name)?;
    let digits = text[at + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |value: u64, digit| value * 10 + u64::from(digit - b'0')))
}

/// Returns the venue's timestamp in a frame with prices, or `None` for any other frame, and while
/// the prices are still empty.
pub(super) fn updated_ms(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"updated_at\":\"";
    let is_price = text.starts_with(b"{\"type\":\"price\"");
    let at = memmem::find(text, NAME).filter(|_| is_price)?;
    let time = text[at + NAME.len()..].split(|&byte| byte == b'"').next()?;
    millis(std::str::from_utf8(time).ok()?)
}

/// Parses a time into milliseconds since 1970.
pub(super) fn millis(time: &str) -> Option<u64> {
    let time: jiff::Timestamp = time.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// Returns the venue's timestamp in a frame of the market socket of its interface that changes
/// levels, or `None` for any other frame.
pub(super) fn changed_ms(text: &[u8]) -> Option<u64> {
    let is_change = text.starts_with(b"{\"event_type\":\"price_change\"");
    number_after(b"\"timestamp\":\"", text).filter(|_| is_change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_change_tells_when_the_market_changed() {
        let head = r#"{"event_type":"price_change","market":"0xa","timestamp":"1500","#;
        let change = format!(r#"{head}"price_changes":[]}}"#);
        assert_eq!(changed_ms(change.as_bytes()), Some(1_500));
        assert_eq!(changed_ms(change.replace("price_change", "book").as_bytes()), None);
    }
}
