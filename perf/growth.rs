//! The effect of growth on the server's speed: the same load with little and with much data.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::{Connection, encode_request};
use crate::machine::{CpuClock, cpu_seconds};
use crate::prepared::{self, Contents};
use crate::report::{Goal, Part};
use crate::server::{Kind, Server};
use crate::setup::{NO_SNAPSHOTS, Setup, Target};
use crate::spread::{Spread, median};

/// Number of connections of the load.
const CONNECTIONS: usize = 64;

/// Number of accounts of the small server.
const FEW_ACCOUNTS: u64 = 1_000;

/// Number of accounts of the servers that are compared with and without orders.
const HOLDING_ACCOUNTS: u64 = 100_000;

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "the names of the flags")]
pub(crate) struct GrowthArgs {
    /// Accounts with one key each, compared with a thousand
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    grown_accounts: u64,

    /// Kept orders, compared with none
    #[arg(long, default_value_t = 10_000_000, value_name = "N")]
    grown_orders: u64,

    /// Orders at rest, compared with none
    #[arg(long, default_value_t = 100_000, value_name = "N")]
    grown_resting: u64,
}

/// The data of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Size {
    FewAccounts,
    ManyAccounts,
    NoOrders,
    ManyOrders,
    ManyResting,
}

/// The results of one measurement.
#[derive(Serialize)]
struct Sample {
    size: Size,
    round: u32,
    throughput: f64,
    /// The server's CPU time per request, in microseconds.
    server_cpu_us: f64,
    creation: Option<Creation>,
}

/// The times of creating keys, one after another on one connection.
#[derive(Clone, Copy, Serialize)]
struct Creation {
    count: u64,
    p50_us: f64,
    p99_us: f64,
    /// The server's CPU time for creating and revoking a key, in microseconds.
    server_cpu_us: f64,
}

/// The results of the measurement.
pub(crate) struct Figures {
    arguments: GrowthArgs,
    samples: Vec<Sample>,
}

/// A running server with data of this size.
struct Grown {
    size: Size,
    target: Target,
    _server: Server,
}

impl Size {
    const ALL: [Self; 5] = [
        Self::FewAccounts,
        Self::ManyAccounts,
        Self::ManyOrders,
        Self::NoOrders,
        Self::ManyResting,
    ];

    fn contents(self, arguments: &GrowthArgs) -> Contents {
        let (accounts, trades, resting) = match self {
            Self::FewAccounts => (FEW_ACCOUNTS, 0, 0),
            Self::ManyAccounts => (arguments.grown_accounts, 0, 0),
            Self::NoOrders => (HOLDING_ACCOUNTS, 0, 0),
            Self::ManyOrders => (HOLDING_ACCOUNTS, arguments.grown_orders, 0),
            Self::ManyResting => (HOLDING_ACCOUNTS, 0, arguments.grown_resting),
        };
        Contents { accounts, has_keys: true, trades, resting }
    }

    /// Whether to measure the creation of keys, which is done only where the number of keys grows.
    fn makes_keys(self) -> bool {
        matches!(self, Self::FewAccounts | Self::ManyAccounts)
    }
}

/// Runs the measurement.
pub(crate) fn run(setup: &Setup, arguments: &GrowthArgs) -> anyhow::Result<Figures> {
    let mut grown = Vec::new();
    for size in Size::ALL {
        let contents = size.contents(arguments);
        let folder = setup.scratch.0.join(format!("grown-{size:?}"));
        prepared::write(&folder, contents)?;
        sync_all(&folder).context("failed to sync the prepared data")?;
        let server = setup.start(Kind::Durable, &folder, &NO_SNAPSHOTS)?;
        let target = Target::of(&server, shuffled_keys(contents.accounts));
        let Contents { accounts, trades, resting, .. } = contents;
        eprintln!("{size:?}: {accounts} accounts, {trades} orders, {resting} at rest");
        grown.push(Grown { size, target, _server: server });
    }
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        // Reverse the order in each round, so that each of a pair comes first in turn.
        let order = if round % 2 == 0 { [0, 1, 2, 3, 4] } else { [4, 3, 2, 1, 0] };
        for grown in order.map(|index| &grown[index]) {
            let sample = grown.measure(setup, round)?;
            eprintln!("round {round}: {:?}: {:.0}/s", sample.size, sample.throughput);
            samples.push(sample);
        }
    }
    let folders: Vec<_> =
        Size::ALL.iter().map(|size| setup.scratch.0.join(format!("grown-{size:?}"))).collect();
    drop(grown);
    for folder in folders {
        std::fs::remove_dir_all(folder).context("failed to remove a server's data")?;
    }
    Ok(Figures { arguments: arguments.clone(), samples })
}

