//! The messages of the price socket, and those common to both sockets: the requests of a client,
//! and the server's replies. Pure.
//!
//! A client frame is one JSON object with an `action` (or `type`), whose value is case-insensitive:
//!
//! ```json
//! {"action": "subscribe", "markets": ["0x…", "0x…"]}
//! {"action": "unsubscribe", "markets": ["0x…"]}
//! {"action": "ping"}
//! ```
//!
//! The market `*` stands for all markets. `conditions` is an alias of `markets`; `markets` wins if
//! both are present. If a field occurs more than once, the last one counts. `null` counts as
//! absent, and other fields are ignored.
//!
//! A frame that cannot be used is answered with an `error` frame and changes nothing; the socket
//! stays open. This module does not check whether markets exist or are subscribed.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::frame::put_text;
use paperbourse_core::ids::{AccountId, Timestamp};

/// The maximum length of a market id, in bytes.
pub const MARKET_ID_BYTES_MAX: usize = 256;

/// The maximum number of markets named in an error frame.
pub const MARKETS_NAMED_MAX: usize = 3;

/// The id that stands for all markets, in requests and acknowledgements.
pub const ALL_MARKETS: &str = "*";

/// The maximum number of markets listed in an acknowledgement, unless they were all in the request.
pub const MARKETS_ACKNOWLEDGED_MAX: usize = 50;

/// The protocol version in the `connected` frame.
pub const PROTOCOL_VERSION: &str = "1.0";

/// A client's request. The schema describes what [`parse`](Self::parse) reads, in the form that
/// clients should write.
#[derive(Clone, PartialEq, Eq, Debug, JsonSchema)]
#[schemars(tag = "action", rename_all = "lowercase", inline)]
pub enum Request {
    /// Send the prices of these markets now and whenever they change, in addition to those of
    /// earlier requests.
    Subscribe {
        /// The condition ids of the markets; `*` for all, those that are listed later included, if
        /// the tier has no limit of markets. `conditions` means the same; `assets_ids` is refused.
        #[schemars(inner(length(max = MARKET_ID_BYTES_MAX)))]
        markets: Vec<String>,
    },
    /// Stop sending the prices of these markets.
    Unsubscribe {
        /// The condition ids of the markets; `*` for all. `conditions` means the same.
        #[schemars(inner(length(max = MARKET_ID_BYTES_MAX)))]
        markets: Vec<String>,
    },
    /// Reply with a `pong`.
    Ping,
}

/// A valid request, quoted in error frames.
const SUBSCRIBE_EXAMPLE: &str = r#"{"action": "subscribe", "markets": ["0x..."]}"#;

/// Why a client frame cannot be used. The text goes into the `error` frame.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The frame is not JSON.
    #[error("invalid JSON: {0}")]
    InvalidJson(#[from] serde_json::Error),
    /// The frame is JSON, but not an object.
    #[error("a frame must be a JSON object")]
    NotAnObject,
    /// Neither `action` nor `type` is present.
    #[error("action is missing: use subscribe, unsubscribe or ping, as in {SUBSCRIBE_EXAMPLE}")]
    MissingAction,
    /// The action is unknown or not a string.
    #[error("unknown action: use subscribe, unsubscribe or ping, as in {SUBSCRIBE_EXAMPLE}")]
    UnknownAction,
    /// The frame lists token ids in `assets_ids`, which this socket does not take.
    #[error("assets_ids is not supported here: list condition ids in markets")]
    AssetsGiven,
    /// Neither `markets` nor `conditions` is present.
    #[error("markets is missing: list the condition ids, as in {SUBSCRIBE_EXAMPLE}")]
    MissingMarkets,
    /// The markets are not a list.
    #[error("markets must be a list of condition ids")]
    MarketsNotAList,
    /// One of the markets is not a string.
    #[error("markets[{index}] must be a string")]
    MarketNotAString {
        /// The index of the market in the list.
        index: usize,
    },
    /// A market's id is longer than [`MARKET_ID_BYTES_MAX`].
    #[error("markets[{index}] is longer than {MARKET_ID_BYTES_MAX} bytes")]
    MarketTooLong {
        /// The index of the market in the list.
        index: usize,
    },
}

impl Request {
    /// Parses the text of a client frame.
    pub fn parse(text: &[u8]) -> Result<Self, RequestError> {
        let Value::Object(mut fields) = serde_json::from_slice(text)? else {
            return Err(RequestError::NotAnObject);
        };
        let mut take = |name| fields.remove(name).filter(|value| !value.is_null());
        if take("assets_ids").is_some() {
            return Err(RequestError::AssetsGiven);
        }
        let action = take("action").or_else(|| take("type")).ok_or(RequestError::MissingAction)?;
        let markets = take("markets").or_else(|| take("conditions"));
        match action.as_str().map(str::to_ascii_lowercase).as_deref() {
            Some("subscribe") => Ok(Self::Subscribe { markets: market_ids(markets)? }),
            Some("unsubscribe") => Ok(Self::Unsubscribe { markets: market_ids(markets)? }),
            Some("ping") => Ok(Self::Ping),
            _ => Err(RequestError::UnknownAction),
        }
    }
}

