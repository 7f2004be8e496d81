//! How many instructions one operation takes: valgrind runs it in a child process, on a processor
//! of its own making, and counts them.

use std::env;
use std::process::Command;

use super::operations::{OPERATIONS, TIMES_MAX};
use super::table::Count;

/// What is counted.
pub(crate) const UNIT: &str = "instructions";

const VALGRIND: &str = "valgrind";

/// Whether there is anything to count with.
pub(crate) fn is_possible() -> bool {
    Command::new(VALGRIND).arg("--version").output().is_ok()
}

/// Counts for each operation: the difference of two runs that differ in how often it is done.
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
    collected.trim().parse().expect("a number")
}