impl Grown {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn measure(&self, setup: &Setup, round: u32) -> anyhow::Result<Sample> {
        let outcome = setup.load(&self.target, setup.closed_loop(CONNECTIONS))?;
        let creation = if self.size.makes_keys() {
            let measured = Duration::from_secs_f64(setup.arguments.seconds);
            Some(create_keys(&self.target, measured).context("failed to make keys")?)
        } else {
            None
        };
        Ok(Sample {
            size: self.size,
            round,
            throughput: outcome.throughput(),
            server_cpu_us: outcome.server_cpu_seconds * 1e6 / outcome.latency_ns.len() as f64,
            creation,
        })
    }
}

/// Creates keys and revokes each at once, so that no account reaches its limit.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn create_keys(target: &Target, measured: Duration) -> anyhow::Result<Creation> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut taken_ns = Histogram::<u64>::new(3)?;
    let clock = || cpu_seconds(CpuClock::Trees(&target.pids));
    let before = clock()?;
    runtime.block_on(async {
        let mut connection = Connection::open(target.address).await?;
        let end = Instant::now() + measured;
        let mut keys = target.keys.iter().cycle();
        while Instant::now() < end || taken_ns.is_empty() {
            let key = keys.next().context("the target has no keys")?;
            let headers = [("X-API-Key", key.as_str())];
            let create = encode_request("POST", "/v1/keys", target.address, &headers, "{}");
            let began = Instant::now();
            let answer = connection.exchange(create.as_bytes()).await?;
            taken_ns.record(u64::try_from(began.elapsed().as_nanos())?)?;
            let made: serde_json::Value = serde_json::from_slice(answer.body)?;
            ensure!(answer.status == 201, "creating a key failed with {}: {made}", answer.status);
            let id = made["id"].to_string();
            let path = format!("/v1/keys/{}", id.trim_matches('"'));
            let end = encode_request("DELETE", &path, target.address, &headers, "");
            let status = connection.exchange(end.as_bytes()).await?.status;
            ensure!((200..300).contains(&status), "revoking key {id} failed with {status}");
        }
        anyhow::Ok(())
    })?;
    let quantile_us = |quantile| taken_ns.value_at_quantile(quantile) as f64 / 1e3;
    let count = taken_ns.len();
    Ok(Creation {
        count,
        p50_us: quantile_us(0.5),
        p99_us: quantile_us(0.99),
        server_cpu_us: (clock()? - before) * 1e6 / count as f64,
    })
}

/// Returns the keys of this many accounts, in an order that defeats the caches.
fn shuffled_keys(count: u64) -> Vec<String> {
    let mut keys: Vec<String> =
        (0..count).map(|number| prepared::raw_key(number).expose().to_owned()).collect();
    let mut seed: u64 = 0x9e37_79b9_7f4a_7c15;
    for index in (1..keys.len()).rev() {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let other = (seed >> 32) % (index as u64 + 1);
        keys.swap(index, usize::try_from(other).expect("an index into the keys"));
    }
    keys
}

