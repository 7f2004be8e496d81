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
