use super::*;

#[test]
fn parsing_books_together_or_alone_makes_no_difference() {
    let fields = r#""market":"m","timestamp":"5","bids":[],"asks":[{"price":".5","size":"1"}]"#;
    let good = format!(r#"{{"asset_id":"1",{fields}}}"#);
    let other = format!(r#"{{"asset_id":"2","x":{{"y":[1e999]}},{fields}}}"#);
    let duplicate = format!(r#"{{"asset_id":"1","asset_id":"1",{fields}}}"#);
    let no_id = format!("{{{fields}}}");
    let escaped = good.replace(r#""1""#, r#""\u0031""#);
    let all = [&*good, &other, &duplicate, &no_id, &escaped, "{}", "7", "null"];
    for first in all {
        for second in all {
            let body = format!(" [{first},\n{second} ] ");
            let books = books(&body).unwrap().into_iter().map(|row| match row {
                Ok(book) => format!("{book:?}"),
                Err(UnreadableBook { error, .. }) => error.to_string(),
            });
            let alone = [first, second].map(|row| {
                book(row).map_or_else(|error| error.to_string(), |book| format!("{book:?}"))
            });
            assert_eq!(books.collect::<Vec<_>>(), alone, "{body}");
        }
    }
}

#[test]
fn anything_but_an_array_of_books_is_refused() {
    for body in ["", "{}", "[", "[{}", "[]]", "[{},]", "null"] {
        assert!(books(body).is_err(), "{body}");
    }
}

#[test]
fn an_unreadable_book_has_its_token_if_that_can_be_read() {
    let body = r#"[{"asset_id":"1"},{"asset_id":"2","bids":7},{"asset_id":3},{}]"#;
    let tokens = |text: &str| -> Vec<Option<String>> {
        let rows = books(text).unwrap().into_iter();
        rows.map(|row| row.unwrap_err().asset_id.map(str::to_owned)).collect()
    };
    let text = |id: &str| Some(id.to_owned());
    assert_eq!(tokens(body), [text("1"), text("2"), None, None]);
    assert_eq!(tokens(&crate::polymarket::wire::lenient(body))[2], text("3"));
}

#[test]
fn both_descriptions_state_the_delay_of_marketable_orders() {
    let shown = |market: Result<Description, WireError>| {
        let delay = market.map(|it| {
            let of = if it.info.has_unstated_delay { "unstated" } else { "stated" };
            let of = if it.is_delay_exact { "exact" } else { of };
            (it.info.taker_delay_ms, it.is_delay_stated.then_some(of))
        });
        delay.map_err(|error| error.to_string())
    };
    for (fields, expected) in [
        ("", Ok((0, Some("stated")))),
        (r#","itode":false"#, Ok((0, Some("stated")))),
        (r#","itode":true"#, Ok((0, Some("unstated")))),
        (r#","itode":true,"sd":0"#, Ok((0, Some("unstated")))),
        (r#","itode":true,"sd":3"#, Ok((3_000, Some("unstated")))),
        // A figure of the market's own overrules what holds in general.
        (r#","itode":true,"taker_delay_ms":40"#, Ok((40, Some("exact")))),
        (r#","itode":true,"taker_delay_ms":0"#, Ok((0, Some("unstated")))),
        (r#","sd":"0.5""#, Ok((500, Some("stated")))),
        (r#","sd":-3"#, Err("field sd: expected a delay of 0 or more".to_owned())),
        (r#","itode":250"#, Err("field itode: expected true or false".to_owned())),
    ] {
        assert_eq!(shown(compact_market(&format!(r#"{{"c":"0xa"{fields}}}"#))), expected);
    }
    for (fields, expected) in [
        ("", Ok((0, None))),
        (r#","seconds_delay":0"#, Ok((0, Some("stated")))),
        (r#","seconds_delay":"0.25""#, Ok((250, Some("stated")))),
        (r#","seconds_delay":0,"taker_delay_ms":150"#, Ok((150, Some("exact")))),
        (r#","seconds_delay":[]"#, Err("field seconds_delay: expected a string or a number")),
    ] {
        let market = long_market(&format!(r#"{{"condition_id":"0xa"{fields}}}"#));
        assert_eq!(shown(market), expected.map_err(str::to_owned));
    }
}
