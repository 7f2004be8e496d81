//! The end of the process: what a second and a third signal do, and what ends a process that hangs.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, PipeReader, Write as _, pipe};
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::process::{ServerProcess, command, kill};
use paperbourse_test_support::{Connection, Request};
use rustix::fs::OFlags;

use crate::BINARY;

/// Longer than any drain may take.
const PATIENCE: Duration = Duration::from_mins(1);

const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// How many connections wait to be accepted.
const WAITING: usize = 50;

/// Two signals of the same kind at the same time are one.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(300);

#[test]
fn a_second_signal_waits_no_longer_for_connections() {
    let data = tempfile::tempdir().unwrap();
    // With one worker, who is answered later proves that the request before has been read.
    let mut server = ServerProcess::start(BINARY, data.path(), &["--workers", "1"]);
    // A request without its end is in flight.
    let mut late = Connection::open(server.address);
    late.write(b"POST /trade HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{");
    let mut other = Connection::open(server.address);
    other.send(&Request::get("/v1/health")).ok(200);
    server.signal("-TERM");
    assert!(other.is_ended(), "it was idle");
    server.logged("draining");
    server.signal("-INT");
    let line = server.logged("second signal");
    // The idle one is counted until its task has ended, a moment after its client sees the end.
    let counts = ["connections=1 ", "connections=2 "];
    assert!(counts.iter().any(|count| line.contains(count)), "{line}");
    assert!(line.contains("held_orders=0"), "{line}");
    server.logged("stopped; everything acknowledged is on disk");
    assert_eq!(server.wait().code(), Some(0));
}

/// They connected before the server stopped to listen, so nothing tells them to go elsewhere.
#[test]
fn connections_that_wait_to_be_accepted_are_answered() {
    let data = tempfile::tempdir().unwrap();
    let mut server = ServerProcess::start(BINARY, data.path(), &["--workers", "1"]);
    server.signal("-STOP");
    let health = Request::get("/v1/health");
    let mut waiting: Vec<Connection> =
        (0..WAITING).map(|_| Connection::open(server.address)).collect();
    for connection in &mut waiting {
        connection.write(&health.to_bytes());
    }
    server.signal("-TERM");
    server.signal("-CONT");
    for connection in &mut waiting {
        connection.read(false).ok(200);
    }
    assert_eq!(server.wait().code(), Some(0));
}

/// A ready server whose log nobody reads any more: the next line blocks the thread that logs it.
fn hanging() -> (Child, PipeReader, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let (reader, writer) = pipe().unwrap();
    // Writing here never blocks, unlike in the process, whose end of the pipe is another.
    let mut filler = {
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        OpenOptions::new().write(true).custom_flags(flags).open(path).unwrap()
    };
    let mut serve = command(BINARY);
    serve.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "human", "--data"]);
    serve.arg(data.path()).stdout(writer);
    let child = serve.spawn().unwrap();
    drop(serve);
    let mut lines = BufReader::new(reader);
    let mut line = String::new();
    while !line.ends_with(" ready\n") {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
    }
    let reader = lines.into_inner();
    // Single bytes leave no room for a line.
    while filler.write(b"\n").is_ok() {}
    (child, reader, data)
}

/// Sends a signal to a process that hangs, again and again if wanted, and checks when it ends.
#[track_caller]
fn check_hanging(is_repeated: bool, expected: Range<Duration>) {
    let (mut child, _reader, _data) = hanging();
    let began = Instant::now();
    let (mut sent, mut next) = (0, Duration::ZERO);
    let status = loop {
        if (is_repeated || sent == 0) && began.elapsed() >= next {
            kill("-TERM", &child.id().to_string()).status().unwrap();
            (sent, next) = (sent + 1, began.elapsed() + SIGNAL_INTERVAL);
        }
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        assert!(began.elapsed() < PATIENCE, "it hangs");
        thread::park_timeout(CHECK_INTERVAL);
    };
    let elapsed = began.elapsed();
    assert!(expected.contains(&elapsed), "{elapsed:?} after {sent} signals");
    assert_eq!(status.signal(), Some(9), "{status}");
}

#[test]
fn a_third_signal_ends_a_process_that_hangs() {
    check_hanging(true, Duration::ZERO..Duration::from_secs(15));
}

#[test]
fn a_drain_that_hangs_ends_at_its_deadline() {
    check_hanging(false, Duration::from_secs(18)..Duration::from_secs(40));
}
