use hyper::header::{HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Version};

use super::outbound::request_to_owner;
use super::{CLIENT, VERSION};

/// The request to the owner for one with these headers.
fn passed_on(version: Version, headers: &[(&'static str, &'static str)]) -> (String, HeaderMap) {
    let mut request = Request::post("/trade?a=b").version(version);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let (head, ()) = request.body(()).unwrap().into_parts();
    let request = request_to_owner(head, "203.0.113.9".parse().unwrap(), "{}".into(), false);
    assert_eq!((request.method(), request.version()), (&Method::POST, Version::HTTP_11));
    (request.uri().to_string(), request.headers().clone())
}

#[test]
fn only_the_node_says_who_the_client_is() {
    let forged = [
        ("host", "paperbourse.example"),
        ("x-paperbourse-client", "10.0.0.1"),
        ("x-paperbourse-client", "10.0.0.2"),
        ("x-paperbourse-http", "1.0"),
        ("x-forwarded-for", "10.0.0.3"),
        ("x-api-key", "key"),
    ];
    let (uri, headers) = passed_on(Version::HTTP_11, &forged);
    assert_eq!(uri, "http://owner/trade?a=b");
    let value = HeaderValue::from_static;
    let expected: HeaderMap = [
        (HOST, value("paperbourse.example")),
        (CLIENT.clone(), value("203.0.113.9")),
        ("x-api-key".parse().unwrap(), value("key")),
    ]
    .into_iter()
    .collect();
    assert_eq!(headers, expected);
}

#[test]
fn what_belongs_to_the_connection_stays_there() {
    let of_connection = [
        ("connection", "keep-alive, x-private, X-API-Key, host"),
        ("host", "paperbourse.example"),
        ("x-api-key", "key"),
        ("x-private", "not for the owner"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("te", "trailers"),
        ("trailer", "x-sum"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("expect", "100-continue"),
        ("content-length", "2"),
    ];
    let (_, headers) = passed_on(Version::HTTP_10, &of_connection);
    assert_eq!(headers[&VERSION], "1.0");
    let rest = headers.keys().filter(|&name| ![&CLIENT, &VERSION].contains(&name));
    let mut rest: Vec<&str> = rest.map(HeaderName::as_str).collect();
    rest.sort_unstable();
    assert_eq!(rest, ["host", "x-api-key"], "not even if the client says so");
}
