//! The accepted numbers, in a readable file, and the comparison with new ones.

use std::fmt::Write as _;

/// Maximum difference between a count and the accepted one, in percent.
const TOLERANCE_PERCENT: f64 = 2.0;

/// A unit whose numbers are exactly reproducible.
pub(crate) const EXACT_UNIT: &str = "bytes on disk";

const HEAD: &str = "\
# The cost of one operation

Counts instead of times, so that they hardly depend on the machine. `.ci/counts` counts again and
fails if a number is more than 2 % off (bytes on disk: at all) in either direction: a number that
is higher than necessary would hide the next regression. `.ci/counts write` accepts new numbers.
`perf/counts` documents what is counted and how.

| operation | unit | count |
|---|---|---:|
";

/// One row of the table.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Count {
    /// The operation that was counted.
    pub(crate) operation: String,
    /// The unit of the value.
    pub(crate) unit: String,
    pub(crate) value: f64,
}

impl Count {
    pub(crate) fn new(operation: &str, unit: &str, value: f64) -> Self {
        // Rounded as in the file.
        let value = (value * 100.0).round() / 100.0;
        Self { operation: operation.into(), unit: unit.into(), value }
    }
}

/// Formats a file with these counts.
pub(crate) fn file(counts: &[Count]) -> String {
    format!("{HEAD}{}", rows(counts))
}

/// Formats one row per count.
pub(crate) fn rows(counts: &[Count]) -> String {
    counts.iter().fold(String::new(), |mut text, Count { operation, unit, value }| {
        writeln!(text, "| {operation} | {unit} | {value} |").expect("a string takes every write");
        text
    })
}

/// Parses the counts in a file's text. Lines that are not rows are ignored.
pub(crate) fn parse(text: &str) -> Vec<Count> {
    let row = |line: &str| {
        let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
        let (operation, unit) = (cells.next()?, cells.next()?);
        Some(Count::new(operation, unit, cells.next()?.parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// Returns the differences that fail, one line each.
pub(crate) fn compare(accepted: &[Count], new: &[Count]) -> Vec<String> {
    let is_same = |a: &Count, b: &Count| a.operation == b.operation && a.unit == b.unit;
    let mut wrong = Vec::new();
    for count in new {
        let Count { operation, unit, value } = count;
        let Some(before) = accepted.iter().find(|before| is_same(before, count)) else {
            wrong.push(format!("{operation}: {value} {unit}, which is not accepted yet"));
            continue;
        };
        let percent = (value - before.value) * 100.0 / before.value;
        // Two zeros give NaN, which is no change.
        let tolerance_percent = if unit == EXACT_UNIT { 0.0 } else { TOLERANCE_PERCENT };
        if percent.is_nan() || percent.abs() <= tolerance_percent {
            continue;
        }
        let kind = if percent > 0.0 { "a regression" } else { "an improvement to accept" };
        let before = before.value;
        wrong.push(format!("{operation}: {value} {unit}, was {before} ({percent:+.1} %): {kind}"));
    }
    for count in accepted {
        if !new.iter().any(|other| is_same(other, count)) {
            wrong.push(format!("{}: its {} are no longer counted", count.operation, count.unit));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_parsed_to_the_same_counts() {
        let counts = vec![
            Count::new("trade, in memory", "allocations", 25.04),
            Count::new("record", EXACT_UNIT, 304.0),
        ];
        assert_eq!(parse(&file(&counts)), counts);
        assert_eq!(parse(HEAD), [], "the head of the table is not a row");
    }

    #[track_caller]
    fn check(unit: &str, accepted: f64, new: f64, wrong: &[&str]) {
        let [accepted, new] = [accepted, new].map(|value| [Count::new("trade", unit, value)]);
        assert_eq!(compare(&accepted, &new), wrong);
    }

    #[test]
    fn a_difference_of_two_percent_passes() {
        check("allocations", 100.0, 102.0, &[]);
        check("allocations", 100.0, 98.0, &[]);
        let more = "trade: 102.01 allocations, was 100 (+2.0 %): a regression";
        check("allocations", 100.0, 102.01, &[more]);
        let less = "trade: 97 allocations, was 100 (-3.0 %): an improvement to accept";
        check("allocations", 100.0, 97.0, &[less]);
        check("allocations", 0.0, 0.0, &[]);
        check("allocations", 0.0, 1.0, &["trade: 1 allocations, was 0 (+inf %): a regression"]);
        let byte = "trade: 305 bytes on disk, was 304 (+0.3 %): a regression";
        check(EXACT_UNIT, 304.0, 305.0, &[byte]);
    }

    #[test]
    fn new_and_missing_counts_fail() {
        let count = [Count::new("trade", "allocations", 25.0)];
        let new = "trade: 25 allocations, which is not accepted yet";
        assert_eq!(compare(&[], &count), [new]);
        let gone = "trade: its allocations are no longer counted";
        assert_eq!(compare(&count, &[]), [gone]);
    }
}
