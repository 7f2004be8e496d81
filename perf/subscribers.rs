//! Frames and delays of price-socket subscribers, and their cost to concurrent trades.
//!
//! Server and generator have their own cores, and the readers run on those of the generator: the
//! measurement is of how the server divides its time between trades and sockets. The side that is
//! not measured therefore gives way to the other: the readers in the open loop, in which latency
//! counts, and the generator in the closed loop, in which the delay of prices counts.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;

use crate::client::{Connection, encode_request};
use crate::cores::Cores;
use crate::machine::{CpuClock, cpu_seconds};
use crate::open::Highest;
use crate::price_readers::{Counts, PriceReaders, ReaderFigures, Reading, Via};
use crate::report::{Goal, Part};
use crate::server::Kind;
use crate::setup::{Setup, Shape, Target};
use crate::spread::Spread;

/// Maximum number of markets per socket.
const MARKETS_PER_SOCKET: usize = 50;

/// The load of the open loop, relative to the highest throughput of the closed loop.
const LOAD: f64 = 0.5;

/// Maximum ratio of a trade's p99 beside sockets to its p99 alone.
const TRADE_P99_RATIO_MAX: f64 = 1.5;

/// Maximum delay of prices while trades saturate the server, as a p99 in milliseconds: about the
/// time that a lap of all sockets takes beside requests.
const PRICE_P99_MS_MAX: f64 = 100.0;

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct SubscriberArgs {
    /// Sockets, each subscribed to all markets
    #[arg(long, default_value_t = 1000, value_name = "N")]
    subscribers: usize,

    /// Speed of the simulated venue's time, which determines the rate of frames
    #[arg(long, default_value = "1", value_name = "X")]
    venue_speed: String,
}

/// The results of one round: the sockets alone, and each load of trades alone and beside them.
#[derive(Serialize)]
struct Sample {
    round: u32,
    sockets_alone: ReaderFigures,
    open: Together,
    closed: Together,
}

/// Trades alone, the same trades beside sockets, and the sockets' results meanwhile.
#[derive(Clone, Copy, Serialize)]
struct Together {
    trades_alone: TradeFigures,
    trades_beside: TradeFigures,
    sockets_beside: ReaderFigures,
}

/// Figures of the trades.
#[derive(Clone, Copy, Serialize)]
struct TradeFigures {
    throughput: f64,
    p50_us: f64,
    p99_us: f64,
    clock_late_p99_us: f64,
    server_cpu_us: f64,
}

/// Selects one row of a round.
type Of<T> = fn(&Sample) -> &T;

/// The results of the measurement.
pub(crate) struct Figures {
    arguments: SubscriberArgs,
    /// The division of the cores, in words.
    cores: String,
    highest: Highest,
    samples: Vec<Sample>,
}

