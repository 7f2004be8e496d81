//! The machine and its disk, and the CPU time of processes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

/// Ticks per second in `/proc`, which Linux fixes at 100 for user space.
const TICKS_PER_SECOND: f64 = 100.0;

/// Number of consecutive syncs that measure the disk, unless they take too long, and the size of
/// each write in bytes.
const SYNC_COUNT: u64 = 2_000;
const SYNCS_MAX: Duration = Duration::from_secs(2);
const SYNC_BYTES: usize = 512;

/// The processes whose CPU time to read.
#[derive(Clone, Copy)]
pub(crate) enum CpuClock<'a> {
    /// This process.
    Own,
    /// A thread of this process.
    OwnThread(Pid),
    /// The children of this process that have ended.
    EndedChildren,
    /// These processes and all their descendants.
    Trees(&'a [u32]),
}

/// Figures from `/proc/PID/stat`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct ProcessTimes {
    parent: u32,
    own_seconds: f64,
    ended_children_seconds: f64,
}

impl ProcessTimes {
    fn parse(stat: &str) -> Option<Self> {
        // The name is in parentheses and may contain anything; the numbers follow it.
        let (_, numbers) = stat.rsplit_once(')')?;
        let number = |index| numbers.split_whitespace().nth(index);
        let seconds = |index| Some(number(index)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        Some(Self {
            parent: number(1)?.parse().ok()?,
            own_seconds: seconds(11)? + seconds(12)?,
            ended_children_seconds: seconds(13)? + seconds(14)?,
        })
    }

    fn read(process: &str) -> anyhow::Result<Self> {
        let path = format!("/proc/{process}/stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
        Self::parse(&stat).with_context(|| format!("{path} has no processor times"))
    }
}

/// Returns the CPU time of these processes in seconds, including all threads.
pub(crate) fn cpu_seconds(clock: CpuClock<'_>) -> anyhow::Result<f64> {
    match clock {
        CpuClock::Own => Ok(ProcessTimes::read("self")?.own_seconds),
        CpuClock::OwnThread(id) => Ok(ProcessTimes::read(&format!("self/task/{id}"))?.own_seconds),
        CpuClock::EndedChildren => Ok(ProcessTimes::read("self")?.ended_children_seconds),
        CpuClock::Trees(roots) => trees_cpu_seconds(roots),
    }
}

fn trees_cpu_seconds(roots: &[u32]) -> anyhow::Result<f64> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir("/proc").context("failed to read /proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let Ok(pid) = name.parse::<u32>() else { continue };
        // A process may end after it was listed.
        let Ok(times) = ProcessTimes::read(&name) else { continue };
        all.insert(pid, times);
    }
    for root in roots {
        ensure!(all.contains_key(root), "process {root} has ended");
    }
    let belongs = |mut pid: u32| {
        while let Some(times) = all.get(&pid) {
            if roots.contains(&pid) {
                return true;
            }
            pid = times.parent;
        }
        false
    };
    let members = all.iter().filter(|&(&pid, _)| belongs(pid));
    Ok(members.map(|(_, times)| times.own_seconds + times.ended_children_seconds).sum())
}

/// Returns how often the threads of these processes have been switched out, to wait or for another
/// thread. Threads that have ended do not count.
pub(crate) fn context_switches(pids: &[u32]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/task");
        for thread in fs::read_dir(&path).with_context(|| format!("failed to read {path}"))? {
            // A thread may end after it was listed.
            let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
            sum += switches_of(&status);
        }
    }
    Ok(sum)
}

/// Sums `voluntary_ctxt_switches` and `nonvoluntary_ctxt_switches` of a thread's status.
fn switches_of(status: &str) -> u64 {
    let lines = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    lines.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

/// Returns the resident memory of a process.
pub(crate) fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("{path} has no resident memory"))? * 1024)
}

/// Raises this process's limit of open files to the maximum that the system allows.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        eprintln!("this process may have {:?} open files at most: {error}", limit.current);
    }
}

/// Latency of writing 512 bytes to disk, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct SyncTimes {
    /// The median of consecutive syncs.
    pub(crate) p50: f64,
    /// The 99th percentile of consecutive syncs.
    pub(crate) p99: f64,
    /// p50, p99 and p99.9 of syncs that are due at half of the highest rate, each counted from when
    /// it was due.
    pub(crate) open_loop: [f64; 3],
    /// That rate, in syncs per second.
    pub(crate) open_loop_rate: f64,
}

