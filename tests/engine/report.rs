//! The result of a command as text, for comparison in scenarios.

use std::fmt::Write as _;

use paperbourse::engine::State;
use paperbourse::engine::admin::standing::Act;
use paperbourse::engine::event::{
    AccountReset, Event, FillUndone, OperatorActed, OrderFilled, OrderPlaced, RestingFilled,
};
use paperbourse::engine::fills::undone::UndoFlaw;
use paperbourse::engine::market::payout::PaidPosition;
use paperbourse::engine::order::payload::PayloadFlaw;
use paperbourse::engine::order::terms::Reserve;
use paperbourse::engine::rejection::Rejection;
use paperbourse::ids::OutcomeIndex;

/// The error code of a rejection in the API.
pub(crate) fn code(rejection: &Rejection) -> &'static str {
    match rejection {
        Rejection::DepositTokenReused { .. } => "DEPOSIT_TOKEN_REUSED",
        Rejection::NameReused { .. } | Rejection::NameAdded { .. } | Rejection::BatchChanged => {
            "IDEMPOTENCY_KEY_REUSE"
        }
        Rejection::DepositTooLarge { .. } => "DEPOSIT_TOO_LARGE",
        Rejection::MarketNotFound { .. } => "MARKET_NOT_FOUND",
        Rejection::OutcomeNotFound { .. } => "OUTCOME_NOT_FOUND",
        Rejection::MarketClosed { .. } => "MARKET_CLOSED",
        Rejection::MarketUnnamed => "MARKET_UNNAMED",
        Rejection::FeesUnsupported => "FEES_UNSUPPORTED",
        Rejection::VenueUnavailable { .. } => "VENUE_UNAVAILABLE",
        Rejection::InsufficientPosition { .. } => "INSUFFICIENT_POSITION",
        Rejection::InsufficientLiquidity { .. } => "INSUFFICIENT_LIQUIDITY",
        Rejection::SlippageExceeded { .. } => "SLIPPAGE_EXCEEDED",
        Rejection::InsufficientBalance { .. } => "INSUFFICIENT_BALANCE",
        Rejection::AccountSuspended | Rejection::SuspendedWhileDelayed => "ACCOUNT_SUSPENDED",
        Rejection::ResetWhileDelayed => "ACCOUNT_RESET",
        Rejection::AccountNotFound => "ACCOUNT_NOT_FOUND",
        Rejection::KeyNotFound => "KEY_NOT_FOUND",
        Rejection::BootstrapNotAllowed => "BOOTSTRAP_NOT_ALLOWED",
        Rejection::KeyLimitExceeded { .. } => "TIER_KEY_LIMIT_EXCEEDED",
        Rejection::MarketChanged => "MARKET_CHANGED",
        Rejection::TierNotAuthorized => "TIER_NOT_AUTHORIZED",
        Rejection::MakerEnded => "KEY_DEACTIVATED",
        Rejection::MakerRotated => "MAKER_ROTATED",
        Rejection::KeyRotated { .. } => "KEY_ROTATED",
        Rejection::KeyEnded => "KEY_ENDED",
        Rejection::OverlapLimitExceeded { .. } => "OVERLAP_LIMIT_EXCEEDED",
        Rejection::OrderNotFound => "ORDER_NOT_FOUND",
        Rejection::CommentNotFound => "COMMENT_NOT_FOUND",
        Rejection::CommentNotOwn => "COMMENT_NOT_OWN",
        Rejection::CommentLimitExceeded { .. } => "COMMENT_LIMIT_EXCEEDED",
        Rejection::AuthorLimitExceeded { .. } => "AUTHOR_LIMIT_EXCEEDED",
        Rejection::WrittenLimitExceeded { .. } => "WRITTEN_LIMIT_EXCEEDED",
        Rejection::Payload(PayloadFlaw::Expiration | PayloadFlaw::ExpirationNotTaken) => {
            "INVALID_ORDER_EXPIRATION"
        }
        Rejection::Payload(PayloadFlaw::PostOnly) => "INVALID_POST_ONLY_ORDER_TYPE",
        Rejection::Payload(_) => "INVALID_ORDER_PAYLOAD",
        Rejection::OffTick { .. } => "INVALID_ORDER_MIN_TICK_SIZE",
        Rejection::BelowMinimum { .. } => "INVALID_ORDER_MIN_SIZE",
        Rejection::AmountTooSmall { .. } => "AMOUNT_TOO_SMALL",
        Rejection::NotFilledWithinPrice { .. } | Rejection::AmountNotSpent { .. } => {
            "FOK_ORDER_NOT_FILLED_ERROR"
        }
        Rejection::PostOnlyWouldCross { .. } => "INVALID_POST_ONLY_ORDER",
        Rejection::OpenOrderLimitExceeded { .. } => "OPEN_ORDER_LIMIT_EXCEEDED",
        Rejection::NotCancellable { .. } | Rejection::OrderIsDelayed => "ORDER_NOT_CANCELLABLE",
        Rejection::FillNotUndone(flaw) => match flaw {
            UndoFlaw::NotKept => "UNDO_NOT_KEPT",
            UndoFlaw::UndoneBefore => "UNDO_BEFORE",
            UndoFlaw::MarketResolved => "UNDO_RESOLVED",
            UndoFlaw::AccountReset => "UNDO_RESET",
            UndoFlaw::SharesGone => "UNDO_SHARES_GONE",
            UndoFlaw::CashGone => "UNDO_CASH_GONE",
            UndoFlaw::CostUnknown => "UNDO_COST_UNKNOWN",
        },
        Rejection::Broken { .. } => "BROKEN",
    }
}

