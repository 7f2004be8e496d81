//! Readers of prices by socket and by stream: rates, the server's memory, and whether all readers
//! end with the same prices.
//!
//! The venue is the tests' stand-in, in a separate process. Sockets alone, streams alone and both
//! together each get their own server, one after the other. Beside the sockets, a bare loop writes
//! as many frames of the same length to as many sockets.

mod bare_loop;
mod churn;
mod measure;
mod truth;

use std::fmt::Write as _;

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use crate::machine::raise_open_files;
use crate::price_readers::{ReaderFigures, Via};
use crate::report::{Goal, Part};
use crate::setup::Setup;
use crate::spread::Spread;
use crate::venue::evening::Speed;

/// Maximum ratio of the readers' p99 beside stopped readers to the p99 without them.
const STOPPED_P99_RATIO_MAX: f64 = 1.05;

/// Maximum ratio of the readers' p99, at the evening's own speed, to the bare loop's.
const BARE_P99_RATIO_MAX: f64 = 1.2;

/// Minimum ratio of the readers' frame rate at full speed to the bare loop's.
const BARE_RATE_RATIO_MIN: f64 = 0.8;

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

    /// Of the readers of each kind, those that stop reading during the measurement. The others are
    /// also measured without them
    #[arg(long, default_value_t = 0, value_name = "N")]
    stopped: u32,

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

/// The kinds of readers on one server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Arrangement {
    Sockets,
    Bare,
    Streams,
    Both,
}

/// The results of one server in one round.
#[derive(Serialize)]
struct Sample {
    round: u32,
    arrangement: Arrangement,
    #[serde(flatten)]
    observed: Observed,
    /// The results without the readers that stop, if any do.
    undisturbed: Option<Observed>,
    /// The server's resident memory before the readers were opened, and with all of them.
    megabytes_without: f64,
    megabytes_with: f64,
    /// The difference in memory per reader.
    kilobytes_per_reader: f64,
    /// Number of frames whose sequence number was not above that of the reader's last frame of the
    /// market.
    disorder_count: u64,
    /// Number of frames that differed from the frame another reader got under the same number.
    differing_count: u64,
    /// During the evening, the number of frames with prices that the stand-in did not have at that
    /// time.
    untrue_count: Option<u64>,
    /// Time from a change at the venue until the server made its frame, p50 and p99.
    made_after_ms: [u64; 2],
    /// Number of markets, counted per reader, whose last frame was not the newest after the venue
    /// fell silent.
    stale_count: usize,
    /// Number of sockets that were opened and closed.
    churned_count: u64,
    /// Sockets, streams, subscriptions, bytes and descriptors that the server still had some time
    /// after the last reader had left.
    left_behind: u64,
}

/// The readers' results over some time.
#[derive(Serialize)]
struct Observed {
    /// Figures of the sockets and of the streams, if there are any.
    sockets: Option<ReaderFigures>,
    streams: Option<ReaderFigures>,
    /// The server's resident memory after each minute, and at the end.
    megabytes_over_time: Vec<f64>,
}

/// The results of the measurement.
pub(crate) struct Figures {
    arguments: StreamArgs,
    samples: Vec<Sample>,
}

/// Runs the measurement.
pub(crate) fn run(setup: &Setup, arguments: &StreamArgs) -> anyhow::Result<Figures> {
    ensure!(arguments.stopped < arguments.readers, "--stopped leaves no reader to measure");
    raise_open_files();
    let mut samples = Vec::new();
    for round in 1..=setup.arguments.rounds {
        for arrangement in [Arrangement::Sockets, Arrangement::Streams, Arrangement::Both] {
            if arguments.sockets_only && arrangement != Arrangement::Sockets {
                continue;
            }
            let (sample, course) = measure::measure(setup, arguments, round, arrangement)?;
            eprintln!("round {round}, {}", sample.line());
            let has_bare = arrangement == Arrangement::Sockets && !arguments.no_bare;
            let like = sample.observed.sockets.filter(|_| has_bare);
            samples.push(sample);
            if let Some(like) = like {
                let sample = bare_loop::measure(setup, arguments, round, &like, course)?;
                eprintln!("round {round}, bare loop: {}", sample.line());
                samples.push(sample);
            }
        }
    }
    Ok(Figures { arguments: arguments.clone(), samples })
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

    /// Returns the number of kinds of readers.
    fn kind_count(self) -> u32 {
        if self == Self::Both { 2 } else { 1 }
    }
}

