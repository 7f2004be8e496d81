//! Checks whether the venue still behaves as the connector expects.
//!
//! A [`Doctor`] receives everything that the services and the socket send, and judges a list of
//! assumptions, each a small type with a name, a count and a verdict. It sends no requests and
//! reads no clock; [`super::live::look`] does.
//!
//! ```text
//!  answers, frames ─► Doctor ─► Observation ─► each assumption ─► Report, samples
//!                        │          ▲
//!                        └► Books ──┘ whether hashes and best prices fit the books they are about
//! ```

mod assumption;
mod books;
mod clocks;
mod descriptions;
mod fields;
mod frames;
mod hashes;
mod ids;
mod pages;
mod report;
mod resolutions;
mod samples;
mod seen;
mod services;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub use assumption::{RestsOn, Verdict};
pub use report::{Effort, Finding, Report};
pub use samples::Sample;
pub use seen::{Answered, Asked, Failure, Headers, Seen, Service};

use assumption::{Assumption, Tally};
use books::Books;
use paperbourse_core::ids::condition::wide;
use samples::within_limits;
use seen::{MarketSeen, Observation, Origin, PageSeen, Source};

use super::resolution::{self, SourceReport};
use super::wire::{Description, clob, data, gamma, socket};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::MarketStatus;

/// Maximum number of descriptions kept for comparison with those of other services.
const DESCRIPTIONS_MAX: usize = 1_000;

/// Judges the venue's answers and messages against a list of assumptions.
pub struct Doctor {
    assumptions: Vec<(Box<dyn Assumption>, Tally)>,
    books: Books,
    /// Gamma's descriptions, by the wide form of the condition id.
    descriptions: BTreeMap<String, Known>,
}

/// Gamma's description of a market.
#[derive(Clone)]
struct Known {
    description: Description,
    is_v2: bool,
}

/// A page of `/markets/keyset`.
#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    markets: Vec<&'a RawValue>,
    next_cursor: Option<String>,
}

impl Doctor {
    /// Creates a doctor without observations. A statement from the socket may wait up to `grace`
    /// for another message that explains it.
    pub fn new(grace: Duration) -> Self {
        let all = services::all()
            .into_iter()
            .chain(clocks::all())
            .chain(pages::all())
            .chain(ids::all())
            .chain(descriptions::all())
            .chain(hashes::all())
            .chain(frames::all(grace))
            .chain(resolutions::all());
        Self {
            assumptions: all.map(|assumption| (assumption, Tally::default())).collect(),
            books: Books::new(grace),
            descriptions: BTreeMap::new(),
        }
    }

    /// Passes an event to every assumption that it concerns.
    pub fn observe(&mut self, seen: &Seen) {
        match seen {
            Seen::Answered(answered) => {
                self.tell(&Observation::Answered(answered));
                self.answered(answered);
            }
            Seen::Failed { service, asked, failure } => {
                self.tell(&Observation::Failed { service: *service, asked, failure });
            }
            Seen::Closed { gamma, clob, data } => {
                self.closed(gamma, clob.as_deref(), data.as_deref());
            }
            Seen::Opened { token_count, at } => {
                self.tell(&Observation::Opened { token_count: *token_count, at: *at });
            }
            Seen::Frame { text, at } => self.frame(text, *at),
            Seen::Lost { why } => {
                self.books.forget_waiting();
                self.tell(&Observation::Lost { why });
            }
        }
    }

    /// Judges everything as of `at`, the end of the run. Returns the report, and samples of all
    /// unexpected data.
    pub fn finish(mut self, at: Timestamp, effort: Effort) -> (Report, Vec<Sample>) {
        for judged in self.books.finish(at) {
            self.tell(&Observation::Judged(&judged));
        }
        self.tell(&Observation::Over { at });
        let (mut findings, mut samples) = (Vec::new(), Vec::new());
        for (assumption, tally) in self.assumptions {
            findings.push(Finding::of(&*assumption, &tally));
            samples.extend(tally.into_samples(assumption.name()));
        }
        (Report { findings, effort }, within_limits(samples))
    }

    fn tell(&mut self, observation: &Observation<'_>) {
        for (assumption, tally) in &mut self.assumptions {
            assumption.observe(observation, tally);
        }
    }

    fn answered(&mut self, answered: &Answered) {
        let (body, path) = (&*answered.body, &*answered.path);
        match &answered.asked {
            Asked::Page { limit, after } => {
                let Some((ids, next_cursor)) = self.markets(body, path) else { return };
                self.tell(&Observation::Page(PageSeen {
                    limit: *limit,
                    after: after.as_deref(),
                    ids: &ids,
                    next_cursor: next_cursor.as_deref(),
                    origin: Origin { request: path, payload: "" },
                }));
            }
            Asked::Markets { .. } => drop(self.markets(body, path)),
            Asked::Compact | Asked::Long => {
                let (source, description) = match answered.asked {
                    Asked::Compact => (Source::Compact, clob::compact_market(body)),
                    _ => (Source::Long, clob::long_market(body)),
                };
                let fields: Value = serde_json::from_str(body).unwrap_or_default();
                let origin = Origin { request: path, payload: body };
                let description = description.as_ref();
                let id = description.ok().map(|it| &*it.info.condition_id);
                let known = id.and_then(|id| self.known(id)).cloned();
                let is_v2 = known.as_ref().is_some_and(|known| known.is_v2);
                let seen = MarketSeen { source, fields: &fields, is_v2, description, origin };
                self.tell(&Observation::Market(&seen));
                if let (Some(known), Ok(clob)) = (known, description)
                    && source == Source::Compact
                    && clob.info.status != MarketStatus::Hydrating
                {
                    self.tell(&Observation::Twice { gamma: &known.description, clob, origin });
                }
            }
            Asked::Books => self.requested_books(body, path),
            Asked::Time | Asked::Resolution => {}
        }
    }

