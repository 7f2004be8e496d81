//! Starts the real binary on a data directory.

#[cfg(target_os = "linux")]
use std::io::Read as _;
use std::path::Path;
use std::process::Command;
#[cfg(target_os = "linux")]
use std::process::Stdio;
#[cfg(target_os = "linux")]
use std::thread::JoinHandle;

use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::ids::Timestamp;
use paperbourse_test_support::process::{Process, ServerProcess};

/// Small, so that a few rounds fill several segments.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Starts the server and waits until it is ready.
pub(crate) fn start(data: &Path) -> ServerProcess {
    start_with(data, &[])
}

/// The same, with these additional flags.
pub(crate) fn start_with(data: &Path, flags: &[&str]) -> ServerProcess {
    Process::spawn(command(data, &[]).args(flags)).ready()
}

/// Starts the server under a wrapper command that reports on standard error. The report is complete
/// when both have ended.
#[cfg(target_os = "linux")]
pub(crate) fn start_under(
    wrapper: &[&str],
    data: &Path,
    flags: &[&str],
) -> (ServerProcess, JoinHandle<String>) {
    let mut process = Process::spawn(command(data, wrapper).args(flags).stderr(Stdio::piped()));
    let mut report = process.take_stderr().expect("standard error is piped");
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        report.read_to_end(&mut bytes).expect("a pipe can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    (process.ready(), reader)
}

/// Starts the server, and kills it after its first sign of life and a delay.
pub(crate) fn start_and_kill(data: &Path, delay: impl FnOnce()) {
    let process = Process::spawn(&mut command(data, &[]));
    process.wait_for_sign_of_life();
    delay();
    drop(process);
}

fn command(data: &Path, wrapper: &[&str]) -> Command {
    let words = [wrapper, &[env!("CARGO_BIN_EXE_paperbourse")]].concat();
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .args(["serve", "--listen", "127.0.0.1:0", "--venue", "simulated"])
        // The faster the books move, the more resting orders fill.
        .args(["--venue-speed", "30"])
        .args(["--tier", "free=unlimited/unlimited/20/5", "--address-limits", "off"])
        .args(["--key-rate", "unlimited", "--socket-rate", "unlimited"])
        .args(["--journal-segment-bytes", &SEGMENT_BYTES.to_string()])
        // Each full segment triggers a snapshot at full speed, so some finish before the kill.
        .args(["--snapshot-bytes", "1", "--snapshot-cpu", "100"])
        .args(["--archive-bytes", &(3 * SEGMENT_BYTES).to_string()])
        .arg("--data")
        .arg(data);
    command
}

/// An access token for the server on this data directory.
pub(crate) fn token(data: &Path, subject: &str) -> String {
    let issuer = EmbeddedIssuer::open(data).expect("the server made the issuer's key");
    issuer.mint(subject, None, 3600, Timestamp::now()).expect("a subject of a few characters")
}
