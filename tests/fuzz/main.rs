//! The fuzz targets on a fixed set of inputs: all seeds, and inputs made from them, the same in
//! each run. `.ci/fuzz` runs a real fuzzer, for as long as you like.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod inputs;

#[path = "../../fuzz/targets/clob.rs"]
mod clob;
#[path = "../../fuzz/targets/clob_order.rs"]
mod clob_order;
#[path = "../../fuzz/targets/clob_wrapped.rs"]
mod clob_wrapped;
#[path = "../../fuzz/targets/http_route.rs"]
mod http_route;
#[path = "../../fuzz/targets/journal_tail.rs"]
mod journal_tail;
#[path = "../../fuzz/targets/record.rs"]
mod record;
#[path = "../../fuzz/targets/token.rs"]
mod token;
#[path = "../../fuzz/targets/trade_body.rs"]
mod trade_body;
#[path = "../../fuzz/targets/venue_answer.rs"]
mod venue_answer;
#[path = "../../fuzz/targets/venue_frame.rs"]
mod venue_frame;

use inputs::{Shown, made_from, seeds};

/// Runs the seeds of a target, and `count` inputs made from them.
fn check(name: &str, count: usize, run: fn(&[u8])) {
    let seeds = seeds(name);
    for input in seeds.iter().cloned().chain(made_from(name, &seeds).take(count)) {
        let _shown = Shown(&input);
        run(&input);
    }
}

#[test]
fn clob() {
    check("clob", 10_000, clob::run);
}

#[test]
fn clob_order() {
    check("clob_order", 10_000, clob_order::run);
}

#[test]
fn clob_wrapped() {
    check("clob_wrapped", 10_000, clob_wrapped::run);
}

#[test]
fn http_route() {
    check("http_route", 1_500, http_route::run);
}

#[test]
fn journal_tail() {
    check("journal_tail", 300, journal_tail::run);
}

#[test]
fn record() {
    check("record", 100_000, record::run);
}

#[test]
fn token() {
    check("token", 10_000, token::run);
}

#[test]
fn trade_body() {
    check("trade_body", 8_000, trade_body::run);
}

#[test]
fn venue_answer() {
    check("venue_answer", 10_000, venue_answer::run);
}

#[test]
fn venue_frame() {
    check("venue_frame", 1_000, venue_frame::run);
}

/// Inputs that have nothing in common with a seed would all be refused at their first bytes.
#[test]
fn inputs_are_the_same_in_each_run_and_differ_from_each_other() {
    let seeds = seeds("trade_body");
    let made = || made_from("trade_body", &seeds).take(1_000).collect::<Vec<_>>();
    let inputs = made();
    assert_eq!(inputs, made());
    let distinct: std::collections::BTreeSet<_> = inputs.iter().collect();
    assert!(distinct.len() > 950, "{}", distinct.len());
    let near = inputs.iter().filter(|input| {
        seeds.iter().any(|seed| input.len().abs_diff(seed.len()) < 20 && input[..4] == seed[..4])
    });
    assert!(near.count() > 300);
}
