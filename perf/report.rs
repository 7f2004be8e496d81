//! The table: medians over the rounds, with the spread between the lowest and the highest.

use std::fmt::Write as _;

use crate::RunArgs;
use crate::load::Outcome;
use crate::server::Kind;

/// The parts of the answers whose latencies are told.
const QUANTILES: [(&str, f64); 6] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

/// Everything that a run has measured.
pub(crate) struct Report {
    /// One for each server, number of connections and round.
    pub(crate) samples: Vec<Sample>,
    /// The median and the 99th percentile of a sync alone, one pair for each round.
    pub(crate) sync_us: Vec<[f64; 2]>,
    description: Vec<(&'static str, String)>,
    arguments: RunArgs,
}

/// One measurement.
pub(crate) struct Sample {
    kind: Kind,
    connection_count: usize,
    throughput: f64,
    quantiles_us: [f64; QUANTILES.len()],
    generator_cpu_us: f64,
    server_cpu_us: f64,
}

impl Sample {
    /// What is kept of an outcome.
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    pub(crate) fn of(kind: Kind, connection_count: usize, outcome: &Outcome) -> Self {
        let count = outcome.latency_ns.len() as f64;
        Self {
            kind,
            connection_count,
            throughput: outcome.throughput(),
            quantiles_us: QUANTILES.map(|(_, quantile)| outcome.quantile_us(quantile)),
            generator_cpu_us: outcome.generator_cpu_seconds * 1e6 / count,
            server_cpu_us: outcome.server_cpu_seconds * 1e6 / count,
        }
    }

    /// For whoever watches the run.
    pub(crate) fn line(&self) -> String {
        let [p50, _, p99, ..] = self.quantiles_us;
        format!(
            "{}, {} connections: {:.0}/s, p50 {p50:.0} us, p99 {p99:.0} us",
            self.kind.name(),
            self.connection_count,
            self.throughput
        )
    }
}

impl Report {
    /// Nothing measured yet.
    pub(crate) fn new(arguments: &RunArgs, description: Vec<(&'static str, String)>) -> Self {
        let arguments = arguments.clone();
        Self { samples: Vec::new(), sync_us: Vec::new(), description, arguments }
    }

    /// The table for people.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let _ = writeln!(
            out,
            "| server | connections | requests/s | of bare | {names} | server CPU | load CPU |"
        );
        let _ = writeln!(out, "|---|---|---|---|{}---|---|", "---|".repeat(QUANTILES.len()));
        for &connection_count in &self.arguments.connections {
            for kind in Kind::ALL {
                self.write_row(&mut out, kind, connection_count);
            }
        }
        let _ = writeln!(out, "\n{}", self.notes());
        out
    }

    fn write_row(&self, out: &mut String, kind: Kind, connection_count: usize) {
        let rounds: Vec<&Sample> = self.rounds(kind, connection_count);
        let throughput = Spread::of(rounds.iter().map(|sample| sample.throughput));
        let bare = self.rounds(Kind::Bare, connection_count);
        let ratio =
            throughput.median / Spread::of(bare.iter().map(|sample| sample.throughput)).median;
        let _ = write!(
            out,
            "| {} | {connection_count} | {:.0} ({:.0}–{:.0}) | {ratio:.2} |",
            kind.name(),
            throughput.median,
            throughput.lowest,
            throughput.highest
        );
        for index in 0..QUANTILES.len() {
            let spread = Spread::of(rounds.iter().map(|sample| sample.quantiles_us[index]));
            let _ = write!(out, " {:.0} |", spread.median);
        }
        let server = Spread::of(rounds.iter().map(|sample| sample.server_cpu_us));
        let generator = Spread::of(rounds.iter().map(|sample| sample.generator_cpu_us));
        let _ = writeln!(out, " {:.1} | {:.1} |", server.median, generator.median);
    }

    fn rounds(&self, kind: Kind, connection_count: usize) -> Vec<&Sample> {
        let is_wanted =
            |sample: &&Sample| sample.kind == kind && sample.connection_count == connection_count;
        self.samples.iter().filter(is_wanted).collect()
    }

    fn notes(&self) -> String {
        let RunArgs { rounds, seconds, warm_up_seconds, threads, workers, accounts, .. } =
            &self.arguments;
        let sync = |index: usize| Spread::of(self.sync_us.iter().map(|pair| pair[index])).median;
        let mut notes = format!(
            "Latencies and processor time a request in microseconds; medians of {rounds} \
             interleaved rounds, with the lowest and the highest throughput. Closed loop: \
             {threads} generator threads on the same machine, {warm_up_seconds} s of warm-up and \
             {seconds} s measured each, {workers} server workers, {accounts} accounts with a key \
             each, BUY 1 and SELL 1 in turn, an idempotency key of its own on every request. \
             `fdatasync` of 512 bytes alone: p50 {:.0}, p99 {:.0}.\n\n",
            sync(0),
            sync(1)
        );
        for (name, value) in &self.description {
            let _ = writeln!(notes, "- {name}: {value}");
        }
        notes
    }

    /// Everything for scripts.
    pub(crate) fn json(&self) -> String {
        let samples: Vec<_> = self
            .samples
            .iter()
            .map(|sample| {
                let latency: serde_json::Map<_, _> = QUANTILES
                    .iter()
                    .zip(sample.quantiles_us)
                    .map(|((name, _), value)| ((*name).to_owned(), value.into()))
                    .collect();
                serde_json::json!({
                    "server": sample.kind.name(),
                    "connections": sample.connection_count,
                    "requests_per_second": sample.throughput,
                    "latency_us": latency,
                    "server_cpu_us_per_request": sample.server_cpu_us,
                    "generator_cpu_us_per_request": sample.generator_cpu_us,
                })
            })
            .collect();
        let machine: serde_json::Map<_, _> = self
            .description
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone().into()))
            .collect();
        let report = serde_json::json!({
            "machine": machine,
            "sync_us": self.sync_us,
            "threads": self.arguments.threads,
            "workers": self.arguments.workers,
            "accounts": self.arguments.accounts,
            "seconds": self.arguments.seconds,
            "samples": samples,
        });
        format!("{report:#}\n")
    }
}

/// The middle of several values, and their ends.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Spread {
    lowest: f64,
    median: f64,
    highest: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (Some(&lowest), Some(&highest)) = (values.first(), values.last()) else {
            return Self { lowest: f64::NAN, median: f64::NAN, highest: f64::NAN };
        };
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Self { lowest, median, highest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        for (values, expected) in [
            (&[3.0, 1.0, 2.0][..], (1.0, 2.0, 3.0)),
            (&[4.0, 1.0, 2.0, 3.0], (1.0, 2.5, 4.0)),
            (&[5.0], (5.0, 5.0, 5.0)),
        ] {
            let (lowest, median, highest) = expected;
            assert_eq!(Spread::of(values.iter().copied()), Spread { lowest, median, highest });
        }
    }
}
