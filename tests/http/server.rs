//! The binary as a process: started on a free port, killed when no longer needed.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::ids::Timestamp;
use paperbourse::limits::tier::Tier;
use paperbourse_test_support::process::{Process, ServerProcess};
use paperbourse_test_support::{Connection, Request, Response, witness};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{asyncapi, recording};

/// Limits that tests of other things never reach.
const UNLIMITED: [&str; 8] = [
    "--tier",
    "free=unlimited/unlimited/2/5,pro=unlimited/unlimited/10/20",
    "--address-limits",
    "off",
    "--key-rate",
    "unlimited",
    "--socket-rate",
    "unlimited",
];

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    process: ServerProcess,
    folder: Arc<TempDir>,
    issuer: EmbeddedIssuer,
}

/// An account with its first key.
pub(crate) struct Account<'s> {
    pub(crate) server: &'s Server,
    pub(crate) subject: String,
    pub(crate) token: String,
    pub(crate) key: String,
    pub(crate) key_id: u64,
}

/// A shared server, and a shell that outlives the tests to end it: statics are never dropped.
struct Shared {
    server: Server,
    _reaper: Child,
}

/// The server for tests that need nothing special: unlimited, with the recording's markets.
pub(crate) fn shared() -> &'static Server {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    &SHARED.get_or_init(|| Shared::start(&UNLIMITED)).server
}

/// The same, with the venue's interface.
pub(crate) fn shared_with_clob() -> &'static Server {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    let flags = [&UNLIMITED[..], &["--clob", "on"]].concat();
    &SHARED.get_or_init(|| Shared::start(&flags)).server
}

impl Shared {
    fn start(flags: &[&str]) -> Self {
        let server = Server::start(flags);
        let script = "cat >/dev/null; kill -9 \"$1\"; rm -rf \"$2\"";
        let reaper = Command::new("sh")
            .args(["-c", script, "reaper", &server.process.id().to_string()])
            .arg(server.folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { server, _reaper: reaper }
    }
}

impl From<&Server> for SocketAddr {
    fn from(server: &Server) -> Self {
        server.address
    }
}

impl Server {
    /// A server that plays the recording of these tests.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_recorded(Command::new(env!("CARGO_BIN_EXE_paperbourse")), flags)
    }

    fn start_recorded(command: Command, flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        recording::write(&folder.path().join("recording"));
        Self::start_by(command, Arc::new(folder), flags)
    }

    /// A server without limits that plays the recording of these tests.
    pub(crate) fn unlimited() -> Self {
        Self::start(&UNLIMITED)
    }

    /// A server without limits that plays the recording of these tests after this change.
    pub(crate) fn after(change: impl FnOnce(&Path)) -> Self {
        Self::after_with(change, &[])
    }

    /// The same, with these additional flags.
    pub(crate) fn after_with(change: impl FnOnce(&Path), flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let recording = folder.path().join("recording");
        recording::write(&recording);
        change(&recording);
        Self::start_in(Arc::new(folder), &[&UNLIMITED[..], flags].concat())
    }

    /// A server without limits, with these additional flags.
    pub(crate) fn unlimited_with(flags: &[&str]) -> Self {
        Self::start(&[&UNLIMITED[..], flags].concat())
    }

    /// A server without limits, with its data on this file system.
    pub(crate) fn unlimited_on(disk: &Path) -> Self {
        let folder = TempDir::new_in(disk).unwrap();
        recording::write(&folder.path().join("recording"));
        Self::start_in(Arc::new(folder), &UNLIMITED)
    }

