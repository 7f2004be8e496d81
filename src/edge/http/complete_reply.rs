//! An answer together with what every answer carries: the request's id and, for a known caller, the
//! rate limits. Headers are put into a map only for hyper.

use hyper::Response;
use hyper::header::{HeaderMap, HeaderValue};

use super::connection::{
    Outgoing, PlainBody, ReplyBody, Written, write_header, write_response, write_status,
};
use super::cors;
use super::reply::{LIMIT_NAMES, Limits, Reply, RequestId, response_of};
use paperbourse_exchange::service::{Admission, Moment};

/// The first header lines of every JSON answer, up to the request's id.
const FIRST_LINES: &[u8] =
    b"content-type: application/json\r\nx-content-type-options: nosniff\r\nx-request-id: ";

/// The answer to a request.
#[expect(clippy::large_enum_variant, reason = "the small variant is rare")]
pub enum CompleteReply {
    /// An answer of this node.
    Here {
        /// The answer without the headers common to all.
        reply: Reply,
        /// The id of the request.
        request_id: RequestId,
        /// The caller's rate limits; `None` if the request was refused before they were checked.
        limits: Option<Limits>,
        /// The origin of the web page that may read the answer, if any.
        origin: Option<HeaderValue>,
        /// The headers of the request, for reuse of the map.
        spare: HeaderMap,
    },
    /// An answer of another node.
    Elsewhere(Response<ReplyBody>),
}

impl CompleteReply {
    pub(super) fn new(
        reply: Reply,
        request_id: RequestId,
        admitted: Option<(Admission, Moment)>,
        origin: Option<HeaderValue>,
        spare: HeaderMap,
    ) -> Self {
        let limits = admitted.map(|(admission, moment)| Limits::of(&admission, moment));
        Self::Here { reply, request_id, limits, origin, spare }
    }
}

impl Outgoing for CompleteReply {
    fn into_response(self) -> Response<ReplyBody> {
        let (reply, request_id, limits, origin, spare) = match self {
            Self::Here { reply, request_id, limits, origin, spare } => {
                (reply, request_id, limits, origin, spare)
            }
            Self::Elsewhere(response) => return response,
        };
        let mut response = response_of(reply, &request_id, limits, spare);
        if let Some(origin) = origin {
            cors::expose(response.headers_mut(), origin);
        }
        response
    }

    /// Skips the map for the most frequent kind of answer: JSON with the caller's limits and no
    /// headers of its own.
    fn write(self, head: &mut Vec<u8>) -> Option<Written> {
        match self {
            Self::Here { reply, request_id, limits: Some(limits), origin: None, spare }
                if reply.is_plain_json() =>
            {
                let Reply { status, body, held, .. } = reply;
                write_status(head, status);
                head.extend_from_slice(FIRST_LINES);
                request_id.write(head);
                head.extend_from_slice(b"\r\n");
                write_limits(head, &limits);
                Some(Written { status, body: PlainBody::Own(body), held, spare })
            }
            other => write_response(other.into_response(), head),
        }
    }
}

fn write_limits(head: &mut Vec<u8>, limits: &Limits) {
    let [tier_name, names @ ..] = &LIMIT_NAMES;
    write_header(head, tier_name, limits.tier.as_str().as_bytes());
    for (name, number) in names.iter().zip(limits.numbers()) {
        write_header(head, name, itoa::Buffer::new().format(number).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use hyper::StatusCode;

    use super::*;
    use crate::http::reply::REQUEST_ID;
    use paperbourse_core::limits::UNLIMITED_SHOWN;
    use paperbourse_core::limits::tier::Tier;
    use paperbourse_core::limits::window::Allowance;

    fn complete(reply: Reply, id: RequestId, limits: Option<Limits>) -> CompleteReply {
        let spare = HeaderMap::from_iter([(REQUEST_ID.clone(), HeaderValue::from_static("r"))]);
        CompleteReply::Here { reply, request_id: id, limits, origin: None, spare }
    }

    /// Whatever the answer is, written as bytes or put into a map.
    #[test]
    fn headers_are_written_as_a_map_would_be() {
        let id = || RequestId::Callers(HeaderValue::from_static("mine"));
        let own = || {
            let mut reply = Reply::json(StatusCode::CREATED, b"{}".to_vec());
            reply.headers.insert("retry-after", HeaderValue::from_static("1"));
            reply
        };
        for limit in [0, 1, 3_000, 10_000, UNLIMITED_SHOWN, u32::MAX] {
            for reset_seconds in [0, 1_795_000_000, i64::MAX, i64::MIN] {
                let allowance = |remaining| Allowance { limit, remaining };
                let tier = Tier::ALL[(limit % 3) as usize];
                let [per_minute, per_second] = [allowance(limit), allowance(limit / 2)];
                let limits = Limits { tier, per_minute, per_second, reset_seconds };
                for (reply, limits) in [
                    (|| Reply::json(StatusCode::OK, b"{}".to_vec()), Some(limits)),
                    (|| Reply::json(StatusCode::OK, Vec::new()), Some(limits)),
                    (|| Reply::json(StatusCode::BAD_REQUEST, b"[]".to_vec()), None),
                    (own as fn() -> Reply, Some(limits)),
                ] as [(fn() -> Reply, Option<Limits>); 4]
                {
                    let (mut plain, mut by_map) = (Vec::new(), Vec::new());
                    let written = complete(reply(), id(), limits).write(&mut plain).unwrap();
                    let response = complete(reply(), id(), limits).into_response();
                    let expected = write_response(response, &mut by_map).unwrap();
                    let text = String::from_utf8(plain).unwrap();
                    assert_eq!(text, String::from_utf8(by_map).unwrap());
                    assert_eq!(written.body[..], expected.body[..], "{text}");
                    assert_eq!(written.status, expected.status, "{text}");
                }
            }
        }
    }

    #[test]
    fn an_id_of_our_own_is_written_as_it_is_shown() {
        let mut written = Vec::new();
        RequestId::Ours(17).write(&mut written);
        assert_eq!(String::from_utf8(written).unwrap(), RequestId::Ours(17).to_string());
    }
}
