//! A node that has missed a long log, and whose broker is killed while it reads.
//!
//! `PAPERBOURSE_CLUSTER_BLOCKS=20000` makes the log longer.

use std::time::Instant;

use bytes::Bytes;
use tokio::time::timeout;

use super::{HANGS_AFTER, cluster, start};
use crate::OpenLog;
use paperbourse_store::journal::replicated::test_util::{node, unseen};
use paperbourse_store::journal::replicated::{Owner, Reader, ReplicatedChain};

/// The blocks of the log.
const BLOCKS: usize = 300;

/// One block in so many is long.
const LONG_EVERY: usize = 10;

#[tokio::test]
async fn a_reader_whose_broker_dies_passes_nothing_over() {
    let Some((mut brokers, _folder)) = start() else { return };
    let name = "catch-up";
    let written = std::env::var("PAPERBOURSE_CLUSTER_BLOCKS");
    let blocks = written.map_or(BLOCKS, |blocks| blocks.parse().expect("a whole number"));
    let writer = cluster(&brokers, name, 1).await;
    let OpenLog { log, id, .. } = writer.open().await.unwrap().remove(0);
    let reader = Reader::new(log.clone(), ReplicatedChain::start(id), 0);
    let owner = Owner::take(reader, node(1), unseen).await;
    let mut owner = owner.map_err(|(_, error)| error).unwrap();
    for number in 1..blocks {
        let bytes = if number % LONG_EVERY == 0 { 20_000 } else { 200 };
        assert!(owner.push(&number.to_le_bytes().repeat(bytes / 8)));
        timeout(HANGS_AFTER, owner.flush()).await.expect("an answer in the end").unwrap();
    }

    let began = Instant::now();
    let mut expected: Vec<Bytes> = Vec::new();
    let mut reader = Reader::new(log, ReplicatedChain::start(id), 0);
    reader.catch_up(|_, bytes, _| expected.push(bytes.clone())).await.unwrap();
    println!("{blocks} blocks after {:?}", began.elapsed());
    assert_eq!((expected.len(), reader.chain()), (blocks, owner.into_reader().chain()));

    let other = cluster(&brokers, name, 1).await;
    let log = other.open().await.unwrap().remove(0).log;
    let its_broker = other.client.server_info().server_name;
    let number = its_broker.strip_prefix("broker-").unwrap().parse().unwrap();
    let began = Instant::now();
    let mut shown = Vec::new();
    let mut reader = Reader::new(log, ReplicatedChain::start(id), 0);
    let read = reader.catch_up(|_, bytes, _| {
        shown.push(bytes.clone());
        if shown.len() == blocks / 2 {
            brokers.kill(number);
        }
    });
    timeout(HANGS_AFTER, read).await.expect("an answer in the end").unwrap();
    println!("{blocks} blocks, and a broker killed, after {:?}", began.elapsed());
    assert!(shown == expected);
}
