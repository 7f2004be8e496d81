//! The servers that are measured, as child processes.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::client::{Connection, encode_request};

/// How long a server may take to be ready.
const READY_SECONDS_MAX: u64 = 30;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// HTTP alone.
    Bare,
    /// The server, each answer on disk.
    Durable,
    /// The server, its journal in memory.
    Memory,
}

impl Kind {
    /// All of them, in the order of the table.
    pub(crate) const ALL: [Self; 3] = [Self::Bare, Self::Durable, Self::Memory];

    /// Its name in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare hyper",
            Self::Durable => "paperbourse, durable",
            Self::Memory => "paperbourse, in memory",
        }
    }
}

/// Where the binaries are.
pub(crate) struct Binaries {
    pub(crate) server: PathBuf,
    pub(crate) bare: PathBuf,
}

/// A server that runs until this is dropped.
pub(crate) struct Server {
    process: Process,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The folder of the issuer that makes tokens for it.
    issuer_data: PathBuf,
    binary: PathBuf,
}

/// A child process that ends with this value, on every path.
struct Process(Child);

impl Server {
    /// Starts a server with its data in `folder` and waits until it is ready.
    pub(crate) fn start(
        kind: Kind,
        binaries: &Binaries,
        folder: &Path,
        worker_count: u32,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        let binary = match kind {
            Kind::Bare => &binaries.bare,
            Kind::Durable | Kind::Memory => &binaries.server,
        };
        let mut command = command(binary);
        if kind != Kind::Bare {
            command.arg("serve");
            command.args(["--venue", "simulated", "--address-limits", "off"]);
            command.args(["--tier", "free=unlimited/unlimited/2/5"]);
            command.args(["--starting-balance", "1000000"]);
            command.arg("--issuer-data").arg(folder);
            match kind {
                Kind::Memory => command.args(["--data", "memory"]),
                _ => command.arg("--data").arg(folder),
            };
        }
        command.args(["--listen", "127.0.0.1:0", "--workers", &worker_count.to_string()]);
        command.args(flags);
        let mut process = command
            .stdout(Stdio::piped())
            .spawn()
            .map(Process)
            .with_context(|| format!("failed to start {}", binary.display()))?;
        let stdout = process.0.stdout.take().expect("the child's output is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let first = lines.next().context("the server said nothing")??;
        // What it says later must be read, or a full pipe would stop it.
        std::thread::spawn(move || lines.for_each(drop));
        let address = first
            .split_once("http://")
            .and_then(|(_, address)| address.trim().parse().ok())
            .with_context(|| format!("no address in the server's first line: {first}"))?;
        let issuer_data = folder.to_owned();
        let server = Self { process, address, issuer_data, binary: binary.clone() };
        if kind != Kind::Bare {
            server.wait_until_ready()?;
        }
        Ok(server)
    }

    /// The server's process.
    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    /// Opens so many accounts and returns a key of each.
    pub(crate) fn make_keys(&self, count: u32) -> anyhow::Result<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        (0..count).map(|number| runtime.block_on(self.make_key(number))).collect()
    }

    async fn make_key(&self, number: u32) -> anyhow::Result<String> {
        let output = command(&self.binary)
            .args(["token", "--subject", &format!("load-{number}"), "--data"])
            .arg(&self.issuer_data)
            .output()
            .context("failed to run the token command")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        let token = format!("Bearer {}", String::from_utf8(output.stdout)?.trim());
        let headers = [("Authorization", token.as_str())];
        let request = encode_request("POST", "/v1/keys/bootstrap", self.address, &headers, "{}");
        let mut connection = Connection::open(self.address).await?;
        let response = connection.exchange(request.as_bytes()).await?;
        let body: serde_json::Value = serde_json::from_slice(response.body)?;
        match body["raw_key"].as_str() {
            Some(key) if response.status == 201 => Ok(key.to_owned()),
            _ => bail!("bootstrap answered {}: {body}", response.status),
        }
    }

    fn wait_until_ready(&self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        let request = encode_request("GET", "/v1/health/ready", self.address, &[], "");
        runtime.block_on(async {
            loop {
                let mut connection = Connection::open(self.address).await?;
                if connection.exchange(request.as_bytes()).await?.status == 200 {
                    return Ok(());
                }
                ensure!(Instant::now() < deadline, "not ready after {READY_SECONDS_MAX} s");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A server that is gone already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that is told everything by its arguments: a `PAPERBOURSE_JOURNAL_SYNC` of the caller's
/// shell would change what is measured without a word.
fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PAPERBOURSE_") {
            command.env_remove(name);
        }
    }
    command
}
