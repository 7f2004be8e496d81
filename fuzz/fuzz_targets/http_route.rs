//! No request line panics: its path leads somewhere or nowhere, its query can be used or not.

#![no_main]

use hyper::Method;
use libfuzzer_sys::fuzz_target;
use paperbourse::http::request::path::read_id;
use paperbourse::http::request::query::{
    BookQuery, MarketBookQuery, MarketsQuery, OrdersQuery, read_comments_page, read_descendants,
    read_position_status, read_strict, socket_token,
};
use paperbourse::http::route::{BATCH_BODY_BYTES_MAX, BODY_BYTES_MAX, Route, RouteError};
use paperbourse::ids::{ID_MAX, OrderId};

fuzz_target!(|target: &str| {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::DELETE, Method::PATCH];
    let found = methods.map(|method| Route::find(&method, path));
    assert_eq!(found[0], found[1], "HEAD leads where GET does");
    let is_unknown = |result: &Result<_, _>| *result == Err(RouteError::NotFound);
    assert!(found.iter().all(|result| is_unknown(result) == is_unknown(&found[0])));
    for route in found.iter().flatten() {
        assert!([BODY_BYTES_MAX, BATCH_BODY_BYTES_MAX].contains(&route.body_bytes_max()));
        let _ = route.access();
        if let Route::GetOrder { order_id } = route
            && let Ok(Some(id)) = read_id::<OrderId>(order_id)
        {
            assert!(id.get() <= ID_MAX);
        }
    }
    if let Ok(markets) = MarketsQuery::read(query) {
        assert!((1..=200).contains(&markets.page.limit));
    }
    if let Ok(page) = read_comments_page(query) {
        assert!((1..=100).contains(&page.limit));
    }
    if let Ok(book) = BookQuery::read(query) {
        assert!(!book.token_id.is_empty());
    }
    let _ = MarketBookQuery::read(query);
    let _ = OrdersQuery::read(query);
    let _ = read_position_status(query);
    let _ = read_descendants(query);
    let _ = read_strict(query);
    let _ = socket_token(query);
});
