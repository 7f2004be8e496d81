//! What is kept in a data directory and what is removed.

use std::path::Path;

use super::*;
use crate::disk::simulated::{Faults, SimulatedDisk, When};

fn names(world: &World, directory: &str) -> Vec<String> {
    let path = world.data.path().join(directory);
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn covered_segments_are_archived_and_two_snapshots_are_kept() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    let mut upkeep = upkeep(&world.folder, u64::MAX);
    let mut numbers = Vec::new();
    for _ in 0..4 {
        world.live(&mut accounts, 200);
        numbers.push(upkeep.keep(world.closed(), &mut AtOnce).unwrap().unwrap().number);
    }
    let newest = numbers[3];
    assert_eq!(world.folder.snapshot_numbers().unwrap(), numbers[2..]);
    assert_eq!(world.folder.archived_numbers().unwrap(), (1..=newest).collect::<Vec<_>>());
    assert_eq!(world.folder.segment_numbers().unwrap()[0], newest + 1);
    // No new segment is closed: nothing to do.
    assert_eq!(upkeep.keep(world.closed(), &mut AtOnce).unwrap(), None);
    // Every order file is needed, since no order was forgotten.
    let orders = names(&world, "snapshots").into_iter().filter(|name| name.ends_with(".orders"));
    assert_eq!(orders.count(), 4);
    world.reopened();
}

#[test]
fn the_archive_is_bounded_except_for_what_the_previous_snapshot_needs() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    let mut upkeep = upkeep(&world.folder, 2 * SEGMENT_BYTES);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        world.live(&mut accounts, 400);
        numbers.push(upkeep.keep(world.closed(), &mut AtOnce).unwrap().unwrap().number);
    }
    let archived = world.folder.archived_numbers().unwrap();
    // The previous snapshot needs all segments after it.
    assert_eq!(archived, (numbers[1] + 1..=numbers[2]).collect::<Vec<_>>());
}

#[test]
fn a_start_finishes_what_a_crash_interrupted() {
    let mut world = World::new();
    world.live(&mut Vec::new(), 200);
    let number = world.fold().unwrap().number;
    // As if the process had died before anything was archived, with another snapshot half written.
    for name in ["00000000000000000099.snapshot.tmp", "00000000000000000099.orders.tmp"] {
        std::fs::write(world.path("snapshots", name), b"half").unwrap();
    }
    let world = world.reopened();
    assert_eq!(world.report.snapshot, Some(number));
    assert!(names(&world, "snapshots").iter().all(|name| !name.contains("99")));
    assert!(names(&world, "archive").is_empty());
    assert_eq!(upkeep(&world.folder, u64::MAX).keep(number, &mut AtOnce).unwrap(), None);
    assert_eq!(world.folder.archived_numbers().unwrap(), (1..=number).collect::<Vec<_>>());
}

#[test]
fn a_snapshot_is_due_by_size_or_time() {
    let mut world = World::new();
    world.close_segments(2);
    let due = |journal_bytes, interval| {
        let config =
            SnapshotConfig { journal_bytes, interval, cpu_percent: 100, archive_bytes: u64::MAX };
        let mut upkeep = Upkeep::new(world.folder.clone(), config, Arc::default());
        upkeep.keep(1, &mut AtOnce).unwrap().is_some()
    };
    let hour = Duration::from_hours(1);
    assert!(!due(SEGMENT_BYTES + 1, hour));
    assert!(due(SEGMENT_BYTES, hour));
    let mut world = World::new();
    world.close_segments(1);
    let config = SnapshotConfig {
        journal_bytes: u64::MAX,
        interval: Duration::ZERO,
        cpu_percent: 100,
        archive_bytes: u64::MAX,
    };
    let mut upkeep = Upkeep::new(world.folder.clone(), config, Arc::default());
    assert_eq!(upkeep.keep(1, &mut AtOnce).unwrap().map(|report| report.number), Some(1));
}

