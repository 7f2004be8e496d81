//! Latency against offered load: requests are due at a fixed rate, whether or not the server keeps
//! up.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::cores::Cores;
use crate::load::Outcome;
use crate::plot::{Plot, Series};
use crate::report::{Goal, Part};
use crate::server::{Kind, Server};
use crate::setup::{Setup, Shape, Target};
use crate::spread::{Spread, median};

/// The offered loads, relative to the highest throughput of the closed loop.
const LOADS: [f64; 6] = [0.1, 0.25, 0.5, 0.65, 0.8, 0.9];

/// The load at which the p99 has a goal.
const HIGH_LOAD: f64 = 0.8;

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

/// The results of one measurement. Latencies are in microseconds, from when a request was due.
#[derive(Clone, Serialize)]
pub(crate) struct Sample {
    round: u32,
    /// The requested and the achieved rate, in requests per second.
    offered: f64,
    throughput: f64,
    quantiles_us: [f64; QUANTILES.len()],
    /// The delay of the generator's clock, p50 and p99, which is part of the latencies.
    clock_late_us: [f64; 2],
    server_cpu_us: f64,
}

/// One measurement of a server.
#[derive(Serialize)]
struct Measured {
    is_durable: bool,
    sample: Sample,
}

/// The results of the measurement.
pub(crate) struct Figures {
    /// The division of the cores, in words.
    cores: String,
    highest: Highest,
    measured: Vec<Measured>,
}

impl Highest {
    /// Measures a closed loop on a new server.
    pub(crate) fn find(setup: &Setup, cores: &Cores, account_count: u32) -> anyhow::Result<Self> {
        let folder = setup.scratch.0.join("highest");
        let (server, target) = start(setup, cores, Kind::Durable, &folder, account_count)?;
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

    /// Returns a latency, by its index in [`QUANTILES`].
    pub(crate) fn quantile_us(&self, index: usize) -> f64 {
        self.quantiles_us[index]
    }

    /// Returns the answers per second.
    pub(crate) fn throughput(&self) -> f64 {
        self.throughput
    }

    /// Formats a line of progress.
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

/// Measures every load on the durable server and, beside it, on bare hyper, whose latencies are the
/// machine's and the generator's share.
pub(crate) fn run(
    setup: &Setup,
    cores: &Cores,
    highest: Highest,
    account_count: u32,
) -> anyhow::Result<Figures> {
    let mut measured = Vec::new();
    for round in 1..=setup.arguments.rounds {
        let folder = setup.scratch.0.join(format!("open-{round}"));
        let durable = start(setup, cores, Kind::Durable, &folder, account_count)?;
        let bare = start(setup, cores, Kind::Bare, &folder, account_count)?;
        // Rotate the order, so that each load comes first in turn.
        let mut loads = LOADS;
        loads.rotate_left(round as usize % LOADS.len());
        for load in loads {
            let rate = load * highest.throughput;
            let Highest { connection_count, .. } = highest;
            let shape = Shape { rate: Some(rate), ..setup.closed_loop(connection_count) };
            for (is_durable, (_, target)) in [(true, &durable), (false, &bare)] {
                let outcome = setup.load(target, shape)?;
                let sample = Sample::of(round, rate, &outcome);
                eprintln!("open loop, {}, {}", server_name(is_durable), sample.line());
                measured.push(Measured { is_durable, sample });
            }
        }
        drop((durable, bare));
        std::fs::remove_dir_all(&folder).context("failed to remove a round's data")?;
    }
    Ok(Figures { cores: cores.description(), highest, measured })
}

const fn server_name(is_durable: bool) -> &'static str {
    if is_durable { "durable" } else { "bare" }
}

/// Starts a server on its own cores.
fn start(
    setup: &Setup,
    cores: &Cores,
    kind: Kind,
    folder: &Path,
    account_count: u32,
) -> anyhow::Result<(Server, Target)> {
    let server = setup.start_apart(cores, kind, folder, &[])?;
    let keys = match kind {
        Kind::Bare => Kind::bare_keys(),
        Kind::Durable | Kind::Memory => server.make_keys(account_count)?,
    };
    let target = Target::apart(&server, keys, cores);
    Ok((server, target))
}

impl Figures {
    /// Returns the section of the report, which links to the plot at this path.
    pub(crate) fn part(&self, picture: Option<&Path>) -> Part {
        let name = picture.and_then(Path::file_name).map(|name| name.to_string_lossy());
        let picture = name.map_or_else(String::new, |name| format!("![{TITLE}]({name})\n\n"));
        Part {
            name: "open",
            title: "Latency against offered load",
            markdown: picture + &self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({ "highest": self.highest, "measured": self.measured }),
        }
    }

