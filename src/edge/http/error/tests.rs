use super::*;
use crate::http::operation::Verb;
use crate::http::operations::trade::read_trade;
use paperbourse_core::engine::command::TradeOrder;
use paperbourse_core::engine::order::payload::PayloadFlaw;
use paperbourse_core::engine::order::terms::OrderStatus;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{CommentId, OrderId, Timestamp};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::market::catalogue::MarketStatus;
use paperbourse_core::money::{Price, Shares, Usd};

/// Status, headers and body of one error, as a client sees them.
fn shown(error: ApiError) -> String {
    let header_code = error.header_code();
    let Reply { status, body, headers, .. } = error.into_reply();
    let parsed: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(headers[CODE_HEADER], header_code);
    if !parsed["detail"].is_array() {
        assert_eq!(parsed["detail"], parsed["message"]);
    }
    let mut text = status.as_u16().to_string();
    if parsed["error"] != header_code {
        text += &[" ", CODE_HEADER.as_str(), ": ", header_code].concat();
    }
    for name in [RETRY_AFTER, ALLOW, CONNECTION, WWW_AUTHENTICATE] {
        if let Some(value) = headers.get(&name) {
            text += &[" ", name.as_str(), ": ", value.to_str().unwrap()].concat();
        }
    }
    text + "\n" + std::str::from_utf8(&body).unwrap() + "\n"
}

fn all_shown(errors: Vec<ApiError>) -> String {
    errors.into_iter().map(shown).collect()
}

#[test]
fn errors_of_the_edge() {
    let invalid = read_trade(b"{\"side\":\"\\u00e9\",\"quantity\":0}", None).unwrap_err();
    let malformed = read_trade(b"{", None).unwrap_err();
    insta::assert_snapshot!(all_shown(vec![
        RouteError::NotFound.into(),
        RouteError::NotOffered { reason: "Not here." }.into(),
        RouteError::MethodNotAllowed { allow: [Verb::Get].into_iter().collect() }.into(),
        ApiError::invalid_host(),
        ApiError::invalid_transfer_encoding(),
        ApiError::body_too_large(65_536),
        ApiError::missing_auth(),
        ApiError::invalid_key(),
        ApiError::key_deactivated(),
        ApiError::key_expired(),
        ApiError::invalid_token(&TokenFlaw::Signature),
        ApiError::token_expired(),
        ApiError::identity_unavailable(7),
        ApiError::token_not_accepted(),
        ApiError::insufficient_permission(Permission::Trade),
        ApiError::escalation(),
        ApiError::tier_not_authorized(Some(Tier::Pro)),
        ApiError::rate_limited(RateRule::Second(Tier::Free), 0, Some(5)),
        ApiError::rate_limited(RateRule::Minute(Tier::Free), 42, Some(300)),
        ApiError::rate_limited(RateRule::Accounts, 60, None),
        invalid.into(),
        malformed.into(),
        ApiError::batch_limit_exceeded(6, 5, Tier::Free),
        ApiError::confirmation_required(),
        ApiError::token_not_found(),
        ApiError::wallet_not_found(),
        ApiError::invalid_token_id(),
        ApiError::invalid_time_filter(),
        ApiError::fee_rate_not_found(),
        ApiError::book_unavailable(),
        ApiError::upgrade_required(UpgradeError::NotAnUpgrade),
        ApiError::upgrade_required(UpgradeError::InvalidKey),
        ApiError::upgrade_required(UpgradeError::HttpTooOld),
        ApiError::http_version_too_old(),
        ApiError::stream_limit_exceeded(100),
        ApiError::export_limit_exceeded(2),
        ApiError::server_busy(),
        ApiError::journal_full(),
        ApiError::not_ready(),
        ApiError::log_halted(),
        ApiError::outcome_unknown(),
        ApiError::internal("a bug"),
    ]));
}

