//! Latency against offered load: requests are due at a fixed rate, whether or not the server keeps
//! up.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::load::Outcome;
use crate::plot::{Plot, Series};
use crate::report::Part;
use crate::server::Kind;
use crate::setup::{Setup, Shape, Target};
use crate::spread::{Spread, median};

/// The offered loads, relative to the highest throughput of the closed loop.
const LOADS: [f64; 6] = [0.1, 0.25, 0.5, 0.65, 0.8, 0.9];

/// The title of the plot.
const TITLE: &str = "Latency of a durable trade against offered load";

/// The reported quantiles of latency.
pub(crate) const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("p99.99", 0.9999), ("max", 1.0)];

/// The highest throughput of a server, and the number of connections that achieved it.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Highest {
    pub(crate) throughput: f64,
    pub(crate) connection_count: usize,
}

/// One measurement. Latencies are in microseconds, from when a request was due.
#[derive(Clone, Serialize)]
pub(crate) struct Sample {
    round: u32,
    /// The requested and the achieved rate, in requests per second.
    offered: f64,
    throughput: f64,
    quantiles_us: [f64; QUANTILES.len()],
    /// How late the generator's clock was: p50 and p99, part of the latencies.
    clock_late_us: [f64; 2],
    server_cpu_us: f64,
}

/// The results.
pub(crate) struct Figures {
    highest: Highest,
    samples: Vec<Sample>,
}

impl Highest {
    /// Measures a closed loop on a new server, if no earlier measurement provides this.
    pub(crate) fn find(setup: &Setup, account_count: u32) -> anyhow::Result<Self> {
        let folder = setup.scratch.0.join("highest");
        let (server, target) = durable(setup, &folder, account_count)?;
        let mut found = Self { throughput: 0.0, connection_count: 0 };
        for connection_count in [64, 256] {
            let outcome = setup.load(&target, setup.closed_loop(connection_count))?;
            if outcome.throughput() > found.throughput {
                found = Self { throughput: outcome.throughput(), connection_count };
            }
        }
        drop(server);
        std::fs::remove_dir_all(&folder).context("failed to remove a server's data")?;
        Ok(found)
    }
}

impl Sample {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    pub(crate) fn of(round: u32, offered: f64, outcome: &Outcome) -> Self {
        Self {
            round,
            offered,
            throughput: outcome.throughput(),
            quantiles_us: QUANTILES.map(|(_, quantile)| outcome.quantile_us(quantile)),
            clock_late_us: [0.5, 0.99].map(|quantile| outcome.clock_late_us(quantile)),
            server_cpu_us: outcome.server_cpu_seconds * 1e6 / outcome.latency_ns.len() as f64,
        }
    }

    /// A latency, by its index in [`QUANTILES`].
    pub(crate) fn quantile_us(&self, index: usize) -> f64 {
        self.quantiles_us[index]
    }

    /// Answers per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.throughput
    }

    /// A line of progress.
    pub(crate) fn line(&self) -> String {
        let [p50, p99, p999, ..] = self.quantiles_us;
        let [late_p50, late_p99] = self.clock_late_us;
        format!(
            "round {}: {:.0} offered, {:.0}/s, p50 {p50:.0}, p99 {p99:.0}, p99.9 {p999:.0} us, \
             clock late by {late_p50:.0}, {late_p99:.0} us",
            self.round, self.offered, self.throughput
        )
    }
}

/// Measures every load on the durable server.
pub(crate) fn run(setup: &Setup, highest: Highest, account_count: u32) -> anyhow::Result<Figures> {
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        let folder = setup.scratch.0.join(format!("open-{round}"));
        let (server, target) = durable(setup, &folder, account_count)?;
        // Each load comes first in turn.
        let mut loads = LOADS;
        loads.rotate_left(round as usize % LOADS.len());
        for load in loads {
            let rate = load * highest.throughput;
            let Highest { connection_count, .. } = highest;
            let seconds = setup.arguments.seconds;
            let shape = Shape { connection_count, rate: Some(rate), seconds };
            let outcome = setup.load(&target, shape)?;
            let sample = Sample::of(round, rate, &outcome);
            eprintln!("open loop, {}", sample.line());
            samples.push(sample);
        }
        drop(server);
        std::fs::remove_dir_all(&folder).context("failed to remove a round's data")?;
    }
    Ok(Figures { highest, samples })
}

