//! Requests the delay on marketable orders from the CLOB service, since the catalogue may omit it.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use super::rest::Rest;
use super::{Event, LiveConfig};
use crate::polymarket::filter::MARKETS_WANTED_MAX;
use paperbourse_core::market::catalogue::MarketStatus;

/// Maximum number of markets that wait for a request. No more markets than this are followed.
pub(super) const DELAYS_MAX: usize = 2 * MARKETS_WANTED_MAX;

/// Maximum number of requests for a market's delay until an answer is usable. A market may be
/// missing from the service for some minutes after it appears in the catalogue.
const TRIES_MAX: u32 = 20;

/// The task that requests the compact description of each market until it gets a usable answer.
pub(super) struct Delays {
    pub(super) rest: Arc<Rest>,
    pub(super) config: Arc<LiveConfig>,
    /// Condition ids of the markets to request.
    pub(super) wanted: mpsc::Receiver<Arc<str>>,
    pub(super) events: mpsc::Sender<Event>,
}

impl Delays {
    /// Runs until the receiver of the events is dropped.
    pub(super) async fn run(mut self) {
        // Markets to retry, with their number of failures.
        let mut failed: Vec<(Arc<str>, u32)> = Vec::new();
        let mut retry = tokio::time::interval(self.config.timing.refresh_interval);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let asked = tokio::select! {
                Some(id) = self.wanted.recv() => vec![(id, 0)],
                _ = retry.tick(), if !failed.is_empty() => std::mem::take(&mut failed),
                else => return,
            };
            for (id, failures) in asked {
                match self.ask(&id).await {
                    None => return,
                    Some(true) => {}
                    Some(false) if failures + 1 < TRIES_MAX => failed.push((id, failures + 1)),
                    Some(false) => tracing::warn!(
                        market = &*id,
                        "delay of marketable orders unknown, they will not be held"
                    ),
                }
            }
        }
    }

    /// Requests one market. Returns whether the answer was usable; `None` if the receiver of the
    /// events has been dropped.
    async fn ask(&self, id: &str) -> Option<bool> {
        match self.rest.compact_market(id).await {
            // Until a market has tokens, its other fields are not final either.
            Ok(Ok(description)) if description.info.status != MarketStatus::Hydrating => {
                self.events.send(Event::Delay(Box::new(description))).await.ok()?;
                return Some(true);
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(market = id, %error, "unreadable market ignored"),
            Err(error) => tracing::warn!(market = id, %error, "request for a market failed"),
        }
        Some(false)
    }
}
