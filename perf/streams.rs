//! Readers of prices by socket and by stream: rates, the server's memory, and whether all of them
//! end with the same prices.
//!
//! The venue is the tests' stand-in, in a separate process. Sockets alone, streams alone and both
//! together have a server each, one after the other; and beside the sockets, a bare loop writes as
//! many frames of the same length to as many sockets.

mod churn;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use serde::Serialize;

use self::churn::Churn;
use crate::ACCOUNTS;
use crate::machine::{CpuClock, cpu_seconds, raise_open_files, resident_bytes};
use crate::price_readers::{LastFrames, PriceReaders, ReaderFigures, Reading, Stamp, Via};
use crate::report::{Goal, Part};
use crate::server::Kind;
use crate::setup::{Setup, Target};
use crate::spread::Spread;
use crate::venue::Followed;
use crate::venue::evening::Speed;
use crate::venue::stand_in::StandInProcess;

/// Makes the server's allocator return freed memory at once, so that resident memory is what is in
/// use. By default it keeps what the start has freed until others need it. And the kernel must not
/// make huge pages of its memory, each of which is resident as a whole: 23 of them at once looked
/// like a leak of 10 MB.
const RETURN_MEMORY: [(&str, &str); 2] =
    [("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ALLOW_THP", "0")];

/// How long the stand-in may take beyond the time of its messages.
const WALK_PATIENCE: Duration = Duration::from_mins(1);

/// The metrics that are 0 on a server without readers.
const LEFT_BEHIND: [&str; 4] = [
    "paperbourse_websocket_connections",
    "paperbourse_price_streams",
    "paperbourse_price_subscriptions",
    "paperbourse_unsent_bytes",
];

/// How long the last frames may take to arrive.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);

/// Interval between comparisons of the last frames.
const COMPARE_INTERVAL: Duration = Duration::from_millis(200);

/// The options of this measurement.
#[derive(Args, Clone, Debug)]
pub(crate) struct StreamArgs {
    /// Sockets, and as many streams
    #[arg(long, default_value_t = 1_000, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    readers: u32,

    /// Markets, all of which each reader follows
    #[arg(long, default_value_t = 50, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=50))]
    markets: u32,

    /// Messages of the venue per second
    #[arg(long, default_value_t = 25, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    messages: u32,

    /// Play the recorded evening on the markets instead, so many times as fast as it was, or `max`:
    /// as fast as the server takes it. Needs the recordings
    #[arg(long, value_name = "X|max", conflicts_with = "messages")]
    evening: Option<Speed>,

    /// Readers of each kind that stop reading during the measurement, and go on after it
    #[arg(long, default_value_t = 0, value_name = "N")]
    paused: u32,

    /// Sockets that come and go per second during the measurement
    #[arg(long, default_value_t = 0, value_name = "N",
          value_parser = clap::value_parser!(u32).range(0..=2_000))]
    churn: u32,

    /// Leave out the streams
    #[arg(long)]
    sockets_only: bool,

    /// Leave out the bare loop
    #[arg(long)]
    no_bare: bool,
}

/// Which readers one server has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Arrangement {
    Sockets,
    Bare,
    Streams,
    Both,
}

/// One server in one round.
#[derive(Serialize)]
struct Sample {
    round: u32,
    arrangement: Arrangement,
    /// Of the sockets, if there are any, and of the streams.
    sockets: Option<ReaderFigures>,
    streams: Option<ReaderFigures>,
    /// The server's resident memory before there were readers, and with all of them.
    megabytes_without: f64,
    megabytes_with: f64,
    /// The difference for each reader.
    kilobytes_per_reader: f64,
    /// The server's resident memory after each minute of the measurement, and at its end.
    megabytes_over_time: Vec<f64>,
    /// Frames whose number was not above that of the reader's last one of the market.
    disorder_count: u64,
    /// Markets of readers whose last frame was not the newest after the venue fell silent.
    stale_count: usize,
    /// Sockets that came and went.
    churned_count: u64,
    /// Sockets, streams, subscriptions, bytes and descriptors that the server still had a while
    /// after the last reader had left.
    left_behind: u64,
}

