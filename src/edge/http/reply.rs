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
/// Sent to callers whose credential is valid.
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
/// The first headers, the request id and the caller's limits.
const HEADERS_OF_ALL: usize = FIRST_HEADERS + 1 + LIMIT_HEADERS;
/// Room for the two numbers of a request id, of at most 16 and 20 digits, and for its hyphen.
const OWN_ID_BYTES_MAX: usize = 16 + 1 + 20;
const UNLIMITED_TEXT: HeaderValue = HeaderValue::from_static("2147483647");
/// Number of reset times that each thread keeps as text.
const SECONDS_KEPT: usize = 4;
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
pub(super) enum RequestId {
    Callers(HeaderValue),
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

#[cfg(feature = "cluster")]
impl RequestId {
    /// Returns the id as a header value.
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
/// This runs for every trade, so it does little more than copy. An assigned request id is stored
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

/// Returns the headers of a JSON answer without headers of its own: a copy of the headers of an
/// earlier answer to a caller of the same tier, with the changing values replaced. A map hashes the
/// name of each header that is inserted, which takes longer than copying the whole map: without
/// these copies and the digits below, a trade takes 11 % more instructions.
fn usual_headers(limits: Limits, request_id: HeaderValue) -> HeaderMap {
    let Limits { tier, per_minute, per_second, reset_seconds } = limits;
    let (mut headers, reset) = KEPT.with_borrow_mut(|kept| {
        let place = &mut kept.headers[tier as usize];
        let of_tier = match place {
            Some((known, headers)) if *known == [per_minute.limit, per_second.limit] => headers,
            _ => {
                // Not the request's id, which shares its memory with an answer.
                let (none, id) = (HeaderMap::new(), HeaderValue::from_static(""));
                let headers = headers_of(none.clone(), none, true, id, Some(limits));
                &mut place.insert(([per_minute.limit, per_second.limit], headers)).1
            }
        };
        (of_tier.clone(), kept.seconds_text(reset_seconds))
    });
    let rests = [per_minute.remaining, per_second.remaining].map(number_text);
    let [minute_rest, second_rest] = rests.map(Some);
    // In the order of the headers: the request id, then `LIMIT_NAMES`. `None` keeps the copied
    // value.
    let changed = [Some(request_id), None, None, None, minute_rest, second_rest, Some(reset)];
    for (value, changed) in headers.values_mut().skip(FIRST_HEADERS).zip(changed) {
        if let Some(changed) = changed {
            *value = changed;
        }
    }
    headers
}

/// The caller's limits, as shown in the headers.
#[derive(Clone, Copy)]
struct Limits {
    tier: Tier,
    per_minute: Allowance,
    per_second: Allowance,
    /// Time from which another request is certain to pass, in seconds since 1970.
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

/// Headers that many answers have in common.
struct Kept {
    /// For each tier, the limits and the headers of an earlier answer.
    headers: [Option<([u32; 2], HeaderMap)>; Tier::ALL.len()],
    /// Header values for recent Unix times in seconds. A time is kept at its index modulo
    /// [`SECONDS_KEPT`].
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

/// The numbers below ten thousand, each as four digits.
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

/// Formats a limit or a remaining count. Allocates only for a large number other than the one that
/// stands for no limit.
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

    /// Holds for all limits and in every second.
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
