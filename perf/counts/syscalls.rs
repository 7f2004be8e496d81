//! System calls per full batch of trades. strace counts the calls of all threads of the server's
//! own binary.
//!
//! A signal stops the server while one request is sent on each connection, and another continues it
//! when all of them have arrived. So every batch finds the server in the same state, with a
//! backlog, instead of sometimes asleep and sometimes awake.
//!
//! - The reads of requests and writes of answers per trade are the same in every run, so they are
//!   gated like all other counts.
//! - So are the writes to the journal per sync.
//! - The number of syncs per batch depends on how long a sync takes compared with reading requests,
//!   since the journal's thread takes whatever has arrived by then. It has a bound ([`SYNCS_MAX`])
//!   instead of an accepted number; without group commit, each trade would need a sync.
//! - How often threads sleep and wake each other ([`SLEEPS`]) depends on which of them was awake.
//!   It is printed but not gated.
//! - All other calls are occasional, made by timers or by the allocator. Their sum has a bound
//!   ([`OTHERS_MAX`]) far below one per trade.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use paperbourse_test_support::process::kill;

use super::client::{Connection, Orders, Shape};
use super::server::{Journal, Server};
use super::table::Count;

/// The suffix of every unit.
pub(crate) const UNIT: &str = "system calls";

const STRACE: &str = "strace";

/// Number of requests in a batch, each on its own connection.
const CONNECTIONS: u32 = 64;
/// The number of additional batches in the second run.
const BATCHES: u32 = 200;

/// Maximum number of journal syncs per batch.
const SYNCS_MAX: f64 = 32.0;
/// Maximum number of calls per batch that are not listed below.
const OTHERS_MAX: f64 = 4.0;

/// Calls made equally often for each trade.
const STEADY: [&str; 2] = ["recvfrom", "sendto"];
const WRITE: &str = "pwrite64";
const SYNC: &str = "fdatasync";
/// Sleeping and waking; the signal that stops the server interrupts some of these calls.
const SLEEPS: [&str; 6] =
    ["epoll_wait", "futex", "write", "read", "sched_yield", "restart_syscall"];

/// Maximum time for the process to stop.
const PATIENCE: Duration = Duration::from_mins(1);

/// The server under strace, killed on drop.
struct Traced {
    server: Server,
    strace: Child,
    pid: String,
    summary: PathBuf,
}

/// Whether strace is installed.
pub(crate) fn is_possible() -> bool {
    Command::new(STRACE).arg("-V").output().is_ok() && Path::new("/proc/self/task").exists()
}

/// Counts calls per trade, as the difference between two runs with different numbers of batches.
pub(crate) fn count() -> Vec<Count> {
    let [fewer, more] = [BATCHES, 2 * BATCHES].map(run);
    let calls = |run: &BTreeMap<_, _>, name: &str| run.get(name).copied().unwrap_or(0.0);
    let each_batch = |name: &str| (calls(&more, name) - calls(&fewer, name)) / f64::from(BATCHES);
    let mut counts: Vec<_> = STEADY
        .iter()
        .map(|name| {
            let value = each_batch(name) / f64::from(CONNECTIONS);
            Count::new("trade among 64 at once, on disk", &format!("{name} {UNIT}"), value)
        })
        .collect();
    // Both numbers vary, so their difference would be noise: count both whole runs instead.
    let [writes, syncs] = [WRITE, SYNC].map(|name| calls(&fewer, name) + calls(&more, name));
    counts.push(Count::new("sync of the journal", &format!("{WRITE} {UNIT}"), writes / syncs));
    let syncs = syncs / f64::from(3 * BATCHES);
    println!("64 trades at once: {syncs:.2} {SYNC}, at most {SYNCS_MAX} pass");
    assert!(syncs <= SYNCS_MAX, "the journal is synced {syncs:.2} times for 64 trades at once");
    for name in SLEEPS {
        println!("64 trades at once: {:.2} {name}, which is not gated", each_batch(name));
    }
    let is_other = |name: &&String| {
        ![WRITE, SYNC].iter().chain(&STEADY).chain(&SLEEPS).any(|known| known == name)
    };
    let others: Vec<_> = more
        .keys()
        .filter(is_other)
        .map(|name| (name, each_batch(name)))
        .filter(|(_, value)| *value > 0.0)
        .collect();
    let sum: f64 = others.iter().map(|(_, value)| value).sum();
    println!("64 trades at once: {sum:.2} others, at most {OTHERS_MAX} pass: {others:?}");
    assert!(sum <= OTHERS_MAX, "{sum:.2} other {UNIT} for 64 trades at once: {others:?}");
    counts
}

