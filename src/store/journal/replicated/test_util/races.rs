//! Checks of writers that race for the next place of a log, and of nodes that take a log from an
//! owner that keeps writing.

use std::cell::Cell;
use std::time::Duration;

use bytes::Bytes;
use paperbourse_core::faults::{self, Fault};

use super::super::{
    Appended, Log, Notice, NoticeKind, Owner, PAUSE, Reader, ReplicatedBuilder, ReplicatedChain,
};
use super::contract::answer;
use super::{LOG, node, reader, unseen};
use crate::disk::simulated::random::Random;
use crate::journal::replicated::owner::Lost;

/// How many writers race for each place.
const WRITERS: usize = 4;

/// Lets writers race for the next place of the log, as many times as there are rounds. Each knows
/// the log through a handle of its own. Exactly one must win, and the log must hold its block.
pub async fn check_races<L: Log + Clone + 'static>(logs: [L; WRITERS], rounds: usize) {
    let mut chain = ReplicatedChain::start(LOG);
    for round in 0..rounds {
        let expected = round as u64;
        let mut racing = Vec::new();
        for (number, log) in logs.iter().cloned().enumerate() {
            let mut chain = chain;
            let nonce = [u8::try_from(number).unwrap(); 16];
            let notice = Notice { kind: NoticeKind::Fence, node: node(number), nonce };
            let block = chain.seal_notice(&notice);
            racing.push(tokio::spawn(async move {
                let (appended, is_repeated) = answer(&log, expected, &block).await;
                (appended, is_repeated, block, chain)
            }));
        }
        let mut writers = Vec::new();
        for writer in racing {
            writers.push(writer.await.unwrap());
        }
        let mut placed = Vec::new();
        let mut reader = Reader::new(&logs[0], chain, expected);
        reader.catch_up(|_, bytes, _| placed.push(bytes.clone())).await.unwrap();
        assert_eq!(placed.len(), 1, "round {round}");
        for (appended, is_repeated, block, after) in writers {
            let is_placed = block == placed[0];
            match appended {
                Appended::Acknowledged => assert!(is_placed, "round {round}"),
                // If its first answer was lost, its own block is in its way.
                Appended::Stale { tail } => {
                    assert_eq!(tail, expected + 1, "round {round}");
                    assert!(!is_placed || is_repeated, "round {round}");
                }
                Appended::Unknown(reason) => panic!("round {round}: {reason}"),
            }
            if is_placed {
                chain = after;
            }
        }
        assert_eq!(chain, reader.chain(), "round {round}: the block of a writer");
    }
}

/// Sends two blocks at once and believes every answer, for [`Fault::TwoInFlight`].
async fn flush_two<L: Log>(owner: &mut Owner<L>) -> Result<(), Lost> {
    let (log, expected) = (&owner.reader.log, owner.reader.sequence);
    let mut after = owner.reader.chain;
    let mut second = ReplicatedBuilder::new();
    assert!(second.push(b"second"));
    let first = owner.builder.seal(&mut after);
    let after_first = after;
    let second = second.seal(&mut after);
    let sent = async |expected, block: &Bytes| loop {
        match log.append(expected, block.clone()).await {
            Appended::Acknowledged => return true,
            // Those before it may still be on their way.
            Appended::Stale { tail } if tail < expected => tokio::task::yield_now().await,
            Appended::Stale { .. } | Appended::Unknown(_) => return false,
        }
    };
    // Each waits only for its own answer.
    let second = tokio::time::timeout(PAUSE * 40, sent(expected + 1, &second));
    let (is_first, is_second) = tokio::join!(sent(expected, &first), second);
    if is_second == Ok(true) {
        owner.reader.chain = after;
        owner.reader.sequence += 2;
        return Ok(());
    }
    if !is_first {
        owner.unacknowledged = Some((first, after_first));
        return owner.flush().await;
    }
    owner.reader.chain = after_first;
    owner.reader.sequence += 1;
    Ok(())
}

/// Flushes as the switch says.
pub async fn flush<L: Log>(owner: &mut Owner<L>) -> Result<(), Lost> {
    if faults::is_on(Fault::TwoInFlight) { flush_two(owner).await } else { owner.flush().await }
}

/// Writes, now and then as fast as it can, until the log is lost or a block above the fence of the
/// next owner was acknowledged. Returns the newest block that was acknowledged.
async fn write_until_lost<L: Log>(
    mut owner: Owner<L>,
    mut random: Random,
    fence: &Cell<Option<u64>>,
) -> (u64, Option<Lost>) {
    loop {
        if random.one_in(4) {
            tokio::time::sleep(Duration::from_millis(random.below(20) as u64)).await;
        }
        assert!(owner.push(&owner.sequence().to_le_bytes()));
        if let Err(lost) = flush(&mut owner).await {
            return (owner.sequence(), Some(lost));
        }
        if fence.get().is_some_and(|fence| owner.sequence() >= fence) {
            return (owner.sequence(), None);
        }
    }
}

/// Takes the log from an owner that keeps writing, as many times as there are rounds, by turns of
/// two nodes, and reports the first takeover above whose fence the former owner had an answer.
///
/// Both nodes run in this thread, in which the switch is.
pub async fn takeovers_that_failed<L: Log + Clone>(
    nodes: [L; 2],
    rounds: usize,
) -> Result<(), String> {
    let mut owner = Owner::take(reader(nodes[1].clone()), node(1), unseen).await;
    for round in 0..rounds {
        let before = owner.map_err(|(_, error)| format!("round {round}: {error}"))?;
        let chain = (before.reader.chain(), before.sequence());
        let (number, random, fence) = (round % 2, Random::new(round as u64), Cell::new(None));
        let take = async {
            // The owner has sent something by then.
            tokio::time::sleep(Duration::from_millis(5)).await;
            let reader = Reader::new(nodes[number].clone(), chain.0, chain.1);
            let taken = Owner::take(reader, node(number), unseen).await;
            let known = taken.as_ref().map_or(0, Owner::sequence);
            fence.set(Some(known));
            taken
        };
        let written = write_until_lost(before, random, &fence);
        let ((acknowledged, lost), taken) = tokio::join!(written, take);
        let taken = taken.map_err(|(_, error)| format!("round {round}: {error}"))?;
        let fence = taken.sequence();
        if acknowledged >= fence {
            return Err(format!("round {round}: block {acknowledged} above the fence {fence}"));
        }
        match lost {
            Some(Lost::Fenced { sequence, by, .. }) if sequence == fence => {
                assert_eq!(by, Some(node(number)), "round {round}");
            }
            lost => return Err(format!("round {round}, fence {fence}: {lost:?}")),
        }
        owner = Ok(taken);
    }
    Ok(())
}