/// Runs the measurement.
pub(crate) fn run(
    setup: &Setup,
    cores: &Cores,
    highest: Option<Highest>,
    arguments: &SubscriberArgs,
    account_count: u32,
) -> anyhow::Result<Figures> {
    let highest = highest.map_or_else(|| Highest::find(setup, cores, account_count), Ok)?;
    let folder = setup.scratch.0.join("subscribers");
    let speed = ["--venue-speed", &arguments.venue_speed];
    let server = setup.start_apart(cores, Kind::Durable, &folder, &speed)?;
    let target = Target::apart(&server, server.make_keys(account_count)?, cores);
    let subscriptions = vec![markets(&target)?; arguments.subscribers];
    let connection_count = highest.connection_count;
    let closed = setup.closed_loop(connection_count);
    let open = Shape { rate: Some(LOAD * highest.throughput), ..closed };
    let saturating = Shape { gives_way: true, ..closed };
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        let open_alone = trade(setup, open, &target)?;
        let closed_alone = trade(setup, closed, &target)?;
        // The readers give way, since the generator's clock must not wait for them.
        let mut sockets = open_sockets(&target, &subscriptions, true)?;
        let seconds = Duration::from_secs_f64(setup.arguments.seconds);
        let clock = || cpu_seconds(CpuClock::Trees(&target.pids));
        let cpu_before = clock()?;
        let quiet = observe(&mut sockets, || {
            std::thread::sleep(seconds);
            clock()
        })?;
        let server_cpu = quiet.result - cpu_before;
        let beside = |sockets: &mut PriceReaders, shape, trades_alone| {
            let observed = observe(sockets, || trade(setup, shape, &target))?;
            anyhow::Ok(Together {
                trades_alone,
                trades_beside: observed.result,
                sockets_beside: observed.figures(f64::NAN),
            })
        };
        let open = beside(&mut sockets, open, open_alone)?;
        sockets.close()?;
        let mut sockets = open_sockets(&target, &subscriptions, false)?;
        let closed = beside(&mut sockets, saturating, closed_alone)?;
        sockets.close()?;
        let sockets_alone = quiet.figures(server_cpu);
        let sample = Sample { round, sockets_alone, open, closed };
        eprintln!("round {round}: {}", sample.line());
        samples.push(sample);
    }
    drop(server);
    std::fs::remove_dir_all(&folder).context("failed to remove the server's data")?;
    let (arguments, cores) = (arguments.clone(), cores.description());
    Ok(Figures { arguments, cores, highest, samples })
}

fn open_sockets(
    target: &Target,
    subscriptions: &[Vec<String>],
    gives_way: bool,
) -> anyhow::Result<PriceReaders> {
    PriceReaders::open(target, subscriptions, Reading { gives_way, ..Reading::of(Via::Socket) })
}

/// The sockets' results during some action, and the result of the action.
struct Observed<T> {
    counts: Counts,
    elapsed: Duration,
    result: T,
}