impl Observed {
    /// Returns the figures of these readers, if there are any.
    fn of(&self, via: Via) -> Option<ReaderFigures> {
        match via {
            Via::Socket => self.sockets,
            Via::Stream => self.streams,
            Via::ClobSocket => None,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "delays of seconds at most")]
fn p99_ratio(pairs: &[(ReaderFigures, ReaderFigures)]) -> Spread {
    Spread::of(
        pairs.iter().map(|(own, other)| own.delay_p99_ms as f64 / other.delay_p99_ms.max(1) as f64),
    )
}

/// Whether the readers were busy all the time in any of these measurements.
fn are_of_readers(pairs: &[(ReaderFigures, ReaderFigures)]) -> bool {
    pairs.iter().any(|(own, other)| own.is_of_readers() || other.is_of_readers())
}

impl Sample {
    fn line(&self) -> String {
        let Observed { sockets, streams, megabytes_over_time } = &self.observed;
        let kinds = [("sockets", sockets), ("streams", streams)];
        let rates = kinds.into_iter().filter_map(|(name, figures)| {
            Some(format!("{name} {:.0} frames/s", figures.as_ref()?.frames_per_second))
        });
        let rates: Vec<String> = rates.collect();
        format!(
            "{}: {:.1} kB a reader, {} out of order, {} differ, {:?} untrue, {} stale, {} came and \
             went, {} left behind, {:.0?} MB after each minute",
            rates.join(", "),
            self.kilobytes_per_reader,
            self.disorder_count,
            self.differing_count,
            self.untrue_count,
            self.stale_count,
            self.churned_count,
            self.left_behind,
            megabytes_over_time,
        )
    }
}

impl Figures {
    /// Returns the section of the report.
    pub(crate) fn part(&self) -> Part {
        let StreamArgs { readers, markets, messages, evening, stopped, churn, .. } =
            &self.arguments;
        Part {
            name: "streams",
            title: "Price sockets and price streams",
            markdown: self.markdown(),
            goals: self.goals(),
            json: serde_json::json!({
                "readers": readers,
                "markets": markets,
                "messages": messages,
                "evening": evening,
                "stopped": stopped,
                "churn": churn,
                "samples": self.samples,
            }),
        }
    }

