//! The operator's view of a cluster: a line for each broker and each log.

use std::collections::BTreeSet;
use std::fmt;

use async_nats::jetstream::stream::Info;
use serde::Serialize;

use super::Cluster;

/// Number of times a stream is requested. Few, since `status` can report the brokers without it.
const TRIES_MAX: u32 = 4;

/// The state of a cluster, as printed by `status`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    /// The brokers, in the order of their monitoring addresses.
    pub brokers: Vec<BrokerStatus>,
    /// The logs, in the order of their numbers.
    pub logs: Vec<LogStatus>,
    /// Everything that makes the cluster unsafe; empty if the cluster is safe.
    pub faults: Vec<String>,
}

/// The state of a broker.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct BrokerStatus {
    /// The broker's monitoring address.
    pub monitoring: String,
    /// The broker's name; `None` if it does not answer.
    pub name: Option<String>,
    /// The broker's version; `None` if it does not answer.
    pub version: Option<String>,
    /// Whether the broker syncs each block before acknowledging it; false if it does not answer.
    pub is_always_synced: bool,
}

/// The state of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LogStatus {
    /// The name of the log's stream.
    pub stream: String,
    /// The broker that leads the stream; `None` if there is no leader or no stream.
    pub leader: Option<String>,
    /// Number of replicas, including the leader, that have every block.
    pub replicas_current: usize,
    /// Number of replicas, including the leader.
    pub replicas: usize,
    /// The sequence of the newest block.
    pub tail: u64,
    /// Number of blocks the stream holds.
    pub blocks: u64,
}

impl Cluster {
    /// Queries all brokers and all streams. Never fails: missing answers are listed as faults.
    pub async fn status(&self) -> Status {
        let (answers, mut faults) = self.brokers().await;
        let brokers = self.file.monitoring.iter().zip(answers).map(|(monitoring, answer)| {
            let broker = answer.ok();
            BrokerStatus {
                monitoring: monitoring.clone(),
                is_always_synced: broker.as_ref().is_some_and(super::Broker::is_always_synced),
                version: broker.as_ref().map(|broker| broker.version.clone()),
                name: broker.map(|broker| broker.name),
            }
        });
        let brokers: Vec<BrokerStatus> = brokers.collect();
        let names: Option<BTreeSet<String>> = brokers.iter().map(|it| it.name.clone()).collect();
        let survey = self.survey(names.as_ref(), TRIES_MAX).await;
        faults.extend(survey.all_faults());
        faults.extend(survey.silence.iter().map(ToString::to_string));
        let logs = survey.found.into_iter().map(|(stream, info)| LogStatus::of(stream, &info));
        Status { brokers, logs: logs.collect(), faults }
    }
}

impl LogStatus {
    fn of(stream: String, info: &Info) -> Self {
        let cluster = info.cluster.as_ref();
        let followers = cluster.map_or(&[][..], |cluster| &cluster.replicas);
        let leader = cluster.and_then(|cluster| cluster.leader.clone());
        let leaders = usize::from(leader.is_some());
        Self {
            stream,
            leader,
            replicas_current: leaders + followers.iter().filter(|it| it.current).count(),
            replicas: leaders + followers.len(),
            tail: info.state.last_sequence,
            blocks: info.state.messages,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let brokers = self.brokers.iter().map(ToString::to_string);
        let logs = self.logs.iter().map(ToString::to_string);
        let faults = self.faults.iter().map(|fault| format!("unsafe  {fault}"));
        let lines: Vec<String> = brokers.chain(logs).chain(faults).collect();
        // Names, versions and errors contain text from the brokers, which could control the
        // terminal.
        let lines: Vec<String> =
            lines.iter().map(|line| line.replace(char::is_control, "\u{fffd}")).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl fmt::Display for BrokerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { monitoring, name, version, is_always_synced } = self;
        let (Some(name), Some(version)) = (name, version) else {
            return write!(f, "broker  {monitoring}  no answer");
        };
        let synced = if *is_always_synced { "always" } else { "NOT ALWAYS" };
        write!(f, "broker  {monitoring}  {name}  version {version}  synced {synced}")
    }
}

impl fmt::Display for LogStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { stream, leader, replicas_current, replicas, tail, blocks } = self;
        let leader = leader.as_deref().unwrap_or("none");
        write!(
            f,
            "log     {stream}  leader {leader}  replicas {replicas_current} of {replicas} current  \
             tail {tail}  blocks {blocks}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broker_cannot_control_the_terminal() {
        let broker = BrokerStatus {
            monitoring: "http://a:8222".to_owned(),
            name: Some("a\u{1b}[2J\nlog     pb-0".to_owned()),
            version: Some("2.15.1\r".to_owned()),
            is_always_synced: true,
        };
        let faults = vec!["first\nsecond".to_owned()];
        let printed = Status { brokers: vec![broker], logs: Vec::new(), faults }.to_string();
        assert_eq!(printed.lines().count(), 2, "{printed}");
        assert!(!printed.replace('\n', "").contains(char::is_control), "{printed:?}");
    }
}
