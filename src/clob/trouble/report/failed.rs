//! Sales of shares that a failed trade took back.

use super::found::Found;
use super::unanswered::succeeded;
use super::{Example, Mistake};
use crate::trouble::{Act, ActKind, Kind, Met};

/// Maximum number of failed trades of a wallet that are remembered at a time.
const TRADES_MAX: usize = 256;

/// How an order is refused for which the shares are not there.
const SHORT: &str = "not enough balance";

/// The failed trades of a wallet that it has not looked at since.
#[derive(Debug, Default)]
pub(super) struct FailedTrades(Vec<(u64, Box<str>)>);

impl FailedTrades {
    /// Notes a failed trade. Returns whether there was room for it.
    pub(super) fn met(&mut self, met: &Met) -> bool {
        let (Kind::Failed, Some(token)) = (met.trouble, &met.token) else { return true };
        let fails_ms = met.at_ms.saturating_add(met.length_ms.into());
        let has_room = self.0.len() < TRADES_MAX;
        if has_room {
            self.0.push((fails_ms, token.clone()));
        }
        has_room
    }

    pub(super) fn act(&mut self, act: &Act, found: &mut Found) {
        if matches!(act.act, ActKind::Look | ActKind::Balance) && succeeded(act) {
            self.0.retain(|(fails_ms, _)| act.at_ms < *fails_ms);
        }
        let Some(order) = act.order.as_ref().filter(|order| &*order.side == "SELL") else { return };
        let is_short = order.error.as_ref().is_some_and(|error| error.starts_with(SHORT));
        let has_failed =
            |(fails_ms, token): &(u64, Box<str>)| *fails_ms <= act.at_ms && *token == order.token;
        if is_short && !order.is_unsettled && self.0.iter().any(has_failed) {
            found.add(Mistake::FailedIgnored, || Example::of_order(act.at_ms, order));
        }
    }
}
