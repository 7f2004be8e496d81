//! Polls the venue's catalogue.
//!
//! One task requests the list of markets on a schedule, and descriptions of single markets as soon
//! as a message concerns them. It passes everything to the task that maintains the books, which
//! decides what to change.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::rest::{NAMED_MARKETS_MAX, PAGE_MARKETS_MAX, Page, Rest, RestError};
use super::slugs::Untold;
use super::{Event, LiveConfig};
use crate::polymarket::follower::Described;
use crate::polymarket::resolution::{self, Pending, Resolution};
use crate::polymarket::wire::{Description, WireError, split};
use paperbourse_core::ids::{Timestamp, condition};

/// Maximum number of markets that wait for an urgent description. Further markets wait for the next
/// scheduled refresh.
pub(super) const URGENT_MAX: usize = 1_024;

/// Maximum number of new markets that wait to accept orders. Further markets wait for the next
/// scheduled refresh.
const ANNOUNCED_MAX: usize = 1_024;

/// Maximum number of requests for a new market until it accepts orders. The venue announces markets
/// some minutes before its catalogue has their tokens.
const ANNOUNCED_TRIES_MAX: u32 = 20;

/// Maximum number of pages read beyond those that would suffice if every listed market were taken.
const SPARE_PAGES_MAX: usize = 50;

/// Markets to describe immediately, by condition id.
pub(super) enum Urgent {
    /// A followed market.
    Followed(Arc<str>),
    /// Markets that accounts hold, which are followed once they are described.
    Held(Vec<Arc<str>>),
    /// A newly announced market.
    Announced(Arc<str>),
}

/// The task that requests lists and descriptions.
pub(super) struct Cataloguer {
    pub(super) rest: Arc<Rest>,
    pub(super) config: Arc<LiveConfig>,
    /// The followed markets that are not resolved.
    pub(super) followed: watch::Receiver<Arc<[Arc<str>]>>,
    pub(super) urgent: mpsc::Receiver<Urgent>,
    /// New markets that do not accept orders yet, with the number of requests for each.
    pub(super) announced: Vec<(Arc<str>, u32)>,
    pub(super) untold: Untold,
    pub(super) events: mpsc::Sender<Event>,
}

/// The markets to follow, as listed by the catalogue.
struct List {
    markets: Vec<Description>,
    /// The slugs of the filter that no open market has; `None` if not all pages were read.
    unknown_slugs: Option<Vec<String>>,
}

