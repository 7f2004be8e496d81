//! What every answer carries besides its body, and how refusals of the use cases read on the wire.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::auth::identity::{TokenError, TokenFlaw};
use crate::auth::key_table::KeyError;
use crate::auth::policy::PolicyError;
use crate::http::error::ApiError;
use crate::limits::retry_after_seconds;
use crate::service::{Admission, Denied, Moment, ServiceError};
use crate::shard::Refusal;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// A caller's own id is echoed when it is at most this long.
const REQUEST_ID_BYTES_MAX: usize = 64;

/// The name of a request in answers and logs: the caller's own, else a number of ours.
pub(super) struct RequestId(HeaderValue);

impl RequestId {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let own = headers.get(REQUEST_ID).filter(|value| {
            let bytes = value.as_bytes();
            (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len())
                && bytes.iter().all(|byte| (0x21..=0x7e).contains(byte))
        });
        Self(own.cloned().unwrap_or_else(next_request_id))
    }

    pub(super) fn write(self, headers: &mut HeaderMap) {
        headers.insert(REQUEST_ID, self.0);
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.0.to_str().unwrap_or("?"))
    }
}

/// A number that no other request of this process has, behind the time of its start.
fn next_request_id() -> HeaderValue {
    static STARTED: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| {
        let seconds = crate::ids::Timestamp::now().seconds();
        format!("{seconds:x}-")
    });
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut text = [0_u8; 32];
    let prefix = STARTED.as_bytes();
    text[..prefix.len()].copy_from_slice(prefix);
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(number).as_bytes();
    let length = prefix.len() + digits.len();
    text[prefix.len()..length].copy_from_slice(digits);
    HeaderValue::from_bytes(&text[..length]).expect("digits are visible ASCII")
}

/// Tells the caller's limits.
pub(super) fn write_limits(headers: &mut HeaderMap, admission: &Admission, moment: Moment) {
    const TIER: HeaderName = HeaderName::from_static("x-ratelimit-tier");
    const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
    const PER_SECOND: HeaderName = HeaderName::from_static("x-ratelimit-limit-per-second");
    const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
    const REMAINING_PER_SECOND: HeaderName =
        HeaderName::from_static("x-ratelimit-remaining-per-second");
    const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
    let decision = &admission.decision;
    headers.insert(TIER, HeaderValue::from_static(admission.tier.as_str()));
    headers.insert(LIMIT, decision.per_minute.limit.into());
    headers.insert(PER_SECOND, decision.per_second.limit.into());
    headers.insert(REMAINING, decision.per_minute.remaining.into());
    headers.insert(REMAINING_PER_SECOND, decision.per_second.remaining.into());
    let wait_ns = i64::try_from(decision.wait_ns).unwrap_or(i64::MAX);
    let reset_ns = moment.now.nanos().saturating_add(wait_ns);
    let reset_seconds =
        reset_ns.div_euclid(1_000_000_000) + i64::from(reset_ns.rem_euclid(1_000_000_000) != 0);
    headers.insert(RESET, reset_seconds.into());
}

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Denied(denied) => denied.into(),
            ServiceError::BatchTooLong { count, batch_max, .. } => {
                Self::batch_limit_exceeded(count, batch_max as usize)
            }
            ServiceError::KeysFull => Self::server_full(),
            ServiceError::NoRandomBytes => Self::internal("the system gives no random bytes"),
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Rejected(rejection) => rejection.into(),
            Refusal::Busy => Self::server_busy(),
            Refusal::JournalFull => Self::journal_full(),
            Refusal::ServerFull => Self::server_full(),
        }
    }
}

impl From<Denied> for ApiError {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::MissingCredential => Self::missing_auth(),
            Denied::Key(KeyError::Unknown) => Self::invalid_key(),
            Denied::Key(KeyError::Revoked) => Self::key_deactivated(),
            Denied::Key(KeyError::Expired { .. }) => Self::key_expired(),
            Denied::Token(TokenError::Expired { .. }) => Self::token_expired(),
            Denied::Token(TokenError::Invalid(flaw)) => Self::invalid_token(&flaw),
            Denied::SocketToken => Self::invalid_token(&TokenFlaw::Malformed),
            Denied::TokenNotAccepted => Self::token_not_accepted(),
            Denied::Policy(PolicyError::InsufficientPermission { missing }) => {
                Self::insufficient_permission(missing)
            }
            Denied::Policy(PolicyError::TierNotAuthorized { .. }) => Self::tier_not_authorized(),
            Denied::TooOften { wait_ns } => Self::rate_limited(retry_after_seconds(wait_ns)),
        }
    }
}
