//! Frames and delays of price-socket subscribers, and their cost to concurrent trades.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;

use crate::client::{Connection, encode_request};
use crate::machine::{CpuClock, cpu_seconds};
use crate::price_readers::{Counts, PriceReaders, ReaderFigures, Reading, Stamp, Via};
use crate::report::{Goal, Part};
use crate::server::Kind;
use crate::setup::{Setup, Shape, Target};
use crate::spread::Spread;

/// Connections that trade.
const CONNECTIONS: usize = 64;

/// The most markets per socket.
const MARKETS_PER_SOCKET: usize = 50;

/// How much longer a trade's p99 may be while sockets are saturated.
const TRADE_P99_RATIO_MAX: f64 = 1.5;

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct SubscriberArgs {
    /// Sockets, each subscribed to all markets
    #[arg(long, default_value_t = 1000, value_name = "N")]
    subscribers: usize,

    /// Speed of the simulated venue's time, which determines the rate of frames
    #[arg(long, default_value = "1", value_name = "X")]
    venue_speed: String,

    /// Trades per second, in an open loop, rather than as many as possible
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    trades: Option<u32>,
}

/// One round: the sockets alone, the trades alone, and both together.
#[derive(Serialize)]
struct Sample {
    round: u32,
    sockets_alone: ReaderFigures,
    trades_alone: TradeFigures,
    sockets_beside_trades: ReaderFigures,
    trades_beside_sockets: TradeFigures,
}

/// Figures of the trades.
#[derive(Clone, Copy, Serialize)]
struct TradeFigures {
    throughput: f64,
    p50_us: f64,
    p99_us: f64,
    server_cpu_us: f64,
}

/// Selects one side of a round.
type Of<T> = fn(&Sample) -> &T;

/// The results.
pub(crate) struct Figures {
    arguments: SubscriberArgs,
    samples: Vec<Sample>,
}

/// Runs the measurement.
pub(crate) fn run(
    setup: &Setup,
    arguments: &SubscriberArgs,
    account_count: u32,
) -> anyhow::Result<Figures> {
    let folder = setup.scratch.0.join("subscribers");
    let server = setup.start(Kind::Durable, &folder, &["--venue-speed", &arguments.venue_speed])?;
    let target = Target::of(&server, server.make_keys(account_count)?);
    let subscriptions = vec![markets(&target)?; arguments.subscribers];
    let reading = Reading {
        via: Via::Socket,
        stamp: Stamp::Emitted,
        keeps_last: false,
        pausing: 0,
        // An open loop measures the server, not who else wants its processors.
        gives_way: arguments.trades.is_some(),
    };
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        let trades_alone = trade(setup, arguments, &target)?;
        let mut sockets = PriceReaders::open(&target, &subscriptions, reading)?;
        let seconds = Duration::from_secs_f64(setup.arguments.seconds);
        let clock = || cpu_seconds(CpuClock::Trees(&target.pids));
        let cpu_before = clock()?;
        let alone = observe(&mut sockets, || {
            std::thread::sleep(seconds);
            clock()
        })?;
        let server_cpu = alone.result - cpu_before;
        let together = observe(&mut sockets, || trade(setup, arguments, &target))?;
        sockets.close()?;
        let sample = Sample {
            round,
            sockets_alone: alone.figures(server_cpu),
            trades_alone,
            sockets_beside_trades: together.figures(f64::NAN),
            trades_beside_sockets: together.result,
        };
        eprintln!("round {round}: {}", sample.line());
        samples.push(sample);
    }
    drop(server);
    std::fs::remove_dir_all(&folder).context("failed to remove the server's data")?;
    Ok(Figures { arguments: arguments.clone(), samples })
}

/// What the sockets received during some action, and the result of the action.
struct Observed<T> {
    counts: Counts,
    elapsed: Duration,
    result: T,
}

