//! Responses, and the headers that every response carries.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::connection::ReplyBody;
use crate::ids::Timestamp;
use crate::limits::budget::{ByteBudget, Share};
use crate::service::{Admission, Moment};

static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TIER: HeaderName = HeaderName::from_static("x-ratelimit-tier");
const LIMIT_NUMBERS: usize = 5;
const LIMIT_NAMES: [HeaderName; LIMIT_NUMBERS] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-limit-per-second"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-remaining-per-second"),
    HeaderName::from_static("x-ratelimit-reset"),
];
/// `Content-Type`, `X-Content-Type-Options`, request id and rate limits.
const HEADERS_OF_ALL: usize = 4 + LIMIT_NUMBERS;
/// Room for the digits of a request id and of what remains of two limits, 20 for each number, and
/// for the id's hyphen.
const HEADER_TEXT_BYTES_MAX: usize = (2 + 2) * 20 + 1;
/// How many limits each thread keeps as text.
const LIMITS_KEPT: usize = 16;
/// How many seconds each thread keeps as text: those from which other requests pass.
const SECONDS_KEPT: usize = 4;
/// The initial allocation for a body that serde writes.
const FIRST_CAPACITY_BYTES: usize = 512;
/// How many bytes the answers to reads may hold together that clients have not read.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Answers up to this size do not count: those that bots wait for are smaller.
const UNCOUNTED_BYTES: usize = 16 * 1024;
/// How many request numbers a thread reserves at a time.
const NUMBERS_AT_ONCE: u64 = 1024;
/// The longest request id of a client that is echoed.
pub(super) const REQUEST_ID_BYTES_MAX: usize = 64;

/// A response without the headers common to all responses.
#[derive(Debug)]
pub struct Reply {
    /// The status of the response.
    pub status: StatusCode,
    /// The body, JSON unless the headers say otherwise.
    pub body: Vec<u8>,
    /// Headers particular to this response; usually none.
    pub headers: HeaderMap,
    /// What is sent instead of the body: a stream, or bytes that other replies share.
    pub instead: Option<ReplyBody>,
    /// What the body holds of the memory for answers, until the client has taken it.
    pub(super) held: Option<Share>,
}

impl Reply {
    /// A JSON answer.
    pub fn json(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, body, headers: HeaderMap::new(), instead: None, held: None }
    }

    /// A JSON answer, serialised by serde.
    pub(super) fn of(status: StatusCode, answer: &impl Serialize) -> Self {
        let mut body = Vec::with_capacity(FIRST_CAPACITY_BYTES);
        serde_json::to_writer(&mut body, answer).expect("answers have names for keys, and no maps");
        Self::json(status, body)
    }

    /// Takes the memory of a large body out of the budget. Returns false if there is not enough.
    /// Callers without a credential get half of it at most, so that they leave some to others.
    pub(super) fn hold(&mut self, budget: &Arc<ByteBudget>, is_stranger: bool) -> bool {
        if self.body.len() <= UNCOUNTED_BYTES {
            return true;
        }
        let held = self.held.insert(budget.share());
        let bytes_max = budget.bytes_max() / if is_stranger { 2 } else { 1 };
        held.hold_below(self.body.len(), bytes_max)
    }

    /// 200 with a JSON body.
    pub(super) fn ok(answer: &impl Serialize) -> Self {
        Self::of(StatusCode::OK, answer)
    }

    /// 201 with a JSON body.
    pub(super) fn created(answer: &impl Serialize) -> Self {
        Self::of(StatusCode::CREATED, answer)
    }

    /// 200 with a message.
    pub(super) fn message(message: &'static str) -> Self {
        #[derive(Serialize)]
        struct MessageAnswer {
            message: &'static str,
        }
        Self::ok(&MessageAnswer { message })
    }
}

/// The id of a request in responses and logs: the client's own, or one assigned here.
pub(super) enum RequestId {
    Callers(HeaderValue),
    Ours(u64),
}

