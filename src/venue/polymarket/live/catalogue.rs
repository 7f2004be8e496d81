//! Which markets are followed, and what the venue's catalogue says of them.
//!
//! One task asks: on a schedule for the list, and at once for a market of which something was
//! heard. It hands on what it is told; what that changes is decided where the books are kept.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::rest::{NAMED_MARKETS_MAX, PAGE_MARKETS_MAX, Page, Rest, RestError};
use super::{Event, LiveConfig, MarketFilter};
use crate::ids::Timestamp;
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::venue::polymarket::wire::{Description, WireError};

/// Markets of which something was heard and that wait to be asked for. Past it they wait for the
/// schedule.
pub(super) const URGENT_MAX: usize = 1_024;

/// A list has at most so many pages more than it would have if every market of it were taken.
const SPARE_PAGES_MAX: usize = 50;

/// Whether a market of the list is one to follow: open, not past its end (the venue leaves old ones
/// open for months), and traded as much as is asked for.
pub(super) fn is_wanted(info: &MarketInfo, filter: &MarketFilter, now: Timestamp) -> bool {
    let is_past = info.end_date.is_some_and(|end| end < now);
    let is_traded =
        filter.volume_24h_min.is_none_or(|least| info.volume_24h.is_some_and(|it| it >= least));
    info.status == MarketStatus::Open && !is_past && is_traded
}

/// Asks for descriptions.
pub(super) struct Cataloguer {
    pub(super) rest: Arc<Rest>,
    pub(super) config: Arc<LiveConfig>,
    /// The markets that are followed and not resolved.
    pub(super) followed: watch::Receiver<Arc<[Arc<str>]>>,
    pub(super) urgent: mpsc::Receiver<Arc<str>>,
    pub(super) events: mpsc::Sender<Event>,
}

impl Cataloguer {
    /// Asks for ever.
    pub(super) async fn run(mut self) {
        loop {
            let next = Instant::now() + self.config.timing.refresh_interval;
            if self.refresh().await.is_none() {
                return;
            }
            loop {
                tokio::select! {
                    () = tokio::time::sleep_until(next) => break,
                    Some(first) = self.urgent.recv() => {
                        if self.answer_urgent(first).await.is_none() {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// The list, and then those that are followed and were not in it. `None` when nobody listens.
    async fn refresh(&mut self) -> Option<()> {
        let listed = match self.list().await {
            Ok(listed) => listed,
            Err(error) => {
                tracing::warn!("the list of markets: {error}");
                Vec::new()
            }
        };
        let seen: HashSet<Arc<str>> =
            listed.iter().map(|told| told.info.condition_id.clone()).collect();
        self.events.send(Event::Listed(listed)).await.ok()?;
        let followed = self.followed.borrow().clone();
        let unseen: Vec<_> = followed.iter().filter(|id| !seen.contains(*id)).cloned().collect();
        for ids in unseen.chunks(NAMED_MARKETS_MAX) {
            self.ask(ids).await?;
        }
        Some(())
    }

    async fn answer_urgent(&mut self, first: Arc<str>) -> Option<()> {
        let mut ids = vec![first];
        while ids.len() < NAMED_MARKETS_MAX
            && let Ok(id) = self.urgent.try_recv()
        {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        self.ask(&ids).await
    }

    /// The markets to follow, the most traded first.
    async fn list(&self) -> Result<Vec<Description>, RestError> {
        let filter = &self.config.filter;
        let page_count_max = filter.count_max.div_ceil(PAGE_MARKETS_MAX) + SPARE_PAGES_MAX;
        let mut listed = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..page_count_max {
            let Page { markets, next_cursor } = self.rest.page(filter, cursor.as_deref()).await?;
            let now = Timestamp::now();
            let readable = markets.into_iter().filter_map(read);
            listed.extend(readable.filter(|told| is_wanted(&told.info, filter, now)));
            cursor = next_cursor;
            if listed.len() >= filter.count_max || cursor.is_none() {
                break;
            }
        }
        listed.truncate(filter.count_max);
        Ok(listed)
    }

    /// What is to be known of these markets. `None` when nobody listens.
    async fn ask(&self, ids: &[Arc<str>]) -> Option<()> {
        // An open market does not show among the closed, nor the other way round.
        let mut missing: Vec<Arc<str>> = ids.to_vec();
        for closed in [false, true] {
            if missing.is_empty() {
                break;
            }
            let told = match self.rest.markets(&missing, closed).await {
                Ok(told) => told,
                Err(error) => {
                    tracing::warn!("markets by name: {error}");
                    return Some(());
                }
            };
            let told: Vec<Description> = told.into_iter().filter_map(read).collect();
            missing.retain(|id| told.iter().all(|told| told.info.condition_id != *id));
            let mut described = Vec::with_capacity(told.len());
            for told in told {
                let other = self.second_source(&told).await;
                described.push((told, other));
            }
            if !described.is_empty() {
                self.events.send(Event::Described(described)).await.ok()?;
            }
        }
        Some(())
    }

    /// What the CLOB service says of a market that Gamma calls closed: what a market pays is not
    /// decided on one word.
    async fn second_source(&self, told: &Description) -> Option<Description> {
        if !told.info.status.is_closed() {
            return None;
        }
        match self.rest.clob_market(&told.info.condition_id).await {
            Ok(other) => read(other),
            Err(error) => {
                tracing::warn!("a closed market: {error}");
                None
            }
        }
    }
}

/// One that cannot be read is left out, and logged.
fn read(told: Result<Description, WireError>) -> Option<Description> {
    told.inspect_err(|error| tracing::warn!("a market is left out: {error}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::Usd;

    #[test]
    fn zombies_and_quiet_markets_are_not_wanted() {
        let now = Timestamp::from_seconds(1_000);
        let dollars = |dollars: i64| Some(Usd::from_micros(dollars * 1_000_000));
        let at = |seconds| Some(Timestamp::from_seconds(seconds));
        for (status, end_date, volume, least, expected) in [
            (MarketStatus::Open, None, None, None, true),
            (MarketStatus::Open, at(1_000), None, None, true),
            (MarketStatus::Open, at(999), None, None, false),
            (MarketStatus::Paused, None, None, None, false),
            (MarketStatus::Hydrating, None, None, None, false),
            (MarketStatus::Closed, None, None, None, false),
            (MarketStatus::Open, None, dollars(10), dollars(10), true),
            (MarketStatus::Open, None, dollars(9), dollars(10), false),
            (MarketStatus::Open, None, None, dollars(10), false),
        ] {
            let filter = MarketFilter { volume_24h_min: least, ..MarketFilter::default() };
            let mut info = MarketInfo::bare("0xa", []);
            (info.status, info.end_date, info.volume_24h) = (status, end_date, volume);
            assert_eq!(is_wanted(&info, &filter, now), expected, "{info:?}");
        }
    }
}