    fn goals(&self) -> Vec<Goal> {
        #[expect(clippy::cast_precision_loss, reason = "counts of frames")]
        let none = |what, count: fn(&Sample) -> u64| {
            Goal::at_most(what, self.samples.iter().map(count).sum::<u64>() as f64, 0.0)
        };
        let mut goals = vec![
            none("frames out of order", |sample| sample.disorder_count),
            none("frames that differed between readers", |sample| sample.differing_count),
            none("last frames that were not the newest", |sample| sample.stale_count as u64),
            none("what readers left behind", |sample| sample.left_behind),
        ];
        if self.arguments.evening.is_some() {
            goals.push(none("frames that were not what the venue had", |sample| {
                sample.untrue_count.unwrap_or_default()
            }));
        }
        for (name, via) in [("sockets", Via::Socket), ("streams", Via::Stream)] {
            let pairs = self.samples.iter().filter_map(|sample| {
                Some((sample.observed.of(via)?, sample.undisturbed.as_ref()?.of(via)?))
            });
            let pairs: Vec<_> = pairs.collect();
            if !pairs.is_empty() {
                let what = format!("p99 of {name} beside some that have stopped / without these");
                let goal = Goal::at_most(what, p99_ratio(&pairs), STOPPED_P99_RATIO_MAX);
                goals.push(goal.bound_by_load(are_of_readers(&pairs)));
            }
        }
        // The sample of the bare loop comes right after that of the sockets it is compared with.
        let bare = self.samples.windows(2).filter_map(|pair| {
            let is_pair = pair[1].arrangement == Arrangement::Bare;
            let mut sockets = pair[0].observed.sockets.filter(|_| is_pair)?;
            // The delays of the server's frames begin later than those of the bare loop.
            sockets.delay_p99_ms += pair[0].made_after_ms[1];
            Some((sockets, pair[1].observed.sockets?))
        });
        let pairs: Vec<_> = bare.collect();
        let is_of_readers = are_of_readers(&pairs);
        if !pairs.is_empty() {
            match self.arguments.evening {
                Some(Speed::Times(1)) => {
                    let what = "p99 of the sockets, since the venue's change / the bare loop's";
                    let goal = Goal::at_most(what, p99_ratio(&pairs), BARE_P99_RATIO_MAX);
                    goals.push(goal.bound_by_load(is_of_readers));
                }
                Some(Speed::Max) => {
                    let rates = pairs
                        .iter()
                        .map(|(own, bare)| own.frames_per_second / bare.frames_per_second);
                    let what = "frames/s of the sockets / the bare loop's";
                    let goal = Goal::at_least(what, Spread::of(rates), BARE_RATE_RATIO_MIN);
                    goals.push(goal.bound_by_load(is_of_readers));
                }
                _ => {}
            }
        }
        goals
    }

    fn markdown(&self) -> String {
        let StreamArgs { readers, markets, messages, evening, stopped, churn, .. } =
            &self.arguments;
        let venue = match evening {
            Some(Speed::Times(times)) => {
                format!("which plays the recorded evening {times} times as fast as it was")
            }
            Some(Speed::Max) => {
                "which plays the recorded evening as fast as the server takes it".to_owned()
            }
            None => format!("which sends {messages} messages a second"),
        };
        let own = self.samples.iter().filter(|sample| sample.arrangement != Arrangement::Bare);
        #[expect(clippy::cast_precision_loss, reason = "some milliseconds")]
        let made_after = |place: usize| {
            Spread::of(own.clone().map(|sample| sample.made_after_ms[place] as f64)).cell(0)
        };
        let mut out = format!(
            "{readers} price sockets, {readers} price streams, and both together, on a server \
             each; every reader follows {markets} markets of the stand-in, {venue}. {stopped} of \
             each kind do not read meanwhile, and do not count; {churn} more sockets come and go \
             each second. The *bare loop* does nothing but write frames of the same length, when \
             markets change, to as many sockets; in the evening, a server without readers follows \
             the venue beside it, as fast. The delay is from when the server made a frame, or in \
             the bare loop from when the market changed, to when the client had it, in whole \
             milliseconds, since that is the clock of the frames; the server made frames {} and {} \
             ms after the change at the venue (p50, p99). *kB a reader* is the server's \
             resident memory with readers less without, divided by their number; with both \
             together, it and the CPU time are averages over both kinds. Medians, with the lowest \
             and the highest.\n\n| | {} | kB a reader |\n\
             |---|---|---|---|---|---|---|---|---|---|---|\n",
            made_after(0),
            made_after(1),
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
            let memory = Spread::of(samples.clone().map(|sample| sample.kilobytes_per_reader));
            let all_read = samples.clone().filter_map(|sample| sample.undisturbed.as_ref());
            let all_read: Vec<ReaderFigures> = all_read.filter_map(|it| it.of(via)).collect();
            if !all_read.is_empty() {
                let cells = ReaderFigures::cells(&all_read);
                let _ = writeln!(out, "| {name}, without those that stop | {cells} | |");
            }
            let rounds: Vec<ReaderFigures> =
                samples.filter_map(|sample| sample.observed.of(via)).collect();
            if !rounds.is_empty() {
                let cells = ReaderFigures::cells(&rounds);
                let _ = writeln!(out, "| {name} | {cells} | {} |", memory.cell(1));
            }
        }
        out
    }
}
