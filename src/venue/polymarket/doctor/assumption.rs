//! An assumption, and the count of what was seen of it.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::samples::{Sample, scrubbed, scrubbed_text};
use super::seen::{Observation, Origin};

/// How many different values are counted for one assumption. Any others are counted together.
const VALUES_MAX: usize = 16;

/// How many samples are kept for one assumption.
const SAMPLES_PER_ASSUMPTION_MAX: usize = 3;

/// How many values a row shows.
const VALUES_SHOWN_MAX: usize = 5;

/// What would be wrong if an assumption did not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestsOn {
    /// Fills: orders would fill on wrong books, at wrong fees, or not at all.
    Fills,
    /// Payouts of resolved markets.
    Payouts,
    /// Nothing that costs anybody money.
    Nothing,
}

/// What was seen of an assumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It held each time.
    Ok,
    /// It did not hold.
    Broken,
    /// Nothing was seen that it is about.
    NotSeen,
}

/// Something that the connector assumes about the venue.
pub(super) trait Assumption: Send {
    /// What holds, as a clause of at most [`super::report::NAME_CHARACTERS_MAX`] characters.
    fn name(&self) -> &'static str;

    /// What would be wrong if it did not hold.
    fn rests_on(&self) -> RestsOn;

    /// Whether it is about reaching a service, not about what that says.
    fn is_about_reaching(&self) -> bool {
        false
    }

    /// Counts this if it is about the assumption.
    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally);

    /// The verdict on everything so far.
    fn verdict(&self, tally: &Tally) -> Verdict {
        tally.verdict()
    }

    /// What was seen, for people.
    fn saw(&self, tally: &Tally) -> String {
        tally.saw()
    }
}

/// What was seen of an assumption so far.
#[derive(Default)]
pub(super) struct Tally {
    held: u64,
    broken: u64,
    values: BTreeMap<String, u64>,
    /// How often values beyond [`VALUES_MAX`] were seen.
    further: u64,
    /// The first thing that did not fit.
    problem: Option<String>,
    samples: Vec<Sample>,
}

impl Tally {
    /// It held once.
    pub(super) fn holds(&mut self) {
        self.held += 1;
    }

    /// It held once, with this value.
    pub(super) fn holds_with(&mut self, value: impl Into<String>) {
        self.held += 1;
        self.note(value);
    }

    /// Counts a value without a judgement.
    pub(super) fn note(&mut self, value: impl Into<String>) {
        let value = value.into();
        if let Some(count) = self.values.get_mut(&value) {
            *count += 1;
        } else if self.values.len() < VALUES_MAX {
            self.values.insert(value, 1);
        } else {
            self.further += 1;
        }
    }

    /// It did not hold once.
    pub(super) fn breaks(&mut self, problem: impl Display, origin: Origin<'_>) {
        self.broken += 1;
        let is_kept = self.samples.len() < SAMPLES_PER_ASSUMPTION_MAX;
        if self.problem.is_some() && !is_kept {
            return;
        }
        let problem = problem.to_string();
        if is_kept && !origin.payload.is_empty() {
            let request = (!origin.request.is_empty()).then(|| origin.request.to_owned());
            let sample = Sample {
                assumption: "",
                problem: scrubbed_text(&problem),
                request,
                payload: scrubbed(origin.payload),
            };
            self.samples.push(sample);
        }
        self.problem.get_or_insert(problem);
    }

    /// How often it held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// How often it did not.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// How often anything was seen that it is about.
    pub(super) fn seen(&self) -> u64 {
        self.held + self.broken
    }

    pub(super) fn values(&self) -> &BTreeMap<String, u64> {
        &self.values
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Broken once is broken.
    pub(super) fn verdict(&self) -> Verdict {
        match (self.broken, self.held) {
            (0, 0) => Verdict::NotSeen,
            (0, _) => Verdict::Ok,
            _ => Verdict::Broken,
        }
    }

    /// The first problem, then the most frequent values.
    pub(super) fn saw(&self) -> String {
        let mut parts = Vec::new();
        if let Some(problem) = &self.problem {
            parts.push(format!("{} of {}: {problem}", self.broken, self.seen()));
        }
        let mut values: Vec<(&String, &u64)> = self.values.iter().collect();
        values.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let shown = values.iter().take(VALUES_SHOWN_MAX);
        parts.extend(shown.map(|(value, count)| format!("{value} ×{count}")));
        let hidden = values.len().saturating_sub(VALUES_SHOWN_MAX);
        if hidden > 0 || self.further > 0 {
            parts.push("and others".to_owned());
        }
        parts.join(", ")
    }

    /// The samples of an assumption with this name.
    pub(super) fn into_samples(self, name: &'static str) -> impl Iterator<Item = Sample> {
        self.samples.into_iter().map(move |sample| Sample { assumption: name, ..sample })
    }
}
