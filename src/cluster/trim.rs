//! Trims blocks that the brokers no longer need: those that are older than the cluster file's
//! `keep_minutes` and whose records are on the disks of at least two nodes.
//!
//! Nodes report their position on disk to the owner ([`report`]), in messages that no stream
//! stores. A node that was away for too long finds that the log begins after its own records, and
//! needs another node's data ([`copies`](super::copies)).

use std::collections::{BTreeMap, VecDeque};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use async_nats::Client;
use futures_util::StreamExt as _;
use tokio::time::{Instant, interval, sleep};

use super::jetstream::JetStreamLog;
use super::seat::Seat;
use paperbourse_store::journal::Journal;
use paperbourse_store::journal::replicated::{Log as _, NodeName};

/// The interval between a node's reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// A node that has not reported for this long may be gone, and its disk with it, so it does not
/// count.
const REPORT_AGE_MAX: Duration = Duration::from_secs(10);

/// The maximum number of nodes whose reports are kept.
const NODES_MAX: usize = 64;

/// Number of nodes that must have a record before the brokers may drop it.
const COPIES_MIN: usize = 2;

/// Number of trims in the time for which blocks are kept.
const TRIMS_PER_TIME: u32 = 60;

/// The minimum time between two trims.
const TRIM_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The maximum number of marks kept while nothing can be trimmed.
const MARKS_MAX: usize = 10 * TRIMS_PER_TIME as usize;

/// The end of the log at some moment.
struct Mark {
    at: Instant,
    /// The position of the newest record.
    position: u64,
    /// The sequence of the newest block.
    sequence: u64,
}

/// The ages of a log's blocks and the positions of its copies. A standby keeps them too, so that
/// after a takeover blocks do not have to age again before they are trimmed.
pub struct Trim {
    kept_for: Duration,
    /// The marks, oldest first.
    marks: VecDeque<Mark>,
    /// Each other node's position on disk, and when the node reported it.
    copies: BTreeMap<NodeName, (u64, Instant)>,
}

impl Trim {
    /// Creates the state for a log whose blocks are kept for at least this long.
    pub fn new(kept_for: Duration) -> Self {
        Self { kept_for, marks: VecDeque::new(), copies: BTreeMap::new() }
    }

    fn interval(&self) -> Duration {
        (self.kept_for / TRIMS_PER_TIME).max(TRIM_INTERVAL_MIN)
    }

    /// Records that a node has everything up to `position` on disk. Reports that are too old are
    /// dropped.
    fn reported(&mut self, node: NodeName, position: u64, now: Instant) {
        self.copies.retain(|_, &mut (_, at)| now.duration_since(at) <= REPORT_AGE_MAX);
        if self.copies.len() < NODES_MAX || self.copies.contains_key(&node) {
            self.copies.insert(node, (position, now));
        }
    }

    /// Records that the log reaches at least this record and this block. Keeps a mark only if the
    /// last one is old enough and the log has grown.
    pub fn mark(&mut self, position: u64, sequence: u64, at: Instant) {
        let newest = self.marks.back();
        debug_assert!(
            newest.is_none_or(|it| it.position <= position && it.sequence <= sequence),
            "a log only grows"
        );
        if newest.is_some_and(|newest| {
            newest.sequence == sequence || at.duration_since(newest.at) < self.interval()
        }) {
            return;
        }
        if self.marks.len() == MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark { at, position, sequence });
    }

    /// Whether blocks have been due for a trim for a long time, but no second node has them.
    fn is_stuck(&self, now: Instant) -> bool {
        let stuck_after = 2 * self.kept_for.max(REPORT_AGE_MAX);
        self.marks.front().is_some_and(|oldest| now.duration_since(oldest.at) > stuck_after)
    }

    /// Returns the block below which the log can be trimmed, given that this node has everything up
    /// to `position`. Each block is returned once.
    fn due(&mut self, position: u64, now: Instant) -> Option<u64> {
        let is_fresh = |&&(_, at): &&(u64, Instant)| now.duration_since(at) <= REPORT_AGE_MAX;
        let others = self.copies.values().filter(is_fresh).map(|&(position, _)| position);
        // Sorted from the highest, so the entry at `COPIES_MIN - 1` is a position that at least
        // that many nodes have reached.
        let mut positions: Vec<u64> = others.chain([position]).collect();
        positions.sort_unstable_by(|a, b| b.cmp(a));
        let safe = *positions.get(COPIES_MIN - 1)?;
        let mut below = None;
        while let Some(mark) = self.marks.front()
            && mark.position <= safe
            && now.duration_since(mark.at) >= self.kept_for
        {
            below = Some(mark.sequence);
            self.marks.pop_front();
        }
        below
    }
}

/// Returns the subject of the reports.
fn subject(log: &JetStreamLog) -> String {
    format!("{}.copies", log.name())
}

/// Reports this node's position on disk to the owner, every [`REPORT_INTERVAL`]. Never returns.
pub async fn report(log: JetStreamLog, node: NodeName, journal: Arc<Journal>) {
    let (client, subject) = (log.client(), subject(&log));
    loop {
        let text = format!("{node} {}", journal.durable_lsn().position());
        // A lost report does no harm: the next one supersedes it.
        let _ = client.publish(subject.clone(), text.into()).await;
        sleep(REPORT_INTERVAL).await;
    }
}

