//! Quantities and times as they appear in the JSON of the API's answers and frames, and the schemas
//! that describe them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use crate::ids::Timestamp;
use crate::money::{MICROS_TEXT_BYTES_MAX, Price, Shares, Usd, put_micros, write_micros};

/// Millionths as decimal text in a string: prices, shares and money.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decimal(i64);

/// A time in RFC 3339, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub Timestamp);

/// A function that adds a type's schema to the shared schemas of a document, and returns a
/// reference to it.
pub type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// Adds the schema of `T` to the document's schemas, and returns a reference to it; see
/// [`SchemaOf`].
pub fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

impl Decimal {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Appends the text, without quotes.
    pub fn write(self, out: &mut Vec<u8>) {
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

impl JsonSchema for Decimal {
    fn schema_name() -> Cow<'static, str> {
        "Decimal".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "pattern": r"^-?[0-9]+(\.[0-9]{1,6})?$",
            "description": "A decimal number as text, exact to a millionth.",
        })
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "format": "date-time",
            "description": "A time in RFC 3339, in UTC.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serde_writes_what_people_read() {
        for micros in [0, 1, -1, 500_000, 1_000_000, -12_345_678, i64::MAX, i64::MIN + 1] {
            let money = Usd::from_micros(micros);
            let decimal = Decimal::from(money);
            assert_eq!(serde_json::to_string(&decimal).unwrap(), format!("\"{money}\""));
            let mut text = Vec::new();
            decimal.write(&mut text);
            assert_eq!(text, money.to_string().into_bytes());
        }
        let time = serde_json::to_string(&Time(Timestamp::EPOCH)).unwrap();
        assert_eq!(time, r#""1970-01-01T00:00:00Z""#);
    }
}