/// The results.
pub(crate) struct Figures {
    arguments: StreamArgs,
    samples: Vec<Sample>,
}

/// Runs the measurement.
pub(crate) fn run(setup: &Setup, arguments: &StreamArgs) -> anyhow::Result<Figures> {
    raise_open_files();
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        for arrangement in [Arrangement::Sockets, Arrangement::Streams, Arrangement::Both] {
            if arguments.sockets_only && arrangement != Arrangement::Sockets {
                continue;
            }
            let sample = measure(setup, arguments, round, arrangement)?;
            eprintln!("round {round}, {}", sample.line());
            let has_bare = arrangement == Arrangement::Sockets && !arguments.no_bare;
            let like = sample.sockets.filter(|_| has_bare);
            samples.push(sample);
            if let Some(like) = like {
                let sample = measure_bare(setup, arguments, round, &like)?;
                eprintln!("round {round}, bare loop: {}", sample.line());
                samples.push(sample);
            }
        }
    }
    Ok(Figures { arguments: arguments.clone(), samples })
}

fn measure(
    setup: &Setup,
    arguments: &StreamArgs,
    round: u32,
    arrangement: Arrangement,
) -> anyhow::Result<Sample> {
    let name = format!("streams-{round}-{arrangement:?}");
    let tokens = arguments.markets * 2;
    let is_evening = arguments.evening.is_some();
    let mut followed = Followed::start_with(setup, &name, tokens, is_evening, &RETURN_MEMORY)?;
    let target = Target::of(&followed.server, followed.server.make_keys(ACCOUNTS)?);
    let duration = |seconds| Duration::from_secs_f64(seconds);
    let (warm_up, measured) =
        (duration(setup.arguments.warm_up_seconds), duration(setup.arguments.seconds));
    let bytes_without = walk(&mut followed.venue, &target, round, arguments, warm_up)?;

    let files_without = open_files(target.pids[0])?;
    let groups = vec![followed.markets.clone(); arguments.readers as usize];
    let pausing = arguments.paused as usize;
    let open = |via| {
        let reading =
            Reading { via, stamp: Stamp::Emitted, keeps_last: true, pausing, gives_way: false };
        arrangement.has(via).then(|| PriceReaders::open(&target, &groups, reading)).transpose()
    };
    let mut readers = [open(Via::Socket)?, open(Via::Stream)?];
    let cpu_before = cpu_seconds(CpuClock::Trees(&target.pids))?;
    readers.iter().flatten().for_each(|readers| readers.pause(true));
    readers.iter().flatten().for_each(|readers| drop(readers.take()));
    let churn = Churn::start(&target, &followed.markets, arguments.churn);
    let began = Instant::now();
    let mut bytes_over_time = Vec::new();
    for seed in round * 1_000.. {
        let rest = measured.saturating_sub(began.elapsed()).min(Duration::from_mins(1));
        if rest.is_zero() {
            break;
        }
        let bytes = walk(&mut followed.venue, &target, seed, arguments, rest)?;
        bytes_over_time.push(bytes);
    }
    let elapsed = began.elapsed();
    let counts = readers.each_ref().map(|readers| readers.as_ref().map(PriceReaders::take));
    let cpu = cpu_seconds(CpuClock::Trees(&target.pids))? - cpu_before;
    let churned_count = churn.end()?;

    readers.iter().flatten().for_each(|readers| readers.pause(false));
    let stale_count = settle(&target, &followed.markets, &mut readers)?;
    let late_counts = readers.iter().flatten().map(PriceReaders::take);
    let late_disorder_count: u64 = late_counts.map(|counts| counts.disorder_count).sum();
    readers.into_iter().flatten().try_for_each(PriceReaders::close)?;
    let left_behind = left_behind(&followed, target.pids[0], files_without)?;
    let disorder_count: u64 = counts.iter().flatten().map(|counts| counts.disorder_count).sum();
    let disorder_count = disorder_count + late_disorder_count;
    let frame_count: u64 = counts.iter().flatten().map(|counts| counts.frame_count).sum();
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let [sockets, streams] = counts.map(|counts| {
        let counts = counts?;
        let own_cpu = cpu * counts.frame_count as f64 / frame_count as f64;
        Some(ReaderFigures::of(&counts, elapsed, own_cpu))
    });
    drop(followed);
    std::fs::remove_dir_all(setup.scratch.0.join(&name))
        .context("failed to remove the server's data")?;
    let reader_count = f64::from(arguments.readers * arrangement.kind_count());
    let bytes_with = *bytes_over_time.last().context("the measurement takes some time")?;
    let [megabytes_without, megabytes_with] = [bytes_without, bytes_with].map(megabytes);
    Ok(Sample {
        round,
        arrangement,
        megabytes_over_time: bytes_over_time.into_iter().map(megabytes).collect(),
        disorder_count,
        sockets,
        streams,
        megabytes_without,
        megabytes_with,
        kilobytes_per_reader: (megabytes_with - megabytes_without) * 1e3 / reader_count,
        stale_count,
        churned_count,
        left_behind,
    })
}

