//! The streams of a cluster: their configuration, and the checks that they can be trusted with a
//! log.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, PersistenceMode, RetentionPolicy, StorageType,
};

use super::REPLICAS_MIN;
use super::jetstream::subject;
use super::origin::Origin;
use paperbourse_store::journal::LogId;

/// The metadata key of the log's id, in hexadecimal.
const LOG_ID: &str = "paperbourse-log";

/// The metadata key of the number of logs in the cluster.
const LOGS: &str = "paperbourse-logs";

/// The metadata key of the log's [`Origin`].
const ORIGIN: &str = "paperbourse-origin";

/// Returns the configuration of the stream that carries this log.
pub(super) fn config(stream: &str, id: LogId, logs: u16, origin: Option<Origin>) -> Config {
    let mut metadata =
        HashMap::from([(LOG_ID.to_owned(), id.to_string()), (LOGS.to_owned(), logs.to_string())]);
    metadata.extend(origin.map(|origin| (ORIGIN.to_owned(), origin.to_string())));
    Config {
        name: stream.to_owned(),
        description: Some("a replicated log of paperbourse".to_owned()),
        subjects: vec![subject(stream)],
        retention: RetentionPolicy::Limits,
        storage: StorageType::File,
        num_replicas: REPLICAS_MIN,
        discard: DiscardPolicy::New,
        max_bytes: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_age: Duration::ZERO,
        deny_delete: true,
        allow_direct: true,
        metadata,
        ..Config::default()
    }
}

/// Returns the id of the log in this stream, or `None` if the stream carries no log.
pub(super) fn log_id(config: &Config) -> Option<LogId> {
    config.metadata.get(LOG_ID)?.parse().ok()
}

/// Returns the origin of the log in this stream; `Err` if its metadata cannot be parsed.
pub(super) fn origin(config: &Config) -> Result<Option<Origin>, ()> {
    let text = config.metadata.get(ORIGIN);
    text.map(|text| Origin::parse(text).ok_or(())).transpose()
}

/// Whether this answer came from the stream's leader. Without a leader, any broker may answer, even
/// one that lacks blocks.
pub(super) fn is_of_leader(info: &Info) -> bool {
    info.cluster.as_ref().is_none_or(|cluster| cluster.leader.is_some())
}

/// The fault of a stream without a leader.
pub(super) const NO_LEADER: &str =
    "it has no leader: most of its brokers must run and be connected";

/// Describes what is wrong when a stream does not exist. `has_blocks` says whether other logs of
/// the cluster have blocks.
pub(super) fn missing(stream: &str, has_blocks: bool) -> String {
    if has_blocks {
        format!(
            "stream {stream} is gone, and other logs have blocks: restore it from a backup of the \
             brokers; it is not created again"
        )
    } else {
        format!(
            "stream {stream} does not exist: run `paperbourse cluster init` if this cluster is \
             new, or `paperbourse cluster repair` if the brokers have lost it"
        )
    }
}

