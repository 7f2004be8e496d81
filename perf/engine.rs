//! The benchmarks of the engine alone: the newest results of `cargo bench` on this machine, which
//! criterion left next to the binaries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;

use crate::report::{Goal, Part};

/// The benchmarks, with their maximum times in nanoseconds. A name that ends in a slash stands for
/// the slowest of its group.
const BOUNDS: [(&str, f64); 4] = [
    ("engine/trade: two names, two levels, fee", 400.0),
    ("engine/trade: no names, one level, fee", 200.0),
    ("engine/walk of five levels", 40.0),
    ("route/", 30.0),
];

/// The benchmark of reading a body, and the one that it must not be slower than.
const BODY: [&str; 2] = ["trade_body/read", "trade_body/serde_json_into_struct"];

/// The result of one benchmark, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
struct Estimate {
    median: f64,
    lowest: f64,
    highest: f64,
}

/// The results by name, and the age of the oldest one that is shown.
pub(crate) struct Figures {
    estimates: BTreeMap<String, Estimate>,
    age: Option<Duration>,
}

impl Figures {
    /// Reads the results in criterion's folder, which may be missing.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut figures = Self { estimates: BTreeMap::new(), age: None };
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            if let Some((name, estimate, age)) = read_result(&folder)
                && is_shown(&name)
            {
                figures.age = figures.age.max(Some(age));
                figures.estimates.insert(name, estimate);
                continue;
            }
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            folders.extend(entries.map(|entry| entry.path()).filter(|path| path.is_dir()));
        }
        figures
    }

    /// Returns criterion's default folder, next to the folder of this program.
    pub(crate) fn default_folder() -> Option<PathBuf> {
        Some(std::env::current_exe().ok()?.parent()?.with_file_name("criterion"))
    }

    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        let mut markdown = String::new();
        match self.age {
            None => markdown.push_str(
                "There are no results: `cargo bench --bench engine --bench http` makes them.\n",
            ),
            Some(age) => {
                let _ = writeln!(
                    markdown,
                    "Criterion's medians in nanoseconds, with the ends of their intervals of 95 %; \
                     measured up to {} minutes before this table.\n\n| bench | ns |\n|---|---|",
                    age.as_secs().div_ceil(60)
                );
                for (name, Estimate { median, lowest, highest }) in &self.estimates {
                    let _ =
                        writeln!(markdown, "| {name} | {median:.1} ({lowest:.1}–{highest:.1}) |");
                }
            }
        }
        Part {
            name: "engine",
            title: "The engine alone",
            markdown,
            goals: self.goals(),
            json: serde_json::json!({
                "estimates_ns": self.estimates,
                "age_seconds": self.age.map(|age| age.as_secs()),
            }),
        }
    }

    fn goals(&self) -> Vec<Goal> {
        let mut goals: Vec<Goal> = BOUNDS
            .into_iter()
            .map(|(name, bound)| {
                Goal::at_most(format!("5: {name} (ns)"), self.slowest(name), bound)
            })
            .collect();
        let [own, other] = BODY.map(|name| self.slowest(name));
        goals.push(Goal::at_most("5: reading a trade's body / serde_json", own / other, 1.0));
        goals
    }

    /// Returns the median of a benchmark, or the highest of a group; NaN if there is none.
    fn slowest(&self, name: &str) -> f64 {
        let found = self.estimates.iter().filter(|(known, _)| is_named(known, name));
        found.map(|(_, estimate)| estimate.median).fold(f64::NAN, f64::max)
    }
}

fn is_shown(name: &str) -> bool {
    BOUNDS.iter().map(|(shown, _)| shown).chain(&BODY).any(|shown| is_named(name, shown))
}

fn is_named(name: &str, shown: &str) -> bool {
    name == shown || (shown.ends_with('/') && name.starts_with(shown))
}

/// Returns the newest result in this folder, and its age.
fn read_result(folder: &Path) -> Option<(String, Estimate, Duration)> {
    let path = folder.join("new/estimates.json");
    let read = |path: &Path| -> Option<Value> {
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()
    };
    let name = read(&folder.join("new/benchmark.json"))?["full_id"].as_str()?.to_owned();
    let median = &read(&path)?["median"];
    let interval = &median["confidence_interval"];
    let estimate = Estimate {
        median: median["point_estimate"].as_f64()?,
        lowest: interval["lower_bound"].as_f64()?,
        highest: interval["upper_bound"].as_f64()?,
    };
    let modified = std::fs::metadata(&path).ok()?.modified().ok()?;
    Some((name, estimate, SystemTime::now().duration_since(modified).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leave(folder: &Path, place: &str, name: &str, median: f64) {
        let new = folder.join(place).join("new");
        std::fs::create_dir_all(&new).unwrap();
        let interval = serde_json::json!({ "lower_bound": median - 1.0, "upper_bound": 900.0 });
        let median = serde_json::json!({
            "median": { "point_estimate": median, "confidence_interval": interval },
        });
        std::fs::write(new.join("estimates.json"), median.to_string()).unwrap();
        let benchmark = serde_json::json!({ "full_id": name });
        std::fs::write(new.join("benchmark.json"), benchmark.to_string()).unwrap();
    }

    #[test]
    fn results_are_found_by_name_and_the_slowest_of_a_group_counts() {
        let folder = tempfile::tempdir().unwrap();
        leave(folder.path(), "engine/five", "engine/walk of five levels", 35.0);
        leave(folder.path(), "route/a", "route/trade", 12.0);
        leave(folder.path(), "route/b", "route/unknown", 20.0);
        leave(folder.path(), "trade_body/read", "trade_body/read", 300.0);
        leave(folder.path(), "trade_body/s", "trade_body/serde_json_into_struct", 600.0);
        leave(folder.path(), "journal/x", "journal/x", 5.0);
        let figures = Figures::read(folder.path());
        assert_eq!(figures.estimates.len(), 5);
        let measured: Vec<Value> = figures
            .goals()
            .iter()
            .map(|goal| serde_json::to_value(goal).unwrap()["measured"].clone())
            .collect();
        assert_eq!(serde_json::json!(measured), serde_json::json!([null, null, 35.0, 20.0, 0.5]));
        let markdown = figures.part().markdown;
        assert!(markdown.contains("| route/trade | 12.0 (11.0–900.0) |"), "{markdown}");
        let nothing = Figures::read(&folder.path().join("missing")).part();
        assert!(nothing.markdown.contains("cargo bench"), "{}", nothing.markdown);
    }
}
