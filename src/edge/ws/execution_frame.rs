//! The messages of the execution socket. Pure.
//!
//! A client frame is one JSON object with an `action` (or `type`), as on the price socket:
//!
//! ```json
//! {"action": "resume", "after": 41}
//! {"action": "ping"}
//! {"action": "subscribe"}
//! ```
//!
//! A socket follows all fills of its account, so `subscribe` is acknowledged and changes nothing.
//! The server sends a frame for each fill:
//!
//! ```json
//! {"type":"fill","seq":42,"order_id":7,"trade_id":"7-1","market_id":"0x…","side":"BUY",
//!  "outcome":"Yes","price":"0.41","quantity":"3","notional":"1.23","fee":"0",
//!  "filled_at":"2026-07-20T20:18:06.07Z","client_order_id":null,"account_balance":"998.77"}
//! ```

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::protocol::PROTOCOL_VERSION;
use paperbourse_core::engine::fills::FillRow;
use paperbourse_core::ids::AccountId;
use paperbourse_core::wire::{Decimal, Time};

/// A client's request. The schema describes what [`parse`](Self::parse) reads, in the form that
/// clients should write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, JsonSchema)]
#[schemars(tag = "action", rename_all = "lowercase", inline)]
pub enum ExecutionRequest {
    /// Send every fill after this number, then new ones.
    Resume {
        /// The `seq` of the last fill that the client has, or 0.
        after: u64,
    },
    /// Acknowledge, and go on: a socket follows all fills of its account anyway.
    Subscribe,
    /// Reply with a `pong`.
    Ping,
}

/// Why a client frame cannot be used. The text goes into the `error` frame.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionRequestError {
    /// The frame is not JSON.
    #[error("invalid JSON: {0}")]
    InvalidJson(#[from] serde_json::Error),
    /// The frame is JSON, but not an object.
    #[error("a frame must be a JSON object")]
    NotAnObject,
    /// Neither `action` nor `type` is present.
    #[error("action is missing: use resume or ping")]
    MissingAction,
    /// The action is unknown or not a string.
    #[error("unknown action: use resume or ping")]
    UnknownAction,
    /// `after` is missing.
    #[error("after is missing: give the seq of the last fill that you have, or 0")]
    MissingAfter,
    /// `after` is not a whole number of 0 or more.
    #[error("after must be a whole number, 0 or above")]
    InvalidAfter,
}

impl ExecutionRequest {
    /// Parses the text of a client frame.
    pub fn parse(text: &[u8]) -> Result<Self, ExecutionRequestError> {
        let Value::Object(mut fields) = serde_json::from_slice(text)? else {
            return Err(ExecutionRequestError::NotAnObject);
        };
        let mut take = |name| fields.remove(name).filter(|value| !value.is_null());
        let action = take("action").or_else(|| take("type"));
        let action = action.ok_or(ExecutionRequestError::MissingAction)?;
        match action.as_str().map(str::to_ascii_lowercase).as_deref() {
            Some("resume") => {
                let after = take("after").ok_or(ExecutionRequestError::MissingAfter)?;
                let after = after.as_u64().ok_or(ExecutionRequestError::InvalidAfter)?;
                Ok(Self::Resume { after })
            }
            Some("subscribe") => Ok(Self::Subscribe),
            Some("ping") => Ok(Self::Ping),
            _ => Err(ExecutionRequestError::UnknownAction),
        }
    }
}

/// Messages that only the execution socket sends, besides fills.
#[derive(Clone, Copy, Serialize, JsonSchema, Debug)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum ExecutionReply {
    /// The first frame of every socket.
    Connected {
        /// The account's id.
        user_id: u64,
        /// The version of the protocol.
        #[schemars(extend("const" = PROTOCOL_VERSION))]
        protocol_version: &'static str,
        /// The number of the account's newest fill; 0 if there was none.
        seq: u64,
    },
    /// The reply to `subscribe`.
    Subscribed,
    /// The reply to `resume`. The fills after this number follow.
    Resumed {
        /// The number.
        after: u64,
    },
    /// Fills that are no longer kept, and so will not be sent.
    Gap {
        /// The number of the first one.
        from: u64,
        /// The number of the last one.
        to: u64,
    },
}

impl ExecutionReply {
    /// Returns the first frame for a socket of this account, whose newest fill has the number
    /// `seq`.
    pub fn connected(account_id: AccountId, seq: u64) -> Self {
        Self::Connected { user_id: account_id.get(), protocol_version: PROTOCOL_VERSION, seq }
    }
}

/// A fill of the account. It is sent once it is on disk.
#[derive(Serialize, JsonSchema)]
pub struct Fill<'a> {
    #[schemars(extend("const" = "fill"))]
    r#type: &'static str,
    /// The number of the fill. An account's fills are numbered from 1 without a hole.
    seq: u64,
    /// The order that filled.
    order_id: u64,
    /// The order's id, and the number of the fill among those of the order.
    trade_id: String,
    /// The market's condition id.
    market_id: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// The outcome's label.
    outcome: &'a str,
    /// The average price.
    price: Decimal,
    /// In shares.
    quantity: Decimal,
    /// Price times quantity, in dollars, without the fee.
    notional: Decimal,
    /// In dollars.
    fee: Decimal,
    filled_at: Time,
    /// The order's name, if the client gave it one.
    client_order_id: Option<&'a str>,
    /// The account's cash after the fill, in dollars.
    account_balance: Decimal,
}

impl<'a> Fill<'a> {
    pub(super) fn of(row: &'a FillRow) -> Self {
        Self {
            r#type: "fill",
            seq: row.number,
            order_id: row.order.get(),
            trade_id: format!("{}-{}", row.order.get(), row.part),
            market_id: &row.market_id,
            side: row.side.as_str(),
            outcome: &row.outcome,
            price: row.fill.price().into(),
            quantity: row.fill.quantity.into(),
            notional: row.fill.notional.into(),
            fee: row.fill.fee.into(),
            filled_at: Time(row.fill.at),
            client_order_id: row.client_order_id.as_deref(),
            account_balance: row.fill.balance.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_frames() {
        let unknown = "unknown action: use resume or ping";
        let missing = "after is missing: give the seq of the last fill that you have, or 0";
        let invalid = "after must be a whole number, 0 or above";
        for (text, expected) in [
            (r#"{"action":"resume","after":0}"#, "Resume { after: 0 }"),
            (
                r#"{"type":"RESUME","after":18446744073709551615}"#,
                "Resume { after: 18446744073709551615 }",
            ),
            (r#"{"action":"resume"}"#, missing),
            (r#"{"action":"resume","after":null}"#, missing),
            (r#"{"action":"resume","after":-1}"#, invalid),
            (r#"{"action":"resume","after":1.5}"#, invalid),
            (r#"{"action":"resume","after":"1"}"#, invalid),
            (r#"{"action":"resume","after":18446744073709551616}"#, invalid),
            (r#"{"action":"subscribe","markets":["a"]}"#, "Subscribe"),
            (r#"{"type":"Ping"}"#, "Ping"),
            (r#"{"action":"unsubscribe"}"#, unknown),
            (r#"{"action":7}"#, unknown),
            ("{}", "action is missing: use resume or ping"),
            ("[]", "a frame must be a JSON object"),
            ("x", "invalid JSON: expected value at line 1 column 1"),
        ] {
            let read = match ExecutionRequest::parse(text.as_bytes()) {
                Ok(request) => format!("{request:?}"),
                Err(error) => error.to_string(),
            };
            assert_eq!(read, expected, "{text}");
        }
    }
}
