//! The measured servers, as child processes.

use std::env;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};

use crate::client::{Connection, encode_request};
use crate::process::{Ending, Process};

/// Seconds that a server may take to be ready.
const READY_SECONDS_MAX: u64 = 120;

/// Default flags of a measured server, which a measurement may override.
const DEFAULTS: [(&str, &str); 3] = [
    ("--venue", "simulated"),
    ("--address-limits", "off"),
    ("--tier", "free=unlimited/unlimited/1000/5"),
];

/// A server of this package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// HTTP alone.
    Bare,
    /// The full server with its journal on disk.
    Durable,
    /// The full server with its journal in memory.
    Memory,
}

impl Kind {
    /// Returns keys for the bare server, which ignores them.
    pub(crate) fn bare_keys() -> Vec<String> {
        vec!["ps_live_".to_owned() + &"0".repeat(64)]
    }
}

/// The paths of the binaries.
pub(crate) struct Binaries {
    pub(crate) server: PathBuf,
    pub(crate) bare: PathBuf,
}

/// A running server, stopped on drop.
pub(crate) struct Server {
    process: Process,
    /// The address for requests.
    pub(crate) address: SocketAddr,
    /// The address of the server's metrics, if enabled.
    pub(crate) admin_address: Option<SocketAddr>,
    /// The folder of the token issuer.
    issuer_data: PathBuf,
    binary: PathBuf,
}

impl Server {
    /// Starts a server with its data in `folder` and waits until it is ready.
    pub(crate) fn start(
        kind: Kind,
        binaries: &Binaries,
        folder: &Path,
        worker_count: u32,
        flags: &[&str],
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let binary = match kind {
            Kind::Bare => &binaries.bare,
            Kind::Durable | Kind::Memory => &binaries.server,
        };
        let mut command = command(binary);
        if kind != Kind::Bare {
            command.arg("serve");
            for (flag, value) in DEFAULTS {
                if !flags.contains(&flag) {
                    command.args([flag, value]);
                }
            }
            command.args(["--key-rate", "unlimited", "--socket-rate", "unlimited"]);
            command.args(["--streams-per-address", "100000"]);
            command.args(["--starting-balance", "1000000"]);
            command.arg("--issuer-data").arg(folder);
            match kind {
                Kind::Memory => command.args(["--data", "memory"]),
                _ => command.arg("--data").arg(folder),
            };
        }
        command.args(["--listen", "127.0.0.1:0", "--workers", &worker_count.to_string()]);
        command.args(flags).envs(environment.iter().copied());
        // A server that records a profile writes it when it ends in order.
        let has_profile = env::var_os("LLVM_PROFILE_FILE").is_some();
        let ending = if has_profile { Ending::Interrupt } else { Ending::Kill };
        let mut process = Process::start(command.stdout(Stdio::piped()), ending)?;
        let stdout = process.child().stdout.take().expect("the child's output is a pipe");
        let mut lines = BufReader::new(stdout).lines();
        let mut address_after = |words: &str| -> anyhow::Result<SocketAddr> {
            for line in &mut lines {
                let line = line?;
                let Some((_, address)) = line.split_once(words) else { continue };
                let address = address.trim().trim_end_matches("/metrics");
                return address.parse().with_context(|| format!("no address in: {line}"));
            }
            bail!("the server ended before it printed {words:?}");
        };
        let address = address_after("listening on http://")?;
        let has_admin = kind != Kind::Bare && flags.contains(&"--admin-listen");
        let admin_address = has_admin.then(|| address_after("metrics on http://")).transpose()?;
        // Later output must be read, or a full pipe would block the server.
        std::thread::spawn(move || lines.for_each(drop));
        let issuer_data = folder.to_owned();
        let server = Self { process, address, admin_address, issuer_data, binary: binary.clone() };
        if kind != Kind::Bare {
            wait_until_ready(address, || Ok(()))?;
        }
        Ok(server)
    }

    /// Returns the process id of the server.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Opens `count` accounts and returns a key of each.
    pub(crate) fn make_keys(&self, count: u32) -> anyhow::Result<Vec<String>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        (0..count).map(|number| runtime.block_on(self.make_key(number))).collect()
    }

    /// Mints an access token.
    pub(crate) fn token(&self, subject: &str) -> anyhow::Result<String> {
        let output = command(&self.binary)
            .args(["token", "--subject", subject, "--data"])
            .arg(&self.issuer_data)
            .output()
            .context("failed to run the token command")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    async fn make_key(&self, number: u32) -> anyhow::Result<String> {
        let token = format!("Bearer {}", self.token(&format!("load-{number}"))?);
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
}

/// Waits until a server reports that it is ready. `is_alive` fails if it never will be.
pub(crate) fn wait_until_ready(
    address: SocketAddr,
    mut is_alive: impl FnMut() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
    let request = encode_request("GET", "/v1/health/ready", address, &[], "");
    let is_ready = || async {
        let Ok(mut connection) = Connection::open(address).await else { return false };
        connection.exchange(request.as_bytes()).await.is_ok_and(|answer| answer.status == 200)
    };
    runtime.block_on(async {
        while !is_ready().await {
            is_alive()?;
            ensure!(Instant::now() < deadline, "not ready after {READY_SECONDS_MAX} s");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    })
}

/// Creates a command without the caller's `PAPERBOURSE_…` variables, since for example
/// `PAPERBOURSE_JOURNAL_SYNC` would silently change what is measured.
fn command(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PAPERBOURSE_") {
            command.env_remove(name);
        }
    }
    command.env("PAPERBOURSE_LOG_FORMAT", "human");
    command
}
