//! Replicated logs: owners that take a log from each other, and readers that follow one.

mod catch_up;
mod owners;
mod upstream;
mod world;

use paperbourse_core::faults::{self, Fault};

use super::test_util::{MemoryLog, TROUBLE, check_contract, check_races, takeovers_that_failed};

#[tokio::test(start_paused = true)]
async fn memory_keeps_the_contract() {
    check_contract(MemoryLog::whole()).await;
}

#[tokio::test(start_paused = true)]
async fn one_writer_wins_each_place_in_memory() {
    let log = MemoryLog::whole();
    check_races([log.clone(), log.clone(), log.clone(), log], 200).await;
}

#[tokio::test(start_paused = true)]
async fn no_answer_of_a_former_owner_is_above_the_fence_in_memory() {
    for seed in 0..20 {
        let log = MemoryLog::troubled(seed, TROUBLE);
        takeovers_that_failed([log.clone(), log], 20).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn two_blocks_in_flight_are_detected_in_memory() {
    faults::switch_on(Fault::TwoInFlight);
    for seed in 0..200 {
        let log = MemoryLog::troubled(seed, TROUBLE);
        if takeovers_that_failed([log.clone(), log], 20).await.is_err() {
            return;
        }
    }
    panic!("not detected");
}
