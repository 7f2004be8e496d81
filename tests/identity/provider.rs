//! The certified provider as a process of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// What the provider runs on.
const NODE_MAJOR_MIN: u32 = 20;

/// How often it is started, at most, to be heard of once.
const STARTS_MAX: u32 = 4;
const START_PATIENCE: Duration = Duration::from_secs(20);
/// For what it is told to do.
const PATIENCE: Duration = Duration::from_mins(1);

/// A provider that is up, and ends when this is dropped.
pub(crate) struct Provider {
    child: Child,
    commands: Option<ChildStdin>,
    /// The lines of its output.
    told: Receiver<String>,
    /// Its name, which is its address.
    pub(crate) issuer: String,
}

/// The certificate of a provider that speaks https, and who has signed it.
pub(crate) fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tls")
}

/// Where npm has put the provider; `None` where it has not, which a machine that checks every
/// change must not pass over.
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

/// The major version of the machine's node.
fn node_major() -> Option<u32> {
    let told = Command::new("node").arg("--version").output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    told.strip_prefix('v')?.split('.').next()?.parse().ok()
}

impl Provider {
    /// Starts the provider whose keys are in this folder, on this port; 0 picks a free one. Node
    /// was seen to stand still before the first line of the script: then it is started again.
    pub(crate) fn start(packages: &Path, folder: &Path, port: u16, is_tls: bool) -> Self {
        for _ in 0..STARTS_MAX {
            if let Some(provider) = Self::try_start(packages, folder, port, is_tls) {
                return provider;
            }
            eprintln!("node has said nothing for {START_PATIENCE:?} and is started again");
        }
        panic!("node has said nothing {STARTS_MAX} times");
    }

    /// `None` when nothing is heard of it.
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
        let (sender, told) = mpsc::channel();
        // Ends with the output of the provider.
        thread::spawn(move || lines.map_while(Result::ok).try_for_each(|line| sender.send(line)));
        let mut provider = Self { child, commands, told, issuer: String::new() };
        let told = provider.read(START_PATIENCE)?;
        told["issuer"].as_str().unwrap().clone_into(&mut provider.issuer);
        Some(provider)
    }

    /// The port that it listens on.
    pub(crate) fn port(&self) -> u16 {
        self.issuer.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Signs in: an access token that is signed with this algorithm.
    pub(crate) fn token(&mut self, algorithm: &str) -> String {
        let told = self.command(&format!("token {algorithm}"));
        assert_eq!(told["status"], 200, "{told}");
        told["access_token"].as_str().unwrap().to_owned()
    }

    /// Signs with new keys from now on.
    pub(crate) fn rotate(&mut self) {
        let told = self.command("rotate");
        assert_eq!(told["rotated"], 6, "{told}");
    }

    fn command(&mut self, line: &str) -> Value {
        writeln!(self.commands.as_mut().unwrap(), "{line}").unwrap();
        self.read(PATIENCE).expect("the provider does as it is told")
    }

    /// The next line that is JSON: the provider greets with some that are not. `None` when none
    /// comes for so long.
    fn read(&mut self, patience: Duration) -> Option<Value> {
        loop {
            match self.told.recv_timeout(patience) {
                Ok(line) => {
                    if let Ok(told) = serde_json::from_str(&line) {
                        return Some(told);
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
        // It ends with its input; whoever starts it again needs its port.
        drop(self.commands.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
