//! Watches the memory of the process, so that the server refuses requests before the system kills
//! it.

use std::fmt;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::allocator;
use crate::shard::Room;
use crate::telemetry::{kilobytes, resident_bytes};

/// Interval between two memory checks. At the highest rate of orders, memory grows by a few
/// megabytes in between.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// The default limit, in fifths of the available memory.
const DEFAULT_FIFTHS: u64 = 4;

/// The mount point of the control groups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// The memory limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Limit {
    pub(super) bytes: u64,
    pub(super) source: Source,
}

/// The source of a memory limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    /// The operator's `--memory-limit`.
    Chosen,
    /// A share of the machine's memory.
    Machine,
    /// A share of the cgroup limit read from this file. The cgroup may belong to a systemd unit, a
    /// slice or a container.
    ControlGroup(PathBuf),
}

impl fmt::Display for Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => formatter.write_str("--memory-limit"),
            Self::Machine => formatter.write_str("80 % of the machine's memory"),
            Self::ControlGroup(path) => write!(formatter, "80 % of {}", path.display()),
        }
    }
}

/// Returns the memory limit: `chosen`, or a share of the available memory. `None` if the system
/// does not report memory use.
pub(super) fn limit(chosen: Option<u64>) -> Option<Limit> {
    resident_bytes()?;
    if let Some(bytes) = chosen {
        return Some(Limit { bytes, source: Source::Chosen });
    }
    let machine = kilobytes(&fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")?;
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Limit { bytes, source } = available(machine, Path::new(CGROUPS), &own);
    Some(Limit { bytes: bytes / 5 * DEFAULT_FIFTHS, source })
}

/// Returns the lowest limit of the machine, the process's control group and the groups that contain
/// it. `own` is the text of `/proc/self/cgroup`, in which `0::` marks the group of version 2.
fn available(machine: u64, groups: &Path, own: &str) -> Limit {
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let names = Path::new(own).components().filter(|part| matches!(part, Component::Normal(_)));
    let mut least = Limit { bytes: machine, source: Source::Machine };
    // A container sees its own group at the top, whatever name `own` gives it.
    let group = groups.join(names.collect::<PathBuf>());
    for group in group.ancestors().take_while(|group| group.starts_with(groups)) {
        let path = group.join("memory.max");
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The file holds `max` if there is no limit.
        if let Ok(bytes) = text.trim().parse()
            && bytes < least.bytes
        {
            least = Limit { bytes, source: Source::ControlGroup(path) };
        }
    }
    least
}

/// Share of the limit, in percent, above which no new socket or price stream is opened. The rest is
/// reserved for trading.
const READERS_REFUSED_PERCENT: u64 = 90;

/// Share of the limit, in percent, below which new sockets and price streams are accepted again.
/// With a single threshold, memory use that hovers around it would be logged at every check.
const READERS_ACCEPTED_PERCENT: u64 = 85;

const _: () = assert!(READERS_ACCEPTED_PERCENT < READERS_REFUSED_PERCENT);

/// Share of resident memory that counts even if it is not in use, in ninths. The allocator reuses
/// the memory that it retains, so retained memory is no reason to refuse anything until
/// fragmentation adds up: the machine has at most a quarter more than the default limit, and other
/// processes need some of that.
const RESIDENT_NINTHS: u64 = 8;

/// The memory that the process uses, in bytes.
#[derive(Clone, Copy, Debug)]
struct Usage {
    /// Bytes allocated and not freed.
    in_use: u64,
    /// Bytes that the system counts, including code, stacks and memory that the allocator retains.
    resident: u64,
}

impl Usage {
    /// Returns the current usage, or `None` if the system does not report resident memory. With
    /// another allocator, as in tests, all resident memory counts as in use.
    fn now() -> Option<Self> {
        let resident = resident_bytes()?;
        Some(Self { in_use: allocator::in_use_bytes().unwrap_or(resident), resident })
    }

    /// Returns the part of the resident memory that counts even if it is not in use.
    const fn resident_share(self) -> u64 {
        self.resident / 9 * RESIDENT_NINTHS
    }

    /// Returns the number of bytes to compare with the limit.
    fn counted(self) -> u64 {
        self.in_use.max(self.resident_share())
    }
}

/// Returns freed memory to the system, then checks whether the process is above the limit or close
/// to it.
pub(super) fn look(room: &Room, limit_bytes: u64) {
    allocator::return_freed();
    let Some(mut usage) = Usage::now() else { return };
    let accepted = limit_bytes / 100 * READERS_ACCEPTED_PERCENT;
    if usage.resident_share() > usage.in_use.max(accepted) {
        // Otherwise requests could be refused because of memory that is not in use.
        allocator::return_all_freed();
        usage = Usage::now().unwrap_or(usage);
    }
    judge(room, usage, limit_bytes);
}

fn judge(room: &Room, usage: Usage, limit_bytes: u64) {
    let counted = usage.counted();
    let (in_use, resident) = (megabytes(usage.in_use), megabytes(usage.resident));
    let limit = megabytes(limit_bytes);
    let share = |percent: u64| limit_bytes / 100 * percent;
    let was_short = !room.has_room_for_readers();
    if !was_short && counted > share(READERS_REFUSED_PERCENT) {
        room.set_short(true);
        tracing::warn!(
            in_use_megabytes = in_use,
            resident_megabytes = resident,
            limit_megabytes = limit,
            "memory is close to --memory-limit: refusing new sockets and price streams"
        );
    } else if was_short && counted < share(READERS_ACCEPTED_PERCENT) {
        room.set_short(false);
        tracing::info!(
            in_use_megabytes = in_use,
            resident_megabytes = resident,
            limit_megabytes = limit,
            "memory is no longer close to --memory-limit: accepting sockets and price streams"
        );
    }
    let is_full = counted > limit_bytes;
    if is_full != room.is_full() {
        room.set_full(is_full);
        if is_full {
            tracing::warn!(
                in_use_megabytes = in_use,
                resident_megabytes = resident,
                limit_megabytes = limit,
                "--memory-limit reached: refusing new accounts, keys, orders and comments"
            );
        } else {
            tracing::info!(
                in_use_megabytes = in_use,
                resident_megabytes = resident,
                limit_megabytes = limit,
                "memory is below --memory-limit again: accepting accounts, keys, orders and \
                 comments"
            );
        }
    }
}

/// Checks memory periodically until the process ends.
pub(super) async fn watch(room: Arc<Room>, limit_bytes: u64) {
    loop {
        look(&room, limit_bytes);
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Converts bytes to megabytes, for log lines.
pub(super) const fn megabytes(bytes: u64) -> u64 {
    bytes / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn requests_are_refused_while_memory_is_above_the_limit() {
        let room = Room::default();
        for (in_use, resident, is_full, has_room_for_readers) in [
            (900, 900, false, true),
            (1_001, 1_001, true, false),
            (1_000, 1_000, false, false),
            (850, 850, false, false),
            (849, 849, false, true),
            (900, 900, false, true),
            (901, 901, false, false),
            (900, 900, false, false),
            (1_001, 1_001, true, false),
            // Some of the memory in use was never touched.
            (1_001, 90, true, false),
            (100, 90, false, true),
            // Memory that the allocator retains counts once it far exceeds the memory in use.
            (100, 1_008, false, true),
            (100, 1_017, false, false),
            (100, 1_125, false, false),
            (100, 1_134, true, false),
            (100, 945, false, true),
        ] {
            judge(&room, Usage { in_use, resident }, 1_000);
            let found = (room.is_full(), room.has_room_for_readers());
            assert_eq!(found, (is_full, has_room_for_readers), "{in_use} of {resident}");
        }
        look(&room, u64::MAX);
        assert!(!room.is_full() && room.has_room_for_readers());
        assert!(limit(None).unwrap().bytes > resident_bytes().unwrap());
        assert_eq!(limit(Some(5)), Some(Limit { bytes: 5, source: Source::Chosen }));
    }

    #[test]
    fn the_least_of_the_machine_and_all_control_groups_counts() {
        let folder = tempfile::tempdir().unwrap();
        let groups = folder.path();
        let unit = groups.join("system.slice/paperbourse.service");
        fs::create_dir_all(&unit).unwrap();
        let own = "1:name=systemd:/other\n0::/system.slice/paperbourse.service\n";
        let in_unit = "system.slice/paperbourse.service/memory.max";
        // The limits of the unit, the slice and the container, and the limit that applies.
        for (of_unit, of_slice, of_container, own, expected) in [
            ("max", "max", None, own, (1_000, None)),
            ("2000", "max", None, own, (1_000, None)),
            ("400", "max", None, own, (400, Some(in_unit))),
            ("400", "300", None, own, (300, Some("system.slice/memory.max"))),
            ("400", "500", Some("200"), own, (200, Some("memory.max"))),
            ("400", "300", Some("500"), "0::/\n", (500, Some("memory.max"))),
            // The name of the group is not visible from inside the container.
            ("400", "300", Some("500"), "0::/docker/12ab\n", (500, Some("memory.max"))),
            (
                "400",
                "300",
                Some("500"),
                "0::/../system.slice\n",
                (300, Some("system.slice/memory.max")),
            ),
            ("400", "300", None, "5:memory:/system.slice\n", (1_000, None)),
            ("400", "300", None, "", (1_000, None)),
        ] {
            fs::write(unit.join("memory.max"), format!("{of_unit}\n")).unwrap();
            fs::write(groups.join("system.slice/memory.max"), format!("{of_slice}\n")).unwrap();
            // The topmost group of a machine has no `memory.max` file.
            let _ = fs::remove_file(groups.join("memory.max"));
            if let Some(of_container) = of_container {
                fs::write(groups.join("memory.max"), format!("{of_container}\n")).unwrap();
            }
            let Limit { bytes, source } = available(1_000, groups, own);
            let (expected_bytes, path) = expected;
            let expected = path.map_or(Source::Machine, |it| Source::ControlGroup(groups.join(it)));
            assert_eq!((bytes, source), (expected_bytes, expected), "{of_unit} {of_slice} {own}");
        }
    }
}
