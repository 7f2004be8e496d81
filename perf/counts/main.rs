//! Catches regressions with counts instead of times, which depend on the machine: a change that
//! makes a trade more expensive fails.
//!
//! `.ci/counts` compares with the accepted numbers in `.ci/counts.md`; `.ci/counts write` accepts
//! the new ones. `.ci/counts allocations` prints the call sites of all allocations while one order
//! is answered.
//!
//! The allocator of this program counts allocations, so the whole server runs in this process. For
//! each operation, valgrind counts instructions in a new process of this program. strace counts
//! system calls of the server's own binary. Hence the separate program, which is built without
//! test-only code.

mod allocations;
#[expect(dead_code, reason = "shared with a bench that reads the live bytes")]
mod allocator;
#[path = "../canned.rs"]
mod canned;
mod client;
mod exchange;
mod instructions;
#[path = "../market.rs"]
mod market;
mod operations;
#[path = "../../tests/http/recording.rs"]
#[expect(clippy::unwrap_used, reason = "shared with tests, which fail by panicking")]
#[expect(dead_code, reason = "only one of its markets is used here")]
mod recording;
mod server;
mod syscalls;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs};

use client::Shape;
use table::Count;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => check(),
        ["write"] => write(),
        ["allocations"] => {
            allocations::print_sites();
            ExitCode::SUCCESS
        }
        ["run", name, times] => run(name, times),
        _ => {
            eprintln!("counts [write | allocations]");
            ExitCode::from(2)
        }
    }
}

fn file() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/../.ci/counts.md").into()
}

/// Returns all counts that are possible on this machine, and the suffixes of the units that are
/// not.
fn count() -> (Vec<Count>, Vec<&'static str>) {
    let mut counts = allocations::count();
    for (shape, name) in [
        (Shape::Plain, "record of an order, no name and one level"),
        (Shape::Rich, "record of an order, two names and two levels"),
    ] {
        let bytes = u32::try_from(operations::record_of(shape).len()).expect("a short record");
        counts.push(Count::new(name, table::EXACT_UNIT, bytes.into()));
    }
    let mut skipped = Vec::new();
    if instructions::is_possible() {
        counts.extend(instructions::count());
    } else {
        skip(instructions::UNIT, "valgrind and objdump", &mut skipped);
    }
    if syscalls::is_possible() {
        counts.extend(syscalls::count());
    } else {
        skip(syscalls::UNIT, "strace", &mut skipped);
    }
    print!("{}", table::rows(&counts));
    (counts, skipped)
}

fn skip(unit: &'static str, program: &str, skipped: &mut Vec<&'static str>) {
    assert!(env::var_os("CI").is_none(), "{program} is needed");
    eprintln!("SKIPPED: {program} is not installed, so no {unit} were counted");
    skipped.push(unit);
}

fn check() -> ExitCode {
    // Without a file, no number has been accepted yet.
    let mut accepted = table::parse(&fs::read_to_string(file()).unwrap_or_default());
    let (counts, skipped) = count();
    accepted.retain(|count| !skipped.iter().any(|unit| count.unit.ends_with(unit)));
    let wrong = table::compare(&accepted, &counts);
    for line in &wrong {
        eprintln!("{line}");
    }
    if wrong.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("To accept intended changes, run `.ci/counts write`.");
    ExitCode::FAILURE
}

fn write() -> ExitCode {
    let (counts, skipped) = count();
    if !skipped.is_empty() {
        eprintln!("the file is unchanged: without {} it would be incomplete", skipped.join(", "));
        return ExitCode::FAILURE;
    }
    match fs::write(file(), table::file(&counts)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed to write {}: {error}", file().display());
            ExitCode::FAILURE
        }
    }
}

/// Runs an operation, as a child process under valgrind.
fn run(name: &str, times: &str) -> ExitCode {
    let operation = operations::OPERATIONS.into_iter().find(|(known, _)| *known == name);
    match (operation, times.parse()) {
        (Some((_, operation)), Ok(times)) if times <= operations::TIMES_MAX => {
            operation(times);
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("no such operation, or not so often: {name} {times}");
            ExitCode::from(2)
        }
    }
}
