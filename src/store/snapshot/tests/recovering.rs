//! Recovery from snapshots and segments.

use super::*;

#[test]
fn a_start_reads_the_snapshot_and_the_journal_after_it() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    world.live(&mut accounts, 300);
    let all = world.turn;
    let report = world.fold().unwrap();
    assert!(report.number >= 2 && report.records > 0, "{report:?}");
    world.live(&mut accounts, 5);
    let world = world.reopened();
    assert_eq!(world.report.snapshot, Some(report.number));
    assert!(world.report.journal.records < all, "{:?}", world.report);
    // The server continues: new records, a second fold on top of the first, another start.
    let mut world = world;
    world.live(&mut accounts, 300);
    let second = world.fold().unwrap();
    assert!(second.number > report.number);
    let world = world.reopened();
    assert_eq!(world.report.snapshot, Some(second.number));
}

/// A node of a cluster writes the cluster's epochs, and its folder has counted only its own starts.
/// A copy of it that is served alone goes on with the greater number.
#[test]
fn no_start_goes_back_to_an_earlier_epoch() {
    let mut world = World::new();
    let account = world.open_account(ShardId::new(3).unwrap());
    world.journal.raise_epoch(9);
    world.buy(account);
    for _ in 0..2 {
        world = world.reopened();
        assert_eq!(world.journal.epoch(), 9);
        world.buy(account);
    }
    world.live(&mut vec![account], 300);
    world.fold().unwrap();
    world.reopened();
}

#[test]
fn any_number_of_threads_recovers_the_same_state() {
    let mut world = World::new();
    world.live(&mut Vec::new(), 250);
    world.fold().unwrap();
    world.live(&mut Vec::new(), 50);
    let World { data, journal, shards, .. } = world;
    drop(journal);
    for thread_count in [1, 2, 3, 64, 100] {
        let opened = World::try_open(&data, thread_count).unwrap();
        let found = opened.recovered.into_shards();
        assert!(found == shards, "{thread_count} threads");
    }
}

#[test]
fn repeated_folds_equal_a_single_fold() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    let mut folded = 0;
    for _ in 0..40 {
        world.live(&mut accounts, 20);
        if world.closed() > folded {
            folded = world.fold().unwrap().number;
        }
    }
    assert!(folded >= 4);
    world.reopened();
}

/// Damage is reported, nothing is changed, and the remedy named by the error works.
#[test]
fn a_damaged_snapshot_stops_the_start() {
    let mut world = World::new();
    let mut accounts = Vec::new();
    let mut upkeep = upkeep(&world.folder, 0);
    let mut numbers = Vec::new();
    for _ in 0..3 {
        world.live(&mut accounts, 200);
        numbers.push(upkeep.keep(world.closed(), &mut AtOnce).unwrap().unwrap().number);
    }
    world.live(&mut accounts, 3);
    let newest = world.path("snapshots", &format!("{:020}.snapshot", numbers[2]));
    let World { data, journal, shards, turn, .. } = world;
    drop(journal);
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    let Err(error) = World::try_open(&data, 2) else { panic!("a damaged snapshot was accepted") };
    let text = error.to_string();
    assert!(text.contains(newest.to_str().unwrap()) && text.contains("move the"), "{text}");

    std::fs::remove_file(&newest).unwrap();
    let world = World::open(data, turn);
    assert_eq!(world.report.snapshot, Some(numbers[1]));
    assert!(world.shards == shards, "the archive holds what the newest snapshot covered");
}

#[test]
fn a_missing_order_file_stops_the_start() {
    let mut world = World::new();
    world.live(&mut Vec::new(), 200);
    let number = world.fold().unwrap().number;
    let orders = world.path("snapshots", &format!("{number:020}.orders"));
    let World { data, journal, .. } = world;
    drop(journal);
    std::fs::remove_file(&orders).unwrap();
    let Err(error) = World::try_open(&data, 2) else { panic!("orders are missing") };
    assert!(error.to_string().contains(orders.to_str().unwrap()), "{error}");
}

#[test]
fn a_journal_without_its_beginning_stops_the_start() {
    let mut world = World::new();
    world.live(&mut Vec::new(), 200);
    let mut upkeep = upkeep(&world.folder, u64::MAX);
    let number = upkeep.keep(world.closed(), &mut AtOnce).unwrap().unwrap().number;
    let World { data, journal, .. } = world;
    drop(journal);
    std::fs::remove_file(data.path().join(format!("snapshots/{number:020}.snapshot"))).unwrap();
    std::fs::remove_dir_all(data.path().join("archive")).unwrap();
    let Err(error) = World::try_open(&data, 2) else { panic!("records are missing") };
    assert!(error.to_string().contains("is missing"), "{error}");
}

#[test]
fn a_contradictory_record_is_refused() {
    let shard = ShardId::new(3).unwrap();
    // One shard records a hash of another state, and one forgets an order it never had.
    let wrong = paperbourse_core::engine::state::hash::StateHash::from_u64(1);
    let order = OrderId::new(shard, 99).unwrap();
    for (thread_count, event, expected) in [
        (1, Event::StateChecked { hash: wrong }, "and was 0000000000000001 when"),
        (2, Event::OrderForgotten { order }, "order 6339 is not kept"),
    ] {
        let mut world = World::new();
        let account = world.open_account(shard);
        world.buy(account);
        let closed_before = world.closed();
        let sequence = world.shards[3].state.sequence() + 1;
        let header = RecordHeader { shard, epoch: 1, sequence, at: at(world.turn) };
        let mut bytes = Vec::new();
        record::encode(header, &[event], &mut bytes);
        let lsn = world.journal.reserve(bytes.len()).unwrap().fill_from(&bytes);
        world.journal.wait_blocking(lsn);
        while world.closed() == closed_before {
            world.live(&mut Vec::new(), 1);
        }
        let error = world.fold().unwrap_err();
        assert!(matches!(error, FoldError::Replay { .. }), "{error}");
        assert!(world.folder.snapshot_numbers().unwrap().is_empty());
        let World { data, journal, .. } = world;
        drop(journal);
        let Err(error) = World::try_open(&data, thread_count) else { panic!("it was accepted") };
        let text = error.to_string();
        let place = "position 3 was refused: record 3 of shard 3 contradicts those before it";
        assert!(text.contains(place) && text.contains(expected), "{text}");
    }
}