/// Runs a server and returns its calls, by name.
fn run(batches: u32) -> BTreeMap<String, f64> {
    let traced = Traced::start();
    let mut orders = traced.server.orders("one", Shape::Plain);
    let open = |_| Connection::open(traced.server.address);
    let mut connections: Vec<_> = (0..CONNECTIONS).map(open).collect();
    for connection in &mut connections {
        connection.trade(&mut orders);
    }
    for _ in 0..batches {
        traced.batch(&mut connections, &mut orders);
    }
    parse(&traced.end())
}

impl Traced {
    fn start() -> Self {
        let server = Server::prepare();
        let summary = server.data().join("strace");
        let program = env::current_exe().expect("this program's file");
        let mut strace = Command::new(STRACE)
            .args(["-f", "-c", "-o"])
            .arg(&summary)
            // The shell prints its process id, and then becomes the server.
            .args(["sh", "-c", r#"echo $$; exec "$@" >/dev/null 2>&1"#, "sh"])
            .arg(program.with_file_name("paperbourse"))
            .arg("serve")
            .args(server.flags(Journal::Disk))
            .stdout(Stdio::piped())
            .spawn()
            .expect("strace runs");
        let mut pid = String::new();
        let mut stdout = BufReader::new(strace.stdout.take().expect("stdout is a pipe"));
        stdout.read_line(&mut pid).expect("the shell prints its process id");
        let traced = Self { server, strace, pid: pid.trim().into(), summary };
        traced.server.wait_until_ready();
        traced
    }

    fn batch(&self, connections: &mut [Connection], orders: &mut Orders) {
        self.signal("-STOP");
        let started = Instant::now();
        while !self.is_stopped() {
            assert!(started.elapsed() < PATIENCE, "the server does not stop");
            thread::yield_now();
        }
        for connection in &mut *connections {
            connection.send(orders.next_request());
        }
        self.signal("-CONT");
        for connection in connections {
            connection.expect_fill();
        }
    }

    /// Whether all threads are stopped. strace puts a thread that it inspects into the same state,
    /// but never all threads, since some always sleep.
    fn is_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the server runs");
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, state)| state.as_bytes()[0]);
            state.is_some_and(|state| state.eq_ignore_ascii_case(&b't'))
        })
    }

    fn signal(&self, name: &str) {
        let status = kill(name, &self.pid).status();
        assert!(status.expect("kill runs").success(), "failed to signal the server");
    }

    /// Ends the server, and returns strace's summary.
    fn end(mut self) -> String {
        self.signal("-TERM");
        let status = self.strace.wait().expect("strace can be waited for");
        assert!(status.success(), "the server under strace has ended with {status}");
        fs::read_to_string(&self.summary).expect("strace has written its summary")
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if matches!(self.strace.try_wait(), Ok(None)) {
            // strace ends with the program that it traces.
            let _ = kill("-KILL", &self.pid).status();
            let _ = self.strace.wait();
        }
    }
}

/// Parses strace's summary. A row has the share of time, seconds, microseconds per call, calls,
/// errors or nothing, and the name.
fn parse(summary: &str) -> BTreeMap<String, f64> {
    let row = |line: &str| {
        let cells: Vec<_> = line.split_whitespace().collect();
        let calls: u32 = cells.get(3)?.parse().ok()?;
        let name = cells.get(4..)?.last()?;
        (*name != "total").then(|| ((*name).to_owned(), f64::from(calls)))
    };
    summary.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straces_table_is_parsed() {
        const SUMMARY: &str = "\
% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 68.83    0.002506          37        67           fdatasync
 31.17    0.001135           9       120         4 futex
------ ----------- ----------- --------- --------- ----------------
100.00    0.003641          19       187         4 total
";
        let expected = [("fdatasync".to_owned(), 67.0), ("futex".to_owned(), 120.0)];
        assert_eq!(parse(SUMMARY), expected.into());
    }
}
