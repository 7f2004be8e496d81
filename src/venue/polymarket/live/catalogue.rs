//! Which markets are followed, and what the venue's catalogue says of them.
//!
//! One task asks: on a schedule for the list, and at once for a market of which something was
//! heard. It hands on what it is told; what that changes is decided where the books are kept.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::rest::{NAMED_MARKETS_MAX, PAGE_MARKETS_MAX, Page, Rest, RestError};
use super::{Event, LiveConfig};
use crate::ids::Timestamp;
use crate::market::catalogue::MarketStatus;
use crate::venue::polymarket::follower::Described;
use crate::venue::polymarket::resolution::{self, Pending, Resolution};
use crate::venue::polymarket::wire::{Description, WireError};

/// Markets of which something was heard and that wait to be asked for. Past it they wait for the
/// schedule.
pub(super) const URGENT_MAX: usize = 1_024;

/// New markets that wait until orders are accepted. Past it they wait for the schedule.
const ANNOUNCED_MAX: usize = 1_024;

/// So often a new market is asked for until orders are accepted. The venue announces markets some
/// minutes before its catalogue can tell their tokens.
const ANNOUNCED_TRIES_MAX: u32 = 20;

/// A list has at most so many pages more than it would have if every market of it were taken.
const SPARE_PAGES_MAX: usize = 50;

/// A market of which something was heard, by its condition id.
pub(super) enum Urgent {
    /// One that is followed.
    Followed(Arc<str>),
    /// A new one.
    Announced(Arc<str>),
}

/// Asks for descriptions.
pub(super) struct Cataloguer {
    pub(super) rest: Arc<Rest>,
    pub(super) config: Arc<LiveConfig>,
    /// The markets that are followed and not resolved.
    pub(super) followed: watch::Receiver<Arc<[Arc<str>]>>,
    pub(super) urgent: mpsc::Receiver<Urgent>,
    /// New markets that do not accept orders yet, and how often they were asked for.
    pub(super) announced: Vec<(Arc<str>, u32)>,
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
        let mut announced = std::mem::take(&mut self.announced);
        announced.retain(|(id, _)| !seen.contains(id));
        for ids in announced.chunks(NAMED_MARKETS_MAX) {
            self.ask_announced(ids.to_vec()).await?;
        }
        Some(())
    }

    async fn answer_urgent(&mut self, first: Urgent) -> Option<()> {
        let (mut followed, mut announced) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(urgent) = next {
            match urgent {
                Urgent::Followed(id) if followed.contains(&id) => {}
                Urgent::Followed(id) => followed.push(id),
                Urgent::Announced(id) => announced.push((id, 0)),
            }
            if followed.len().max(announced.len()) == NAMED_MARKETS_MAX {
                break;
            }
            next = self.urgent.try_recv().ok();
        }
        if !announced.is_empty() {
            self.ask_announced(announced).await?;
        }
        if followed.is_empty() { Some(()) } else { self.ask(&followed).await }
    }

    /// Lists those of these new markets that are to be followed and accept orders; the others of
    /// them are asked for again with the next list. `None` when nobody listens.
    async fn ask_announced(&mut self, announced: Vec<(Arc<str>, u32)>) -> Option<()> {
        let filter = &self.config.filter;
        let ids: Vec<Arc<str>> = announced.iter().map(|(id, _)| id.clone()).collect();
        let told: Vec<Description> = match self.rest.announced(&ids, filter).await {
            Ok(told) => told.into_iter().filter_map(read).collect(),
            Err(error) => {
                tracing::warn!("new markets: {error}");
                Vec::new()
            }
        };
        let is_settled = |id: &Arc<str>| {
            let told = told.iter().find(|told| told.info.condition_id == *id);
            told.is_some_and(|told| matches!(told.info.status, MarketStatus::Open))
        };
        let waiting = announced.into_iter().filter(|(id, _)| !is_settled(id));
        let waiting = waiting.map(|(id, tries)| (id, tries + 1));
        let room = ANNOUNCED_MAX.saturating_sub(self.announced.len());
        self.announced.extend(waiting.filter(|it| it.1 < ANNOUNCED_TRIES_MAX).take(room));
        let now = Timestamp::now();
        let is_taken =
            |told: &Description| filter.wants(&told.info, now) && filter.names(&told.info);
        let taken: Vec<Description> = told.into_iter().filter(is_taken).collect();
        if taken.is_empty() {
            return Some(());
        }
        self.events.send(Event::Listed(taken)).await.ok()
    }

    /// The markets to follow, the most traded first, or of series those that end first.
    async fn list(&self) -> Result<Vec<Description>, RestError> {
        let filter = &self.config.filter;
        let page_count_max = filter.count_max.div_ceil(PAGE_MARKETS_MAX) + SPARE_PAGES_MAX;
        let mut listed = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..page_count_max {
            let Page { markets, next_cursor } = self.rest.page(filter, cursor.as_deref()).await?;
            let now = Timestamp::now();
            let readable: Vec<Description> = markets.into_iter().filter_map(read).collect();
            // Pages come sorted: behind a market that is traded less, all are.
            let is_below = filter.series.is_empty()
                && readable.last().is_some_and(|told| told.info.volume_24h < filter.volume_24h_min);
            let is_taken = |told: &Description| {
                let is_named = filter.series.is_empty() || filter.names(&told.info);
                is_named && filter.wants(&told.info, now)
            };
            listed.extend(readable.into_iter().filter(is_taken));
            cursor = next_cursor;
            if listed.len() >= filter.count_max || cursor.is_none() || is_below {
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
                described.push(self.with_other_sources(told).await);
            }
            if !described.is_empty() {
                self.events.send(Event::Described(described)).await.ok()?;
            }
        }
        Some(())
    }

    /// With what the CLOB service says of a market that Gamma calls closed, and the data API where
    /// that is not enough: what a market pays is not decided on one word.
    async fn with_other_sources(&self, gamma: Description) -> Described {
        let mut told = Described { gamma, clob: None, data: None };
        if !told.gamma.info.status.is_closed() {
            return told;
        }
        let clob = self.rest.clob_market(&told.gamma.info.condition_id).await;
        told.clob = match clob {
            Ok(clob) => read(clob),
            Err(error) => {
                tracing::warn!("a closed market: {error}");
                None
            }
        };
        let outcomes = &told.gamma.info.outcomes;
        if let Resolution::Pending(Pending::NoPayouts | Pending::Unconfirmed) =
            resolution::decide(&told.reports(outcomes))
        {
            told.data = match self.rest.resolution(&told.gamma).await {
                Ok(data) => data.unwrap_or_else(|error| {
                    tracing::warn!("a resolution is left out: {error}");
                    None
                }),
                Err(error) => {
                    tracing::warn!("a closed market: {error}");
                    None
                }
            };
        }
        told
    }
}

/// One that cannot be read is left out, and logged.
fn read(told: Result<Description, WireError>) -> Option<Description> {
    told.inspect_err(|error| tracing::warn!("a market is left out: {error}")).ok()
}
