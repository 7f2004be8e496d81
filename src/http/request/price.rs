//! Which markets a client wants the prices of.

use super::order::MARKET_ID_CHARACTERS_MAX;
use crate::http::fields::{Fields, check_length};
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::{self as json, Object};

/// One request asks for at most this many markets, whatever the caller's tier allows.
pub const PRICES_MARKETS_MAX: usize = 50;

/// Reads the body of `POST /v1/prices/batch`: the markets, in the order of the request. Whether the
/// caller's tier allows so many is not decided here.
pub fn read_prices(body: &[u8]) -> Result<Vec<Box<str>>, Invalid> {
    let mut errors = Vec::new();
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let listed = fields
        .required("market_ids")
        .and_then(|value| fields.list("market_ids", value, 1, PRICES_MARKETS_MAX));
    let markets = listed.map(|listed| {
        let mut markets = Vec::with_capacity(listed.len());
        for (index, element) in listed.into_iter().enumerate() {
            let checked = match json::text(element) {
                None => Err(("string_type", "should be a string".into())),
                Some(text) => check_length(&text, 1, MARKET_ID_CHARACTERS_MAX).map(|()| text),
            };
            match checked {
                Ok(market) => markets.push(market.into()),
                Err(mistake) => fields.note_element("market_ids", index, mistake),
            }
        }
        markets
    });
    unless_invalid(errors, markets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::told;

    #[test]
    fn markets_keep_their_order() {
        let markets = read_prices(br#"{"market_ids":["0xb","0xa","0xb"]}"#).unwrap();
        assert_eq!(markets, ["0xb".into(), "0xa".into(), Box::from("0xb")]);
        let longest = "m".repeat(MARKET_ID_CHARACTERS_MAX);
        let many = |count: usize, id: &str| {
            format!("{{\"market_ids\":[{}]}}", vec![format!("\"{id}\""); count].join(","))
        };
        let most = read_prices(many(PRICES_MARKETS_MAX, &longest).as_bytes()).unwrap();
        assert_eq!(most.len(), PRICES_MARKETS_MAX);
        for (body, expected) in [
            ("{}".to_owned(), &["body.market_ids: missing"][..]),
            (many(0, ""), &["body.market_ids: too_short"]),
            (many(PRICES_MARKETS_MAX + 1, "m"), &["body.market_ids: too_long"]),
            (many(1, &(longest + "m")), &["body.market_ids.0: string_too_long"]),
            (
                r#"{"market_ids":["m","",null]}"#.to_owned(),
                &["body.market_ids.1: string_too_short", "body.market_ids.2: string_type"],
            ),
        ] {
            assert_eq!(told(&read_prices(body.as_bytes())), expected, "{body}");
        }
    }
}
