//! Replicated logs on three real brokers. `.ci/brokers` installs the program of a broker; without
//! it, these tests say that they were skipped.

mod catch_up;
mod cut_off;
mod kills;
mod rot;

use std::time::Instant;

use paperbourse_test_support::brokers::{self, Brokers};
use tempfile::TempDir;

use super::*;
use paperbourse_core::faults::{self, Fault};
use paperbourse_store::journal::replicated::test_util::{
    check_contract, check_races, takeovers_that_failed,
};
use paperbourse_store::journal::replicated::{Appended, Log as _};

/// How often four writers race for a place in a log.
const RACES: usize = 200;

/// How often a log is taken from an owner that keeps writing. Two blocks in flight show sooner.
const TAKEOVERS: usize = 200;

/// An owner without an answer for this long hangs.
const HANGS_AFTER: Duration = Duration::from_mins(10);

/// Brokers that sync always, and the folder of their files; `None` if there is no program.
fn start() -> Option<(Brokers, TempDir)> {
    let program = brokers::program()?;
    let folder = tempfile::tempdir().unwrap();
    let brokers = Brokers::start(&program, folder.path(), "always", "");
    Some((brokers, folder))
}

/// A connection of a new cluster with this many logs.
async fn cluster(brokers: &Brokers, name: &str, logs: u16) -> Cluster {
    let file = ClusterFile::new(name, brokers.addresses(), brokers.monitoring());
    let file = ClusterFile { logs, keep_minutes: 60, ..file };
    let cluster = Cluster::connect(file).await.unwrap();
    cluster.init(None).await.unwrap();
    cluster
}

/// A handle on the first log over a connection of its own.
async fn log(brokers: &Brokers, name: &str) -> JetStreamLog {
    let cluster = cluster(brokers, name, 1).await;
    cluster.open().await.unwrap().remove(0).log
}

#[tokio::test]
async fn brokers_keep_what_a_log_promises() {
    let Some((brokers, _folder)) = start() else { return };

    let began = Instant::now();
    check_contract(log(&brokers, "contract").await).await;

    println!("contract after {:?}", began.elapsed());

    let name = "races";
    let mut writers = Vec::new();
    for _ in 0..4 {
        writers.push(log(&brokers, name).await);
    }
    check_races(writers.try_into().unwrap_or_else(|_| panic!("four writers")), RACES).await;

    println!("races after {:?}", began.elapsed());
    let nodes = [log(&brokers, "takeovers").await, log(&brokers, "takeovers").await];
    takeovers_that_failed(nodes, TAKEOVERS).await.unwrap();

    println!("takeovers after {:?}", began.elapsed());
    faults::switch_on(Fault::TwoInFlight);
    let nodes = [log(&brokers, "two").await, log(&brokers, "two").await];
    let failed = takeovers_that_failed(nodes, TAKEOVERS).await;
    println!("two in flight: {}", failed.expect_err("two blocks in flight are detected"));
}

#[tokio::test]
async fn a_stream_that_is_gone_is_not_created_again() {
    let Some((brokers, _folder)) = start() else { return };
    let cluster = cluster(&brokers, "gone", 2).await;
    let log = cluster.open().await.unwrap().remove(0).log;

    // An `init` that was interrupted goes on.
    cluster.context.delete_stream("gone-1").await.unwrap();
    assert_eq!(cluster.init(None).await.unwrap(), 1);
    let written = async {
        while !matches!(log.append(0, "block".into()).await, Appended::Acknowledged) {
            if log.extent().await.is_ok_and(|extent| extent.last == 1) {
                break;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(HANGS_AFTER, written).await.unwrap();

    cluster.context.delete_stream("gone-1").await.unwrap();
    let expected = "stream gone-1 is gone, and other logs have blocks";
    for refused in [cluster.init(None).await.err(), cluster.open().await.err()] {
        let error = refused.unwrap().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let status = cluster.status().await;
    assert!(status.faults.iter().any(|fault| fault.contains(expected)), "{status}");
}
