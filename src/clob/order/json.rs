//! The JSON of an order.
//!
//! Clients write the fields in different orders, and some that others do not have. An order with a
//! `timestamp` is V2 or V3, which have the same fields; one without is V1.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::digest::{Contents, Rest};
use super::{OrderType, PostedOrder, Side, SignatureType};
use crate::signature::address::Address;
use crate::text;

/// Maximum number of fields of an object. Clients send at most 15.
const FIELDS_MAX: usize = 32;

/// A salt must be below this: above, not each whole number is one of JavaScript.
const SALT_END: u64 = 1 << 53;

/// Returns the order in a body, if it is one.
pub(super) fn parse(json: &[u8]) -> Option<PostedOrder> {
    let body = Object::parse(str::from_utf8(json).ok()?)?;
    let order = Object::parse(body.required::<&RawValue>("order")?.get())?;
    let token_id: String = order.required("tokenId")?;
    let expiration: Option<String> = order.optional("expiration")?;
    let rest = match order.optional::<String>("timestamp")? {
        None => Rest::V1 {
            taker: order.address("taker")?,
            nonce: order.number("nonce")?,
            fee_rate_bps: order.number("feeRateBps")?,
        },
        Some(timestamp) => Rest::V2 {
            timestamp_ms: text::decimal(timestamp.as_bytes())?,
            metadata: text::bytes_from_hex(order.required::<String>("metadata")?.as_bytes())?,
            builder: text::bytes_from_hex(order.required::<String>("builder")?.as_bytes())?,
        },
    };
    let contents = Contents {
        salt: order.required("salt").filter(|&salt| salt < SALT_END)?,
        maker: order.address("maker")?,
        signer: order.address("signer")?,
        token: text::decimal_word(token_id.as_bytes())?,
        maker_amount_micros: order.number("makerAmount").filter(|&micros| micros > 0)?,
        taker_amount_micros: order.number("takerAmount").filter(|&micros| micros > 0)?,
        side: match order.required::<String>("side")?.as_str() {
            "BUY" => Side::Buy,
            "SELL" => Side::Sell,
            _ => return None,
        },
        signature_type: match order.required::<u64>("signatureType")? {
            0 => SignatureType::Eoa,
            1 => SignatureType::Proxy,
            2 => SignatureType::Safe,
            3 => SignatureType::Deposit,
            _ => return None,
        },
        expiration_s: match (expiration, rest) {
            (Some(expiration), _) => text::decimal(expiration.as_bytes())?,
            // Not part of what a wallet signs for V2, so a client may leave it out.
            (None, Rest::V2 { .. }) => 0,
            (None, Rest::V1 { .. }) => return None,
        },
        rest,
    };
    Some(PostedOrder {
        owner: body.required("owner")?,
        token_id,
        signature: order.required("signature")?,
        contents,
        order_type: match body.required::<String>("orderType")?.as_str() {
            "GTC" => OrderType::Gtc,
            "GTD" => OrderType::Gtd,
            "FOK" => OrderType::Fok,
            "FAK" => OrderType::Fak,
            _ => return None,
        },
        post_only: body.optional("postOnly")?.unwrap_or(false),
        defer_exec: body.optional("deferExec")?.unwrap_or(false),
    })
}

/// The fields of an object, each under its own name and still as text.
struct Object<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Object<'a> {
    fn parse(json: &'a str) -> Option<Self> {
        let mut reader = serde_json::Deserializer::from_str(json);
        let object = reader.deserialize_map(ObjectVisitor).ok()?;
        reader.end().ok()?;
        Some(object)
    }

    /// The value of a field, which must be there.
    fn required<T: Deserialize<'a>>(&self, name: &str) -> Option<T> {
        self.optional(name)?
    }

    /// The value of a field; `Some(None)` if it is absent or null, `None` if it is malformed.
    fn optional<T: Deserialize<'a>>(&self, name: &str) -> Option<Option<T>> {
        match self.0.iter().find(|(field, _)| field == name) {
            None => Some(None),
            Some((_, value)) => serde_json::from_str(value.get()).ok(),
        }
    }

    /// The number in a text.
    fn number(&self, name: &str) -> Option<u64> {
        text::decimal(self.required::<String>(name)?.as_bytes())
    }

    fn address(&self, name: &str) -> Option<Address> {
        Address::parse(self.required::<String>(name)?).ok()
    }
}

struct ObjectVisitor;

impl<'a> Visitor<'a> for ObjectVisitor {
    type Value = Object<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Object<'a>, A::Error> {
        let mut fields: Vec<(String, &RawValue)> = Vec::with_capacity(16);
        while let Some((name, value)) = map.next_entry()? {
            if fields.len() == FIELDS_MAX {
                return Err(A::Error::custom("too many fields"));
            }
            if fields.iter().any(|(field, _)| *field == name) {
                return Err(A::Error::custom("a field twice"));
            }
            fields.push((name, value));
        }
        Ok(Object(fields))
    }
}
