//! Merges the descriptions of a market from several sources into one, as of a given time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde::Deserialize;

use super::file::{TimedUpdate, Update};
use crate::polymarket::resolution::{self, Pending, SourceReport, Stage};
use crate::polymarket::wire::Description;
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::catalogue::{DescriptionFlaw, MarketInfo, MarketStatus, Outcome};
use paperbourse_core::money::{Price, Rounding, Usd};

/// The source of a description, from the most to the least detailed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Gamma,
    Recorder,
    CompactMarket,
    LongMarket,
    Announcement,
}

const SOURCE_COUNT: usize = 5;

/// A description and the time from which it holds.
pub(super) struct Described {
    pub(super) source: Source,
    /// `None` if the time is unknown: the description holds from the start.
    pub(super) at: Option<Timestamp>,
    pub(super) description: Description,
}

/// The newest description of a market from each source.
#[derive(Default)]
pub(super) struct Sources([Option<Description>; SOURCE_COUNT]);

impl Sources {
    /// Adds a description that is newer than all others of its source.
    pub(super) fn add(&mut self, source: Source, mut description: Description) {
        let known = &mut self.0[source as usize];
        if let Some(older) = known {
            succeed(&mut description, older);
        }
        *known = Some(description);
    }

    pub(super) fn has(&self, source: Source) -> bool {
        self.0[source as usize].is_some()
    }

    /// Merges the descriptions of all sources. Also returns whether the sources agree on the
    /// payouts. If they do not, the market is closed without payouts.
    pub(super) fn merged(&self) -> (MarketInfo, bool) {
        let mut known = self.0.iter().flatten();
        let mut description = known.next().expect("each market has a description").clone();
        for other in known {
            complement(&mut description, other);
        }
        let mut info = description.info;
        let agrees = self.resolve(&mut info);
        (info, agrees)
    }

    /// Sets the market's payouts if they are final. Returns false if its sources disagree.
    fn resolve(&self, info: &mut MarketInfo) -> bool {
        let resolving = [
            (Source::Gamma, resolution::Source::Gamma),
            (Source::LongMarket, resolution::Source::Clob),
        ];
        let reports = resolving.into_iter().filter_map(|(place, source)| {
            let description = self.0[place as usize].as_ref()?;
            Some(SourceReport::of(source, description, &info.outcomes))
        });
        let reports: Vec<SourceReport> = reports.collect();
        resolution::decide(&reports).describe(info) != Some(Pending::Contradiction)
    }
}

/// The descriptions of all markets.
#[derive(Default)]
pub(super) struct Descriptions {
    /// The descriptions by condition id. Those that hold from the start are first, at most one per
    /// source.
    markets: HashMap<Arc<str>, Vec<Described>>,
    /// The condition ids, in the order of their first description.
    order: Vec<Arc<str>>,
}

impl Descriptions {
    /// Adds a description. If several from one source hold from the start, the last one added wins.
    pub(super) fn add(&mut self, mut added: Described) {
        // Gamma's condition ids may be shorter than those of the other services.
        let condition_id: Arc<str> = condition::wide(&added.description.info.condition_id).into();
        let known = match self.markets.entry(condition_id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.order.push(entry.key().clone());
                entry.insert(Vec::new())
            }
        };
        if added.at.is_some() {
            known.push(added);
            return;
        }
        let mut from_start = known.iter_mut().take_while(|other| other.at.is_none());
        match from_start.find(|other| other.source == added.source) {
            Some(older) => {
                succeed(&mut added.description, &older.description);
                *older = added;
            }
            None => known.insert(0, added),
        }
    }

    /// Returns the number of markets.
    pub(super) fn market_count(&self) -> usize {
        self.order.len()
    }

    /// Splits the descriptions at the `start` of a recording. The earlier ones become the sources
    /// with which each market is listed; the later ones become updates. Without a start, all count
    /// as earlier.
    ///
    /// A market whose descriptions are all later is listed with the first of them, since earlier
    /// events show that the market exists. The exception is a market that was announced before it
    /// was first described: its announcement lists it. `announced` holds the times of the
    /// announcements.
    pub(super) fn split(
        mut self,
        start: Option<Timestamp>,
        announced: &HashMap<Arc<str>, Timestamp>,
    ) -> (Vec<(Arc<str>, Sources)>, Vec<TimedUpdate>) {
        let (mut listed, mut later) = (Vec::new(), Vec::new());
        for condition_id in self.order {
            let mut known =
                self.markets.remove(&condition_id).expect("`order` lists each market once");
            // Stable: of two with the same timestamp, the one from the later file wins.
            known.sort_by_key(|described| described.at);
            let mut count = known.partition_point(|described| {
                start.is_none_or(|start| described.at.is_none_or(|at| at <= start))
            });
            let is_announced = announced
                .get(&condition_id)
                .is_some_and(|&at| known.first().is_some_and(|described| Some(at) <= described.at));
            if count == 0 && !is_announced {
                count = 1;
            }
            let mut sources = Sources::default();
            for (index, Described { source, at, description }) in known.into_iter().enumerate() {
                match at {
                    Some(at) if index >= count => {
                        let update = Update::Described(source, Box::new(description));
                        later.push(TimedUpdate { order: at, at, update });
                    }
                    _ => sources.add(source, description),
                }
            }
            if count > 0 {
                listed.push((condition_id, sources));
            }
        }
        (listed, later)
    }
}

