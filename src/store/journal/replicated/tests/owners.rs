//! Owners and readers, case by case.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use super::super::test_util::{MemoryLog, Rates};
use super::super::test_util::{node, reader, take, unseen, write};
use super::super::*;

/// What a reader of the whole log is shown: the epoch, then records or the notice.
async fn shown(log: &MemoryLog) -> Result<Vec<String>, ReadError> {
    let mut lines = Vec::new();
    let mut reader = reader(log);
    reader
        .catch_up(|sequence, _, entry| {
            lines.push(match entry {
                Entry::Records(records) => {
                    format!(
                        "{sequence}: {} from {}",
                        records.iter().count(),
                        records.first_position()
                    )
                }
                Entry::Notice(Notice { kind, node, .. }) => format!("{sequence}: {kind:?} {node}"),
            });
        })
        .await?;
    Ok(lines)
}

#[tokio::test(start_paused = true)]
async fn a_log_shows_who_owned_it() {
    let log = MemoryLog::whole();
    let mut owner = take(&log, 1).await;
    assert_eq!((owner.epoch(), owner.sequence(), owner.position()), (1, 1, 0));
    assert!(owner.push(b"one") && owner.push(b"two"));
    owner.flush().await.unwrap();
    owner.flush().await.unwrap();
    assert_eq!((owner.epoch(), owner.sequence(), owner.position()), (1, 2, 2));
    assert!(owner.push(b"three"));
    let reader = owner.release().await.map_err(|(_, lost)| lost).unwrap();
    let owner = Owner::take(reader, node(2), unseen).await.map_err(|(_, error)| error).unwrap();
    assert_eq!((owner.epoch(), owner.sequence(), owner.position()), (2, 5, 3));
    let expected =
        ["1: Fence node-1", "2: 2 from 1", "3: 1 from 3", "4: Release node-1", "5: Fence node-2"];
    assert_eq!(shown(&log).await.unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_block_takes_as_much_as_brokers_carry() {
    let log = MemoryLog::whole();
    let mut owner = take(&log, 1).await;
    let record = vec![1; crate::journal::RECORD_BYTES_MAX];
    assert!(owner.push(&record));
    assert!(!owner.push(&record));
    owner.flush().await.unwrap();
    assert!(owner.push(&record));
    owner.flush().await.unwrap();
    assert_eq!(owner.position(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_fenced_owner_loses_the_log_and_says_to_whom() {
    let log = MemoryLog::whole();
    let mut first = take(&log, 1).await;
    write(&mut first, 2).await;
    let mut second = take(&log, 2).await;
    write(&mut second, 1).await;
    assert!(first.push(b"too late"));
    let lost = first.flush().await.unwrap_err();
    assert_eq!(lost.to_string(), "the log memory belongs to the node node-2 from block 4 on");
    assert_eq!(first.flush().await.unwrap_err(), lost, "it stays lost");
    assert!(first.release().await.is_err());
    write(&mut second, 1).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_comes_back_after_a_trim_has_lost_the_log() {
    let log = MemoryLog::whole();
    let mut first = take(&log, 1).await;
    let mut second = take(&log, 2).await;
    write(&mut second, 3).await;
    log.trim(4).await.unwrap();
    assert!(first.push(b"too late"));
    assert!(matches!(first.flush().await.unwrap_err(), Lost::Fenced { by: None, .. }));
    let (_, error) = Owner::take(first.into_reader(), node(1), unseen).await.err().unwrap();
    assert!(error.to_string().contains("start it on an empty one"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_is_given_up_is_settled_by_the_next() {
    let rates = Rates { late: 2, unanswered: 2, ..Rates::default() };
    for seed in 0..50 {
        let log = MemoryLog::troubled(seed, rates);
        let mut owner = take(&log, 1).await;
        let mut pushed = 0;
        for _ in 0..20 {
            assert!(owner.push(b"record"));
            pushed += 1;
            let _ = timeout(Duration::from_millis(30), owner.flush()).await;
        }
        log.heal();
        owner.flush().await.unwrap();
        assert_eq!(owner.position(), pushed, "seed {seed}");
        let mut reader = reader(&log);
        reader.catch_up(unseen).await.unwrap();
        assert_eq!(reader.chain(), owner.reader.chain, "seed {seed}");
    }
}

/// Damages a log of a fence and four blocks and checks what a reader of it says.
#[track_caller]
fn check_halt(damage: impl Fn(&MemoryLog), sequence: u64, expected: &str) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.unwrap().block_on(async {
        let log = MemoryLog::whole();
        let mut owner = take(&log, 1).await;
        write(&mut owner, 4).await;
        damage(&log);
        let ReadError::Halted(halt) = shown(&log).await.unwrap_err() else { panic!("a halt") };
        assert_eq!(halt.sequence, sequence, "{halt}");
        assert!(halt.to_string().contains(expected), "{halt}");
    });
}

#[test]
fn a_block_that_no_replica_has_intact_halts_the_log() {
    check_halt(|log| drop(log.lose(3)), 3, "the log memory halts at block 3: no replica has it");
    check_halt(|log| log.flip(4, 8 * 70), 4, "do not match their checksum");
    check_halt(|log| log.flip(2, 8 * 30), 2, "does not match its checksum");
    check_halt(|log| log.flip(5, 8 * 4095), 5, "reserved bytes");
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_log_whose_newest_block_is_missing() {
    let log = MemoryLog::whole();
    let mut owner = take(&log, 1).await;
    write(&mut owner, 2).await;
    log.lose(3);
    let (reader, error) = Owner::take(reader(&log), node(2), unseen).await.err().unwrap();
    assert!(error.to_string().contains("halts at block 3: no replica has it"), "{error}");
    assert_eq!((reader.sequence(), log.tail()), (2, 3));
}

#[tokio::test(start_paused = true)]
async fn a_block_that_another_writer_forced_in_halts_the_log() {
    let log = MemoryLog::whole();
    let mut owner = take(&log, 1).await;
    write(&mut owner, 2).await;
    // It continues the fence, not the newest block.
    let mut chain = ReplicatedChain::start(super::super::test_util::LOG);
    chain.read(&log.read(1).await.unwrap().unwrap()).unwrap();
    let mut builder = ReplicatedBuilder::new();
    assert!(builder.push(b"forced"));
    let forced = builder.seal(&mut chain);
    assert_eq!(log.append(3, forced).await, Appended::Acknowledged);
    assert!(owner.push(b"next"));
    let Err(Lost::Halted(halt)) = owner.flush().await else { panic!("a halt") };
    assert!(halt.to_string().contains("does not continue the one before"), "{halt}");
    assert!(matches!(shown(&log).await.unwrap_err(), ReadError::Halted(read) if read == halt));
}

#[tokio::test(start_paused = true)]
async fn a_log_that_lost_acknowledged_blocks_halts() {
    for lost in 1..4 {
        let log = MemoryLog::whole();
        let mut owner = take(&log, 1).await;
        write(&mut owner, 4).await;
        let mut reader = reader(&log);
        reader.catch_up(unseen).await.unwrap();
        log.lose_tail(lost);
        let halt = |error: &dyn ToString| {
            let text = error.to_string();
            let tail = 5 - lost;
            let expected = format!(
                "the log memory halts at block 5: it was acknowledged, and the log ends at block \
                 {tail}. Keep the brokers' files: they have lost blocks"
            );
            assert_eq!(text, expected);
        };
        halt(&reader.catch_up(unseen).await.unwrap_err());
        assert!(owner.push(b"next"));
        halt(&owner.flush().await.unwrap_err());
        assert_eq!(log.tail(), 5 - lost as u64, "nothing was written");
    }
}

/// A log whose brokers are all gone.
#[derive(Clone)]
struct Silence;

impl Log for Silence {
    fn name(&self) -> &'static str {
        "silence"
    }

    async fn append(&self, _: u64, _: Bytes) -> Appended {
        Appended::Unknown(NoAnswer("nobody is there".to_owned()))
    }

    async fn read(&self, _: u64) -> Result<Option<Bytes>, NoAnswer> {
        Err(NoAnswer("nobody is there".to_owned()))
    }

    async fn extent(&self) -> Result<Extent, NoAnswer> {
        Err(NoAnswer("nobody is there".to_owned()))
    }

    async fn trim(&self, _: u64) -> Result<(), NoAnswer> {
        Err(NoAnswer("nobody is there".to_owned()))
    }
}

#[tokio::test(start_paused = true)]
async fn brokers_that_do_not_answer_halt_nothing() {
    let (_, error) = Owner::take(reader(Silence), node(1), unseen).await.err().unwrap();
    assert_eq!(error.to_string(), "the log silence cannot be read: nobody is there");
    assert!(matches!(error, ReadError::Unreachable { .. }));
}

/// A log whose blocks cannot be read before this moment. Brokers say so at once.
struct Outage {
    log: MemoryLog,
    ends: Instant,
}

impl Log for Outage {
    fn name(&self) -> &'static str {
        "outage"
    }

    async fn append(&self, expected: u64, block: Bytes) -> Appended {
        self.log.append(expected, block).await
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, NoAnswer> {
        if Instant::now() < self.ends {
            return Err(NoAnswer("nobody is there".to_owned()));
        }
        self.log.read(sequence).await
    }

    async fn extent(&self) -> Result<Extent, NoAnswer> {
        self.log.extent().await
    }

    async fn trim(&self, below: u64) -> Result<(), NoAnswer> {
        self.log.trim(below).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_minute_without_brokers_leaves_no_log_without_an_owner() {
    let log = MemoryLog::whole();
    write(&mut take(&log, 1).await, 3).await;
    let ends = Instant::now() + Duration::from_mins(1);
    let owner = take(Outage { log, ends }, 2).await;
    assert_eq!((owner.epoch(), owner.sequence()), (2, 5));
}
