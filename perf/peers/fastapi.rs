//! A stack that a user might build instead: the package in `perf/fastapi` on uvicorn, Postgres and
//! Redis.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::postgres::Postgres;
use super::redis::Redis;
use super::{free_port, logged};
use crate::process::{self, Ending, Process};
use crate::server::wait_until_ready;
use crate::setup::Target;

/// The files of the package, embedded so that this binary runs anywhere.
const FILES: [(&str, &str); 4] = [
    ("app.py", include_str!("../fastapi/app.py")),
    ("book.py", include_str!("../fastapi/book.py")),
    ("requirements.txt", include_str!("../fastapi/requirements.txt")),
    ("schema.sql", include_str!("../fastapi/schema.sql")),
];

/// The parts that all servers of one run share: both stores, and an interpreter with the packages.
pub(crate) struct Stack {
    postgres: Postgres,
    redis: Redis,
    package: PathBuf,
    python: PathBuf,
    account_count: u32,
}

/// A running uvicorn, stopped on drop.
pub(crate) struct FastApi {
    process: Process,
    address: SocketAddr,
}

impl Stack {
    /// Starts the stores and fills them. Without an interpreter that has the packages, this creates
    /// a virtual environment, which takes a while.
    pub(crate) fn start(
        folder: &Path,
        python: Option<&Path>,
        account_count: u32,
    ) -> anyhow::Result<Self> {
        let package = folder.join("package");
        std::fs::create_dir_all(&package)?;
        for (name, text) in FILES {
            std::fs::write(package.join(name), text)?;
        }
        let python = match python {
            Some(python) => std::path::absolute(python)?,
            None => make_environment(&folder.join("venv"), &package.join("requirements.txt"))?,
        };
        let postgres = Postgres::start(&folder.join("postgres"))?;
        let schema = package.join("schema.sql").to_string_lossy().into_owned();
        let accounts = format!("account_count={account_count}");
        postgres.query(&["-v", &accounts, "-f", &schema]).context("failed to create the tables")?;
        let redis = Redis::start_volatile(&folder.join("limiter"))?;
        Ok(Self { postgres, redis, package, python, account_count })
    }

    /// Starts uvicorn with this number of workers.
    pub(crate) fn serve(&self, worker_count: u32) -> anyhow::Result<FastApi> {
        let port = free_port()?;
        let log = self.package.join(format!("log-{port}"));
        let mut command = logged(&self.python, &log)?;
        command.args(["-m", "uvicorn", "app:app", "--host", "127.0.0.1", "--no-access-log"]);
        command.args(["--loop", "uvloop", "--http", "httptools", "--log-level", "warning"]);
        command.args(["--port", &port.to_string(), "--workers", &worker_count.to_string()]);
        command.current_dir(&self.package);
        command.env("PERF_DATABASE_FOLDER", &self.postgres.folder);
        command.env("PERF_REDIS_SOCKET", &self.redis.socket);
        let mut process = Process::start(&mut command, Ending::Interrupt)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until_ready(address, || process.ensure_runs(&log)).context("uvicorn did not start")?;
        Ok(FastApi { process, address })
    }

    /// Returns the target of trades. All processes of the stack count as the server.
    pub(crate) fn target(&self, server: &FastApi) -> Target {
        let keys = (1..=self.account_count).map(|number| format!("ps_live_{number:064x}"));
        Target {
            address: server.address,
            pids: vec![server.process.pid(), self.postgres.pid(), self.redis.pid()],
            keys: keys.collect(),
            cores: None,
        }
    }
}

fn make_environment(folder: &Path, requirements: &Path) -> anyhow::Result<PathBuf> {
    eprintln!("making a Python environment; --python names one that has the packages");
    process::output(Command::new("python3").args(["-m", "venv"]).arg(folder))
        .context("failed to make a Python environment")?;
    let python = folder.join("bin/python");
    let mut command = Command::new(&python);
    command.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"]);
    process::output(command.arg(requirements)).context("failed to install the packages")?;
    Ok(python)
}
