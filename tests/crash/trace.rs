//! Checks in the server's system calls that each answer leaves after its record is on disk: after a
//! sync that covers it, or after its write if the file was opened for durable writes.
//!
//! Trace lines are in the order in which the kernel resumed the server. A call that others overtake
//! has two lines, one for its beginning and one for its end. A call is "after" another if it begins
//! on a later line than the other ends.

use std::collections::HashMap;
use std::process::Command;

use paperbourse_test_support::{Connection, Request};
use serde_json::json;

use crate::load::Trader;
use crate::rounds::bootstrap;
use crate::server::start_under;

const ONE_BY_ONE_COUNT: usize = 30;
const CONNECTION_COUNT: usize = 8;
const PER_CONNECTION_COUNT: usize = 20;

/// Where the data is: temporary files are often in memory, where there are no direct writes.
const FOLDER: &str = env!("CARGO_TARGET_TMPDIR");

const STRACE: [&str; 9] = [
    "strace",
    // The server stays our direct child, so that we can kill it.
    "-D",
    "-f",
    // Show the files and peers of descriptors, and data in full.
    "-yy",
    "-s",
    "2000000",
    "-e",
    "trace=openat,pwrite64,pwritev,write,writev,sendto,sendmsg,fdatasync,fsync",
    "--signal=none",
];

/// One system call.
#[derive(Debug)]
struct Call {
    name: String,
    /// The arguments known when the call began.
    arguments: String,
    /// The lines on which the call begins and ends.
    begin: usize,
    end: usize,
    result: String,
}

impl Call {
    /// The journal segment that the call works on.
    fn segment(&self) -> Option<&str> {
        let file = self.arguments.split_once('<')?.1.split_once('>')?.0;
        file.ends_with(".segment").then_some(file)
    }

    fn is_write(&self) -> bool {
        self.name.starts_with("pwrite") && self.segment().is_some()
    }

    fn is_sync(&self) -> bool {
        self.name == "fdatasync" && self.result == "0" && self.segment().is_some()
    }

    /// Whether the file that this call writes was opened for durable writes.
    fn is_durable_write(&self, calls: &[Self]) -> bool {
        let descriptor = self.arguments.split_once('<').expect("a descriptor and its file").0;
        let is_same = |result: &str| result.split_once('<').is_some_and(|it| it.0 == descriptor);
        let mut before = calls.iter().filter(|call| call.end < self.begin);
        let opened = before.rfind(|call| call.name == "openat" && is_same(&call.result));
        opened.is_some_and(|open| open.arguments.contains("O_DSYNC"))
    }

    fn is_answer_to(&self, port: u16) -> bool {
        self.arguments.contains(&format!("->127.0.0.1:{port}]"))
            && self.arguments.contains("HTTP/1.1 200 ")
    }
}

#[test]
fn each_answer_leaves_after_the_write_or_sync_that_covers_it() {
    if check(&[]) == Some(false) {
        assert!(std::env::var("CI").is_err(), "direct writes are needed in {FOLDER}");
        eprintln!("SKIPPED: no direct writes were checked: the file system of {FOLDER} has none");
    }
}

#[test]
fn each_answer_leaves_after_the_sync_that_covers_it() {
    let is_direct = check(&["--journal-sync", "fdatasync"]);
    assert_ne!(is_direct, Some(true), "the flag is ignored");
}

