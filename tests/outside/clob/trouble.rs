//! A bot on Polymarket's client that survives trouble on demand, and bots that make one mistake
//! each: the report names the mistake, and only that.

use std::process::Command;
use std::thread;

use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::Value;

use super::{BINARY, clients, folder, host};
use crate::output_of;

/// The mistakes of a bot that does this task while its requests meet this trouble, by name.
fn mistakes(plan: &str, flags: &[&str], bot: &[&str]) -> Option<Vec<String>> {
    let clients = clients()?;
    let data = tempfile::tempdir().unwrap();
    let of_all = ["--venue", "simulated:1", "--clob", "on", "--clob-trouble", plan];
    let unlimited = ["--address-limits", "off", "--tier", "free=unlimited/unlimited/2/5"];
    let flags = [&of_all[..], &unlimited, flags].concat();
    let server = ServerProcess::start(BINARY, data.path(), &flags);
    let mut python = Command::new(clients.join("bin/python"));
    output_of(python.arg(folder().join("trouble_bot.py")).arg(host(&server)).args(bot));
    // Whatever waits to be written is in the file once the server has ended.
    server.interrupt();
    let mut report = command(BINARY);
    report.args(["trouble", "--report", "--json", "--data"]).arg(data.path());
    let shown = report.output().unwrap();
    let report: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let parties = report["parties"].as_array().unwrap();
    let has_met = |party: &Value| !party["met"].as_object().unwrap().is_empty();
    assert!(parties.iter().any(has_met), "no trouble came: {report}");
    let findings = parties.iter().flat_map(|party| party["findings"].as_array().unwrap());
    let findings: Vec<&Value> = findings.collect();
    let code = i32::from(!findings.is_empty());
    assert_eq!((shown.status.code(), &report["is_clean"]), (Some(code), &(code == 0).into()));
    let name = |finding: &Value| finding["mistake"].as_str().unwrap().to_owned();
    Some(findings.into_iter().map(name).collect())
}

/// Checks that a careful bot has a clean report, and that the report of one with this mistake names
/// it by this name alone.
#[track_caller]
fn check(plan: &str, flags: &[&str], task: &str, mistake: &str, name: &str) {
    let bots: [(&[&str], &[&str]); 2] = [(&[task], &[]), (&[task, mistake], &[name])];
    thread::scope(|scope| {
        for (bot, expected) in bots {
            scope.spawn(move || {
                let Some(found) = mistakes(plan, flags, bot) else { return };
                assert_eq!(found, expected, "{bot:?}");
            });
        }
    });
}

/// Books that stand still, so that the bots have what they need to buy.
const STILL: [&str; 2] = ["--venue-speed", "0.000001"];

#[test]
fn a_bot_that_signs_again_after_a_lost_answer_is_named() {
    check("seed=7,lost=30%", &STILL, "buy", "sign-again", "orders-doubled");
}

#[test]
fn a_bot_that_tries_again_without_a_pause_is_named() {
    check("seed=7,not-run=10%", &STILL, "buy", "no-pause", "retries-without-pause");
}

#[test]
fn a_bot_that_sells_before_the_trade_is_settled_is_named() {
    check("seed=7,lag=100%:1s", &STILL, "buy-and-sell", "sell-at-once", "unsettled-sales");
}

#[test]
fn a_bot_that_trusts_a_silent_socket_is_named() {
    let (task, mistake) = ("trade-on-the-socket", "trust-silence");
    check("seed=7,silence=100%:60s", &STILL, task, mistake, "dead-book-trades");
}

#[test]
fn a_bot_that_ignores_a_failed_trade_is_named() {
    let (task, mistake) = ("buy-and-sell", "ignore-failed");
    check("seed=7,failed=100%:500ms", &STILL, task, mistake, "failed-trades-ignored");
}
