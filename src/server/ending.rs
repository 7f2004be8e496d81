//! Shutdown of the process: the signals that request it, and the deadlines that enforce it.
//!
//! The first signal begins the drain, a second one cuts it short, and a third ends the process at
//! once. A dedicated thread with its own runtime watches the signals, so that they work even if all
//! other threads hang. However the process ends, everything acknowledged is on disk.

use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Signal as SignalNumber, getpid, kill_process};
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::market::catalogue::TAKER_DELAY_MS_MAX;

/// Maximum time for requests in flight to finish after the signal: the venue's longest delay plus
/// five seconds.
pub(super) const DRAIN_TIME_MAX: Duration =
    Duration::from_secs(TAKER_DELAY_MS_MAX.div_ceil(1_000) as u64 + 5);

/// Maximum time for the rest of the shutdown, even on a busy machine.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(10);

/// Maximum time to write the last log line.
const LAST_LINE_TIME_MAX: Duration = Duration::from_secs(1);

/// The stage of the shutdown, with the reason for reaching it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Serving,
    Draining {
        reason: &'static str,
    },
    Hurrying {
        reason: &'static str,
    },
    /// The server has ended. The process may live on, since a program may embed a server.
    Over,
}

/// The shutdown of the process, requested or not. Dropping it cancels the deadlines.
#[derive(Debug)]
pub(super) struct Ending {
    stage: Arc<watch::Sender<Stage>>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.stage.send_replace(Stage::Over);
    }
}

impl Ending {
    /// Starts watching the signals.
    pub(super) fn watch() -> anyhow::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let signals = {
            let _entered = runtime.enter();
            Signals::watch()?
        };
        let stage = Arc::new(watch::Sender::new(Stage::Serving));
        thread::Builder::new()
            .name("ending".to_owned())
            .spawn({
                let stage = stage.clone();
                move || runtime.block_on(conduct(signals, &stage))
            })
            .context("failed to start the thread that watches signals")?;
        Ok(Self { stage })
    }

    /// Waits until the shutdown is requested. Returns the name of the signal, or another reason.
    pub(super) async fn asked(&self) -> &'static str {
        self.reason_of(|stage| match stage {
            Stage::Serving | Stage::Over => None,
            Stage::Draining { reason } | Stage::Hurrying { reason } => Some(reason),
        })
        .await
    }

    /// Begins the drain without a signal, unless it has already begun.
    pub(super) fn begin(&self, reason: &'static str) {
        self.stage.send_if_modified(|stage| {
            let is_first = *stage == Stage::Serving;
            if is_first {
                *stage = Stage::Draining { reason };
            }
            is_first
        });
    }

    /// Waits for the signal that cuts the drain short, and returns its name.
    pub(super) async fn hurried(&self) -> &'static str {
        self.reason_of(|stage| match stage {
            Stage::Serving | Stage::Draining { .. } | Stage::Over => None,
            Stage::Hurrying { reason } => Some(reason),
        })
        .await
    }

    async fn reason_of(&self, reason: impl Fn(Stage) -> Option<&'static str>) -> &'static str {
        let mut stages = self.stage.subscribe();
        loop {
            if let Some(reason) = reason(*stages.borrow_and_update()) {
                return reason;
            }
            stages.changed().await.expect("the sender is borrowed");
        }
    }
}

/// Runs the stages until the server has ended.
async fn conduct(signals: Signals, stage: &watch::Sender<Stage>) {
    let mut stages = stage.subscribe();
    tokio::select! {
        () = run_stages(signals, stage) => {}
        _ = stages.wait_for(|stage| *stage == Stage::Over) => {}
    }
}

async fn run_stages(mut signals: Signals, stage: &watch::Sender<Stage>) {
    let mut stages = stage.subscribe();
    tokio::select! {
        reason = signals.next() => { stage.send_replace(Stage::Draining { reason }); }
        _ = stages.wait_for(|stage| *stage != Stage::Serving) => {}
    }
    tokio::select! {
        reason = signals.next() => { stage.send_replace(Stage::Hurrying { reason }); }
        () = sleep(DRAIN_TIME_MAX + FLUSH_TIME_MAX) => end_now("the drain hangs"),
    }
    tokio::select! {
        name = signals.next() => end_now(name),
        () = sleep(FLUSH_TIME_MAX) => end_now("the drain hangs"),
    }
}

/// Ends the process, even if threads hang.
fn end_now(reason: &'static str) -> ! {
    // Logging or an exit handler may hang, so another thread tries them before SIGKILL.
    thread::spawn(move || {
        tracing::error!(reason, "exiting at once; everything acknowledged is on disk");
        process::exit(1);
    });
    thread::sleep(LAST_LINE_TIME_MAX);
    let _ = kill_process(getpid(), SignalNumber::KILL);
    process::abort()
}

/// The signals that end the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts watching the signals on the current runtime.
    fn watch() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate()).context("failed to watch SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("failed to watch SIGINT")?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Returns a future that resolves to the name of the first signal, for commands that need no drain.
pub(crate) fn ending_signal() -> anyhow::Result<impl Future<Output = &'static str> + use<>> {
    let mut signals = Signals::watch()?;
    Ok(async move { signals.next().await })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The deadlines stop once the server has ended, so they never kill a program that embeds it.
    #[tokio::test(start_paused = true)]
    async fn the_deadlines_end_with_the_server() {
        for last in [Stage::Serving, Stage::Draining { reason: "a test" }] {
            let stage = Arc::new(watch::Sender::new(last));
            let ending = Ending { stage: stage.clone() };
            let conducting = tokio::spawn({
                let stage = stage.clone();
                async move { conduct(Signals::watch().unwrap(), &stage).await }
            });
            sleep(DRAIN_TIME_MAX).await;
            assert!(!conducting.is_finished());
            drop(ending);
            conducting.await.unwrap();
        }
    }
}