impl RequestId {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let callers = headers.get(&REQUEST_ID).filter(|value| {
            let bytes = value.as_bytes();
            (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len())
                && bytes.iter().all(|byte| (0x21..=0x7e).contains(byte))
        });
        match callers {
            Some(value) => Self::Callers(value.clone()),
            None => Self::Ours(next_number()),
        }
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Callers(value) => formatter.write_str(value.to_str().unwrap_or("?")),
            Self::Ours(number) => write!(formatter, "{}{number}", process_name()),
        }
    }
}

/// A number unique within this process. Each thread reserves many at a time.
fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local!(static TAKEN: Cell<Range<u64>> = const { Cell::new(0..0) });
    TAKEN.with(|taken| {
        let mut numbers = taken.take();
        let number = numbers.next().unwrap_or_else(|| {
            let first = NEXT.fetch_add(NUMBERS_AT_ONCE, Ordering::Relaxed);
            numbers = first + 1..first + NUMBERS_AT_ONCE;
            first
        });
        taken.set(numbers);
        number
    })
}

/// The prefix of this process's request ids: the time of its start.
fn process_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| format!("{:x}-", Timestamp::now().seconds()));
    &NAME
}

/// Builds the response: the reply's headers, then the request id, then the caller's limits.
///
/// This runs for every trade and so allocates almost nothing. It reuses `headers`, the request's
/// own map, and stores the texts of headers after the body in the same buffer.
pub(super) fn response_of(
    reply: Reply,
    request_id: RequestId,
    admitted: Option<(Admission, Moment)>,
    mut headers: HeaderMap,
) -> Response<ReplyBody> {
    let Reply { status, body: mut buffer, headers: own_headers, instead, held } = reply;
    headers.clear();
    headers.reserve(own_headers.len() + HEADERS_OF_ALL);
    if !buffer.is_empty() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if !own_headers.is_empty() {
        headers.extend(own_headers);
    }

    let body_bytes = buffer.len();
    buffer.reserve_exact(HEADER_TEXT_BYTES_MAX);
    if let RequestId::Ours(number) = request_id {
        buffer.extend_from_slice(process_name().as_bytes());
        write_number(&mut buffer, number);
    }
    let id_span = body_bytes..buffer.len();
    let remaining_spans = admitted.as_ref().map(|(Admission { decision, .. }, _)| {
        let remaining = [decision.per_minute.remaining, decision.per_second.remaining];
        remaining.map(|number| write_number(&mut buffer, number))
    });

    let mut body = Bytes::from(buffer);
    let text = |span: Range<usize>| {
        HeaderValue::from_maybe_shared(body.slice(span)).expect("digits are visible ASCII")
    };
    let request_id = match request_id {
        RequestId::Callers(value) => value,
        RequestId::Ours(_) => text(id_span),
    };
    headers.insert(&REQUEST_ID, request_id);
    if let (Some((admission, moment)), Some(spans)) = (&admitted, remaining_spans) {
        let Admission { tier, decision, .. } = admission;
        headers.insert(TIER, HeaderValue::from_static(tier.as_str()));
        let [remaining_per_minute, remaining_per_second] = spans.map(text);
        let [per_minute, per_second, reset] = kept_texts(
            decision.per_minute.limit,
            decision.per_second.limit,
            reset_seconds(admission, *moment),
        );
        let values = [per_minute, per_second, remaining_per_minute, remaining_per_second, reset];
        for (name, value) in LIMIT_NAMES.into_iter().zip(values) {
            headers.insert(name, value);
        }
    }
    body.truncate(body_bytes);
    let body = instead.unwrap_or_else(|| ReplyBody::Whole(Full::new(body), held));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The second from which another request is certain to pass.
fn reset_seconds(admission: &Admission, moment: Moment) -> i64 {
    let wait_ns = i64::try_from(admission.decision.wait_ns).unwrap_or(i64::MAX);
    let reset_ns = moment.now.nanos().saturating_add(wait_ns);
    reset_ns.div_euclid(1_000_000_000) + i64::from(reset_ns.rem_euclid(1_000_000_000) != 0)
}

/// Numbers and their texts, each in the place that its remainder gives it.
type Texts<const COUNT: usize> = [Option<(i64, HeaderValue)>; COUNT];

/// The texts that many answers have in common. Each header has places of its own: two numbers of
/// one answer in one place would be written anew each time.
struct KeptTexts {
    per_minute: Texts<LIMITS_KEPT>,
    per_second: Texts<LIMITS_KEPT>,
    reset: Texts<SECONDS_KEPT>,
}

thread_local! {
    static KEPT: RefCell<KeptTexts> = const {
        RefCell::new(KeptTexts {
            per_minute: [const { None }; LIMITS_KEPT],
            per_second: [const { None }; LIMITS_KEPT],
            reset: [const { None }; SECONDS_KEPT],
        })
    };
}

/// The texts of the limits per minute and per second, and of the second from which another request
/// is certain to pass.
fn kept_texts(per_minute: u32, per_second: u32, reset: i64) -> [HeaderValue; 3] {
    KEPT.with_borrow_mut(|kept| {
        [
            text_of(&mut kept.per_minute, per_minute.into()),
            text_of(&mut kept.per_second, per_second.into()),
            text_of(&mut kept.reset, reset),
        ]
    })
}

fn text_of<const COUNT: usize>(texts: &mut Texts<COUNT>, number: i64) -> HeaderValue {
    let place = number.unsigned_abs() % COUNT as u64;
    let place = &mut texts[usize::try_from(place).expect("below the number of places")];
    match place {
        Some((known, text)) if *known == number => text.clone(),
        _ => place.insert((number, number.into())).1.clone(),
    }
}

/// Appends a number and returns the span of its text.
fn write_number(out: &mut Vec<u8>, number: impl itoa::Integer) -> Range<usize> {
    let start = out.len();
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    start..out.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_own_text() {
        let kept = i64::try_from(SECONDS_KEPT).unwrap();
        for _ in 0..2 {
            for reset in [0, 1, kept, kept + 1, -1, -kept, i64::MAX, i64::MIN] {
                for limit in [0, 1, 16, 17, u32::MAX] {
                    let texts = kept_texts(limit, 1, reset);
                    let expected = [limit.to_string(), "1".to_owned(), reset.to_string()];
                    assert_eq!(texts, expected.map(|text| HeaderValue::try_from(text).unwrap()));
                }
            }
        }
    }

    /// Whatever the limits are, and in every second.
    #[test]
    fn texts_are_written_once() {
        for (per_minute, per_second) in [(100, 20), (2_147_483_647, 2_147_483_647), (60, 60)] {
            for reset in 1_795_000_000..1_795_000_064 {
                let addresses = |texts: &[HeaderValue; 3]| {
                    texts.each_ref().map(|text| text.as_bytes().as_ptr())
                };
                let first = kept_texts(per_minute, per_second, reset);
                let again = kept_texts(per_minute, per_second, reset);
                assert_eq!(
                    addresses(&again),
                    addresses(&first),
                    "{per_minute} {per_second} {reset}"
                );
            }
        }
    }

    #[test]
    fn large_answers_share_a_budget() {
        let budget = ByteBudget::new(2 * UNCOUNTED_BYTES);
        let reply = |bytes| Reply::json(StatusCode::OK, vec![b'x'; bytes]);
        let (mut first, mut second) = (reply(UNCOUNTED_BYTES + 1), reply(UNCOUNTED_BYTES + 1));
        assert!(!first.hold(&budget, true), "more than half");
        assert!(first.hold(&budget, false) && !second.hold(&budget, false));
        assert!(reply(UNCOUNTED_BYTES).hold(&budget, true), "a small one");
        assert_eq!(budget.held_bytes(), UNCOUNTED_BYTES + 1);
        let response = response_of(first, RequestId::Ours(1), None, HeaderMap::new());
        assert!(!second.hold(&budget, false), "it is on its way");
        drop(response);
        assert!(second.hold(&budget, false));
    }
}
