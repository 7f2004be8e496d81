//! A closed-loop or open-loop load for a fixed time.
//!
//! In a closed loop, each connection sends its next request when it has the answer to the previous
//! one. This measures throughput faithfully, but the latencies include the time that requests wait
//! for their turn. In an open loop, requests are due at a fixed rate, whether or not the server
//! keeps up, and latency counts from the time a request was due.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use tokio::task::LocalSet;

use crate::client::Connection;
use crate::cores;
use crate::machine::{CpuClock, context_switches, cpu_seconds};
use crate::schedule::{self, Clock, Due};
use crate::trade::{Side, TradeTemplate};

/// The highest recorded latency; the histogram has a precision of three digits.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Seconds that the last answers may take after the end before the load counts as hung.
const LAST_ANSWER_SECONDS_MAX: u64 = 30;

/// The requests to send, their target, and the duration.
#[derive(Clone)]
pub(crate) struct Load {
    /// The server's address.
    pub(crate) address: SocketAddr,
    /// The template of the requests.
    pub(crate) template: Arc<TradeTemplate>,
    /// Every connection cycles through all of these, so that even few connections use all accounts.
    pub(crate) keys: Arc<[String]>,
    /// Total requests per second in an open loop; `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    /// The number of connections.
    pub(crate) connection_count: usize,
    /// The threads that share the connections.
    pub(crate) threads: Threads,
    /// Whether the threads run at a lower priority than others.
    pub(crate) gives_way: bool,
    /// The time before measuring starts.
    pub(crate) warm_up: Duration,
    /// The measured time.
    pub(crate) measured: Duration,
    /// The server's processes; the CPU time of their descendants counts too.
    pub(crate) server_pids: Vec<u32>,
    /// A number unique to each load of a run, so that no idempotency key repeats.
    pub(crate) run_number: u32,
}

/// The generator's threads.
#[derive(Clone, Debug)]
pub(crate) enum Threads {
    /// This many threads, on any core.
    Anywhere(usize),
    /// One thread on each of these cores, on which nothing else runs. In an open loop they never
    /// sleep.
    OnCores(Vec<usize>),
}

/// The result of a load.
pub(crate) struct Outcome {
    /// Latencies in nanoseconds, from when a request was sent, or was due in an open loop, to the
    /// last byte of its answer.
    pub(crate) latency_ns: Histogram<u64>,
    /// The delay, in nanoseconds, with which the generator noticed that a request was due in an
    /// open loop, including the warm-up. It is part of the latencies.
    pub(crate) clock_late_ns: Histogram<u64>,
    /// Answers in the measured time, by status.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// The measured time, until the end or the last answer, whichever was later.
    pub(crate) elapsed: Duration,
    /// CPU time of this process during the measured time.
    pub(crate) generator_cpu_seconds: f64,
    /// CPU time of the server during the measured time.
    pub(crate) server_cpu_seconds: f64,
    /// Context switches of the server's own threads during the measured time.
    pub(crate) server_switches: u64,
}

/// The measurements of one thread.
struct Recorder {
    latency_ns: Histogram<u64>,
    statuses: BTreeMap<u16, u64>,
    last_answer: Option<Instant>,
    clock_late_ns: Histogram<u64>,
}

/// The measured time.
#[derive(Clone, Copy)]
struct Window {
    begin: Instant,
    end: Instant,
}

impl Load {
    /// Sends the load and waits for its end.
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let start = Instant::now();
        let begin = start + self.warm_up;
        let window = Window { begin, end: begin + self.measured };
        let thread_count = self.threads.count().min(self.connection_count).max(1);
        let threads: Vec<_> = (0..thread_count)
            .map(|index| {
                let load = self.clone();
                thread::spawn(move || load.run_thread(index, thread_count, start, window))
            })
            .collect();
        thread::sleep(window.begin.saturating_duration_since(Instant::now()));
        let own_clock = CpuClock::Own;
        let (own_before, server_before) =
            (cpu_seconds(own_clock)?, cpu_seconds(CpuClock::Trees(&self.server_pids))?);
        let switches_before = context_switches(&self.server_pids)?;
        thread::sleep(window.end.saturating_duration_since(Instant::now()));
        let server_switches = context_switches(&self.server_pids)?.saturating_sub(switches_before);
        let generator_cpu_seconds = cpu_seconds(own_clock)? - own_before;
        let server_cpu_seconds = cpu_seconds(CpuClock::Trees(&self.server_pids))? - server_before;

