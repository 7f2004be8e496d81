//! The live venue under load: many tokens, many messages per second and various readers, for a long
//! time. The venue is the tests' stand-in, in a separate process.

mod clob_sockets;
mod compare;
pub(crate) mod evening;
pub(crate) mod metrics;
mod readers;
pub(crate) mod stand_in;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::machine::{CpuClock, cpu_seconds, resident_bytes};
use crate::price_readers::{PriceReaders, Reading, Stamp, Via};
use crate::report::{Goal, Part};
use crate::server::{Kind, Server};
use crate::setup::{Setup, Target};
use crate::spread::Spread;
use clob_sockets::{ClobFigures, ClobSockets};
use metrics::{PUBLISHED, Page};
use readers::Readers;
use stand_in::StandInProcess;

/// Maximum number of markets per subscriber of the price socket.
const MARKETS_PER_SOCKET: usize = 50;

/// Maximum number of connections of the server, if the limit of open files allows it: more than any
/// measurement opens.
const CONNECTIONS_MAX: &str = "60000";

/// Maximum time until every book of the server is live.
const LIVE_PATIENCE: Duration = Duration::from_mins(2);

/// Interval between samples of memory and token states.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum age of the server's counts.
pub(crate) const METRICS_AGE_MAX: Duration = Duration::from_millis(500);

/// Time from which memory growth is measured, when memory has settled.
const SETTLED_AFTER: Duration = Duration::from_mins(1);

const QUANTILES: [f64; 3] = [0.5, 0.99, 0.999];

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct VenueArgs {
    /// Followed tokens, two per market; several numbers are measured in turn
    #[arg(long, value_delimiter = ',', default_values_t = [2_000], value_name = "N",
          value_parser = clap::value_parser!(u32).range(2..=10_000))]
    tokens: Vec<u32>,

    /// Messages of the venue per second
    #[arg(long, default_value_t = 5_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,

    /// Subscribers of each market's prices
    #[arg(long, default_value_t = 1, value_name = "N")]
    subscribers: usize,

    /// Market sockets of the venue's interface, each with all tokens
    #[arg(long, default_value_t = 0, value_name = "N")]
    clob_sockets: usize,

    /// Reads of books and markets over HTTP per second
    #[arg(long, default_value_t = 200.0, value_name = "N")]
    reads: f64,
}

/// The results of one round with one number of tokens. Delays are in milliseconds.
#[derive(Serialize)]
struct Sample {
    round: u32,
    tokens: u32,
    seconds: f64,
    /// Messages per second that the stand-in sent and that the server received.
    sent: f64,
    taken: f64,
    /// The stand-in's longest delay in sending.
    sent_late_max_ms: f64,
    /// Number of hashes verified per second.
    hashes_verified: f64,
    hashes_mismatched: u64,
    /// Time from reading the socket to publishing the books, from the server's own histogram.
    publish_ms: [f64; QUANTILES.len()],
    /// Time from the stand-in's timestamp of a change to the frame's arrival at a subscriber, in
    /// whole milliseconds.
    subscriber_ms: [f64; QUANTILES.len()],
    /// Number of frames per second that subscribers received.
    subscriber_frames: f64,
    /// What the market sockets of the venue's interface got, if there were any.
    clob: Option<ClobFigures>,
    /// Time from when a read was due to its complete answer.
    read_ms: [f64; QUANTILES.len()],
    /// CPU use of the server, the stand-in and the generator, in cores.
    server_cpu: f64,
    stand_in_cpu: f64,
    generator_cpu: f64,
    /// The server's resident memory, every second from the start.
    resident_megabytes: Vec<f64>,
    books_asked: u64,
    connections_lost: u64,
    /// The maximum number of stale tokens, and the number at the end.
    stale_tokens: u64,
    stale_tokens_at_end: u64,
    /// Number of tokens whose served books differed from the stand-in's at the end.
    unequal_books: usize,
    violations: usize,
}

/// The results of the measurement.
pub(crate) struct Figures {
    arguments: VenueArgs,
    samples: Vec<Sample>,
}

/// Runs the measurement.
pub(crate) fn run(setup: &Setup, arguments: &VenueArgs) -> anyhow::Result<Figures> {
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        for &tokens in &arguments.tokens {
            let sample = measure(setup, arguments, round, tokens)?;
            eprintln!("round {round}, {}", sample.line());
            samples.push(sample);
        }
    }
    Ok(Figures { arguments: arguments.clone(), samples })
}

/// A server that follows the stand-in, with every book live.
pub(crate) struct Followed {
    pub(crate) venue: StandInProcess,
    pub(crate) server: Server,
    /// The condition ids.
    pub(crate) markets: Vec<String>,
}

