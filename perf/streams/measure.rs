//! One server in one round: the frames that its readers receive, and the resources that they leave
//! behind.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::churn::Churn;
use super::truth::Truth;
use super::{Arrangement, Observed, Sample, StreamArgs, megabytes};
use crate::ACCOUNTS;
use crate::machine::{CpuClock, cpu_seconds, resident_bytes};
use crate::price_readers::{Counts, LastFrames, PriceReaders, ReaderFigures, Reading, Via};
use crate::setup::{Setup, Target};
use crate::venue::{Followed, METRICS_AGE_MAX};

/// Makes the server's allocator return freed memory at once, so that resident memory is the memory
/// in use. By default, it keeps the memory freed by the start until it is needed elsewhere. In
/// addition, the kernel must not use huge pages, each of which is resident as a whole: 23 of them
/// at once looked like a leak of 10 MB.
pub(super) const RETURN_MEMORY: [(&str, &str); 2] =
    [("MIMALLOC_PURGE_DELAY", "0"), ("MIMALLOC_ALLOW_THP", "0")];

/// Maximum time that the stand-in may take beyond the time of its messages.
pub(super) const WALK_PATIENCE: Duration = Duration::from_mins(1);

/// The metrics that are 0 on a server without readers.
const LEFT_BEHIND: [&str; 4] = [
    "paperbourse_websocket_connections",
    "paperbourse_price_streams",
    "paperbourse_price_subscriptions",
    "paperbourse_unsent_bytes",
];

/// Maximum time for the last frames to arrive.
const SETTLE_PATIENCE: Duration = Duration::from_secs(30);

/// Interval between comparisons of the last frames.
const COMPARE_INTERVAL: Duration = Duration::from_millis(200);

/// The venue's changes while a server was measured.
pub(super) struct Course {
    /// The changes in order: milliseconds since the beginning, and the market.
    pub(super) changes: Vec<(u64, u32)>,
    /// Number of milliseconds of the evening that were played.
    pub(super) played_ms: u64,
}

/// Measures one server. Also returns the venue's changes during the measurement.
pub(super) fn measure(
    setup: &Setup,
    arguments: &StreamArgs,
    round: u32,
    arrangement: Arrangement,
) -> anyhow::Result<(Sample, Course)> {
    let name = format!("streams-{round}-{arrangement:?}");
    let tokens = arguments.markets * 2;
    let is_evening = arguments.evening.is_some();
    let followed = Followed::start_with(setup, &name, tokens, is_evening, &RETURN_MEMORY)?;
    let target = Target::of(&followed.server, followed.server.make_keys(ACCOUNTS)?);
    let mut run = Run {
        arguments,
        arrangement,
        followed,
        target,
        reading: Group::default(),
        stopping: Group::default(),
        truth: Truth::default(),
        played_ms: 0,
        walk_count: round * 1_000,
    };
    let duration = |seconds| Duration::from_secs_f64(seconds);
    let (warm_up, measured) =
        (duration(setup.arguments.warm_up_seconds), duration(setup.arguments.seconds));
    let bytes_without = run.walk(warm_up)?;
    run.learn()?;
    let files_without = open_files(run.pid())?;
    run.reading = run.open(arguments.readers - arguments.stopped, false)?;

    // Measure as many readers without those that stop, first or last in turn, so that the speed of
    // the machine is the same for both.
    let has_stopping = arguments.stopped > 0;
    let mut stale_count = 0;
    let mut undisturbed = None;
    if has_stopping && !round.is_multiple_of(2) {
        undisturbed = Some(run.observe(measured)?.0);
        stale_count += run.settle()?;
    }
    if has_stopping {
        run.stopping = run.open(arguments.stopped, true)?;
    }
    let played_before_ms = run.played_ms;
    let (observed, churned_count) = run.observe(measured)?;
    let course = Course {
        changes: run.truth.changes_of_last(u64::try_from(measured.as_millis())?),
        played_ms: run.played_ms - played_before_ms,
    };
    stale_count += run.settle()?;
    let mut account = Account::default();
    let stopping = std::mem::take(&mut run.stopping);
    run.close(stopping, &mut account)?;
    if has_stopping && round.is_multiple_of(2) {
        undisturbed = Some(run.observe(measured)?.0);
        stale_count += run.settle()?;
    }
    let reading = std::mem::take(&mut run.reading);
    run.close(reading, &mut account)?;
    let Run { followed, target, .. } = run;
    let left_behind = left_behind(&followed, target.pids[0], files_without)?;
    drop(followed);
    std::fs::remove_dir_all(setup.scratch.0.join(&name))
        .context("failed to remove the server's data")?;
    let reader_count = f64::from(arguments.readers * arrangement.kind_count());
    let megabytes_without = megabytes(bytes_without);
    let megabytes_with = *observed.megabytes_over_time.last().context("it takes some time")?;
    let sample = Sample {
        round,
        arrangement,
        observed,
        undisturbed,
        megabytes_without,
        megabytes_with,
        kilobytes_per_reader: (megabytes_with - megabytes_without) * 1e3 / reader_count,
        disorder_count: account.disorder_count,
        differing_count: account.differing_count,
        untrue_count: is_evening.then_some(account.untrue_count),
        made_after_ms: account.made_after_ms,
        stale_count,
        churned_count,
        left_behind,
    };
    Ok((sample, course))
}

