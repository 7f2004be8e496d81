#![doc = include_str!("README.md")]

mod brokers;
pub mod copies;
pub mod file;
pub mod folder;
mod jetstream;
pub mod lease;
pub mod link;
pub mod metrics;
pub mod origin;
pub mod seat;
pub mod standby;
pub mod status;
mod streams;
pub mod trim;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::future::Ready;
use std::str::FromStr as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::Info;
use async_nats::jetstream::{Context, ErrorCode};
use async_nats::{
    ConnectErrorKind, ConnectOptions, ReconnectToServer, Server, ServerAddr, ServerInfo,
};

pub use brokers::Broker;
pub use file::{ClusterFile, FileError};
pub use jetstream::JetStreamLog;
use origin::Origin;
use paperbourse_store::journal::LogId;
use paperbourse_store::journal::replicated::{NoAnswer, ReplicatedChain};
use paperbourse_venue::client::Client;
use paperbourse_venue::tls::{self, Roots};

/// The minimum number of replicas of a log.
pub(crate) const REPLICAS_MIN: usize = 3;

/// The timeout for a request to a broker's monitoring address.
const MONITORING_PATIENCE: Duration = Duration::from_secs(5);

/// The pause between retries while the brokers elect a leader.
const PAUSE: Duration = Duration::from_millis(250);

/// Number of times a stream is requested before the lack of an answer becomes an error.
const TRIES_MAX: u32 = 60;

/// Number of attempts to create a stream before the brokers' refusal becomes an error.
const CREATE_TRIES_MAX: u32 = 5;

/// Why a cluster cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The cluster file cannot be read or is invalid.
    #[error(transparent)]
    File(#[from] FileError),
    /// The certificates cannot be loaded.
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    /// No broker accepts a connection.
    #[error("cannot connect to any broker of {}: {reason}", brokers.join(", "))]
    Connect {
        /// The addresses that were tried.
        brokers: Vec<String>,
        /// The error of the last attempt.
        reason: String,
    },
    /// A broker rejects the login.
    #[error("cannot log in to the brokers {}: {reason}", brokers.join(", "))]
    Login {
        /// The brokers' addresses.
        brokers: Vec<String>,
        /// The reason, and what to change in the cluster file.
        reason: &'static str,
    },
    /// Brokers or streams could lose acknowledged blocks. Lists every fault.
    #[error("the cluster is not safe: {}", .0.join("; "))]
    Unsafe(Vec<String>),
    /// Some brokers do not answer, so their safety is unknown. Lists every fault.
    #[error("the cluster may not be safe: {}", .0.join("; "))]
    Silent(Vec<String>),
    /// `--from` was given for a cluster of several logs.
    #[error("--from imports into a single log: set logs = 1 in the cluster file")]
    SeveralLogs,
    /// The log already exists and was not created from this folder.
    #[error(
        "the log already exists and was not created from this folder. If it was created from \
         another node's, start this node on an empty folder. Otherwise give the cluster a name \
         that was never used"
    )]
    Begun,
    /// The brokers did not answer a request for a stream.
    #[error("stream {stream}: {reason}")]
    Stream {
        /// The name of the stream.
        stream: String,
        /// The error of the last attempt.
        reason: NoAnswer,
    },
}

impl ClusterError {
    /// Whether a retry may succeed without any change to the cluster or its file.
    pub const fn is_silence(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Silent(_) | Self::Stream { .. })
    }
}

/// A log, as described by its stream.
#[derive(Clone)]
pub struct OpenLog<L = JetStreamLog> {
    /// The transport that carries the log's blocks.
    pub log: L,
    /// The id of the log.
    pub id: LogId,
    /// The data that the log begins with; `None` if it began empty.
    pub origin: Option<Origin>,
}

impl<L> OpenLog<L> {
    /// Returns the chain state that the log's first block continues.
    pub fn start(&self) -> ReplicatedChain {
        match self.origin {
            Some(origin) => ReplicatedChain::at(self.id, origin.end),
            None => ReplicatedChain::start(self.id),
        }
    }
}

/// Connects to the brokers named in this file.
async fn connect(
    file: &ClusterFile,
    options: ConnectOptions,
) -> Result<async_nats::Client, ClusterError> {
    let failed = |reason| ClusterError::Connect { brokers: file.brokers.clone(), reason };
    let addresses = file.brokers.iter().map(|address| ServerAddr::from_str(address));
    let addresses: Vec<ServerAddr> =
        addresses.collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    let connected = options.connect(addresses).await;
    connected.map_err(|error| match error.kind() {
        ConnectErrorKind::AuthorizationViolation => {
            let reason = match file.user {
                None => "they ask for a user and a password: set user and password_file",
                Some(_) => "they refuse the user and the password: check user and password_file",
            };
            ClusterError::Login { brokers: file.brokers.clone(), reason }
        }
        _ => failed(jetstream::no_answer(&error).0),
    })
}

