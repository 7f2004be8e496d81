//! The server as a process: started on a free port, killed when dropped.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_mins(1);

/// A command without the settings of the caller's environment.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PAPERBOURSE_") {
            command.env_remove(name);
        }
    }
    command
}

/// A command that sends a process a signal, such as `-TERM`. It is the shell's own `kill`: a bare
/// system has no program of that name.
pub fn kill(signal: &str, pid: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", r#"kill "$0" "$1""#, signal, pid]);
    command
}

/// A ready server, which is killed when this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    process: Process,
    /// The address that it listens on.
    pub address: SocketAddr,
}

/// A started server, ready or not, which is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: Arc<Log>,
}

/// The log of a process.
#[derive(Default, Debug)]
struct Log {
    state: Mutex<LogState>,
    changed: Condvar,
}

#[derive(Default, Debug)]
struct LogState {
    lines: Vec<String>,
    has_ended: bool,
}

impl ServerProcess {
    /// Starts a server on this data folder and waits until it is ready.
    #[track_caller]
    pub fn start(program: &str, data: &Path, arguments: &[&str]) -> Self {
        let mut command = command(program);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data"]).arg(data).args(arguments);
        Process::spawn(&mut command).ready()
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Sends the process a signal, such as `-TERM`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits until the process has ended and its log is complete.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// The log lines with this text so far.
    pub fn log_lines(&self, text: &str) -> Vec<String> {
        self.process.log_lines(text)
    }

    /// Waits for the first log line with this text.
    #[track_caller]
    pub fn logged(&self, text: &str) -> String {
        self.process.wait_for_line(|line| line.contains(text))
    }

    /// Interrupts the server as an operator would, and returns its log.
    #[track_caller]
    pub fn interrupt(mut self) -> Vec<String> {
        self.signal("-INT");
        let status = self.wait();
        let lines = self.process.log_lines("");
        assert!(status.success(), "{status}: {lines:?}");
        lines
    }

    /// Terminates the server and waits for its end.
    #[track_caller]
    pub fn terminate(mut self) {
        self.signal("-TERM");
        let status = self.wait();
        assert!(status.success(), "not an orderly shutdown: {status}");
    }

    /// Kills the server, as in a crash.
    pub fn kill(self) {
        drop(self);
    }
}

impl Process {
    /// Starts the process and reads its log to the end, so that it never blocks on a full pipe.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Self {
        // Tests read the log as people do; a flag wins over this.
        let child = command.env("PAPERBOURSE_LOG_FORMAT", "human").stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = child.stdout.take().unwrap();
        let log = Arc::<Log>::default();
        std::thread::spawn({
            let log = log.clone();
            move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    log.change(|state| state.lines.push(line));
                }
                log.change(|state| state.has_ended = true);
            }
        });
        Self { child, log }
    }

    /// Waits until the log reports that the server is ready.
    #[track_caller]
    pub fn ready(self) -> ServerProcess {
        const ADDRESS: &str = "listening on http://";
        let line = self.wait_for_line(|line| line.contains(ADDRESS));
        let (_, address) = line.split_once(ADDRESS).unwrap();
        // In JSON, the message ends with a quote.
        let address = address.split('"').next().unwrap().trim().parse().unwrap();
        let is_ready = |line: &str| line.ends_with(" ready") || line.contains(":\"ready\"");
        self.wait_for_line(is_ready);
        ServerProcess { process: self, address }
    }

    /// Sends the process a signal, such as `-TERM`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        let sent = kill(name, &self.child.id().to_string()).status();
        assert!(sent.unwrap().success());
    }

    /// Waits until the process has ended and its log is complete.
    pub fn wait(&mut self) -> ExitStatus {
        let status = self.child.wait().unwrap();
        self.log.wait_for_end();
        status
    }

    /// Its exit status, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// The log lines with this text so far.
    pub fn log_lines(&self, text: &str) -> Vec<String> {
        self.log.lines_with(text)
    }

    /// Waits for the first log line.
    #[track_caller]
    pub fn wait_for_sign_of_life(&self) {
        self.wait_for_line(|_| true);
    }

    /// The standard error, if it is a pipe that was not taken yet.
    pub fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for the first log line that is wanted.
    #[track_caller]
    pub fn wait_for_line(&self, is_wanted: impl Fn(&str) -> bool) -> String {
        self.wait_for_lines(1, is_wanted)
    }

    /// Waits for as many log lines that are wanted, and returns the last of them.
    #[track_caller]
    pub fn wait_for_lines(&self, count: usize, is_wanted: impl Fn(&str) -> bool) -> String {
        let state = self.log.state.lock().unwrap_or_else(PoisonError::into_inner);
        let find = |state: &LogState| {
            state.lines.iter().filter(|line| is_wanted(line)).nth(count - 1).cloned()
        };
        let is_missing = |state: &mut LogState| !state.has_ended && find(state).is_none();
        let waited = self.log.changed.wait_timeout_while(state, START_TIME_MAX, is_missing);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        find(&state).unwrap_or_else(|| panic!("not logged:\n{}", state.lines.join("\n")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Log {
    fn change(&self, change: impl FnOnce(&mut LogState)) {
        change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    fn lines_with(&self, text: &str) -> Vec<String> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.lines.iter().filter(|line| line.contains(text)).cloned().collect()
    }

    fn wait_for_end(&self) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(state, |state| !state.has_ended));
    }
}