fn observe<T>(
    sockets: &mut PriceReaders,
    work: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<Observed<T>> {
    drop(sockets.take()?);
    let began = Instant::now();
    let result = work()?;
    let counts = sockets.take()?;
    sockets.ensure_open()?;
    Ok(Observed { counts, elapsed: began.elapsed(), result })
}

fn trade(setup: &Setup, shape: Shape, target: &Target) -> anyhow::Result<TradeFigures> {
    let outcome = setup.load(target, shape)?;
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let count = outcome.latency_ns.len() as f64;
    Ok(TradeFigures {
        throughput: outcome.throughput(),
        p50_us: outcome.quantile_us(0.5),
        p99_us: outcome.quantile_us(0.99),
        clock_late_p99_us: shape.rate.map_or(f64::NAN, |_| outcome.clock_late_us(0.99)),
        server_cpu_us: outcome.server_cpu_seconds * 1e6 / count,
    })
}

/// Returns the markets that a socket can subscribe to.
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
        let Self { sockets_alone, open, closed, .. } = self;
        let beside = |Together { trades_alone, trades_beside, sockets_beside }: &Together| {
            format!(
                "trades {:.0}/s with p99 {:.0} µs alone, {:.0}/s with {:.0} beside {:.0} frames/s \
                 with p99 {} ms",
                trades_alone.throughput,
                trades_alone.p99_us,
                trades_beside.throughput,
                trades_beside.p99_us,
                sockets_beside.frames_per_second,
                sockets_beside.delay_p99_ms
            )
        };
        format!(
            "{:.0} frames/s with p99 {} ms alone; open loop: {}; closed loop: {}",
            sockets_alone.frames_per_second,
            sockets_alone.delay_p99_ms,
            beside(open),
            beside(closed)
        )
    }
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        Part {
            name: "subscribers",
            title: "Subscribers of the price socket",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({
                "subscribers": self.arguments.subscribers,
                "venue_speed": self.arguments.venue_speed,
                "highest": self.highest,
                "samples": self.samples,
            }),
        }
    }

    /// Trades have a goal only in the open loop: the percentiles of the closed loop are those of
    /// its queue.
    fn goals(&self) -> Vec<Goal> {
        let open = self.samples.iter().map(|sample| sample.open);
        let ratios = open.map(|it| it.trades_beside.p99_us / it.trades_alone.p99_us);
        let closed = self.samples.iter().map(|sample| sample.closed.sockets_beside);
        #[expect(clippy::cast_precision_loss, reason = "delays of seconds at most")]
        let delays = closed.map(|sockets| sockets.delay_p99_ms as f64);
        let is_of_readers =
            self.samples.iter().any(|sample| sample.closed.sockets_beside.is_of_readers());
        vec![
            Goal::at_most(
                format!(
                    "open loop at {LOAD} of the highest load: a trade's p99 beside sockets, over \
                     that of one alone"
                ),
                Spread::of(ratios),
                TRADE_P99_RATIO_MAX,
            ),
            Goal::at_most(
                "closed loop: p99 of the delay of prices beside trades, in ms",
                Spread::of(delays),
                PRICE_P99_MS_MAX,
            )
            .bound_by_load(is_of_readers),
        ]
    }

    fn markdown(&self) -> String {
        let SubscriberArgs { subscribers, venue_speed } = &self.arguments;
        let Highest { throughput, connection_count } = self.highest;
        let mut out = format!(
            "{subscribers} sockets on the durable server, each subscribed to all markets of the \
             simulated venue at speed {venue_speed}; {connection_count} connections trade, as fast \
             as they can in a closed loop, or in an open loop at {LOAD} of {throughput:.0}/s, the \
             highest throughput of the closed loop. Cores: {}; the readers are on the generator's. \
             In the open loop they give way to it, so a part of a frame's delay is theirs; in the \
             closed loop it gives way to them, and a trade's CPU time times their number says how \
             busy the server is. The delay is from when a frame was made to when the client had \
             it, in whole milliseconds, since that is the clock of the frames. Medians, with the \
             lowest and the highest.\n\n\
             | | {} |\n|---|---|---|---|---|---|---|---|---|---|\n",
            self.cores,
            ReaderFigures::COLUMNS
        );
        let rows: [(&str, Of<ReaderFigures>); 3] = [
            ("sockets alone", |sample| &sample.sockets_alone),
            ("sockets beside an open loop", |sample| &sample.open.sockets_beside),
            ("sockets beside a closed loop", |sample| &sample.closed.sockets_beside),
        ];
        for (name, figures) in rows {
            let rounds: Vec<_> = self.samples.iter().map(|sample| *figures(sample)).collect();
            let _ = writeln!(out, "| {name} | {} |", ReaderFigures::cells(&rounds));
        }
        out.push_str(
            "\n| | trades/s | p50 (µs) | p99 (µs) | clock late p99 (µs) | \
             server CPU a trade (µs) |\n|---|---|---|---|---|---|\n",
        );
        let rows: [(&str, Of<TradeFigures>); 4] = [
            ("open loop alone", |sample| &sample.open.trades_alone),
            ("open loop beside sockets", |sample| &sample.open.trades_beside),
            ("closed loop alone", |sample| &sample.closed.trades_alone),
            ("closed loop beside sockets", |sample| &sample.closed.trades_beside),
        ];
        for (name, figures) in rows {
            let cell = |digits, value: fn(&TradeFigures) -> f64| {
                Spread::of(self.samples.iter().map(|sample| value(figures(sample)))).cell(digits)
            };
            let _ = writeln!(
                out,
                "| {name} | {} | {} | {} | {} | {} |",
                cell(0, |figures| figures.throughput),
                cell(0, |figures| figures.p50_us),
                cell(0, |figures| figures.p99_us),
                cell(0, |figures| figures.clock_late_p99_us),
                cell(1, |figures| figures.server_cpu_us)
            );
        }
        out
    }
}
