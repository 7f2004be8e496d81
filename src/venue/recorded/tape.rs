//! Plays a tape from disk, line by line.

use std::fmt;

use crate::feed::Feed;
use crate::polymarket::live::Replay;
use crate::speed::{Ratio, Speed};
use crate::tape::{Line, Step, Tape};
use paperbourse_core::ids::Timestamp;

/// A player of a [`Tape`].
pub struct TapePlayer {
    tape: Tape,
    replay: Replay,
    /// `None` if everything was played at the start.
    speed: Option<Ratio>,
}

impl TapePlayer {
    /// Creates a player. With [`Speed::Max`] this plays the whole tape; at other speeds
    /// [`Self::run`] does.
    pub fn start(tape: Tape, speed: Speed, feed: Feed) -> Self {
        feed.markets().set_delay_speed(speed.micros());
        let mut player = Self { tape, replay: Replay::new(feed), speed: None };
        match speed {
            Speed::Max => {
                while let Some(line) = next(&mut player.tape, &mut player.replay) {
                    line.inspect(|line| player.replay.take(line));
                }
            }
            Speed::Times(ratio) => player.speed = Some(ratio),
        }
        player
    }

    /// Returns the feed that receives the events.
    pub fn feed(&self) -> &Feed {
        self.replay.feed()
    }

    /// Plays the tape at its own pace and returns after the last line, leaving the final state.
    /// Timing starts with this call, and again with each session, so pauses between sessions are
    /// skipped.
    pub async fn run(&mut self) {
        let Some(ratio) = self.speed else { return };
        let mut pace: Option<(tokio::time::Instant, Timestamp)> = None;
        while let Some(line) = next(&mut self.tape, &mut self.replay) {
            let Some(line) = line else { continue };
            if line.kind == "begin" {
                pace = None;
            }
            let at = Timestamp::from_nanos(line.ns);
            let (began, start) = *pace.get_or_insert_with(|| (tokio::time::Instant::now(), at));
            if let Some(due) = began.checked_add(ratio.delay(start, at)) {
                tokio::time::sleep_until(due).await;
            }
            // A tape can wait until the shards have matched earlier books, so that the queue does
            // not overflow.
            self.replay.feed().markets().crossings_room().await;
            self.replay.take(&line);
        }
        // At the end of the tape the venue's time stops, so no order may wait for it any longer.
        self.feed().markets().set_delay_speed(0);
        tracing::info!(totals = %self, "tape played to its end");
    }
}

/// Returns the next line, or `Some(None)` for lines that are missing or cannot be parsed; `None` at
/// the end.
fn next<'a>(tape: &'a mut Tape, replay: &mut Replay) -> Option<Option<Line<'a>>> {
    match tape.step()? {
        Step::Missing(count) => {
            replay.miss(count);
            Some(None)
        }
        Step::Line(line) => {
            let line = Line::read(line);
            if line.is_err() {
                replay.note_unusable();
            }
            Some(line.ok())
        }
    }
}

impl fmt::Display for TapePlayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tape, counts) = (self.tape.report(), self.replay.counts());
        write!(formatter, "{tape}; {counts}; {}", self.feed().counts())
    }
}
