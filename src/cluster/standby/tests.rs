//! Standbys beside an owner, on a log in memory.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use tokio::time::timeout;

use super::*;
use paperbourse_store::journal::replicated::test_util::{
    LOG, MemoryLog, node, reader, take, write,
};
use paperbourse_store::journal::replicated::{HaltReason, ReplicatedChain};

/// What the first block of the log continues.
fn start() -> ReplicatedChain {
    ReplicatedChain::start(LOG)
}

/// Longer than any takeover here takes.
const PATIENCE: Duration = Duration::from_mins(1);

/// Stands by from the beginning, and returns the owner and the records that it has copied.
async fn taken(log: &MemoryLog, number: usize) -> (Taken<MemoryLog>, Vec<u64>) {
    let mut copied = Vec::new();
    let copy = |position, record: &[u8]| {
        assert_eq!(record, u64::to_le_bytes(position));
        copied.push(position);
        Ok::<_, Halt>(())
    };
    let taken =
        stand_by(reader(log.clone()), &node(number), None, copy, |_| MayTake::Yes).await.unwrap();
    (taken, copied)
}

#[tokio::test(start_paused = true)]
async fn a_new_log_is_taken_at_once() {
    let (taken, copied) = taken(&MemoryLog::whole(), 1).await;
    assert!(taken.was_free && copied.is_empty());
    assert_eq!(taken.owner.epoch(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_alive_keeps_its_log() {
    let log = MemoryLog::whole();
    let mut owner = take(log.clone(), 1).await;
    let alive = async {
        for _ in 0..1_000 {
            sleep(HEARTBEAT_INTERVAL).await;
            owner.beat().await.unwrap();
        }
    };
    tokio::select! {
        () = alive => {}
        _ = taken(&log, 2) => panic!("the log was taken from an owner that is alive"),
    }
    assert_eq!(owner.epoch(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_owner_loses_its_log_and_nothing_that_it_wrote() {
    let log = MemoryLog::whole();
    let mut former = take(log.clone(), 1).await;
    write(&mut former, 20).await;
    let began = Instant::now();
    let (Taken { owner, was_free, .. }, copied) = taken(&log, 2).await;
    assert!(!was_free, "its lease is not over");
    assert_eq!((owner.epoch(), owner.position()), (2, 20));
    assert!(copied.into_iter().eq(1..=20));
    let elapsed = began.elapsed();
    assert!((SILENCE_MAX..2 * SILENCE_MAX).contains(&elapsed), "{elapsed:?}");
    assert!(former.beat().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_released_log_is_taken_at_once() {
    let log = MemoryLog::whole();
    let mut former = take(log.clone(), 1).await;
    write(&mut former, 3).await;
    let mut standby = pin!(taken(&log, 2));
    assert!(timeout(Duration::from_secs(1), &mut standby).await.is_err(), "not yet");
    write(&mut former, 1).await;
    former.release().await.map_err(|(_, lost)| lost).unwrap();
    let began = Instant::now();
    let (taken, copied) = standby.await;
    assert!(taken.was_free && copied.len() == 4);
    assert!(began.elapsed() < LOOK_INTERVAL, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_restarted_takes_its_own_log_back_at_once() {
    let log = MemoryLog::whole();
    let mut former = take(log.clone(), 1).await;
    write(&mut former, 3).await;
    let owned_epoch = Some(former.epoch());
    let first = Reader::seek(log.clone(), start(), 2).await.unwrap();
    let began = Instant::now();
    let taken = stand_by(first, &node(1), owned_epoch, |_, _| Ok::<_, Halt>(()), |_| MayTake::Yes)
        .await
        .unwrap();
    assert_eq!(taken.owner.epoch(), 2);
    assert!(!taken.was_free, "reads of the former process may be on their way");
    assert!(began.elapsed() < Duration::from_millis(300), "{:?}", began.elapsed());
}

/// It would show that it is alive until it has ended, and others would wait for it.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_about_to_end_takes_no_log_and_goes_on_following() {
    let log = MemoryLog::whole();
    let mut owner = take(log.clone(), 1).await;
    write(&mut owner, 3).await;
    assert!(owner.release().await.is_ok());
    let owners = RefCell::new(Vec::new());
    let looked = |look: Look| {
        let mut owners = owners.borrow_mut();
        owners.push(look.is_owned);
        if owners.len() < 100 { MayTake::No } else { MayTake::Yes }
    };
    let copy = |_, _: &[u8]| Ok::<_, Halt>(());
    let taken = stand_by(reader(log), &node(2), None, copy, looked).await.unwrap();
    assert_eq!((taken.owner.epoch(), owners.into_inner()), (2, vec![false; 100]));
}

/// Of two standbys, one takes the log, and the other follows it.
#[tokio::test(start_paused = true)]
async fn only_one_standby_takes_the_log() {
    let log = MemoryLog::whole();
    write(&mut take(log.clone(), 1).await, 3).await;
    let owners: Rc<RefCell<Vec<usize>>> = Rc::default();
    let node = async |number: usize| {
        let (Taken { mut owner, .. }, _) = taken(&log, number).await;
        owners.borrow_mut().push(number);
        loop {
            owner.beat().await.unwrap();
            sleep(HEARTBEAT_INTERVAL).await;
        }
    };
    let both = async { tokio::join!(node(2), node(3)) };
    assert!(timeout(PATIENCE, both).await.is_err());
    assert_eq!(owners.borrow().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_finds_its_place_again() {
    let log = MemoryLog::whole();
    let mut owner = take(log.clone(), 1).await;
    for records in 1..20_u64 {
        for _ in 0..records {
            assert!(owner.push(b"record"));
        }
        owner.flush().await.unwrap();
        owner.beat().await.unwrap();
    }
    for position in 0..=owner.position() {
        let mut found = Reader::seek(log.clone(), start(), position).await.unwrap();
        assert!(found.chain().mark().position <= position);
        let mut read = Vec::new();
        let show = |_, _: &_, entry: Entry<'_>| {
            if let Entry::Records(records) = entry {
                read.extend((records.first_position()..).take(records.iter().count()));
            }
        };
        found.catch_up(show).await.unwrap();
        assert_eq!(found.sequence(), owner.sequence());
        read.retain(|&read| read > position);
        assert!(read.into_iter().eq(position + 1..=owner.position()), "{position}");
    }
    let last = owner.position();
    for position in [1, last / 2, last] {
        let record = Reader::record(log.clone(), start(), position).await.unwrap();
        assert_eq!(record.as_deref(), Some(&b"record"[..]), "{position}");
    }
    assert_eq!(Reader::record(log.clone(), start(), last + 1).await.unwrap(), None);
    log.trim(10).await.unwrap();
    let error = Reader::seek(log.clone(), start(), 3).await.err().unwrap().to_string();
    assert!(error.contains("start it on an empty one"), "{error}");
}

/// It would otherwise be started again and again, and say nothing in between.
#[tokio::test(start_paused = true)]
async fn a_damaged_log_is_read_on_as_soon_as_a_broker_has_what_was_missing() {
    let log = MemoryLog::whole();
    let mut owner = take(log.clone(), 1).await;
    write(&mut owner, 5).await;
    assert!(owner.release().await.is_ok());
    let lost = log.lose(3);
    let (outcomes, copied) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let looked = |look: Look| {
        outcomes.borrow_mut().push(look.outcome);
        MayTake::Yes
    };
    let copy = |position, _: &[u8]| {
        copied.borrow_mut().push(position);
        Ok::<_, Halt>(())
    };
    let node = node(2);
    let mut standby = pin!(stand_by(reader(log.clone()), &node, None, copy, looked));
    assert!(timeout(3 * PATIENCE, &mut standby).await.is_err(), "nobody may take it");
    assert_eq!(copied.borrow()[..], [1]);
    assert!(outcomes.borrow().len() > 3, "it tries again and again");
    assert!(outcomes.borrow().iter().all(|&outcome| outcome == LookOutcome::Halt));
    log.restore(3, lost);
    let taken = standby.await.unwrap();
    assert_eq!((taken.owner.epoch(), taken.was_free), (2, true));
    assert_eq!(copied.borrow()[..], [1, 2, 3, 4, 5]);
}

/// A log that has lost blocks may grow to the same length again, with others in it.
#[tokio::test(start_paused = true)]
async fn a_log_that_will_never_be_whole_again_is_an_error() {
    let node = node(2);
    let stand_by = async |reader| {
        let copy = |_, _: &[u8]| Ok::<_, Halt>(());
        let stood = stand_by(reader, &node, None, copy, |_| MayTake::Yes);
        timeout(PATIENCE, stood).await.expect("it gives up").err().unwrap()
    };
    let log = MemoryLog::whole();
    write(&mut take(log.clone(), 1).await, 5).await;
    let mut whole = reader(log.clone());
    whole.catch_up(|_, _, _| ()).await.unwrap();
    log.lose_tail(2);
    let halt = stand_by(whole).await;
    assert!(matches!(halt.reason, HaltReason::Lost { .. }), "{halt}");
    log.forget(3).unwrap();
    let halt = stand_by(reader(log.clone())).await;
    assert!(halt.reason.lies_before_the_log(), "{halt}");
}