impl Cataloguer {
    /// Runs until the receiver of the events is dropped.
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
                        if self.handle_urgent(first).await.is_none() {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Requests the list, and then the followed markets that are missing from it. `None` if the
    /// receiver of the events has been dropped.
    async fn refresh(&mut self) -> Option<()> {
        let mut seen: HashSet<Arc<str>> = HashSet::new();
        match self.list().await {
            Ok(List { markets, unknown_slugs }) => {
                seen.extend(markets.iter().map(|it| it.info.condition_id.clone()));
                let market_count = markets.len();
                self.events.send(Event::Listed(markets)).await.ok()?;
                if let Some(unknown) = unknown_slugs {
                    let wanted = self.config.filter.slugs.iter();
                    self.untold.note_known(wanted.filter(|slug| !unknown.contains(slug)));
                    self.untold.tell(&self.rest, &unknown, market_count).await;
                }
            }
            Err(error) => tracing::warn!(%error, "request for the market list failed"),
        }
        let followed = self.followed.borrow().clone();
        let unseen: Vec<_> = followed.iter().filter(|id| !seen.contains(*id)).cloned().collect();
        for ids in unseen.chunks(NAMED_MARKETS_MAX) {
            self.describe(ids).await?;
        }
        let mut announced = std::mem::take(&mut self.announced);
        announced.retain(|(id, _)| !seen.contains(id));
        for ids in announced.chunks(NAMED_MARKETS_MAX) {
            self.describe_announced(ids.to_vec()).await?;
        }
        Some(())
    }

    async fn handle_urgent(&mut self, first: Urgent) -> Option<()> {
        let (mut followed, mut announced) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(urgent) = next {
            match urgent {
                Urgent::Followed(id) if followed.contains(&id) => {}
                Urgent::Followed(id) => followed.push(id),
                Urgent::Held(ids) => followed.extend(ids),
                Urgent::Announced(id) => announced.push((id, 0)),
            }
            if followed.len().max(announced.len()) >= NAMED_MARKETS_MAX {
                break;
            }
            next = self.urgent.try_recv().ok();
        }
        if !announced.is_empty() {
            self.describe_announced(announced).await?;
        }
        for ids in followed.chunks(NAMED_MARKETS_MAX) {
            self.describe(ids).await?;
        }
        Some(())
    }

    /// Requests descriptions of new markets, and lists those that pass the filter and accept
    /// orders. Markets that do not accept orders yet are requested again with the next list. `None`
    /// if the receiver of the events has been dropped.
    async fn describe_announced(&mut self, announced: Vec<(Arc<str>, u32)>) -> Option<()> {
        let filter = &self.config.filter;
        let ids: Vec<Arc<str>> = announced.iter().map(|(id, _)| id.clone()).collect();
        let descriptions: Vec<Description> = match self.rest.announced(&ids, filter).await {
            Ok(answer) => readable(answer),
            Err(error) => {
                tracing::warn!(%error, markets = ids.len(), "request for new markets failed");
                Vec::new()
            }
        };
        let is_open = |id: &Arc<str>| {
            let description =
                descriptions.iter().find(|it| condition::is_same(&it.info.condition_id, id));
            description.is_some_and(|it| it.info.is_open_at_venue())
        };
        let waiting = announced.into_iter().filter(|(id, _)| !is_open(id));
        let waiting = waiting.map(|(id, tries)| (id, tries + 1));
        let room = ANNOUNCED_MAX.saturating_sub(self.announced.len());
        self.announced.extend(waiting.filter(|it| it.1 < ANNOUNCED_TRIES_MAX).take(room));
        let now = Timestamp::now();
        let is_taken = |it: &Description| filter.wants(&it.info, now) && filter.names(&it.info);
        let taken: Vec<Description> = descriptions.into_iter().filter(is_taken).collect();
        if taken.is_empty() {
            return Some(());
        }
        self.events.send(Event::Listed(taken)).await.ok()
    }

    /// Requests the markets to follow, the most traded first; for series, those that end soonest.
    async fn list(&self) -> Result<List, RestError> {
        let filter = &self.config.filter;
        let mut unknown_slugs = filter.slugs.clone();
        let page_count_max = filter.count_max.div_ceil(PAGE_MARKETS_MAX) + SPARE_PAGES_MAX;
        let mut listed = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..page_count_max {
            let Page { markets, next_cursor } = self.rest.page(filter, cursor.as_deref()).await?;
            let now = Timestamp::now();
            let page = readable(markets);
            // Pages are sorted by volume: once a market is below the minimum, so are all markets
            // after it.
            let is_below = filter.series.is_empty()
                && page.last().is_some_and(|it| it.info.volume_24h < filter.volume_24h_min);
            unknown_slugs.retain(|slug| {
                page.iter().all(|it| it.info.slug.as_deref() != Some(slug.as_str()))
            });
            let is_taken = |it: &Description| {
                let is_named = filter.series.is_empty() || filter.names(&it.info);
                is_named && filter.wants(&it.info, now)
            };
            listed.extend(page.into_iter().filter(is_taken));
            cursor = next_cursor;
            if listed.len() >= filter.count_max || cursor.is_none() || is_below {
                break;
            }
        }
        listed.truncate(filter.count_max);
        let is_complete = cursor.is_none();
        Ok(List { markets: listed, unknown_slugs: is_complete.then_some(unknown_slugs) })
    }

    /// Requests descriptions of these markets. `None` if the receiver of the events has been
    /// dropped.
    async fn describe(&self, ids: &[Arc<str>]) -> Option<()> {
        // An answer from Gamma never contains both closed markets and markets that are not closed.
        let mut missing: Vec<Arc<str>> = ids.to_vec();
        for closed in [false, true] {
            if missing.is_empty() {
                break;
            }
            let answer = match self.rest.markets(&missing, closed).await {
                Ok(answer) => answer,
                Err(error) => {
                    let markets = missing.len();
                    tracing::warn!(%error, markets, "request for followed markets failed");
                    return Some(());
                }
            };
            let descriptions = readable(answer);
            missing.retain(|id| {
                descriptions.iter().all(|it| !condition::is_same(&it.info.condition_id, id))
            });
            let mut described = Vec::with_capacity(descriptions.len());
            for description in descriptions {
                described.push(self.with_other_sources(description).await);
            }
            if !described.is_empty() {
                self.events.send(Event::Described(described)).await.ok()?;
            }
        }
        Some(())
    }

    /// If Gamma reports the market as closed, adds the CLOB service's description, and the data
    /// API's if that does not suffice, so that a resolution rests on more than one source.
    async fn with_other_sources(&self, gamma: Description) -> Described {
        let mut described = Described { gamma, clob: None, data: None };
        if !described.gamma.info.status.is_closed() {
            return described;
        }
        let market = &*described.gamma.info.condition_id;
        described.clob = match self.rest.clob_market(market).await {
            Ok(clob) => readable([clob]).pop(),
            Err(error) => {
                tracing::warn!(market, %error, "request for a closed market failed");
                None
            }
        };
        let outcomes = &described.gamma.info.outcomes;
        if let Resolution::Pending(Pending::NoPayouts | Pending::Unconfirmed) =
            resolution::decide(&described.reports(outcomes))
        {
            described.data = match self.rest.resolution(&described.gamma).await {
                Ok(data) => data.unwrap_or_else(|error| {
                    tracing::warn!(market, %error, "unreadable resolution ignored");
                    None
                }),
                Err(error) => {
                    tracing::warn!(market, %error, "request for a resolution failed");
                    None
                }
            };
        }
        described
    }
}

/// Drops the descriptions that cannot be parsed, and logs only the first error, since an answer may
/// have thousands.
fn readable(answer: impl IntoIterator<Item = Result<Description, WireError>>) -> Vec<Description> {
    let (descriptions, unreadable) = split(answer);
    if let Some(error) = unreadable.first() {
        let markets = unreadable.len();
        tracing::warn!(markets, first_error = %error, "unreadable markets ignored");
    }
    descriptions
}
