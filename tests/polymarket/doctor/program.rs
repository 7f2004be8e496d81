//! The program: its table, its JSON, its samples and its exit codes.

use std::process::{Output, Stdio};

use paperbourse_test_support::process::command;
use serde_json::Value;

use super::{day, start, world};
use crate::standin::{Edit, Endpoint, EndpointFault, Options, StandIn};

/// Runs `paperbourse doctor` on this venue.
async fn doctor(venue: &StandIn, arguments: &[&str]) -> Output {
    let mut command = command(env!("CARGO_BIN_EXE_paperbourse"));
    command
        .args(["doctor", "--seconds", "3"])
        .args(["--venue-gamma", &venue.gamma_url, "--venue-clob", &venue.clob_url])
        .args(["--venue-data", &venue.data_url, "--venue-socket", &venue.ws_url])
        .arg("--venue-ca")
        .arg(venue.authority_path.as_ref().unwrap())
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_get_a_table_and_scripts_an_object() {
    let venue = start(world(), Options::default()).await;
    let busy = tokio::spawn(day(venue.clone(), |_| {}));
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let save = ["--save", out.to_str().unwrap()];
    let table = doctor(&venue, &save).await;
    let (printed, errors) = (text(&table.stdout), text(&table.stderr));
    assert_eq!(table.status.code(), Some(0), "{printed}{errors}");
    assert!(printed.lines().all(|line| line.chars().count() <= 100), "{printed}");
    assert!(printed.contains(" ok, 0 broken, 0 not seen; "), "{printed}");
    assert!(errors.is_empty() && !out.exists(), "{errors}");
    println!("{printed}");

    let (from, to) = (r#""mos":5"#, r#""mos":6,"owner":"0xabc""#);
    let fault = EndpointFault::Edit(Edit { from, to });
    venue.misbehave_at(Endpoint::CompactMarket, fault, u32::MAX);
    let object = doctor(&venue, &[&save[..], &["--json"]].concat()).await;
    let printed = text(&object.stdout);
    assert_eq!(object.status.code(), Some(1), "{printed}");
    let report: Value = serde_json::from_str(printed).unwrap();
    assert_eq!((&report["is_sound"], &report["is_reached"]), (&false.into(), &true.into()));
    let findings = report["findings"].as_array().unwrap();
    let broken: Vec<&Value> = findings.iter().filter(|it| it["verdict"] == "broken").collect();
    let names: Vec<&str> = broken.iter().map(|it| it["assumption"].as_str().unwrap()).collect();
    assert_eq!(names, ["Gamma and CLOB describe markets alike", "/clob-markets fields are known"]);
    assert_eq!(broken[0]["problem"], "the smallest order differs");
    let samples = std::fs::read_to_string(out.join("samples.jsonl")).unwrap();
    assert_eq!(samples.lines().count(), 6, "{samples}");
    for line in samples.lines() {
        let sample: Value = serde_json::from_str(line).unwrap();
        assert!(sample["request"].as_str().unwrap().starts_with("/clob-markets/0x"), "{line}");
        assert!(sample["payload"].as_str().unwrap().contains(r#""owner":"(removed)""#), "{line}");
        assert!(!line.contains("127.0.0.1"), "{line}");
    }
    busy.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_look_that_cannot_be_taken_is_told_from_what_is_broken() {
    let venue = start(world(), Options::default()).await;
    let fault = EndpointFault::Refuse { status: 503, retry_after_s: None };
    venue.misbehave_at(Endpoint::Data, fault, u32::MAX);
    let refused = doctor(&venue, &[]).await;
    let printed = text(&refused.stdout);
    assert_eq!(refused.status.code(), Some(2), "{printed}");
    assert!(printed.contains("status 503"), "{printed}");
    for (arguments, expected) in [
        (&["--seconds", "56"][..], "not a whole number from 1 to 55"),
        (&["--venue-ca", "/nowhere"], "/nowhere"),
    ] {
        let mut command = command(env!("CARGO_BIN_EXE_paperbourse"));
        let output = command.arg("doctor").args(arguments).output().unwrap();
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(expected), "{errors}");
    }
}