/// A file on the disk under test, removed on drop.
struct SyncFile {
    path: PathBuf,
    file: File,
    offset: u64,
}

impl SyncFile {
    const LENGTH: u64 = 1 << 20;

    fn make(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("sync-probe");
        let file =
            File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
        let file = Self { path, file, offset: 0 };
        file.file.write_all_at(&vec![0; usize::try_from(Self::LENGTH)?], 0)?;
        file.file.sync_all()?;
        Ok(file)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.offset = (self.offset + SYNC_BYTES as u64) % Self::LENGTH;
        self.file.write_all_at(&[7; SYNC_BYTES], self.offset)?;
        self.file.sync_data()
    }
}

impl Drop for SyncFile {
    fn drop(&mut self) {
        // A leftover file is removed with the scratch folder.
        let _ = fs::remove_file(&self.path);
    }
}

/// Measures the disk alone: consecutive syncs, and then an open loop of this duration.
pub(crate) fn sync_times(folder: &Path, open_loop: Duration) -> anyhow::Result<SyncTimes> {
    let mut file = SyncFile::make(folder)?;
    let mut taken_ns = Histogram::<u64>::new(3)?;
    let all_began = Instant::now();
    while taken_ns.len() < SYNC_COUNT && all_began.elapsed() < SYNCS_MAX {
        let began = Instant::now();
        file.sync()?;
        taken_ns.record(u64::try_from(began.elapsed().as_nanos())?)?;
    }
    let interval = all_began.elapsed() / u32::try_from(taken_ns.len())? * 2;
    let quantile_us = |taken_ns: &Histogram<u64>, quantile| {
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let nanos = taken_ns.value_at_quantile(quantile) as f64;
        nanos / 1e3
    };
    let [p50, p99] = [0.5, 0.99].map(|quantile| quantile_us(&taken_ns, quantile));
    let taken_ns = paced_syncs(&mut file, interval, Instant::now() + open_loop)?;
    let open_loop = [0.5, 0.99, 0.999].map(|quantile| quantile_us(&taken_ns, quantile));
    Ok(SyncTimes { p50, p99, open_loop, open_loop_rate: 1.0 / interval.as_secs_f64() })
}

/// Measures syncs at a fixed rate. Returns their delays in nanoseconds.
pub(crate) fn sync_delays_ns(
    folder: &Path,
    interval: Duration,
    duration: Duration,
) -> anyhow::Result<Histogram<u64>> {
    paced_syncs(&mut SyncFile::make(folder)?, interval, Instant::now() + duration)
}

fn paced_syncs(
    file: &mut SyncFile,
    interval: Duration,
    end: Instant,
) -> anyhow::Result<Histogram<u64>> {
    let mut taken_ns = Histogram::new(3)?;
    let mut due = Instant::now();
    while due < end {
        // A sync counts from when it was due only if the previous one took too long: oversleeping
        // is not the disk's fault.
        let is_late = Instant::now() >= due;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let from = if is_late { due } else { Instant::now() };
        file.sync()?;
        taken_ns.record(u64::try_from(from.elapsed().as_nanos())?)?;
        due += interval;
    }
    Ok(taken_ns)
}

/// Returns the type of the filesystem that holds this folder. Fails if it is in memory, where a
/// sync does nothing.
pub(crate) fn disk_filesystem(folder: &Path) -> anyhow::Result<String> {
    let folder = folder.canonicalize().with_context(|| format!("no {}", folder.display()))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("failed to read the mounts")?;
    let kind = filesystem(&mounts, &folder).context("the folder is on no known filesystem")?;
    ensure!(
        !["tmpfs", "ramfs"].contains(&kind),
        "{} is in memory ({kind}), where a sync does nothing: name a folder on a disk with \
         --scratch",
        folder.display()
    );
    Ok(kind.to_owned())
}

/// Returns the type of the innermost mount that contains a folder. Of two mounts at one place, the
/// later covers the earlier.
fn filesystem<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let place = Path::new(mount.split(' ').nth(4)?);
        folder.starts_with(place).then_some((place.components().count(), kind.split(' ').next()?))
    });
    mounts.max_by_key(|&(depth, _)| depth).map(|(_, kind)| kind)
}

