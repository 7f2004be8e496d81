//! The delay from a change of the venue's book to the `fill` frame of the order that it fills.
//!
//! Each account has a socket, an order that rests in its own market, and another in a market that
//! all accounts share. The venue is the tests' stand-in, in a separate process. It shows an ask at
//! an order's limit for a moment: in one market after another, at a fixed rate, and then in the
//! shared one.

mod followers;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::client::{Connection, encode_request};
use crate::machine::{self, CpuClock, cpu_seconds};
use crate::report::{Goal, Part};
use crate::setup::Setup;
use crate::socket::now_ns;
use crate::spread::{Spread, median};
use crate::venue::metrics::{Delays, FLUSHED};
use crate::venue::stand_in::Asks;
use crate::venue::{Followed, METRICS_AGE_MAX};
use followers::{Arrival, Followers};

/// Number of shares per fill: the minimum that a market accepts.
const FILL_SHARES: u32 = 5;

/// Time for which an ask is shown.
const STAY: Duration = Duration::from_millis(200);

/// Minimum time between two asks in the same market. One that returns within a second counts as the
/// same ask.
const ABSENCE: Duration = Duration::from_millis(1500);

/// Time from the order to the stand-in to the first ask.
const LEAD: Duration = Duration::from_millis(50);

/// Timeout for a fill.
const PATIENCE: Duration = Duration::from_secs(30);

/// The goal for a delay: this many flushes, and a part for everything else.
const GOAL_FLUSHES: f64 = 2.0;
const GOAL_REST_MS: f64 = 2.0;

const QUANTILES: [f64; 4] = [0.5, 0.99, 0.999, 1.0];

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct ExecutionArgs {
    /// Execution sockets, each of an account of its own
    #[arg(long, default_value_t = 1_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=4_000))]
    sockets: u32,

    /// Fills per second, each caused by a change of a book of its own
    #[arg(long, default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    fills: u32,

    /// Changes per round that fill an order of every account
    #[arg(long, default_value_t = 5, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=100))]
    bursts: u32,
}

/// The results of one round. Delays are in milliseconds, from when a change was due.
#[derive(Serialize)]
struct Sample {
    round: u32,
    fill_count: u64,
    delay_ms: [f64; QUANTILES.len()],
    /// The stand-in's longest delay, which is part of the delays above.
    late_max_ms: f64,
    /// CPU use of the server, in cores.
    server_cpu: f64,
    /// Delays of the first frame, the median frame and the last one, for each burst.
    bursts_ms: Vec<[f64; 3]>,
    /// Flush times of the journal, from the server's own histogram; without a maximum.
    flush_ms: [f64; QUANTILES.len()],
    /// Times of single flushes of the same disk, at the same time and the same rate.
    sync_ms: [f64; QUANTILES.len()],
}

/// Selects some quantiles of a round.
type Quantiles = fn(&Sample) -> [f64; QUANTILES.len()];

/// The results of the measurement.
pub(crate) struct Figures {
    arguments: ExecutionArgs,
    samples: Vec<Sample>,
}

/// A venue, a server that follows it, and the accounts.
struct World {
    followed: Followed,
    followers: Followers,
    /// The limit prices of the orders, by market.
    limits: Vec<String>,
    account_count: usize,
    fills_per_second: u32,
    /// The market of the next change.
    next: usize,
}

/// The frames that some changes caused.
struct Caused {
    arrivals: Vec<Arrival>,
    asks: Vec<usize>,
    begin_ns: u64,
    interval_ns: u64,
    late_max: Duration,
}

