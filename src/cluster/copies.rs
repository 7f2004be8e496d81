//! Lets a node without data copy another node's data, through questions and answers. Each question
//! is a separate request, so the node that asks sets the pace, and the brokers store nothing.

use std::sync::Arc;
use std::time::Duration;

use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::{Client, Message, Request, Subscriber};
use bytes::Bytes;
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

use super::link::{is_name, random_name};
use super::{ClusterError, ClusterFile, connect};
use paperbourse_store::journal::replicated::NodeName;

/// The maximum size of an answer, in bytes. Brokers accept messages of up to a megabyte.
pub const ANSWER_BYTES_MAX: usize = 512 << 10;

/// How long to wait for a node to offer its data.
const FIND_TIME_MAX: Duration = Duration::from_secs(3);

/// The timeout for an answer. The node may have to read its whole journal for it.
const ANSWER_TIME_MAX: Duration = Duration::from_mins(1);

/// A node that has asked no question for this long is presumed gone.
pub const IDLE_MAX: Duration = Duration::from_secs(90);

const _: () = assert!(IDLE_MAX.as_secs() > ANSWER_TIME_MAX.as_secs());

/// How long a node of last resort waits before it offers its data, so that other nodes offer theirs
/// first.
const LAST_CHOICE_PAUSE: Duration = Duration::from_millis(250);

/// The pause before the next attempt to connect to the brokers.
const CONNECT_PAUSE: Duration = Duration::from_secs(1);

/// The first byte of a successful answer, and of an error.
const ANSWER: u8 = b'+';
const ERROR: u8 = b'-';

/// A node that offers its data.
pub struct Peer {
    /// The name of that node.
    pub node: NodeName,
    client: Client,
    subject: String,
    /// The name of this node, sent with each question.
    asker: NodeName,
}

/// Answers other nodes' questions about this node's data.
pub trait Answers: Send + 'static {
    /// Returns the answer, or the reason that there is none.
    fn answer(&mut self, asker: &str, question: &str) -> Result<Vec<u8>, String>;

    /// Called when no question has arrived for [`IDLE_MAX`]: the node that asked may be gone.
    fn idle(&mut self);
}

/// An error asking another node.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// There is no connection to the brokers.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// No node has data, or none has offered it in time.
    #[error("no node offers its data")]
    Nobody,
    /// The node or the brokers do not answer.
    #[error("no answer: {0}")]
    Silence(#[from] RequestError),
    /// The node replied with an error.
    #[error("{0}")]
    Refused(String),
}

impl Peer {
    /// Connects to the brokers and returns the first node that offers its data. The owner of the
    /// log answers last, and so does the node from which a copy has `failed`.
    pub async fn find(
        file: &ClusterFile,
        asker: NodeName,
        failed: Option<&NodeName>,
    ) -> Result<Self, AskError> {
        let client = connect(file, file.options().map_err(ClusterError::from)?).await?;
        let failed = failed.map_or_else(String::new, NodeName::to_string);
        let request = Request::new().payload(failed.into()).timeout(Some(FIND_TIME_MAX));
        let found = client.send_request(offers_subject(file), request).await;
        let found = found.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders | RequestErrorKind::TimedOut => AskError::Nobody,
            _ => error.into(),
        })?;
        let parsed = str::from_utf8(&found.payload).ok().and_then(|text| {
            let (node, name) = text.split_once(' ')?;
            Some((NodeName::new(node).ok()?, Some(name).filter(|name| is_name(name))?))
        });
        let (node, name) = parsed.ok_or(AskError::Nobody)?;
        Ok(Self { node, subject: questions_subject(file, name), client, asker })
    }

    /// Sends a question and returns the node's answer.
    pub async fn ask(&self, question: &str) -> Result<Bytes, AskError> {
        let question = format!("{} {question}", self.asker);
        let request = Request::new().payload(question.into()).timeout(Some(ANSWER_TIME_MAX));
        let mut answer = self.client.send_request(self.subject.clone(), request).await?.payload;
        match answer.split_to(answer.len().min(1)).first() {
            Some(&ANSWER) => Ok(answer),
            _ => Err(AskError::Refused(String::from_utf8_lossy(&answer).into_owned())),
        }
    }
}

/// Offers this node's data to others and answers their questions one at a time, over a dedicated
/// connection.
pub async fn offer(
    file: ClusterFile,
    node: NodeName,
    is_owner: impl Fn() -> bool,
    answers: impl Answers,
) {
    let name = random_name();
    let mut is_told = false;
    let (client, mut offers, questions) = loop {
        match listen(&file, &name).await {
            Ok(listening) => break listening,
            Err(error) if is_told => {
                tracing::debug!(%error, "still cannot offer this node's data to new nodes");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot offer this node's data to new nodes yet");
                is_told = true;
            }
        }
        sleep(CONNECT_PAUSE).await;
    };
    // In a separate task, since an answer may take longer than a node waits for an offer.
    tokio::spawn(answer_all(client.clone(), questions, answers));
    let offered = Bytes::from(format!("{node} {name}"));
    while let Some(message) = offers.next().await {
        if is_owner() || message.payload == node.as_str() {
            sleep(LAST_CHOICE_PAUSE).await;
        }
        if let Some(reply) = message.reply {
            // A lost offer does no harm: the node that gets none asks again.
            let _ = client.publish(reply, offered.clone()).await;
        }
    }
}

async fn answer_all(client: Client, mut questions: Subscriber, answers: impl Answers) {
    let answers = Arc::new(Mutex::new(answers));
    loop {
        let Ok(question) = timeout(IDLE_MAX, questions.next()).await else {
            answers.lock().idle();
            continue;
        };
        let Some(Message { payload, reply, .. }) = question else { return };
        let Some(reply) = reply else { continue };
        let answers = answers.clone();
        // An answer may block on the disk for a while.
        let answered = spawn_blocking(move || {
            let question = String::from_utf8_lossy(&payload);
            let (asker, question) = question.split_once(' ').unwrap_or_default();
            (*answers.lock()).answer(asker, question)
        });
        let (kind, text) = match answered.await {
            Ok(Ok(bytes)) if bytes.len() <= ANSWER_BYTES_MAX => (ANSWER, bytes),
            Ok(Ok(bytes)) => (ERROR, format!("{} bytes are too many", bytes.len()).into()),
            Ok(Err(reason)) => (ERROR, reason.into_bytes()),
            Err(panicked) => (ERROR, panicked.to_string().into_bytes()),
        };
        let _ = client.publish(reply, [&[kind], text.as_slice()].concat().into()).await;
    }
}

async fn listen(
    file: &ClusterFile,
    name: &str,
) -> Result<(Client, Subscriber, Subscriber), AskError> {
    let client = connect(file, file.options().map_err(ClusterError::from)?).await?;
    let refused = |error: async_nats::SubscribeError| AskError::Refused(error.to_string());
    let offers = client.subscribe(offers_subject(file)).await.map_err(refused)?;
    let questions = client.subscribe(questions_subject(file, name)).await.map_err(refused)?;
    Ok((client, offers, questions))
}

/// The subject on which nodes looking for data ask for offers.
fn offers_subject(file: &ClusterFile) -> String {
    format!("{}.offers", file.first_stream())
}

/// The subject on which the node offering under this name receives questions.
fn questions_subject(file: &ClusterFile, name: &str) -> String {
    format!("{}.questions.{name}", file.first_stream())
}
