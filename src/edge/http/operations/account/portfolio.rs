//! An account's balance, open positions and win rate in one answer.

use schemars::JsonSchema;
use serde::Serialize;

use super::{BalanceAnswer, PositionRow, read_wallet};
use crate::http::call::{Answer, Call};
use crate::http::reply::Reply;
use paperbourse_exchange::service::Portfolio;

pub(in crate::http) async fn portfolio(call: &Call<'_>) -> Answer {
    call.caller.require_own(read_wallet(call.query())?)?;
    let portfolio = call.service().portfolio(&call.caller, call.context).await?;
    Ok(Reply::ok(&PortfolioAnswer::of(&portfolio)))
}

/// The account at a glance.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Portfolio")]
pub(in crate::http) struct PortfolioAnswer<'a> {
    balance: BalanceAnswer,
    /// The open positions.
    positions: Vec<PositionRow<'a>>,
    /// The number of fills.
    total_trades: u64,
    /// How many of the closed positions made a profit, in percent; null without a closed position.
    win_rate: Option<String>,
}

impl<'a> PortfolioAnswer<'a> {
    fn of(portfolio: &'a Portfolio) -> Self {
        Self {
            balance: BalanceAnswer::of(&portfolio.balance),
            positions: portfolio.open.iter().map(PositionRow::of).collect(),
            total_trades: portfolio.fill_count,
            win_rate: win_rate(portfolio.won_count, portfolio.closed_count),
        }
    }
}

/// Returns the percentage of closed positions that were won, rounded half up to one decimal; `None`
/// if no position is closed.
fn win_rate(won_count: usize, closed_count: usize) -> Option<String> {
    let per_mille = (won_count * 2_000 + closed_count).checked_div(2 * closed_count)?;
    Some(format!("{}.{}%", per_mille / 10, per_mille % 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_win_rate_is_a_percentage() {
        for (won, closed, expected) in [
            (0, 0, None),
            (0, 7, Some("0.0%")),
            (7, 7, Some("100.0%")),
            (3, 5, Some("60.0%")),
            (1, 3, Some("33.3%")),
            (2, 3, Some("66.7%")),
            (1, 16, Some("6.3%")),
            (1, 2_001, Some("0.0%")),
            (1, 2_000, Some("0.1%")),
        ] {
            assert_eq!(win_rate(won, closed).as_deref(), expected, "{won} of {closed}");
        }
    }
}