/// A loop that does nothing but write as many frames of the same length, at the same times, to as
/// many sockets.
fn measure_bare(
    setup: &Setup,
    arguments: &StreamArgs,
    round: u32,
    like: &ReaderFigures,
) -> anyhow::Result<Sample> {
    let bytes = like.megabytes_per_second * 1e6 / like.frames_per_second;
    let reader_count = arguments.readers.saturating_sub(arguments.paused);
    let flags = [
        "--fan-out-bytes",
        &format!("{bytes:.0}"),
        "--fan-out-rate",
        &format!("{:.3}", like.frames_per_second / f64::from(reader_count)),
    ];
    let folder = setup.scratch.0.join("bare");
    let server = setup.start_with(Kind::Bare, &folder, &flags, &RETURN_MEMORY)?;
    let target = Target::of(&server, vec!["none".to_owned()]);
    let bytes_without = resident_bytes(target.pids[0])?;
    let groups = vec![Vec::new(); reader_count as usize];
    let reading = Reading {
        via: Via::Socket,
        stamp: Stamp::Emitted,
        keeps_last: false,
        pausing: 0,
        gives_way: false,
    };
    let mut readers = PriceReaders::open(&target, &groups, reading)?;
    let cpu_before = cpu_seconds(CpuClock::Trees(&target.pids))?;
    drop(readers.take());
    let began = Instant::now();
    std::thread::sleep(Duration::from_secs_f64(setup.arguments.seconds));
    let counts = readers.take();
    let elapsed = began.elapsed();
    let cpu = cpu_seconds(CpuClock::Trees(&target.pids))? - cpu_before;
    readers.ensure_open()?;
    let bytes_with = resident_bytes(target.pids[0])?;
    readers.close()?;
    let [megabytes_without, megabytes_with] = [bytes_without, bytes_with].map(megabytes);
    Ok(Sample {
        round,
        arrangement: Arrangement::Bare,
        sockets: Some(ReaderFigures::of(&counts, elapsed, cpu)),
        streams: None,
        megabytes_without,
        megabytes_with,
        kilobytes_per_reader: (megabytes_with - megabytes_without) * 1e3 / f64::from(reader_count),
        megabytes_over_time: vec![megabytes_with],
        disorder_count: 0,
        stale_count: 0,
        churned_count: 0,
        left_behind: 0,
    })
}

/// Waits until nothing of the readers is left. Returns what still is.
fn left_behind(followed: &Followed, pid: u32, files_without: u64) -> anyhow::Result<u64> {
    let deadline = Instant::now() + SETTLE_PATIENCE;
    loop {
        let page = followed.page()?;
        let mut left = open_files(pid)?.saturating_sub(files_without);
        for name in LEFT_BEHIND {
            left += page.value(name)?;
        }
        if left == 0 || Instant::now() > deadline {
            return Ok(left);
        }
        std::thread::sleep(COMPARE_INTERVAL);
    }
}