#[test]
fn rejections_of_the_engine() {
    let shares = Shares::from_micros;
    let price = Price::from_micros(505_000);
    let offered = Usd::from_micros(8);
    let rejections = vec![
        Rejection::NameReused { order: OrderId::from_raw(71).unwrap() },
        Rejection::NameAdded { order: OrderId::from_raw(71).unwrap() },
        Rejection::BatchChanged,
        Rejection::MarketNotFound { market_id: "0x\"a".into(), meant: None },
        Rejection::MarketNotFound {
            market_id: "will-it-rain".into(),
            meant: Some(("slug", "0xa".into())),
        },
        Rejection::OutcomeNotFound {
            outcome: "Maybe".into(),
            labels: vec!["Yes".into(), "No".into()],
        },
        Rejection::MarketClosed { status: MarketStatus::Resolved },
        Rejection::MarketUnnamed,
        Rejection::FeesUnsupported,
        Rejection::VenueUnavailable { book_at: None },
        Rejection::VenueUnavailable { book_at: Some(Timestamp::from_seconds(1_800_000_000)) },
        Rejection::InsufficientPosition { available: shares(1_500_000), asked: shares(2_000_000) },
        Rejection::InsufficientLiquidity { available: shares(7), asked: TradeOrder::QUANTITY_MAX },
        Rejection::SlippageExceeded {
            price: Price::from_micros(560_000),
            reference: Price::from_micros(530_000),
            max_slippage_bps: 500,
        },
        Rejection::InsufficientBalance {
            needed: Usd::from_micros(5_300_001),
            available: Usd::from_micros(5_300_000),
        },
        Rejection::Payload(PayloadFlaw::NoSize),
        Rejection::Payload(PayloadFlaw::TwoSizes),
        Rejection::Payload(PayloadFlaw::AmountNotTaken),
        Rejection::Payload(PayloadFlaw::NoPrice),
        Rejection::Payload(PayloadFlaw::MarketGtd),
        Rejection::Payload(PayloadFlaw::Expiration),
        Rejection::Payload(PayloadFlaw::ExpirationNotTaken),
        Rejection::Payload(PayloadFlaw::PostOnly),
        Rejection::OffTick { price, tick: Price::from_micros(10_000) },
        Rejection::OffTick { price: Price::ZERO, tick: Price::from_micros(10_000) },
        Rejection::OffTick { price: Price::ONE, tick: Price::from_micros(1_000) },
        Rejection::BelowMinimum { asked: shares(4_000_000), quantity_min: shares(5_000_000) },
        Rejection::AmountTooSmall { amount: Usd::from_micros(1) },
        Rejection::NotFilledWithinPrice { available: shares(7), asked: shares(8), price },
        Rejection::AmountNotSpent { offered, amount: Usd::from_micros(9), price: None },
        Rejection::AmountNotSpent { offered, amount: Usd::from_micros(9), price: Some(price) },
        Rejection::PostOnlyWouldCross { touch: price },
        Rejection::OpenOrderLimitExceeded { open_orders_max: 1_000 },
        Rejection::NotCancellable { status: OrderStatus::Filled },
        Rejection::OrderIsDelayed,
        Rejection::ResetWhileDelayed,
        Rejection::SuspendedWhileDelayed,
        Rejection::AccountSuspended,
        Rejection::DepositTokenReused { amount: offered },
        Rejection::DepositTooLarge { amount: offered },
        Rejection::AccountNotFound,
        Rejection::KeyNotFound,
        Rejection::BootstrapNotAllowed,
        Rejection::KeyLimitExceeded { active_keys_max: 5 },
        Rejection::TierNotAuthorized,
        Rejection::MakerEnded,
        Rejection::MakerRotated,
        Rejection::KeyRotated { expires_at: Timestamp::from_seconds(1_800_000_000) },
        Rejection::KeyEnded,
        Rejection::OverlapLimitExceeded { overlapping_keys_max: 20 },
        Rejection::OrderNotFound,
        Rejection::CommentNotFound,
        Rejection::CommentNotOwn,
        Rejection::CommentLimitExceeded { comments_max: 1_000 },
        Rejection::AuthorLimitExceeded { comments_max: 20 },
        Rejection::WrittenLimitExceeded {
            comments_max: 1_000,
            oldest: CommentId::from_raw(64).unwrap(),
        },
        Rejection::Broken { rule: "an internal secret" },
    ];
    let text = all_shown(rejections.into_iter().map(ApiError::from).collect());
    assert!(!text.contains("secret"), "the broken rule is not disclosed");
    insta::assert_snapshot!(text);
}
