//! Latency against offered load: requests are due at a fixed rate, whether or not the server keeps
//! up.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use crate::cores::Cores;
use crate::load::Outcome;
use crate::machine::{self, SyncTimes};
use crate::plot::{Plot, Series};
use crate::report::{Goal, Part};
use crate::server::{Kind, Server};
use crate::setup::{Setup, Shape, Target};
use crate::spread::{Spread, median};

/// The offered loads, relative to the highest throughput of the closed loop.
const LOADS: [f64; 6] = [0.1, 0.25, 0.5, 0.65, 0.8, 0.9];

/// The load at which the p99 has a goal.
const HIGH_LOAD: f64 = 0.8;

/// The loads at which the p99 has a goal relative to the floor, and these goals.
const FLOOR_GOALS: [(f64, f64); 2] = [(0.5, 1.5), (HIGH_LOAD, 3.0)];

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

/// The results of one measurement. Latencies are in microseconds, from when a request was due. What
/// was not measured is NaN.
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

/// What is measured at each load, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Subject {
    /// The durable server.
    Durable,
    /// Bare hyper, whose latencies are the share of the machine and the generator.
    Bare,
    /// `fdatasync` alone on the server's cores, at half of its highest rate.
    Disk,
}

/// One measurement in a turn, which measures every subject once at one load.
#[derive(Serialize)]
struct Measured {
    load: f64,
    subject: Subject,
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

    fn of_disk(round: u32, times: &SyncTimes) -> Self {
        let [p50, p99, p999] = times.open_loop;
        let unknown = f64::NAN;
        Self {
            round,
            offered: times.open_loop_rate,
            throughput: times.open_loop_rate,
            quantiles_us: [p50, p99, p999, unknown, unknown],
            clock_late_us: [unknown; 2],
            server_cpu_us: unknown,
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

/// Measures every load on the durable server and, in the same turn, what it cannot be faster than:
/// bare hyper and the disk.
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
            let sample = |subject| {
                let (_, target) = match subject {
                    Subject::Durable => &durable,
                    Subject::Bare => &bare,
                    Subject::Disk => {
                        let duration = Duration::from_secs_f64(setup.arguments.seconds);
                        let times = cores.for_server(|| machine::sync_times(&folder, duration))?;
                        return Ok(Sample::of_disk(round, &times));
                    }
                };
                anyhow::Ok(Sample::of(round, rate, &setup.load(target, shape)?))
            };
            for subject in Subject::ALL {
                let sample = sample(subject)?;
                eprintln!("open loop, {}, {}", subject.name(), sample.line());
                measured.push(Measured { load, subject, sample });
            }
        }
        drop((durable, bare));
        std::fs::remove_dir_all(&folder).context("failed to remove a round's data")?;
    }
    Ok(Figures { cores: cores.description(), highest, measured })
}

impl Subject {
    const ALL: [Self; 3] = [Self::Durable, Self::Bare, Self::Disk];

