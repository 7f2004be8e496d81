use super::*;
use crate::http::query::tests::query;

fn read(text: Option<&str>, body: &str) -> Result<CancelRequest, Vec<String>> {
    let query = query("DELETE /v1/cancel-market-orders", text);
    read_cancel(query, body.as_bytes()).map_err(|error| {
        let fields = error.fields.iter();
        fields.map(|field| format!("{}: {}", field.location, field.kind)).collect()
    })
}

#[test]
fn a_market_or_a_token_selects() {
    for (query, body, expected) in [
        (Some("market=0xa"), "", (Some("0xa"), None)),
        (Some("asset_id=7"), "  \n", (None, Some("7"))),
        (Some("market=0xa&asset_id=7"), "{}", (Some("0xa"), Some("7"))),
        (None, r#"{"market":"0xa","asset_id":""}"#, (Some("0xa"), None)),
        (None, r#"{"market":null,"asset_id":"7","other":[]}"#, (None, Some("7"))),
        (Some("market="), r#"{"market":"0xb"}"#, (Some("0xb"), None)),
        (Some("market=0xa"), r#"{"market":"0xb","asset_id":"7"}"#, (Some("0xa"), Some("7"))),
    ] {
        let request = read(query, body).unwrap();
        let read = (request.market_id.as_deref(), request.token_id.as_deref());
        assert_eq!(read, expected, "{query:?} {body}");
    }
}

#[test]
fn what_is_cancelled_must_be_named() {
    let missing = &["query.market: missing"][..];
    let long = "x".repeat(257);
    let long = (format!("asset_id={long}"), format!("{{\"market\":\"{long}\"}}"));
    for (query, body, expected) in [
        (None, "", missing),
        (Some("market=&asset_id="), "", missing),
        (None, "{}", missing),
        (None, r#"{"market":"","asset_id":null}"#, missing),
        (None, "[]", &["body: model_attributes_type"]),
        (Some("market=0xa"), "{", &["body: json_invalid"]),
        (None, r#"{"market":7}"#, &["body.market: string_type"]),
        (
            Some(&*long.0),
            &*long.1,
            &["query.asset_id: string_too_long", "body.market: string_too_long"],
        ),
    ] {
        assert_eq!(read(query, body), Err(expected.iter().map(ToString::to_string).collect()));
    }
}
