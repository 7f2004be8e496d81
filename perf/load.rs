//! A closed-loop load: each connection sends its next request when it has the answer to the one
//! before, for a fixed time.
//!
//! A closed loop tells honest throughput. Its percentiles are those of requests that wait for their
//! turn; they say nothing of a load that arrives whether or not the server keeps up.

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
use crate::machine::{CpuClock, cpu_seconds};
use crate::trade::{Side, TradeTemplate};

/// Latencies are counted to a nanosecond up to this, with three digits.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// What is sent, where, and for how long.
#[derive(Clone)]
pub(crate) struct Load {
    /// To which server.
    pub(crate) address: SocketAddr,
    /// Which requests.
    pub(crate) template: Arc<TradeTemplate>,
    /// Connections take these in turn.
    pub(crate) keys: Arc<[String]>,
    /// How many connections there are.
    pub(crate) connection_count: usize,
    /// How many threads share them.
    pub(crate) thread_count: usize,
    /// Before anything counts.
    pub(crate) warm_up: Duration,
    /// What counts.
    pub(crate) measured: Duration,
    /// The process that serves.
    pub(crate) server_pid: u32,
    /// Different in each load of a run, so that no idempotency key comes twice.
    pub(crate) run_number: u32,
}

/// What came of a load.
pub(crate) struct Outcome {
    /// From the first byte of a request to the last of its answer, in nanoseconds.
    pub(crate) latency_ns: Histogram<u64>,
    /// Answers by status, while it counted.
    pub(crate) statuses: BTreeMap<u16, u64>,
    /// For how long it counted.
    pub(crate) elapsed: Duration,
    /// What this process burned meanwhile.
    pub(crate) generator_cpu_seconds: f64,
    /// What the server burned meanwhile.
    pub(crate) server_cpu_seconds: f64,
}

/// What one thread counts.
struct Recorder {
    latency_ns: Histogram<u64>,
    statuses: BTreeMap<u16, u64>,
}

/// When a load begins to count and when it ends.
#[derive(Clone, Copy)]
struct Window {
    begin: Instant,
    end: Instant,
}

impl Load {
    /// Sends the load and waits for its end.
    pub(crate) fn run(&self) -> anyhow::Result<Outcome> {
        let begin = Instant::now() + self.warm_up;
        let window = Window { begin, end: begin + self.measured };
        let thread_count = self.thread_count.min(self.connection_count).max(1);
        let threads: Vec<_> = (0..thread_count)
            .map(|index| {
                let load = self.clone();
                thread::spawn(move || load.run_thread(index, thread_count, window))
            })
            .collect();
        thread::sleep(window.begin.saturating_duration_since(Instant::now()));
        let own_clock = CpuClock::Own;
        let (own_before, server_before) =
            (cpu_seconds(own_clock)?, cpu_seconds(CpuClock::Process(self.server_pid))?);
        thread::sleep(window.end.saturating_duration_since(Instant::now()));
        let generator_cpu_seconds = cpu_seconds(own_clock)? - own_before;
        let server_cpu_seconds = cpu_seconds(CpuClock::Process(self.server_pid))? - server_before;

        let mut total = Recorder::new();
        for thread in threads {
            let Recorder { latency_ns, statuses } =
                thread.join().expect("a generator thread ends with a result")?;
            total.latency_ns.add(latency_ns).context("histograms of one shape add up")?;
            for (status, count) in statuses {
                *total.statuses.entry(status).or_default() += count;
            }
        }
        ensure!(!total.latency_ns.is_empty(), "no request was answered within the measured time");
        Ok(Outcome {
            latency_ns: total.latency_ns,
            statuses: total.statuses,
            elapsed: self.measured,
            generator_cpu_seconds,
            server_cpu_seconds,
        })
    }

    /// Every `thread_count`-th connection, on one runtime.
    fn run_thread(
        &self,
        index: usize,
        thread_count: usize,
        window: Window,
    ) -> anyhow::Result<Recorder> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let recorder = Rc::new(RefCell::new(Recorder::new()));
        let tasks = LocalSet::new();
        let connections = (index..self.connection_count).step_by(thread_count);
        let handles: Vec<_> = connections
            .map(|number| {
                tasks.spawn_local(self.clone().run_connection(number, window, recorder.clone()))
            })
            .collect();
        runtime.block_on(tasks.run_until(async {
            for handle in handles {
                handle.await.expect("a connection's task ends with a result")?;
            }
            anyhow::Ok(())
        }))?;
        let recorder = Rc::into_inner(recorder).expect("all connections have ended");
        Ok(recorder.into_inner())
    }

    async fn run_connection(
        self,
        number: usize,
        window: Window,
        recorder: Rc<RefCell<Recorder>>,
    ) -> anyhow::Result<()> {
        let mut connection = Connection::open(self.address).await.context("failed to connect")?;
        let key = &self.keys[number % self.keys.len()];
        let mut request = Vec::new();
        // The run, the connection and the request, each in bits of its own.
        let first_name = u128::from(self.run_number) << 96 | (number as u128) << 64;
        for (name, side) in (first_name..).zip([Side::Buy, Side::Sell].into_iter().cycle()) {
            self.template.write(side, key, name, &mut request);
            let sent = Instant::now();
            if sent >= window.end {
                break;
            }
            let status = connection.exchange(&request).await?.status;
            let answered = Instant::now();
            if sent >= window.begin && answered <= window.end {
                recorder.borrow_mut().record(answered - sent, status)?;
            }
        }
        Ok(())
    }
}

impl Recorder {
    fn new() -> Self {
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("the bounds of the histogram are constants");
        Self { latency_ns, statuses: BTreeMap::new() }
    }

    fn record(&mut self, latency: Duration, status: u16) -> anyhow::Result<()> {
        let nanos = u64::try_from(latency.as_nanos())?;
        self.latency_ns.record(nanos.max(1)).context("an answer took longer than a minute")?;
        *self.statuses.entry(status).or_default() += 1;
        Ok(())
    }
}

impl Outcome {
    /// Answers a second.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(crate) fn throughput(&self) -> f64 {
        self.latency_ns.len() as f64 / self.elapsed.as_secs_f64()
    }

    /// The latency below which this part of the answers stayed, in microseconds.
    #[expect(clippy::cast_precision_loss, reason = "shown with four digits")]
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        self.latency_ns.value_at_quantile(quantile) as f64 / 1e3
    }

    /// Answers that were no success.
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
    fn a_load_counts_what_a_server_answers() {
        let server = CannedServer::bind("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let address = server.address();
        thread::spawn(move || server.serve());
        let instrument = Instrument { market_id: "0xab".into(), outcome: "Yes".into() };
        let load = Load {
            address,
            template: Arc::new(TradeTemplate::new(address, &instrument)),
            keys: Arc::new(["ps_live_1".into()]),
            connection_count: 3,
            thread_count: 2,
            warm_up: Duration::ZERO,
            measured: Duration::from_millis(200),
            server_pid: std::process::id(),
            run_number: 1,
        };
        let outcome = load.run().unwrap();
        assert_eq!(outcome.failure_count(), 0);
        assert_eq!(outcome.statuses.keys().collect::<Vec<_>>(), [&200]);
        assert_eq!(outcome.statuses[&200], outcome.latency_ns.len());
        assert!(outcome.quantile_us(0.5) <= outcome.quantile_us(1.0));
    }
}
