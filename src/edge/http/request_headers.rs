//! The headers that are looked up for nearly every request, found in one pass. A lookup in the map
//! hashes the name, which takes longer than comparing it with the few headers that a request has.

use hyper::header::{HeaderMap, HeaderValue};

/// The headers found in a request.
#[derive(Default)]
pub(super) struct RequestHeaders<'a> {
    pub(super) host: Sent<'a>,
    pub(super) request_id: Sent<'a>,
    pub(super) api_key: Sent<'a>,
    pub(super) authorization: Sent<'a>,
    pub(super) idempotency_key: Sent<'a>,
    pub(super) transfer_encoding: Sent<'a>,
}

/// How often a header was sent, and its first value.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Sent<'a> {
    #[default]
    Never,
    Once(&'a HeaderValue),
    Repeatedly(&'a HeaderValue),
}

impl<'a> RequestHeaders<'a> {
    pub(super) fn of(headers: &'a HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let sent = match name.as_str() {
                "host" => &mut found.host,
                "x-request-id" => &mut found.request_id,
                "x-api-key" => &mut found.api_key,
                "authorization" => &mut found.authorization,
                "idempotency-key" => &mut found.idempotency_key,
                "transfer-encoding" => &mut found.transfer_encoding,
                _ => continue,
            };
            *sent = match *sent {
                Sent::Never => Sent::Once(value),
                Sent::Once(first) | Sent::Repeatedly(first) => Sent::Repeatedly(first),
            };
        }
        found
    }
}

impl<'a> Sent<'a> {
    pub(super) fn first(self) -> Option<&'a HeaderValue> {
        match self {
            Self::Never => None,
            Self::Once(value) | Self::Repeatedly(value) => Some(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderName;

    use super::*;

    #[test]
    fn the_first_value_is_found_and_whether_there_are_more() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("accept", "0"),
            ("x-api-key", "1"),
            ("host", "2"),
            ("idempotency-key", "3"),
            ("x-api-key", "4"),
            ("x-api-key", "5"),
            ("authorization", "6"),
            ("authorization", "7"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let value = HeaderValue::from_static;
        let found = RequestHeaders::of(&headers);
        assert_eq!(found.host, Sent::Once(&value("2")));
        assert_eq!(found.request_id, Sent::Never);
        assert_eq!(found.api_key, Sent::Repeatedly(&value("1")));
        assert_eq!(found.authorization, Sent::Repeatedly(&value("6")));
        assert_eq!(found.idempotency_key, Sent::Once(&value("3")));
        for (sent, first) in
            [(found.request_id, None), (found.host, Some("2")), (found.authorization, Some("6"))]
        {
            assert_eq!(sent.first().and_then(|value| value.to_str().ok()), first);
        }
    }
}