        let mut total = Recorder::new();
        for thread in threads {
            let Recorder { latency_ns, statuses, last_answer, clock_late_ns } =
                thread.join().expect("generator threads do not panic")?;
            total.last_answer = total.last_answer.max(last_answer);
            total.latency_ns.add(latency_ns).context("histograms of one shape add up")?;
            total.clock_late_ns.add(clock_late_ns).context("histograms of one shape add up")?;
            for (status, count) in statuses {
                *total.statuses.entry(status).or_default() += count;
            }
        }
        ensure!(!total.latency_ns.is_empty(), "no request was answered within the measured time");
        Ok(Outcome {
            latency_ns: total.latency_ns,
            clock_late_ns: total.clock_late_ns,
            statuses: total.statuses,
            elapsed: total.last_answer.map_or(window.end, |last| last.max(window.end))
                - window.begin,
            generator_cpu_seconds,
            server_cpu_seconds,
            server_switches,
        })
    }

    /// Runs every `thread_count`-th connection, on one runtime.
    fn run_thread(
        &self,
        index: usize,
        thread_count: usize,
        start: Instant,
        window: Window,
    ) -> anyhow::Result<Recorder> {
        let timing = match &self.threads {
            Threads::Anywhere(_) => Clock::Timer,
            Threads::OnCores(cores) => {
                cores::use_only(&cores[index..=index])?;
                Clock::Spin
            }
        };
        if self.gives_way {
            cores::give_way()?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let recorder = Rc::new(RefCell::new(Recorder::new()));
        let tasks = LocalSet::new();
        let connections: Vec<usize> =
            (index..self.connection_count).step_by(thread_count).collect();
        let dues: Vec<Option<Rc<Due>>> =
            connections.iter().map(|_| self.rate.map(|_| Rc::default())).collect();
        let clock = self.rate.map(|rate| {
            #[expect(clippy::cast_precision_loss, reason = "a share of a rate")]
            let share = rate * connections.len() as f64 / self.connection_count as f64;
            let dues = dues.iter().flatten().cloned().collect();
            // Stagger the threads, so that they take turns like the connections of one thread.
            #[expect(clippy::cast_precision_loss, reason = "few threads")]
            let first = Duration::from_secs_f64(index as f64 / rate);
            tasks.spawn_local(schedule::deal(dues, timing, share, start + first, window.end))
        });
        let handles: Vec<_> = connections
            .into_iter()
            .zip(dues)
            .map(|(number, due)| {
                let load = self.clone();
                tasks.spawn_local(load.run_connection(number, due, window, recorder.clone()))
            })
            .collect();
        let deadline = window.end + Duration::from_secs(LAST_ANSWER_SECONDS_MAX);
        let all = tasks.run_until(async {
            for handle in handles {
                handle.await.expect("the tasks of connections do not panic")?;
            }
            if let Some(clock) = clock {
                let late_ns = clock.await.expect("the clock does not panic");
                recorder.borrow_mut().clock_late_ns = late_ns.context("failed to set a timer")?;
            }
            anyhow::Ok(())
        });
        runtime
            .block_on(async { tokio::time::timeout_at(deadline.into(), all).await })
            .with_context(|| {
                format!("a request had no answer {LAST_ANSWER_SECONDS_MAX} s after the end")
            })??;
        let recorder = Rc::into_inner(recorder).expect("all connections have ended");
        Ok(recorder.into_inner())
    }

    async fn run_connection(
        self,
        number: usize,
        due: Option<Rc<Due>>,
        window: Window,
        recorder: Rc<RefCell<Recorder>>,
    ) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.address).await.context("failed to connect")?;
        let mut request = Vec::new();
        // The run, the connection and the request, each in separate bits.
        let first_name = u128::from(self.run_number) << 96 | (number as u128) << 64;
        // Each key sells the share that it bought before the next key takes its turn.
        let keys = (number..).step_by(self.connection_count);
        let keys = keys.map(|turn| &self.keys[turn % self.keys.len()]);
        let trades = keys.flat_map(|key| [(key, Side::Buy), (key, Side::Sell)]);
        for (name, (key, side)) in (first_name..).zip(trades) {
            self.template.write(side, key, name, &mut request);
            let sent = match &due {
                Some(due) => due.next().await,
                None => Some(Instant::now()),
            };
            let Some(sent) = sent.filter(|&sent| sent < window.end) else { break };
            let status = connection.exchange(&request).await?.status;
            recorder.borrow_mut().record(window, sent, Instant::now(), status)?;
        }
        Ok(())
    }
}