    /// Parses a page of Gamma's markets. Returns their condition ids and the cursor of the next
    /// page, or `None` if the page cannot be parsed.
    fn markets(&mut self, body: &str, path: &str) -> Option<(Vec<String>, Option<String>)> {
        let page: Page<'_> = match serde_json::from_str(body) {
            Ok(page) => page,
            Err(error) => {
                let origin = Origin { request: path, payload: body };
                let what = Source::Gamma;
                self.tell(&Observation::Unreadable { what, problem: &error.to_string(), origin });
                return None;
            }
        };
        let mut ids = Vec::new();
        for row in page.markets {
            let description = gamma::market(row.get());
            let fields: Value = serde_json::from_str(row.get()).unwrap_or_default();
            ids.push(fields["conditionId"].as_str().unwrap_or_default().to_owned());
            let is_v2 = fields["version"] == "v2";
            self.tell(&Observation::Market(&MarketSeen {
                source: Source::Gamma,
                fields: &fields,
                is_v2,
                description: description.as_ref(),
                origin: Origin { request: path, payload: row.get() },
            }));
            if let Ok(description) = description
                && self.descriptions.len() < DESCRIPTIONS_MAX
            {
                let id = wide(&description.info.condition_id).into_owned();
                self.descriptions.insert(id, Known { description, is_v2 });
            }
        }
        Some((ids, page.next_cursor))
    }

    fn known(&self, condition_id: &str) -> Option<&Known> {
        self.descriptions.get(&*wide(condition_id))
    }

    fn requested_books(&mut self, body: &str, path: &str) {
        let rows: Vec<&RawValue> = match serde_json::from_str(body) {
            Ok(rows) => rows,
            Err(error) => {
                let origin = Origin { request: path, payload: body };
                let what = Source::Book;
                self.tell(&Observation::Unreadable { what, problem: &error.to_string(), origin });
                return;
            }
        };
        for row in rows {
            let fields: Value = serde_json::from_str(row.get()).unwrap_or_default();
            let book = clob::book(row.get());
            let origin = Origin { request: path, payload: row.get() };
            let market = fields["market"].as_str().unwrap_or_default();
            let known = self.known(market).cloned();
            let is_v2 = fields["version"] == "v2" || known.as_ref().is_some_and(|it| it.is_v2);
            let gamma = known.as_ref().map(|known| &known.description);
            self.tell(&Observation::Book { fields: &fields, is_v2, book: &book, gamma, origin });
            if let Ok(book) = &book
                && let Some(judged) = self.books.requested(book, is_v2, row.get())
            {
                self.tell(&Observation::Judged(&judged));
            }
        }
    }

    fn closed(&mut self, gamma_text: &str, clob_text: Option<&str>, data_text: Option<&str>) {
        let Ok(gamma) = gamma::market(gamma_text) else { return };
        let outcomes = &gamma.info.outcomes;
        let mut reports = vec![SourceReport::of(resolution::Source::Gamma, &gamma, outcomes)];
        if let Some(Ok(clob)) = clob_text.map(clob::long_market) {
            reports.push(SourceReport::of(resolution::Source::Clob, &clob, outcomes));
        }
        if let Some(Ok(Some(data))) = data_text.map(|text| data::resolution(text, &gamma)) {
            reports.push(SourceReport::of(resolution::Source::Data, &data, outcomes));
        }
        let origin = Origin { request: "/markets/keyset", payload: gamma_text };
        let id = &*gamma.info.condition_id;
        let decision = resolution::decide(&reports);
        self.tell(&Observation::Resolution { id, reports: &reports, decision: &decision, origin });
    }

    fn frame(&mut self, text: &str, at: Timestamp) {
        let origin = Origin { request: "", payload: text };
        match socket::frame(text) {
            socket::Frame::Messages(_) => {}
            socket::Frame::Other => return self.tell(&Observation::NotJson { origin }),
            _ => return,
        }
        for text in socket::texts(text) {
            let origin = Origin { request: "", payload: text };
            let fields: Value = serde_json::from_str(text).unwrap_or_default();
            let message = socket::message(text);
            self.tell(&Observation::Message {
                fields: &fields,
                error: message.as_ref().err(),
                sent_at: message.as_ref().ok().and_then(clocks::sent_at),
                received_at: at,
                origin,
            });
            let Ok(message) = &message else { continue };
            for judged in self.books.message(message, text, at) {
                self.tell(&Observation::Judged(&judged));
            }
        }
    }
}

#[cfg(test)]
mod tests;
