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
use super::holder::Holder;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::UNLIMITED_SHOWN;
use paperbourse_core::limits::budget::{ByteBudget, Share};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::limits::window::{Allowance, Decision};
use paperbourse_exchange::service::{Admission, Moment};

pub(super) static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// In answers to callers whose credential is valid.
pub(super) const RATE_LIMIT_TIER: HeaderName = HeaderName::from_static("x-ratelimit-tier");
const LIMIT_HEADERS: usize = 6;
const LIMIT_NAMES: [HeaderName; LIMIT_HEADERS] = [
    RATE_LIMIT_TIER,
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-limit-per-second"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-remaining-per-second"),
    HeaderName::from_static("x-ratelimit-reset"),
];
/// `Content-Type` and `X-Content-Type-Options`, which come before the request id.
const FIRST_HEADERS: usize = 2;
/// Those, the request id and the caller's limits.
const HEADERS_OF_ALL: usize = FIRST_HEADERS + 1 + LIMIT_HEADERS;
/// Room for the two numbers of a request id, 16 and 20 digits at most, and for its hyphen.
const OWN_ID_BYTES_MAX: usize = 16 + 1 + 20;
const UNLIMITED_TEXT: HeaderValue = HeaderValue::from_static("2147483647");
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
    pub(super) fn hold(&mut self, budget: &Arc<ByteBudget>, by: impl FnOnce() -> Holder) -> bool {
        if self.body.len() <= UNCOUNTED_BYTES {
            return true;
        }
        // What was allocated is held, also the part that was not needed.
        self.held.insert(by().share(budget)).hold(self.body.capacity())
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
    /// The client's own, if it `sent` one that can be echoed.
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

#[cfg(feature = "cluster")]
impl RequestId {
    /// The value of the header.
    pub(super) fn to_value(&self) -> HeaderValue {
        match self {
            Self::Callers(value) => value.clone(),
            Self::Ours(_) => header_value(self.to_string().into()),
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

/// The prefix of this process's request ids: the microsecond of its first one, since the nodes of a
/// cluster may start in the same second.
fn process_name() -> &'static str {
    static NAME: LazyLock<String> = LazyLock::new(|| format!("{:x}-", Timestamp::now().micros()));
    &NAME
}

/// Builds the response: the reply's headers, then the request id, then the caller's limits.
///
/// This runs for every trade and so does little more than copy. Its own request ids are stored
/// after the body, in the same buffer. `spare`, the request's own map, has room for headers.
pub(super) fn response_of(
    reply: Reply,
    request_id: RequestId,
    admitted: Option<(Admission, Moment)>,
    spare: HeaderMap,
) -> Response<ReplyBody> {
    let Reply { status, body: mut buffer, headers: own, instead, held } = reply;
    let body_bytes = buffer.len();
    if let RequestId::Ours(number) = request_id {
        buffer.reserve_exact(OWN_ID_BYTES_MAX);
        buffer.extend_from_slice(process_name().as_bytes());
        buffer.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
    }
    let mut body = Bytes::from(buffer);
    let request_id = match request_id {
        RequestId::Callers(value) => value,
        RequestId::Ours(_) => header_value(body.slice(body_bytes..)),
    };
    body.truncate(body_bytes);
    let limits = admitted.map(|(admission, moment)| Limits::of(&admission, moment));
    let headers = match limits {
        Some(limits) if own.is_empty() && body_bytes > 0 => usual_headers(limits, request_id),
        _ => headers_of(spare, own, body_bytes > 0, request_id, limits),
    };
    let body = instead.unwrap_or_else(|| ReplyBody::Whole(Full::new(body), held));
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// The headers of a response, made in a `spare` map.
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
        let Limits { tier, per_minute, per_second, reset_seconds } = limits;
        let tier = HeaderValue::from_static(tier.as_str());
        let [per_minute, per_second, minute_rest, second_rest] =
            [per_minute.limit, per_second.limit, per_minute.remaining, per_second.remaining]
                .map(number_text);
        let reset = reset_seconds.into();
        let values = [tier, per_minute, per_second, minute_rest, second_rest, reset];
        headers.extend(LIMIT_NAMES.into_iter().zip(values));
    }
    headers
}

/// The headers of a JSON answer without headers of its own: a copy of those of an earlier answer to
/// a caller of the same tier, with new values where they change. A map hashes the name of each
/// header that is put into it, and copies the rest faster than that: without these copies and the
/// digits below, a trade takes 11 % more instructions.
fn usual_headers(limits: Limits, request_id: HeaderValue) -> HeaderMap {
    let Limits { tier, per_minute, per_second, reset_seconds } = limits;
    let (mut headers, reset) = KEPT.with_borrow_mut(|kept| {
        let place = &mut kept.headers[tier as usize];
        let of_tier = match place {
            Some((known, headers)) if *known == [per_minute.limit, per_second.limit] => headers,
            _ => {
                // Not the request's id, whose memory has an answer in front of it.
                let (none, id) = (HeaderMap::new(), HeaderValue::from_static(""));
                let headers = headers_of(none.clone(), none, true, id, Some(limits));
                &mut place.insert(([per_minute.limit, per_second.limit], headers)).1
            }
        };
        (of_tier.clone(), kept.seconds_text(reset_seconds))
    });
    let rests = [per_minute.remaining, per_second.remaining].map(number_text);
    let [minute_rest, second_rest] = rests.map(Some);
    let changed = [Some(request_id), None, None, None, minute_rest, second_rest, Some(reset)];
    for (value, changed) in headers.values_mut().skip(FIRST_HEADERS).zip(changed) {
        if let Some(changed) = changed {
            *value = changed;
        }
    }
    headers
}

/// What the headers say about the caller's limits.
#[derive(Clone, Copy)]
struct Limits {
    tier: Tier,
    per_minute: Allowance,
    per_second: Allowance,
    /// The second from which another request is certain to pass.
    reset_seconds: i64,
}

impl Limits {
    fn of(admission: &Admission, moment: Moment) -> Self {
        let Decision { per_minute, per_second, wait_ns, .. } = admission.decision;
        let wait_ns = i64::try_from(wait_ns).unwrap_or(i64::MAX);
        let reset_ns = moment.now.nanos().saturating_add(wait_ns);
        let is_between = reset_ns.rem_euclid(1_000_000_000) != 0;
        let reset_seconds = reset_ns.div_euclid(1_000_000_000) + i64::from(is_between);
        Self { tier: admission.tier, per_minute, per_second, reset_seconds }
    }
}

/// What many answers have in common.
struct Kept {
    /// Of each tier, the limits and the headers of an answer.
    headers: [Option<([u32; 2], HeaderMap)>; Tier::ALL.len()],
    /// Seconds and their texts, each in the place that its remainder gives it.
    seconds: [Option<(i64, HeaderValue)>; SECONDS_KEPT],
}

thread_local! {
    static KEPT: RefCell<Kept> = const {
        RefCell::new(Kept {
            headers: [const { None }; Tier::ALL.len()],
            seconds: [const { None }; SECONDS_KEPT],
        })
    };
}

impl Kept {
    fn seconds_text(&mut self, seconds: i64) -> HeaderValue {
        let place = seconds.unsigned_abs() % SECONDS_KEPT as u64;
        let place = &mut self.seconds[usize::try_from(place).expect("below the number of places")];
        match place {
            Some((known, text)) if *known == seconds => text.clone(),
            _ => place.insert((seconds, seconds.into())).1.clone(),
        }
    }
}

/// The numbers below ten thousand with four digits each.
static DIGITS: [[u8; 4]; 10_000] = {
    let mut digits = [[b'0'; 4]; 10_000];
    let mut number = 1;
    while number < digits.len() {
        digits[number] = digits[number - 1];
        let mut place = 3;
        while digits[number][place] == b'9' {
            digits[number][place] = b'0';
            place -= 1;
        }
        digits[number][place] += 1;
        number += 1;
    }
    digits
};

/// A limit or what remains of it as text, which takes memory only if it is large and not the number
/// that is shown for no limit.
fn number_text(number: u32) -> HeaderValue {
    if number == UNLIMITED_SHOWN {
        return UNLIMITED_TEXT;
    }
    header_value(match DIGITS.get(number as usize) {
        Some(digits) => {
            let zeros = digits[..3].iter().take_while(|digit| **digit == b'0').count();
            Bytes::from_static(&digits[zeros..])
        }
        None => Bytes::copy_from_slice(itoa::Buffer::new().format(number).as_bytes()),
    })
}

fn header_value(digits: Bytes) -> HeaderValue {
    HeaderValue::from_maybe_shared(digits).expect("digits are visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::{AccountId, ShardId};
    use paperbourse_core::limits::bucket::Origin;

    fn limits(limit: u32, remaining: u32, reset_seconds: i64) -> Limits {
        let allowance = Allowance { limit, remaining };
        let tier = Tier::ALL[(limit % 3) as usize];
        Limits { tier, per_minute: allowance, per_second: allowance, reset_seconds }
    }

    #[test]
    fn every_number_is_its_text() {
        for number in (0..20_000).chain([UNLIMITED_SHOWN - 1, UNLIMITED_SHOWN, u32::MAX]) {
            assert_eq!(number_text(number), number.to_string(), "{number}");
        }
    }

    #[test]
    fn copied_headers_are_those_that_would_be_made() {
        let seconds = i64::try_from(SECONDS_KEPT).unwrap();
        let id = |text| HeaderValue::from_static(text);
        for _ in 0..2 {
            for reset in [0, 1, seconds, seconds + 1, -1, -seconds, i64::MAX, i64::MIN] {
                for limit in [1, 4, 5, 3_000, 10_000, UNLIMITED_SHOWN] {
                    for (rest, text) in [(limit, "a"), (0, "b"), (limit - 1, "b")] {
                        let limits = limits(limit, rest, reset);
                        let none = HeaderMap::new();
                        let made = headers_of(none.clone(), none, true, id(text), Some(limits));
                        let copied = usual_headers(limits, id(text));
                        assert!(copied.iter().eq(made.iter()), "{copied:?} {made:?}");
                        assert_eq!(copied.len(), HEADERS_OF_ALL);
                    }
                }
            }
        }
    }

    /// Whatever the limits are, and in every second.
    #[test]
    fn what_answers_have_in_common_is_written_once() {
        let addresses = |headers: &HeaderMap| {
            headers.values().map(|value| value.as_bytes().as_ptr()).collect::<Vec<_>>()
        };
        for limit in [60, 20_000, 30_001, UNLIMITED_SHOWN] {
            for reset in 1_795_000_000..1_795_000_064 {
                let make = || usual_headers(limits(limit, 7, reset), HeaderValue::from_static("a"));
                let (first, again) = (make(), make());
                assert_eq!(addresses(&first), addresses(&again), "{limit} {reset}");
            }
        }
    }

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
        let response = response_of(reply, RequestId::Ours(1), None, HeaderMap::new());
        assert!(!large().hold(&budget, || account(1)), "it is on its way");
        drop(response);
        assert!(large().hold(&budget, || account(1)));
        drop(first);
        assert_eq!(budget.held_bytes(), 0);
    }
}
