//! The process's resources, as reported by the system and the allocator.

use std::fs;
use std::sync::LazyLock;

use rustix::process::{Resource, getrlimit};

use crate::allocator;

/// The resolution of process times on Linux, which does not depend on the kernel's own tick rate.
const TICKS_PER_SECOND: f64 = 100.0;

/// A reading of the process's resources. Fields are `None` if the system does not report them.
#[derive(Clone, Copy, Default, Debug)]
pub struct Process {
    /// Processor time of all threads, in seconds.
    pub cpu_seconds: Option<f64>,
    /// Resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// Memory allocated and not freed, in bytes.
    pub in_use_bytes: Option<u64>,
    /// When the process started, in seconds since the Unix epoch.
    pub start_seconds: Option<f64>,
    /// Number of open file descriptors.
    pub open_files: Option<u64>,
    /// The limit on open file descriptors.
    pub open_files_max: Option<u64>,
}

/// The fields of `/proc/self/stat` that are used.
struct Stat {
    cpu_ticks: u64,
    start_ticks: u64,
}

impl Process {
    /// Reads the system's figures. May take milliseconds if many files are open.
    pub fn read() -> Self {
        let stat = read_stat();
        Self {
            cpu_seconds: stat.map(|stat| seconds(stat.cpu_ticks)),
            resident_bytes: resident_bytes(),
            in_use_bytes: allocator::in_use_bytes(),
            start_seconds: *START_SECONDS,
            open_files: open_files(),
            open_files_max: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Returns the process's resident memory, in bytes.
pub fn resident_bytes() -> Option<u64> {
    kilobytes(&fs::read_to_string("/proc/self/status").ok()?, "VmRSS:")
}

/// Parses a line of a `/proc` file, such as `VmRSS: 12 kB`, into bytes.
pub fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    let count: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
    count.checked_mul(1024)
}

/// When the process started, in seconds since the Unix epoch. Read once: it never changes, and the
/// file with the boot time is long on a large machine.
static START_SECONDS: LazyLock<Option<f64>> = LazyLock::new(|| {
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + seconds(read_stat()?.start_ticks))
});

fn read_stat() -> Option<Stat> {
    Stat::parse(&fs::read_to_string("/proc/self/stat").ok()?)
}

impl Stat {
    /// Parses `/proc/self/stat`; see `proc_pid_stat(5)`. Fields are numbered from 1. The second is
    /// the program's name, in parentheses, which may contain any character.
    fn parse(text: &str) -> Option<Self> {
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self { cpu_ticks: field(14)?.checked_add(field(15)?)?, start_ticks: field(22)? })
    }
}

#[expect(clippy::cast_precision_loss, reason = "only the displayed value is rounded")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS_PER_SECOND
}

/// Returns the number of open file descriptors, not counting the one used to list them.
fn open_files() -> Option<u64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    Some(count.saturating_sub(1) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_may_contain_anything() {
        let fields = "S 1 1 1 0 -1 4194560 9 0 0 0 250 50 0 0 20 0 4 0 1234 10485760 700 1 1";
        for name in ["paperbourse", ") R 9 9 (", "a b"] {
            let stat = Stat::parse(&format!("77 ({name}) {fields}\n")).unwrap();
            assert_eq!((stat.cpu_ticks, stat.start_ticks), (300, 1234), "{name}");
        }
        for text in ["", "77 (x", "77 (x) S 1", "77 (x) S 1 1 1 0 -1 4 9 0 0 0 -1 5"] {
            assert!(Stat::parse(text).is_none(), "{text}");
        }
    }

    #[test]
    fn kernel_lines_are_read_as_bytes() {
        let status = "Name:\tpaperbourse\nVmHWM:\t    9999 kB\nVmRSS:\t    1234 kB\n";
        assert_eq!(kilobytes(status, "VmRSS:"), Some(1234 * 1024));
        assert_eq!(kilobytes("VmRSS:\t x kB", "VmRSS:"), None);
        assert_eq!(kilobytes(status, "VmSwap:"), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_reports_this_process() {
        let process = Process::read();
        assert!(process.resident_bytes.unwrap() > 1 << 20);
        assert!(process.open_files.unwrap() >= 3 && process.open_files < process.open_files_max);
        assert!(process.cpu_seconds.unwrap() < 1e6);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - process.start_seconds.unwrap();
        assert!((-2.0..86_400.0).contains(&age), "started {age} s ago");
    }
}
