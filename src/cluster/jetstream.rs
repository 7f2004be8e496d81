//! A replicated log in a NATS `JetStream` stream. The blocks are its messages, and an append is
//! conditional on the stream's last sequence.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::{DirectGetErrorKind, Stream};
use async_nats::jetstream::{self, Context};
use async_nats::{Client, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::streams;
use paperbourse_store::journal::replicated::{Appended, Extent, Log, NoAnswer, beyond};

/// The timeout for a request to a broker. After a timeout, the request's effect is unknown until
/// the log is read.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a broker may leave a question unanswered before the node connects to the next one. The
/// time doubles after each round of all brokers, up to the maximum. Electing a leader may take
/// longer than the minimum, but changing brokers does not slow the election down.
const SILENCE_MIN: Duration = Duration::from_secs(4);
const SILENCE_MAX: Duration = Duration::from_secs(64);
const BROKERS: u32 = 3;

/// The maximum length of an error's description, in bytes.
const REASON_BYTES_MAX: usize = 512;

/// The prefix of the broker's error message when the expected last sequence does not match.
const STALE: &str = "wrong last sequence: ";

/// A stream whose messages are the blocks of a log.
#[derive(Clone)]
pub struct JetStreamLog {
    client: Client,
    context: Context,
    stream: Stream<()>,
    name: String,
    /// Notified whenever a release is announced.
    released: Arc<Notify>,
    /// Indexed by [`Question`].
    silences: Arc<Mutex<[Silence; 2]>>,
}

/// The requests that a node repeats. Their silences are tracked separately: a broker that leads the
/// log but is cut off from the others accepts no more blocks, yet still reports the log's end for a
/// while.
#[derive(Clone, Copy)]
enum Question {
    Append,
    Extent,
}

/// How long a question has gone unanswered.
#[derive(Clone, Copy, Default)]
struct Silence {
    /// When the silence began, and when the question was last asked.
    lasting: Option<(Instant, Instant)>,
    /// Number of brokers that the node has left because of this silence.
    left: u32,
}

/// Returns a `JetStream` context on this connection, with the timeout [`PATIENCE`].
pub(super) fn context(client: Client) -> Context {
    let mut context = jetstream::new(client);
    context.set_timeout(PATIENCE);
    context
}

impl JetStreamLog {
    /// Opens the log in the stream with this name, which must exist.
    pub async fn open(client: Client, name: &str) -> Result<Self, NoAnswer> {
        let context = context(client.clone());
        let stream = context.get_stream_no_info(name).await.map_err(|error| no_answer(&error))?;
        let subscribed = client.subscribe(release_subject(name)).await;
        let mut releases = subscribed.map_err(|error| no_answer(&error))?;
        let released = Arc::new(Notify::new());
        tokio::spawn({
            let released = released.clone();
            async move {
                while releases.next().await.is_some() {
                    released.notify_one();
                }
            }
        });
        let (name, silences) = (name.to_owned(), Arc::default());
        Ok(Self { client, context, stream, name, released, silences })
    }

    /// Returns the connection to the brokers.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns an error if there is no connection, because the client would then queue the request
    /// until it reconnects, and send it long after the caller has given up.
    fn check_connected(&self) -> Result<(), NoAnswer> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            _ => Err(NoAnswer("there is no connection to a broker".to_owned())),
        }
    }

    /// Records whether a question was answered, and leaves a broker that has been silent for too
    /// long, since it may be cut off from the others.
    async fn note(&self, question: Question, is_answered: bool) {
        if note(&mut self.silences.lock(), question, is_answered, Instant::now()) {
            tracing::warn!(
                log = self.name,
                "this broker knows no leader of the log, connecting to the next"
            );
            // An error means that the client has shut down.
            let _ = self.client.force_reconnect().await;
        }
    }

    async fn publish(&self, expected: u64, block: Bytes) -> Result<u64, PublishError> {
        let message = PublishMessage::build()
            .payload(block)
            .expected_stream(&self.name)
            .expected_last_sequence(expected);
        let ack = self.context.send_publish(subject(&self.name), message).await?.await?;
        Ok(ack.sequence)
    }
}

/// Records whether a question was answered. Returns whether to leave the broker; if so, both
/// silences start again from zero with the next broker.
fn note(silences: &mut [Silence; 2], question: Question, is_answered: bool, now: Instant) -> bool {
    let silence = &mut silences[question as usize];
    if is_answered {
        *silence = Silence::default();
        return false;
    }
    let is_lasting = |&(_, asked): &(Instant, Instant)| now.duration_since(asked) <= SILENCE_MIN;
    let (since, _) = silence.lasting.filter(is_lasting).unwrap_or((now, now));
    silence.lasting = Some((since, now));
    let patience =
        SILENCE_MIN.saturating_mul(2_u32.saturating_pow(silence.left / BROKERS)).min(SILENCE_MAX);
    let is_over = now.duration_since(since) >= patience;
    if is_over {
        silence.left += 1;
        for silence in silences {
            silence.lasting = silence.lasting.map(|(_, asked)| (now, asked));
        }
    }
    is_over
}

/// Returns the subject of a stream's blocks.
pub(super) fn subject(stream: &str) -> String {
    format!("{stream}.blocks")
}

/// Returns the subject of release announcements, which no stream stores.
fn release_subject(stream: &str) -> String {
    format!("{stream}.released")
}

/// Formats the error and its causes.
pub(super) fn no_answer(error: &dyn std::error::Error) -> NoAnswer {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    // Parts of the text come from the broker, which does not bound them.
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
    NoAnswer(text)
}