impl Followed {
    /// Starts the stand-in and the server, with the server's data in a scratch folder of this name.
    pub(crate) fn start(setup: &Setup, name: &str, tokens: u32) -> anyhow::Result<Self> {
        Self::start_with(setup, name, tokens, false, &[])
    }

    /// Like [`Self::start`], optionally with the books of the recorded evening, and with these
    /// variables in the server's environment.
    pub(crate) fn start_with(
        setup: &Setup,
        name: &str,
        tokens: u32,
        is_evening: bool,
        environment: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let market_count = usize::try_from(tokens / 2)?;
        let venue = StandInProcess::start(market_count, is_evening)?;
        let folder = setup.scratch.0.join(name);
        let wanted = market_count.to_string();
        let addresses = &venue.addresses;
        let authority = addresses.authority.to_str().context("a path of the checkout is text")?;
        let flags = [
            ["--venue", "polymarket"],
            ["--venue-markets", &wanted],
            ["--venue-gamma", &addresses.gamma],
            ["--venue-clob", &addresses.clob],
            ["--venue-data", &addresses.data],
            ["--venue-socket", &addresses.socket],
            ["--venue-ca", authority],
            ["--admin-listen", "127.0.0.1:0"],
            // All readers connect from one address.
            ["--connections-max", CONNECTIONS_MAX],
            ["--connections-per-address", CONNECTIONS_MAX],
        ];
        let flags = flags.as_flattened();
        let server = setup.start_with(Kind::Durable, &folder, flags, environment)?;
        let markets = (0..market_count).map(stand_in::condition_id).collect();
        let followed = Self { venue, server, markets };
        let deadline = Instant::now() + LIVE_PATIENCE;
        while followed.page()?.tokens("live")? < u64::from(tokens / 2 * 2) {
            ensure!(Instant::now() < deadline, "not every book was live after {LIVE_PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(followed)
    }

    /// Returns the server's metrics.
    pub(crate) fn page(&self) -> anyhow::Result<Page> {
        Page::get(self.server.admin_address.context("the server has an admin listener")?)
    }

    /// Returns the paths of books of both outcomes, and of descriptions with prices, in turn.
    fn paths(&self) -> Arc<[String]> {
        let paths = self.markets.iter().enumerate().flat_map(|(number, market)| {
            let tokens = [0, 1].map(|outcome| stand_in::token_id(number, outcome));
            let [yes, no] = tokens.map(|token| format!("/v1/book?token_id={token}"));
            [yes, format!("/v1/markets/{market}"), no]
        });
        paths.collect()
    }
}

fn measure(
    setup: &Setup,
    arguments: &VenueArgs,
    round: u32,
    tokens: u32,
) -> anyhow::Result<Sample> {
    let name = format!("venue-{round}-{tokens}");
    let with_clob = (arguments.clob_sockets > 0).then_some(("PAPERBOURSE_CLOB", "on"));
    let mut followed = Followed::start_with(setup, &name, tokens, false, with_clob.as_slice())?;
    let target = Target::of(&followed.server, followed.server.make_keys(1)?);
    let groups = followed.markets.chunks(MARKETS_PER_SOCKET).map(<[String]>::to_vec);
    let groups: Vec<_> = groups
        .cycle()
        .take(followed.markets.len().div_ceil(MARKETS_PER_SOCKET) * arguments.subscribers)
        .collect();
    let reading = Reading { stamp: Stamp::Updated, ..Reading::of(Via::Socket) };
    let mut sockets = PriceReaders::open(&target, &groups, reading)?;
    let mut clob = ClobSockets::open(&followed, &target, arguments.clob_sockets)?;
    let warm_up = Duration::from_secs_f64(setup.arguments.warm_up_seconds);
    followed.venue.walk(round.into(), arguments.messages, warm_up)?;
    followed.venue.walked(warm_up + LIVE_PATIENCE)?.context("the warm-up did not end")?;
    std::thread::sleep(METRICS_AGE_MAX);

    let seconds = Duration::from_secs_f64(setup.arguments.seconds);
    let pids = [[followed.server.pid()], [followed.venue.pid()]];
    let clocks = || -> anyhow::Result<[f64; 3]> {
        Ok([
            cpu_seconds(CpuClock::Trees(&pids[0]))?,
            cpu_seconds(CpuClock::Trees(&pids[1]))?,
            cpu_seconds(CpuClock::Own)?,
        ])
    };
    let readers = Readers::start(target.address, followed.paths(), arguments.reads, seconds);
    drop(sockets.take()?);
    clob.begin()?;
    let (page_before, cpu_before, began) = (followed.page()?, clocks()?, Instant::now());
    followed.venue.walk(u64::from(round) + 1_000, arguments.messages, seconds)?;
    let mut resident_megabytes = vec![megabytes(followed.server.pid())?];
    let mut stale_tokens = 0;
    let pace = loop {
        if let Some(pace) = followed.venue.walked(LOOK_INTERVAL)? {
            break pace;
        }
        ensure!(began.elapsed() < seconds + LIVE_PATIENCE, "the walk did not end");
        sockets.ensure_open()?;
        resident_megabytes.push(megabytes(followed.server.pid())?);
        stale_tokens = stale_tokens.max(followed.page()?.tokens("stale")?);
    };
    let (elapsed, cpu_after) = (began.elapsed().as_secs_f64(), clocks()?);
    resident_megabytes.push(megabytes(followed.server.pid())?);
    let read_ns = readers.join()?;
    let (counts, clob) = (sockets.take()?, clob.end(elapsed)?);
    sockets.close()?;
    let books = followed.venue.books()?;
    let unequal = compare::unequal(target.address, &books)?;
    std::thread::sleep(METRICS_AGE_MAX);
    unequal.iter().take(3).for_each(|token| eprintln!("unequal book: {token}"));
    let page = followed.page()?;
    let violations = followed.venue.violations()?;
    violations.iter().take(3).for_each(|what| eprintln!("a violation: {what}"));
    let stale_tokens_at_end = page.tokens("stale")?;

    let delta = |name: &str| anyhow::Ok(page.value(name)? - page_before.value(name)?);
    #[expect(clippy::cast_precision_loss, reason = "counts within minutes")]
    let a_second = |count: u64| count as f64 / pace.elapsed.as_secs_f64();
    let [server_cpu, stand_in_cpu, generator_cpu] =
        std::array::from_fn(|index| (cpu_after[index] - cpu_before[index]) / elapsed);
    let delays = page.delays(PUBLISHED)?.since(&page_before.delays(PUBLISHED)?);
    let sample = Sample {
        round,
        tokens,
        seconds: pace.elapsed.as_secs_f64(),
        sent: a_second(pace.message_count),
        taken: a_second(delta("paperbourse_venue_frames_total")?),
        sent_late_max_ms: pace.late_max.as_secs_f64() * 1e3,
        hashes_verified: a_second(delta("paperbourse_venue_book_hashes_matched_total")?),
        hashes_mismatched: delta("paperbourse_venue_book_hashes_mismatched_total")?,
        publish_ms: QUANTILES.map(|part| delays.quantile(part) * 1e3),
        subscriber_ms: quantiles(&counts.delay_ms, 1.0),
        subscriber_frames: a_second(counts.frame_count),
        clob,
        read_ms: quantiles(&read_ns, 1e6),
        server_cpu,
        stand_in_cpu,
        generator_cpu,
        resident_megabytes,
        books_asked: delta("paperbourse_venue_books_requested_total")?,
        connections_lost: delta("paperbourse_venue_connections_lost_total")?,
        stale_tokens: stale_tokens.max(stale_tokens_at_end),
        stale_tokens_at_end,
        unequal_books: unequal.len(),
        violations: violations.len(),
    };
    drop(followed);
    std::fs::remove_dir_all(setup.scratch.0.join(&name))
        .context("failed to remove the server's data")?;
    Ok(sample)
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn megabytes(pid: u32) -> anyhow::Result<f64> {
    Ok(resident_bytes(pid)? as f64 / 1e6)
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn quantiles(histogram: &Histogram<u64>, unit: f64) -> [f64; QUANTILES.len()] {
    QUANTILES.map(|part| histogram.value_at_quantile(part) as f64 / unit)
}

impl Sample {
    fn line(&self) -> String {
        format!(
            "{} tokens: {:.0} messages/s sent, {:.0} taken, server {:.2} cores, published after \
             {:.3} ms p50, {:.3} p99, {} stale at worst, {} unequal",
            self.tokens,
            self.sent,
            self.taken,
            self.server_cpu,
            self.publish_ms[0],
            self.publish_ms[1],
            self.stale_tokens,
            self.unequal_books
        )
    }

    /// Returns the memory at the start, after a minute if the round lasted that long, and at the
    /// end.
    fn memory(&self) -> [f64; 3] {
        let looks = &self.resident_megabytes;
        let place = usize::try_from(SETTLED_AFTER.as_secs()).unwrap_or(usize::MAX);
        let settled = looks.get(place).copied().unwrap_or(f64::NAN);
        let last = looks.last().copied().unwrap_or(f64::NAN);
        [looks.first().copied().unwrap_or(f64::NAN), settled, last]
    }
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        let VenueArgs { tokens, messages, subscribers, clob_sockets, reads } = &self.arguments;
        Part {
            name: "venue",
            title: "The venue, followed live",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({
                "tokens": tokens,
                "messages": messages,
                "subscribers": subscribers,
                "clob_sockets": clob_sockets,
                "reads": reads,
                "samples": self.samples,
            }),
        }
    }

    fn goals(&self) -> Vec<Goal> {
        let worst =
            |value: fn(&Sample) -> f64| self.samples.iter().map(value).fold(f64::NAN, f64::max);
        #[expect(clippy::cast_precision_loss, reason = "counts of tokens")]
        let goals = vec![
            Goal::at_most(
                "tokens that were stale at any look",
                worst(|sample| sample.stale_tokens as f64),
                0.0,
            ),
            Goal::at_most(
                "books that were not the venue's at the end",
                worst(|sample| sample.unequal_books as f64),
                0.0,
            ),
            Goal::at_most(
                "part of the venue's messages that was not taken",
                worst(|sample| 1.0 - sample.taken / sample.sent),
                0.001,
            ),
        ];
        let grown = self.samples.iter().filter(|sample| !sample.memory()[1].is_nan());
        let growth = grown.map(|sample| sample.memory()[2] / sample.memory()[1]);
        let growth = growth.fold(f64::NAN, f64::max);
        let growth = Goal::at_most("memory at the end, of that after a minute", growth, 1.05);
        let clob = ClobFigures::goal(self.samples.iter().filter_map(|sample| sample.clob.as_ref()));
        goals.into_iter().chain([growth]).chain(clob).collect()
    }

    fn markdown(&self) -> String {
        let VenueArgs { messages, subscribers, reads, .. } = &self.arguments;
        let mut out = format!(
            "The venue stand-in (TLS, in a separate process) sends {messages} messages a second, \
             evenly, about random markets: changes to a level for both tokens, one in fifty a \
             trade, and the best prices whenever they move. Each market has {subscribers} \
             price-socket subscribers, and books and markets are read {reads} times a second. \
             *Published* is the time from reading the socket to publishing the books, by the \
             server's own histogram; *subscriber* the time from the stand-in's timestamp of a \
             change, in whole milliseconds, to the frame's arrival at the subscriber; *read* the \
             time from when a read was due. Medians, with the lowest and highest.\n\n\
             | tokens | sent/s | taken/s | hashes verified/s | published p50, p99, p99.9 (ms) | \
             subscriber p50, p99 (ms) | read p50, p99 (ms) | server CPU (cores) | stand-in CPU | \
             generator CPU | memory at begin, after 60 s, at end (MB) | books asked | stale | \
             unequal |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for &tokens in &self.arguments.tokens {
            let spread = |value: &dyn Fn(&Sample) -> f64| {
                let samples = self.samples.iter().filter(|sample| sample.tokens == tokens);
                Spread::of(samples.map(value))
            };
            let cell = |digits, value: &dyn Fn(&Sample) -> f64| {
                let text = spread(value).cell(digits);
                if text.is_empty() { "–".to_owned() } else { text }
            };
            let memory = [0, 1, 2].map(|place| cell(1, &|sample| sample.memory()[place]));
            #[expect(clippy::cast_precision_loss, reason = "counts of tokens")]
            let counts = [
                cell(0, &|sample| sample.books_asked as f64),
                cell(0, &|sample| sample.stale_tokens as f64),
                cell(0, &|sample| sample.unequal_books as f64),
            ];
            let _ = writeln!(
                out,
                "| {tokens} | {} | {} | {} | {}, {}, {} | {}, {} | {}, {} | {} | {} | {} | {} | {} \
                 |",
                cell(0, &|sample| sample.sent),
                cell(0, &|sample| sample.taken),
                cell(0, &|sample| sample.hashes_verified),
                cell(3, &|sample| sample.publish_ms[0]),
                cell(3, &|sample| sample.publish_ms[1]),
                cell(3, &|sample| sample.publish_ms[2]),
                cell(0, &|sample| sample.subscriber_ms[0]),
                cell(0, &|sample| sample.subscriber_ms[1]),
                cell(2, &|sample| sample.read_ms[0]),
                cell(2, &|sample| sample.read_ms[1]),
                cell(2, &|sample| sample.server_cpu),
                cell(2, &|sample| sample.stand_in_cpu),
                cell(2, &|sample| sample.generator_cpu),
                memory.join(", "),
                counts.join(" | "),
            );
        }
        if self.arguments.clob_sockets > 0 {
            let rows = self.samples.iter().filter_map(|it| Some((it.tokens, it.clob.as_ref()?)));
            out += &ClobFigures::markdown(&self.arguments.tokens, &rows.collect::<Vec<_>>());
        }
        out
    }
}