    fn goals(&self) -> Vec<Goal> {
        let p99_us = median(self.row(HIGH_LOAD, true), |sample| sample.quantiles_us[1]);
        let name = format!("4: open loop at {HIGH_LOAD} of the highest load: p99 in milliseconds");
        vec![Goal::at_most(name, p99_us / 1e3, 3.0)]
    }

    /// Returns the samples of one offered load on one server.
    fn row(&self, load: f64, is_durable: bool) -> Vec<&Sample> {
        let offered = load * self.highest.throughput;
        let is_in = |measured: &&Measured| {
            measured.is_durable == is_durable && measured.sample.offered.total_cmp(&offered).is_eq()
        };
        self.measured.iter().filter(is_in).map(|measured| &measured.sample).collect()
    }

    fn markdown(&self) -> String {
        let Highest { throughput, connection_count } = self.highest;
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let mut out = format!(
            "An open loop over {connection_count} connections. Server and generator have cores of \
             their own: {}. With them, the highest throughput of the durable server's closed loop \
             is {throughput:.0}/s. Latencies from when a request was due, in microseconds: \
             medians, with the lowest and the highest. *Clock late* is how late the generator \
             learned that a request was due, p50 and p99.\n\n| of the highest | offered | server | \
             requests/s | {names} | clock late | server CPU |\n|---|---|---|---|{}---|---|\n",
            self.cores,
            "---|".repeat(QUANTILES.len())
        );
        for (load, is_durable) in LOADS.iter().flat_map(|&load| [(load, true), (load, false)]) {
            let row = self.row(load, is_durable);
            let _ = write!(
                out,
                "| {load} | {:.0} | {} | {:.0} |",
                load * throughput,
                server_name(is_durable),
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

    /// Returns the plot as SVG.
    pub(crate) fn plot(&self) -> String {
        let points = |index: usize, is_durable| {
            let point = |&load: &f64| {
                let latency =
                    median(self.row(load, is_durable), |sample| sample.quantiles_us[index]);
                (load * self.highest.throughput, latency)
            };
            LOADS.iter().map(point).collect()
        };
        let durable =
            |index: usize| Series { name: QUANTILES[index].0, points: points(index, true) };
        let bare = Series { name: "p99 of bare hyper", points: points(1, false) };
        let plot = Plot {
            title: TITLE,
            x_label: "requests a second, due on a clock",
            y_label: "latency from when the request was due",
            series: (0..3).map(durable).chain([bare]).collect(),
        };
        plot.svg()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_holds_one_load_of_one_server_in_all_rounds() {
        let highest = Highest { throughput: 12_345.6, connection_count: 64 };
        let sample = |round, load: f64, value: f64| Sample {
            round,
            offered: load * highest.throughput,
            throughput: value,
            quantiles_us: [value; QUANTILES.len()],
            clock_late_us: [value / 100.0; 2],
            server_cpu_us: value,
        };
        let measured = |round: u32, load: f64| {
            let value = load * 100.0 + f64::from(round);
            [(true, value), (false, value / 2.0)].map(|(is_durable, value)| Measured {
                is_durable,
                sample: sample(round, load, value),
            })
        };
        let measured = (1..=3)
            .flat_map(|round| LOADS.into_iter().flat_map(move |load| measured(round, load)))
            .collect();
        let figures = Figures { cores: "one each".to_owned(), highest, measured };
        assert_eq!(figures.row(0.25, true).len(), 3);
        let markdown = figures.markdown();
        assert!(markdown.contains("| 0.25 | 3086 | durable | 27 | 27 (26–28) |"), "{markdown}");
        assert!(markdown.contains("| 0.25 | 3086 | bare | 14 | 14 (13–14) |"), "{markdown}");
        assert!(figures.plot().contains("p99.9"));
    }
}