fn observe<T>(
    sockets: &mut PriceReaders,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Observed<T>> {
    drop(sockets.take());
    let began = Instant::now();
    let result = work()?;
    let counts = sockets.take();
    sockets.ensure_open()?;
    Ok(Observed { counts, elapsed: began.elapsed(), result })
}

fn trade(
    setup: &Setup,
    arguments: &SubscriberArgs,
    target: &Target,
) -> anyhow::Result<TradeFigures> {
    let rate = arguments.trades.map(f64::from);
    let outcome = setup.load(target, Shape { rate, ..setup.closed_loop(CONNECTIONS) })?;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let count = outcome.latency_ns.len() as f64;
    Ok(TradeFigures {
        throughput: outcome.throughput(),
        p50_us: outcome.quantile_us(0.5),
        p99_us: outcome.quantile_us(0.99),
        server_cpu_us: outcome.server_cpu_seconds * 1e6 / count,
    })
}

/// The markets that a socket can subscribe to.
fn markets(target: &Target) -> anyhow::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let path = format!("/v1/markets?limit={MARKETS_PER_SOCKET}");
    let request = encode_request("GET", &path, target.address, &[], "");
    let listed: serde_json::Value = runtime.block_on(async {
        let mut connection = Connection::open(target.address).await?;
        anyhow::Ok(serde_json::from_slice(connection.exchange(request.as_bytes()).await?.body)?)
    })?;
    let rows = listed.as_array().or_else(|| listed["markets"].as_array());
    let ids: Vec<String> = rows
        .into_iter()
        .flatten()
        .filter_map(|row| Some(row["condition_id"].as_str()?.to_owned()))
        .collect();
    ensure!(!ids.is_empty(), "there are no markets: {listed}");
    Ok(ids)
}

impl<T> Observed<T> {
    fn figures(&self, server_cpu_seconds: f64) -> ReaderFigures {
        ReaderFigures::of(&self.counts, self.elapsed, server_cpu_seconds)
    }
}

impl Sample {
    fn line(&self) -> String {
        format!(
            "{:.0} frames/s, p99 {} ms; beside trades {:.0} frames/s, p99 {} ms; trades {:.0}/s \
             alone with p99 {:.0} µs, {:.0}/s beside with {:.0}",
            self.sockets_alone.frames_per_second,
            self.sockets_alone.delay_p99_ms,
            self.sockets_beside_trades.frames_per_second,
            self.sockets_beside_trades.delay_p99_ms,
            self.trades_alone.throughput,
            self.trades_alone.p99_us,
            self.trades_beside_sockets.throughput,
            self.trades_beside_sockets.p99_us
        )
    }
}

impl Figures {
    /// The section of the report.
    pub(crate) fn part(&self) -> Part {
        Part {
            name: "subscribers",
            title: "Subscribers of the price socket",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({
                "subscribers": self.arguments.subscribers,
                "venue_speed": self.arguments.venue_speed,
                "samples": self.samples,
            }),
        }
    }

    /// Only of an open loop: the percentiles of a closed one are those of its own queue.
    fn goals(&self) -> Vec<Goal> {
        let ratios = self.samples.iter();
        let ratios = ratios.map(|it| it.trades_beside_sockets.p99_us / it.trades_alone.p99_us);
        let ratio = Goal::at_most(
            "a trade's p99 beside sockets, over that of one alone",
            Spread::of(ratios),
            TRADE_P99_RATIO_MAX,
        );
        self.arguments.trades.map(|_| ratio).into_iter().collect()
    }

    fn markdown(&self) -> String {
        let SubscriberArgs { subscribers, venue_speed, trades } = &self.arguments;
        let load = match trades {
            Some(rate) => format!("an open loop, {rate} a second"),
            None => "a closed loop".to_owned(),
        };
        let mut out = format!(
            "{subscribers} sockets on the durable server, each subscribed to all markets of the \
             simulated venue at speed {venue_speed}; {CONNECTIONS} connections trade in {load}. \
             The delay is from when a frame was made to when the client had it, in whole \
             milliseconds, since that is the clock of the frames. Medians, with the lowest and the \
             highest.\n\n| | {} |\n|---|---|---|---|---|---|---|---|---|\n",
            ReaderFigures::COLUMNS
        );
        let rows: [(&str, Of<ReaderFigures>); 2] = [
            ("sockets alone", |sample| &sample.sockets_alone),
            ("sockets beside trades", |sample| &sample.sockets_beside_trades),
        ];
        for (name, figures) in rows {
            let rounds: Vec<_> = self.samples.iter().map(|sample| *figures(sample)).collect();
            let _ = writeln!(out, "| {name} | {} |", ReaderFigures::cells(&rounds));
        }
        out.push_str(
            "\n| | trades/s | p50 (µs) | p99 (µs) | server CPU a trade (µs) |\n\
             |---|---|---|---|---|\n",
        );
        let rows: [(&str, Of<TradeFigures>); 2] = [
            ("trades alone", |sample| &sample.trades_alone),
            ("trades beside sockets", |sample| &sample.trades_beside_sockets),
        ];
        for (name, figures) in rows {
            let cell = |digits, value: fn(&TradeFigures) -> f64| {
                Spread::of(self.samples.iter().map(|sample| value(figures(sample)))).cell(digits)
            };
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} |",
                cell(0, |figures| figures.throughput),
                cell(0, |figures| figures.p50_us),
                cell(0, |figures| figures.p99_us),
                cell(1, |figures| figures.server_cpu_us)
            );
        }
        out
    }
}
