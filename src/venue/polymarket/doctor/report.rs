//! The doctor's report: a human-readable table, 100 columns wide, and a JSON object for scripts.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use serde::ser::{SerializeStruct as _, Serializer};

use super::assumption::{Assumption, RestsOn, Tally, Verdict};

/// Maximum length of an assumption's name, in characters.
pub(super) const NAME_CHARACTERS_MAX: usize = 38;

/// Width of the column with the details, in characters.
const SAW_COLUMNS: usize = 33;

/// The result for one assumption.
#[derive(Serialize, Debug)]
pub struct Finding {
    /// The assumption, as a clause.
    pub assumption: &'static str,
    /// The part of the exchange that relies on the assumption.
    pub rests_on: RestsOn,
    /// Whether the assumption held, failed, or was never tested.
    pub verdict: Verdict,
    /// Number of observations that tested the assumption.
    pub seen: u64,
    /// Number of observations that contradicted the assumption.
    pub broken: u64,
    /// The first problem, in words.
    pub problem: Option<String>,
    /// The observed values and how often each occurred.
    pub values: BTreeMap<String, u64>,
    /// A human-readable summary of the observations.
    pub saw: String,
    /// Whether the assumption is about reaching a service rather than about what the service
    /// returns.
    #[serde(skip)]
    pub is_about_reaching: bool,
}

/// The cost of a doctor run.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of requests, including the upgrade to a socket.
    pub request_count: u32,
    /// Duration of the run.
    pub elapsed: Duration,
}

/// The results for all assumptions.
#[derive(Debug)]
pub struct Report {
    /// The findings, in the order of the table.
    pub findings: Vec<Finding>,
    /// The cost of the run.
    pub effort: Effort,
}

impl Finding {
    pub(super) fn of(assumption: &dyn Assumption, tally: &Tally) -> Self {
        Self {
            assumption: assumption.name(),
            rests_on: assumption.rests_on(),
            verdict: assumption.verdict(tally),
            seen: tally.seen(),
            broken: tally.broken(),
            problem: tally.problem().map(str::to_owned),
            values: tally.values().clone(),
            saw: assumption.saw(tally),
            is_about_reaching: assumption.is_about_reaching(),
        }
    }

    fn is_broken(&self) -> bool {
        self.verdict == Verdict::Broken
    }
}

impl Report {
    /// Returns whether no assumption that fills or payouts rest on is broken. Ignores assumptions
    /// about reaching a service and those without observations.
    pub fn is_sound(&self) -> bool {
        let mut about_content = self.findings.iter().filter(|it| !it.is_about_reaching);
        !about_content.any(|it| it.is_broken() && it.rests_on != RestsOn::Nothing)
    }

    /// Returns whether all services could be reached.
    pub fn is_reached(&self) -> bool {
        !self.findings.iter().any(|it| it.is_about_reaching && it.is_broken())
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.findings.iter().filter(|it| it.verdict == verdict).count()
    }
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Broken => "broken",
            Self::NotSeen => "not seen",
        }
    }
}

impl RestsOn {
    fn word(self) -> &'static str {
        match self {
            Self::Fills => "fills",
            Self::Payouts => "payouts",
            Self::Nothing => "nothing",
        }
    }
}

impl Serialize for Verdict {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl Serialize for RestsOn {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl Serialize for Report {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Report", 5)?;
        object.serialize_field("is_sound", &self.is_sound())?;
        object.serialize_field("is_reached", &self.is_reached())?;
        object.serialize_field("requests", &self.effort.request_count)?;
        let elapsed_ms = u64::try_from(self.effort.elapsed.as_millis()).unwrap_or(u64::MAX);
        object.serialize_field("elapsed_ms", &elapsed_ms)?;
        object.serialize_field("findings", &self.findings)?;
        object.end()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAME: usize = NAME_CHARACTERS_MAX;
        let head = ["verdict", "affects", "assumption", "seen", "details"];
        let [verdict, rests, name, seen, saw] = head;
        writeln!(formatter, "{verdict:8}  {rests:7}  {name:NAME$} {seen:>7}  {saw}")?;
        for finding in &self.findings {
            let (verdict, rests) = (finding.verdict.word(), finding.rests_on.word());
            let rests = if finding.rests_on == RestsOn::Nothing { "-" } else { rests };
            let (name, seen) = (finding.assumption, finding.seen);
            let mut lines = wrapped(&finding.saw, SAW_COLUMNS).into_iter();
            let first = lines.next().unwrap_or_default();
            let row = format!("{verdict:8}  {rests:7}  {name:NAME$} {seen:>7}  {first}");
            writeln!(formatter, "{}", row.trim_end())?;
            let indent = 8 + 2 + 7 + 2 + NAME + 1 + 7 + 2;
            for line in lines {
                writeln!(formatter, "{:indent$}{line}", "")?;
            }
        }
        write!(
            formatter,
            "{} ok, {} broken, {} not seen; {} requests in {} s",
            self.count(Verdict::Ok),
            self.count(Verdict::Broken),
            self.count(Verdict::NotSeen),
            self.effort.request_count,
            self.effort.elapsed.as_secs(),
        )
    }
}

/// Breaks text into lines of at most `columns` characters. Splits a word only if it is longer than
/// a line.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let length = |line: &str| line.chars().count();
        let last = lines.last_mut().expect("there is always a line");
        if !last.is_empty() && length(last) + 1 + length(word) > columns {
            lines.push(String::new());
        } else if !last.is_empty() {
            last.push(' ');
        }
        for character in word.chars() {
            if lines.last().is_some_and(|last| length(last) == columns) {
                lines.push(String::new());
            }
            lines.last_mut().expect("there is always a line").push(character);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        for (text, expected) in [
            ("", &[""][..]),
            ("a bc def", &["a bc", "def"]),
            ("ab cd", &["ab", "cd"]),
            ("a bcdefghij k", &["a", "bcde", "fghi", "j k"]),
        ] {
            assert_eq!(wrapped(text, 4), expected, "{text}");
        }
    }

    fn finding(verdict: Verdict, rests_on: RestsOn, is_about_reaching: bool) -> Finding {
        Finding {
            assumption: "the sky is above",
            rests_on,
            verdict,
            seen: 12,
            broken: 1,
            problem: None,
            values: BTreeMap::new(),
            saw: "blue ×10, grey with a little rain ×1, black ×1".to_owned(),
            is_about_reaching,
        }
    }

    #[test]
    fn only_what_fills_and_payouts_rest_on_decides() {
        let effort = Effort { request_count: 41, elapsed: Duration::from_millis(1_999) };
        for (finding, is_sound, is_reached) in [
            (finding(Verdict::Ok, RestsOn::Fills, false), true, true),
            (finding(Verdict::NotSeen, RestsOn::Fills, false), true, true),
            (finding(Verdict::Broken, RestsOn::Fills, false), false, true),
            (finding(Verdict::Broken, RestsOn::Payouts, false), false, true),
            (finding(Verdict::Broken, RestsOn::Nothing, false), true, true),
            (finding(Verdict::Broken, RestsOn::Fills, true), true, false),
        ] {
            let report = Report { findings: vec![finding], effort };
            assert_eq!((report.is_sound(), report.is_reached()), (is_sound, is_reached));
            let lines: Vec<String> = report.to_string().lines().map(str::to_owned).collect();
            assert!(lines.iter().all(|line| line.chars().count() <= 100), "{report}");
            assert!(lines[2].ends_with("   ×1, black ×1"), "{report}");
            assert!(lines[3].ends_with("not seen; 41 requests in 1 s"), "{report}");
        }
    }
}
