//! The clock of a test that runs on one thread: time passes only while this machine runs it.
//!
//! The stand-in, the connector and the auditor share that thread and its clock. Whenever the thread
//! has to wait for its turn, time stands still for all of them, so no bound that a test sets
//! depends on how busy the machine is.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, Id, RuntimeFlavor};
use tokio::sync::Notify;

/// The time between two ticks on an idle machine.
const TICK: Duration = Duration::from_millis(1);

/// The most that a tick counts, however late it is.
const TICK_MAX: Duration = Duration::from_millis(2);

thread_local! {
    /// The runtime of this thread whose clock was taken over.
    static TAKEN_OVER: Cell<Option<Id>> = const { Cell::new(None) };
}

/// From now on, the time in which this thread is not run does not count. Does nothing on a runtime
/// with several threads, whose clock nobody can stop, or if it was called before.
pub(crate) fn count_own_time_only() {
    let runtime = Handle::current();
    if runtime.runtime_flavor() != RuntimeFlavor::CurrentThread
        || TAKEN_OVER.replace(Some(runtime.id())) == Some(runtime.id())
    {
        return;
    }
    tokio::time::pause();
    let ticks = Arc::new(Notify::new());
    // Closed when the runtime drops its tasks.
    let (is_running, has_ended) = mpsc::channel::<()>();
    // As long as a blocking task runs, a paused clock does not jump to the next timer.
    tokio::task::spawn_blocking({
        let ticks = ticks.clone();
        move || {
            while has_ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                ticks.notify_one();
            }
        }
    });
    tokio::spawn(async move {
        let _is_running = is_running;
        let mut last = Instant::now();
        loop {
            ticks.notified().await;
            let now = Instant::now();
            tokio::time::advance((now - last).min(TICK_MAX)).await;
            last = now;
        }
    });
}