fn market_ids(markets: Option<Value>) -> Result<Vec<String>, RequestError> {
    let Value::Array(list) = markets.ok_or(RequestError::MissingMarkets)? else {
        return Err(RequestError::MarketsNotAList);
    };
    let mut ids = Vec::with_capacity(list.len());
    for (index, market) in list.into_iter().enumerate() {
        let Value::String(id) = market else {
            return Err(RequestError::MarketNotAString { index });
        };
        if id.len() > MARKET_ID_BYTES_MAX {
            return Err(RequestError::MarketTooLong { index });
        }
        ids.push(id);
    }
    Ok(ids)
}

/// Messages that only the price socket sends, besides prices.
#[derive(Serialize, JsonSchema, Debug)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum PriceReply<'a> {
    /// The first frame of every socket.
    Connected {
        /// The account's id.
        user_id: u64,
        /// The version of the protocol.
        #[schemars(extend("const" = PROTOCOL_VERSION))]
        protocol_version: &'static str,
    },
    /// The reply to `subscribe` and `unsubscribe`.
    Subscribed {
        /// The markets that the socket is now subscribed to: all, in the order of subscription;
        /// of more than 50, those of the request; `*` if it has all markets.
        markets: Vec<&'a str>,
        /// How many the socket is subscribed to, if they are more than 50.
        #[schemars(with = "usize")]
        #[serde(skip_serializing_if = "Option::is_none")]
        total: Option<usize>,
    },
}

/// Messages that both sockets send.
#[derive(Serialize, JsonSchema, Debug)]
#[serde(tag = "type", rename_all = "lowercase")]
#[schemars(inline)]
pub enum Reply<'a> {
    /// The reply to `ping`.
    Pong {
        /// The server's clock, in milliseconds since 1970.
        ts: i64,
    },
    /// A request, or a part of it, could not be carried out.
    Error {
        /// What went wrong and how to fix it.
        message: &'a str,
    },
}

impl PriceReply<'_> {
    /// Returns the first frame for a socket of this account.
    pub fn connected(account_id: AccountId) -> Self {
        Self::Connected { user_id: account_id.get(), protocol_version: PROTOCOL_VERSION }
    }
}

impl Reply<'_> {
    /// Returns the reply to a ping at this time.
    pub fn pong(now: Timestamp) -> Self {
        Self::Pong { ts: now.millis() }
    }
}

/// Appends a message as a text frame.
pub(super) fn put_message(frames: &mut Vec<u8>, message: &impl Serialize) {
    let json = serde_json::to_vec(message).expect("strings and integers always have a JSON text");
    put_text(frames, &[&json]);
}

