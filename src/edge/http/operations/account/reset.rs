//! Resetting an account.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::reply::Reply;
use paperbourse_core::wire::Decimal;
use paperbourse_exchange::service::AccountReset;

pub(in crate::http) async fn reset(call: &Call<'_>) -> Answer {
    let reset = call.service().reset(&call.caller, call.context).await?;
    for _ in 0..reset.order_count {
        call.metrics.orders_cancelled.increment();
    }
    Ok(Reply::ok(&ResetAnswer::of(&reset)))
}

/// `POST /v1/me/wallets/{wallet_id}/reset`.
pub(in crate::http) async fn reset_wallet(call: &Call<'_>) -> Answer {
    call.caller.require_own(call.wallet()?)?;
    reset(call).await
}

#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Reset")]
pub(in crate::http) struct ResetAnswer {
    message: &'static str,
    /// The cash after the reset, in dollars.
    new_api_balance: Decimal,
    positions_closed: u32,
    orders_cancelled: usize,
    /// A reset may follow another one at once.
    cooldown_days: u32,
}

impl ResetAnswer {
    fn of(reset: &AccountReset) -> Self {
        Self {
            message: "The account has its starting balance, no open orders and no open positions.",
            new_api_balance: reset.balance.into(),
            positions_closed: reset.position_count,
            orders_cancelled: reset.order_count,
            cooldown_days: 0,
        }
    }
}
