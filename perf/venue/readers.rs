//! Readers over HTTP during the venue's changes: books and prices in turn, at a fixed rate.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use hdrhistogram::Histogram;
use tokio::task::LocalSet;

use crate::client::{Connection, encode_request};
use crate::schedule::{self, Clock, Due};

/// Number of connections that share the reads.
const CONNECTIONS: usize = 4;

/// The highest recorded latency, in nanoseconds.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// A thread that reads for a fixed time. Latencies count from when a read was due.
pub(crate) struct Readers(JoinHandle<anyhow::Result<Histogram<u64>>>);

impl Readers {
    /// Starts reading all paths in turn, at this rate per second.
    pub(crate) fn start(
        address: SocketAddr,
        paths: Arc<[String]>,
        reads_per_second: f64,
        duration: Duration,
    ) -> Self {
        Self(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let latency_ns = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3)?;
            let latency_ns = Rc::new(RefCell::new(latency_ns));
            let begin = Instant::now();
            LocalSet::new().block_on(&runtime, async {
                let due: Vec<Rc<Due>> = (0..CONNECTIONS).map(|_| Rc::default()).collect();
                let tasks = due.iter().enumerate().map(|(number, due)| {
                    let first = number * paths.len() / CONNECTIONS;
                    let (paths, due, latency_ns) = (paths.clone(), due.clone(), latency_ns.clone());
                    tokio::task::spawn_local(read(address, paths, first, due, latency_ns))
                });
                let tasks: Vec<_> = tasks.collect();
                schedule::deal(due, Clock::Timer, reads_per_second, begin, begin + duration)
                    .await?;
                for task in tasks {
                    task.await.context("a reader panicked")??;
                }
                anyhow::Ok(())
            })?;
            let latency_ns = latency_ns.borrow().clone();
            Ok(latency_ns)
        }))
    }

    /// Waits for the end. Returns the times from when each read was due to its complete answer, in
    /// nanoseconds.
    pub(crate) fn join(self) -> anyhow::Result<Histogram<u64>> {
        self.0.join().expect("readers do not panic").context("the readers failed")
    }
}

async fn read(
    address: SocketAddr,
    paths: Arc<[String]>,
    first: usize,
    due: Rc<Due>,
    latency_ns: Rc<RefCell<Histogram<u64>>>,
) -> anyhow::Result<()> {
    let mut connection = Connection::open(address).await?;
    let mut next = first;
    while let Some(due) = due.next().await {
        let path = &paths[next % paths.len()];
        next += 1;
        let request = encode_request("GET", path, address, &[], "");
        let answer = connection.exchange(request.as_bytes()).await?;
        ensure!(answer.status == 200, "{path} failed with {}", answer.status);
        let elapsed = u64::try_from(due.elapsed().as_nanos())?;
        latency_ns.borrow_mut().saturating_record(elapsed);
    }
    Ok(())
}
