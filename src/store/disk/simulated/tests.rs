use std::collections::BTreeSet;

use super::super::{Disk, DiskError, DiskFile};
use super::content::SECTOR_BYTES;
use super::*;

const SEEDS: u64 = 400;

/// A disk with the directories `d` and `e`.
struct World {
    simulated: SimulatedDisk,
    disk: Disk,
}

impl World {
    fn new(seed: u64) -> Self {
        let simulated = SimulatedDisk::new(seed);
        let disk = Disk::Simulated(simulated.clone());
        disk.create_directory(Path::new("/d")).unwrap();
        disk.create_directory(Path::new("/e")).unwrap();
        Self { simulated, disk }
    }

    fn open(&self, path: &str) -> DiskFile {
        self.disk.open(Path::new(path)).unwrap()
    }

    /// Creates a file with one sector full of each of these letters and syncs it, but not its name.
    fn file(&self, path: &str, letters: &str) -> DiskFile {
        let file = self.disk.create(Path::new(path)).unwrap();
        for letter in letters.bytes() {
            file.append(&[letter; SECTOR_BYTES]).unwrap();
        }
        file.sync_data().unwrap();
        file
    }

    /// A file whose name is synced too.
    fn settled(&self, path: &str, letters: &str) -> DiskFile {
        let file = self.file(path, letters);
        self.sync(&path[..2]);
        file
    }

    fn sync(&self, directory: &str) {
        self.disk.sync_directory(Path::new(directory)).unwrap();
    }

    fn rename(&self, from: &str, to: &str) {
        self.disk.rename(Path::new(from), Path::new(to)).unwrap();
    }

    fn fail_next(&self, fault: impl FnOnce(&mut Faults, When)) {
        let mut faults = Faults::default();
        fault(&mut faults, When::From(0));
        self.simulated.set_faults(faults);
    }

    /// All files, with one letter for each sector: a dot for zeros, a question mark for a mixed
    /// sector.
    fn state(&self) -> String {
        let mut files = Vec::new();
        for directory in ["d", "e"] {
            let directory = Path::new("/").join(directory);
            for name in self.disk.names(&directory).unwrap() {
                let path = directory.join(name);
                let mut bytes = Vec::new();
                self.disk.open_read(&path).unwrap().read_into(&mut bytes, u64::MAX).unwrap();
                let letters: String = bytes.chunks(SECTOR_BYTES).map(letter).collect();
                files.push(format!("{}={letters}", path.display()));
            }
        }
        files.join(" ")
    }
}

fn letter(sector: &[u8]) -> char {
    match sector {
        [0, rest @ ..] if rest.iter().all(|&byte| byte == 0) => '.',
        [first, rest @ ..] if rest.iter().all(|byte| byte == first) => char::from(*first),
        _ => '?',
    }
}

/// The states that can survive a power loss, over many seeds.
fn outcomes(prepare: impl Fn(&World)) -> BTreeSet<String> {
    let one = |seed| {
        let world = World::new(seed);
        prepare(&world);
        world.simulated.power_loss();
        let state = world.state();
        world.simulated.power_loss();
        assert_eq!(world.state(), state, "what survived is durable");
        state
    };
    (0..SEEDS).map(one).collect()
}

#[track_caller]
fn check(prepare: impl Fn(&World), expected: &[&str]) {
    let expected: BTreeSet<String> = expected.iter().map(|&state| state.to_owned()).collect();
    assert_eq!(outcomes(prepare), expected);
}

#[test]
fn any_subset_of_unsynced_sectors_may_survive() {
    check(|world| drop(world.settled("/d/a", "xy")), &["/d/a=xy"]);
    check(
        |world| world.settled("/d/a", "xy").write_at(&[b'z'; 2 * SECTOR_BYTES], 0).unwrap(),
        &["/d/a=xy", "/d/a=zy", "/d/a=xz", "/d/a=zz"],
    );
    check(
        |world| {
            let file = world.settled("/d/a", "xy");
            file.write_at(&[b'z'; SECTOR_BYTES], 0).unwrap();
            file.sync_data().unwrap();
        },
        &["/d/a=zy"],
    );
    // Any of the writes to a sector may be the one that reached the disk.
    check(
        |world| {
            let file = world.settled("/d/a", "x");
            file.write_at(&[b'v'; SECTOR_BYTES], 0).unwrap();
            file.write_at(&[b'w'; SECTOR_BYTES], 0).unwrap();
        },
        &["/d/a=x", "/d/a=v", "/d/a=w"],
    );
}

