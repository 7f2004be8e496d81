//! Runs the certified provider as a separate process.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// The oldest version of node that runs the provider.
const NODE_MAJOR_MIN: u32 = 20;

/// The number of starts without output after which the test gives up.
const STARTS_MAX: u32 = 4;
const START_PATIENCE: Duration = Duration::from_secs(20);
/// The deadline of a command.
const PATIENCE: Duration = Duration::from_mins(1);

/// A running provider; dropping it ends the process.
pub(crate) struct Provider {
    child: Child,
    commands: Option<ChildStdin>,
    output: Receiver<String>,
    /// The issuer's URL, which is the provider's address.
    pub(crate) issuer: String,
}

/// The folder with the provider's TLS certificate and the authority that signed it.
pub(crate) fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls")
}

/// Where npm installed the provider; `None` if it is not installed, which fails in CI.
pub(crate) fn packages() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("oidc-provider");
    let missing = if node_major().is_none_or(|major| major < NODE_MAJOR_MIN) {
        "node is not installed, or older than version 20"
    } else if !folder.join("installed").exists() {
        "the provider is not installed (.ci/oidc-provider does it)"
    } else {
        return Some(folder);
    };
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
    eprintln!("SKIPPED: {missing}, so no certified provider was signed in with");
    None
}

/// The major version of the installed node.
fn node_major() -> Option<u32> {
    let output = Command::new("node").arg("--version").output().ok()?;
    let version = String::from_utf8(output.stdout).ok()?;
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

impl Provider {
    /// Starts the provider on this port, with the keys in this folder; port 0 picks a free one.
    /// Retries, because node sometimes hangs before the first line of the script.
    pub(crate) fn start(packages: &Path, folder: &Path, port: u16, is_tls: bool) -> Self {
        for _ in 0..STARTS_MAX {
            if let Some(provider) = Self::try_start(packages, folder, port, is_tls) {
                return provider;
            }
            eprintln!("node printed nothing for {START_PATIENCE:?}; starting it again");
        }
        panic!("node printed nothing in {STARTS_MAX} starts");
    }

    /// `None` if the provider printed nothing in time.
    fn try_start(packages: &Path, folder: &Path, port: u16, is_tls: bool) -> Option<Self> {
        let mut command = Command::new("node");
        command
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/identity/provider.mjs"))
            .arg(packages)
            .arg(folder.join("keys.json"))
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if is_tls {
            let files = ["localhost.pem", "localhost.key"].map(|name| certificates().join(name));
            command.args(files).env("NODE_EXTRA_CA_CERTS", certificates().join("authority.pem"));
        }
        let mut child = command.spawn().unwrap();
        let commands = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, output) = mpsc::channel();
        // The thread ends when the provider's output does.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut provider = Self { child, commands, output, issuer: String::new() };
        let greeting = provider.read(START_PATIENCE)?;
        greeting["issuer"].as_str().unwrap().clone_into(&mut provider.issuer);
        Some(provider)
    }

    pub(crate) fn port(&self) -> u16 {
        self.issuer.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Signs in and returns an access token signed with this algorithm.
    pub(crate) fn token(&mut self, algorithm: &str) -> String {
        let answer = self.command(&format!("token {algorithm}"));
        assert_eq!(answer["status"], 200, "{answer}");
        answer["access_token"].as_str().unwrap().to_owned()
    }

    /// Makes the provider sign with new keys from now on.
    pub(crate) fn rotate(&mut self) {
        let answer = self.command("rotate");
        assert_eq!(answer["rotated"], 6, "{answer}");
    }

    fn command(&mut self, line: &str) -> Value {
        writeln!(self.commands.as_mut().unwrap(), "{line}").unwrap();
        self.read(PATIENCE).expect("the provider answers a command")
    }

    /// The next line of JSON, skipping the provider's other output. `None` if none arrives in time.
    fn read(&mut self, patience: Duration) -> Option<Value> {
        loop {
            match self.output.recv_timeout(patience) {
                Ok(line) => {
                    if let Ok(answer) = serde_json::from_str(&line) {
                        return Some(answer);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("the provider has ended"),
            }
        }
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        // Wait for the end, because the next start may need the same port.
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
