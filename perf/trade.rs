//! The trade requests of a load, as bytes.
//!
//! Every connection buys one share and then sells it with the same key, so that neither cash nor
//! shares run out, however long the load lasts. Every request has a unique idempotency key.

use std::io::Write as _;
use std::net::SocketAddr;

use crate::client::encode_request;

/// The traded outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Instrument {
    /// The market's condition id.
    pub(crate) market_id: String,
    /// The outcome's label.
    pub(crate) outcome: String,
}

/// One of the two alternating trades.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Buy,
    Sell,
}

/// The constant parts of a load's requests.
pub(crate) struct TradeTemplate {
    buy: Pieces,
    sell: Pieces,
}

/// The parts of a request around two gaps: the key and the idempotency key.
struct Pieces {
    before_key: String,
    before_name: String,
    after_name: String,
}

impl TradeTemplate {
    /// Creates the template of requests to this server for this outcome.
    pub(crate) fn new(host: SocketAddr, instrument: &Instrument) -> Self {
        let pieces = |side| Pieces::new(host, instrument, side);
        Self { buy: pieces("BUY"), sell: pieces("SELL") }
    }

    /// Replaces the content of `request` with the next request. `name` must be unique.
    pub(crate) fn write(&self, side: Side, key: &str, name: u128, request: &mut Vec<u8>) {
        let pieces = match side {
            Side::Buy => &self.buy,
            Side::Sell => &self.sell,
        };
        request.clear();
        request.extend_from_slice(pieces.before_key.as_bytes());
        request.extend_from_slice(key.as_bytes());
        request.extend_from_slice(pieces.before_name.as_bytes());
        write!(request, "{name:032x}").expect("a vector takes every write");
        request.extend_from_slice(pieces.after_name.as_bytes());
    }
}

impl Pieces {
    fn new(host: SocketAddr, instrument: &Instrument, side: &str) -> Self {
        // A character that neither a header nor JSON text contains unescaped.
        const GAP: &str = "\0";
        let body = serde_json::json!({
            "market_id": instrument.market_id,
            "outcome": instrument.outcome,
            "side": side,
            "quantity": 1,
        });
        let headers =
            [("Accept", "application/json"), ("X-API-Key", GAP), ("Idempotency-Key", GAP)];
        let request = encode_request("POST", "/trade", host, &headers, &body.to_string());
        let mut pieces = request.split(GAP).map(String::from);
        let mut next = || pieces.next().expect("two gaps leave three pieces");
        Self { before_key: next(), before_name: next(), after_name: next() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_that_of_a_typical_bot() {
        let host = "127.0.0.1:8080".parse().unwrap();
        let instrument = Instrument { market_id: "0xab".into(), outcome: "O\"ne".into() };
        let template = TradeTemplate::new(host, &instrument);
        let mut request = b"left from the one before".to_vec();
        template.write(Side::Buy, "ps_live_1", 0x2a, &mut request);
        let body = r#"{"market_id":"0xab","outcome":"O\"ne","quantity":1,"side":"BUY"}"#;
        let expected = format!(
            "POST /trade HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\n\
             X-API-Key: ps_live_1\r\nIdempotency-Key: 0000000000000000000000000000002a\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len(),
        );
        assert_eq!(String::from_utf8(request.clone()).unwrap(), expected);
        template.write(Side::Sell, "ps_live_1", 0x2a, &mut request);
        let sell = expected.replace("\"BUY\"", "\"SELL\"").replace(
            &format!("Content-Length: {}", body.len()),
            &format!("Content-Length: {}", body.len() + 1),
        );
        assert_eq!(String::from_utf8(request).unwrap(), sell);
    }
}