fn open_files(pid: u32) -> anyhow::Result<u64> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64)
}

/// Changes the markets for a while. Returns the server's resident memory at the end, in bytes.
fn walk(
    venue: &mut StandInProcess,
    target: &Target,
    seed: u32,
    arguments: &StreamArgs,
    duration: Duration,
) -> anyhow::Result<u64> {
    match arguments.evening {
        Some(speed) => venue.go_on(speed, duration)?,
        None => venue.walk(seed.into(), arguments.messages, duration)?,
    }
    venue.walked(duration + WALK_PATIENCE)?.context("the stand-in did not end its messages")?;
    resident_bytes(target.pids[0])
}

/// Waits until all readers have the newest frames. Returns the number of markets of readers for
/// which they do not.
fn settle(
    target: &Target,
    markets: &[String],
    readers: &mut [Option<PriceReaders>],
) -> anyhow::Result<usize> {
    let deadline = Instant::now() + SETTLE_PATIENCE;
    loop {
        let newest = newest_frames(target, markets)?;
        let mut stale_count = 0;
        for readers in readers.iter_mut().flatten() {
            readers.ensure_open()?;
            let last = readers.last_frames();
            stale_count += last.iter().map(|last| stale(last, &newest)).sum::<usize>();
        }
        if stale_count == 0 || Instant::now() > deadline {
            return Ok(stale_count);
        }
        std::thread::sleep(COMPARE_INTERVAL);
    }
}

/// The frames that a new socket gets.
fn newest_frames(target: &Target, markets: &[String]) -> anyhow::Result<LastFrames> {
    let reading = Reading {
        via: Via::Socket,
        stamp: Stamp::Emitted,
        keeps_last: true,
        pausing: 0,
        gives_way: false,
    };
    let mut socket = PriceReaders::open(target, &[markets.to_vec()], reading)?;
    let deadline = Instant::now() + SETTLE_PATIENCE;
    loop {
        socket.ensure_open()?;
        let frames = socket.last_frames().pop().expect("there is one socket");
        if frames.len() == markets.len() {
            socket.close()?;
            return Ok(frames);
        }
        ensure!(Instant::now() < deadline, "a new socket got {} markets", frames.len());
        std::thread::sleep(COMPARE_INTERVAL);
    }
}

/// The number of markets whose frames differ.
fn stale(last: &LastFrames, newest: &LastFrames) -> usize {
    newest.iter().filter(|(market, frame)| last.get(*market) != Some(frame)).count()
}

#[expect(clippy::cast_precision_loss, reason = "shown with one digit")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

impl Arrangement {
    fn has(self, via: Via) -> bool {
        match self {
            Self::Sockets | Self::Bare => via == Via::Socket,
            Self::Streams => via == Via::Stream,
            Self::Both => true,
        }
    }

    /// How many kinds of readers there are.
    fn kind_count(self) -> u32 {
        if self == Self::Both { 2 } else { 1 }
    }
}

impl Sample {
    fn line(&self) -> String {
        let kinds = [("sockets", &self.sockets), ("streams", &self.streams)];
        let rates = kinds.into_iter().filter_map(|(name, figures)| {
            Some(format!("{name} {:.0} frames/s", figures.as_ref()?.frames_per_second))
        });
        let rates: Vec<String> = rates.collect();
        format!(
            "{}: {:.1} kB a reader, {} out of order, {} stale, {} came and went, {} left behind, \
             {:.0?} MB after each minute",
            rates.join(", "),
            self.kilobytes_per_reader,
            self.disorder_count,
            self.stale_count,
            self.churned_count,
            self.left_behind,
            self.megabytes_over_time,
        )
    }
}

