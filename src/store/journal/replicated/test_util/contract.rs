//! What everything that carries a log must do.

use bytes::Bytes;
use futures_util::future::join_all;

use super::super::reader::AHEAD_MAX;
use super::super::{
    Appended, Extent, Log, Notice, NoticeKind, PAUSE, ReplicatedBuilder, ReplicatedChain, TRIES_MAX,
};
use super::{LOG, node};

/// A chain of fences and blocks of records, up to the longest.
fn blocks() -> Vec<Bytes> {
    let mut chain = ReplicatedChain::start(LOG);
    let notice = Notice { kind: NoticeKind::Fence, node: node(1), nonce: [1; 16] };
    let mut blocks = vec![chain.seal_notice(&notice)];
    for bytes in [0, 1, 100, 5_000, 200_000] {
        let mut builder = ReplicatedBuilder::new();
        while builder.push(&vec![7; bytes]) && bytes > 5_000 {}
        blocks.push(builder.seal(&mut chain));
    }
    assert!(blocks.last().unwrap().len() > 400_000);
    blocks
}

/// What the log says is between these sequences, once it has an answer.
async fn check_extent(log: &impl Log, first: u64, last: u64) {
    for _ in 0..TRIES_MAX {
        if log.extent().await == Ok(Extent { first, last }) {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    assert_eq!(log.extent().await, Ok(Extent { first, last }));
}

/// Reads a block until a replica has it.
async fn read(log: &impl Log, sequence: u64) -> Option<Bytes> {
    for _ in 0..TRIES_MAX {
        if let Ok(Some(block)) = log.read(sequence).await {
            return Some(block);
        }
        tokio::time::sleep(PAUSE).await;
    }
    None
}

/// Reads as many blocks at once as a reader does, and checks that each is the one asked for.
async fn check_reads_at_once(log: &impl Log, blocks: &[Bytes]) {
    let numbered = || (1..).zip(blocks).cycle().take(AHEAD_MAX);
    let reads = join_all(numbered().map(|(sequence, _)| log.read(sequence))).await;
    for ((sequence, block), answer) in numbered().zip(reads) {
        // The replica that was asked may be behind.
        let answer =
            if let Ok(Some(block)) = answer { Some(block) } else { read(log, sequence).await };
        assert_eq!(answer.as_ref(), Some(block), "{sequence}");
    }
}

/// Appends until there is an answer. Also returns whether an earlier try had none, so that it may
/// have placed the block.
pub(super) async fn answer(log: &impl Log, expected: u64, block: &Bytes) -> (Appended, bool) {
    for tries in 0..TRIES_MAX {
        match log.append(expected, block.clone()).await {
            Appended::Unknown(_) => tokio::time::sleep(PAUSE).await,
            answer => return (answer, tries > 0),
        }
    }
    panic!("no answer after {TRIES_MAX} tries");
}

/// Appends the block as the next one.
async fn place(log: &impl Log, expected: u64, block: &Bytes) {
    let (appended, is_repeated) = answer(log, expected, block).await;
    let is_placed = appended == Appended::Acknowledged
        || is_repeated && appended == Appended::Stale { tail: expected + 1 };
    assert!(is_placed, "{appended:?} at {expected}");
}

/// Checks that the log, which ends here, refuses a block with this condition.
async fn check_stale(log: &impl Log, expected: u64, block: &Bytes, tail: u64) {
    let (appended, _) = answer(log, expected, block).await;
    assert_eq!(appended, Appended::Stale { tail }, "{expected} at {tail}");
}

/// Checks that there is no such block.
async fn check_missing(log: &impl Log, sequence: u64) {
    for _ in 0..TRIES_MAX {
        match log.read(sequence).await {
            Ok(block) => return assert_eq!(block, None),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    panic!("no answer after {TRIES_MAX} tries");
}

/// Trims the log, once it answers.
async fn trim(log: &impl Log, below: u64) {
    for _ in 0..TRIES_MAX {
        if log.trim(below).await.is_ok() {
            return;
        }
        tokio::time::sleep(PAUSE).await;
    }
    panic!("no answer after {TRIES_MAX} tries");
}

/// Checks an empty log, which must have a working majority.
pub async fn check_contract(log: impl Log) {
    let blocks = blocks();
    check_extent(&log, 1, 0).await;
    check_missing(&log, 1).await;
    for (expected, block) in (0_u64..).zip(&blocks) {
        for wrong in [expected + 1, expected + 2, expected.wrapping_sub(1)] {
            // A condition that JavaScript's numbers cannot hold is as wrong as any other.
            let wrong = if wrong == u64::MAX { 1 << 60 } else { wrong };
            check_stale(&log, wrong, block, expected).await;
        }
        place(&log, expected, block).await;
        // Whoever did not get the answer finds the block in its place.
        check_stale(&log, expected, block, expected + 1).await;
        assert_eq!(read(&log, expected + 1).await.as_ref(), Some(block));
    }
    let last = blocks.len() as u64;
    check_extent(&log, 1, last).await;
    check_missing(&log, last + 1).await;
    check_reads_at_once(&log, &blocks).await;

    for nothing in [0, 1] {
        trim(&log, nothing).await;
        check_extent(&log, 1, last).await;
    }
    trim(&log, 3).await;
    check_extent(&log, 3, last).await;
    trim(&log, 2).await;
    check_extent(&log, 3, last).await;
    assert_eq!(read(&log, 3).await.as_ref(), Some(&blocks[2]));
    for beyond in [last + 2, 100, u64::MAX] {
        assert!(log.trim(beyond).await.is_err(), "{beyond}");
        check_extent(&log, 3, last).await;
    }
    trim(&log, last + 1).await;
    check_extent(&log, last + 1, last).await;
    check_stale(&log, 0, &blocks[0], last).await;
    place(&log, last, &blocks[0]).await;
    check_extent(&log, last + 1, last + 1).await;
}