/// Extracts the stream's last sequence from the error of an append whose condition failed.
fn stale_tail(error: &PublishError) -> Option<u64> {
    if error.kind() != PublishErrorKind::WrongLastSequence {
        return None;
    }
    let error = error.source()?.downcast_ref::<jetstream::Error>()?;
    let text = error.to_string();
    let (_, after) = text.split_once(STALE)?;
    let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

impl Log for JetStreamLog {
    fn name(&self) -> &str {
        &self.name
    }

    async fn append(&self, expected: u64, block: Bytes) -> Appended {
        if let Err(reason) = self.check_connected() {
            return Appended::Unknown(reason);
        }
        let appended = match self.publish(expected, block).await {
            Ok(sequence) if sequence == expected + 1 => Appended::Acknowledged,
            // The sequence is not the expected one, so only reading the log shows what was
            // appended.
            Ok(sequence) => Appended::Unknown(NoAnswer(format!(
                "block {} was acknowledged as {sequence}",
                expected + 1
            ))),
            Err(error) => match stale_tail(&error) {
                Some(tail) => Appended::Stale { tail },
                None => Appended::Unknown(no_answer(&error)),
            },
        };
        // Only an acknowledgement counts: a broker that is cut off calls the block stale because it
        // counts its own unreplicated copy.
        let is_answered = appended == Appended::Acknowledged;
        self.note(Question::Append, is_answered).await;
        appended
    }

    async fn read(&self, sequence: u64) -> Result<Option<Bytes>, NoAnswer> {
        self.check_connected()?;
        match self.stream.direct_get(sequence).await {
            Ok(message) if message.sequence == sequence => Ok(Some(message.payload)),
            Ok(message) => Err(NoAnswer(format!(
                "a broker was asked for block {sequence} and sent block {}",
                message.sequence
            ))),
            Err(error) => match error.kind() {
                DirectGetErrorKind::NotFound => Ok(None),
                // A broker that cannot read its copy answers with a status, and has no block to
                // offer.
                DirectGetErrorKind::ErrorResponse(status, _)
                    if status != StatusCode::NO_RESPONDERS =>
                {
                    Ok(None)
                }
                _ => Err(no_answer(&error)),
            },
        }
    }

    async fn extent(&self) -> Result<Extent, NoAnswer> {
        self.check_connected()?;
        let info = match self.stream.get_info().await {
            Ok(info) if streams::is_of_leader(&info) => Ok(info),
            Ok(_) => Err(NoAnswer(streams::NO_LEADER.to_owned())),
            Err(error) => Err(no_answer(&error)),
        };
        self.note(Question::Extent, info.is_ok()).await;
        let info = info?;
        // A stream that never had a block reports 0 as its first sequence.
        let first = info.state.first_sequence.max(1);
        Ok(Extent { first, last: info.state.last_sequence })
    }

    async fn trim(&self, below: u64) -> Result<(), NoAnswer> {
        // The broker takes 0 to mean all blocks, and a purge below 1 removes none.
        if below <= 1 {
            return Ok(());
        }
        // A purge past the end would make the stream continue from that sequence.
        let Extent { last, .. } = self.extent().await?;
        if below > last + 1 {
            return Err(beyond(below, last));
        }
        let purge = self.stream.purge().sequence(below);
        purge.await.map(|_| ()).map_err(|error| no_answer(&error))
    }

    async fn announce_release(&self) {
        let sent = self.client.publish(release_subject(&self.name), Bytes::new()).await;
        // The process may end before the client flushes on its own.
        if sent.is_ok() && timeout(PATIENCE, self.client.flush()).await.is_err() {
            tracing::debug!("the release was not announced in time");
        }
    }

    async fn release_announced(&self) {
        self.released.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_is_left_after_a_long_silence_and_the_next_has_its_time() {
        use Question::{Append, Extent};
        let began = Instant::now();
        let mut silences = Default::default();
        for (after_seconds, question, is_answered, expected) in [
            (0, Append, false, false),
            (3, Append, false, false),
            (3, Append, true, false),
            // Time during which a question is not asked does not count as silence.
            (90, Append, false, false),
            (93, Append, false, false),
            (93, Extent, false, false),
            (94, Append, false, true),
            // Both questions start again with the next broker.
            (97, Extent, false, false),
            (97, Append, false, false),
            (98, Extent, false, true),
            (101, Append, false, false),
            (102, Append, false, true),
            (106, Append, false, true),
            // All three brokers have been tried.
            (110, Append, false, false),
            (113, Append, false, false),
            (114, Append, false, true),
            (115, Append, true, false),
            (117, Append, false, false),
            (121, Append, false, true),
        ] {
            let now = began + Duration::from_secs(after_seconds);
            let leaves = note(&mut silences, question, is_answered, now);
            assert_eq!(leaves, expected, "{after_seconds}");
        }
    }

    #[test]
    fn brokers_are_not_left_more_often_than_once_a_minute_in_the_end() {
        let began = Instant::now();
        let mut silences = Default::default();
        let mut leaves = |second| {
            let now = began + Duration::from_secs(second);
            note(&mut silences, Question::Extent, false, now)
        };
        let left: Vec<u64> = (0..1_000).filter(|&second| leaves(second)).collect();
        assert_eq!(left[..8], [4, 8, 12, 20, 28, 36, 52, 68]);
        assert!(left.windows(2).skip(12).all(|pair| pair[1] - pair[0] == 64), "{left:?}");
    }
}
