//! The report: a table of goals, then the sections of the run, as Markdown and as JSON.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};

use crate::spread::Spread;

/// A goal and the measured value.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(crate) struct Goal {
    /// The measured quantity and its conditions.
    what: String,
    /// The measured values, whose median decides.
    #[serde(serialize_with = "serialize_median")]
    measured: Spread,
    bound: f64,
    is_least: bool,
    /// Whether the load generator was the bottleneck, so that the figure is not the server's.
    is_bound_by_load: bool,
}

/// One section of the report.
pub(crate) struct Part {
    /// The name on the command line and in the JSON.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Tables and notes.
    pub(crate) markdown: String,
    pub(crate) goals: Vec<Goal>,
    pub(crate) json: Value,
}

/// All results of a run.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) parts: Vec<Part>,
    /// The parts that were skipped, each with the reason.
    pub(crate) skipped: Vec<String>,
    /// The machine, the build and the shape of the load.
    pub(crate) description: Vec<(&'static str, String)>,
}

impl Goal {
    /// Creates a goal that the value is at least `bound`.
    pub(crate) fn at_least(
        what: impl Into<String>,
        measured: impl Into<Spread>,
        bound: f64,
    ) -> Self {
        Self::new(what.into(), measured.into(), bound, true)
    }

    /// Creates a goal that the value is at most `bound`.
    pub(crate) fn at_most(
        what: impl Into<String>,
        measured: impl Into<Spread>,
        bound: f64,
    ) -> Self {
        Self::new(what.into(), measured.into(), bound, false)
    }

    fn new(what: String, measured: Spread, bound: f64, is_least: bool) -> Self {
        Self { what, measured, bound, is_least, is_bound_by_load: false }
    }

    /// Rejects the figure if the load generator was the bottleneck: a faster server would hardly
    /// show.
    pub(crate) fn bound_by_load(self, is_bound_by_load: bool) -> Self {
        Self { is_bound_by_load, ..self }
    }

    /// Whether the median meets the bound.
    fn holds(&self) -> bool {
        let median = self.measured.median;
        if self.is_least { median >= self.bound } else { median <= self.bound }
    }

    /// Formats the verdict for the table.
    fn verdict(&self) -> String {
        if self.measured.median.is_nan() {
            "not measured".to_owned()
        } else if self.is_bound_by_load {
            "not met: the load generator was the bottleneck".to_owned()
        } else if self.holds() {
            "holds".to_owned()
        } else {
            format!("missed by {:.0} %", (self.measured.median / self.bound - 1.0).abs() * 100.0)
        }
    }
}

impl Report {
    /// Formats the report for people.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        if self.parts.iter().any(|part| !part.goals.is_empty()) {
            out.push_str("| what | measured | goal | |\n|---|---|---|---|\n");
        }
        for goal in self.parts.iter().flat_map(|part| &part.goals) {
            let sign = if goal.is_least { "≥" } else { "≤" };
            let (measured, bound) = (goal.measured.cell_of(number), number(goal.bound));
            let measured = if measured.is_empty() { "–".to_owned() } else { measured };
            let (what, verdict) = (&goal.what, goal.verdict());
            let _ = writeln!(out, "| {what} | {measured} | {sign} {bound} | {verdict} |");
        }
        for part in &self.parts {
            let _ = write!(out, "\n### {}\n\n{}", part.title, part.markdown);
        }
        if !self.skipped.is_empty() {
            out.push_str("\n### Left out\n\n");
            for reason in &self.skipped {
                let _ = writeln!(out, "- {reason}");
            }
        }
        out.push_str("\n### The machine and the run\n\n");
        for (name, value) in &self.description {
            let _ = writeln!(out, "- {name}: {value}");
        }
        out
    }

    /// Formats the report for scripts.
    pub(crate) fn json(&self) -> String {
        let machine: serde_json::Map<_, _> = self
            .description
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
            .collect();
        let goals: Vec<Value> = self
            .parts
            .iter()
            .flat_map(|part| &part.goals)
            .map(|goal| json!({ "goal": goal, "verdict": goal.verdict() }))
            .collect();
        let parts: serde_json::Map<_, _> =
            self.parts.iter().map(|part| (part.name.to_owned(), part.json.clone())).collect();
        let report =
            json!({ "machine": machine, "goals": goals, "parts": parts, "skipped": self.skipped });
        format!("{report:#}\n")
    }

    /// Prints the report, and writes the JSON if requested.
    pub(crate) fn publish(&self, json: Option<&std::path::Path>) -> anyhow::Result<()> {
        use anyhow::Context as _;
        print!("{}", self.markdown());
        if let Some(path) = json {
            std::fs::write(path, self.json())
                .with_context(|| format!("failed to write {}", path.display()))?;
        }
        Ok(())
    }
}

fn serialize_median<S: serde::Serializer>(
    spread: &Spread,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(spread.median)
}

/// Formats a figure with about three digits.
fn number(value: f64) -> String {
    if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.2}");
        text.strip_suffix(".00").map_or(text.clone(), str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_holds_or_shows_how_far_it_was_missed() {
        for (goal, verdict) in [
            (Goal::at_least("a", 1.0, 1.0), "holds"),
            (Goal::at_least("a", 0.5, 1.0), "missed by 50 %"),
            (Goal::at_most("a", 4.0, 4.0), "holds"),
            (Goal::at_most("a", 6.0, 4.0), "missed by 50 %"),
            (
                Goal::at_most("a", 4.0, 4.0).bound_by_load(true),
                "not met: the load generator was the bottleneck",
            ),
            (Goal::at_least("a", f64::NAN, 1.0), "not measured"),
            (Goal::at_most("a", f64::NAN, 1.0), "not measured"),
        ] {
            assert_eq!(goal.verdict(), verdict, "{goal:?}");
        }
    }

    #[test]
    fn a_report_starts_with_the_goals() {
        let part = Part {
            name: "open",
            title: "Open loop",
            markdown: "a table\n".into(),
            goals: vec![Goal::at_most("p99 / p50", 3.456, 4.0)],
            json: json!([1]),
        };
        let report = Report {
            parts: vec![part],
            skipped: vec!["redis: there is no redis-server".into()],
            description: vec![("kernel", "Linux".into())],
        };
        assert_eq!(
            report.markdown(),
            "| what | measured | goal | |\n|---|---|---|---|\n\
             | p99 / p50 | 3.46 | ≤ 4 | holds |\n\
             \n### Open loop\n\na table\n\
             \n### Left out\n\n- redis: there is no redis-server\n\
             \n### The machine and the run\n\n- kernel: Linux\n"
        );
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["goals"][0]["verdict"], "holds");
        assert_eq!(json["parts"]["open"], json!([1]));
        assert_eq!(json["machine"]["kernel"], "Linux");
    }
}
