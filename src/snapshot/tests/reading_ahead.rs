//! Reading ahead of a start, while another process writes.

use std::sync::atomic::{AtomicBool, Ordering};

use super::ahead::Resumes;
use super::*;
use crate::journal::DataDirectory;

const THREADS: NonZeroUsize = NonZeroUsize::new(2).unwrap();

fn ahead_of(data: &TempDir) -> Ahead {
    read_ahead(Disk::System, data.path(), THREADS).unwrap()
}

fn try_open_ahead(data: &TempDir, ahead: Ahead) -> Result<Opened, RecoverError> {
    open_ahead(Disk::System, data.path(), &config(), ahead, &|_, _| {}, THREADS)
}

/// Ends the world and opens it again from what was read ahead. Returns it with the number of
/// records that were applied only then.
#[track_caller]
fn reopened(world: World, ahead: Ahead) -> (World, u64) {
    let World { data, journal, shards, turn, .. } = world;
    drop(journal);
    let opened = try_open_ahead(&data, ahead).unwrap();
    assert!(opened.resumed);
    let again = World::of(opened, data, turn);
    assert!(again.shards == shards, "the states differ");
    let records = again.report.journal.records;
    (again, records)
}

#[test]
fn what_was_read_ahead_is_not_applied_again() {
    // Turns before a snapshot, from there to reading ahead, and from there to the end.
    for (covered, before, after) in [
        (0, 0, 0),
        (0, 0, 3),
        (0, 20, 0),
        (0, 20, 3),
        (0, 20, 200),
        (0, 230, 7),
        (150, 0, 0),
        (150, 0, 9),
        (150, 110, 0),
        (150, 110, 110),
    ] {
        let mut world = World::new();
        let mut accounts = Vec::new();
        world.live(&mut accounts, covered);
        if covered > 0 {
            world.fold().unwrap();
        }
        world.live(&mut accounts, before);
        let position = world.journal.durable_place().position;
        let ahead = ahead_of(&world.data);
        world.live(&mut accounts, after);
        let since = world.journal.durable_place().position - position;
        let row = format!("{covered}, {before}, {after}");
        let (mut world, applied) = reopened(world, ahead);
        assert_eq!(applied, since, "{row}");
        world.live(&mut accounts, 5);
        world.reopened();
    }
}

#[test]
fn a_writer_does_not_disturb_a_reader() {
    let mut world = World::new();
    let data = world.data.path().to_owned();
    let is_over = AtomicBool::new(false);
    let ahead = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            loop {
                let is_last = is_over.load(Ordering::Relaxed);
                let ahead = read_ahead(Disk::System, &data, THREADS).unwrap();
                if is_last {
                    return ahead;
                }
            }
        });
        world.live(&mut Vec::new(), 300);
        is_over.store(true, Ordering::Relaxed);
        reading.join().unwrap()
    });
    let (_, applied) = reopened(world, ahead);
    assert_eq!(applied, 0);
}

#[test]
fn what_was_read_ahead_is_dropped_if_its_block_is_gone() {
    for turns in [1, 20] {
        let mut world = World::new();
        let mut accounts = Vec::new();
        world.live(&mut accounts, turns);
        let newest = world.journal.segment().unwrap();
        let path = world.path("journal", &crate::journal::segment_name(newest));
        let before = std::fs::read(&path).unwrap();
        let shards = world.shards.clone();
        // One action more, in the same segment.
        world.buy(accounts[0]);
        let ahead = ahead_of(&world.data);
        assert_eq!(world.journal.segment(), Some(newest));
        let World { data, journal, .. } = world;
        drop(journal);
        std::fs::write(&path, before).unwrap();
        let opened = try_open_ahead(&data, ahead).unwrap();
        assert!(!opened.resumed);
        assert!(opened.recovered.into_shards() == shards, "what is left is recovered");
    }
}

#[test]
fn what_was_read_ahead_is_dropped_if_its_segment_is_gone() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    while world.closed() < 1 {
        world.live(&mut accounts, 10);
    }
    let ahead = ahead_of(&world.data);
    let World { data, journal, .. } = world;
    drop(journal);
    let newest = *Folder::new(Disk::System, data.path()).segment_numbers().unwrap().last().unwrap();
    for number in 2..=newest {
        let path = data.path().join("journal").join(crate::journal::segment_name(number));
        std::fs::remove_file(path).unwrap();
    }
    let opened = try_open_ahead(&data, ahead).unwrap();
    assert!(!opened.resumed);
    assert_eq!(opened.report.journal.segments, 1);
}

#[test]
fn what_was_read_ahead_is_dropped_if_the_segments_after_it_are_gone() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    world.live(&mut accounts, 20);
    let ahead = ahead_of(&world.data);
    let mut upkeep = upkeep(&world.folder, 0);
    for _ in 0..3 {
        world.live(&mut accounts, 400);
        upkeep.keep(world.closed(), &mut AtOnce).unwrap().unwrap();
    }
    assert!(world.folder.archived_numbers().unwrap()[0] > 2);
    let World { data, journal, shards, .. } = world;
    drop(journal);
    let opened = try_open_ahead(&data, ahead).unwrap();
    assert!(!opened.resumed);
    assert!(opened.recovered.into_shards() == shards);
}

#[test]
fn a_resumed_batch_is_only_what_follows() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    world.live(&mut accounts, 3);
    let ahead = ahead_of(&world.data);
    world.buy(accounts[0]);
    world.buy(accounts[0]);
    let World { data, journal, .. } = world;
    drop(journal);
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let Resumes { mark, open } = ahead.resumes;
    let mut seen = Vec::new();
    Journal::read(&directory, &config(), mark, open, |batch| {
        let records = batch.records().len() as u64;
        seen.push((records, batch.blocks(), batch.block_records_max(), batch.epochs_begun()));
        assert_eq!(
            (batch.before(), batch.last_position()),
            (open.unwrap(), batch.after().position)
        );
        Ok::<_, std::convert::Infallible>(())
    })
    .map_err(|_| "the journal is whole")
    .unwrap();
    assert_eq!(seen, [(2, 2, 1, 0)]);
}