fn durable(
    setup: &Setup,
    folder: &Path,
    account_count: u32,
) -> anyhow::Result<(crate::server::Server, Target)> {
    let server = setup.start(Kind::Durable, folder, &[])?;
    let target = Target::of(&server, server.make_keys(account_count)?);
    Ok((server, target))
}

impl Figures {
    /// The section of the report, which links to the plot at this path.
    pub(crate) fn part(&self, picture: Option<&Path>) -> Part {
        let name = picture.and_then(Path::file_name).map(|name| name.to_string_lossy());
        let picture = name.map_or_else(String::new, |name| format!("![{TITLE}]({name})\n\n"));
        Part {
            name: "open",
            title: "Latency against offered load",
            markdown: picture + &self.markdown(),
            goals: Vec::new(),
            json: serde_json::json!({ "highest": self.highest, "samples": self.samples }),
        }
    }

    /// The samples of one offered load.
    fn row(&self, load: f64) -> Vec<&Sample> {
        let offered = load * self.highest.throughput;
        self.samples.iter().filter(|sample| sample.offered.total_cmp(&offered).is_eq()).collect()
    }

    fn markdown(&self) -> String {
        let Highest { throughput, connection_count } = self.highest;
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let mut out = format!(
            "An open loop over {connection_count} connections on the durable server; the highest \
             throughput of the closed loop is {throughput:.0}/s. Latencies from when a request was \
             due, in microseconds: medians, with the lowest and the highest. *Clock late* is how \
             late the generator learned that a request was due, p50 and p99.\n\n| offered | of the \
             highest | requests/s | {names} | clock late | server CPU |\n|---|---|---|{}---|---|\n",
            "---|".repeat(QUANTILES.len())
        );
        for load in LOADS {
            let row = self.row(load);
            let _ = write!(
                out,
                "| {:.0} | {load} | {:.0} |",
                load * throughput,
                median(row.iter().copied(), |sample| sample.throughput)
            );
            for index in 0..QUANTILES.len() {
                let spread = Spread::of(row.iter().map(|sample| sample.quantiles_us[index]));
                let _ = write!(out, " {} |", spread.cell(0));
            }
            for (index, separator) in [", ", " |"].into_iter().enumerate() {
                let late_us = median(row.iter().copied(), |sample| sample.clock_late_us[index]);
                let _ = write!(out, "{}{late_us:.0}{separator}", if index == 0 { " " } else { "" });
            }
            let _ = writeln!(out, " {:.1} |", median(row, |sample| sample.server_cpu_us));
        }
        out
    }

    /// The plot as SVG.
    pub(crate) fn plot(&self) -> String {
        let series = (0..3).map(|index| Series {
            name: QUANTILES[index].0,
            points: LOADS
                .iter()
                .map(|&load| {
                    let latency = median(self.row(load), |sample| sample.quantiles_us[index]);
                    (load * self.highest.throughput, latency)
                })
                .collect(),
        });
        let plot = Plot {
            title: TITLE,
            x_label: "requests a second, due on a clock",
            y_label: "latency from when the request was due",
            series: series.collect(),
        };
        plot.svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_one_load_of_all_rounds() {
        let highest = Highest { throughput: 12_345.6, connection_count: 64 };
        let sample = |round, load: f64, value: f64| Sample {
            round,
            offered: load * highest.throughput,
            throughput: value,
            quantiles_us: [value; QUANTILES.len()],
            clock_late_us: [value / 100.0; 2],
            server_cpu_us: value,
        };
        let samples = (1_u32..=3)
            .flat_map(|round| {
                LOADS.map(|load| sample(round, load, load * 100.0 + f64::from(round)))
            })
            .collect();
        let figures = Figures { highest, samples };
        assert_eq!(figures.row(0.25).len(), 3);
        let markdown = figures.markdown();
        assert!(markdown.contains("| 3086 | 0.25 | 27 | 27 (26–28) |"), "{markdown}");
        assert!(figures.plot().contains("p99.9"));
    }
}
