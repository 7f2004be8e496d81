//! One bit flipped in a file of a broker, which then leads the log.

use std::fs;
use std::time::Instant;

use bytes::Bytes;
use paperbourse_test_support::PATIENCE;
use paperbourse_test_support::brokers::Brokers;
use serde_json::json;
use tokio::time::timeout;

use super::{HANGS_AFTER, cluster, start};
use crate::{Cluster, OpenLog, PAUSE};
use paperbourse_store::disk::simulated::random::Random;
use paperbourse_store::journal::LogId;
use paperbourse_store::journal::replicated::test_util::node;
use paperbourse_store::journal::replicated::{Log, Owner, ReadError, Reader, ReplicatedChain};

const NAME: &str = "rot";

/// The blocks of a log, each of a page.
const BLOCKS: u64 = 100;

/// The broker whose file is damaged.
const ROTTEN: usize = 1;

/// How often each block is read to find what a replica lacks: each read asks one of three.
const READS: usize = 30;

/// Makes this broker the leader of the first log with this name.
pub(super) async fn make_leader(cluster: &Cluster, name: &str, broker: &str) {
    let began = Instant::now();
    loop {
        let status = cluster.status().await;
        if status.logs.first().is_some_and(|log| log.leader.as_deref() == Some(broker)) {
            return;
        }
        assert!(began.elapsed() < 2 * PATIENCE, "{status}");
        let request = json!({"placement": {"preferred": broker}});
        let subject = format!("STREAM.LEADER.STEPDOWN.{name}-0");
        // It may be in the middle of an election.
        let _ = cluster.context.request::<_, _, serde_json::Value>(subject, &request).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// The first block that some replica lacks, or has damaged. `None` if no replica says so.
async fn lacking(log: &impl Log, blocks: &[Bytes]) -> Option<u64> {
    for _ in 0..READS {
        for (sequence, block) in (1..).zip(blocks) {
            if log.read(sequence).await.is_ok_and(|read| read.as_ref() != Some(block)) {
                return Some(sequence);
            }
        }
    }
    None
}

/// Reads the whole log. Whatever is shown must be the next of these blocks.
async fn check_shown(log: impl Log, id: LogId, blocks: &[Bytes]) -> Result<(), ReadError> {
    let mut reader = Reader::new(log, ReplicatedChain::start(id), 0);
    let mut expected = blocks.iter();
    let read = reader.catch_up(|sequence, bytes, _| {
        assert_eq!(Some(bytes), expected.next(), "block {sequence}");
    });
    read.await?;
    assert_eq!(expected.next(), None, "the log ends too early");
    Ok(())
}

#[tokio::test]
async fn a_log_whose_leader_rots_is_served_whole_or_halts() {
    let Some((mut brokers, _folder)) = start() else { return };
    let mut random = Random::new(7);
    let cluster = cluster(&brokers, NAME, 1).await;
    let OpenLog { log, id, .. } = cluster.open().await.unwrap().remove(0);

    let mut blocks: Vec<Bytes> = Vec::new();
    let reader = Reader::new(log.clone(), ReplicatedChain::start(id), 0);
    let owner = Owner::take(reader, node(1), |_, bytes, _| blocks.push(bytes.clone())).await;
    let mut owner = owner.map_err(|(_, error)| error).unwrap();
    for number in 0..BLOCKS {
        assert!(owner.push(&[&number.to_le_bytes()[..], &[0xee; 3000]].concat()));
        timeout(HANGS_AFTER, owner.flush()).await.expect("an answer in the end").unwrap();
    }
    let mut reader = Reader::new(log.clone(), ReplicatedChain::start(id), 0);
    blocks.clear();
    reader.catch_up(|_, bytes, _| blocks.push(bytes.clone())).await.unwrap();
    assert_eq!(blocks.len() as u64, BLOCKS + 1);

    let files = |brokers: &Brokers, ending| brokers.files(ROTTEN, &format!("{NAME}-0"), ending);
    let mut has_lacked = false;
    for is_index_kept in [true, false] {
        // A broker that ends in order writes its index.
        brokers.terminate(ROTTEN);
        let path = files(&brokers, ".blk").remove(0);
        let mut content = fs::read(&path).unwrap();
        // In the records of some block, since most of a file is records.
        let at = content.len() / 4 + random.below(content.len() / 2);
        content[at] ^= 0x10;
        fs::write(&path, content).unwrap();
        if !is_index_kept {
            for index in files(&brokers, "index.db") {
                fs::remove_file(index).unwrap();
            }
        }
        brokers.restart(ROTTEN);
        make_leader(&cluster, NAME, &format!("broker-{ROTTEN}")).await;
        let lacking = lacking(&log, &blocks).await;
        has_lacked |= lacking.is_some();
        let read = check_shown(log.clone(), id, &blocks).await;
        println!("byte {at}, index kept: {is_index_kept}: block {lacking:?} lacks, {read:?}");
        if let Err(error) = read {
            assert!(matches!(error, ReadError::Halted(_)), "{error}");
            return;
        }

        // The owner goes on, or learns that the log is damaged.
        assert!(owner.push(b"after the damage"));
        match timeout(HANGS_AFTER, owner.flush()).await.expect("an answer in the end") {
            Ok(()) => {
                let mut reader = Reader::new(log.clone(), ReplicatedChain::start(id), 0);
                let mut newest = Bytes::new();
                reader.catch_up(|_, bytes, _| newest = bytes.clone()).await.unwrap();
                assert_eq!(reader.sequence(), owner.sequence());
                blocks.push(newest);
            }
            Err(lost) => {
                println!("the owner: {lost}");
                return;
            }
        }
    }
    // A broker may heal what it notices, but not all of this.
    assert!(has_lacked, "the damage showed nowhere");
}
