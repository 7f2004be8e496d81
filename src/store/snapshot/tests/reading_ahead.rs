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
    assert!(opened.has_resumed);
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
        let position = world.journal.durable_lsn().position;
        let ahead = ahead_of(&world.data);
        world.live(&mut accounts, after);
        let since = world.journal.durable_lsn().position - position;
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
        assert!(!opened.has_resumed);
        assert!(opened.recovered.into_shards() == shards, "what is left is recovered");
    }
}

#[test]
fn what_was_read_ahead_is_dropped_if_its_segment_is_gone() {
    let mut world = World::new();
    world.close_segments(1);
    let ahead = ahead_of(&world.data);
    let World { data, journal, .. } = world;
    drop(journal);
    let newest = *Folder::new(Disk::System, data.path()).segment_numbers().unwrap().last().unwrap();
    for number in 2..=newest {
        let path = data.path().join("journal").join(crate::journal::segment_name(number));
        std::fs::remove_file(path).unwrap();
    }
    let opened = try_open_ahead(&data, ahead).unwrap();
    assert!(!opened.has_resumed);
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
    assert!(!opened.has_resumed);
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
    let (mut end, mut records, mut blocks) = (open.unwrap(), 0, 0);
    Journal::read(&directory, &config(), mark, open, |batch| {
        assert_eq!((batch.before(), batch.last_position()), (end, batch.after().position));
        assert!(batch.block_records_max() <= 1 && batch.epochs_begun() == 0);
        end = batch.after();
        records += batch.records().len();
        blocks += batch.blocks();
        Ok::<_, std::convert::Infallible>(())
    })
    .map_err(|_| "the journal is whole")
    .unwrap();
    assert_eq!((records, blocks), (2, 2));
}

/// Changes a byte of the segment that is being written. Returns the segment's path.
fn damage_newest(world: &World, offset: usize) -> PathBuf {
    let newest = world.journal.segment().unwrap();
    let path = world.path("journal", &crate::journal::segment_name(newest));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[offset] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_flaw_in_the_newest_segment_is_reported_while_the_other_process_serves() {
    // The place of the changed byte, and what the error says about it.
    for (offset, expected) in [
        (0, "offset 0: the header of the segment is damaged"),
        (3 * 4096 + 40, "offset 12288: the header of the block does not match"),
        (3 * 4096 + 100, "offset 12288: bytes follow the end of the journal"),
    ] {
        let mut world = World::new();
        world.live(&mut Vec::new(), 20);
        let path = damage_newest(&world, offset);
        let Err(error) = read_ahead(Disk::System, world.data.path(), THREADS) else {
            panic!("the byte at {offset} was changed")
        };
        let message = error.to_string();
        assert!(message.contains(path.to_str().unwrap()), "{message}");
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn a_flaw_in_a_segment_made_ahead_is_reported() {
    let mut world = World::new();
    world.live(&mut Vec::new(), 20);
    let blank = world.journal.segment().unwrap() + 1;
    let path = world.path("journal", &crate::journal::segment_name(blank));
    while !path.exists() {
        std::thread::yield_now();
    }
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[0] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let Err(error) = read_ahead(Disk::System, world.data.path(), THREADS) else {
        panic!("the header was changed")
    };
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
}

#[test]
fn a_block_being_written_is_not_read_ahead() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    world.live(&mut accounts, 20);
    let before = world.journal.durable_lsn().position;
    world.buy(accounts[0]);
    let newest = world.journal.segment().unwrap();
    let path = world.path("journal", &crate::journal::segment_name(newest));
    let whole = std::fs::read(&path).unwrap();
    // The last block is on disk only in part.
    let last = whole.chunks(512).rposition(|sector| sector.iter().any(|byte| *byte != 0)).unwrap();
    let mut torn = whole.clone();
    torn[last * 512..].fill(0);
    std::fs::write(&path, torn).unwrap();
    let ahead = ahead_of(&world.data);
    std::fs::write(&path, whole).unwrap();
    let since = world.journal.durable_lsn().position - before;
    let (_, applied) = reopened(world, ahead);
    assert_eq!((applied, since), (1, 1));
}

#[test]
fn a_newest_segment_that_keeps_changing_is_left_to_the_start() {
    let mut world = World::new();
    let mut accounts = world.close_segments(1);
    world.live(&mut accounts, 1);
    let path = damage_newest(&world, 3 * 4096 + 100);
    // The damage has another place each time.
    let mut place = 4096;
    let mut pauses = 0;
    let ahead = ahead::read(&world.folder, THREADS, &mut || {
        pauses += 1;
        damage_newest(&world, place + 100);
        place = if place == 4096 { 2 * 4096 } else { 4096 };
    });
    let ahead = ahead.unwrap();
    assert_eq!((pauses, ahead.resumes.open), (99, None));
    assert!(ahead.records > 0, "the closed segments were read, {}", path.display());
}
