//! Quantities and times that serde writes exactly in the API's format.

use serde::{Serialize, Serializer};

use crate::ids::Timestamp;
use crate::money::{MICROS_TEXT_BYTES_MAX, Price, Shares, Usd, put_micros, write_micros};

/// Millionths as decimal text in a string: prices, shares and money under `/v1`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) struct Decimal(i64);

/// A time, RFC 3339 in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::http) struct Time(pub(in crate::http) Timestamp);

impl Decimal {
    /// Zero.
    pub(in crate::http) const ZERO: Self = Self(0);

    /// Appends the text, without quotes.
    pub(in crate::http) fn write(self, out: &mut Vec<u8>) {
        write_micros(out, self.0);
    }
}

impl From<Price> for Decimal {
    fn from(price: Price) -> Self {
        Self(price.micros())
    }
}

impl From<Shares> for Decimal {
    fn from(shares: Shares) -> Self {
        Self(shares.micros())
    }
}

impl From<Usd> for Decimal {
    fn from(money: Usd) -> Self {
        Self(money.micros())
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; MICROS_TEXT_BYTES_MAX];
        let end = put_micros(&mut text, self.0);
        let text = std::str::from_utf8(&text[..end]);
        serializer.serialize_str(text.expect("digits, a point and a sign are ASCII"))
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::json::write::{write_decimal, written};

    #[test]
    fn serde_writes_what_the_writer_writes() {
        for micros in [0, 1, -1, 500_000, 1_000_000, -12_345_678, i64::MAX, i64::MIN + 1] {
            let text = written(|out| write_decimal(out, micros));
            let decimal = Decimal::from(Usd::from_micros(micros));
            assert_eq!(serde_json::to_string(&decimal).unwrap(), text);
        }
        let time = serde_json::to_string(&Time(Timestamp::EPOCH)).unwrap();
        assert_eq!(time, r#""1970-01-01T00:00:00Z""#);
    }
}
