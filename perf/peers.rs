//! The servers to compare with, each run as child processes.

pub(crate) mod fastapi;
pub(crate) mod h2o;
mod postgres;
pub(crate) mod redis;
pub(crate) mod wrk;

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use clap::ValueEnum;

/// A server or load generator of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Peer {
    /// HTTP alone, the ceiling
    Bare,
    /// The same by h2o, a second ceiling
    H2o,
    /// paperbourse as a user runs it
    Durable,
    /// The same with one worker
    Durable1,
    /// The same without the lane: hyper answers every request
    Hyper,
    /// paperbourse without a disk
    Memory,
    /// Redis with `appendfsync always`, loaded by redis-benchmark
    Redis,
    /// FastAPI, Postgres and Redis with one worker
    Fastapi,
    /// The same with two workers
    Fastapi2,
    /// The rows with 64 connections again, loaded by wrk
    Wrk,
}

impl Peer {
    /// All peers.
    pub(crate) const ALL: [Self; 10] = [
        Self::Bare,
        Self::H2o,
        Self::Durable,
        Self::Durable1,
        Self::Hyper,
        Self::Memory,
        Self::Redis,
        Self::Fastapi,
        Self::Fastapi2,
        Self::Wrk,
    ];

    /// The servers that receive trades, in the order of the table.
    pub(crate) const TRADED: [Self; 8] = [
        Self::Bare,
        Self::H2o,
        Self::Durable,
        Self::Durable1,
        Self::Hyper,
        Self::Memory,
        Self::Fastapi,
        Self::Fastapi2,
    ];

    /// Returns the name in the table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare hyper",
            Self::H2o => "h2o",
            Self::Durable => "paperbourse, durable",
            Self::Durable1 => "paperbourse, durable, 1 worker",
            Self::Hyper => "paperbourse, durable, without the lane",
            Self::Memory => "paperbourse, in memory",
            Self::Redis => "Redis, `SET` of 200 bytes, `appendfsync always`",
            Self::Fastapi => "FastAPI + PostgreSQL + Redis, 1 worker",
            Self::Fastapi2 => "FastAPI + PostgreSQL + Redis, 2 workers",
            Self::Wrk => "wrk",
        }
    }

    /// Returns the required programs that are missing on this machine.
    pub(crate) fn missing_programs(self) -> Vec<&'static str> {
        let needed: &[&str] = match self {
            Self::Bare | Self::Durable | Self::Durable1 | Self::Hyper | Self::Memory => &[],
            Self::H2o => &["h2o"],
            Self::Redis => &["redis-server", "redis-benchmark"],
            Self::Fastapi | Self::Fastapi2 => &["redis-server", "python3", "psql"],
            Self::Wrk => &["wrk"],
        };
        let mut missing: Vec<_> = needed.iter().copied().filter(|name| !is_program(name)).collect();
        let is_fastapi = matches!(self, Self::Fastapi | Self::Fastapi2);
        if is_fastapi && postgres::program("postgres").is_none() {
            missing.push("postgres");
        }
        missing
    }
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns a port that is currently free.
fn free_port() -> anyhow::Result<u16> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpListener::bind(address)?.local_addr()?.port())
}

/// Creates a command whose output goes to a log file.
fn logged(program: impl AsRef<std::ffi::OsStr>, log: &std::path::Path) -> anyhow::Result<Command> {
    let file = std::fs::File::create(log)?;
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    Ok(command)
}