    /// A server that may have this many open files.
    pub(crate) fn with_open_files(open_files_max: u32, flags: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        recording::write(&folder.path().join("recording"));
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -S -n 256 && ulimit -H -n \"$0\" && exec \"$@\""]);
        shell.arg(open_files_max.to_string()).arg(env!("CARGO_BIN_EXE_paperbourse"));
        Self::start_by(shell, Arc::new(folder), flags)
    }

    /// A server without limits whose venue listed its markets but sent no books.
    pub(crate) fn bookless() -> Self {
        let folder = TempDir::new().unwrap();
        recording::write(&folder.path().join("recording"));
        std::fs::remove_dir_all(folder.path().join("recording/clob")).unwrap();
        Self::start_in(Arc::new(folder), &UNLIMITED)
    }

    /// A server without limits at a simulated venue.
    pub(crate) fn simulated() -> Self {
        Self::simulated_with(&[])
    }

    /// A server without limits at a simulated venue, with these additional flags.
    pub(crate) fn simulated_with(flags: &[&str]) -> Self {
        let folder = Arc::new(TempDir::new().unwrap());
        Self::start_in(folder, &[&UNLIMITED[..], flags].concat())
    }

    /// How many descriptors the server has open; `None` if the system does not tell.
    pub(crate) fn open_files(&self) -> Option<usize> {
        let folder = format!("/proc/{}/fd", self.process.id());
        Some(std::fs::read_dir(folder).ok()?.count())
    }

    /// Waits for the first log line with this text.
    #[track_caller]
    pub(crate) fn logged(&self, text: &str) -> String {
        self.process.logged(text)
    }

    /// All log lines with this text so far.
    pub(crate) fn log_lines(&self, text: &str) -> Vec<String> {
        self.process.log_lines(text)
    }

    fn start_in(folder: Arc<TempDir>, flags: &[&str]) -> Self {
        Self::start_by(Command::new(env!("CARGO_BIN_EXE_paperbourse")), folder, flags)
    }

    fn start_by(mut command: Command, folder: Arc<TempDir>, flags: &[&str]) -> Self {
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--data"])
            .arg(folder.path().join("data"));
        if !flags.contains(&"--journal-segment-bytes") {
            command.args(["--journal-segment-bytes", "1048576"]);
        }
        if !flags.contains(&"--workers") {
            command.args(["--workers", "2"]);
        }
        let recording = folder.path().join("recording");
        if recording.exists() {
            command.arg("--venue").arg(format!("recorded:{}", recording.display()));
        }
        witness::call(asyncapi::frames::witness);
        let process = Process::spawn(command.args(flags)).ready();
        let address = process.address;
        let issuer = EmbeddedIssuer::open(&folder.path().join("data")).unwrap();
        Self { address, process, folder, issuer }
    }

    /// Kills the process as a crash would, and starts another on the same data.
    pub(crate) fn crash_and_restart(self) -> Self {
        self.crash_and_restart_with(&[])
    }

    /// The same, with flags in addition to those of an unlimited server.
    pub(crate) fn crash_and_restart_with(self, flags: &[&str]) -> Self {
        let Self { process, folder, .. } = self;
        process.kill();
        Self::start_in(folder, &[&UNLIMITED[..], flags].concat())
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Kills the process as a crash would, while others still use this.
    pub(crate) fn kill(&self) {
        self.process.signal("-KILL");
    }

    /// Sends the signal for an orderly shutdown.
    pub(crate) fn terminate(&self) {
        self.process.signal("-TERM");
    }

    /// The id of its process.
    #[cfg(target_os = "linux")]
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// Sends one request on a connection of its own.
    pub(crate) fn send(&self, request: &Request) -> Response {
        self.connect().send(request)
    }

    pub(crate) fn get(&self, path: impl Into<String>) -> Response {
        self.send(&Request::get(path))
    }

    /// An access token that is valid for an hour.
    pub(crate) fn token(&self, subject: &str, tier: Option<Tier>) -> String {
        self.issuer.mint(subject, tier, 3_600, Timestamp::now()).unwrap()
    }

    /// An access token that expires in this many seconds.
    pub(crate) fn token_that_ends_in(&self, subject: &str, seconds: i64) -> String {
        let then = Timestamp::from_seconds(Timestamp::now().seconds() + seconds - 3_600);
        self.issuer.mint(subject, None, 3_600, then).unwrap()
    }

    /// An access token that expired hours ago.
    pub(crate) fn expired_token(&self, subject: &str) -> String {
        let then = Timestamp::from_seconds(Timestamp::now().seconds() - 3 * 3_600);
        self.issuer.mint(subject, None, 3_600, then).unwrap()
    }

    /// A new account with a free key that has every permission.
    pub(crate) fn account(&self) -> Account<'_> {
        self.account_with(&json!({"permissions": ["read", "trade", "admin"]}), None)
    }

    /// A new account, bootstrapped with this request.
    #[track_caller]
    pub(crate) fn account_with(&self, request: &Value, tier: Option<Tier>) -> Account<'_> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let subject = format!("subject-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let token = self.token(&subject, tier);
        let bootstrap = Request::post("/v1/keys/bootstrap", request).bearer(&token);
        let key = self.send(&bootstrap).ok(201);
        Account {
            server: self,
            subject,
            token,
            key: key["raw_key"].as_str().unwrap().to_owned(),
            key_id: key["id"].as_u64().unwrap(),
        }
    }
}

/// The output of `paperbourse token`.
pub(crate) fn printed_token(data: &Path, subject: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_paperbourse"))
        .args(["token", "--subject", subject, "--data"])
        .arg(data)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

impl Account<'_> {
    pub(crate) fn send(&self, request: Request) -> Response {
        self.server.send(&request.key(&self.key))
    }

    pub(crate) fn get(&self, path: impl Into<String>) -> Response {
        self.send(Request::get(path))
    }

    pub(crate) fn post(&self, path: impl Into<String>, body: &Value) -> Response {
        self.send(Request::post(path, body))
    }

    pub(crate) fn patch(&self, path: impl Into<String>, body: &Value) -> Response {
        self.send(Request::patch(path, body))
    }

    pub(crate) fn delete(&self, path: impl Into<String>) -> Response {
        self.send(Request::delete(path))
    }

    /// Another key of the account, made with its token.
    #[track_caller]
    pub(crate) fn new_key(&self, request: &Value) -> Value {
        self.server.send(&Request::post("/v1/keys", request).bearer(&self.token)).ok(201)
    }

    /// Buys shares of the first outcome of the plain market. Returns the result.
    #[track_caller]
    pub(crate) fn buy(&self, quantity: i64) -> Value {
        self.post("/trade", &recording::buy(quantity)).ok(200)
    }

    #[track_caller]
    pub(crate) fn balance(&self) -> String {
        let balance = self.get("/v1/account/balance").ok(200);
        balance["balance"].as_str().unwrap().to_owned()
    }
}