/// Returns whether the journal was written around the page cache. `None` without strace.
fn check(flags: &[&str]) -> Option<bool> {
    if Command::new("strace").arg("-V").output().is_err() {
        assert!(std::env::var("CI").is_err(), "strace is needed");
        eprintln!("SKIPPED: strace is not installed, so no system calls were checked");
        return None;
    }
    let data = tempfile::tempdir_in(FOLDER).expect("a folder can be made");
    let (server, trace) = start_under(&STRACE, data.path(), flags);
    let trader = bootstrap(data.path(), &server, 0, 0);
    let mut connection = Connection::open(server.address);
    let alone = connection.port();
    for number in 0..ONE_BY_ONE_COUNT {
        connection.done(&order(&trader, alone, number));
    }
    let ports: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTION_COUNT)
            .map(|_| {
                scope.spawn(|| {
                    let mut connection = Connection::open(server.address);
                    let port = connection.port();
                    for number in 0..PER_CONNECTION_COUNT {
                        connection.done(&order(&trader, port, number));
                    }
                    port
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("all orders are filled")).collect()
    });
    server.kill();
    let calls = read(&trace.join().expect("the trace can be read"));

    let mut writes = calls.iter().filter(|call| call.is_write()).rev();
    let is_direct = writes.next().expect("the journal was written").is_durable_write(&calls);
    let sends = check_connection(&calls, alone, ONE_BY_ONE_COUNT);
    for (before, send) in sends.iter().zip(&sends[1..]) {
        let between = || calls.iter().filter(|c| c.begin > before.begin && c.begin < send.begin);
        let counts = (
            between().filter(|call| call.is_write()).count(),
            between().filter(|call| call.is_sync()).count(),
        );
        let expected = (1, usize::from(!is_direct));
        assert_eq!(counts, expected, "writes and syncs of a single order");
    }
    for port in ports {
        check_connection(&calls, port, PER_CONNECTION_COUNT);
    }
    Some(is_direct)
}

/// The client order id, which is in the order's record and so in the written bytes.
fn name(port: u16, number: usize) -> String {
    format!("traced-{port}-{number}-end")
}

fn order(trader: &Trader, port: u16, number: usize) -> Request {
    Request::post(
        "/trade",
        &json!({
            "market_id": paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID,
            "outcome": "yes",
            "side": "BUY",
            "quantity": 1,
            "client_order_id": name(port, number),
        }),
    )
    .key(&trader.key)
}

/// Returns the answers of one connection in order. Checks that each record was on disk before its
/// answer left: by its write, or by a sync that began and ended in between.
fn check_connection(calls: &[Call], port: u16, count: usize) -> Vec<&Call> {
    let sends: Vec<_> = calls.iter().filter(|call| call.is_answer_to(port)).collect();
    assert_eq!(sends.len(), count, "answers on port {port}");
    for (number, send) in sends.iter().enumerate() {
        let name = name(port, number);
        let mut writes =
            calls.iter().filter(|call| call.is_write() && call.arguments.contains(&name));
        let write = writes.next().unwrap_or_else(|| panic!("{name} was never written"));
        assert!(writes.next().is_none(), "{name} was written twice");
        let is_on_disk = write.end < send.begin && write.is_durable_write(calls);
        let is_covered = is_on_disk
            || calls.iter().any(|sync| {
                sync.is_sync()
                    && sync.segment() == write.segment()
                    && sync.begin > write.end
                    && sync.end < send.begin
            });
        assert!(
            is_covered,
            "{name}: written on lines {} to {}, answered on line {} without a sync in between",
            write.begin, write.end, send.begin
        );
    }
    sends
}

/// The calls in the order in which they began, without those that never ended.
fn read(trace: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    let mut unfinished: HashMap<&str, Call> = HashMap::new();
    for (number, line) in trace.lines().enumerate() {
        let Some((thread, text)) = line
            .strip_prefix("[pid")
            .and_then(|rest| rest.split_once(']'))
            .map(|(thread, text)| (thread.trim(), text.trim_start()))
        else {
            continue;
        };
        let result = line.rsplit_once(" = ").map_or(String::new(), |(_, it)| it.to_owned());
        if text.starts_with("<... ") {
            if let Some(call) = unfinished.remove(thread) {
                calls.push(Call { end: number, result, ..call });
            }
        } else if let Some((name, arguments)) = text.split_once('(') {
            let (name, arguments) = (name.into(), arguments.into());
            let call = Call { name, arguments, begin: number, end: number, result };
            if line.ends_with("<unfinished ...>") {
                unfinished.insert(thread, call);
            } else {
                calls.push(call);
            }
        }
    }
    calls.sort_by_key(|call| call.begin);
    calls
}
