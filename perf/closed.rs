//! The closed-loop comparison: every server at every number of connections, in several rounds.
//!
//! A machine's speed changes within a round, so the servers take turns in short slices, and a ratio
//! is taken within a slice.

use std::any::Any;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use crate::load::Outcome;
use crate::machine::{self, SyncTimes};
use crate::peers::Peer;
use crate::peers::fastapi::Stack;
use crate::peers::h2o::H2o;
use crate::peers::redis::Redis;
use crate::peers::wrk;
use crate::report::{Goal, Part};
use crate::server::Kind;
use crate::setup::{Setup, Shape, Target};
use crate::spread::{Spread, median};

/// The reported quantiles of latency.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

/// Number of connections in the rows that wrk repeats.
const WRK_CONNECTIONS: usize = 64;

/// Duration of the open-loop measurement of the disk alone.
const SYNC_OPEN_LOOP: Duration = Duration::from_secs(2);

/// The comparison to measure.
pub(crate) struct Comparison<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) peers: &'a [Peer],
    pub(crate) connections: &'a [usize],
    /// Number of turns per server and number of connections, in each round.
    pub(crate) slices: u32,
    /// Number of trading accounts, each with one key.
    pub(crate) account_count: u32,
    /// The Python interpreter that has the packages of FastAPI.
    pub(crate) python: Option<&'a Path>,
}

/// The results of the measurement.
#[derive(Default)]
pub(crate) struct Figures {
    samples: Vec<Sample>,
    sync: Vec<SyncTimes>,
}

/// The sender of the load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Generator {
    Own,
    Wrk,
    RedisBenchmark,
}

/// One measurement. Times are in microseconds; CPU times are per request.
#[derive(Clone, Serialize)]
struct Sample {
    #[serde(serialize_with = "serialize_name")]
    peer: Peer,
    generator: Generator,
    connection_count: usize,
    turn: Turn,
    throughput: f64,
    /// The latencies at [`QUANTILES`]; NaN if the generator does not report one.
    quantiles_us: [f64; QUANTILES.len()],
    server_cpu_us: f64,
    generator_cpu_us: f64,
    /// Context switches of the server per request; NaN if they were not counted.
    server_switches: f64,
}

/// The turn in which a measurement was made. The measurements of one turn follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
struct Turn {
    round: u32,
    slice: u32,
}

/// A running server, stopped on drop.
enum Running {
    /// A server that receives trades over HTTP.
    Http { target: Target, _process: Box<dyn Any> },
    /// A server with its own load generator.
    Redis(Redis),
}

