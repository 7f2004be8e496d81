//! How many system calls a full batch of trades takes: strace counts those of the server's own
//! program, all of its threads together.
//!
//! The server is stopped by a signal while one request is sent on each connection, and goes on when
//! all of them are there: each batch finds it as a load does that it is behind, and not sometimes
//! asleep and sometimes awake.
//!
//! - Reads of requests and writes of answers are the same for each trade in every run: gated as all
//!   counts are.
//! - So are the writes to the journal for one sync of it.
//! - How many syncs a batch takes depends on how long one of them takes beside the reading of
//!   requests, since the journal's thread takes what is there by then. There is a bound
//!   ([`SYNCS_MAX`]) and no number: without group commit there would be one for each trade.
//! - How often threads sleep and wake each other ([`SLEEPS`]) depends on who was awake. It is told
//!   and nothing more.
//! - All others together are what is done now and then, by the clock or by the allocator. They have
//!   a bound ([`OTHERS_MAX`]) far below one for each trade.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, thread};

use super::client::{Connection, Orders, Shape};
use super::server::{Journal, Server};
use super::table::Count;

/// What each unit ends with.
pub(crate) const UNIT: &str = "system calls";

const STRACE: &str = "strace";

/// Requests that are there at once, each on a connection of its own.
const CONNECTIONS: u32 = 64;
/// How many more batches the second run has.
const BATCHES: u32 = 200;

/// Syncs of the journal for one batch, at most.
const SYNCS_MAX: f64 = 32.0;
/// Calls for one batch that are named nowhere here, at most.
const OTHERS_MAX: f64 = 4.0;

/// The same for each trade.
const STEADY: [&str; 2] = ["recvfrom", "sendto"];
const WRITE: &str = "pwrite64";
const SYNC: &str = "fdatasync";
/// Sleeping and waking; a signal that stops the server interrupts some of it.
const SLEEPS: [&str; 6] =
    ["epoll_wait", "futex", "write", "read", "sched_yield", "restart_syscall"];

/// How long a process may take to stop.
const PATIENCE: Duration = Duration::from_mins(1);

/// The server under strace. It is killed when this is dropped.
struct Traced {
    server: Server,
    strace: Child,
    pid: String,
    summary: PathBuf,
}

/// Whether there is anything to count with.
pub(crate) fn is_possible() -> bool {
    Command::new(STRACE).arg("-V").output().is_ok() && Path::new("/proc/self/task").exists()
}

/// Counts for one trade: the difference of two runs that differ in how many batches there are.
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
    // The difference of two numbers that vary would be anything: here it is all that was done.
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

/// The calls of a whole run, by name.
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
            // The shell tells its id, and becomes the server.
            .args(["sh", "-c", r#"echo $$; exec "$@" >/dev/null 2>&1"#, "sh"])
            .arg(program.with_file_name("paperbourse"))
            .arg("serve")
            .args(server.flags(Journal::Disk))
            .stdout(Stdio::piped())
            .spawn()
            .expect("strace runs");
        let mut pid = String::new();
        let mut stdout = BufReader::new(strace.stdout.take().expect("it is piped"));
        stdout.read_line(&mut pid).expect("the shell tells its id");
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

    /// Whether all threads are. One that strace looks at has the same state, but never all have:
    /// some always sleep.
    fn is_stopped(&self) -> bool {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid)).expect("the server runs");
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").map(|(_, state)| state.as_bytes()[0]);
            state.is_some_and(|state| state.eq_ignore_ascii_case(&b't'))
        })
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.pid]).status();
        assert!(status.expect("kill runs").success(), "the server is gone");
    }

    /// Ends the server, and returns what strace tells then.
    fn end(mut self) -> String {
        self.signal("-TERM");
        let status = self.strace.wait().expect("it is a child");
        assert!(status.success(), "the server under strace has ended with {status}");
        fs::read_to_string(&self.summary).expect("strace has written it")
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        if matches!(self.strace.try_wait(), Ok(None)) {
            // strace ends with what it watches.
            let _ = Command::new("kill").args(["-KILL", &self.pid]).status();
            let _ = self.strace.wait();
        }
    }
}

/// A row of strace's table has the share of time, seconds, microseconds for each call, calls,
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
    fn the_table_of_strace_is_read() {
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
