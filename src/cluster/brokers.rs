//! Fetches brokers' descriptions from their monitoring addresses, and checks that the brokers are
//! safe to use.

use std::collections::BTreeSet;

use async_nats::jetstream::stream::Info;
use hyper::Uri;
use serde::Deserialize;

use paperbourse_venue::client::Client;

/// The oldest broker version whose acknowledgements can be trusted.
const VERSION_MIN: (u32, u32, u32) = (2, 15, 1);

/// The maximum size of a monitoring answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The lowest `max_payload` that a broker may have, in bytes: room for a block and its headers.
const PAYLOAD_BYTES_MIN: u64 = (512 << 10) + 4096;

/// A broker, as described by its monitoring endpoint.
#[derive(Clone, Debug, Deserialize)]
pub struct Broker {
    /// The broker's name, unique in its cluster.
    #[serde(rename = "server_name")]
    pub name: String,
    /// The broker's version, such as `2.15.1`.
    pub version: String,
    #[serde(rename = "max_payload")]
    payload_bytes_max: u64,
    jetstream: JetStream,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
struct JetStream {
    config: Option<Config>,
    meta: Option<Meta>,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
struct Config {
    sync_always: bool,
}

#[derive(Clone, Default, Debug, Deserialize)]
#[serde(default)]
struct Meta {
    cluster_size: usize,
}

impl Broker {
    /// Fetches the description of the broker with this monitoring address.
    pub(super) async fn ask(client: &Client, monitoring: &str) -> Result<Self, String> {
        let failed =
            |reason: String| format!("the broker at {monitoring} cannot be asked: {reason}");
        let address = format!("{}/varz", monitoring.trim_end_matches('/'));
        let uri: Uri = address.parse().map_err(|error| failed(format!("{error}")))?;
        let answer = client.get(uri, ANSWER_BYTES_MAX).await;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        serde_json::from_slice(&answer)
            .map_err(|error| failed(format!("its answer is not that of a NATS server: {error}")))
    }

    /// Whether the broker syncs a block to disk before acknowledging it.
    pub fn is_always_synced(&self) -> bool {
        self.jetstream.config.as_ref().is_some_and(|config| config.sync_always)
    }

    /// Number of brokers in the cluster, as this broker counts them.
    fn cluster_size(&self) -> usize {
        self.jetstream.meta.as_ref().map_or(1, |meta| meta.cluster_size)
    }