impl Comparison<'_> {
    /// Runs the measurement.
    pub(crate) fn run(&self) -> anyhow::Result<Figures> {
        let is_fastapi = |peer: &Peer| matches!(peer, Peer::Fastapi | Peer::Fastapi2);
        let stack = if self.peers.iter().any(is_fastapi) {
            let folder = self.setup.scratch.0.join("fastapi");
            Some(Stack::start(&folder, self.python, self.account_count)?)
        } else {
            None
        };
        let mut figures = Figures::default();
        for round in 1..=self.setup.arguments.rounds {
            self.run_round(round, stack.as_ref(), &mut figures)
                .with_context(|| format!("in round {round}"))?;
        }
        Ok(figures)
    }

    fn run_round(
        &self,
        round: u32,
        stack: Option<&Stack>,
        figures: &mut Figures,
    ) -> anyhow::Result<()> {
        let folder = self.setup.scratch.0.join(format!("round-{round}"));
        figures.sync.push(machine::sync_times(&self.setup.scratch.0, SYNC_OPEN_LOOP)?);
        let mut running = Vec::new();
        for &peer in self.peers.iter().filter(|&&peer| peer != Peer::Wrk) {
            let started = self.start(peer, &folder.join(format!("{peer:?}")), stack);
            running.push((peer, started.with_context(|| format!("{} failed", peer.name()))?));
        }
        for &connection_count in self.connections {
            for slice in 1..=self.slices {
                // Each server comes first, in the middle and last in turn.
                running.rotate_left(1);
                let turn = Turn { round, slice };
                for (peer, server) in &running {
                    let sample = self.measure(*peer, server, connection_count, turn);
                    figures.add(sample.with_context(|| {
                        format!("{} at {connection_count} connections", peer.name())
                    })?);
                }
            }
        }
        if self.peers.contains(&Peer::Wrk) {
            for (peer, server) in &running {
                let target = match server {
                    Running::Http { target, .. } => target,
                    Running::Redis(_) => continue,
                };
                let sample = self.measure_with_wrk(*peer, target, &folder.join("wrk"), round);
                figures.add(sample.with_context(|| format!("{} with wrk", peer.name()))?);
            }
        }
        drop(running);
        std::fs::remove_dir_all(&folder).context("failed to remove a round's data")
    }

    fn start(&self, peer: Peer, folder: &Path, stack: Option<&Stack>) -> anyhow::Result<Running> {
        let own = |kind| self.setup.start(kind, folder, &[]);
        let fastapi = |worker_count| {
            let stack = stack.context("the FastAPI stack was not started")?;
            let server = stack.serve(worker_count)?;
            let target = stack.target(&server);
            target.stock()?;
            Ok(Running::Http { target, _process: Box::new(server) })
        };
        match peer {
            Peer::Bare => {
                let server = own(Kind::Bare)?;
                let target = Target::of(&server, Kind::bare_keys());
                Ok(Running::Http { target, _process: Box::new(server) })
            }
            Peer::Durable | Peer::Durable1 | Peer::Hyper | Peer::Memory => {
                let server = match peer {
                    Peer::Hyper => self.setup.start(Kind::Durable, folder, &["--lane", "off"])?,
                    Peer::Memory => own(Kind::Memory)?,
                    Peer::Durable1 => {
                        self.setup.start_workers(1, Kind::Durable, folder, &[], &[])?
                    }
                    _ => own(Kind::Durable)?,
                };
                let keys = server.make_keys(self.account_count)?;
                let target = Target::of(&server, keys);
                target.stock()?;
                Ok(Running::Http { target, _process: Box::new(server) })
            }
            Peer::H2o => {
                let server = H2o::start(folder, self.setup.arguments.workers)?;
                let target = server.target();
                Ok(Running::Http { target, _process: Box::new(server) })
            }
            Peer::Redis => Ok(Running::Redis(Redis::start_durable(folder)?)),
            Peer::Fastapi => fastapi(1),
            Peer::Fastapi2 => fastapi(2),
            Peer::Wrk => unreachable!("wrk is no server"),
        }
    }

    fn measure(
        &self,
        peer: Peer,
        server: &Running,
        connection_count: usize,
        turn: Turn,
    ) -> anyhow::Result<Sample> {
        let arguments = &self.setup.arguments;
        let seconds = arguments.seconds / f64::from(self.slices);
        match server {
            Running::Http { target, .. } => {
                let shape = Shape { seconds, ..self.setup.closed_loop(connection_count) };
                let outcome = self.setup.load(target, shape)?;
                Ok(Sample::own(peer, connection_count, turn, &outcome))
            }
            Running::Redis(redis) => {
                let [warm_up, measured] =
                    [arguments.warm_up_seconds, seconds].map(Duration::from_secs_f64);
                let outcome = redis.load(connection_count, warm_up, measured)?;
                let figures = outcome.figures;
                let count = outcome.request_count;
                let unknown = f64::NAN;
                Ok(Sample {
                    peer,
                    generator: Generator::RedisBenchmark,
                    connection_count,
                    turn,
                    throughput: figures.requests_per_second,
                    quantiles_us: [
                        figures.p50_us,
                        unknown,
                        figures.p99_us,
                        unknown,
                        unknown,
                        figures.max_us,
                    ],
                    server_cpu_us: microseconds_each(outcome.server_cpu_seconds, count),
                    generator_cpu_us: microseconds_each(outcome.generator_cpu_seconds, count),
                    server_switches: unknown,
                })
            }
        }
    }

    fn measure_with_wrk(
        &self,
        peer: Peer,
        target: &Target,
        folder: &Path,
        round: u32,
    ) -> anyhow::Result<Sample> {
        let arguments = &self.setup.arguments;
        let (threads, seconds) = (arguments.threads, arguments.seconds);
        let run_number = self.setup.next_run_number();
        let outcome = wrk::load(target, folder, WRK_CONNECTIONS, threads, seconds, run_number)?;
        let figures = outcome.figures;
        let cpu = |seconds: f64| seconds * 1e6 / figures.request_count;
        Ok(Sample {
            peer,
            generator: Generator::Wrk,
            connection_count: WRK_CONNECTIONS,
            turn: Turn { round, slice: 1 },
            throughput: figures.request_count * 1e6 / figures.duration_us,
            quantiles_us: figures.quantiles_us,
            server_cpu_us: cpu(outcome.server_cpu_seconds),
            generator_cpu_us: cpu(outcome.generator_cpu_seconds),
            server_switches: f64::NAN,
        })
    }
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn own(peer: Peer, connection_count: usize, turn: Turn, outcome: &Outcome) -> Self {
        let count = outcome.latency_ns.len();
        Self {
            peer,
            generator: Generator::Own,
            connection_count,
            turn,
            throughput: outcome.throughput(),
            quantiles_us: QUANTILES.map(|(_, quantile)| outcome.quantile_us(quantile)),
            server_cpu_us: microseconds_each(outcome.server_cpu_seconds, count),
            generator_cpu_us: microseconds_each(outcome.generator_cpu_seconds, count),
            server_switches: outcome.server_switches as f64 / count as f64,
        }
    }
}

