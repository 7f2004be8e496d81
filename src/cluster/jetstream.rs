//! A replicated log in a stream of NATS `JetStream`: the blocks are its messages, and the condition
//! of an append is the stream's last sequence.

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

/// How long a broker may take to answer. After that, what it did is unknown until the log is read.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a broker may leave a question unanswered before the node connects to the next one. The
/// time doubles after each round of all brokers, up to the maximum. Electing a leader may take
/// longer than the minimum, and changing the broker does not slow it down.
const SILENCE_MIN: Duration = Duration::from_secs(4);
const SILENCE_MAX: Duration = Duration::from_secs(64);
const BROKERS: u32 = 3;

/// Longest description of an error, in bytes.
const REASON_BYTES_MAX: usize = 512;

/// How a broker describes the error whose code says that the condition does not hold.
const STALE: &str = "wrong last sequence: ";

/// One stream, whose messages are the blocks of a log.
#[derive(Clone)]
pub struct JetStreamLog {
    client: Client,
    context: Context,
    stream: Stream<()>,
    name: String,
    /// Notified at each release that is announced.
    released: Arc<Notify>,
    /// Of [`Question::Append`] and of [`Question::Extent`].
    silences: Arc<Mutex<[Silence; 2]>>,
}

/// The requests that go to a broker again and again. Each is judged alone: a broker that leads the
/// log and is cut off from the others takes no block any more, but says for a while where the log
/// ends.
#[derive(Clone, Copy)]
enum Question {
    Append,
    Extent,
}

/// How long a question has been unanswered.
#[derive(Clone, Copy, Default)]
struct Silence {
    /// Since when, and when it was last asked.
    lasting: Option<(Instant, Instant)>,
    /// How many brokers the node has left because of it.
    left: u32,
}

/// The requests to `JetStream` on this connection.
pub(super) fn context(client: Client) -> Context {
    let mut context = jetstream::new(client);
    context.set_timeout(PATIENCE);
    context
}

impl JetStreamLog {
    /// The log in the stream with this name, which must exist.
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

    /// The connection to the brokers.
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// An error while there is no connection. A request would wait for one in the client's queue,
    /// and go out then, long after its answer was given up.
    fn check_connected(&self) -> Result<(), NoAnswer> {
        match self.client.connection_state() {
            State::Connected => Ok(()),
            _ => Err(NoAnswer("there is no connection to a broker".to_owned())),
        }
    }

    /// Notes whether a question was answered, and leaves a broker that has been silent for too
    /// long: it may be cut off from the others.
    async fn note(&self, question: Question, is_answered: bool) {
        if note(&mut self.silences.lock(), question, is_answered, Instant::now()) {
            tracing::warn!(
                log = self.name,
                "this broker knows no leader of the log, connecting to the next"
            );
            // It fails only if the connection was given up.
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

/// Notes whether a question was answered. Returns whether to leave the broker; the next one then
/// gets its own time for both questions.
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

/// The subject of a stream's messages.
pub(super) fn subject(stream: &str) -> String {
    format!("{stream}.blocks")
}

/// The subject of announcements, which no stream keeps.
fn release_subject(stream: &str) -> String {
    format!("{stream}.released")
}

/// The error with its causes.
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
    // Parts of it are a broker's own words.
    if text.len() > REASON_BYTES_MAX {
        text.truncate(text.floor_char_boundary(REASON_BYTES_MAX));
        text.push('…');
    }
    NoAnswer(text)
}

/// The tail in the text of an error that says that the condition does not hold.
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
            // Whatever that was, what is in the log decides.
            Ok(sequence) => Appended::Unknown(NoAnswer(format!(
                "block {} was acknowledged as {sequence}",
                expected + 1
            ))),
            Err(error) => match stale_tail(&error) {
                Some(tail) => Appended::Stale { tail },
                None => Appended::Unknown(no_answer(&error)),
            },
        };
        // A broker that is cut off says so of its own block too.
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
                // A broker that cannot read its copy says so with a status, and has no block.
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
        // A stream that never had a block begins at 0.
        let first = info.state.first_sequence.max(1);
        Ok(Extent { first, last: info.state.last_sequence })
    }

    async fn trim(&self, below: u64) -> Result<(), NoAnswer> {
        // To a broker, 0 means all blocks, and 1 none at all.
        if below <= 1 {
            return Ok(());
        }
        // Behind a purge, a stream goes on from where it was purged to, wherever that is.
        let Extent { last, .. } = self.extent().await?;
        if below > last + 1 {
            return Err(beyond(below, last));
        }
        let purge = self.stream.purge().sequence(below);
        purge.await.map(|_| ()).map_err(|error| no_answer(&error))
    }

    async fn announce_release(&self) {
        let sent = self.client.publish(release_subject(&self.name), Bytes::new()).await;
        // The process may end before the client sends it on its own.
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
            // Without a question there is no silence.
            (90, Append, false, false),
            (93, Append, false, false),
            (93, Extent, false, false),
            (94, Append, false, true),
            // The next one begins anew with both questions.
            (97, Extent, false, false),
            (97, Append, false, false),
            (98, Extent, false, true),
            (101, Append, false, false),
            (102, Append, false, true),
            (106, Append, false, true),
            // All three have been asked.
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
