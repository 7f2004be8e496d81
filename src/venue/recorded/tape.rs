//! Plays a tape from the disk, line by line.

use std::fmt;

use crate::ids::Timestamp;
use crate::venue::feed::Feed;
use crate::venue::polymarket::live::Replay;
use crate::venue::speed::{Ratio, Speed};
use crate::venue::tape::{Line, Step, Tape};

/// A tape that is being played.
pub struct TapePlayer {
    tape: Tape,
    replay: Replay,
    /// `None` when everything was played at the start.
    speed: Option<Ratio>,
}

impl TapePlayer {
    /// Begins to play. With [`Speed::Max`] the whole tape has been played when this returns; at
    /// another speed [`Self::run`] plays it.
    pub fn start(tape: Tape, speed: Speed, feed: Feed) -> Self {
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

    /// The feed that it plays to.
    pub fn feed(&self) -> &Feed {
        self.replay.feed()
    }

    /// Plays the tape at its own pace and returns at its end: the last state stands. The pace
    /// counts from the call, and anew with each session: nobody waits for what nobody recorded.
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
            self.replay.take(&line);
        }
        tracing::info!("recording: the tape has ended: {self}");
    }
}

/// The next line, or `None` in its place where it cannot be played.
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

/// One line.
impl fmt::Display for TapePlayer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tape, counts) = (self.tape.report(), self.replay.counts());
        write!(formatter, "{tape}; {counts}; {}", self.feed().counts())
    }
}