/// Returns the error text for markets that are not listed. Names the first few.
pub fn unknown_markets_message(ids: &[&str]) -> String {
    let named = &ids[..ids.len().min(MARKETS_NAMED_MAX)];
    let named_text = named.join(", ");
    match ids.len() - named.len() {
        0 => format!("unknown market: {named_text}"),
        more => format!("unknown market: {named_text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::ShardId;

    /// Compares the debug form of the request, or the text of the error frame.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let read = match Request::parse(text.as_bytes()) {
            Ok(request) => format!("{request:?}"),
            Err(error) => error.to_string(),
        };
        assert_eq!(read, expected, "{text}");
    }

    #[test]
    fn client_frames() {
        let assets = "assets_ids is not supported here: list condition ids in markets";
        let example = format!(", as in {SUBSCRIBE_EXAMPLE}");
        let unknown = &*format!("unknown action: use subscribe, unsubscribe or ping{example}");
        let no_action = &*format!("action is missing: use subscribe, unsubscribe or ping{example}");
        let no_markets = &*format!("markets is missing: list the condition ids{example}");
        let object = "a frame must be a JSON object";
        let list = "markets must be a list of condition ids";
        for (text, expected) in [
            (
                r#"{"action":"subscribe","markets":["a","b"]}"#,
                r#"Subscribe { markets: ["a", "b"] }"#,
            ),
            (r#"{"type":"SUBSCRIBE","conditions":["a"]}"#, r#"Subscribe { markets: ["a"] }"#),
            (r#" {"action":"Subscribe","markets":[],"id":7}"#, "Subscribe { markets: [] }"),
            (
                r#"{"action":"unsubscribe","markets":["\u0061"]}"#,
                r#"Unsubscribe { markets: ["a"] }"#,
            ),
            (r#"{"action":"ping"}"#, "Ping"),
            (r#"{"type":"Ping","markets":5}"#, "Ping"),
            (r#"{"action":"ping","type":"subscribe"}"#, "Ping"),
            (
                r#"{"action":"subscribe","conditions":["b"],"markets":["a"]}"#,
                r#"Subscribe { markets: ["a"] }"#,
            ),
            (
                r#"{"action":"subscribe","markets":null,"conditions":["b"]}"#,
                r#"Subscribe { markets: ["b"] }"#,
            ),
            (r#"{"action":"subscribe","markets":["a"],"assets_ids":["1"]}"#, assets),
            (r#"{"type":"market","assets_ids":[]}"#, assets),
            (r#"{"action":"subscribe"}"#, no_markets),
            (r#"{"action":"subscribe","markets":"a"}"#, list),
            (r#"{"action":"unsubscribe","conditions":{"a":1}}"#, list),
            (r#"{"action":"subscribe","markets":["a",5]}"#, "markets[1] must be a string"),
            (r#"{"action":"subscribe","markets":[null]}"#, "markets[0] must be a string"),
            (r#"{"action":"trade","markets":["a"]}"#, unknown),
            (r#"{"action":7}"#, unknown),
            (r#"{"markets":["a"]}"#, no_action),
            ("{}", no_action),
            ("[]", object),
            (r#"["subscribe",null,["a"],null,null]"#, object),
            ("5", object),
            (r#""ping""#, object),
            ("null", object),
            ("", "invalid JSON: EOF while parsing a value at line 1 column 0"),
            ("PING", "invalid JSON: expected value at line 1 column 1"),
            ("[", "invalid JSON: EOF while parsing a list at line 1 column 1"),
            (r#"{"action":"ping"} x"#, "invalid JSON: trailing characters at line 1 column 19"),
            (r#"{"action":"ping","action":"trade"}"#, unknown),
        ] {
            check(text, expected);
        }
    }

    #[test]
    fn id_length_and_nesting_are_bounded() {
        let subscribe = |id: &str| format!(r#"{{"action":"subscribe","markets":["a","{id}"]}}"#);
        let longest = "x".repeat(MARKET_ID_BYTES_MAX);
        check(&subscribe(&longest), &format!(r#"Subscribe {{ markets: ["a", "{longest}"] }}"#));
        check(&subscribe(&format!("{longest}x")), "markets[1] is longer than 256 bytes");
        let deep = format!(r#"{{"markets":{}1{}}}"#, "[".repeat(8_000), "]".repeat(8_000));
        assert!(matches!(Request::parse(deep.as_bytes()), Err(RequestError::InvalidJson(_))));
        assert!(matches!(Request::parse(b"{\"a\":\"\xff\"}"), Err(RequestError::InvalidJson(_))));
    }

    #[test]
    fn server_frames() {
        let account_id = AccountId::new(ShardId::new(7).unwrap(), 3).unwrap();
        let json = |message: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = Vec::new();
            message(&mut frame);
            // The frames are short, so their headers have two bytes.
            String::from_utf8(frame.split_off(2)).unwrap()
        };
        let error = |ids: &[&str]| {
            let message = unknown_markets_message(ids);
            json(&|frame| put_message(frame, &Reply::Error { message: &message }))
        };
        let markets = || vec!["b", "a\""];
        let pong = Reply::pong(Timestamp::from_millis(1_234));
        for (text, expected) in [
            (
                json(&|frame| put_message(frame, &PriceReply::connected(account_id))),
                r#"{"type":"connected","user_id":199,"protocol_version":"1.0"}"#,
            ),
            (
                json(&|frame| {
                    put_message(frame, &PriceReply::Subscribed { markets: markets(), total: None });
                }),
                r#"{"type":"subscribed","markets":["b","a\""]}"#,
            ),
            (
                json(&|frame| {
                    put_message(
                        frame,
                        &PriceReply::Subscribed { markets: markets(), total: Some(51) },
                    );
                }),
                r#"{"type":"subscribed","markets":["b","a\""],"total":51}"#,
            ),
            (json(&|frame| put_message(frame, &pong)), r#"{"type":"pong","ts":1234}"#),
            (error(&["a"]), r#"{"type":"error","message":"unknown market: a"}"#),
            (
                error(&["a", "b", "c", "d", "e"]),
                r#"{"type":"error","message":"unknown market: a, b, c and 2 more"}"#,
            ),
        ] {
            assert_eq!(text, expected);
        }
    }
}
