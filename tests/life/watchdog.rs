//! The watchdog: a server that makes progress is left alone, and one of which a part hangs is
//! started again.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::process::{Process, ServerProcess, command, kill};
use paperbourse_test_support::{Connection, Request};
use serde_json::json;

use crate::BINARY;
use crate::supervisor::Supervisor;

/// How long a supervisor of these tests waits for a sign of life.
const INTERVAL: Duration = Duration::from_secs(4);

const CHECK_INTERVAL: Duration = Duration::from_millis(10);

fn start(supervisor: &Supervisor, data: &Path) -> ServerProcess {
    let mut serve = supervisor.serve(data, &["--workers", "2", "--journal-sync", "fdatasync"]);
    serve.env("WATCHDOG_USEC", INTERVAL.as_micros().to_string());
    Process::spawn(&mut serve).ready()
}

/// Reads messages until one says that the server is alive. False if none came in time.
fn is_alive(supervisor: &Supervisor) -> bool {
    let began = Instant::now();
    while let Some(message) = supervisor.next_within(INTERVAL.saturating_sub(began.elapsed())) {
        if message.contains_key("WATCHDOG") {
            return true;
        }
    }
    false
}

/// The id of the server's thread of this name.
fn thread_of(server: &ServerProcess, name: &str) -> u32 {
    let threads = fs::read_dir(format!("/proc/{}/task", server.id())).unwrap();
    let mut threads = threads.map(|entry| entry.unwrap().path());
    let thread = threads.find(|path| fs::read_to_string(path.join("comm")).unwrap().trim() == name);
    let thread = thread.unwrap_or_else(|| panic!("no thread is named {name}"));
    thread.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

/// A write of the server that nobody waits for.
fn write_something(server: &ServerProcess, data: &Path) {
    let token = command(BINARY).args(["token", "--subject", "x", "--data"]).arg(data).output();
    let token = String::from_utf8(token.unwrap().stdout).unwrap();
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(token.trim());
    Connection::open(server.address).write(&bootstrap.to_bytes());
}

/// Stops one thread from outside, in the next of these system calls that it makes, until dropped.
/// Given the process, stops each of its threads in such a call.
struct Hang(std::process::Child);

impl Hang {
    /// `None` if this machine cannot, for want of a tool or a permission.
    fn of(thread: u32, is_process: bool, calls: &str) -> Option<Self> {
        let delay = format!("inject={calls}:delay_enter=600000000");
        let mut strace = Command::new("strace");
        if is_process {
            strace.arg("-f");
        }
        strace.args(["-q", "-p", &thread.to_string(), "-e", &format!("trace={calls}")]);
        strace.args(["-e", &delay]);
        let strace = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let mut strace = strace.ok()?;
        let status = format!("/proc/{thread}/status");
        let is_traced = || {
            let status = fs::read_to_string(&status).unwrap();
            status.lines().any(|line| {
                line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0")
            })
        };
        while !is_traced() {
            if strace.try_wait().unwrap().is_some() {
                return None;
            }
            thread::park_timeout(CHECK_INTERVAL);
        }
        Some(Self(strace))
    }
}

impl Drop for Hang {
    fn drop(&mut self) {
        // The thread goes on once nobody traces it.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What must not happen in silence where everything is tested.
fn skip() {
    eprintln!("SKIPPED: no thread can be stopped here: strace is missing, or may not attach");
    assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "strace must work in CI");
}

/// Stops a thread of a server, or all of them if none is named. Sees that the watchdog is not told
/// that it is alive, and that the log names this part.
#[track_caller]
fn check_hang(thread: Option<&str>, calls: &str, part: &str) {
    let data = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::in_file();
    let server = start(&supervisor, data.path());
    assert!(is_alive(&supervisor) && is_alive(&supervisor));
    let id = thread.map_or(server.id(), |name| thread_of(&server, name));
    let Some(hang) = Hang::of(id, thread.is_none(), calls) else { return skip() };
    write_something(&server, data.path());
    // Some signs of life may still be on their way, or come before the hang is noticed.
    let began = Instant::now();
    while is_alive(&supervisor) {
        assert!(began.elapsed() < 5 * INTERVAL, "nobody noticed");
    }
    server.logged("a part of the server hangs");
    let lines = server.log_lines("a part of the server hangs");
    assert!(lines.iter().any(|line| line.contains(part)), "{lines:?}");
    // The supervisor kills such a server and starts another.
    kill("-ABRT", &server.id().to_string()).status().unwrap();
    drop(hang);
    let again = {
        drop(server);
        start(&supervisor, data.path())
    };
    assert!(is_alive(&supervisor));
    Connection::open(again.address).send(&Request::get("/v1/health/ready")).ok(200);
    again.terminate();
}

#[test]
fn a_worker_that_hangs_is_noticed() {
    check_hang(Some("worker-1"), "/epoll_p?wait2?", "worker-1");
}

#[test]
fn a_background_that_hangs_is_noticed() {
    check_hang(Some("paperbourse"), "/epoll_p?wait2?", "background");
}

#[test]
fn a_disk_that_hangs_is_noticed() {
    check_hang(None, "fdatasync", "journal");
}

/// A stop of the whole process is the machine's, not the server's: nobody is accused afterwards.
#[test]
fn a_pause_is_no_hang() {
    let data = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::in_file();
    let server = start(&supervisor, data.path());
    assert!(is_alive(&supervisor));
    server.signal("-STOP");
    while is_alive(&supervisor) {}
    server.signal("-CONT");
    for _ in 0..8 {
        assert!(is_alive(&supervisor));
    }
    assert_eq!(server.log_lines("hangs"), Vec::<String>::new());
    server.terminate();
}
