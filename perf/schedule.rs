//! When the requests of an open loop are due, whether or not earlier ones were answered.
//!
//! A separate thread sleeps from tick to tick, since the runtime's timers have millisecond
//! resolution. Each connection has a queue of due times. A request that is late is sent as soon as
//! possible, and its latency counts from its due time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// The grid of due times.
const TICK: Duration = Duration::from_micros(250);

/// The due times of one connection's requests that are not yet sent.
#[derive(Default)]
pub(crate) struct Due {
    times: RefCell<VecDeque<Instant>>,
    changed: Notify,
    is_over: std::cell::Cell<bool>,
}

impl Due {
    /// Waits for the next due time; `None` after the last one.
    pub(crate) async fn next(&self) -> Option<Instant> {
        loop {
            if let Some(due) = self.times.borrow_mut().pop_front() {
                return Some(due);
            }
            if self.is_over.get() {
                return None;
            }
            self.changed.notified().await;
        }
    }
}

/// Distributes due times to the connections of one runtime until the end.
///
/// `rate` is their total in requests per second.
pub(crate) async fn deal(connections: Vec<Rc<Due>>, rate: f64, begin: Instant, end: Instant) {
    let ticker = Ticker::start(begin);
    let interval = Duration::from_secs_f64(1.0 / rate);
    let mut due = begin;
    let mut turn = connections.iter().cycle();
    while due < end {
        ticker.tick.notified().await;
        let now = Instant::now();
        while due <= now && due < end {
            let connection = turn.next().expect("a runtime has connections");
            connection.times.borrow_mut().push_back(due);
            connection.changed.notify_one();
            due += interval;
        }
    }
    for connection in &connections {
        connection.is_over.set(true);
        connection.changed.notify_one();
    }
}

/// A thread that wakes a task at each tick.
struct Ticker {
    tick: Arc<Notify>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Ticker {
    fn start(begin: Instant) -> Self {
        let tick = Arc::new(Notify::new());
        let is_over = Arc::new(AtomicBool::new(false));
        let (own_tick, own_is_over) = (tick.clone(), is_over.clone());
        let run = move || {
            let mut next = begin;
            while !own_is_over.load(Ordering::Relaxed) {
                thread::sleep(next.saturating_duration_since(Instant::now()));
                own_tick.notify_one();
                next = (next + TICK).max(Instant::now());
            }
        };
        Self { tick, is_over, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the ticker only sleeps");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_distributed_at_the_rate_and_late_ones_are_kept() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let connections = vec![Rc::<Due>::default(), Rc::<Due>::default()];
        let begin = Instant::now();
        let end = begin + Duration::from_millis(100);
        runtime.block_on(deal(connections.clone(), 1000.0, begin, end));
        for (number, connection) in (0_u32..).zip(&connections) {
            let mut count = 0_u32;
            while let Some(due) = runtime.block_on(connection.next()) {
                let expected = begin + Duration::from_millis((2 * count + number).into());
                let difference = due.max(expected) - due.min(expected);
                assert!(difference < Duration::from_micros(10), "{difference:?}");
                count += 1;
            }
            assert_eq!(count, 50);
        }
    }
}
