//! Instructions per operation: valgrind runs the operation in a child process on a simulated
//! processor and counts them.
//!
//! That processor lacks the instructions for SHA-256 that today's have, so the crypto library
//! compresses blocks in software, some fifteen times as many instructions. These are counted apart.

use std::collections::HashMap;
use std::env;
use std::ops::Sub;
use std::process::Command;

use tempfile::NamedTempFile;

use super::operations::{OPERATIONS, TIMES_MAX};
use super::table::Count;

/// The unit of the counts.
pub(crate) const UNIT: &str = "instructions";

/// The unit of those that would be far fewer on a real processor.
const SHA256_UNIT: &str = "SHA-256 instructions";

/// What the crypto library's functions that compress blocks have in their names.
const SHA256_FUNCTIONS: &str = "sha256_block_data_order";

const VALGRIND: &str = "valgrind";

/// Whether valgrind is installed.
pub(crate) fn is_possible() -> bool {
    Command::new(VALGRIND).arg("--version").output().is_ok()
}

/// Counts for each operation: the difference between two runs that repeat it a different number of
/// times.
pub(crate) fn count() -> Vec<Count> {
    let times = TIMES_MAX / 2;
    let count = |(name, _)| {
        let Instructions { sha256, others } = run(name, 2 * times) - run(name, times);
        let each = |(unit, sum): (_, i64)| {
            let sum = f64::from(i32::try_from(sum).expect("a moderate number"));
            Count::new(name, unit, sum / f64::from(u32::try_from(times).expect("few")))
        };
        let sha256 = Some((SHA256_UNIT, sha256)).filter(|(_, sum)| *sum > 0);
        [(UNIT, others)].into_iter().chain(sha256).map(each)
    };
    OPERATIONS.into_iter().flat_map(count).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instructions {
    sha256: i64,
    others: i64,
}

impl Sub for Instructions {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { sha256: self.sha256 - other.sha256, others: self.others - other.others }
    }
}

/// The instructions of a whole run.
fn run(operation: &str, times: usize) -> Instructions {
    let program = env::current_exe().expect("this program's file");
    let profile = NamedTempFile::new().expect("a temporary file");
    let output = Command::new(VALGRIND)
        .arg("--tool=callgrind")
        .arg(format!("--callgrind-out-file={}", profile.path().display()))
        .arg(program)
        .args(["run", operation, &times.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{operation}: {text}");
    let profile = std::fs::read_to_string(profile.path()).expect("valgrind writes its profile");
    read(&profile)
}

/// Sums up a profile in callgrind's format: after the line that names a function come lines with
/// the costs of its instructions. The line after `calls=` has the cost of the functions that it
/// calls, which have lines of their own.
fn read(profile: &str) -> Instructions {
    let mut sums = Instructions { sha256: 0, others: 0 };
    // A name is written where its number occurs first.
    let mut is_sha256 = HashMap::new();
    let mut current_is_sha256 = false;
    let mut is_of_callee = false;
    for line in profile.lines() {
        if let Some(function) = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn=")) {
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            let known = is_sha256.entry(number).or_insert_with(|| name.contains(SHA256_FUNCTIONS));
            if line.starts_with("fn=") {
                current_is_sha256 = *known;
            }
        } else if line.starts_with("calls=") {
            is_of_callee = true;
        } else if line.starts_with(['+', '-', '*'])
            || line.starts_with(|c: char| c.is_ascii_digit())
        {
            let cost = line.split_once(' ').map_or("0", |(_, cost)| cost);
            let cost: i64 = cost.parse().expect("a number of instructions");
            if !std::mem::take(&mut is_of_callee) {
                *(if current_is_sha256 { &mut sums.sha256 } else { &mut sums.others }) += cost;
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_belong_to_the_function_before_them_but_for_those_of_calls() {
        let profile = "\
            version: 1\npositions: line\nevents: Ir\n\n\
            fn=(1) main\n16 400\n+3 20\ncfn=(2) aws_lc_0_1_sha256_block_data_order_avx\n\
            calls=2 50\n* 7000\n-1 5\n\n\
            fn=(2)\n50 6900\ncfn=(3) memcpy\ncalls=1 9\n* 100\n\nfn=(3)\n9 100\n";
        assert_eq!(read(profile), Instructions { sha256: 6_900, others: 525 });
    }
}