/// Trims the log for its owner, until the seat is left.
pub async fn keep_trimmed(
    log: JetStreamLog,
    seat: Arc<Seat<JetStreamLog>>,
    node: NodeName,
    journal: Arc<Journal>,
    mut trim: Trim,
) {
    let mut is_told = false;
    let mut looks = interval(trim.interval());
    let mut reports = subscribe(log.client(), subject(&log)).await;
    loop {
        tokio::select! {
            message = reports.next() => match message {
                Some(message) => {
                    if let Some((other, position)) = parse(&message.payload)
                        && other != node
                    {
                        trim.reported(other, position, Instant::now());
                    }
                }
                None => reports = subscribe(log.client(), subject(&log)).await,
            },
            _ = looks.tick() => {
                let Some((position, sequence)) = seat.end().await else { return };
                let now = Instant::now();
                trim.mark(position, sequence, now);
                let Some(below) = trim.due(journal.durable_lsn().position(), now) else {
                    if trim.is_stuck(now) && !is_told {
                        tracing::warn!(
                            "cannot trim the log: no other node reports that it has the records \
                             that are older than keep_minutes"
                        );
                        is_told = true;
                    }
                    continue;
                };
                is_told = false;
                match log.trim(below).await {
                    Ok(()) => tracing::debug!(below, "trimmed the log"),
                    // The next trim removes these blocks too.
                    Err(error) => tracing::warn!(below, %error, "failed to trim the log"),
                }
            }
        }
    }
}

async fn subscribe(client: &Client, subject: String) -> async_nats::Subscriber {
    loop {
        match client.subscribe(subject.clone()).await {
            Ok(subscriber) => return subscriber,
            Err(error) => {
                tracing::warn!(%error, "failed to subscribe to the reports of other nodes");
                sleep(REPORT_INTERVAL).await;
            }
        }
    }
}

/// Parses a report into the node's name and its position on disk.
fn parse(message: &[u8]) -> Option<(NodeName, u64)> {
    let (node, position) = str::from_utf8(message).ok()?.split_once(' ')?;
    Some((NodeName::new(node).ok()?, u64::from_str(position).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    /// The owner has everything up to record 30. After 0, 1 and 2 minutes, the log ended with
    /// records 10, 20 and 30, in blocks 100, 200 and 300.
    #[test]
    fn blocks_are_trimmed_once_two_nodes_have_them_and_their_time_is_over() {
        for (copies, after_minutes, expected) in [
            (&[][..], 100, None),
            (&[("b", 0)], 100, None),
            (&[("b", 9)], 100, None),
            (&[("b", 10)], 100, Some(100)),
            (&[("b", 29)], 100, Some(200)),
            (&[("b", 31)], 100, Some(300)),
            (&[("b", 10), ("c", 20)], 100, Some(200)),
            (&[("b", 30)], 9, None),
            (&[("b", 30)], 10, Some(100)),
            (&[("b", 30)], 11, Some(200)),
        ] {
            let began = Instant::now();
            let mut trim = Trim::new(10 * MINUTE);
            assert_eq!(trim.interval(), MINUTE / 6);
            for number in 1..=3 {
                trim.mark(
                    10 * u64::from(number),
                    100 * u64::from(number),
                    began + (number - 1) * MINUTE,
                );
            }
            let now = began + after_minutes * MINUTE;
            for &(name, position) in copies {
                trim.reported(node(name), position, now);
            }
            assert_eq!(trim.due(30, now), expected, "{copies:?} {after_minutes}");
            assert_eq!(trim.due(30, now), None, "once");
            assert_eq!(trim.is_stuck(now), after_minutes > 20 && expected != Some(300));
            let stale = now + REPORT_AGE_MAX + Duration::from_secs(1) + 100 * MINUTE;
            assert_eq!(trim.due(30, stale), None, "those nodes may be gone");
        }
    }

    #[test]
    fn there_are_few_marks_however_long_nothing_can_be_trimmed() {
        let began = Instant::now();
        let mut trim = Trim::new(10 * MINUTE);
        for second in 0..100_000 {
            trim.mark(second, second, began + Duration::from_secs(second));
        }
        assert_eq!(trim.marks.len(), MARKS_MAX);
        let now = began + Duration::from_secs(100_000);
        trim.mark(100_000, 99_990, now);
        assert_eq!(trim.marks.back().map(|mark| mark.at), Some(now - Duration::from_secs(10)));
        trim.reported(node("b"), u64::MAX, now);
        assert_eq!(trim.due(u64::MAX, now), Some(99_400), "those of the last ten minutes stay");
    }

    #[test]
    fn a_stranger_cannot_fill_the_table_of_nodes() {
        let now = Instant::now();
        let mut trim = Trim::new(MINUTE);
        for number in 0..1_000 {
            trim.reported(node(&format!("node-{number}")), 1, now);
        }
        assert_eq!(trim.copies.len(), NODES_MAX);
        trim.reported(node("node-3"), 7, now);
        assert_eq!(trim.copies[&node("node-3")].0, 7);
        trim.reported(node("later"), 1, now + 2 * REPORT_AGE_MAX);
        assert_eq!(trim.copies.len(), 1);
    }

    #[test]
    fn what_is_no_report_is_ignored() {
        assert_eq!(parse(b"node-1 7"), Some((node("node-1"), 7)));
        for text in ["", "node-1", "node-1 ", "node-1 -7", "node-1 7 8", " 7", "a/b 7"] {
            assert_eq!(parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(parse(&[0xff, b' ', b'7']), None);
    }
}
