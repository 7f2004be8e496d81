//! Responses, and the headers that every response carries.

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Response, StatusCode};
use serde::Serialize;

use super::connection::ReplyBody;
use super::holder::Holder;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::budget::{ByteBudget, Share};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::limits::window::{Allowance, Decision};
use paperbourse_exchange::service::{Admission, Moment};

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Sent to callers whose credential is valid.
pub(super) const RATE_LIMIT_TIER: HeaderName = HeaderName::from_static("x-ratelimit-tier");
const LIMIT_HEADERS: usize = 6;
pub(super) const LIMIT_NAMES: [HeaderName; LIMIT_HEADERS] = [
    RATE_LIMIT_TIER,
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-limit-per-second"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-remaining-per-second"),
    HeaderName::from_static("x-ratelimit-reset"),
];
/// `Content-Type` and `X-Content-Type-Options`, which come before the request id.
const FIRST_HEADERS: usize = 2;
/// The first headers, the request id and the caller's limits.
const HEADERS_OF_ALL: usize = FIRST_HEADERS + 1 + LIMIT_HEADERS;
/// Initial allocation for a body that serde writes.
const FIRST_CAPACITY_BYTES: usize = 512;
/// Memory budget for answers to reads that clients have not read yet, in bytes.
pub const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Answers up to this size do not count towards the budget. The answers that bots wait for are
/// smaller.
const UNCOUNTED_BYTES: usize = 16 * 1024;
/// Number of request numbers that a thread reserves at a time.
const NUMBERS_AT_ONCE: u64 = 1024;
/// Maximum length of a client's request id that is echoed, in bytes.
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
    /// The body to send instead of `body`: a stream, or bytes that other replies share.
    pub instead: Option<ReplyBody>,
    /// The body's share of the answer budget, held until the client has taken the whole body.
    pub(super) held: Option<Share>,
}

impl Reply {
    /// Creates a JSON answer.
    pub fn json(status: StatusCode, body: Vec<u8>) -> Self {
        Self { status, body, headers: HeaderMap::new(), instead: None, held: None }
    }

    /// Creates a JSON answer, serialised by serde.
    pub(super) fn of(status: StatusCode, answer: &impl Serialize) -> Self {
        let mut body = Vec::with_capacity(FIRST_CAPACITY_BYTES);
        serde_json::to_writer(&mut body, answer).expect("answers have names for keys, and no maps");
        Self::json(status, body)
    }

    /// Takes the memory of a large body from the budget. Returns false if there is not enough.
    pub(super) fn hold(&mut self, budget: &Arc<ByteBudget>, by: impl FnOnce() -> Holder) -> bool {
        if self.body.len() <= UNCOUNTED_BYTES {
            return true;
        }
        // The whole allocation counts, including the part that is not in use.
        self.held.insert(by().share(budget)).hold(self.body.capacity())
    }

    /// Whether it is JSON without headers of its own.
    pub(super) fn is_plain_json(&self) -> bool {
        self.headers.is_empty() && self.instead.is_none() && !self.body.is_empty()
    }

    /// Creates an answer with the status 200 and a JSON body.
    pub(super) fn ok(answer: &impl Serialize) -> Self {
        Self::of(StatusCode::OK, answer)
    }

    /// Creates an answer with the status 201 and a JSON body.
    pub(super) fn created(answer: &impl Serialize) -> Self {
        Self::of(StatusCode::CREATED, answer)
    }

    /// Creates an answer with the status 200 and a message.
    pub(super) fn message(message: &'static str) -> Self {
        #[derive(Serialize)]
        struct MessageAnswer {
            message: &'static str,
        }
        Self::ok(&MessageAnswer { message })
    }
}

/// The id of a request in responses and logs: the client's own, or one assigned here.
pub enum RequestId {
    /// The client's.
    Callers(HeaderValue),
    /// A number of this process.
    Ours(u64),
}

