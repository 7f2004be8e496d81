//! Maps the refusals of the use cases to error responses.

use hyper::StatusCode;

use super::ApiError;
use paperbourse_core::engine::order::payload::PayloadFlaw;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::limits::retry_after_seconds;
use paperbourse_exchange::auth::identity::{TokenError, TokenFlaw};
use paperbourse_exchange::auth::key_table::KeyError;
use paperbourse_exchange::auth::policy::PolicyError;
use paperbourse_exchange::service::{Denied, ServiceError};
use paperbourse_exchange::shard::Refusal;

impl From<ServiceError> for ApiError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused(refusal) => refusal.into(),
            ServiceError::Denied(denied) => denied.into(),
            ServiceError::BatchTooLong { count, batch_max, tier } => {
                Self::batch_limit_exceeded(count, batch_max as usize, tier)
            }
            ServiceError::SlugNotFound { slug } => Self::slug_not_found(&slug),
            ServiceError::TokenNotFound => Self::token_not_found(),
            ServiceError::WalletNotFound => Self::wallet_not_found(),
            ServiceError::NoBook => Self::book_unavailable(),
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
            Denied::NotAKey(flaw) => Self::not_a_key(flaw),
            Denied::Key(KeyError::Revoked) => Self::key_deactivated(),
            Denied::Key(KeyError::Expired { .. }) => Self::key_expired(),
            Denied::Token(TokenError::Expired { .. }) => Self::token_expired(),
            Denied::Token(TokenError::Unavailable { retry_after_seconds }) => {
                Self::identity_unavailable(retry_after_seconds)
            }
            Denied::Token(TokenError::Invalid(flaw)) => Self::invalid_token(&flaw),
            Denied::Wallet(error) => Self::invalid_wallet(error),
            Denied::SocketToken => Self::invalid_token(&TokenFlaw::Malformed),
            Denied::TokenNotAccepted => Self::token_not_accepted(),
            Denied::Rotated => Rejection::MakerRotated.into(),
            Denied::Policy(PolicyError::InsufficientPermission { missing }) => {
                Self::insufficient_permission(missing)
            }
            Denied::Policy(PolicyError::TierNotAuthorized { highest, .. }) => {
                Self::tier_not_authorized(Some(highest))
            }
            Denied::TooOften { rule, wait_ns, allowed } => {
                Self::rate_limited(rule, retry_after_seconds(wait_ns), allowed)
            }
        }
    }
}

