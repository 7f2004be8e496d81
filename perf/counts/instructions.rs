//! Instructions per operation: valgrind runs the operation in a child process on a simulated
//! processor and counts them.

use std::env;
use std::process::Command;

use super::operations::{OPERATIONS, TIMES_MAX};
use super::table::Count;

/// The unit of the counts.
pub(crate) const UNIT: &str = "instructions";

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
        let instructions = run(name, 2 * times) - run(name, times);
        Count::new(name, UNIT, instructions / f64::from(u32::try_from(times).expect("few")))
    };
    OPERATIONS.into_iter().map(count).collect()
}

/// The instructions of a whole run.
fn run(operation: &str, times: usize) -> f64 {
    let program = env::current_exe().expect("this program's file");
    let output = Command::new(VALGRIND)
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["run", operation, &times.to_string()])
        .output()
        .expect("valgrind runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{operation}: {text}");
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.unwrap_or_else(|| panic!("valgrind has not counted: {text}"));
    collected.trim().parse().expect("a number of instructions")
}