impl Threads {
    const fn count(&self) -> usize {
        match self {
            Self::Anywhere(count) => *count,
            Self::OnCores(cores) => cores.len(),
        }
    }
}

impl Recorder {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("the bounds of the histogram are constants");
        let clock_late_ns = latency_ns.clone();
        Self { latency_ns, statuses: BTreeMap::new(), last_answer: None, clock_late_ns }
    }

    /// Counts every request that was sent within the window, however late its answer. Leaving out
    /// the requests in flight at the end would hide a server that stalls there.
    fn record(
        &mut self,
        window: Window,
        sent: Instant,
        answered: Instant,
        status: u16,
    ) -> anyhow::Result<()> {
        if sent < window.begin || sent >= window.end {
            return Ok(());
        }
        self.last_answer = self.last_answer.max(Some(answered));
        let nanos = u64::try_from((answered - sent).as_nanos())?;
        self.latency_ns.record(nanos.max(1)).context("an answer took longer than a minute")?;
        *self.statuses.entry(status).or_default() += 1;
        Ok(())
    }
}

impl Outcome {
    /// Returns the answers per second.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(crate) fn throughput(&self) -> f64 {
        self.latency_ns.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// Returns this quantile of the latencies, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Returns this quantile of the generator's clock delay, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
    pub(crate) fn clock_late_us(&self, quantile: f64) -> f64 {
        self.clock_late_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Returns the number of unsuccessful answers.
    pub(crate) fn failure_count(&self) -> u64 {
        let failed = self.statuses.iter().filter(|(status, _)| !(200..300).contains(*status));
        failed.map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canned::CannedServer;
    use crate::trade::Instrument;

    #[test]
    fn a_request_counts_by_the_time_it_was_sent() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let window = Window { begin: at(100), end: at(200) };
        for (sent, answered, latency_ms) in [
            (99, 150, None),
            (100, 101, Some(1)),
            (199, 200, Some(1)),
            (199, 900, Some(701)),
            (200, 201, None),
        ] {
            let mut recorder = Recorder::new();
            recorder.record(window, at(sent), at(answered), 503).unwrap();
            let counted = u64::from(latency_ms.is_some());
            assert_eq!(recorder.latency_ns.len(), counted, "sent at {sent}");
            assert_eq!(recorder.statuses.get(&503).copied().unwrap_or(0), counted);
            assert_eq!(recorder.last_answer, latency_ms.map(|_| at(answered)));
            let expected_ns = latency_ms.unwrap_or(0) * 1_000_000;
            assert!(recorder.latency_ns.max().abs_diff(expected_ns) <= expected_ns / 1000);
        }
    }

    #[test]
    fn a_load_counts_the_servers_answers() {
        let any_core = usize::from(std::thread::available_parallelism().unwrap()) - 1;
        for rate in [None, Some(500.0)] {
            check_counts(rate, Threads::Anywhere(2));
            check_counts(rate, Threads::OnCores(vec![any_core]));
        }
    }

    fn check_counts(rate: Option<f64>, threads: Threads) {
        let server = CannedServer::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = server.address();
        thread::spawn(move || server.serve());
        let instrument = Instrument { market_id: "0xab".into(), outcome: "Yes".into() };
        let load = Load {
            address,
            template: Arc::new(TradeTemplate::new(address, &instrument)),
            keys: Arc::new(["ps_live_1".into()]),
            rate,
            connection_count: 3,
            threads,
            gives_way: true,
            warm_up: Duration::ZERO,
            measured: Duration::from_millis(200),
            server_pids: vec![std::process::id()],
            run_number: 1,
        };
        let outcome = load.run().unwrap();
        assert_eq!(outcome.failure_count(), 0);
        assert_eq!(outcome.statuses.keys().collect::<Vec<_>>(), [&200]);
        assert_eq!(outcome.statuses[&200], outcome.latency_ns.len());
        assert!(outcome.quantile_us(0.5) <= outcome.quantile_us(1.0));
        if rate.is_some() {
            // 500 a second for a fifth of a second; each counts, however late it was sent.
            assert!((95..=105).contains(&outcome.latency_ns.len()), "{:?}", outcome.statuses);
        }
    }
}