/// The code of a rejection and its details.
pub(crate) fn refusal(rejection: &Rejection) -> String {
    let code = code(rejection);
    match rejection {
        Rejection::MarketClosed { status } => {
            format!("{code} {}", format!("{status:?}").to_lowercase())
        }
        Rejection::InsufficientPosition { available: held, asked } => {
            format!("{code} held {held} asked {asked}")
        }
        Rejection::InsufficientLiquidity { available, asked } => {
            format!("{code} available {available} asked {asked}")
        }
        Rejection::SlippageExceeded { price, reference, max_slippage_bps } => {
            format!("{code} price {price} reference {reference} max_bps {max_slippage_bps}")
        }
        Rejection::InsufficientBalance { needed, available } => {
            format!("{code} needed {needed} available {available}")
        }
        Rejection::OutcomeNotFound { labels, .. } => format!("{code} of {}", labels.join(" ")),
        Rejection::PostOnlyWouldCross { touch } => format!("{code} touch {touch}"),
        Rejection::OrderIsDelayed => format!("{code} delayed"),
        Rejection::NotCancellable { status } => {
            format!("{code} {}", status.as_str().to_lowercase())
        }
        Rejection::Broken { rule } => format!("{code} {rule}"),
        _ => code.to_owned(),
    }
}

/// The events of one command, after they were applied. Orders and comments are named by their
/// counters, such as `O1` and `C1`.
pub(crate) fn happened(state: &State, events: &[Event]) -> String {
    let mut text = String::new();
    let (mut opens, mut ends) = (String::new(), String::new());
    let mut forgotten = Vec::new();
    for event in events {
        match event {
            Event::AccountOpened { identity, .. } if events.len() == 1 => {
                write!(text, "opened {} ", identity.subject).expect("a string grows");
            }
            Event::AccountOpened { identity, .. } => opens = format!("opens {}", identity.subject),
            Event::KeyCreated { grant, .. } => {
                write!(text, "created {} ", grant.prefix).expect("a string grows");
            }
            Event::KeyRevoked { key, .. } => {
                let name = &state.key(*key).expect("it was revoked").grant.prefix;
                let verb = if text.is_empty() { "revoked " } else { "" };
                write!(text, "{verb}{name} ").expect("a string grows");
            }
            Event::KeyRenamed { key, name } => {
                let key = &state.key(*key).expect("it was renamed").grant.prefix;
                let name = name.as_deref().unwrap_or("NOTHING");
                write!(text, "named {key} {name} ").expect("a string grows");
            }
            Event::KeyExpirySet { key, expires_at } => {
                let key = state.key(*key).expect("it was rotated");
                assert_eq!(key.grant.expires_at, Some(*expires_at));
                write!(ends, "ends {} ", key.grant.prefix).expect("a string grows");
            }
            Event::KeyForgotten { key } => {
                forgotten.push(format!("K{}", key.counter()));
            }
            Event::OrderForgotten { order } => {
                forgotten.push(format!("O{}", order.counter()));
            }
            Event::MarketIntroduced { .. }
            | Event::FillLogBegun { .. }
            | Event::StateChecked { .. } => {}
            Event::OrderFilled(fill) => text += &filled(state, fill),
            Event::OrderPlaced(order) => text += &placed(state, order),
            Event::OrderDelayed(delayed) => {
                let Reserve { cash, shares } = delayed.delay.reserve;
                let (order, quantity) = (delayed.placement.order.counter(), delayed.terms.quantity);
                write!(text, "delayed O{order} for {quantity} cash {cash} shares {shares} ")
                    .expect("a string grows");
            }
            Event::DelayedOrderDropped { order } => {
                write!(text, "dropped O{} ", order.counter()).expect("a string grows");
            }
            Event::OrderAdmitted { order } => {
                write!(text, "admitted O{} ", order.counter()).expect("a string grows");
            }
            Event::RestingFilled(filled) => text += &rested(filled),
            Event::FillUndone(undone) => text += &fill_undone(undone),
            Event::OrderEnded { order, reason, .. } => {
                write!(text, "ended O{} {} ", order.counter(), reason.as_str().to_uppercase())
                    .expect("a string grows");
            }
            Event::AccountReset(reset) => {
                let AccountReset { account, position_count, cost, granted, balance, .. } = reset;
                write!(
                    text,
                    "reset A{} closed {position_count} cost {cost} granted {granted} balance \
                     {balance} ",
                    account.counter()
                )
                .expect("a string grows");
            }
            Event::OperatorActed(acted) => text += &operator_acted(acted),
            Event::HeartbeatSet { account, interval_ms } => {
                let interval = interval_ms.map_or("none".into(), |it| it.to_string());
                write!(text, "heartbeat A{} {interval} ", account.counter())
                    .expect("a string grows");
            }
            Event::CommentAdded { comment, .. } => {
                write!(text, "commented C{} ", comment.counter()).expect("a string grows");
            }
            Event::CommentDeleted { comment } => {
                write!(text, "deleted C{} ", comment.counter()).expect("a string grows");
            }
            Event::SettlementDecided { .. } => text += "decided ",
            Event::PositionsSettled(settled) => {
                text += "pays ";
                for paid in &settled.positions {
                    let subject = state.accounts().find(|row| row.id == paid.account);
                    let subject = subject.expect("it was paid").identity.subject;
                    let PaidPosition { outcome, shares, payout, balance, .. } = paid;
                    let OutcomeIndex(outcome) = outcome;
                    write!(text, "{subject}:{outcome}:{shares}:{payout}:{balance} ")
                        .expect("a string grows");
                }
            }
            Event::MarketSettled { .. } => text += "settled ",
        }
    }
    if !forgotten.is_empty() {
        write!(text, "forgets {} ", forgotten.join(" ")).expect("a string grows");
    }
    (text + &ends + &opens).trim_end().to_owned()
}

