//! The tick of a market as clients of the venue's interface see it. With trouble on demand, it is
//! ten times as large for a while, as when the venue makes it coarser while orders are in flight.

use std::time::Duration;

use tokio::time::Instant;

use crate::http::call::Call;
use crate::rows::Party;
use crate::trouble::{About, Subject, coarse_tick};
use paperbourse_clob::order::{OrderError, SignedOrder};
use paperbourse_clob::trouble::Kind;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::Price;

/// Returns the tick that a market shows.
pub(super) fn shown(call: &Call<'_>, info: &MarketInfo) -> Price {
    coarse(call, info).unwrap_or(info.tick)
}

/// Returns the tick that a market shows in place of its own, if any.
pub(super) fn coarse(call: &Call<'_>, info: &MarketInfo) -> Option<Price> {
    call.app.trouble.as_ref()?.tick(info, call.context.moment.now)
}

/// Draws for an order on its way to the market: from now on, the tick may be coarser.
pub(super) fn draw(call: &Call<'_>, order: &SignedOrder, token_id: &str, info: &MarketInfo) {
    let Some(trouble) = &call.app.trouble else { return };
    if coarse_tick(info).is_none() {
        return;
    }
    let now = call.context.moment.now;
    let (id, wallet) = (order.id.to_string(), Party::of(call).wallet.to_string());
    let subject = Subject {
        name: &info.condition_id,
        wallet: Some(&wallet),
        address: Some(call.context.address),
    };
    let about = About { orders: &[&id], token: Some(token_id) };
    let drawn = trouble.draw(Kind::Tick, subject, about, now);
    if let Some(drawn) = drawn.filter(|drawn| !drawn.goes_on) {
        let (fanout, condition_id) = (call.app.fanout.clone(), info.condition_id.clone());
        let (trouble, end) = (trouble.clone(), now.after_ms(drawn.length_ms));
        tokio::spawn(async move {
            fanout.show_tick(&condition_id, now);
            // The clock by which the tick is shown may be behind the timer.
            while let left = left_until(end)
                && !left.is_zero()
                && trouble.has(Kind::Tick)
            {
                trouble.wait(Kind::Tick, Instant::now() + left).await;
            }
            fanout.show_tick(&condition_id, Timestamp::now());
        });
    }
}

/// Returns the time until then.
fn left_until(end: Timestamp) -> Duration {
    let left_ns = end.nanos().saturating_sub(Timestamp::now().nanos());
    Duration::from_nanos(u64::try_from(left_ns).unwrap_or(0))
}

/// Refuses an order whose price is not a multiple of the tick that its market shows in place of its
/// own.
pub(super) fn check(
    call: &Call<'_>,
    order: &SignedOrder,
    price: Price,
    info: &MarketInfo,
) -> Result<(), OrderError> {
    match coarse(call, info).filter(|tick| price.micros() % tick.micros() != 0) {
        None => Ok(()),
        Some(tick) => {
            Err(OrderError::Tick { id: order.id, price: price.to_string(), tick: tick.to_string() })
        }
    }
}
