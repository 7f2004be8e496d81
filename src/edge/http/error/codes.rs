//! The table of error codes, by status.

use hyper::StatusCode;

/// The codes of each status. Every [`ApiError`](super::ApiError) has one of them.
pub static CODES: [(StatusCode, &[&str]); 13] = [
    (
        StatusCode::BAD_REQUEST,
        &[
            "MARKET_CLOSED",
            "INSUFFICIENT_POSITION",
            "INSUFFICIENT_LIQUIDITY",
            "SLIPPAGE_EXCEEDED",
            "INSUFFICIENT_BALANCE",
            "INVALID_ORDER_PAYLOAD",
            "INVALID_ORDER_EXPIRATION",
            "INVALID_ORDER_MIN_TICK_SIZE",
            "INVALID_ORDER_MIN_SIZE",
            "INVALID_QUANTITY",
            "INVALID_POST_ONLY_ORDER",
            "INVALID_POST_ONLY_ORDER_TYPE",
            "FOK_ORDER_NOT_FILLED_ERROR",
            "OPEN_ORDER_LIMIT_EXCEEDED",
            "ORDER_NOT_CANCELLABLE",
            "CONFIRMATION_REQUIRED",
            "BATCH_LIMIT_EXCEEDED",
            "INVALID_TOKEN_ID",
            "INVALID_INTERVAL",
            "INVALID_TIME_FILTER",
            "BOOTSTRAP_NOT_ALLOWED",
            "TIER_KEY_LIMIT_EXCEEDED",
            "COMMENT_LIMIT_EXCEEDED",
            "INVALID_HOST",
            "INVALID_TRANSFER_ENCODING",
            "BODY_INCOMPLETE",
        ],
    ),
    (
        StatusCode::UNAUTHORIZED,
        &[
            "MISSING_AUTH",
            "INVALID_KEY",
            "KEY_DEACTIVATED",
            "KEY_EXPIRED",
            "INVALID_TOKEN",
            "TOKEN_EXPIRED",
        ],
    ),
    (
        StatusCode::FORBIDDEN,
        &["INSUFFICIENT_PERMISSION", "TIER_NOT_AUTHORIZED", "ACCOUNT_SUSPENDED"],
    ),
    (
        StatusCode::NOT_FOUND,
        &[
            "NOT_FOUND",
            "NOT_OFFERED",
            "MARKET_NOT_FOUND",
            "OUTCOME_NOT_FOUND",
            "TOKEN_NOT_FOUND",
            "FEE_RATE_NOT_FOUND",
            "BOOK_UNAVAILABLE",
            "ACCOUNT_NOT_FOUND",
            "WALLET_NOT_FOUND",
            "KEY_NOT_FOUND",
            "ORDER_NOT_FOUND",
            "COMMENT_NOT_FOUND",
        ],
    ),
    (StatusCode::METHOD_NOT_ALLOWED, &["METHOD_NOT_ALLOWED"]),
    (StatusCode::CONFLICT, &["IDEMPOTENCY_KEY_REUSE", "ACCOUNT_RESET", "KEY_ROTATED", "KEY_ENDED"]),
    (StatusCode::PAYLOAD_TOO_LARGE, &["BODY_TOO_LARGE"]),
    (StatusCode::UNPROCESSABLE_ENTITY, &["VALIDATION_FAILED"]),
    (StatusCode::UPGRADE_REQUIRED, &["UPGRADE_REQUIRED", "HTTP_VERSION_TOO_OLD"]),
    (
        StatusCode::TOO_MANY_REQUESTS,
        &["RATE_LIMIT_EXCEEDED", "STREAM_LIMIT_EXCEEDED", "EXPORT_LIMIT_EXCEEDED"],
    ),
    (StatusCode::INTERNAL_SERVER_ERROR, &["INTERNAL_ERROR"]),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        &[
            "VENUE_UNAVAILABLE",
            "IDENTITY_UNAVAILABLE",
            "SERVER_BUSY",
            "SERVER_FULL",
            "JOURNAL_FULL",
            "NOT_READY",
            "LOG_HALTED",
        ],
    ),
    (StatusCode::GATEWAY_TIMEOUT, &["OUTCOME_UNKNOWN"]),
];

/// Returns the status of a code, or `None` if the code is not in [`CODES`].
pub fn status_of(code: &str) -> Option<StatusCode> {
    CODES.iter().find(|(_, codes)| codes.contains(&code)).map(|(status, _)| *status)
}
