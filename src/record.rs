//! Records a venue: runs the connector as the server does, but writes a tape and serves no clients.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use tokio::time::{Instant, MissedTickBehavior};

use crate::config::record::RecordArgs;
use crate::config::venue::VenueConfig;
use crate::market::Markets;
use crate::server::ending_signal;
use crate::venue::feed::{Feed, MismatchPolicy};
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::status::{LiveSnapshot, LiveStatus};
use crate::venue::tape::{Recorder, TapeError, TapeSender, TapeTotals};

/// Interval between progress lines in the log.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// An error that kept a recording from starting, or ended it.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The command line is wrong: a bad venue option, or a venue that cannot be recorded.
    #[error("{0}")]
    Usage(String),
    /// The tape or its disk is full, or the disk failed.
    #[error(transparent)]
    Tape(#[from] TapeError),
    /// The recording could not be started.
    #[error("{0:#}")]
    Start(#[from] anyhow::Error),
}

/// Records until a signal arrives, the requested duration has passed, or the tape can no longer be
/// written.
pub fn run(arguments: &RecordArgs) -> Result<(), RecordError> {
    let config = arguments.venue.config().map_err(|error| RecordError::Usage(error.to_string()))?;
    let venue = &arguments.venue.venue;
    let VenueConfig::Live(config) = config else {
        let error = format!("--venue {venue} cannot be recorded: use --venue polymarket");
        return Err(RecordError::Usage(error));
    };
    let markets = Arc::new(Markets::new());
    let live = config.open(Feed::new(markets.clone(), MismatchPolicy::Distrust));
    let mut live =
        live.context("failed to load the trusted certificate authorities (--venue-ca sets them)")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("failed to start the runtime")?;
    runtime.block_on(async {
        let ending = ending_signal()?;
        let mut recorder = Recorder::start(&arguments.out, arguments.limits())?;
        tracing::info!(%venue, out = %arguments.out.display(), "recording");
        live.record(recorder.sender());
        let (status, sender) = (live.status(), recorder.sender());
        let duration = arguments.duration.map(|seconds| Duration::from_secs(seconds.into()));
        let over = async {
            match duration {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        let why = tokio::select! {
            error = recorder.failed() => Err(error),
            name = ending => Ok(name),
            () = over => Ok("the duration is over"),
            () = live.run() => Ok("the connector has ended"),
            () = log(&status, &markets, &sender) => Ok("the log has ended"),
            () = settle(&markets) => Ok("the settler has ended"),
        };
        // Frames received from here on are not on the tape.
        drop(live);
        let ended = match why {
            Ok(why) => {
                tracing::info!("{why}: ending the tape");
                tokio::select! {
                    (_, ended) = recorder.finish(why) => ended,
                    name = ending_signal()? => {
                        let error = anyhow!("{name} again: ended before the tape was written");
                        return Err(error.into());
                    }
                }
            }
            Err(error) => Err(error),
        };
        tracing::info!("recorded {}", sender.totals());
        Ok(ended?)
    })
}

/// Marks resolved markets as settled, so that they eventually leave the list. Nothing trades here,
/// so there is nothing to pay out.
async fn settle(markets: &Markets) {
    loop {
        for market in markets.resolutions().await {
            markets.mark_settled(market);
        }
    }
}

/// Logs progress periodically.
async fn log(status: &LiveStatus, markets: &Markets, sender: &TapeSender) {
    let mut ticks = tokio::time::interval_at(Instant::now() + LOG_INTERVAL, LOG_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut frames = status.get().frames;
    let mut lines_lost = 0;
    loop {
        ticks.tick().await;
        let (now, totals) = (status.get(), sender.totals());
        let market_count = markets.listing().markets().len();
        tracing::info!("{}", progress(market_count, &now, now.frames - frames, totals));
        if totals.lines_lost > lines_lost {
            let count = totals.lines_lost - lines_lost;
            tracing::warn!("the disk is too slow: {count} more lines are missing from the tape");
        }
        (frames, lines_lost) = (now.frames, totals.lines_lost);
    }
}

/// Formats a progress line; `frames` is the number of frames since the previous line.
fn progress(market_count: usize, now: &LiveSnapshot, frames: u64, totals: TapeTotals) -> String {
    let tenths = frames.saturating_mul(10) / LOG_INTERVAL.as_secs();
    format!(
        "recording {market_count} markets: {} of {} tokens live, {} sockets, {}.{} frames a \
         second; so far {totals}",
        now.tokens[Freshness::Live as usize],
        now.tokens.iter().sum::<usize>(),
        now.sockets.iter().sum::<usize>(),
        tenths / 10,
        tenths % 10,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_reports_how_much_is_recorded() {
        let now = LiveSnapshot {
            tokens: [1, 38, 0, 1, 0],
            sockets: [0, 2, 0, 0, 0],
            ..LiveSnapshot::default()
        };
        let totals = TapeTotals {
            lines: 70_000,
            payload_bytes: 35_000_000,
            file_bytes: 4_000_000,
            files: 3,
            gaps: 1,
            lines_lost: 20,
        };
        assert_eq!(
            progress(20, &now, 62_405, totals),
            "recording 20 markets: 38 of 40 tokens live, 2 sockets, 1040.0 frames a second; so far \
             70000 lines of 35000000 bytes, 4000000 bytes in 3 files on disk; 1 gaps of 20 lines"
        );
        assert!(progress(1, &now, 9, totals).contains(" 0.1 frames a second"));
    }
}