fn operator_acted(acted: &OperatorActed) -> String {
    let account = acted.account.counter();
    match acted.act {
        Act::Reset => format!("operator-reset A{account} "),
        Act::Deposit { amount, .. } => format!("deposit A{account} {amount} "),
        ref other => format!("{} A{account} ", other.as_str()),
    }
}

fn filled(state: &State, filled: &OrderFilled) -> String {
    let receipt = state.receipt(state.order(filled.placement.order).expect("it has filled"));
    let account = state.account(filled.placement.account).expect("it has traded");
    let position =
        account.position(filled.placement.market, filled.placement.outcome).expect("it has traded");
    let levels: Vec<String> =
        filled.levels.iter().map(|level| format!("{}x{}", level.price, level.size)).collect();
    format!(
        "filled {} @{} notional {} fee {} rate {} cash {} position {} @{} {} realised {} \
         levels {} slippage {} order O{} of {} ",
        receipt.fill.quantity,
        receipt.fill.price(),
        receipt.fill.notional,
        receipt.fill.fee,
        filled.fill.fee_rate,
        receipt.fill.balance,
        receipt.fill.position_shares,
        receipt.fill.average_entry_price(),
        if position.is_open() { "open" } else { "closed" },
        position.realised,
        levels.join(" "),
        receipt.slippage_bps.map_or_else(|| "none".to_owned(), |bps| bps.to_string()),
        filled.placement.order.counter(),
        receipt.outcome,
    )
}

/// An order that was placed, with what it took and what became of the rest.
fn placed(state: &State, placed: &OrderPlaced) -> String {
    let receipt = state.receipt(state.order(placed.placement.order).expect("it was placed"));
    let order_state = receipt.order_state.as_deref().expect("such an order has an order state");
    let levels: Vec<String> =
        placed.levels.iter().map(|level| format!("{}x{}", level.price, level.size)).collect();
    let end = placed.end.map_or_else(|| "NONE".to_owned(), |end| end.as_str().to_uppercase());
    let delayed = match order_state.terms.delayed_ms {
        0 => String::new(),
        delayed_ms => format!("delayed {delayed_ms} "),
    };
    format!(
        "{} O{} taken {} notional {} fee {} cash {} remaining {} end {end} awaits {} levels {} \
         slippage {} {delayed}of {} ",
        order_state.status().as_str().to_lowercase(),
        receipt.order.counter(),
        placed.fill.quantity,
        placed.fill.notional,
        placed.fill.fee,
        placed.fill.balance,
        order_state.remaining(),
        if order_state.awaits_book { "YES" } else { "NO" },
        levels.join(" "),
        receipt.slippage_bps.map_or_else(|| "NONE".to_owned(), |bps| bps.to_string()),
        receipt.outcome,
    )
}

/// A fill of an open order, as `O1:quantity:notional:fee`.
fn fill_undone(undone: &FillUndone) -> String {
    let FillUndone { order, part, balance, position_shares, position_cost, realised, .. } = undone;
    format!(
        "undone O{} {part} cash {balance} position {position_shares} cost {position_cost} \
         realised {realised} ",
        order.counter()
    )
}

fn rested(filled: &RestingFilled) -> String {
    let RestingFilled { order, fill, .. } = filled;
    format!("fill O{}:{}:{}:{} ", order.counter(), fill.quantity, fill.notional, fill.fee)
}
