//! The real binary on a data directory.

use std::borrow::BorrowMut;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::ids::Timestamp;

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_mins(1);

/// Small, so that a few rounds fill several.
const SEGMENT_BYTES: u64 = 1 << 20;

/// A server that serves. Dropped, it is killed.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// Starts it and waits until it is ready.
    pub(crate) fn start(data: &Path) -> Self {
        let (mut server, lines) = Self::spawn(command(data, &[]));
        server.address = await_ready(&lines);
        server
    }

    /// Starts it under a program, with its arguments, that runs another and tells of it on standard
    /// error. What it tells is complete when both have ended.
    #[cfg(target_os = "linux")]
    pub(crate) fn start_under(wrapper: &[&str], data: &Path) -> (Self, JoinHandle<String>) {
        let mut command = command(data, wrapper);
        let (mut server, lines) = Self::spawn(command.stderr(Stdio::piped()));
        let mut told = server.child.stderr.take().expect("it is piped");
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            told.read_to_end(&mut bytes).expect("a pipe can be read");
            String::from_utf8_lossy(&bytes).into_owned()
        });
        server.address = await_ready(&lines);
        (server, reader)
    }

    /// Starts it and kills it some time after its first sign of life.
    pub(crate) fn start_and_kill(data: &Path, delay: impl FnOnce()) {
        let (server, lines) = Self::spawn(command(data, &[]));
        lines.recv_timeout(START_TIME_MAX).expect("it logs a line");
        delay();
        server.kill();
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn terminate(mut self) {
        let process = self.child.id().to_string();
        let asked = Command::new("kill").args(["-TERM", &process]).status();
        assert!(asked.expect("every system has kill").success());
        let status = self.child.wait().expect("it was ours to wait for");
        assert!(status.success(), "an orderly end: {status}");
    }

    fn spawn(mut command: impl BorrowMut<Command>) -> (Self, Receiver<String>) {
        let command = command.borrow_mut().stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = child.stdout.take().expect("it is piped");
        let (line_sender, lines) = channel();
        // Reads to the end, so that the server never waits for a reader of its log.
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = line_sender.send(line);
            }
        });
        (Self { child, address: SocketAddr::from(([0; 4], 0)) }, lines)
    }

    /// Ends it as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours to wait for");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail when it has ended, which is as well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(data: &Path, wrapper: &[&str]) -> Command {
    let words = [wrapper, &[env!("CARGO_BIN_EXE_paperbourse")]].concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["serve", "--listen", "127.0.0.1:0", "--venue", "simulated"])
        .args(["--tier", "free=unlimited/unlimited/2/5", "--address-limits", "off"])
        .args(["--key-rate", "unlimited"])
        .args(["--journal-segment-bytes", &SEGMENT_BYTES.to_string()])
        // Each segment that is full makes a snapshot due, at full speed: some end before the kill.
        .args(["--snapshot-bytes", "1", "--snapshot-cpu", "100"])
        .args(["--archive-bytes", &(3 * SEGMENT_BYTES).to_string()])
        .arg("--data")
        .arg(data);
    command
}

fn await_ready(lines: &Receiver<String>) -> SocketAddr {
    let mut log = Vec::new();
    let mut address = None;
    loop {
        match lines.recv_timeout(START_TIME_MAX) {
            Ok(line) => log.push(line),
            Err(error) => panic!("the server did not start ({error}):\n{}", log.join("\n")),
        }
        let line = log.last().expect("just pushed");
        if let Some((_, text)) = line.split_once("listening on http://") {
            address = Some(text.trim().parse().expect("the log names the address"));
        }
        if line.ends_with(" ready") {
            return address.expect("the address comes first");
        }
    }
}

/// An access token of the server on this data directory.
pub(crate) fn token(data: &Path, subject: &str) -> String {
    let issuer = EmbeddedIssuer::open(data).expect("the server made the issuer's key");
    issuer.mint(subject, None, 3600, Timestamp::now()).expect("a subject of a few characters")
}