/// Returns everything that is wrong with the configuration of this stream, and how to fix it.
pub(super) fn faults(info: &Info, logs: u16) -> Vec<String> {
    let Config { name, metadata, .. } = &info.config;
    let config = &info.config;
    let limit = |is_set: bool, name| is_set.then(|| format!("has {name}, which removes blocks"));
    let replicas = format!("has {} replicas: set {REPLICAS_MIN} or 5", config.num_replicas);
    let subjects = [subject(name)];
    let faults = [
        log_id(config).is_none().then(|| {
            "was not made by `paperbourse cluster init`: choose another name for the cluster".into()
        }),
        origin(config).is_err().then(|| {
            format!("says in its metadata {ORIGIN} what no version of this program wrote")
        }),
        metadata.get(LOGS).filter(|known| **known != logs.to_string()).map(|known| {
            format!("belongs to a cluster of {known} logs: write logs = {known} into the file")
        }),
        (config.num_replicas < REPLICAS_MIN).then_some(replicas),
        (config.storage != StorageType::File).then(|| "is not stored in files".into()),
        (config.discard != DiscardPolicy::New)
            .then(|| "discards old blocks: set discard: new".into()),
        (config.retention != RetentionPolicy::Limits)
            .then(|| "removes what was consumed: set retention: limits".into()),
        limit(config.max_age != Duration::ZERO, "max_age"),
        limit(config.max_bytes > 0, "max_bytes"),
        limit(config.max_messages > 0, "max_msgs"),
        limit(config.max_messages_per_subject > 0, "max_msgs_per_subject"),
        (config.max_message_size > 0).then(|| "has max_msg_size, which refuses blocks".into()),
        (!config.deny_delete).then(|| "lets blocks be deleted: set deny_delete".into()),
        config.deny_purge.then(|| "cannot be trimmed: unset deny_purge".into()),
        config.allow_rollup.then(|| "can be rolled up: unset allow_rollup_hdrs".into()),
        (!config.allow_direct).then(|| "has no direct get: set allow_direct".into()),
        config.no_ack.then(|| "does not acknowledge: unset no_ack".into()),
        config.sealed.then(|| "is sealed".into()),
        (config.persist_mode == Some(PersistenceMode::Async))
            .then(|| "is written late: unset persist_mode".into()),
        (config.mirror.is_some() || config.sources.is_some() || config.subjects != subjects)
            .then(|| format!("takes blocks from elsewhere: its only source is {}", subjects[0])),
        config.subject_transform.is_some().then(|| "has a subject transform: remove it".into()),
    ];
    faults.into_iter().flatten().map(|fault: String| format!("stream {name} {fault}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: LogId = LogId::from_bytes([0xa5; 16]);

    fn info(config: &Config) -> Info {
        serde_json::from_value(json!({
            "config": config,
            "created": "2026-01-01T00:00:00Z",
            "state": {
                "messages": 0, "bytes": 0, "first_seq": 0, "last_seq": 0, "consumer_count": 0,
                "first_ts": "0001-01-01T00:00:00Z", "last_ts": "0001-01-01T00:00:00Z",
            },
        }))
        .unwrap()
    }

    #[test]
    fn only_the_leader_of_a_stream_is_believed() {
        for (cluster, expected) in [
            (json!({ "name": "c", "leader": "a" }), true),
            (json!({ "name": "c" }), false),
            (json!(null), true),
        ] {
            let mut info = info(&config("pb-3", ID, 16, None));
            info.cluster = serde_json::from_value(cluster.clone()).unwrap();
            assert_eq!(is_of_leader(&info), expected, "{cluster}");
        }
    }

    /// Changes the configuration and checks the resulting faults.
    #[track_caller]
    fn check(change: impl Fn(&mut Config), expected: &[&str]) {
        let mut config = config("pb-3", ID, 16, None);
        change(&mut config);
        let faults = faults(&info(&config), 16);
        assert_eq!(faults.len(), expected.len(), "{faults:?}");
        for (fault, expected) in faults.iter().zip(expected) {
            assert!(fault.starts_with("stream pb-3 ") && fault.contains(expected), "{fault}");
        }
    }

    #[test]
    fn an_unsafe_stream_is_told_what_to_change() {
        assert_eq!(log_id(&config("pb-3", ID, 16, None)), Some(ID));
        check(|_| {}, &[]);
        let origin = Origin::parse(&format!("{} 0000abcd 12 3 -", "05".repeat(16)));
        assert_eq!(super::origin(&config("pb-3", ID, 16, origin)), Ok(origin));
        let garbled = |it: &mut Config| drop(it.metadata.insert(ORIGIN.into(), "12".into()));
        check(garbled, &["says in its metadata paperbourse-origin"]);
        check(|it| it.num_replicas = 5, &[]);
        check(|it| it.num_replicas = 1, &["has 1 replicas: set 3 or 5"]);
        check(|it| it.storage = StorageType::Memory, &["is not stored in files"]);
        check(|it| it.discard = DiscardPolicy::Old, &["set discard: new"]);
        check(|it| it.retention = RetentionPolicy::WorkQueue, &["set retention: limits"]);
        check(|it| it.max_age = Duration::from_hours(1), &["has max_age"]);
        check(|it| it.max_bytes = 1, &["has max_bytes"]);
        check(|it| it.max_messages = 1, &["has max_msgs,"]);
        check(|it| it.max_messages_per_subject = 1, &["has max_msgs_per_subject"]);
        check(|it| it.max_message_size = 1, &["has max_msg_size"]);
        check(|it| it.deny_delete = false, &["set deny_delete"]);
        check(|it| it.deny_purge = true, &["unset deny_purge"]);
        check(|it| it.allow_rollup = true, &["unset allow_rollup_hdrs"]);
        check(|it| it.allow_direct = false, &["set allow_direct"]);
        check(|it| it.no_ack = true, &["unset no_ack"]);
        check(|it| it.sealed = true, &["is sealed"]);
        check(|it| it.persist_mode = Some(PersistenceMode::Async), &["unset persist_mode"]);
        check(|it| it.subjects.push("other".into()), &["its only source is pb-3.blocks"]);
        check(|it| it.metadata.clear(), &["was not made by `paperbourse cluster init`"]);
        check(
            |it| drop(it.metadata.insert(LOGS.into(), "8".into())),
            &["belongs to a cluster of 8 logs: write logs = 8"],
        );
        check(
            |it| (it.num_replicas, it.deny_delete) = (2, false),
            &["has 2 replicas", "set deny_delete"],
        );
    }
}
