//! What the measurement ran on: the machine, its disk, and how much processor time went where.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;

/// Ticks of the processor clock in `/proc`, which Linux fixes at 100 a second for its users.
const TICKS_PER_SECOND: f64 = 100.0;

/// Syncs that are timed to know the disk.
const SYNC_COUNT: u64 = 2_000;

/// Whose processor time.
#[derive(Clone, Copy)]
pub(crate) enum CpuClock {
    /// This process's.
    Own,
    /// Another's.
    Process(u32),
}

/// Seconds of processor time that a process has burned, its threads together.
pub(crate) fn cpu_seconds(clock: CpuClock) -> anyhow::Result<f64> {
    let path = match clock {
        CpuClock::Own => "/proc/self/stat".to_owned(),
        CpuClock::Process(pid) => format!("/proc/{pid}/stat"),
    };
    let stat = fs::read_to_string(&path).with_context(|| format!("failed to read {path}"))?;
    // The name stands in parentheses and may hold anything; the numbers come behind it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = |index| -> Option<f64> { numbers.split_whitespace().nth(index)?.parse().ok() };
    let total = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    Ok(total.with_context(|| format!("{path} has no processor times"))? / TICKS_PER_SECOND)
}

/// How long the disk takes for 512 bytes, in microseconds: half of the syncs, and all but one in a
/// hundred, stay below.
pub(crate) fn sync_us(folder: &Path) -> anyhow::Result<[f64; 2]> {
    let path = folder.join("sync-probe");
    let file = File::create(&path).with_context(|| format!("failed to make {}", path.display()))?;
    let blank = vec![0; 1 << 20];
    file.write_all_at(&blank, 0)?;
    file.sync_all()?;
    let mut taken_ns = Histogram::<u64>::new(3)?;
    for index in 0..SYNC_COUNT {
        let began = Instant::now();
        file.write_all_at(&[7; 512], index * 512 % blank.len() as u64)?;
        file.sync_data()?;
        taken_ns.record(u64::try_from(began.elapsed().as_nanos())?)?;
    }
    fs::remove_file(&path)?;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    Ok([0.5, 0.99].map(|quantile| taken_ns.value_at_quantile(quantile) as f64 / 1e3))
}

/// The type of the filesystem that holds this folder; an error when it is in memory, where a sync
/// does nothing.
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

/// The type of the mount that is nearest above a folder; of two on one place the later covers the
/// earlier.
fn filesystem<'a>(mounts: &'a str, folder: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let place = Path::new(mount.split(' ').nth(4)?);
        folder.starts_with(place).then_some((place.components().count(), kind.split(' ').next()?))
    });
    mounts.max_by_key(|&(depth, _)| depth).map(|(_, kind)| kind)
}

/// The machine and the build, in a line each. `filesystem` is that of the scratch folder.
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
        ("commit", first_line("git", &COMMIT)),
    ]
}

/// Names the commit, and says `-dirty` when what is built may differ from it.
const COMMIT: [&str; 6] = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude", "*"];

const fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug: not a measurement" } else { "release, fat LTO" }
}

fn first_line(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok();
    let text = output.filter(|output| output.status.success()).map(|output| output.stdout);
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_tells_the_filesystem() {
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
        assert!(cpu_seconds(CpuClock::Process(pid)).unwrap() > before);
    }
}
