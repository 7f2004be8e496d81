//! The broker that leads a log, and to which its owner is connected, loses contact with the others.

use std::time::{Duration, Instant};

use paperbourse_test_support::brokers::{self, Brokers};
use tokio::time::timeout;

use super::cluster;
use super::rot::make_leader;
use crate::OpenLog;
use paperbourse_store::journal::replicated::test_util::{node, unseen, write};
use paperbourse_store::journal::replicated::{Owner, Reader, ReplicatedChain};

const NAME: &str = "cut-off";

/// Within this time the owner of a log gives up its brokers.
const TIME_MAX: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_owner_leaves_a_broker_that_is_cut_off() {
    let Some(program) = brokers::program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let brokers = Brokers::start_linked(&program, folder.path());
    let cluster = cluster(&brokers, NAME, 1).await;
    let OpenLog { log, id, .. } = cluster.open().await.unwrap().remove(0);
    let reader = Reader::new(log.clone(), ReplicatedChain::start(id), 0);
    let owner = Owner::take(reader, node(1), unseen).await;
    let mut owner = owner.map_err(|(_, error)| error).unwrap();
    write(&mut owner, 5).await;

    let connected_to = || log.client().server_info().server_name;
    let broker = connected_to();
    make_leader(&cluster, NAME, &broker).await;
    brokers.cut_off(broker.strip_prefix("broker-").unwrap().parse().unwrap());
    let began = Instant::now();
    timeout(TIME_MAX, write(&mut owner, 5)).await.expect("another broker takes the blocks");
    assert_ne!(connected_to(), broker);
    println!("left {broker} for {} after {:?}", connected_to(), began.elapsed());
}
