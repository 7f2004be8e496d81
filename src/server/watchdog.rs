//! Sends keep-alives to the supervisor's watchdog while every part of the process makes progress.
//!
//! A dedicated thread sends a beat to each part, four times per interval that the supervisor allows
//! between two messages. A part that leaves a beat unanswered for half of that interval counts as
//! hung, and no message is sent until the part answers. Time is counted in beats, so a machine that
//! was paused or a process that was stopped does not seem to hang afterwards.

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

/// Number of beats per supervisor interval.
const BEATS: u32 = 4;

/// Number of unanswered beats at which a part counts as hanging.
const BEHIND_MAX: u64 = 2;

/// The part that runs everything except requests. It also forwards beats to the shards.
const BACKGROUND: &str = "background";
/// The part that writes the journal.
const JOURNAL: &str = "journal";

/// The beats, and the parts that have to answer them.
#[derive(Debug)]
pub(super) struct Heart {
    beats: watch::Sender<u64>,
    /// Weak, so that a part that has ended, such as a drained worker, need not answer any more.
    parts: Mutex<Vec<Weak<Part>>>,
}

/// A part of the process that has to answer beats.
#[derive(Debug)]
struct Part {
    name: String,
    /// The newest beat that the part has answered.
    answered: AtomicU64,
    /// Whether the background thread forwards beats to the part.
    is_asked: bool,
}

impl Default for Heart {
    fn default() -> Self {
        Self { beats: watch::Sender::new(0), parts: Mutex::default() }
    }
}

impl Heart {
    /// Returns a future that answers each beat. Run it as a task on the thread that it answers for.
    pub(super) fn answer(&self, name: &str) -> impl Future<Output = ()> + Send + use<> {
        let part = self.part(name.to_owned(), false);
        let mut beats = self.beats.subscribe();
        async move {
            while beats.changed().await.is_ok() {
                part.answered.fetch_max(*beats.borrow_and_update(), Ordering::Relaxed);
            }
        }
    }

    /// Returns a future that answers each beat for the background thread and forwards it to the
    /// shards.
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

    /// Returns the names of the parts that hang at this beat.
    fn hanging(&self, beat: u64) -> BTreeSet<String> {
        let is_behind = |part: &&Arc<Part>| {
            let answered = part.answered.load(Ordering::Relaxed);
            debug_assert!(answered <= beat, "a part answers only beats that were sent");
            beat - answered >= BEHIND_MAX
        };
        let parts: Vec<_> = self.parts.lock().iter().filter_map(Weak::upgrade).collect();
        let behind: Vec<_> = parts.iter().filter(is_behind).collect();
        // While the background thread hangs, the shards get no beats, so they do not count.
        let is_background_behind = behind.iter().any(|part| part.name == BACKGROUND);
        let behind = behind.into_iter().filter(|part| !(part.is_asked && is_background_behind));
        behind.map(|part| part.name.clone()).collect()
    }
}

/// Starts the thread that sends a message at least once per `interval`. Must be called in the
/// background runtime.
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
    // The end of the journal one beat ago, which must be durable by now.
    let mut owed = app.journal.newest_lsn();
    for beat in 1.. {
        heart.beats.send_replace(beat);
        let newest = app.journal.newest_lsn();
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
        // The beat, the newest answer of each part, and the parts that hang.
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
        // The worker has ended, as if it had drained.
        assert!(!heart.hanging(9).contains("worker-0"));
    }
}