/// Runs the measurement.
pub(crate) fn run(setup: &Setup, arguments: &ExecutionArgs) -> anyhow::Result<Figures> {
    let ExecutionArgs { sockets, fills, bursts } = *arguments;
    ensure!(
        f64::from(sockets) / f64::from(fills) >= (STAY + ABSENCE).as_secs_f64(),
        "with {sockets} sockets and {fills} fills a second, an ask would come back too soon"
    );
    let shape = &setup.arguments;
    let [warm_up, measured] = [shape.warm_up_seconds, shape.seconds].map(|seconds| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "thousands")]
        let count = (seconds * f64::from(fills)).ceil() as usize;
        count.max(1)
    });
    let change_count = (warm_up + measured) * shape.rounds as usize;
    let fills_per_order =
        [change_count.div_ceil(sockets as usize), (bursts * shape.rounds) as usize];
    let mut world = World::start(setup, arguments, fills_per_order)?;
    let mut samples = Vec::new();
    for round in 1..=shape.rounds {
        world.fill_in_turn(warm_up)?;
        let pid = [world.followed.server.pid()];
        let flushed_before = world.flushed()?;
        let (cpu_before, began) = (cpu_seconds(CpuClock::Trees(&pid))?, Instant::now());
        let interval = Duration::from_secs(1) / fills;
        let (caused, syncs_ns) = std::thread::scope(|scope| {
            let (scratch, duration) = (&setup.scratch.0, interval * u32::try_from(measured)?);
            let syncs = scope.spawn(move || machine::sync_delays_ns(scratch, interval, duration));
            let caused = world.fill_in_turn(measured)?;
            anyhow::Ok((caused, syncs.join().expect("the syncs do not panic")?))
        })?;
        let cpu = cpu_seconds(CpuClock::Trees(&pid))? - cpu_before;
        let server_cpu = cpu / began.elapsed().as_secs_f64();
        let flushed = world.flushed()?.since(&flushed_before);
        let delays_ns = caused.delays_ns(world.account_count)?;
        let bursts_ms = (0..bursts).map(|_| world.fill_all()).collect::<anyhow::Result<_>>()?;
        let sample = Sample {
            round,
            fill_count: delays_ns.len(),
            delay_ms: quantiles(&delays_ns),
            flush_ms: QUANTILES.map(|part| flushed.quantile(part) * 1e3),
            sync_ms: quantiles(&syncs_ns),
            late_max_ms: caused.late_max.as_secs_f64() * 1e3,
            server_cpu,
            bursts_ms,
        };
        eprintln!("round {round}: {}", sample.line());
        samples.push(sample);
    }
    Ok(Figures { arguments: arguments.clone(), samples })
}

