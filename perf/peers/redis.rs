//! Redis: the common reference for "durable and fast", and a store for limiters.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::{free_port, logged};
use crate::machine::{CpuClock, cpu_seconds};
use crate::process::{self, Ending, Process};

/// The size of a value, in bytes.
const VALUE_BYTES: u32 = 200;

/// The number of possible keys.
const KEY_COUNT: u32 = 10_000_000;

/// Seconds that the server may take to start.
const READY_SECONDS_MAX: u64 = 10;

/// A separate Redis server.
pub(crate) struct Redis {
    process: Process,
    address: SocketAddr,
    /// The path of the server's Unix socket.
    pub(crate) socket: PathBuf,
}

/// The figures of redis-benchmark.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Figures {
    pub(crate) requests_per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) max_us: f64,
}

/// The result of a load by redis-benchmark.
pub(crate) struct RedisOutcome {
    pub(crate) figures: Figures,
    pub(crate) request_count: u64,
    pub(crate) server_cpu_seconds: f64,
    pub(crate) generator_cpu_seconds: f64,
}

impl Redis {
    /// Starts a server that has every write on disk before its answer. Log rewrites are off, in
    /// favour of Redis.
    pub(crate) fn start_durable(folder: &Path) -> anyhow::Result<Self> {
        let flags = ["--appendonly", "yes", "--appendfsync", "always"];
        Self::start(folder, &[&flags[..], &["--auto-aof-rewrite-percentage", "0"]].concat())
    }

    /// Starts a server without persistence, for counters.
    pub(crate) fn start_volatile(folder: &Path) -> anyhow::Result<Self> {
        Self::start(folder, &["--appendonly", "no"])
    }

    fn start(folder: &Path, flags: &[&str]) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (port, log) = (free_port()?, folder.join("log"));
        let socket = folder.join("socket");
        let mut command = logged("redis-server", &log)?;
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
        command.arg("--dir").arg(folder).arg("--unixsocket").arg(&socket).args(flags);
        let mut process = Process::start(&mut command, Ending::Kill)?;
        let deadline = Instant::now() + Duration::from_secs(READY_SECONDS_MAX);
        while !is_ready(&socket) {
            process.ensure_runs(&log).context("Redis did not start")?;
            ensure!(Instant::now() < deadline, "Redis is not ready after {READY_SECONDS_MAX} s");
            std::thread::sleep(Duration::from_millis(20));
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpStream::connect(address).context("Redis is ready but does not accept connections")?;
        Ok(Self { process, address, socket })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sets random keys with this number of clients for about this long.
    pub(crate) fn load(
        &self,
        client_count: usize,
        warm_up: Duration,
        measured: Duration,
    ) -> anyhow::Result<RedisOutcome> {
        // A short run and then the warm-up estimate the number of requests that take this long.
        let mut figures = self.benchmark(client_count, 1000 + 100 * client_count as u64)?;
        let warm_up_count = requests_within(figures, warm_up);
        if warm_up_count > 0 {
            figures = self.benchmark(client_count, warm_up_count)?;
        }
        let request_count = requests_within(figures, measured).max(1);
        let pids = [self.process.pid()];
        let cpu = || {
            let server = cpu_seconds(CpuClock::Trees(&pids))?;
            anyhow::Ok((server, cpu_seconds(CpuClock::EndedChildren)?))
        };
        let (server_before, generator_before) = cpu()?;
        let figures = self.benchmark(client_count, request_count)?;
        let (server_after, generator_after) = cpu()?;
        Ok(RedisOutcome {
            figures,
            request_count,
            server_cpu_seconds: server_after - server_before,
            generator_cpu_seconds: generator_after - generator_before,
        })
    }

    fn benchmark(&self, client_count: usize, request_count: u64) -> anyhow::Result<Figures> {
        let mut flags = format!("-h 127.0.0.1 -p {} -t set --csv", self.address.port());
        write!(flags, " -d {VALUE_BYTES} -r {KEY_COUNT} -c {client_count} -n {request_count}")?;
        let mut command = Command::new("redis-benchmark");
        let text = process::output(command.args(flags.split(' ')))?;
        parse(&text).with_context(|| format!("unexpected output of redis-benchmark: {text}"))
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a count of requests within an hour"
)]
fn requests_within(figures: Figures, time: Duration) -> u64 {
    (figures.requests_per_second * time.as_secs_f64()) as u64
}

fn is_ready(socket: &Path) -> bool {
    let mut answer = [0; 5];
    let asked = UnixStream::connect(socket).and_then(|mut stream| {
        stream.write_all(b"PING\r\n")?;
        stream.read_exact(&mut answer)
    });
    asked.is_ok() && &answer == b"+PONG"
}

/// Parses the output of `redis-benchmark --csv`: a line of names, then a line of values.
fn parse(csv: &str) -> Option<Figures> {
    let mut lines = csv.lines().skip_while(|line| !line.starts_with("\"test\","));
    let unquoted = |line: &str| -> Vec<String> {
        line.split(',').map(|field| field.trim().trim_matches('"').to_owned()).collect()
    };
    let (names, values) = (unquoted(lines.next()?), unquoted(lines.next()?));
    let value = |name: &str| -> Option<f64> {
        values.get(names.iter().position(|known| known == name)?)?.parse().ok()
    };
    Some(Figures {
        requests_per_second: value("rps")?,
        p50_us: value("p50_latency_ms")? * 1e3,
        p99_us: value("p99_latency_ms")? * 1e3,
        max_us: value("max_latency_ms")? * 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\
        \"p50_latency_ms\",\"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"";

    #[test]
    fn figures_are_found_by_name() {
        let line = r#""SET","59382.42","1.055","0.320","1.039","1.455","1.750","8.500""#;
        let expected = Figures {
            requests_per_second: 59382.42,
            p50_us: 1039.0,
            p99_us: 1750.0,
            max_us: 8500.0,
        };
        for warning in ["", "WARNING: Could not fetch server CONFIG\n"] {
            let text = format!("{warning}{HEAD}\n{line}\n");
            assert_eq!(parse(&text), Some(expected));
        }
    }

    #[test]
    fn other_output_is_rejected() {
        for text in [
            "",
            HEAD,
            &format!("{HEAD}\n\"SET\",\"1\""),
            &format!("{HEAD}\n\"SET\",\"many\",\"1\",\"1\",\"1\",\"1\",\"1\",\"1\""),
            "SET: 59382.42 requests per second",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_request_count_fills_the_given_time() {
        let figures =
            Figures { requests_per_second: 1000.0, p50_us: 1.0, p99_us: 1.0, max_us: 1.0 };
        assert_eq!(requests_within(figures, Duration::from_millis(2500)), 2500);
    }
}
