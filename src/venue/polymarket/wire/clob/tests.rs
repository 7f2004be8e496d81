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
            let shown = |result: Result<BookMessage<'_>, WireError>| {
                result.map_or_else(|error| error.to_string(), |book| format!("{book:?}"))
            };
            let books: Vec<_> = books(body.as_bytes()).unwrap().into_iter().map(shown).collect();
            assert_eq!(books, [first, second].map(|row| shown(book(row))), "{body}");
        }
    }
}

#[test]
fn anything_but_an_array_of_books_is_refused() {
    for body in [&b""[..], b"{}", b"[", b"[{}", b"[]]", b"[{},]", b"[\"\xff\"]", b"null"] {
        assert!(books(body).is_err(), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn both_descriptions_state_the_delay_of_marketable_orders() {
    let shown = |market: Result<Description, WireError>| {
        let delay = market.map(|it| (it.info.taker_delay_ms, it.is_delay_stated));
        delay.map_err(|error| error.to_string())
    };
    for (fields, expected) in [
        ("", Ok((0, true))),
        (r#","itode":false"#, Ok((0, true))),
        (r#","itode":true"#, Ok((250, true))),
        (r#","itode":true,"sd":0"#, Ok((250, true))),
        (r#","itode":true,"sd":3"#, Ok((3_000, true))),
        (r#","sd":"0.5""#, Ok((500, true))),
        (r#","sd":-3"#, Err("field sd: expected a delay of 0 or more".to_owned())),
        (r#","itode":250"#, Err("field itode: expected true or false".to_owned())),
    ] {
        assert_eq!(shown(compact_market(&format!(r#"{{"c":"0xa"{fields}}}"#))), expected);
    }
    for (fields, expected) in [
        ("", Ok((0, false))),
        (r#","seconds_delay":0"#, Ok((0, true))),
        (r#","seconds_delay":"0.25""#, Ok((250, true))),
        (r#","seconds_delay":0,"taker_delay_ms":150"#, Ok((150, true))),
        (r#","seconds_delay":[]"#, Err("field seconds_delay: expected a string or a number")),
    ] {
        let market = long_market(&format!(r#"{{"condition_id":"0xa"{fields}}}"#));
        assert_eq!(shown(market), expected.map_err(str::to_owned));
    }
}