/// Returns the callback that chooses the broker to reconnect to: the next one in turn, whether the
/// last connection was lost or abandoned. The first connection may go to any broker.
fn next_broker() -> impl Fn(Vec<Server>, ServerInfo) -> Ready<Option<ReconnectToServer>> {
    let turn = AtomicUsize::new(0);
    move |servers, _| {
        let turn = turn.fetch_add(1, Ordering::Relaxed);
        let next = servers.get(turn % servers.len().max(1)).filter(|_| turn > 0);
        let next = next.map(|next| ReconnectToServer { addr: next.addr.clone(), delay: None });
        std::future::ready(next)
    }
}

/// The state of each stream of a cluster.
#[derive(Default)]
struct Survey {
    /// The streams that exist, by name.
    found: Vec<(String, Info)>,
    /// The names of the streams that do not exist.
    missing: Vec<String>,
    /// The faults of the streams that exist.
    faults: Vec<String>,
    /// The error that ended the survey early, if any.
    silence: Option<ClusterError>,
}

impl Survey {
    /// Whether any log has blocks. If so, a log whose stream is missing must have had some too.
    fn has_blocks(&self) -> bool {
        self.found.iter().any(|(_, info)| info.state.last_sequence > 0)
    }

    /// Returns all faults, including those of missing streams.
    fn all_faults(&self) -> impl Iterator<Item = String> + '_ {
        let has_blocks = self.has_blocks();
        let missing = self.missing.iter().map(move |stream| streams::missing(stream, has_blocks));
        self.faults.iter().cloned().chain(missing)
    }

    /// Fails if the survey ended early or a stream is unsafe. Without `may_miss`, a missing stream
    /// is an error too.
    fn require_safe(mut self, may_miss: bool) -> Result<Self, ClusterError> {
        if let Some(error) = self.silence.take() {
            return Err(error);
        }
        let faults: Vec<String> =
            if may_miss { self.faults.clone() } else { self.all_faults().collect() };
        if faults.is_empty() { Ok(self) } else { Err(ClusterError::Unsafe(faults)) }
    }
}

/// A connection to the brokers of a cluster.
pub struct Cluster {
    file: ClusterFile,
    client: async_nats::Client,
    context: Context,
    monitoring: Client,
}

impl Cluster {
    /// Connects to the brokers of this file, without checking whether they are safe.
    pub async fn connect(file: ClusterFile) -> Result<Self, ClusterError> {
        let is_encrypted = file.monitoring.iter().any(|address| address.starts_with("https:"));
        let roots = match &file.ca_file {
            // Loaded even if only the connections to the brokers need it, since the error from here
            // says what is wrong with the file.
            Some(path) => Roots::File(path),
            None if is_encrypted => Roots::System,
            None => Roots::Nobody,
        };
        let monitoring = Client::new(tls::client_config(roots)?, MONITORING_PATIENCE, 0);
        let options = file.options()?.reconnect_to_server_callback(next_broker());
        let client = connect(&file, options).await?;
        let context = jetstream::context(client.clone());
        Ok(Self { file, client, context, monitoring })
    }

    /// Number of logs, according to the cluster file.
    pub const fn logs(&self) -> u16 {
        self.file.logs
    }

    /// Creates the streams that do not exist yet, and returns how many were created. Creates
    /// nothing and returns an error unless all brokers and streams are safe. A missing stream is
    /// also an error if another log has blocks, since the missing log must then have had some too.
    /// With an `origin`, the cluster must have a single log, which begins with that data.
    pub async fn init(&self, origin: Option<Origin>) -> Result<usize, ClusterError> {
        let names = self.safe_brokers().await?;
        let survey = self.survey(Some(&names), TRIES_MAX).await;
        let is_new = !survey.has_blocks();
        let Survey { missing, found, .. } = survey.require_safe(is_new)?;
        if let Some(origin) = origin {
            let begins_with = |info: &Info| {
                let found = streams::origin(&info.config).ok().flatten();
                found.is_some_and(|found| found.is_origin_of(&origin))
            };
            if self.file.logs != 1 {
                return Err(ClusterError::SeveralLogs);
            }
            if found.iter().any(|(_, info)| !begins_with(info)) {
                return Err(ClusterError::Begun);
            }
        }
        for stream in &missing {
            // A random id also lets `create` recognise its own stream if the brokers' answer came
            // too late.
            let mut id = [0; 16];
            getrandom::fill(&mut id).expect("the operating system gives random numbers");
            self.create(stream, LogId::from_bytes(id), origin).await?;
        }
        Ok(missing.len())
    }