/// A server under measurement.
struct Run<'a> {
    arguments: &'a StreamArgs,
    arrangement: Arrangement,
    followed: Followed,
    target: Target,
    /// The measured readers, and those that stop beside them.
    reading: Group,
    stopping: Group,
    truth: Truth,
    /// Number of milliseconds of the evening that have been played.
    played_ms: u64,
    /// The seed of the next random walk.
    walk_count: u32,
}

/// The sockets and the streams of one group, if there are any.
type Group = [Option<PriceReaders>; 2];

/// The readers' final results.
#[derive(Default)]
struct Account {
    disorder_count: u64,
    differing_count: u64,
    untrue_count: u64,
    made_after_ms: [u64; 2],
}

impl Run<'_> {
    fn pid(&self) -> u32 {
        self.target.pids[0]
    }

    /// Opens `count` readers of each kind.
    fn open(&self, count: u32, stops: bool) -> anyhow::Result<Group> {
        let groups = vec![self.followed.markets.clone(); count as usize];
        let mut group = Group::default();
        for (readers, via) in group.iter_mut().zip([Via::Socket, Via::Stream]) {
            if self.arrangement.has(via) {
                let reading = Reading { keeps_last: true, stops, ..Reading::of(via) };
                *readers = Some(PriceReaders::open(&self.target, &groups, reading)?);
            }
        }
        Ok(group)
    }

    /// Closes a group, and adds its results to the account.
    fn close(&self, group: Group, account: &mut Account) -> anyhow::Result<()> {
        for readers in group.into_iter().flatten() {
            let received = readers.take_received();
            ensure!(received.frame_count() > 0, "the readers got nothing");
            account.disorder_count += received.disorder_count;
            account.differing_count += received.differing_count;
            if self.arguments.evening.is_some() {
                account.untrue_count +=
                    self.truth.untrue_count(&received, &self.followed.markets)?;
            }
            let [p50_ms, p99_ms] = &mut account.made_after_ms;
            let of_group = received.made_after_ms();
            (*p50_ms, *p99_ms) = (of_group[0].max(*p50_ms), of_group[1].max(*p99_ms));
            readers.close()?;
        }
        Ok(())
    }

    /// Measures for this long. Returns the readers' results, and the number of sockets opened and
    /// closed beside them. The readers that can stop do so during the measurement.
    fn observe(&mut self, measured: Duration) -> anyhow::Result<(Observed, u64)> {
        let cpu_before = cpu_seconds(CpuClock::Trees(&self.target.pids))?;
        self.stopping.iter().flatten().for_each(|readers| readers.stop_reading(true));
        self.take()?;
        let churn = Churn::start(&self.target, &self.followed.markets, self.arguments.churn);
        let began = Instant::now();
        let mut megabytes_over_time = Vec::new();
        loop {
            let rest = measured.saturating_sub(began.elapsed()).min(Duration::from_mins(1));
            if rest.is_zero() {
                break;
            }
            megabytes_over_time.push(megabytes(self.walk(rest)?));
        }
        let elapsed = began.elapsed();
        let counts = self.take()?;
        let cpu = cpu_seconds(CpuClock::Trees(&self.target.pids))? - cpu_before;
        let churned_count = churn.end()?;
        if self.stopping.iter().any(Option::is_some) {
            std::thread::sleep(METRICS_AGE_MAX);
            let unsent_bytes = self.followed.page()?.value("paperbourse_unsent_bytes")?;
            ensure!(unsent_bytes > 0, "nothing waits for those that have stopped: take longer");
        }
        self.stopping.iter().flatten().for_each(|readers| readers.stop_reading(false));
        self.learn()?;
        let frame_count: u64 = counts.iter().flatten().map(|counts| counts.frame_count).sum();
        #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
        let [sockets, streams] = counts.map(|counts| {
            let counts = counts?;
            let own_cpu = cpu * counts.frame_count as f64 / frame_count as f64;
            Some(ReaderFigures::of(&counts, elapsed, own_cpu))
        });
        Ok((Observed { sockets, streams, megabytes_over_time }, churned_count))
    }

    /// Returns the counts of the sockets and of the streams since the last call.
    fn take(&mut self) -> anyhow::Result<[Option<Counts>; 2]> {
        let [sockets, streams] = &mut self.reading;
        let taken = |readers: &mut Option<PriceReaders>| {
            readers.as_mut().map(PriceReaders::take).transpose()
        };
        Ok([taken(sockets)?, taken(streams)?])
    }

    /// Changes the markets for a while. Returns the server's resident memory at the end, in bytes.
    fn walk(&mut self, duration: Duration) -> anyhow::Result<u64> {
        let (venue, patience) = (&mut self.followed.venue, duration + WALK_PATIENCE);
        match self.arguments.evening {
            Some(speed) => venue.go_on(speed, duration)?,
            None => venue.walk(self.walk_count.into(), self.arguments.messages, duration)?,
        }
        self.walk_count += 1;
        venue.walked(patience)?.context("the stand-in did not end its messages")?;
        resident_bytes(self.pid())
    }

    /// Fetches the books that the venue has shown since the last call.
    fn learn(&mut self) -> anyhow::Result<()> {
        if self.arguments.evening.is_some() {
            let (tops, played_ms) = self.followed.venue.tops()?;
            self.truth.extend(tops);
            self.played_ms = played_ms;
        }
        Ok(())
    }

    /// Waits until all readers have the newest frames. Returns the number of markets, counted per
    /// reader, for which they do not.
    fn settle(&mut self) -> anyhow::Result<usize> {
        let deadline = Instant::now() + SETTLE_PATIENCE;
        loop {
            let newest = newest_frames(&self.target, &self.followed.markets)?;
            let mut stale_count = 0;
            for readers in self.reading.iter_mut().chain(&mut self.stopping).flatten() {
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
}

/// Waits until the server has released all resources of the readers. Returns the number of those
/// that are left.
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

/// Returns the frames that a new socket gets.
fn newest_frames(target: &Target, markets: &[String]) -> anyhow::Result<LastFrames> {
    let reading = Reading { keeps_last: true, ..Reading::of(Via::Socket) };
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

/// Returns the number of markets whose frames differ.
fn stale(last: &LastFrames, newest: &LastFrames) -> usize {
    newest.iter().filter(|(market, frame)| last.get(*market) != Some(frame)).count()
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
