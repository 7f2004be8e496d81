//! Assumptions about the venue, and the tally of each.

use std::collections::BTreeMap;
use std::fmt::Display;

use super::samples::{Sample, scrubbed, scrubbed_text};
use super::seen::{Observation, Origin};

/// Maximum number of distinct values counted per assumption. Further values are counted together.
const VALUES_MAX: usize = 16;

/// Maximum number of samples kept per assumption.
const SAMPLES_PER_ASSUMPTION_MAX: usize = 3;

/// Maximum number of values shown in one row of the report.
const VALUES_SHOWN_MAX: usize = 5;

/// The part of the exchange that relies on an assumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestsOn {
    /// Fills: if the assumption is wrong, orders fill on the wrong books, at the wrong fees, or not
    /// at all.
    Fills,
    /// Payouts of resolved markets.
    Payouts,
    /// Nothing that affects money.
    Nothing,
}

/// The verdict on an assumption.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The assumption held in every observation.
    Ok,
    /// The assumption did not hold in some observation.
    Broken,
    /// No observation concerned the assumption.
    NotSeen,
}

/// An assumption of the connector about the venue.
pub(super) trait Assumption: Send {
    /// Returns the assumption as a clause of at most [`super::report::NAME_CHARACTERS_MAX`]
    /// characters.
    fn name(&self) -> &'static str;

    /// Returns the part of the exchange that relies on the assumption.
    fn rests_on(&self) -> RestsOn;

    /// Returns whether the assumption is about reaching a service rather than about what the
    /// service returns.
    fn is_about_reaching(&self) -> bool {
        false
    }

    /// Updates the tally if the observation concerns this assumption.
    fn observe(&mut self, seen: &Observation<'_>, tally: &mut Tally);

    /// Returns the verdict on all observations so far.
    fn verdict(&self, tally: &Tally) -> Verdict {
        tally.verdict()
    }

    /// Formats the observations for the report.
    fn saw(&self, tally: &Tally) -> String {
        tally.saw()
    }
}

/// The counts and samples of one assumption.
#[derive(Default)]
pub(super) struct Tally {
    held: u64,
    broken: u64,
    values: BTreeMap<String, u64>,
    /// Number of observed values that are not in `values` because it already has [`VALUES_MAX`].
    further: u64,
    /// The first problem.
    problem: Option<String>,
    samples: Vec<Sample>,
}

impl Tally {
    /// Counts an observation in which the assumption held.
    pub(super) fn holds(&mut self) {
        self.held += 1;
    }

    /// Counts an observation in which the assumption held, and the observed value.
    pub(super) fn holds_with(&mut self, value: impl Into<String>) {
        self.held += 1;
        self.note(value);
    }

    /// Counts a value without judging it.
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

    /// Counts an observation in which the assumption did not hold, and keeps a sample if there is
    /// room.
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

    /// Returns the number of observations in which the assumption held.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Returns the number of observations in which the assumption did not hold.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Returns the number of observations that tested the assumption.
    pub(super) fn seen(&self) -> u64 {
        self.held + self.broken
    }

    pub(super) fn values(&self) -> &BTreeMap<String, u64> {
        &self.values
    }

    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// Returns the default verdict: a single failure breaks the assumption.
    pub(super) fn verdict(&self) -> Verdict {
        match (self.broken, self.held) {
            (0, 0) => Verdict::NotSeen,
            (0, _) => Verdict::Ok,
            _ => Verdict::Broken,
        }
    }

    /// Formats the first problem, then the most frequent values.
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

    /// Returns the samples, labelled with the name of their assumption.
    pub(super) fn into_samples(self, name: &'static str) -> impl Iterator<Item = Sample> {
        self.samples.into_iter().map(move |sample| Sample { assumption: name, ..sample })
    }
}