impl RequestId {
    /// Returns the client's own id, if it `sent` one that can be echoed, or else assigns one.
    pub(super) fn of(sent: Option<&HeaderValue>) -> Self {
        let callers = sent.filter(|value| {
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

impl RequestId {
    /// Appends its text.
    pub(super) fn write(&self, to: &mut Vec<u8>) {
        match self {
            Self::Callers(value) => to.extend_from_slice(value.as_bytes()),
            Self::Ours(number) => {
                to.extend_from_slice(process_name().as_bytes());
                to.extend_from_slice(itoa::Buffer::new().format(*number).as_bytes());
            }
        }
    }

    /// Returns the id as a header value.
    pub(super) fn to_value(&self) -> HeaderValue {
        match self {
            Self::Callers(value) => value.clone(),
            Self::Ours(_) => {
                let text = HeaderValue::try_from(self.to_string());
                text.expect("digits and letters are visible ASCII")
            }
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

/// Returns a number unique within this process. Each thread reserves many at a time.
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

/// Returns the prefix of this process's request ids: the time of the first call, in microseconds,
/// since the nodes of a cluster may start in the same second.
fn process_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| format!("{:x}-", Timestamp::now().micros()));
    &NAME
}

/// Builds the response: the reply's headers, then the request id, then the caller's limits.
///
/// `spare`, the request's own map, has room for headers.
pub(super) fn response_of(
    reply: Reply,
    request_id: &RequestId,
    limits: Option<Limits>,
    spare: HeaderMap,
) -> Response<ReplyBody> {
    let Reply { status, body, headers: own, instead, held } = reply;
    let headers = headers_of(spare, own, !body.is_empty(), request_id.to_value(), limits);
    let body = instead.unwrap_or_else(|| ReplyBody::Whole(Full::new(body.into()), held));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Builds the headers of a response in a `spare` map.
fn headers_of(
    spare: HeaderMap,
    own: HeaderMap,
    is_json: bool,
    request_id: HeaderValue,
    limits: Option<Limits>,
) -> HeaderMap {
    let mut headers = spare;
    headers.clear();
    headers.reserve(own.len() + HEADERS_OF_ALL);
    if is_json {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.extend(own);
    headers.insert(&REQUEST_ID, request_id);
    if let Some(limits) = limits {
        let tier = HeaderValue::from_static(limits.tier.as_str());
        let values = std::iter::once(tier).chain(limits.numbers().map(HeaderValue::from));
        headers.extend(LIMIT_NAMES.into_iter().zip(values));
    }
    headers
}

/// The caller's limits, as shown in the headers.
#[derive(Clone, Copy)]
pub struct Limits {
    pub(super) tier: Tier,
    pub(super) per_minute: Allowance,
    pub(super) per_second: Allowance,
    /// Time from which another request is certain to pass, in seconds since 1970.
    pub(super) reset_seconds: i64,
}

impl Limits {
    /// Returns the values of [`LIMIT_NAMES`] after the tier, in their order.
    pub(super) fn numbers(&self) -> [i64; LIMIT_HEADERS - 1] {
        let Self { tier: _, per_minute, per_second, reset_seconds } = *self;
        [
            per_minute.limit.into(),
            per_second.limit.into(),
            per_minute.remaining.into(),
            per_second.remaining.into(),
            reset_seconds,
        ]
    }

    pub(super) fn of(admission: &Admission, moment: Moment) -> Self {
        let Decision { per_minute, per_second, wait_ns, .. } = admission.decision;
        let wait_ns = i64::try_from(wait_ns).unwrap_or(i64::MAX);
        let reset_ns = moment.now.nanos().saturating_add(wait_ns);
        let is_between = reset_ns.rem_euclid(1_000_000_000) != 0;
        let reset_seconds = reset_ns.div_euclid(1_000_000_000) + i64::from(is_between);
        Self { tier: admission.tier, per_minute, per_second, reset_seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::{AccountId, ShardId};
    use paperbourse_core::limits::bucket::Origin;

    #[test]
    fn large_answers_share_a_budget() {
        let budget = ByteBudget::new(64 * (UNCOUNTED_BYTES + 1));
        let large = || Reply::json(StatusCode::OK, vec![b'x'; UNCOUNTED_BYTES + 1]);
        let account =
            |number| Holder::Account(AccountId::new(ShardId::of_digest(0), number).unwrap());
        let stranger = |number| Holder::Stranger(Origin::V4([192, 0, 2, number].into()));
        let fill = |by: &dyn Fn(u8) -> Holder| {
            let mut replies: Vec<_> = (1..=100).map(|number| (large(), by(number))).collect();
            replies.retain_mut(|(reply, by)| reply.hold(&budget, || *by));
            replies.into_iter().map(|(reply, _)| reply).collect::<Vec<_>>()
        };
        let mut first = fill(&|_| account(1));
        assert_eq!(first.len(), 16, "a quarter");
        assert!(
            Reply::json(StatusCode::OK, vec![b'x'; UNCOUNTED_BYTES])
                .hold(&budget, || { unreachable!("a small one") })
        );
        let strangers = fill(&stranger);
        assert_eq!(strangers.len(), 1, "with 17 of 24, an eighth of the rest is less than one");
        let accounts = fill(&|number| account(u64::from(number)));
        assert_eq!(accounts.len(), 24, "with 41 of 48, it is too");
        drop((strangers, accounts));
        let reply = first.pop().unwrap();
        let response = response_of(reply, &RequestId::Ours(1), None, HeaderMap::new());
        assert!(!large().hold(&budget, || account(1)), "it is on its way");
        drop(response);
        assert!(large().hold(&budget, || account(1)));
        drop(first);
        assert_eq!(budget.held_bytes(), 0);
    }
}