impl Figures {
    fn add(&mut self, sample: Sample) {
        let [p50, _, p99, ..] = sample.quantiles_us;
        eprintln!(
            "round {}.{}: {}, {} connections, by {}: {:.0}/s, p50 {p50:.0} us, p99 {p99:.0} us",
            sample.turn.round,
            sample.turn.slice,
            sample.peer.name(),
            sample.connection_count,
            sample.generator.name(),
            sample.throughput
        );
        self.samples.push(sample);
    }

    /// Whether the generator used more CPU time than this server, so that a faster server would
    /// hardly show.
    fn is_of_load(&self, peer: Peer, connection_count: usize) -> bool {
        let row = self.row(peer, Generator::Own, connection_count);
        let cpu_us = |value: fn(&Sample) -> f64| median(row.iter().copied(), value);
        cpu_us(|sample| sample.generator_cpu_us) > cpu_us(|sample| sample.server_cpu_us)
    }

    /// Returns the samples of one row.
    fn row(&self, peer: Peer, generator: Generator, connection_count: usize) -> Vec<&Sample> {
        let is_wanted = |sample: &&Sample| {
            sample.peer == peer
                && sample.generator == generator
                && sample.connection_count == connection_count
        };
        self.samples.iter().filter(is_wanted).collect()
    }

    /// Returns a peer's samples from the generator that the goals use.
    fn goal_row(&self, peer: Peer, connection_count: usize) -> Vec<&Sample> {
        let generator =
            if peer == Peer::Redis { Generator::RedisBenchmark } else { Generator::Own };
        self.row(peer, generator, connection_count)
    }

    /// Returns the ratios of a figure of one peer to that of another, each within the same turn.
    fn ratio(
        &self,
        [peer, other]: [Peer; 2],
        connection_count: usize,
        value: impl Fn(&Sample) -> f64,
    ) -> Spread {
        ratio(
            &self.goal_row(peer, connection_count),
            &self.goal_row(other, connection_count),
            value,
        )
    }

    fn latency_us(&self, peer: Peer, connection_count: usize, quantile: usize) -> f64 {
        let row = self.row(peer, Generator::Own, connection_count);
        median(row, |sample| sample.quantiles_us[quantile])
    }

    /// Returns p50, p99 and p99.9 of the disk alone in an open loop, each the median of the rounds.
    pub(crate) fn sync_open_loop_us(&self) -> [f64; 3] {
        [0, 1, 2].map(|index| median(&self.sync, |times| times.open_loop[index]))
    }

    /// Returns the section of the report.
    pub(crate) fn part(&self, connections: &[usize]) -> Part {
        Part {
            name: "closed",
            title: "Closed loop",
            markdown: self.markdown(connections),
            goals: self.goals(),
            json: serde_json::json!({ "samples": self.samples, "fdatasync_us": self.sync }),
        }
    }

    fn goals(&self) -> Vec<Goal> {
        use Peer::{Bare, Durable, Durable1, Memory, Redis};
        let throughput = |what: &str, [own, other]: [Peer; 2], connection_count, bound| {
            let ratio = self.ratio([own, other], connection_count, |sample| sample.throughput);
            let goal = Goal::at_least(what, ratio, bound);
            goal.bound_by_load(self.is_of_load(own, connection_count))
        };
        let cpu = |sample: &Sample| sample.server_cpu_us;
        let sync_p50 = median(&self.sync, |times| times.p50);
        let [own_p50, bare_p50] = [Durable, Bare].map(|peer| self.latency_us(peer, 1, 0));
        let generator_cpu = |generator| {
            median(self.row(Bare, generator, WRK_CONNECTIONS), |row| row.generator_cpu_us)
        };
        let switches = self.row(Durable, Generator::Own, 64);
        let mut goals = vec![
            throughput(
                "1: 64 connections, durable: throughput / Redis `SET`, `appendfsync always`",
                [Durable, Redis],
                64,
                1.15,
            ),
            throughput(
                "1: 64 connections, durable, 1 worker: throughput / Redis `SET`, `appendfsync \
                 always`",
                [Durable1, Redis],
                64,
                1.15,
            ),
            throughput(
                "1: 256 connections, durable: throughput / Redis `SET`, `appendfsync always`",
                [Durable, Redis],
                256,
                1.25,
            ),
            throughput(
                "1: 64 connections, durable: throughput / bare hyper",
                [Durable, Bare],
                64,
                0.75,
            ),
            throughput(
                "1: 64 connections, in memory: throughput / bare hyper",
                [Memory, Bare],
                64,
                0.85,
            ),
            Goal::at_most(
                "1: 64 connections, durable: CPU a trade / CPU a request of bare hyper",
                self.ratio([Durable, Bare], 64, cpu),
                1.35,
            ),
            Goal::at_most(
                "1: 64 connections, durable: context switches a trade",
                Spread::of(switches.into_iter().map(|sample| sample.server_switches)),
                0.08,
            ),
            Goal::at_most(
                "1: the generator's CPU a request / wrk's, bare hyper at 64 connections",
                generator_cpu(Generator::Own) / generator_cpu(Generator::Wrk),
                1.3,
            ),
            Goal::at_most(
                "2: one connection, durable: (p50 − bare hyper's p50) / `fdatasync`'s p50",
                (own_p50 - bare_p50) / sync_p50,
                1.3,
            ),
        ];
        for peer in [Peer::Fastapi, Peer::Fastapi2] {
            let name = peer.name();
            let what = format!("3: 64 connections, durable: throughput / {name}");
            goals.push(throughput(&what, [Durable, peer], 64, 45.0));
            goals.push(Goal::at_least(
                format!("3: 64 connections: p99 of {name} / durable"),
                self.ratio([peer, Durable], 64, |sample| sample.quantiles_us[2]),
                40.0,
            ));
        }
        goals
    }

