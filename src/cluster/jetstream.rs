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
use crate::journal::replicated::{Appended, Extent, Log, NoAnswer, beyond};

/// How long a broker may take to answer. After that, what it did is unknown until the log is read.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// How long a broker may answer nothing. An election of a leader may take longer, but to change the
/// connection does not make it any slower.
const SILENCE_MAX: Duration = Duration::from_secs(4);

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
    silence: Arc<Silence>,
}

/// Since when a broker has acknowledged none of the blocks that it was sent, and has not said where
/// the log ends. Apart from each other: one that leads the log and is cut off from the others takes
/// no block any more, and answers all other questions for a while.
#[derive(Default)]
struct Silence {
    append_since: Mutex<Option<Instant>>,
    extent_since: Mutex<Option<Instant>>,
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
        let (name, silence) = (name.to_owned(), Arc::default());
        Ok(Self { client, context, stream, name, released, silence })
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

    /// Notes whether a question was answered. A broker that has been silent for long is left for
    /// another: it may be cut off from the rest.
    async fn note(&self, silent_since: &Mutex<Option<Instant>>, is_answered: bool) {
        if is_too_long(&mut silent_since.lock(), is_answered, Instant::now()) {
            tracing::warn!(log = self.name, "a broker does not answer, connecting to another");
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

/// Whether a broker has been silent for too long by now. If so, another one has some time too.
fn is_too_long(silent_since: &mut Option<Instant>, is_answered: bool, now: Instant) -> bool {
    if is_answered {
        *silent_since = None;
        return false;
    }
    let since = silent_since.get_or_insert(now);
    let is_too_long = now.duration_since(*since) >= SILENCE_MAX;
    if is_too_long {
        *since = now;
    }
    is_too_long
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
        self.note(&self.silence.append_since, is_answered).await;
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
        self.note(&self.silence.extent_since, info.is_ok()).await;
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
        let began = Instant::now();
        let mut silent_since = None;
        for (after_seconds, is_answered, expected) in [
            (0, false, false),
            (3, false, false),
            (3, true, false),
            // It begins with the first question that stays without an answer, however late.
            (90, false, false),
            (93, false, false),
            (94, false, true),
            (97, false, false),
            (98, false, true),
            (99, true, false),
            (104, false, false),
        ] {
            let now = began + Duration::from_secs(after_seconds);
            let found = is_too_long(&mut silent_since, is_answered, now);
            assert_eq!(found, expected, "{after_seconds} {is_answered}");
        }
    }
}
