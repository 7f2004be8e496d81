//! The closed-loop comparison: every server at every number of connections, in several rounds.

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
use crate::peers::redis::Redis;
use crate::peers::wrk;
use crate::report::{Goal, Part};
use crate::server::Kind;
use crate::setup::{Setup, Target};
use crate::spread::{Spread, median};

/// The reported quantiles of latency.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

/// The number of connections of the rows that wrk repeats.
const WRK_CONNECTIONS: usize = 64;

/// Duration of the open-loop measurement of the disk alone.
const SYNC_OPEN_LOOP: Duration = Duration::from_secs(2);

/// What to measure.
pub(crate) struct Comparison<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) peers: &'a [Peer],
    pub(crate) connections: &'a [usize],
    /// Trading accounts, each with one key.
    pub(crate) account_count: u32,
    /// The Python interpreter that has the packages of FastAPI.
    pub(crate) python: Option<&'a Path>,
}

/// The results.
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
    round: u32,
    throughput: f64,
    /// As in [`QUANTILES`]; NaN if the generator does not report it.
    quantiles_us: [f64; QUANTILES.len()],
    server_cpu_us: f64,
    generator_cpu_us: f64,
}

/// A running server, stopped on drop.
enum Running {
    /// Receives trades over HTTP.
    Http { target: Target, _process: Box<dyn Any> },
    /// Has its own load generator.
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
        // Each server comes first, in the middle and last in turn.
        let first = round as usize % running.len().max(1);
        running.rotate_left(first);
        for &connection_count in self.connections {
            for (peer, server) in &running {
                let sample = self.measure(*peer, server, connection_count, round);
                figures.add(sample.with_context(|| {
                    format!("{} at {connection_count} connections", peer.name())
                })?);
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
                let target = Target::of(&server, vec!["ps_live_".to_owned() + &"0".repeat(64)]);
                Ok(Running::Http { target, _process: Box::new(server) })
            }
            Peer::Durable | Peer::Memory => {
                let is_durable = peer == Peer::Durable;
                let server = own(if is_durable { Kind::Durable } else { Kind::Memory })?;
                let keys = server.make_keys(self.account_count)?;
                let target = Target::of(&server, keys);
                target.stock()?;
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
        round: u32,
    ) -> anyhow::Result<Sample> {
        let arguments = &self.setup.arguments;
        match server {
            Running::Http { target, .. } => {
                let shape = self.setup.closed_loop(connection_count);
                let outcome = self.setup.load(target, shape)?;
                Ok(Sample::own(peer, connection_count, round, &outcome))
            }
            Running::Redis(redis) => {
                let [warm_up, measured] =
                    [arguments.warm_up_seconds, arguments.seconds].map(Duration::from_secs_f64);
                let outcome = redis.load(connection_count, warm_up, measured)?;
                let figures = outcome.figures;
                let count = outcome.request_count;
                let unknown = f64::NAN;
                Ok(Sample {
                    peer,
                    generator: Generator::RedisBenchmark,
                    connection_count,
                    round,
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
            round,
            throughput: figures.request_count * 1e6 / figures.duration_us,
            quantiles_us: figures.quantiles_us,
            server_cpu_us: cpu(outcome.server_cpu_seconds),
            generator_cpu_us: cpu(outcome.generator_cpu_seconds),
        })
    }
}

impl Sample {
    fn own(peer: Peer, connection_count: usize, round: u32, outcome: &Outcome) -> Self {
        let count = outcome.latency_ns.len();
        Self {
            peer,
            generator: Generator::Own,
            connection_count,
            round,
            throughput: outcome.throughput(),
            quantiles_us: QUANTILES.map(|(_, quantile)| outcome.quantile_us(quantile)),
            server_cpu_us: microseconds_each(outcome.server_cpu_seconds, count),
            generator_cpu_us: microseconds_each(outcome.generator_cpu_seconds, count),
        }
    }
}

impl Figures {
    fn add(&mut self, sample: Sample) {
        let [p50, _, p99, ..] = sample.quantiles_us;
        eprintln!(
            "round {}: {}, {} connections, by {}: {:.0}/s, p50 {p50:.0} us, p99 {p99:.0} us",
            sample.round,
            sample.peer.name(),
            sample.connection_count,
            sample.generator.name(),
            sample.throughput
        );
        self.samples.push(sample);
    }

    /// The samples of one row.
    fn row(&self, peer: Peer, generator: Generator, connection_count: usize) -> Vec<&Sample> {
        let is_wanted = |sample: &&Sample| {
            sample.peer == peer
                && sample.generator == generator
                && sample.connection_count == connection_count
        };
        self.samples.iter().filter(is_wanted).collect()
    }

    fn throughput(&self, peer: Peer, connection_count: usize) -> f64 {
        let generator =
            if peer == Peer::Redis { Generator::RedisBenchmark } else { Generator::Own };
        let row = self.row(peer, generator, connection_count);
        median(row, |sample| sample.throughput)
    }

    fn latency_us(&self, peer: Peer, connection_count: usize, quantile: usize) -> f64 {
        let row = self.row(peer, Generator::Own, connection_count);
        median(row, |sample| sample.quantiles_us[quantile])
    }

    /// The highest throughput of the durable server and its number of connections; `None` if it was
    /// not measured.
    pub(crate) fn highest_durable(&self) -> Option<(f64, usize)> {
        let rows = self.samples.iter().filter(|sample| sample.peer == Peer::Durable);
        let mut connections: Vec<usize> = rows.map(|sample| sample.connection_count).collect();
        connections.sort_unstable();
        connections.dedup();
        let all =
            connections.into_iter().map(|count| (self.throughput(Peer::Durable, count), count));
        all.max_by(|left, right| left.0.total_cmp(&right.0))
    }

    /// The disk alone as an open loop: p50, p99 and p99.9, each the median of the rounds.
    pub(crate) fn sync_open_loop_us(&self) -> [f64; 3] {
        [0, 1, 2].map(|index| median(&self.sync, |times| times.open_loop[index]))
    }

    /// The section of the report.
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
        let at_64 = |peer| self.throughput(peer, 64);
        let sync_p50 = median(&self.sync, |times| times.p50);
        let [own_p50, bare_p50] =
            [Peer::Durable, Peer::Bare].map(|peer| self.latency_us(peer, 1, 0));
        let generator_cpu = |generator| {
            median(self.row(Peer::Bare, generator, WRK_CONNECTIONS), |row| row.generator_cpu_us)
        };
        let mut goals = vec![
            Goal::at_least(
                "1: 64 connections, durable: throughput / Redis `SET`, `appendfsync always`",
                at_64(Peer::Durable) / at_64(Peer::Redis),
                1.0,
            ),
            Goal::at_least(
                "1: 64 connections, durable: throughput / bare hyper",
                at_64(Peer::Durable) / at_64(Peer::Bare),
                0.55,
            ),
            Goal::at_least(
                "1: 64 connections, in memory: throughput / bare hyper",
                at_64(Peer::Memory) / at_64(Peer::Bare),
                0.75,
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
            goals.push(Goal::at_least(
                format!("3: 64 connections, durable: throughput / {name}"),
                at_64(Peer::Durable) / at_64(peer),
                50.0,
            ));
            goals.push(Goal::at_least(
                format!("3: 64 connections: p99 of {name} / durable"),
                self.latency_us(peer, 64, 2) / self.latency_us(Peer::Durable, 64, 2),
                30.0,
            ));
        }
        goals
    }

    fn markdown(&self, connections: &[usize]) -> String {
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let mut out = format!(
            "| server | load | connections | requests/s | of bare | {names} | server CPU | load \
             CPU |\n|---|---|---|---|---|{}---|---|\n",
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
            "\nLatencies and processor time a request in microseconds: medians of the rounds, with \
             the lowest and the highest throughput.\n\n`fdatasync` of 512 bytes alone, one after \
             the other: p50 {}, p99 {}. As an open loop at half of its highest rate: p50 {p50:.0}, \
             p99 {p99:.0}, p99.9 {p999:.0}.",
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
        let ratio = throughput.median / median(bare, |sample| sample.throughput);
        let ratio = if ratio.is_nan() { String::new() } else { format!("{ratio:.2}") };
        let _ = write!(
            out,
            "| {} | {} | {connection_count} | {} | {ratio} |",
            peer.name(),
            generator.name(),
            throughput.cell(0)
        );
        for index in 0..QUANTILES.len() {
            let value = median(row.iter().copied(), |sample| sample.quantiles_us[index]);
            let value = if value.is_nan() { String::new() } else { format!("{value:.0}") };
            let _ = write!(out, " {value} |");
        }
        let server = median(row.iter().copied(), |sample| sample.server_cpu_us);
        let load = median(row.iter().copied(), |sample| sample.generator_cpu_us);
        let _ = writeln!(out, " {server:.1} | {load:.1} |");
    }
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
mod tests {
    use super::*;

    fn sample(peer: Peer, generator: Generator, connection_count: usize, value: f64) -> Sample {
        Sample {
            peer,
            generator,
            connection_count,
            round: 1,
            throughput: value,
            quantiles_us: [value; QUANTILES.len()],
            server_cpu_us: value,
            generator_cpu_us: value,
        }
    }

    #[test]
    fn goals_are_ratios_of_the_medians_of_their_rows() {
        use Generator::{Own, RedisBenchmark, Wrk};
        let sync = SyncTimes { p50: 100.0, p99: 200.0, open_loop: [1.0, 2.0, 3.0] };
        let figures = Figures {
            samples: vec![
                sample(Peer::Durable, Own, 64, 50.0),
                sample(Peer::Durable, Own, 64, 70.0),
                sample(Peer::Durable, Own, 64, 60.0),
                sample(Peer::Durable, Own, 1, 210.0),
                sample(Peer::Bare, Own, 1, 90.0),
                sample(Peer::Bare, Own, 64, 130.0),
                sample(Peer::Bare, Wrk, 64, 100.0),
                sample(Peer::Memory, Own, 64, 65.0),
                sample(Peer::Redis, RedisBenchmark, 64, 40.0),
                sample(Peer::Fastapi, Own, 64, 1.0),
                sample(Peer::Fastapi2, Own, 64, 2.0),
            ],
            sync: vec![sync],
        };
        let expected = [
            60.0 / 40.0,
            60.0 / 130.0,
            65.0 / 130.0,
            130.0 / 100.0,
            (210.0 - 90.0) / 100.0,
            60.0 / 1.0,
            1.0 / 60.0,
            60.0 / 2.0,
            2.0 / 60.0,
        ];
        let bounds = [1.0, 0.55, 0.75, 1.3, 1.3, 50.0, 30.0, 50.0, 30.0];
        let goals = figures.goals();
        assert_eq!(goals.len(), expected.len());
        for ((goal, measured), bound) in goals.iter().zip(expected).zip(bounds) {
            let json = serde_json::to_value(goal).unwrap();
            assert_eq!(
                (json["measured"].as_f64(), json["bound"].as_f64()),
                (Some(measured), Some(bound))
            );
        }
        assert_eq!(figures.highest_durable(), Some((210.0, 1)));
        assert_eq!(Figures::default().highest_durable(), None);
    }
}