/// Fills in what only an older description from the same source states.
fn succeed(description: &mut Description, older: &Description) {
    fill_texts(&mut description.info, &older.info);
    if !description.is_delay_stated && older.is_delay_stated {
        description.info.taker_delay_ms = older.info.taker_delay_ms;
        description.info.has_unstated_delay = older.info.has_unstated_delay;
        (description.is_delay_stated, description.is_delay_exact) = (true, older.is_delay_exact);
    }
}

/// Fills in what a less detailed source states and a more detailed one lacks.
fn complement(description: &mut Description, other: &Description) {
    let info = &mut description.info;
    fill_texts(info, &other.info);
    let lacks_tokens = |outcomes: &[Outcome]| {
        outcomes.is_empty() || outcomes.iter().any(|outcome| outcome.token_id.is_empty())
    };
    let labels_agree = info.outcomes.is_empty()
        || info.outcomes.iter().map(|outcome| &outcome.label).eq(other
            .info
            .outcomes
            .iter()
            .map(|outcome| &outcome.label));
    if lacks_tokens(&info.outcomes) && !lacks_tokens(&other.info.outcomes) && labels_agree {
        info.outcomes.clone_from(&other.info.outcomes);
        if info.status == MarketStatus::Hydrating {
            info.status = match other.info.status {
                MarketStatus::Open if info.is_placeholder => MarketStatus::Paused,
                status => status,
            };
        }
    }
    if !description.is_fee_stated && other.is_fee_stated {
        info.fees = other.info.fees;
        description.is_fee_stated = true;
    }
    // No source states every delay, and 0 may mean that this source knows of none.
    info.taker_delay_ms = info.taker_delay_ms.max(other.info.taker_delay_ms);
    description.is_delay_stated |= other.is_delay_stated;
    description.is_delay_exact |= other.is_delay_exact;
    info.has_unstated_delay |= other.info.has_unstated_delay;
    info.has_unstated_delay &= !description.is_delay_exact;
}

/// Fills in missing displayed fields from another description.
fn fill_texts(info: &mut MarketInfo, other: &MarketInfo) {
    let pairs = [
        (&mut info.slug, &other.slug),
        (&mut info.question, &other.question),
        (&mut info.category, &other.category),
        (&mut info.image_url, &other.image_url),
    ];
    for (text, other) in pairs {
        if text.is_none() {
            text.clone_from(other);
        }
    }
    info.event = info.event.take().or_else(|| other.event.clone());
    info.end_date = info.end_date.or(other.end_date);
    info.volume_24h = info.volume_24h.or(other.volume_24h);
    info.volume_total = info.volume_total.or(other.volume_total);
}

/// The metadata that one recorder wrote beside its books, in its own format.
#[derive(Deserialize)]
struct RecorderRow<'a> {
    condition_id: String,
    question: Option<String>,
    slug: Option<String>,
    end_date: Option<String>,
    neg_risk: Option<bool>,
    outcomes: Vec<String>,
    token_ids: Vec<String>,
    #[serde(borrow)]
    gamma_tick_size: Option<&'a serde_json::value::RawValue>,
    #[serde(borrow)]
    volume_24h: Option<&'a serde_json::value::RawValue>,
}

/// An error in a [`RecorderRow`].
#[derive(Debug, thiserror::Error)]
pub(super) enum RecorderRowError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("{labels} outcomes and {tokens} token_ids")]
    Counts { labels: usize, tokens: usize },
    #[error("empty id")]
    Id,
    #[error(transparent)]
    Flaw(#[from] DescriptionFlaw),
    #[error("gamma_tick_size is not a tick")]
    Tick,
}

/// Parses a [`RecorderRow`]. The recorder recorded only open markets and no fees, so fees count as
/// 0.
pub(super) fn recorder_row(text: &str) -> Result<Description, RecorderRowError> {
    let row: RecorderRow<'_> = serde_json::from_str(text)?;
    let (labels, tokens) = (row.outcomes.len(), row.token_ids.len());
    if labels != tokens || labels == 0 {
        return Err(RecorderRowError::Counts { labels, tokens });
    }
    if row.condition_id.is_empty() || row.token_ids.iter().any(String::is_empty) {
        return Err(RecorderRowError::Id);
    }
    let outcomes = row.outcomes.iter().zip(&row.token_ids).map(|(label, token_id)| Outcome {
        label: label.as_str().into(),
        token_id: token_id.as_str().into(),
    });
    let mut info = MarketInfo::bare(&row.condition_id, outcomes);
    if let Some(raw) = row.gamma_tick_size {
        info.tick = Price::from_text(raw.get(), Rounding::Exact)
            .ok()
            .filter(|tick| tick.is_quotable())
            .ok_or(RecorderRowError::Tick)?;
    }
    info.question = row.question.map(Into::into);
    info.slug = row.slug.map(Into::into);
    info.neg_risk = row.neg_risk.unwrap_or(false);
    info.end_date = row
        .end_date
        .and_then(|text| text.parse::<jiff::Timestamp>().ok())
        .and_then(|time| i64::try_from(time.as_nanosecond()).ok())
        .map(Timestamp::from_nanos);
    info.volume_24h =
        row.volume_24h.and_then(|raw| Usd::from_text(raw.get(), Rounding::TowardZero).ok());
    info.check()?;
    Ok(Description {
        info,
        updated_at: None,
        is_fee_stated: false,
        is_delay_stated: false,
        is_delay_exact: false,
        shown_payouts: None,
        has_named_winner: false,
        stage: Stage::Unreported,
    })
}