/// Syncs all files, since later write-back by the system would disturb the measurement.
fn sync_all(folder: &Path) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_all(&entry.path())?;
        } else {
            std::fs::File::open(entry.path())?.sync_all()?;
        }
    }
    Ok(())
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        Part {
            name: "growth",
            title: "Growth",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({
                "accounts": self.arguments.grown_accounts,
                "orders": self.arguments.grown_orders,
                "resting": self.arguments.grown_resting,
                "samples": self.samples,
            }),
        }
    }

    fn of(&self, size: Size) -> impl Iterator<Item = &Sample> {
        self.samples.iter().filter(move |sample| sample.size == size)
    }

    fn throughput(&self, size: Size) -> f64 {
        median(self.of(size), |sample| sample.throughput)
    }

    fn creation(&self, size: Size, value: impl Fn(&Creation) -> f64) -> Spread {
        Spread::of(self.of(size).filter_map(|sample| sample.creation.as_ref()).map(value))
    }

    fn goals(&self) -> Vec<Goal> {
        let ratio = |grown, small| self.throughput(grown) / self.throughput(small);
        let creation = |size| self.creation(size, |creation| creation.p50_us).median;
        let GrowthArgs { grown_accounts: accounts, grown_orders: orders, grown_resting: resting } =
            self.arguments;
        vec![
            Goal::at_least(
                format!("6: throughput with {accounts} accounts and keys / with {FEW_ACCOUNTS}"),
                ratio(Size::ManyAccounts, Size::FewAccounts),
                0.9,
            ),
            Goal::at_least(
                format!("6: throughput with {orders} orders kept / with none"),
                ratio(Size::ManyOrders, Size::NoOrders),
                0.95,
            ),
            Goal::at_least(
                format!("6: throughput with {resting} orders at rest / with none"),
                ratio(Size::ManyResting, Size::NoOrders),
                0.95,
            ),
            Goal::at_most(
                format!("6: p50 of making a key with {accounts} keys / with {FEW_ACCOUNTS}"),
                creation(Size::ManyAccounts) / creation(Size::FewAccounts),
                // Equal, except for the variation between two measurements.
                1.1,
            ),
        ]
    }

    fn markdown(&self) -> String {
        let mut out = format!(
            "Durable servers that were started on prepared data, side by side; {CONNECTIONS} \
             connections that walk through all accounts in random order. A key is made, and ended \
             again, one after the other on one connection. Processor times are the server's, in \
             microseconds; medians, with the lowest and the highest.\n\n| accounts with a key | \
             orders kept | at rest | requests/s | CPU a request | making a key: p50 | p99 | CPU of \
             making and ending |\n|---|---|---|---|---|---|---|---|\n"
        );
        for size in Size::ALL {
            let Contents { accounts, trades, resting, .. } = size.contents(&self.arguments);
            let throughput = Spread::of(self.of(size).map(|sample| sample.throughput));
            let cpu = Spread::of(self.of(size).map(|sample| sample.server_cpu_us));
            let _ = writeln!(
                out,
                "| {accounts} | {trades} | {resting} | {} | {} | {} | {} | {} |",
                throughput.cell(0),
                cpu.cell(1),
                self.creation(size, |creation| creation.p50_us).cell(0),
                self.creation(size, |creation| creation.p99_us).cell(0),
                self.creation(size, |creation| creation.server_cpu_us).cell(0)
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffled_keys_hold_every_key_once() {
        let mut keys = shuffled_keys(1000);
        assert_ne!(keys[..3], [0, 1, 2].map(|n| prepared::raw_key(n).expose().to_owned()));
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 1000);
    }

    #[test]
    fn goals_are_ratios_of_medians() {
        let arguments = GrowthArgs { grown_accounts: 5000, grown_orders: 7, grown_resting: 9 };
        let sample = |size: Size, throughput, p50_us| Sample {
            size,
            round: 1,
            throughput,
            server_cpu_us: 1.0,
            creation: size.makes_keys().then_some(Creation {
                count: 1,
                p50_us,
                p99_us: 9.0,
                server_cpu_us: 1.0,
            }),
        };
        let samples = vec![
            sample(Size::FewAccounts, 100.0, 20.0),
            sample(Size::ManyAccounts, 90.0, 30.0),
            sample(Size::NoOrders, 80.0, 0.0),
            sample(Size::ManyOrders, 40.0, 0.0),
            sample(Size::ManyResting, 60.0, 0.0),
        ];
        let goals = Figures { arguments, samples }.goals();
        let measured: Vec<_> = goals
            .iter()
            .map(|goal| serde_json::to_value(goal).unwrap()["measured"].as_f64().unwrap())
            .collect();
        assert_eq!(measured, [0.9, 0.5, 0.75, 1.5]);
    }
}
