//! Tells the supervisor's watchdog that the process is alive, for as long as each of its parts
//! makes progress.
//!
//! A thread of its own sends a beat to each part, four times in the time that the supervisor allows
//! between two messages. A part that has left a beat unanswered for half of that time hangs, and
//! until it answers, no message is sent. Time is counted in the beats that this thread sent: a
//! machine that was paused, or a process that was stopped, has sent none meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::supervisor::Supervisor;
use crate::http::app::AppState;
use crate::ids::ShardId;

/// How many beats there are in the time that the supervisor allows.
const BEATS: u32 = 4;

/// A part that is this many beats behind hangs.
const BEHIND_MAX: u64 = 2;

/// The part that runs everything but requests. It also asks the shards.
const BACKGROUND: &str = "background";
/// The part that writes the journal.
const JOURNAL: &str = "journal";

/// The beats, and who has to answer them.
#[derive(Debug)]
pub(super) struct Heart {
    beats: watch::Sender<u64>,
    /// A part that has ended, such as a worker that has drained, answers no more and is gone.
    parts: Mutex<Vec<Weak<Part>>>,
}

/// One part of the process.
#[derive(Debug)]
struct Part {
    name: String,
    /// The newest beat that it has answered.
    answered: AtomicU64,
    /// Whether the background asks it.
    is_asked: bool,
}

impl Default for Heart {
    fn default() -> Self {
        Self { beats: watch::Sender::new(0), parts: Mutex::default() }
    }
}

impl Heart {
    /// Answers each beat in the name of this thread. Run it as a task there.
    pub(super) fn answer(&self, name: &str) -> impl Future<Output = ()> + Send + use<> {
        let part = self.part(name.to_owned(), false);
        let mut beats = self.beats.subscribe();
        async move {
            while beats.changed().await.is_ok() {
                part.answered.fetch_max(*beats.borrow_and_update(), Ordering::Relaxed);
            }
        }
    }

    /// Answers each beat on behalf of this thread, and passes the beat on to the shards.
    fn answer_with_shards(&self, app: Arc<AppState>) -> impl Future<Output = ()> + use<> {
        let part = self.part(BACKGROUND.to_owned(), false);
        let name = |shard: ShardId| format!("shard {}", shard.index());
        let shards: Vec<_> =
            ShardId::all().map(|shard| (shard, self.part(name(shard), true))).collect();
        let mut beats = self.beats.subscribe();
        async move {
            while beats.changed().await.is_ok() {
                let beat = *beats.borrow_and_update();
                part.answered.fetch_max(beat, Ordering::Relaxed);
                for (shard, part) in &shards {
                    let part = part.clone();
                    app.service.when_shard_progresses(*shard, move || {
                        part.answered.fetch_max(beat, Ordering::Relaxed);
                    });
                }
            }
        }
    }

    fn part(&self, name: String, is_asked: bool) -> Arc<Part> {
        let answered = AtomicU64::new(*self.beats.borrow());
        let part = Arc::new(Part { name, answered, is_asked });
        self.parts.lock().push(Arc::downgrade(&part));
        part
    }

    /// Who hangs at this beat.
    fn hanging(&self, beat: u64) -> BTreeSet<String> {
        let is_behind =
            |part: &&Arc<Part>| beat - part.answered.load(Ordering::Relaxed) >= BEHIND_MAX;
        let parts: Vec<_> = self.parts.lock().iter().filter_map(Weak::upgrade).collect();
        let behind: Vec<_> = parts.iter().filter(is_behind).collect();
        // The shards are not asked while the background hangs.
        let is_background_behind = behind.iter().any(|part| part.name == BACKGROUND);
        let behind = behind.into_iter().filter(|part| !(part.is_asked && is_background_behind));
        behind.map(|part| part.name.clone()).collect()
    }
}

/// Starts to send messages at this interval or more often, from inside the background runtime.
pub(super) fn start(
    heart: Arc<Heart>,
    supervisor: Arc<Supervisor>,
    app: Arc<AppState>,
    interval: Duration,
) -> anyhow::Result<()> {
    tokio::spawn(heart.answer_with_shards(app.clone()));
    tracing::info!(interval_ms = interval.as_millis(), "reporting to the supervisor's watchdog");
    thread::Builder::new()
        .name("watchdog".to_owned())
        .spawn(move || watch(&heart, &supervisor, &app, interval / BEATS))
        .context("failed to start the watchdog's thread")?;
    Ok(())
}

fn watch(heart: &Heart, supervisor: &Supervisor, app: &AppState, pause: Duration) {
    supervisor.alive();
    let mut known = BTreeSet::new();
    // What the journal still had to write one beat ago.
    let mut owed = app.journal.newest_place();
    for beat in 1.. {
        heart.beats.send_replace(beat);
        let newest = app.journal.newest_place();
        thread::sleep(pause);
        let mut hanging = heart.hanging(beat);
        if !app.journal.is_durable(owed) {
            hanging.insert(JOURNAL.to_owned());
        }
        owed = newest;
        for part in hanging.difference(&known) {
            tracing::error!(
                part,
                "a part of the server hangs: reports to the supervisor's watchdog stop until it \
                 goes on"
            );
        }
        for part in known.difference(&hanging) {
            tracing::warn!(part, "a part of the server no longer hangs");
        }
        if hanging.is_empty() {
            supervisor.alive();
        }
        known = hanging;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_part_hangs_once_it_is_two_beats_behind() {
        let heart = Heart::default();
        let worker = tokio::spawn(heart.answer("worker-0"));
        let (background, shard) =
            (heart.part(BACKGROUND.to_owned(), false), heart.part("shard 7".to_owned(), true));
        // The beat, what each part has answered by then, and who hangs.
        for (beat, of_background, of_shard, expected) in [
            (1, 0, 0, vec![]),
            (2, 1, 1, vec![]),
            (3, 3, 1, vec!["shard 7"]),
            (4, 3, 4, vec![]),
            (5, 3, 4, vec![BACKGROUND]),
            (6, 3, 4, vec![BACKGROUND]),
            (7, 7, 4, vec!["shard 7"]),
        ] {
            heart.beats.send_replace(beat);
            while heart.parts.lock()[0].upgrade().unwrap().answered.load(Ordering::Relaxed) < beat {
                tokio::task::yield_now().await;
            }
            background.answered.store(of_background, Ordering::Relaxed);
            shard.answered.store(of_shard, Ordering::Relaxed);
            let hanging: Vec<String> = heart.hanging(beat).into_iter().collect();
            assert_eq!(hanging, expected, "beat {beat}");
        }
        worker.abort();
        let _ = worker.await;
        heart.beats.send_replace(9);
        // It has ended, as a worker does that has drained.
        assert!(!heart.hanging(9).contains("worker-0"));
    }
}
