//! Orders the content of a recording in time: the markets listed first, and the events that follow.

use std::collections::HashMap;
use std::sync::Arc;

use super::descriptions::{Descriptions, Source, Sources};
use super::file::{TimedUpdate, Update};
use super::report::LoadReport;
use crate::polymarket::wire::{Description, NO_TIMESTAMP};
use crate::{VenueChange, VenueEvent};
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::MARKETS_MAX;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};

/// The content of a recording, in order.
pub(super) struct Timeline {
    /// The time of the first event that has a timestamp. Playback is timed from there.
    pub(super) start: Timestamp,
    /// The markets listed before the first event.
    pub(super) listed: Vec<MarketInfo>,
    pub(super) tape: Vec<VenueEvent>,
}

impl Timeline {
    /// Orders descriptions and updates. Reports the markets whose sources disagree on the payouts
    /// at the end.
    pub(super) fn new(
        descriptions: Descriptions,
        updates: Vec<TimedUpdate>,
        report: &mut LoadReport,
    ) -> Self {
        // Not the first description, since that may be weeks older than the market's frames.
        let dated = updates.iter().map(|update| update.order).filter(|&at| at != NO_TIMESTAMP);
        let start = dated.min();
        let mut announced: HashMap<Arc<str>, Timestamp> = HashMap::new();
        for TimedUpdate { order, update, .. } in &updates {
            if let Update::NewMarket(description) = update {
                let condition_id = condition::wide(&description.info.condition_id).into();
                let first = announced.entry(condition_id).or_insert(*order);
                *first = (*first).min(*order);
            }
        }
        let (first, mut ordered) = descriptions.split(start, &announced);
        // Stable: a description precedes the updates with the same time, and updates with the same
        // timestamp keep the order of their files and rows.
        ordered.extend(updates);
        ordered.sort_by_key(|update| update.order);

        let mut markets = Markets::default();
        let listed = first.into_iter().map(|(condition_id, sources)| {
            let known = Known::new(sources);
            let info = known.info.clone();
            markets.add(condition_id, known);
            info
        });
        let listed = listed.collect();
        let events = ordered.into_iter().filter_map(|TimedUpdate { at, update, .. }| {
            markets.take(update).map(|change| VenueEvent { at, change })
        });
        let tape = events.collect();
        for condition_id in &markets.order {
            if !markets.known[condition_id].agrees {
                report.note_contradiction(condition_id);
            }
        }
        Self { start: start.unwrap_or(Timestamp::EPOCH), listed, tape }
    }
}

/// The markets as of the newest event.
#[derive(Default)]
struct Markets {
    known: HashMap<Arc<str>, Known>,
    /// The condition ids, in the order of their first description.
    order: Vec<Arc<str>>,
}

/// A market as of the newest event.
struct Known {
    sources: Sources,
    info: MarketInfo,
    /// Whether the sources agree on the payouts.
    agrees: bool,
    /// Whether a socket has reported a winner.
    has_ended: bool,
}

impl Known {
    fn new(sources: Sources) -> Self {
        let (info, agrees) = sources.merged();
        Self { sources, info, agrees, has_ended: false }
    }

    /// Applies a newer description. Returns the new state of the market if it changed.
    fn describe(&mut self, source: Source, description: Description) -> Option<MarketInfo> {
        self.sources.add(source, description);
        let (mut info, agrees) = self.sources.merged();
        self.agrees = agrees;
        if self.info.status == MarketStatus::Resolved {
            info.status = MarketStatus::Resolved;
            info.payouts.clone_from(&self.info.payouts);
            info.evidence.clone_from(&self.info.evidence);
        } else if self.has_ended && !info.status.is_closed() {
            // The catalogue lags behind the socket, and the winner is known.
            info.status = MarketStatus::Closed;
        }
        if info == self.info {
            return None;
        }
        self.info = info.clone();
        Some(info)
    }
}

impl Markets {
    fn add(&mut self, condition_id: Arc<str>, known: Known) {
        self.order.push(condition_id.clone());
        self.known.insert(condition_id, known);
    }

    /// Converts an update into a change. An update of a market becomes the market's new
    /// description.
    fn take(&mut self, update: Update) -> Option<VenueChange> {
        let info = match update {
            Update::Change(change) => return Some(change),
            Update::Tick { market, tick } => {
                // A tick is sent for each token and often twice; only the first one changes the
                // market.
                let info = &mut self.known.get_mut(&*condition::wide(&market))?.info;
                if info.tick == tick {
                    return None;
                }
                info.tick = tick;
                info.clone()
            }
            Update::Ended { market } => {
                // A winner reported by a single source is not final: the market only closes.
                let known = self.known.get_mut(&*condition::wide(&market))?;
                known.has_ended = true;
                if known.info.status.is_closed() {
                    return None;
                }
                known.info.status = MarketStatus::Closed;
                known.info.clone()
            }
            Update::NewMarket(description) => self.announced(*description)?,
            Update::Described(source, description) => self.described(source, *description)?,
        };
        Some(VenueChange::Listed(vec![info]))
    }

    /// Applies an announcement, and ignores repetitions of it on other connections.
    fn announced(&mut self, description: Description) -> Option<MarketInfo> {
        let known = self.known.get(&*condition::wide(&description.info.condition_id));
        if known.is_some_and(|known| known.sources.has(Source::Announcement)) {
            return None;
        }
        self.described(Source::Announcement, description)
    }

    fn described(&mut self, source: Source, description: Description) -> Option<MarketInfo> {
        let condition_id: Arc<str> = condition::wide(&description.info.condition_id).into();
        if let Some(known) = self.known.get_mut(&condition_id) {
            return known.describe(source, description);
        }
        if self.known.len() >= MARKETS_MAX {
            return None;
        }
        let mut sources = Sources::default();
        sources.add(source, description);
        let known = Known::new(sources);
        let info = known.info.clone();
        self.add(condition_id, known);
        Some(info)
    }
}