/// Describes the machine and the build, one line each. `filesystem` is that of the scratch folder.
pub(crate) fn description(filesystem: String) -> Vec<(&'static str, String)> {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or("unknown");
    vec![
        ("processor", format!("{model}, {cores} cores")),
        ("kernel", format!("Linux {}", kernel.trim())),
        ("filesystem", filesystem),
        ("load before the run", format!("{load} (average of a minute)")),
        ("compiler", first_line("rustc", &["--version"])),
        ("build of the generator", build().to_owned()),
        ("commit of the checkout", first_line("git", &COMMIT)),
    ]
}

/// Arguments for git that name the commit of this checkout from any working directory, with
/// `-dirty` if the build may differ from it.
const COMMIT: [&str; 8] = [
    "-C",
    env!("CARGO_MANIFEST_DIR"),
    "describe",
    "--always",
    "--dirty",
    "--abbrev=12",
    "--exclude",
    "*",
];

const fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug: not a measurement" } else { "release" }
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::process::Stdio;

    use super::*;

    #[test]
    fn the_innermost_mount_determines_the_filesystem() {
        const MOUNTS: &str = "\
            22 1 8:1 / / rw,relatime - ext4 /dev/vda rw\n\
            23 22 0:5 / /tmp rw shared:4 master:1 - xfs /dev/vdb rw\n\
            24 22 0:6 / /tmp rw - tmpfs tmpfs rw\n\
            25 24 0:7 / /tmp/deep/disk rw - btrfs /dev/vdc rw\n";
        for (folder, expected) in [
            ("/home", "ext4"),
            ("/tmp", "tmpfs"),
            ("/tmpfolder", "ext4"),
            ("/tmp/deep", "tmpfs"),
            ("/tmp/deep/disk/a", "btrfs"),
        ] {
            assert_eq!(filesystem(MOUNTS, Path::new(folder)), Some(expected), "{folder}");
        }
        assert_eq!(filesystem("", Path::new("/")), None);
    }

    #[test]
    fn processor_time_rises_with_work() {
        let before = cpu_seconds(CpuClock::Own).unwrap();
        let mut sum = 0_u64;
        while cpu_seconds(CpuClock::Own).unwrap() <= before {
            sum = (0..100_000).fold(sum, |sum: u64, value| sum.wrapping_mul(31) ^ value);
        }
        std::hint::black_box(sum);
        let pid = std::process::id();
        assert!(cpu_seconds(CpuClock::Trees(&[pid])).unwrap() > before);
        assert!(cpu_seconds(CpuClock::Trees(&[u32::MAX])).is_err());
    }

    #[test]
    fn both_kinds_of_context_switches_count() {
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t40\nnonvoluntary_ctxt_switches:\t2\n";
        assert_eq!(switches_of(status), 42);
        assert_eq!(switches_of("Name:\tx\n"), 0);
        let own = [std::process::id()];
        let before = context_switches(&own).unwrap();
        while context_switches(&own).unwrap() == before {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    #[test]
    fn the_fields_after_a_process_name_are_parsed() {
        let stat = "17 (a) b (c) S 5 17 17 0 -1 4194304 100 0 0 0 150 50 25 75 20 0 1 0 9 9 9";
        let expected = ProcessTimes { parent: 5, own_seconds: 2.0, ended_children_seconds: 1.0 };
        assert_eq!(ProcessTimes::parse(stat), Some(expected));
        assert_eq!(ProcessTimes::parse("17 (a) S 5"), None);
    }

    #[test]
    fn cpu_time_of_children_counts_towards_their_root() {
        let mut child = Command::new("sh")
            .args(["-c", "while :; do :; done & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut looper = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut looper).unwrap();
        while cpu_seconds(CpuClock::Trees(&[child.id()])).unwrap() < 0.05 {
            std::thread::yield_now();
        }
        // The loop is a child of the shell, and only it uses CPU time.
        let own = ProcessTimes::read(&child.id().to_string()).unwrap().own_seconds;
        paperbourse_test_support::process::kill("-KILL", looper.trim()).status().unwrap();
        child.wait().unwrap();
        assert!(own < 0.05, "{own}");
    }
}