impl From<Rejection> for ApiError {
    fn from(rejection: Rejection) -> Self {
        use StatusCode as S;
        let (status, code) = match &rejection {
            Rejection::NameReused { .. }
            | Rejection::NameAdded { .. }
            | Rejection::BatchChanged
            | Rejection::DepositTokenReused { .. } => (S::CONFLICT, "IDEMPOTENCY_KEY_REUSE"),
            Rejection::MarketNotFound { .. } => (S::NOT_FOUND, "MARKET_NOT_FOUND"),
            Rejection::OutcomeNotFound { .. } => (S::NOT_FOUND, "OUTCOME_NOT_FOUND"),
            Rejection::MarketClosed { .. }
            | Rejection::MarketUnnamed
            | Rejection::MarketChanged
            | Rejection::FeesUnsupported => (S::BAD_REQUEST, "MARKET_CLOSED"),
            Rejection::VenueUnavailable { .. } => (S::SERVICE_UNAVAILABLE, "VENUE_UNAVAILABLE"),
            Rejection::InsufficientPosition { .. } => (S::BAD_REQUEST, "INSUFFICIENT_POSITION"),
            Rejection::InsufficientLiquidity { .. } => (S::BAD_REQUEST, "INSUFFICIENT_LIQUIDITY"),
            Rejection::SlippageExceeded { .. } => (S::BAD_REQUEST, "SLIPPAGE_EXCEEDED"),
            Rejection::InsufficientBalance { .. } => (S::BAD_REQUEST, "INSUFFICIENT_BALANCE"),
            Rejection::Payload(flaw) => (S::BAD_REQUEST, payload_code(*flaw)),
            Rejection::OffTick { .. } => (S::BAD_REQUEST, "INVALID_ORDER_MIN_TICK_SIZE"),
            Rejection::BelowMinimum { .. } => (S::BAD_REQUEST, "INVALID_ORDER_MIN_SIZE"),
            Rejection::AmountTooSmall { .. } | Rejection::DepositTooLarge { .. } => {
                (S::BAD_REQUEST, "INVALID_QUANTITY")
            }
            Rejection::NotFilledWithinPrice { .. }
            | Rejection::AmountNotSpent { price: Some(_), .. } => {
                (S::BAD_REQUEST, "FOK_ORDER_NOT_FILLED_ERROR")
            }
            Rejection::AmountNotSpent { price: None, .. } => {
                (S::BAD_REQUEST, "INSUFFICIENT_LIQUIDITY")
            }
            Rejection::PostOnlyWouldCross { .. } => (S::BAD_REQUEST, "INVALID_POST_ONLY_ORDER"),
            Rejection::OpenOrderLimitExceeded { .. } => {
                (S::BAD_REQUEST, "OPEN_ORDER_LIMIT_EXCEEDED")
            }
            Rejection::NotCancellable { .. } | Rejection::OrderIsDelayed => {
                (S::BAD_REQUEST, "ORDER_NOT_CANCELLABLE")
            }
            Rejection::ResetWhileDelayed => (S::CONFLICT, "ACCOUNT_RESET"),
            Rejection::AccountSuspended | Rejection::SuspendedWhileDelayed => {
                (S::FORBIDDEN, "ACCOUNT_SUSPENDED")
            }
            Rejection::AccountNotFound => (S::NOT_FOUND, "ACCOUNT_NOT_FOUND"),
            Rejection::KeyNotFound => (S::NOT_FOUND, "KEY_NOT_FOUND"),
            Rejection::BootstrapNotAllowed => (S::BAD_REQUEST, "BOOTSTRAP_NOT_ALLOWED"),
            Rejection::KeyLimitExceeded { .. } | Rejection::OverlapLimitExceeded { .. } => {
                (S::BAD_REQUEST, "TIER_KEY_LIMIT_EXCEEDED")
            }
            Rejection::TierNotAuthorized => return Self::tier_not_authorized(None),
            Rejection::MakerEnded => (S::UNAUTHORIZED, "KEY_DEACTIVATED"),
            Rejection::KeyRotated { .. } => (S::CONFLICT, "KEY_ROTATED"),
            Rejection::KeyEnded => (S::CONFLICT, "KEY_ENDED"),
            Rejection::OrderNotFound => (S::NOT_FOUND, "ORDER_NOT_FOUND"),
            Rejection::CommentNotFound => (S::NOT_FOUND, "COMMENT_NOT_FOUND"),
            Rejection::MakerRotated | Rejection::CommentNotOwn => {
                (S::FORBIDDEN, "INSUFFICIENT_PERMISSION")
            }
            Rejection::CommentLimitExceeded { .. }
            | Rejection::AuthorLimitExceeded { .. }
            | Rejection::WrittenLimitExceeded { .. } => (S::BAD_REQUEST, "COMMENT_LIMIT_EXCEEDED"),
            // No request undoes a fill.
            Rejection::FillNotUndone(_) => return Self::internal("a fill was not undone"),
            Rejection::Broken { rule } => return Self::internal(rule),
        };
        let retry_after_seconds = (status == S::SERVICE_UNAVAILABLE).then_some(1);
        Self { retry_after_seconds, ..Self::new(status, code, sentence(&rejection.to_string())) }
    }
}

const fn payload_code(flaw: PayloadFlaw) -> &'static str {
    match flaw {
        PayloadFlaw::NoSize
        | PayloadFlaw::TwoSizes
        | PayloadFlaw::AmountNotTaken
        | PayloadFlaw::NoPrice
        | PayloadFlaw::MarketGtd => "INVALID_ORDER_PAYLOAD",
        PayloadFlaw::Expiration | PayloadFlaw::ExpirationNotTaken => "INVALID_ORDER_EXPIRATION",
        PayloadFlaw::PostOnly => "INVALID_POST_ONLY_ORDER_TYPE",
    }
}

/// Turns a lowercase fragment into a sentence.
fn sentence(fragment: &str) -> String {
    let mut text = String::with_capacity(fragment.len() + 1);
    let mut rest = fragment.chars();
    text.extend(rest.next().map(|first| first.to_ascii_uppercase()));
    text.push_str(rest.as_str());
    text.push('.');
    text
}