    /// Opens the logs, in the order of their numbers. Returns an error unless all brokers and all
    /// streams are safe.
    pub async fn open(&self) -> Result<Vec<OpenLog>, ClusterError> {
        let names = self.safe_brokers().await?;
        let Survey { found, .. } =
            self.survey(Some(&names), TRIES_MAX).await.require_safe(false)?;
        let mut logs = Vec::new();
        for (stream, info) in found {
            let id = streams::log_id(&info.config).expect("a stream without an id is a fault");
            let log = JetStreamLog::open(self.client.clone(), &stream).await;
            let log = log.map_err(|reason| ClusterError::Stream { stream, reason })?;
            let origin = streams::origin(&info.config).expect("that would be a fault");
            logs.push(OpenLog { log, id, origin });
        }
        Ok(logs)
    }

    /// Requests every stream and checks it. Stops at the first stream that is not answered, since
    /// the others would time out as well. `names` are the names of the brokers, if all are known.
    async fn survey(&self, names: Option<&BTreeSet<String>>, tries_max: u32) -> Survey {
        let mut survey = Survey::default();
        for stream in self.file.streams() {
            match self.stream(&stream, tries_max).await {
                Ok(Some(info)) => {
                    survey.faults.extend(streams::faults(&info, self.file.logs));
                    let strangers = names.map(|names| brokers::strangers(&info, names));
                    survey.faults.extend(strangers.into_iter().flatten());
                    survey.found.push((stream, info));
                }
                Ok(None) => survey.missing.push(stream),
                Err(error) => {
                    survey.silence = Some(error);
                    break;
                }
            }
        }
        survey
    }

    /// Asks every broker, and returns the answers with the faults found in them.
    async fn brokers(&self) -> (Vec<Result<Broker, String>>, Vec<String>) {
        let mut answers = Vec::new();
        for address in &self.file.monitoring {
            answers.push(Broker::ask(&self.monitoring, address).await);
        }
        let brokers: Vec<Broker> = answers.iter().flatten().cloned().collect();
        let silent = answers.iter().filter_map(|answer| answer.as_ref().err().cloned());
        let mut faults: Vec<String> = silent.chain(brokers::faults(&brokers)).collect();
        let connected = self.client.server_info().server_name;
        // If a broker did not answer, it may be the one that this connection uses.
        if brokers.len() == answers.len() && brokers.iter().all(|it| it.name != connected) {
            faults.push(brokers::stranger("this connection", &connected));
        }
        (answers, faults)
    }

    /// Returns the names of all brokers, or an error unless all are safe.
    async fn safe_brokers(&self) -> Result<BTreeSet<String>, ClusterError> {
        let (answers, faults) = self.brokers().await;
        if answers.iter().any(Result::is_err) {
            return Err(ClusterError::Silent(faults));
        }
        if !faults.is_empty() {
            return Err(ClusterError::Unsafe(faults));
        }
        Ok(answers.into_iter().flatten().map(|broker| broker.name).collect())
    }

    /// Creates a stream. Retries, since busy brokers may create the stream but answer too late.
    async fn create(
        &self,
        stream: &str,
        id: LogId,
        origin: Option<Origin>,
    ) -> Result<(), ClusterError> {
        let mut tries = 0;
        loop {
            let config = streams::config(stream, id, self.file.logs, origin);
            let Err(error) = self.context.create_stream(config).await else { return Ok(()) };
            let found = self.stream(stream, TRIES_MAX).await?;
            if found.is_some_and(|info| streams::log_id(&info.config) == Some(id)) {
                return Ok(());
            }
            tries += 1;
            if tries == CREATE_TRIES_MAX {
                let reason = jetstream::no_answer(&error);
                return Err(ClusterError::Stream { stream: stream.to_owned(), reason });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns the stream with this name; `None` if it does not exist. Tries up to `tries_max`
    /// times while the stream has no leader or the brokers do not answer.
    async fn stream(&self, name: &str, tries_max: u32) -> Result<Option<Info>, ClusterError> {
        let mut tries = 0;
        loop {
            let reason = match self.context.get_stream(name).await {
                Ok(stream) if streams::is_of_leader(stream.cached_info()) => {
                    return Ok(Some(stream.cached_info().clone()));
                }
                Ok(_) => NoAnswer(streams::NO_LEADER.to_owned()),
                Err(error) => match error.kind() {
                    GetStreamErrorKind::JetStream(error)
                        if error.error_code() == ErrorCode::STREAM_NOT_FOUND =>
                    {
                        return Ok(None);
                    }
                    _ => jetstream::no_answer(&error),
                },
            };
            tries += 1;
            if tries >= tries_max {
                return Err(ClusterError::Stream { stream: name.to_owned(), reason });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