#[test]
fn an_unsynced_length_may_be_any_in_between() {
    check(
        |world| world.settled("/d/a", "x").append(&[b'y'; 2 * SECTOR_BYTES]).unwrap(),
        &["/d/a=x", "/d/a=x.", "/d/a=xy", "/d/a=x..", "/d/a=xy.", "/d/a=x.y", "/d/a=xyy"],
    );
    check(
        |world| {
            world.settled("/d/a", "x");
            world.disk.create(Path::new("/d/a")).unwrap();
        },
        &["/d/a=x", "/d/a="],
    );
    // The zeros that fill a gap must be synced too.
    check(
        |world| {
            world.settled("/d/a", "xx");
            let file = world.disk.create(Path::new("/d/a")).unwrap();
            file.write_at(&[b'y'; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
            file.sync_data().unwrap();
        },
        &["/d/a=.y"],
    );
}

#[test]
fn a_synced_file_may_lose_its_name_and_a_synced_name_its_content() {
    check(|world| drop(world.file("/d/a", "x")), &["", "/d/a=x"]);
    check(
        |world| {
            let file = world.disk.create(Path::new("/d/a")).unwrap();
            file.append(&[b'x'; SECTOR_BYTES]).unwrap();
            world.sync("/d");
        },
        &["/d/a=", "/d/a=.", "/d/a=x"],
    );
}

#[test]
fn a_rename_is_atomic() {
    let one_and_other = |world: &World| {
        world.settled("/d/a", "x");
        world.settled("/d/b", "y");
        world.rename("/d/a", "/d/b");
    };
    check(one_and_other, &["/d/a=x /d/b=y", "/d/b=x"]);
    check(
        |world| {
            one_and_other(world);
            world.sync("/d");
        },
        &["/d/b=x"],
    );
    let across = |world: &World| {
        world.settled("/d/a", "x");
        world.rename("/d/a", "/e/a");
    };
    check(across, &["/d/a=x", "/e/a=x"]);
    for directory in ["/d", "/e"] {
        check(
            |world| {
                across(world);
                world.sync(directory);
            },
            &["/e/a=x"],
        );
    }
    check(
        |world| {
            world.file("/d/a", "x");
            world.rename("/d/a", "/d/b");
        },
        &["", "/d/a=x", "/d/b=x"],
    );
    // If a reused name survives, so does the new name of the file that had it.
    check(
        |world| {
            world.settled("/d/a", "x");
            world.rename("/d/a", "/d/b");
            world.file("/d/a", "y");
        },
        &["/d/a=x", "/d/b=x", "/d/a=y /d/b=x"],
    );
}

#[test]
fn a_removed_file_may_reappear() {
    let removed = |world: &World| {
        world.settled("/d/a", "x");
        world.disk.remove_file(Path::new("/d/a")).unwrap();
    };
    check(removed, &["", "/d/a=x"]);
    check(
        |world| {
            removed(world);
            world.sync("/d");
        },
        &[""],
    );
}

#[test]
fn removing_a_directory_removes_its_contents() {
    let world = World::new(1);
    world.disk.create_directory(Path::new("/d/one/two")).unwrap();
    world.file("/d/one/a", "x");
    world.file("/d/one/two/b", "x");
    world.disk.remove_directory(Path::new("/d/one")).unwrap();
    world.disk.remove_directory(Path::new("/d/one")).unwrap();
    assert_eq!(world.disk.names(Path::new("/d")).unwrap(), [""; 0]);
}

#[test]
fn a_failed_sync_is_never_made_up_for() {
    let failed = |world: &World| {
        let file = world.settled("/d/a", "xy");
        file.write_at(&[b'z'; SECTOR_BYTES], 0).unwrap();
        world.fail_next(|faults, when| faults.sync_error = when);
        assert_eq!(file.sync_data().unwrap_err().source.raw_os_error(), Some(EIO));
        assert_eq!(world.state(), "/d/a=zy", "readers see what was written");
        file
    };
    check(
        |world| {
            failed(world).sync_data().unwrap();
        },
        &["/d/a=xy", "/d/a=zy"],
    );
    check(
        |world| {
            let file = failed(world);
            file.write_at(&[b'z'; SECTOR_BYTES], 0).unwrap();
            file.sync_data().unwrap();
        },
        &["/d/a=zy"],
    );
    check(
        |world| {
            world.file("/d/a", "x");
            world.fail_next(|faults, when| faults.sync_error = when);
            world.disk.sync_directory(Path::new("/d")).unwrap_err();
        },
        &["", "/d/a=x"],
    );
}

#[test]
fn a_failed_write_has_written_nothing_or_a_part() {
    let states = |fault: fn(&mut Faults, When)| -> BTreeSet<String> {
        let one = |seed| {
            let world = World::new(seed);
            let file = world.settled("/d/a", "xy");
            world.fail_next(fault);
            let error = file.write_at(&[b'z'; 2 * SECTOR_BYTES], 0).unwrap_err();
            assert_eq!(error.source.raw_os_error(), Some(EIO));
            world.state()
        };
        (0..SEEDS).map(one).collect()
    };
    assert_eq!(states(|faults, when| faults.write_error = when), ["/d/a=xy".into()].into());
    let parts = ["/d/a=xy", "/d/a=zy"].map(String::from);
    assert_eq!(states(|faults, when| faults.short_write = when), parts.into());
    let torn = states(|faults, when| {
        (faults.short_write, faults.sectors_tear) = (when, true);
    });
    assert!(torn.contains("/d/a=?y") && torn.contains("/d/a=z?"), "{torn:?}");
}

#[test]
fn faults_occur_at_the_configured_rate() {
    let world = World::new(1);
    let file = world.settled("/d/a", "x");
    let write_error = When::OneIn(4);
    world.simulated.set_faults(Faults { write_error, ..Faults::default() });
    let failed = (0..1000).filter(|_| file.write_at(b"z", 0).is_err()).count();
    assert!((150..350).contains(&failed), "{failed}");
}

#[test]
fn a_full_disk_writes_what_fits() {
    let world = World::new(1);
    let file = world.settled("/d/a", "x");
    world.simulated.set_capacity(3 * SECTOR_BYTES as u64);
    let error = file.append(&[b'y'; 3 * SECTOR_BYTES]).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert_eq!(world.state(), "/d/a=xyy");
    file.write_at(&[b'z'; SECTOR_BYTES], 0).unwrap();
    assert!(world.disk.create(Path::new("/d/b")).unwrap().append(b"1").unwrap_err().is_full());
    world.disk.remove_file(Path::new("/d/a")).unwrap();
    world.file("/d/b", "123");
}

#[test]
fn handles_are_dead_after_a_crash() {
    let crashes: [fn(&SimulatedDisk); 2] = [SimulatedDisk::power_loss, SimulatedDisk::kill];
    for crash in crashes {
        let world = World::new(1);
        let file = world.settled("/d/a", "x");
        let lock = world.disk.lock(Path::new("/d/lock")).unwrap().unwrap();
        assert!(world.disk.lock(Path::new("/d/lock")).unwrap().is_none());
        crash(&world.simulated);
        for result in [
            file.write_at(b"z", 0),
            file.append(b"z"),
            file.read_at(&mut [0], 0),
            file.sync_data(),
            file.sync_all(),
            file.bytes().map(drop),
        ] {
            assert_eq!(result.unwrap_err().source.to_string(), "the power is gone");
        }
        let again = world.disk.lock(Path::new("/d/lock")).unwrap();
        drop(lock);
        assert!(again.is_some());
        assert!(world.disk.lock(Path::new("/d/lock")).unwrap().is_none(), "it is the new one's");
        drop(again);
        assert!(world.disk.lock(Path::new("/d/lock")).unwrap().is_some());
    }
}

#[test]
fn unsynced_data_may_be_lost_after_a_kill() {
    let killed = |world: &World| {
        world.settled("/d/a", "x").write_at(&[b'z'; SECTOR_BYTES], 0).unwrap();
        world.simulated.kill();
        assert_eq!(world.state(), "/d/a=z");
    };
    check(killed, &["/d/a=x", "/d/a=z"]);
    check(
        |world| {
            killed(world);
            world.open("/d/a").sync_all().unwrap();
        },
        &["/d/a=z"],
    );
}

#[test]
fn the_power_fails_at_the_scheduled_operation() {
    let mut states = BTreeSet::new();
    for seed in 0..SEEDS {
        let world = World::new(seed);
        let file = world.settled("/d/a", "x");
        let crash = When::From(world.simulated.operations() + 2);
        world.simulated.set_faults(Faults { crash, ..Faults::default() });
        assert_eq!(file.bytes().unwrap(), SECTOR_BYTES as u64);
        assert!(!world.simulated.is_crashed());
        file.write_at(&[b'z'; SECTOR_BYTES], 0).unwrap_err();
        assert!(world.simulated.is_crashed());
        file.bytes().unwrap_err();
        world.disk.remove_file(Path::new("/d/a")).unwrap_err();
        world.simulated.power_loss();
        states.insert(world.state());
    }
    let expected = ["/d/a=x", "/d/a=z"].map(String::from);
    assert_eq!(states, expected.into(), "the write may have happened, but not the removal");
}

#[test]
fn only_pages_being_written_may_fade() {
    let faded = |letter: u8, at: usize, pages_fade| {
        outcomes(|world| {
            world.simulated.set_faults(Faults { pages_fade, ..Faults::default() });
            let file = world.settled("/d/a", "xyxyxyxyz");
            file.write_at(&[letter; SECTOR_BYTES], (at * SECTOR_BYTES) as u64).unwrap();
        })
    };
    let changed = faded(b'v', 1, true);
    assert!(changed.iter().any(|state| state.starts_with("/d/a=.")), "durable data too");
    assert!(changed.iter().all(|state| state.ends_with('z')), "one page of two");
    assert_eq!(faded(b'y', 1, true), ["/d/a=xyxyxyxyz".into()].into(), "the write changes nothing");
    let whole = ["/d/a=xyxyxyxyz", "/d/a=xvxyxyxyz"].map(String::from);
    assert_eq!(faded(b'v', 1, false), whole.into());
}

#[test]
fn sectors_tear_only_if_enabled() {
    let torn = |sectors_tear| {
        outcomes(|world| {
            world.simulated.set_faults(Faults { sectors_tear, ..Faults::default() });
            world.settled("/d/a", "x").write_at(&[b'z'; SECTOR_BYTES], 0).unwrap();
        })
        .contains("/d/a=?")
    };
    assert!(torn(true));
    assert!(!torn(false));
}

#[test]
fn a_flipped_bit_stays_flipped() {
    check(
        |world| {
            world.settled("/d/a", "x");
            world.simulated.flip_bit(Path::new("/d/a"), 7, 3);
            assert_eq!(world.state(), "/d/a=?");
        },
        &["/d/a=?"],
    );
}

#[test]
fn invalid_operations_are_refused() {
    let world = World::new(1);
    let file = world.settled("/d/a", "x");
    let kind = |result: Result<(), DiskError>| result.unwrap_err().source.kind();
    let path = Path::new;
    let disk = &world.disk;
    assert_eq!(kind(file.read_at(&mut [0; 2], 511)), io::ErrorKind::UnexpectedEof);
    let read_only = disk.open_read(path("/d/a")).unwrap();
    assert_eq!(kind(read_only.append(b"z")), io::ErrorKind::PermissionDenied);
    assert_eq!(kind(disk.open(path("/d/none")).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.create(path("/none/a")).map(drop)), io::ErrorKind::NotFound);
    assert_eq!(kind(disk.open(path("/d")).map(drop)), io::ErrorKind::IsADirectory);
    assert_eq!(kind(disk.names(path("/d/a")).map(drop)), io::ErrorKind::NotADirectory);
    assert_eq!(kind(disk.rename(path("/d/a"), path("/e"))), io::ErrorKind::AlreadyExists);
    assert_eq!(kind(disk.remove_file(path("/d"))), io::ErrorKind::IsADirectory);
}
