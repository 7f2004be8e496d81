//! Checks in the server's system calls that each answer leaves after the sync that covers it.
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
    "trace=pwrite64,pwritev,write,writev,sendto,sendmsg,fdatasync,fsync",
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
    is_zero: bool,
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
        self.name == "fdatasync" && self.is_zero && self.segment().is_some()
    }

    fn is_answer_to(&self, port: u16) -> bool {
        self.arguments.contains(&format!("->127.0.0.1:{port}]"))
            && self.arguments.contains("HTTP/1.1 200 ")
    }
}

#[test]
fn each_answer_leaves_after_the_sync_that_covers_it() {
    if Command::new("strace").arg("-V").output().is_err() {
        assert!(std::env::var("CI").is_err(), "strace is needed");
        eprintln!("SKIPPED: strace is not installed, so no system calls were checked");
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let (server, trace) = start_under(&STRACE, data.path());
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
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    server.kill();
    let calls = read(&trace.join().unwrap());

    let sends = check_connection(&calls, alone, ONE_BY_ONE_COUNT);
    for (before, send) in sends.iter().zip(&sends[1..]) {
        let between = || calls.iter().filter(|c| c.begin > before.begin && c.begin < send.begin);
        let counts = (
            between().filter(|call| call.is_write()).count(),
            between().filter(|call| call.is_sync()).count(),
        );
        assert_eq!(counts, (1, 1), "writes and syncs of a single order");
    }
    for port in ports {
        check_connection(&calls, port, PER_CONNECTION_COUNT);
    }
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

/// Returns the answers of one connection in order. Checks that between the write of each record and
/// its answer a sync began and ended.
fn check_connection(calls: &[Call], port: u16, count: usize) -> Vec<&Call> {
    let sends: Vec<_> = calls.iter().filter(|call| call.is_answer_to(port)).collect();
    assert_eq!(sends.len(), count, "answers on port {port}");
    for (number, send) in sends.iter().enumerate() {
        let name = name(port, number);
        let mut writes =
            calls.iter().filter(|call| call.is_write() && call.arguments.contains(&name));
        let write = writes.next().unwrap_or_else(|| panic!("{name} was never written"));
        assert!(writes.next().is_none(), "{name} was written twice");
        let is_covered = calls.iter().any(|sync| {
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
        let is_zero = line.ends_with(" = 0");
        if text.starts_with("<... ") {
            if let Some(call) = unfinished.remove(thread) {
                calls.push(Call { end: number, is_zero, ..call });
            }
        } else if let Some((name, arguments)) = text.split_once('(') {
            let (name, arguments) = (name.into(), arguments.into());
            let call = Call { name, arguments, begin: number, end: number, is_zero };
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
