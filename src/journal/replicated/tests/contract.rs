//! What everything that carries a log must do.

use bytes::Bytes;

use super::super::*;
use super::memory::MemoryLog;
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

/// Checks an empty log, which must have a working majority.
pub(crate) async fn check_contract(log: impl Log) {
    let blocks = blocks();
    check_extent(&log, 1, 0).await;
    assert_eq!(log.read(1).await, Ok(None));
    for (expected, block) in (0_u64..).zip(&blocks) {
        for wrong in [expected + 1, expected + 2, expected.wrapping_sub(1)] {
            let stale = Appended::Stale { tail: expected };
            // A condition that JavaScript's numbers cannot hold is as wrong as any other.
            let wrong = if wrong == u64::MAX { 1 << 60 } else { wrong };
            assert_eq!(log.append(wrong, block.clone()).await, stale, "{wrong} at {expected}");
        }
        assert_eq!(log.append(expected, block.clone()).await, Appended::Acknowledged);
        // Whoever did not get the answer finds the block in its place.
        let stale = Appended::Stale { tail: expected + 1 };
        assert_eq!(log.append(expected, block.clone()).await, stale);
        assert_eq!(read(&log, expected + 1).await.as_ref(), Some(block));
    }
    let last = blocks.len() as u64;
    check_extent(&log, 1, last).await;
    assert_eq!(log.read(last + 1).await, Ok(None));

    log.trim(3).await.unwrap();
    check_extent(&log, 3, last).await;
    log.trim(2).await.unwrap();
    check_extent(&log, 3, last).await;
    assert_eq!(read(&log, 3).await.as_ref(), Some(&blocks[2]));
    log.trim(last + 1).await.unwrap();
    check_extent(&log, last + 1, last).await;
    assert_eq!(log.append(0, blocks[0].clone()).await, Appended::Stale { tail: last });
    assert_eq!(log.append(last, blocks[0].clone()).await, Appended::Acknowledged);
    check_extent(&log, last + 1, last + 1).await;
}

#[tokio::test(start_paused = true)]
async fn memory_keeps_the_contract() {
    check_contract(MemoryLog::new()).await;
}