    fn markdown(&self, connections: &[usize]) -> String {
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let mut out = format!(
            "| server | load | connections | requests/s | of bare | {names} | server CPU | load \
             CPU | switches |\n|---|---|---|---|---|{}---|---|---|\n",
            "---|".repeat(QUANTILES.len())
        );
        let with_wrk = [(Generator::Wrk, WRK_CONNECTIONS)];
        let others = [Generator::Own, Generator::RedisBenchmark];
        let others =
            connections.iter().flat_map(|&count| others.map(|generator| (generator, count)));
        for (generator, connection_count) in others.chain(with_wrk) {
            for peer in Peer::TRADED.into_iter().chain([Peer::Redis]) {
                self.write_row(&mut out, peer, generator, connection_count);
            }
        }
        let sync = |value: fn(&SyncTimes) -> f64| Spread::of(self.sync.iter().map(value)).cell(0);
        let [p50, p99, p999] = self.sync_open_loop_us();
        let _ = writeln!(
            out,
            "\nLatencies and processor time a request in microseconds, context switches of the \
             server a request: medians of all turns, with the lowest and the highest. *Of bare* is \
             the ratio within a turn.\n\n`fdatasync` of 512 bytes alone, one after the other: p50 \
             {}, p99 {}. As an open loop at half of its highest rate: p50 {p50:.0}, p99 {p99:.0}, \
             p99.9 {p999:.0}.",
            sync(|times| times.p50),
            sync(|times| times.p99)
        );
        out
    }

    fn write_row(
        &self,
        out: &mut String,
        peer: Peer,
        generator: Generator,
        connection_count: usize,
    ) {
        let row = self.row(peer, generator, connection_count);
        if row.is_empty() {
            return;
        }
        let throughput = Spread::of(row.iter().map(|sample| sample.throughput));
        let bare = self.row(Peer::Bare, generator, connection_count);
        let of_bare = ratio(&row, &bare, |sample| sample.throughput);
        let _ = write!(
            out,
            "| {} | {} | {connection_count} | {} | {} |",
            peer.name(),
            generator.name(),
            throughput.cell(0),
            of_bare.cell(2)
        );
        for index in 0..QUANTILES.len() {
            let value = median(row.iter().copied(), |sample| sample.quantiles_us[index]);
            let value = if value.is_nan() { String::new() } else { format!("{value:.0}") };
            let _ = write!(out, " {value} |");
        }
        let server = median(row.iter().copied(), |sample| sample.server_cpu_us);
        let load = median(row.iter().copied(), |sample| sample.generator_cpu_us);
        let switches = median(row.iter().copied(), |sample| sample.server_switches);
        let switches = if switches.is_nan() { String::new() } else { format!("{switches:.2}") };
        let _ = writeln!(out, " {server:.1} | {load:.1} | {switches} |");
    }
}

/// Returns the ratios of a figure between samples of two rows that were taken in the same turn.
fn ratio(row: &[&Sample], other: &[&Sample], value: impl Fn(&Sample) -> f64) -> Spread {
    let pairs = row.iter().filter_map(|sample| {
        let paired = other.iter().find(|other| other.turn == sample.turn)?;
        Some(value(sample) / value(paired))
    });
    Spread::of(pairs)
}

impl Generator {
    const fn name(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Wrk => "wrk",
            Self::RedisBenchmark => "redis-benchmark",
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn microseconds_each(seconds: f64, count: u64) -> f64 {
    seconds * 1e6 / count as f64
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn serialize_name<S: serde::Serializer>(peer: &Peer, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(peer.name())
}

#[cfg(test)]
mod tests;
