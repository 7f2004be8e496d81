//! The identity of this build: its version, its commit, its features and its data formats.

#[cfg(test)]
mod script;

use std::fmt;
use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::Serialize;

use paperbourse_store::journal::SEGMENT_VERSION;
use paperbourse_store::snapshot::SNAPSHOT_VERSION;

/// The version of the package, such as `0.1.0`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The placeholder for an unknown commit or date where the field may not be empty.
pub const UNKNOWN: &str = "unknown";

/// The optional features, and whether this build has them.
const FEATURES: [(&str, bool); 2] =
    [("cluster", cfg!(feature = "cluster")), ("traces", cfg!(feature = "traces"))];

/// The description of this build.
pub static BUILD: LazyLock<Build> = LazyLock::new(|| {
    let known = |text: &'static str| (!text.is_empty()).then_some(text);
    Build {
        commit: known(env!("BUILD_COMMIT")),
        commit_date: known(env!("BUILD_COMMIT_DATE")),
        features: FEATURES.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| *name).collect(),
        data_format: DataFormat { journal: SEGMENT_VERSION, snapshots: SNAPSHOT_VERSION },
    }
});

/// The output of `-V`: version, commit and date.
pub static VERSION_LINE: LazyLock<String> = LazyLock::new(|| BUILD.line());

/// The output of `--version`: also the features and the data formats, one line each.
pub static VERSION_LINES: LazyLock<String> = LazyLock::new(|| BUILD.lines());

/// What a binary was made of.
#[derive(Debug, JsonSchema, Serialize)]
pub struct Build {
    /// The first 12 digits of the commit. With `+` at the end, the build has changes since; null if
    /// it is not known.
    pub commit: Option<&'static str>,
    /// The day of the commit in UTC, such as `2026-11-28`; null if it is not known.
    pub commit_date: Option<&'static str>,
    /// What was built in besides what every build has: `cluster`, `traces`.
    pub features: Vec<&'static str>,
    /// The formats in which this build writes data.
    pub data_format: DataFormat,
}

/// The formats in which a build writes data. It also reads all older ones.
#[derive(Clone, Copy, Debug, JsonSchema, Serialize)]
pub struct DataFormat {
    /// Of a segment of the journal.
    pub journal: u32,
    /// The format of a snapshot.
    pub snapshots: u32,
}

/// Human-readable, as printed by `--version`.
impl fmt::Display for DataFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "journal {}, snapshots {}", self.journal, self.snapshots)
    }
}

impl Build {
    /// Returns the commit and its date, or `unknown commit`.
    pub fn origin(&self) -> String {
        match (self.commit, self.commit_date) {
            (Some(commit), Some(date)) => format!("{commit} {date}"),
            (Some(commit), None) => commit.to_owned(),
            (None, Some(date)) => date.to_owned(),
            (None, None) => "unknown commit".to_owned(),
        }
    }

    /// Returns the names of the features, or `none`.
    pub fn features(&self) -> String {
        if self.features.is_empty() { "none".to_owned() } else { self.features.join(", ") }
    }

    fn line(&self) -> String {
        format!("{VERSION} ({})", self.origin())
    }

    fn lines(&self) -> String {
        let (line, features) = (self.line(), self.features());
        format!("{line}\nfeatures: {features}\ndata format: {}", self.data_format)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_changes_are_of_this_version_and_its_data_format() {
        let page = include_str!("../guide/changes.md");
        let newest = page.split("\n## ").nth(1).unwrap();
        assert!(newest.starts_with(VERSION), "{newest}");
        assert!(newest.contains(&format!("Data format: {}.", BUILD.data_format)), "{newest}");
    }

    #[test]
    fn a_build_is_named_in_one_line_and_in_three() {
        let formats = DataFormat { journal: 2, snapshots: 5 };
        for (commit, date, features, expected) in [
            (
                Some("0123456789ab"),
                Some("2026-11-28"),
                vec!["cluster", "traces"],
                "(0123456789ab 2026-11-28)\nfeatures: cluster, traces",
            ),
            (Some("0123456789ab+"), None, vec![], "(0123456789ab+)\nfeatures: none"),
            (None, None, vec![], "(unknown commit)\nfeatures: none"),
        ] {
            let build = Build { commit, commit_date: date, features, data_format: formats };
            let lines = build.lines();
            assert_eq!(lines, format!("{VERSION} {expected}\ndata format: journal 2, snapshots 5"));
            assert_eq!(lines.lines().next(), Some(&*build.line()));
        }
    }
}