impl World {
    /// Starts everything. In the market of each account and in the shared one, places orders for
    /// the fills of this run.
    fn start(
        setup: &Setup,
        arguments: &ExecutionArgs,
        fills_per_order: [usize; 2],
    ) -> anyhow::Result<Self> {
        let account_count = arguments.sockets as usize;
        let mut followed = Followed::start(setup, "executions", 2 * (arguments.sockets + 1))?;
        let keys = followed.server.make_keys(arguments.sockets)?;
        let limits = followed.venue.widen()?;
        let address = followed.server.address;
        let markets = &followed.markets;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut connection = Connection::open(address).await?;
            for (account, key) in keys.iter().enumerate() {
                for (market, fill_count) in
                    [account, account_count].into_iter().zip(fills_per_order)
                {
                    if fill_count == 0 {
                        continue;
                    }
                    let body = serde_json::json!({
                        "market_id": markets[market], "outcome": "Yes", "side": "BUY",
                        "order_type": "limit", "price": limits[market],
                        "quantity": fill_count * FILL_SHARES as usize,
                    });
                    let headers = [("X-API-Key", key.as_str())];
                    let body = body.to_string();
                    let request = encode_request("POST", "/v1/orders", address, &headers, &body);
                    let answer = connection.exchange(request.as_bytes()).await?;
                    let text = String::from_utf8_lossy(answer.body);
                    let is_resting = answer.status == 200 && text.contains("\"PENDING\"");
                    ensure!(is_resting, "an order does not rest: {} {text}", answer.status);
                }
            }
            anyhow::Ok(())
        })?;
        let followers = Followers::open(address, keys)?;
        let fills_per_second = arguments.fills;
        Ok(Self { followed, followers, limits, account_count, fills_per_second, next: 0 })
    }

    /// Returns the journal's flushes so far. Waits first, since the server's metrics may be older
    /// than the last of them.
    fn flushed(&self) -> anyhow::Result<Delays> {
        std::thread::sleep(METRICS_AGE_MAX);
        self.followed.page()?.delays(FLUSHED)
    }

    /// Shows asks in one market after another.
    fn fill_in_turn(&mut self, count: usize) -> anyhow::Result<Caused> {
        let first = self.next;
        self.next = (first + count) % self.account_count;
        let markets = (first..first + count).map(|number| number % self.account_count);
        self.show(markets.collect(), count)
    }

    /// Shows an ask in the shared market. Returns the delays of the first frame, the median frame
    /// and the last one, in milliseconds.
    fn fill_all(&mut self) -> anyhow::Result<[f64; 3]> {
        let caused = self.show(vec![self.account_count], self.account_count)?;
        let mut delays: Vec<u64> =
            caused.arrivals.iter().map(|arrival| arrival.at_ns - caused.begin_ns).collect();
        delays.sort_unstable();
        std::thread::sleep(ABSENCE);
        let places = [0, delays.len() / 2, delays.len() - 1];
        Ok(places.map(|place| milliseconds(delays[place])))
    }

    /// Shows an ask in each of these markets at the fixed rate, and waits for this many fills.
    fn show(&mut self, markets: Vec<usize>, fill_count: usize) -> anyhow::Result<Caused> {
        let levels = markets.iter().map(|&market| (market, self.limits[market].clone())).collect();
        let begin_ns = now_ns() + u64::try_from(LEAD.as_nanos())?;
        let interval_ns = 1_000_000_000 / u64::from(self.fills_per_second);
        let stay_ns = u64::try_from(STAY.as_nanos())?;
        let asks = Asks { levels, shares: FILL_SHARES, begin_ns, interval_ns, stay_ns };
        let late_max = self.followed.venue.show(asks)?;
        let arrivals = self.followers.take(fill_count, PATIENCE)?;
        self.followers.ensure_quiet()?;
        Ok(Caused { arrivals, asks: markets, begin_ns, interval_ns, late_max })
    }
}

impl Caused {
    /// Returns the time from when each ask was due to the frame of its fill.
    fn delays_ns(&self, account_count: usize) -> anyhow::Result<Histogram<u64>> {
        let mut due_ns = vec![VecDeque::new(); account_count];
        for (number, &account) in self.asks.iter().enumerate() {
            due_ns[account].push_back(self.begin_ns + self.interval_ns * number as u64);
        }
        let mut delays = Histogram::new(3)?;
        for arrival in &self.arrivals {
            let due_ns = due_ns[arrival.socket].pop_front();
            let due_ns = due_ns.with_context(|| format!("a fill too many: {arrival:?}"))?;
            delays.record(arrival.at_ns.saturating_sub(due_ns))?;
        }
        Ok(delays)
    }
}