    const fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Bare => "bare",
            Self::Disk => "`fdatasync`",
        }
    }
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
        let at = |load: f64| format!("4: open loop at {load} of the highest load: p99");
        let p99_us = median(self.row(HIGH_LOAD, Subject::Durable), |sample| sample.quantiles_us[1]);
        let name = format!("{} in milliseconds", at(HIGH_LOAD));
        let of_floor = FLOOR_GOALS.map(|(load, bound)| {
            let name = format!("{} / (bare hyper's p99 + `fdatasync`'s p99)", at(load));
            Goal::at_most(name, self.of_floor(load), bound)
        });
        [Goal::at_most(name, p99_us / 1e3, 3.0)].into_iter().chain(of_floor).collect()
    }

    /// Returns the samples of one subject at one load, one for each round.
    fn row(&self, load: f64, subject: Subject) -> Vec<&Sample> {
        let is_in = |measured: &&Measured| {
            measured.subject == subject && measured.load.total_cmp(&load).is_eq()
        };
        self.measured.iter().filter(is_in).map(|measured| &measured.sample).collect()
    }

    /// Returns the ratios of the durable server's p99 to the sum of bare hyper's and the disk's,
    /// each within one turn.
    fn of_floor(&self, load: f64) -> Spread {
        let [durable, bare, disk] = Subject::ALL.map(|subject| self.row(load, subject));
        let turns = durable.into_iter().zip(bare).zip(disk);
        let p99_us = |sample: &Sample| sample.quantiles_us[1];
        Spread::of(
            turns.map(|((durable, bare), disk)| p99_us(durable) / (p99_us(bare) + p99_us(disk))),
        )
    }

    fn markdown(&self) -> String {
        let Highest { throughput, connection_count } = self.highest;
        let names = QUANTILES.map(|(name, _)| name).join(" | ");
        let mut out = format!(
            "An open loop over {connection_count} connections. Server and generator have cores of \
             their own: {}. With them, the highest throughput of the durable server's closed loop \
             is {throughput:.0}/s. Latencies from when a request was due, in microseconds: \
             medians, with the lowest and the highest. *Clock late* is how late the generator \
             learned that a request was due, p50 and p99. `fdatasync` of 512 bytes is the disk \
             alone in the same turn, on the server's cores and at half of its highest rate. *p99 / \
             floor* is the durable server's p99 relative to the sum of the other two in its \
             turn.\n\n| of the highest | server | offered | requests/s | {names} | clock late | \
             server CPU | p99 / floor |\n|---|---|---|---|{}---|---|---|\n",
            self.cores,
            "---|".repeat(QUANTILES.len())
        );
        for load in LOADS {
            for subject in Subject::ALL {
                self.write_row(&mut out, load, subject);
            }
        }
        out
    }

    fn write_row(&self, out: &mut String, load: f64, subject: Subject) {
        let row = self.row(load, subject);
        let median = |value: fn(&Sample) -> f64| median(row.iter().copied(), value);
        let _ = write!(
            out,
            "| {load} | {} | {:.0} | {:.0} |",
            subject.name(),
            median(|sample| sample.offered),
            median(|sample| sample.throughput)
        );
        for index in 0..QUANTILES.len() {
            let spread = Spread::of(row.iter().map(|sample| sample.quantiles_us[index]));
            let _ = write!(out, " {} |", spread.cell(0));
        }
        if subject == Subject::Disk {
            out.push_str(" | | |\n");
            return;
        }
        let _ = write!(
            out,
            " {:.0}, {:.0} | {:.1} |",
            median(|sample| sample.clock_late_us[0]),
            median(|sample| sample.clock_late_us[1]),
            median(|sample| sample.server_cpu_us)
        );
        let of_floor = match subject {
            Subject::Durable => self.of_floor(load).cell(2),
            Subject::Bare | Subject::Disk => String::new(),
        };
        let _ = writeln!(out, " {of_floor} |");
    }

    /// Returns the plot as SVG.
    pub(crate) fn plot(&self) -> String {
        let points = |index: usize, subject| {
            let point = |&load: &f64| {
                let latency = median(self.row(load, subject), |sample| sample.quantiles_us[index]);
                (load * self.highest.throughput, latency)
            };
            LOADS.iter().map(point).collect()
        };
        let durable = |index: usize| Series {
            name: QUANTILES[index].0,
            points: points(index, Subject::Durable),
        };
        let bare = Series { name: "p99 of bare hyper", points: points(1, Subject::Bare) };
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
            let values = [value, value / 4.0, value / 4.0];
            Subject::ALL.into_iter().zip(values).map(move |(subject, value)| Measured {
                load,
                subject,
                sample: sample(round, load, value),
            })
        };
        let measured = (1..=3)
            .flat_map(|round| LOADS.into_iter().flat_map(move |load| measured(round, load)))
            .collect();
        let figures = Figures { cores: "one each".to_owned(), highest, measured };
        assert_eq!(figures.row(0.25, Subject::Durable).len(), 3);
        assert_eq!(figures.of_floor(0.5), Spread { lowest: 2.0, median: 2.0, highest: 2.0 });
        let markdown = figures.markdown();
        for expected in [
            "| 0.25 | durable | 3086 | 27 | 27 (26–28) |",
            "| 0.25 | bare | 3086 | 7 | 7 (6–7) |",
            "| 0.25 | `fdatasync` | 3086 | 7 | 7 (6–7) |",
        ] {
            assert!(markdown.contains(expected), "{markdown}");
        }
        assert!(figures.plot().contains("p99.9"));
    }
}
