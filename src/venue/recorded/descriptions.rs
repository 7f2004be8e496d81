//! Merges the descriptions of a market from several files into one.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde::Deserialize;

use super::report::LoadReport;
use crate::ids::Timestamp;
use crate::market::catalogue::{DescriptionFlaw, MarketInfo, MarketStatus, Outcome};
use crate::money::{Price, Rounding, Usd};
use crate::venue::polymarket::resolution::{self, Pending, SourceReport, Stage};
use crate::venue::polymarket::wire::Description;

/// The source of a description, most detailed first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Source {
    Gamma,
    Recorder,
    CompactMarket,
    LongMarket,
}

const SOURCE_COUNT: usize = 4;

/// The descriptions of all markets.
#[derive(Default)]
pub(super) struct Descriptions {
    markets: HashMap<Arc<str>, [Option<Description>; SOURCE_COUNT]>,
    /// The condition ids, in the order of their first description.
    order: Vec<Arc<str>>,
}

impl Descriptions {
    /// Adds a description. Per source the newest wins: by the venue's timestamp, else by the order
    /// of the files.
    pub(super) fn add(&mut self, source: Source, mut description: Description) {
        let condition_id = description.info.condition_id.clone();
        let sources = match self.markets.entry(condition_id) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                self.order.push(entry.key().clone());
                entry.insert(Default::default())
            }
        };
        let known = &mut sources[source as usize];
        match known {
            Some(newer) if newer.updated_at > description.updated_at => {
                fill_texts(&mut newer.info, &description.info);
                fill_delay(newer, &description);
            }
            Some(older) => {
                fill_texts(&mut description.info, &older.info);
                fill_delay(&mut description, older);
                *older = description;
            }
            None => *known = Some(description),
        }
    }

    /// Merges the descriptions of each market. The report lists markets whose sources disagree on
    /// the payouts.
    pub(super) fn finish(mut self, report: &mut LoadReport) -> Vec<MarketInfo> {
        let merged = self.order.iter().map(|condition_id| {
            let sources =
                self.markets.remove(condition_id).expect("`order` lists each market once");
            let mut known = sources.iter().flatten();
            let mut description = known.next().expect("each market has a description").clone();
            for other in known {
                complement(&mut description, other);
            }
            let mut info = description.info;
            if !resolve(&mut info, &sources) {
                report.note_contradiction(condition_id);
            }
            info
        });
        merged.collect()
    }
}

/// Adds what a less detailed source knows and a better one lacks.
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
    // No source states every delay, and 0 may mean that this one knows of none.
    info.taker_delay_ms = info.taker_delay_ms.max(other.info.taker_delay_ms);
    description.is_delay_stated |= other.is_delay_stated;
    description.is_delay_exact |= other.is_delay_exact;
    info.has_unstated_delay |= other.info.has_unstated_delay;
    info.has_unstated_delay &= !description.is_delay_exact;
}

/// Takes the delay of marketable orders from another description by the same source, if only that
/// one states it.
fn fill_delay(description: &mut Description, other: &Description) {
    if !description.is_delay_stated && other.is_delay_stated {
        description.info.taker_delay_ms = other.info.taker_delay_ms;
        description.info.has_unstated_delay = other.info.has_unstated_delay;
        (description.is_delay_stated, description.is_delay_exact) = (true, other.is_delay_exact);
    }
}

/// Sets a market's payouts if they are final. Returns false if its sources disagree; the market is
/// then closed, without payouts.
fn resolve(info: &mut MarketInfo, sources: &[Option<Description>; SOURCE_COUNT]) -> bool {
    let resolving = [
        (Source::Gamma, resolution::Source::Gamma),
        (Source::LongMarket, resolution::Source::Clob),
    ];
    let reports = resolving.into_iter().filter_map(|(place, source)| {
        let description = sources[place as usize].as_ref()?;
        Some(SourceReport::of(source, description, &info.outcomes))
    });
    let reports: Vec<SourceReport> = reports.collect();
    resolution::decide(&reports).describe(info) != Some(Pending::Contradiction)
}

/// Copies fields that are only displayed from any source that has them.
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

/// The metadata that one recorder wrote beside its books, in a format of its own.
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

/// Why such metadata cannot be used.
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

/// Parses such metadata. The recorder chose open markets and recorded no fees, which count as 0.
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
