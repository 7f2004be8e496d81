//! What a supervisor is told.

use paperbourse_test_support::{Connection, Request};
use rustix::time::{ClockId, clock_gettime};

use crate::supervisor::Supervisor;

fn monotonic_us() -> i64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1_000
}

/// A whole life: it is ready once it serves, reloads, and stops.
#[track_caller]
fn check(supervisor: &Supervisor) {
    let data = tempfile::tempdir().unwrap();
    let process = supervisor.start(data.path(), &[]);
    let told = supervisor.until("READY");
    let (ready, before) = told.split_last().unwrap();
    assert!(before.iter().all(|message| message.contains_key("STATUS")), "{told:?}");

    let mut server = process.ready();
    let shown = format!("serving on http://{}", server.address);
    assert_eq!((ready["READY"].as_str(), ready["STATUS"].as_str()), ("1", shown.as_str()));
    let markets = Connection::open(server.address).send(&Request::get("/v1/markets"));
    assert_eq!(markets.status, 200, "{markets:?}");

    let before = monotonic_us();
    server.signal("-HUP");
    let told = supervisor.until("READY");
    let [reloading, ready] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(reloading["RELOADING"], "1");
    let at: i64 = reloading["MONOTONIC_USEC"].parse().unwrap();
    assert!((before..=monotonic_us()).contains(&at), "{before} {at}");
    assert_eq!(ready["STATUS"], shown);
    server.logged("read the configuration again");

    server.signal("-TERM");
    let told = supervisor.until("STOPPING");
    assert_eq!(told.last().unwrap()["STOPPING"], "1", "{told:?}");
    assert!(server.wait().success());
}

#[test]
fn a_supervisor_hears_of_ready_reloading_and_stopping() {
    check(&Supervisor::in_file());
    #[cfg(target_os = "linux")]
    check(&Supervisor::in_abstract());
}

#[test]
fn a_server_serves_without_the_supervisor_that_it_cannot_reach() {
    let data = tempfile::tempdir().unwrap();
    let mut supervisor = Supervisor::in_file();
    for address in ["/nowhere/notify", "vsock:2:1234"] {
        address.clone_into(&mut supervisor.address);
        let server = supervisor.start(data.path(), &[]).ready();
        let warned = server.logged("cannot notify the supervisor");
        assert!(warned.contains(address), "{warned}");
        server.terminate();
    }
}
