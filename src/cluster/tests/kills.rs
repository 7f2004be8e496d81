//! The broker that leads a log is killed while its owner writes.

use std::time::Instant;

use bytes::Bytes;
use paperbourse_test_support::PATIENCE;
use tokio::time::timeout;

use super::{HANGS_AFTER, cluster, start};
use crate::{Cluster, OpenLog, PAUSE};
use paperbourse_store::journal::replicated::test_util::{node, unseen};
use paperbourse_store::journal::replicated::{Entry, Owner, Reader, ReplicatedChain};

/// How often the leader is killed.
const KILLS: usize = 2;

/// Blocks that must be acknowledged before each kill and after the last.
const BLOCKS: u64 = 50;

/// The broker that leads the log, once there is one.
async fn leader(cluster: &Cluster) -> String {
    let began = Instant::now();
    loop {
        let status = cluster.status().await;
        if let Some(leader) = status.logs.first().and_then(|log| log.leader.clone()) {
            return leader;
        }
        assert!(began.elapsed() < 2 * PATIENCE, "{status}");
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test]
async fn an_owner_outlives_the_leader_of_its_log() {
    let Some((mut brokers, _folder)) = start() else { return };
    let cluster = cluster(&brokers, "kills", 1).await;
    let OpenLog { log, id, .. } = cluster.open().await.unwrap().remove(0);
    let reader = Reader::new(log.clone(), ReplicatedChain::start(id), 0);
    let owner = Owner::take(reader, node(1), unseen).await;
    let mut owner = owner.map_err(|(_, error)| error).unwrap();

    let mut acknowledged: Vec<Bytes> = Vec::new();
    let mut killed = None;
    for kill in 0..=KILLS {
        if kill > 0 {
            let leader = leader(&cluster).await;
            let number = leader.strip_prefix("broker-").unwrap().parse().unwrap();
            brokers.kill(number);
            killed = Some(number);
        }
        for _ in 0..BLOCKS {
            let record = Bytes::from((owner.position() + 1).to_le_bytes().to_vec());
            assert!(owner.push(&record));
            timeout(HANGS_AFTER, owner.flush()).await.expect("an answer in the end").unwrap();
            acknowledged.push(record);
        }
        if let Some(number) = killed.take() {
            brokers.restart(number);
        }
    }
    assert_eq!((owner.epoch(), owner.position()), (1, BLOCKS * (KILLS as u64 + 1)));

    let mut reader = Reader::new(log, ReplicatedChain::start(id), 0);
    let mut read = Vec::new();
    let all = reader.catch_up(|_, _, entry| {
        if let Entry::Records(records) = entry {
            read.extend(records.iter().map(Bytes::copy_from_slice));
        }
    });
    all.await.unwrap();
    assert_eq!(read, acknowledged);
}
