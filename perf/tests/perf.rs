//! A short run of the load generator, which must do the measured work correctly.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The server is next to the load generator if the whole workspace is built.
fn server() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_paperbourse-perf")).with_file_name("paperbourse");
    if path.is_file() {
        return Some(path);
    }
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no server at {}", path.display());
    eprintln!("SKIPPED: no server at {}: test with --workspace", path.display());
    None
}

/// The figures of a part that this command measures; `None` if there is no server.
fn measured(command: &str, options: &[&str]) -> Option<Value> {
    let server = server()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let figures = folder.path().join("figures.json");
    let output = Command::new(env!("CARGO_BIN_EXE_paperbourse-perf"))
        .arg(command)
        .args(options)
        .args(["--rounds", "1", "--seconds", "2", "--warm-up-seconds", "0.2", "--workers", "1"])
        .arg("--server")
        .arg(server)
        .args(["--bare", env!("CARGO_BIN_EXE_paperbourse-bare")])
        .arg("--scratch")
        .arg(folder.path())
        .arg("--json")
        .arg(&figures)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let figures: Value = serde_json::from_slice(&std::fs::read(figures).unwrap()).unwrap();
    Some(figures["parts"][command].clone())
}

#[test]
fn every_fill_reaches_its_socket_and_is_measured() {
    let options = ["--sockets", "20", "--fills", "10", "--bursts", "2"];
    let Some(figures) = measured("executions", &options) else { return };
    let sample = &figures["samples"][0];
    assert_eq!(sample["fill_count"], 20);
    let mut delays = vec![&sample["delay_ms"]];
    delays.extend(sample["bursts_ms"].as_array().unwrap());
    assert_eq!(delays.len(), 3);
    for delays in delays {
        let delays: Vec<f64> =
            delays.as_array().unwrap().iter().map(|delay| delay.as_f64().unwrap()).collect();
        assert!(delays[0] > 0.0 && delays.is_sorted(), "{sample}");
    }
}

#[test]
fn sockets_and_streams_are_measured_and_end_with_the_same_prices() {
    let options = ["--readers", "10", "--markets", "5", "--messages", "50", "--stopped", "2"];
    let Some(figures) = measured("streams", &options) else { return };
    let samples = figures["samples"].as_array().unwrap();
    let names = samples.iter().map(|sample| sample["arrangement"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["sockets", "bare", "streams", "both"]);
    let kinds = [&["sockets"][..], &["sockets"], &["streams"], &["sockets", "streams"]];
    for (sample, kinds) in samples.iter().zip(kinds) {
        assert_eq!(sample["stale_count"], 0, "{sample}");
        assert_eq!(sample["left_behind"], 0, "{sample}");
        assert_eq!(sample["disorder_count"], 0, "{sample}");
        assert_eq!(sample["differing_count"], 0, "{sample}");
        let undisturbed = &sample["undisturbed"];
        for kind in ["sockets", "streams"] {
            let rate = sample[kind]["frames_per_second"].as_f64();
            assert_eq!(rate.is_some(), kinds.contains(&kind), "{sample}");
            assert!(rate.is_none_or(|rate| rate > 10.0), "each reader gets frames: {sample}");
            let rate = undisturbed[kind]["frames_per_second"].as_f64();
            let is_own = sample["arrangement"] != "bare";
            assert_eq!(rate.is_some(), is_own && kinds.contains(&kind), "{sample}");
            assert!(rate.is_none_or(|rate| rate > 10.0), "each reader gets frames: {sample}");
        }
    }
}

#[test]
fn the_recorded_evening_is_played_to_sockets() {
    if paperbourse_test_support::recordings::folder().is_none() {
        return;
    }
    for speed in ["10", "max"] {
        let options = ["--readers", "5", "--markets", "4", "--evening", speed, "--sockets-only"];
        let Some(figures) = measured("streams", &options) else { return };
        let samples = figures["samples"].as_array().unwrap();
        for sample in samples {
            assert_eq!(sample["stale_count"], 0, "{sample}");
            assert_eq!(sample["disorder_count"], 0, "{sample}");
            // The bare loop's frames are made up.
            let is_bare = sample["arrangement"] == "bare";
            assert_eq!(sample["untrue_count"].as_u64(), (!is_bare).then_some(0), "{sample}");
            let rate = sample["sockets"]["frames_per_second"].as_f64().unwrap();
            // Each of five readers gets each of four markets more than once a second, on however
            // slow a machine.
            assert!(rate > 20.0, "{sample}");
        }
    }
}

#[test]
fn the_live_venue_is_measured_and_its_books_are_right() {
    let load = ["--tokens", "8,20", "--messages", "200", "--reads", "50"];
    let readers = ["--subscribers", "2", "--clob-sockets", "3"];
    let options = [&load[..], &readers].concat();
    let Some(figures) = measured("venue", &options) else { return };
    let samples = figures["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2);
    for (sample, tokens) in samples.iter().zip([8, 20]) {
        let number = |name: &str| sample[name].as_f64().unwrap();
        assert_eq!(sample["tokens"], tokens);
        for nothing in ["unequal_books", "violations", "connections_lost", "stale_tokens_at_end"] {
            assert_eq!(sample[nothing], 0, "{nothing} of {sample}");
        }
        assert!(number("sent") > 190.0 && number("taken") > 0.9 * number("sent"), "{sample}");
        assert!(number("hashes_verified") > number("sent"), "two to a change: {sample}");
        assert!(number("subscriber_frames") > 100.0, "{sample}");
        assert!(sample["clob"]["changes"].as_f64().unwrap() > 300.0, "{sample}");
        let delays = sample["publish_ms"].as_array().unwrap();
        assert!(delays.iter().all(|delay| delay.as_f64().unwrap() > 0.0), "{sample}");
    }
}

#[test]
fn a_bot_is_measured_beside_each_attack_and_nobody_breaks_in() {
    let asks = ["--wrong-keys", "50", "--new-addresses", "20", "--socket-opens", "20"];
    let holds = ["--floods", "4", "--idle", "1000", "--stalled-heads", "500", "--bodies", "250"];
    let options = [&asks[..], &holds].concat();
    let Some(figures) = measured("attack", &options) else { return };
    let samples = figures["samples"].as_array().unwrap();
    let mut names: Vec<_> =
        samples.iter().map(|sample| sample["beside"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["Attackers", "Floods", "Holders", "Nobody", "Readers"]);
    for sample in samples {
        assert!(sample["bot_count"].as_u64().unwrap() > 20, "{sample}");
        let answers = sample["counts"]["answers"].as_object().unwrap().values();
        for status in answers.flat_map(|by_status| by_status.as_object().unwrap().keys()) {
            let is_read = sample["beside"] == "Readers" && status == "200";
            assert!(is_read || ["401", "429", "503", "4001"].contains(&&**status), "{sample}");
        }
    }
}