/// A fold's memory is bounded, however long the journal is.
#[test]
fn a_long_journal_is_folded_into_several_snapshots() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    while world.closed() < 18 {
        world.live(&mut accounts, 100);
    }
    let mut upkeep = upkeep(&world.folder, u64::MAX);
    let mut numbers = Vec::new();
    while let Some(report) = upkeep.keep(18, &mut AtOnce).unwrap() {
        numbers.push(report.number);
    }
    assert_eq!(numbers, [16, 18]);
    world.reopened();
}

/// Stops after a number of steps.
struct StopsAfter(u32);

impl Pace for StopsAfter {
    fn step(&mut self) -> Result<(), Stopped> {
        self.0 = self.0.checked_sub(1).ok_or(Stopped)?;
        Ok(())
    }
}

#[test]
fn a_stopped_fold_leaves_no_files() {
    let mut world = World::new();
    world.live(&mut Vec::new(), 200);
    for steps in [0, 1, 5, 20, 60] {
        let error = upkeep(&world.folder, 0).keep(world.closed(), &mut StopsAfter(steps));
        assert!(matches!(error, Err(FoldError::Stopped(_))), "{steps} steps");
        assert!(names(&world, "snapshots").is_empty(), "{steps} steps");
    }
    world.fold().unwrap();
}

/// A copy of the data directory on a simulated disk.
fn simulated(world: &World) -> SimulatedDisk {
    let simulated = SimulatedDisk::new(1);
    let disk = Disk::Simulated(simulated.clone());
    for directory in ["journal", "snapshots", "archive"] {
        let path = Path::new("/data").join(directory);
        disk.create_directory(&path).unwrap();
        // The journal of this world still prepares segments: unfinished files come and go.
        for name in names(world, directory) {
            if Path::new(&name).extension().is_some_and(|extension| extension == "tmp") {
                continue;
            }
            let bytes = std::fs::read(world.path(directory, &name)).unwrap();
            let file = disk.create(&path.join(name)).unwrap();
            file.write_at(&bytes, 0).unwrap();
            file.sync_all().unwrap();
        }
        disk.sync_directory(&path).unwrap();
    }
    simulated
}

/// Whichever sync fails among the last operations, which rename the files, the next attempt
/// succeeds and its result is readable.
#[test]
fn a_failed_snapshot_is_retried() {
    const LAST_OPERATIONS: usize = 80;
    let mut world = World::new();
    let mut accounts = Vec::new();
    let mut keeper = upkeep(&world.folder, u64::MAX);
    world.live(&mut accounts, 150);
    keeper.keep(world.closed(), &mut AtOnce).unwrap().unwrap();
    world.live(&mut accounts, 150);
    let closed = world.closed();
    let at = |simulated: &SimulatedDisk| {
        let folder = Folder::new(Disk::Simulated(simulated.clone()), Path::new("/data"));
        upkeep(&folder, u64::MAX)
    };
    let undisturbed = simulated(&world);
    at(&undisturbed).keep(closed, &mut AtOnce).unwrap();
    let end = undisturbed.operations();
    let mut failed_count = 0;
    // Every sync follows the operation it is for, so trying every other operation hits each of
    // them.
    for operation in (0..=end).rev().step_by(2).take(LAST_OPERATIONS / 2) {
        let simulated = simulated(&world);
        let sync_error = When::From(operation);
        simulated.set_faults(Faults { sync_error, ..Faults::default() });
        let mut keeper = at(&simulated);
        failed_count += usize::from(keeper.keep(closed, &mut AtOnce).is_err());
        simulated.set_faults(Faults::default());
        let again = keeper.keep(closed, &mut AtOnce);
        assert!(again.is_ok(), "sync {operation} of {end}: {again:?}");
        let disk = Disk::Simulated(simulated);
        let opened = open(disk, Path::new("/data"), &config(), 2.try_into().unwrap()).unwrap();
        assert_eq!(opened.report.snapshot, Some(closed));
        assert!(opened.recovered.into_shards() == world.shards, "sync {operation} of {end}");
    }
    assert!((5..LAST_OPERATIONS / 2).contains(&failed_count), "{failed_count}");
}