fn quantiles(nanos: &Histogram<u64>) -> [f64; QUANTILES.len()] {
    QUANTILES.map(|part| milliseconds(nanos.value_at_quantile(part)))
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn milliseconds(nanos: u64) -> f64 {
    nanos as f64 / 1e6
}

impl Sample {
    fn line(&self) -> String {
        let [p50, p99, p999, max] = self.delay_ms;
        let [first, middle, last] =
            [0, 1, 2].map(|place| median(&self.bursts_ms, |burst| burst[place]));
        format!(
            "{} fills, p50 {p50:.2} ms, p99 {p99:.2}, p99.9 {p999:.2}, max {max:.2}; at once: \
             first {first:.1} ms, median {middle:.1}, last {last:.1}; fdatasync p99 {:.2}",
            self.fill_count, self.sync_ms[1],
        )
    }
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        let ExecutionArgs { sockets, fills, bursts } = self.arguments;
        Part {
            name: "executions",
            title: "From the venue's book to the execution socket",
            markdown: self.markdown(),
            goals: vec![self.goal()],
            json: serde_json::json!({
                "sockets": sockets,
                "fills": fills,
                "bursts": bursts,
                "samples": self.samples,
            }),
        }
    }

    fn goal(&self) -> Goal {
        let flush_ms = median(&self.samples, |sample| sample.sync_ms[1]);
        let ExecutionArgs { sockets, fills, .. } = self.arguments;
        Goal::at_most(
            format!(
                "from a change of a book to the `fill` frame, {sockets} sockets, {fills} fills a \
                 second: p99 in ms (goal: {GOAL_FLUSHES} × `fdatasync`'s p99 + {GOAL_REST_MS} ms)"
            ),
            median(&self.samples, |sample| sample.delay_ms[1]),
            GOAL_FLUSHES * flush_ms + GOAL_REST_MS,
        )
    }

    fn markdown(&self) -> String {
        let ExecutionArgs { sockets, fills, .. } = self.arguments;
        let mut out = format!(
            "{sockets} execution sockets, each of an account of its own, on the durable server. \
             The venue stand-in (TLS, in a separate process) shows asks at the limits of resting \
             orders, {fills} a second, each in another market; each fills one order. Delays are \
             from when the ask was due, on the stand-in's side, to when the client had the frame. \
             *One `fdatasync`* is that of 512 bytes in a file of its own, on the same disk, at the \
             same time and rate. *At once* is one ask that fills an order of every account. \
             Medians, with the lowest and the highest.\n\n\
             | | p50 (ms) | p99 (ms) | p99.9 (ms) | max (ms) |\n\
             |---|---|---|---|---|\n"
        );
        let cell =
            |value: &dyn Fn(&Sample) -> f64| Spread::of(self.samples.iter().map(value)).cell(2);
        let rows: [(&str, Quantiles); 3] = [
            ("book to `fill` frame", |sample| sample.delay_ms),
            ("the journal's flushes, by the server's histogram", |sample| sample.flush_ms),
            ("one `fdatasync`", |sample| sample.sync_ms),
        ];
        for (name, figures) in rows {
            let cells: [String; QUANTILES.len()] =
                std::array::from_fn(|place| cell(&|sample| figures(sample)[place]));
            let _ = writeln!(out, "| {name} | {} |", cells.join(" | "));
        }
        let _ = writeln!(
            out,
            "| the stand-in's own delay | | | | {} |",
            cell(&|sample| sample.late_max_ms)
        );
        out.push_str("\n| at once | first (ms) | median (ms) | last (ms) |\n|---|---|---|---|\n");
        let bursts = || self.samples.iter().flat_map(|sample| &sample.bursts_ms);
        let burst = [0, 1, 2].map(|place| Spread::of(bursts().map(|burst| burst[place])).cell(1));
        let _ = writeln!(out, "| {sockets} fills | {} |", burst.join(" | "));
        let _ = writeln!(
            out,
            "\nThe server used {} cores during the fills one by one.",
            cell(&|sample| sample.server_cpu)
        );
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caused(arrivals: &[(usize, u64)]) -> Caused {
        let arrivals = arrivals.iter().map(|&(socket, at_ns)| Arrival { socket, at_ns }).collect();
        let (asks, late_max) = (vec![1, 0, 1], Duration::ZERO);
        Caused { arrivals, asks, begin_ns: 1_000, interval_ns: 100, late_max }
    }

    #[test]
    fn a_delay_counts_from_when_the_ask_was_due() {
        let delays = caused(&[(0, 1_107), (1, 1_005), (1, 1_250)]).delays_ns(2).unwrap();
        let delays: Vec<u64> =
            delays.iter_recorded().map(|delay| delay.value_iterated_to()).collect();
        assert_eq!(delays, [5, 7, 50]);
    }

    #[test]
    fn a_fill_without_an_ask_is_an_error() {
        let error = caused(&[(0, 1_107), (0, 1_110)]).delays_ns(2).unwrap_err();
        assert!(error.to_string().starts_with("a fill too many"), "{error}");
    }
}