impl Figures {
    /// The section of the report.
    pub(crate) fn part(&self) -> Part {
        #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
        let stale = self.samples.iter().map(|sample| sample.stale_count).sum::<usize>() as f64;
        #[expect(clippy::cast_precision_loss, reason = "a count of frames")]
        let disorder = self.samples.iter().map(|sample| sample.disorder_count).sum::<u64>() as f64;
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        let left = self.samples.iter().map(|sample| sample.left_behind).sum::<u64>() as f64;
        let StreamArgs { readers, markets, messages, evening, paused, churn, .. } = &self.arguments;
        Part {
            name: "streams",
            title: "Price sockets and price streams",
            markdown: self.markdown(),
            goals: vec![
                Goal::at_most("frames out of order", disorder, 0.0),
                Goal::at_most("last frames that were not the newest", stale, 0.0),
                Goal::at_most("what readers left behind", left, 0.0),
            ],
            json: serde_json::json!({
                "readers": readers,
                "markets": markets,
                "messages": messages,
                "evening": evening,
                "paused": paused,
                "churn": churn,
                "samples": self.samples,
            }),
        }
    }

    fn markdown(&self) -> String {
        let StreamArgs { readers, markets, messages, evening, paused, churn, .. } = &self.arguments;
        let venue = match evening {
            Some(Speed::Times(times)) => {
                format!("which plays the recorded evening {times} times as fast as it was")
            }
            Some(Speed::Max) => {
                "which plays the recorded evening as fast as the server takes it".to_owned()
            }
            None => format!("which sends {messages} messages a second"),
        };
        let mut out = format!(
            "{readers} price sockets, {readers} price streams, and both together, on a server \
             each; every reader follows {markets} markets of the stand-in, {venue}. {paused} of \
             each kind do not read meanwhile, and do not count; {churn} more sockets come and go \
             each second. The *bare loop* does nothing but write \
             frames of the same length to as many sockets. The delay is from when a frame was made \
             to when the client had it, in whole milliseconds, since that is the clock of the \
             frames. *kB a reader* is the server's resident memory with readers less without, \
             divided by their number; with \
             both together, it and the CPU time are averages over both kinds. Medians, with the \
             lowest and the highest.\n\n| | {} | kB a reader |\n\
             |---|---|---|---|---|---|---|---|---|---|\n",
            ReaderFigures::COLUMNS
        );
        for (name, arrangement, via) in [
            ("sockets alone", Arrangement::Sockets, Via::Socket),
            ("bare loop", Arrangement::Bare, Via::Socket),
            ("streams alone", Arrangement::Streams, Via::Stream),
            ("sockets beside streams", Arrangement::Both, Via::Socket),
            ("streams beside sockets", Arrangement::Both, Via::Stream),
        ] {
            let samples = self.samples.iter().filter(|sample| sample.arrangement == arrangement);
            let rounds = samples.clone().filter_map(|sample| match via {
                Via::Socket => sample.sockets,
                Via::Stream => sample.streams,
            });
            let rounds: Vec<ReaderFigures> = rounds.collect();
            if rounds.is_empty() {
                continue;
            }
            let memory = Spread::of(samples.map(|sample| sample.kilobytes_per_reader)).cell(1);
            let _ = writeln!(out, "| {name} | {} | {memory} |", ReaderFigures::cells(&rounds));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::price_readers::LastFrame;

    #[test]
    fn a_frame_that_differs_or_is_missing_is_stale() {
        let frames = |rows: &[(&[u8], u64)]| -> LastFrames {
            rows.iter().map(|&(market, seq)| (market.into(), LastFrame { seq, hash: 0 })).collect()
        };
        let newest = frames(&[(b"a", 1), (b"b", 2)]);
        for (last, count) in [
            (&[(&b"a"[..], 1), (b"b", 2)][..], 0),
            (&[(b"a", 1), (b"b", 3)], 1),
            (&[(b"b", 2)], 1),
            (&[], 2),
        ] {
            assert_eq!(stale(&frames(last), &newest), count, "{last:?}");
        }
    }
}
