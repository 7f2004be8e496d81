//! Instructions per operation: valgrind runs the operation in a child process on a simulated
//! processor and counts them.
//!
//! The simulated processor lacks the SHA-256 instructions of current ones, so the crypto library
//! compresses blocks in software, with some fifteen times as many instructions. These are counted
//! separately.
//!
//! *Locked instructions*, which are atomic changes and fences, make a core take exclusive ownership
//! of a cache line, or wait for its earlier writes. On an uncontended line they take some 20
//! cycles; on a line that all cores change, they limit how well the work scales. Those of the C
//! library are not counted.
//!
//! *Lines of code* are the distinct cache lines that the instructions of an operation lie on. A
//! processor's first cache for instructions holds some 500 or 1,000 of them: what takes more is
//! read anew from a slower cache each time.

use std::collections::{HashMap, HashSet};
use std::env;
use std::ops::Sub;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::LazyLock;

use tempfile::NamedTempFile;

use super::operations::{OPERATIONS, TIMES_MAX};
use super::table::Count;

/// The unit of the counts.
pub(crate) const UNIT: &str = "instructions";

/// The unit of SHA-256 instructions, which would be far fewer on a real processor.
const SHA256_UNIT: &str = "SHA-256 instructions";

/// The unit of locked instructions: atomic changes and fences.
const LOCKED_UNIT: &str = "locked instructions";

/// The unit of the cache lines that an operation's code lies on.
const LINES_UNIT: &str = "lines of code";

/// Size of a cache line, in bytes.
const LINE_BYTES: u64 = 64;

/// Operations on fewer lines than this get no such count: where the linker puts their functions
/// would change it by more than the tolerance.
const LINES_MIN: usize = 400;

/// Part of the names of the crypto library's functions that compress blocks.
const SHA256_FUNCTIONS: &str = "sha256_block_data_order";

/// Parts of the names of functions in which this program's allocator counts.
const COUNTING_FUNCTIONS: [&str; 2] = ["counts::allocator::", "__rust_"];

const VALGRIND: &str = "valgrind";

const OBJDUMP: &str = "objdump";

/// This program's file.
static PROGRAM: LazyLock<PathBuf> =
    LazyLock::new(|| env::current_exe().expect("this program's file"));

/// The addresses of the locked instructions in this program.
static LOCKED: LazyLock<HashSet<u64>> = LazyLock::new(|| {
    let output = Command::new(OBJDUMP).args(["-d", "--no-show-raw-insn"]).arg(&*PROGRAM).output();
    let output = output.expect("objdump runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    locked_addresses(&String::from_utf8_lossy(&output.stdout))
});

/// Whether valgrind and objdump are installed.
pub(crate) fn is_possible() -> bool {
    [VALGRIND, OBJDUMP].iter().all(|it| Command::new(it).arg("--version").output().is_ok())
}

/// Counts each operation, as the difference between two runs that repeat it a different number of
/// times.
pub(crate) fn count() -> Vec<Count> {
    let times = TIMES_MAX / 2;
    let count = |(name, _)| {
        let (more, fewer) = (run(name, 2 * times), run(name, times));
        let lines = line_count(&more, &fewer, i64::try_from(times).expect("few"));
        let lines = if lines < LINES_MIN { 0 } else { lines };
        let Instructions { sha256, locked, others } = more.sums - fewer.sums;
        let each = |sum: i64| {
            let sum = f64::from(i32::try_from(sum).expect("a moderate number"));
            sum / f64::from(u32::try_from(times).expect("few"))
        };
        // Rounded, since the allocator's own locked instructions are rare and would add fractions.
        let locked = each(locked).round();
        let lines = f64::from(u32::try_from(lines).expect("a moderate number"));
        let apart = [(SHA256_UNIT, each(sha256)), (LOCKED_UNIT, locked), (LINES_UNIT, lines)];
        let apart = apart.into_iter().filter(|&(_, count)| count > 0.0);
        let counts = [(UNIT, each(others))].into_iter().chain(apart);
        counts.map(move |(unit, count)| Count::new(name, unit, count))
    };
    OPERATIONS.into_iter().flat_map(count).collect()
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instructions {
    sha256: i64,
    /// Locked instructions, which are also part of `others`.
    locked: i64,
    others: i64,
}

impl Sub for Instructions {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            sha256: self.sha256 - other.sha256,
            locked: self.locked - other.locked,
            others: self.others - other.others,
        }
    }
}

/// What was executed in a run.
struct Executed {
    sums: Instructions,
    /// How often the instruction at each address was executed.
    at: HashMap<u64, i64>,
}

/// Returns the number of cache lines with an instruction that was executed in at least half of the
/// `times` by which one run repeats the operation more often than the other.
fn line_count(more: &Executed, fewer: &Executed, times: i64) -> usize {
    let each_time = more.at.iter().filter(|&(address, &count)| {
        let before = fewer.at.get(address).copied().unwrap_or(0);
        2 * (count - before) >= times
    });
    each_time.map(|(address, _)| address / LINE_BYTES).collect::<HashSet<_>>().len()
}