    fn faults(&self) -> Vec<String> {
        let name = &self.name;
        let mut faults = Vec::new();
        if version(&self.version).is_none_or(|version| version < VERSION_MIN) {
            let (major, minor, patch) = VERSION_MIN;
            faults.push(format!(
                "broker {name} has version {}: upgrade it to {major}.{minor}.{patch} or newer",
                self.version
            ));
        }
        if self.jetstream.config.is_none() {
            faults
                .push(format!("broker {name} has no JetStream: add a jetstream block to its file"));
        } else if !self.is_always_synced() {
            faults.push(format!(
                "broker {name} acknowledges before it syncs: set sync_interval: always in the \
                 jetstream block of its file, and restart it"
            ));
        }
        if self.payload_bytes_max < PAYLOAD_BYTES_MIN {
            faults.push(format!(
                "broker {name} takes messages of {} bytes: set max_payload to {PAYLOAD_BYTES_MIN} \
                 or more",
                self.payload_bytes_max
            ));
        }
        faults
    }
}

/// Returns everything that is wrong with the brokers of a cluster.
pub(super) fn faults(brokers: &[Broker]) -> Vec<String> {
    let mut faults: Vec<String> = brokers.iter().flat_map(Broker::faults).collect();
    let names: BTreeSet<&str> = brokers.iter().map(|broker| &*broker.name).collect();
    let size = brokers.iter().map(Broker::cluster_size).max().unwrap_or(0);
    if size < super::REPLICAS_MIN {
        faults.push(format!(
            "the brokers form a cluster of {size}, and {} or more are needed",
            super::REPLICAS_MIN
        ));
    }
    if names.len() < size {
        let names: Vec<&str> = names.into_iter().collect();
        faults.push(format!(
            "the cluster has {size} brokers, and only {} of them were asked: name all in \
             monitoring",
            names.join(", ")
        ));
    }
    faults
}

/// Describes the fault of a stream or connection carried by a broker not listed in `monitoring`.
pub(super) fn stranger(what: &str, name: &str) -> String {
    format!("{what} is carried by broker {name}, which was not asked: name all in monitoring")
}

/// Returns a fault for each broker that carries this stream but was not `asked`.
pub(super) fn strangers(info: &Info, asked: &BTreeSet<String>) -> Vec<String> {
    let Some(cluster) = &info.cluster else { return Vec::new() };
    let followers = cluster.replicas.iter().map(|it| &it.name);
    let carriers = cluster.leader.iter().chain(followers).filter(|name| !asked.contains(*name));
    let stream = format!("stream {}", info.config.name);
    carriers.map(|name| stranger(&stream, name)).collect()
}

/// Parses a version such as `2.15.1` or `2.16.0-RC.1`. Returns `None` for a preview of
/// [`VERSION_MIN`], which is older than that release.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let (numbers, is_preview) = match text.split_once('-') {
        Some((numbers, _)) => (numbers, true),
        None => (text, false),
    };
    let mut numbers = numbers.trim_start_matches('v').split('.').map(|part| part.parse().ok());
    let version: (u32, u32, u32) = (numbers.next()??, numbers.next()??, numbers.next()??);
    if is_preview && version == VERSION_MIN { None } else { Some(version) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn varz(name: &str) -> Value {
        json!({
            "server_name": name, "version": "2.15.1", "max_payload": 1_048_576,
            "jetstream": {"config": {"sync_always": true}, "meta": {"cluster_size": 3}},
        })
    }

    /// Changes the answer of the second of three brokers and checks the resulting faults.
    #[track_caller]
    fn check(change: impl Fn(&mut Value), expected: &[&str]) {
        let mut answers = [varz("a"), varz("b"), varz("c")];
        change(&mut answers[1]);
        let brokers = answers.map(|answer| serde_json::from_value(answer).unwrap());
        let faults = faults(&brokers);
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn unsafe_brokers_are_told_what_to_change() {
        check(|_| {}, &[]);
        for version in ["2.15.2", "2.16.0-RC.1", "3.0.0", "v2.15.1"] {
            check(|it| it["version"] = json!(version), &[]);
        }
        for version in ["2.15.0", "2.14.9", "1.99.99", "2.15.1-RC.3", "2.15", "", "new"] {
            check(|it| it["version"] = json!(version), &["upgrade it to 2.15.1 or newer"]);
        }
        check(
            |it| it["jetstream"]["config"]["sync_always"] = json!(false),
            &["broker b acknowledges before it syncs: set sync_interval: always"],
        );
        check(|it| it["jetstream"]["config"] = json!({}), &["broker b acknowledges before"]);
        check(|it| it["jetstream"] = json!({}), &["broker b has no JetStream"]);
        check(|it| it["max_payload"] = json!(65_536), &["takes messages of 65536 bytes"]);
        check(
            |it| it["server_name"] = json!("a"),
            &["the cluster has 3 brokers, and only a, c of"],
        );
        check(
            |it| {
                it["version"] = json!("2.10.0");
                it["jetstream"]["config"]["sync_always"] = json!(false);
            },
            &["upgrade it", "sync_interval"],
        );
    }

    #[test]
    fn a_stream_on_brokers_that_were_not_asked_is_named() {
        use async_nats::jetstream::stream::Config;

        let config = Config { name: "pb-0".to_owned(), ..Config::default() };
        let replica = |name: &str| json!({"name": name, "current": true, "active": 0});
        let info: Info = serde_json::from_value(json!({
            "config": config,
            "created": "2026-01-01T00:00:00Z",
            "state": {
                "messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0,
                "first_ts": "0001-01-01T00:00:00Z", "last_ts": "0001-01-01T00:00:00Z",
            },
            "cluster": {"name": "test", "leader": "a", "replicas": [replica("b"), replica("x")]},
        }))
        .unwrap();
        let asked = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert_eq!(strangers(&info, &asked(&["a", "b", "x"])), [""; 0]);
        let faults = strangers(&info, &asked(&["b", "c"]));
        assert_eq!(faults.len(), 2, "{faults:?}");
        for (fault, name) in faults.iter().zip(["a", "x"]) {
            let expected = format!("stream pb-0 is carried by broker {name}, which was not asked");
            assert!(fault.starts_with(&expected), "{fault}");
        }
    }

    #[test]
    fn brokers_that_form_no_cluster_are_refused() {
        let alone = json!({
            "server_name": "a", "version": "2.15.1", "max_payload": 1_048_576,
            "jetstream": {"config": {"sync_always": true}},
        });
        let broker: Broker = serde_json::from_value(alone).unwrap();
        assert_eq!(
            faults(&[broker]),
            ["the brokers form a cluster of 1, and 3 or more are needed"]
        );
        assert_eq!(faults(&[]).len(), 1);
    }
}