/// Runs an operation under valgrind and returns what the whole run executed.
fn run(operation: &str, times: usize) -> Executed {
    let profile = NamedTempFile::new().expect("a temporary file");
    let Output { status, stderr, .. } = Command::new(VALGRIND)
        .args(["--tool=callgrind", "--dump-instr=yes"])
        .args(["--compress-pos=no", "--compress-strings=no"])
        .arg(format!("--callgrind-out-file={}", profile.path().display()))
        .arg(&*PROGRAM)
        .args(["run", operation, &times.to_string()])
        .output()
        .expect("valgrind runs");
    assert!(status.success(), "{operation}: {}", String::from_utf8_lossy(&stderr));
    let profile = std::fs::read_to_string(profile.path()).expect("valgrind writes its profile");
    read(&profile, &PROGRAM.to_string_lossy(), &LOCKED)
}

/// Sums up a profile in callgrind's format. Lines that name an object file and a function are
/// followed by lines with an instruction's address, its source line and its cost. The line after
/// `calls=` has the cost of the called function, which is also listed under that function itself.
fn read(profile: &str, program: &str, locked_addresses: &HashSet<u64>) -> Executed {
    let mut at = HashMap::new();
    let mut sums = Instructions { sha256: 0, locked: 0, others: 0 };
    let mut is_program = false;
    let mut function = "";
    let mut is_of_callee = false;
    for line in profile.lines() {
        if let Some(object) = line.strip_prefix("ob=") {
            is_program = object == program;
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            is_of_callee = true;
        } else if let Some(cost) = line.strip_prefix("0x") {
            if std::mem::take(&mut is_of_callee) {
                continue;
            }
            let mut numbers = cost.split(' ');
            let address = numbers.next().map(|it| u64::from_str_radix(it, 16).expect("an address"));
            let cost = numbers.nth(1).map_or(0, |it| it.parse().expect("a number"));
            if let Some(address) = address {
                *at.entry(address).or_default() += cost;
            }
            let is_sha256 = function.contains(SHA256_FUNCTIONS);
            *(if is_sha256 { &mut sums.sha256 } else { &mut sums.others }) += cost;
            let is_counting = COUNTING_FUNCTIONS.iter().any(|part| function.contains(part));
            let is_locked = address.is_some_and(|it| locked_addresses.contains(&it));
            if is_program && is_locked && !is_counting {
                sums.locked += cost;
            }
        }
    }
    Executed { sums, at }
}

/// Returns the addresses of the locked instructions in `objdump`'s disassembly of a program.
fn locked_addresses(disassembly: &str) -> HashSet<u64> {
    let locked = |line: &str| {
        let (address, instruction) = line.split_once(":\t")?;
        // An exchange between registers touches no memory; some are only padding.
        let is_exchange = instruction.starts_with("xchg") && instruction.contains('(');
        let is_locked = instruction.starts_with("lock ") || instruction.starts_with("mfence");
        let address = u64::from_str_radix(address.trim(), 16).ok()?;
        (is_locked || is_exchange).then_some(address)
    };
    disassembly.lines().filter_map(locked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_belong_to_the_function_before_them_but_for_those_of_calls() {
        let profile = "\
            version: 1\npositions: instr line\nevents: Ir\n\n\
            ob=/lib/libc.so.6\nfl=???\nfn=memcpy\n0x20 9 100\n\n\
            ob=/bin/counts\nfl=main.rs\nfn=main\n0x10 16 400\n0x20 17 20\n\
            cfn=aws_lc_0_1_sha256_block_data_order_avx\ncalls=2 0x50 50\n0x20 19 7000\n\
            0x30 18 5\n\n\
            fn=aws_lc_0_1_sha256_block_data_order_avx\n0x50 50 6900\ncob=/lib/libc.so.6\n\
            cfn=memcpy\ncalls=1 0x20 9\n0x54 50 100\n\n\
            fn=counts::allocator::note\n0x60 3 7\n";
        let locked = HashSet::from([0x20, 0x60]);
        let expected = Instructions { sha256: 6_900, locked: 20, others: 532 };
        let executed = read(profile, "/bin/counts", &locked);
        assert_eq!(executed.sums, expected);
        let at = [(0x10, 400), (0x20, 120), (0x30, 5), (0x50, 6_900), (0x60, 7)];
        assert_eq!(executed.at, HashMap::from(at));
    }

    #[test]
    fn lines_of_code_are_those_executed_each_time() {
        let executed = |at: &[(u64, i64)]| {
            let sums = Instructions { sha256: 0, locked: 0, others: 0 };
            Executed { sums, at: at.iter().copied().collect() }
        };
        // On five lines, of which one is executed too seldom, and one as often in both runs.
        let more = [(0x00, 200), (0x3f, 200), (0x40, 150), (0x80, 149), (0xc0, 7), (0x100, 300)];
        let fewer = [(0x00, 100), (0x3f, 100), (0x40, 100), (0x80, 100), (0xc0, 7)];
        assert_eq!(line_count(&executed(&more), &executed(&fewer), 100), 3);
    }

    #[test]
    fn atomic_changes_and_fences_are_locked() {
        let disassembly = "\
            counts:     file format elf64-x86-64\n\n\
            000000000000a1a0 <_ZN6counts3fn>:\n    \
            a1a0:\tlock add %rsi,0x9029a8(%rip)        # bcdb50 <COUNT>\n    \
            a1a8:\txchg   %ax,%ax\n    a1aa:\txchg   %al,0x10(%rdi)\n    \
            a1ad:\tmfence\n    a1b0:\tmov    %rax,(%rdi)\n";
        assert_eq!(locked_addresses(disassembly), HashSet::from([0xa1a0, 0xa1aa, 0xa1ad]));
    }
}
