//! Records as text, and what is found in them.
//!
//! A line of a record is a time, `w1` for a wallet or `a1` for its address, and what happened:
//!
//! - `order SALT SIDE TOKEN`, then what came of it: `lost`, `late:5s`, `reset`, a status,
//!   `unsettled` or `short`; without any, it was taken. `x2` has it be for twice as much.
//! - `look`, `cancel`, `balance`, `book TOKEN`, `user-socket`, `user-socket-end`, then `reset` or a
//!   status.
//! - a kind of trouble, then its token, and its length as `5s`.

use std::fmt::Write as _;

use super::*;
use crate::trouble::{Act, ActKind, Kind, Line, Met, OrderAct};

fn millis(text: &str) -> u64 {
    match text.strip_suffix("ms") {
        Some(millis) => millis.parse().unwrap(),
        None => 1_000 * text.strip_suffix('s').unwrap().parse::<u64>().unwrap(),
    }
}

/// The lines of one line of text, in the order in which a server writes them.
fn lines(text: &str) -> Vec<Line> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [time, who, what, rest @ ..] = &words[..] else { panic!("{text}") };
    let number = &who[1..];
    let at_ms = millis(time);
    let wallet = who.starts_with('w').then(|| Box::from(format!("0x{number}")));
    let address = Some(format!("10.0.0.{number}").into());
    let met = |trouble, length_ms: u64, orders, token| {
        let (wallet, address) = (wallet.clone(), address.clone());
        let length_ms = u32::try_from(length_ms).unwrap();
        Line::Met(Met { at_ms, trouble, number: 1, length_ms, wallet, address, orders, token })
    };
    if let Some(kind) = Kind::named(what) {
        let length = rest.iter().find_map(|word| word.ends_with('s').then(|| millis(word)));
        let token = rest.iter().find(|word| word.starts_with('t')).map(|word| Box::from(*word));
        return vec![met(kind, length.unwrap_or(0), Vec::new(), token)];
    }
    let act = serde_json::from_value(serde_json::Value::from(*what)).unwrap();
    let mut all = Vec::new();
    let mut status = if what.contains("socket") { 0 } else { 200 };
    let mut order = None;
    let mut tokens = Vec::new();
    let mut results = rest;
    if act == ActKind::Order {
        let [salt, side, token, results_of_order @ ..] = rest else { panic!("{text}") };
        results = results_of_order;
        order = Some(OrderAct {
            salt: Box::from(*salt),
            id: Some(format!("id-{salt}").into()),
            token: Box::from(*token),
            side: Box::from(*side),
            making_micros: 1,
            taking_micros: 2,
            error: None,
            is_unsettled: false,
        });
    } else if act == ActKind::Book {
        tokens = rest[..1].iter().map(|token| Box::from(*token)).collect();
        results = &rest[1..];
    }
    let mut after = Vec::new();
    for result in results {
        let ids: Vec<_> = order.iter().filter_map(|order: &OrderAct| order.id.clone()).collect();
        match (*result, &mut order) {
            ("lost", _) => after.push(met(Kind::Lost, 0, ids, None)),
            ("reset", _) => {
                all.push(met(Kind::Reset, 0, Vec::new(), None));
                status = 0;
            }
            ("x2", Some(order)) => order.making_micros = 2,
            ("unsettled", Some(order)) => (order.is_unsettled, status) = (true, 400),
            ("short", Some(order)) => {
                order.error = Some("not enough balance / allowance: none".into());
                status = 400;
            }
            (late, _) if late.starts_with("late:") => {
                after.push(met(Kind::Late, millis(&late[5..]), ids, None));
            }
            (code, _) => status = code.parse().unwrap(),
        }
    }
    if let Some(order) = order.as_mut().filter(|_| status != 200) {
        order.id = None;
    }
    let (wallet, address) = (wallet.clone(), address.clone());
    all.push(Line::Act(Act { at_ms, act, wallet, address, status, order, tokens }));
    all.extend(after);
    all
}

fn report_of(record: &str) -> Report {
    let mut reader = Reader::default();
    let texts = record.split(';').map(str::trim).filter(|text| !text.is_empty());
    texts.flat_map(lines).for_each(|line| reader.read(line));
    reader.report()
}

/// The mistakes in a record, with their number and the salt of the first example: `w1
/// orders-doubled 1 B`.
fn found(record: &str) -> String {
    let report = report_of(record);
    let mut text = String::new();
    for party in &report.parties {
        for Finding { mistake, count, examples, .. } in &party.findings {
            let who = match (&party.wallet, &party.address) {
                (Some(wallet), None) => wallet.replace("0x", "w"),
                (None, Some(address)) => address.replace("10.0.0.", "a"),
                _ => panic!("{party:?}"),
            };
            let salt = examples[0].salt.as_deref().map(|salt| format!(" {salt}"));
            let name = mistake.name();
            write!(text, "{who} {name} {count}{}; ", salt.unwrap_or_default()).unwrap();
        }
    }
    assert_eq!(report.is_clean, text.is_empty());
    assert_eq!(report.unjudged_count, 0);
    text.trim_end_matches("; ").to_owned()
}

#[track_caller]
fn check(rows: &[(&str, &str)]) {
    for (record, expected) in rows {
        assert_eq!(found(record), *expected, "{record}");
    }
}

#[test]
fn orders_are_doubled() {
    check(&[
        ("0s w1 order A BUY t1 lost; 3s w1 order B BUY t1", "w1 orders-doubled 1 B"),
        ("0s w1 order A BUY t1 lost; 60s w1 order B BUY t1", "w1 orders-doubled 1 B"),
        ("0s w1 order A BUY t1 lost; 61s w1 order B BUY t1", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 lost; 3s w1 order A BUY t1", ""),
        ("0s w1 order A BUY t1 lost; 3s w1 order A BUY t1; 4s w1 order B BUY t1", ""),
        ("0s w1 order A BUY t1 lost; 1s w1 look; 3s w1 order B BUY t1", ""),
        (
            "0s w1 order A BUY t1 lost; 1s w1 look reset; 3s w1 order B BUY t1",
            "w1 orders-doubled 1 B",
        ),
        ("0s w1 order A BUY t1 lost; 1s w2 look; 3s w1 order B BUY t1", "w1 orders-doubled 1 B"),
        ("0s w1 order A BUY t1 lost; 1s w1 cancel; 3s w1 order B BUY t1", ""),
        ("0s w1 user-socket; 1s w1 order A BUY t1 lost; 3s w1 order B BUY t1", ""),
        (
            "0s w1 user-socket; 1s w1 user-socket-end; 2s w1 order A BUY t1 lost; \
             3s w1 order B BUY t1",
            "w1 orders-doubled 1 B",
        ),
        // A socket shows nothing from before.
        (
            "0s w1 order A BUY t1 lost; 1s w1 user-socket; 2s w1 order B BUY t1",
            "w1 orders-doubled 1 B",
        ),
        ("0s w1 order A BUY t1; 3s w1 order B BUY t1", ""),
        ("0s w1 order A BUY t1 lost; 1s w1 order B BUY t1 400; 2s w1 look", ""),
        ("0s w1 order A BUY t1 lost; 1s w2 order B BUY t1; 2s w1 look", ""),
        ("0s w1 order A BUY t1 lost; 1s w1 order B BUY t2; 2s w1 look", ""),
        ("0s w1 order A BUY t1 lost; 1s w1 order B SELL t1; 2s w1 look", ""),
        ("0s w1 order A BUY t1 lost; 1s w1 order B BUY t1 x2; 2s w1 look", ""),
        ("0s w1 order A BUY t1 late:5s; 3s w1 order B BUY t1", "w1 orders-doubled 1 B"),
        ("0s w1 order A BUY t1 late:5s; 6s w1 order B BUY t1", ""),
        // Neither was carried out.
        ("0s w1 order A BUY t1 reset; 3s w1 order B BUY t1; 4s w1 look", ""),
        ("0s w1 order A BUY t1 500; 3s w1 order B BUY t1", ""),
        (
            "0s w1 order A BUY t1 lost; 1s w1 order B BUY t1 lost; 2s w1 order C BUY t1",
            "w1 orders-doubled 2 B",
        ),
        // Two orders of a list.
        ("0s w1 order A BUY t1; 0s w1 order B BUY t1 lost; 2s w1 look", ""),
    ]);
}

#[test]
fn orders_are_never_looked_for() {
    check(&[
        ("0s w1 order A BUY t1 lost", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 reset", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 reset; 5s w1 order A BUY t1", ""),
        ("0s w1 order A BUY t1 reset; 5s w1 order B BUY t1", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 lost; 60s w1 look", ""),
        ("0s w1 order A BUY t1 lost; 61s w1 look", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 lost; 5s w1 balance", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 lost; 5s w1 cancel 425", "w1 orders-never-looked-for 1 A"),
        ("0s w1 order A BUY t1 late:5s", ""),
        ("0s w1 user-socket; 1s w1 order A BUY t1 lost", ""),
        // A refusal whose answer is lost has no order.
        ("0s w1 order A BUY t1 400; 0s w1 lost", ""),
        (
            "0s w1 order A BUY t1 lost; 1s w2 order A BUY t1 lost; 2s w2 look",
            "w1 orders-never-looked-for 1 A",
        ),
    ]);
}

#[test]
fn unsettled_shares_are_sold() {
    check(&[
        ("0s w1 order A SELL t1 unsettled", "w1 unsettled-sales 1 A"),
        (
            "0s w1 order A SELL t1 unsettled; 9s w1 order A SELL t1 unsettled",
            "w1 unsettled-sales 2 A",
        ),
        ("0s w1 order A SELL t1 short", ""),
    ]);
}

#[test]
fn orders_are_based_on_dead_books() {
    check(&[
        ("0s a1 silence t1 20s; 11s w1 order A BUY t1", "w1 dead-book-trades 1 A"),
        ("0s a1 silence t1 20s; 9s w1 order A BUY t1", ""),
        ("0s a1 silence t1 20s; 21s w1 order A BUY t1", ""),
        ("0s a1 silence t1 20s; 11s w1 order A BUY t2", ""),
        ("0s a1 silence t1 20s; 11s w2 order A BUY t1", ""),
        ("0s a1 silence t1 20s; 5s a1 book t1; 11s w1 order A BUY t1", ""),
        ("0s a1 silence t1 20s; 5s a1 book t2; 11s w1 order A BUY t1", "w1 dead-book-trades 1 A"),
        (
            "0s a1 silence t1 20s; 5s a1 book t1 403; 11s w1 order A BUY t1",
            "w1 dead-book-trades 1 A",
        ),
        ("0s a1 book t1; 1s a1 silence t1 20s; 12s w1 order A BUY t1", "w1 dead-book-trades 1 A"),
        ("0s a1 silence 20s; 11s w1 order A BUY t1", "w1 dead-book-trades 1 A"),
        ("0s a1 ghost t1 5s; 1ms w1 order A BUY t1", "w1 dead-book-trades 1 A"),
        ("0s a1 ghost t1 5s; 6s w1 order A BUY t1", ""),
        ("0s a1 gap t1; 6s w1 order A BUY t1", ""),
    ]);
}

#[test]
fn requests_are_tried_again_without_a_pause() {
    for status in [403, 425, 429, 500, 503] {
        let again = |ms, salt| {
            format!("0s w1 order A BUY t1 {status}; {ms}ms w1 order {salt} BUY t1 {status}")
        };
        check(&[
            (&again(499, "A"), "w1 retries-without-pause 1 A"),
            (&again(499, "B"), "w1 retries-without-pause 1 B"),
            (&again(500, "A"), ""),
            // Orders of a list.
            (&again(0, "B"), ""),
        ]);
    }
    check(&[
        ("0s w1 order A BUY t1 400; 1ms w1 order A BUY t1", ""),
        ("0s w1 order A BUY t1 425; 1ms w1 order B BUY t2 425", ""),
        ("0s w1 order A BUY t1 425; 1ms w2 order A BUY t1", ""),
        ("0s w1 order A BUY t1 425; 1ms w1 look; 2ms w1 cancel", ""),
        ("0s w1 cancel 425; 1ms w1 cancel 425; 2ms w1 cancel", "w1 retries-without-pause 2"),
        ("0s a1 book t1 403; 1ms a1 book t1", "a1 retries-without-pause 1"),
        ("0s a1 book t1 403; 1ms a1 book t2", ""),
        // Requests of this kind have different paths.
        ("0s a1 other 403; 1ms a1 other 403", ""),
        // As long as the 429 said.
        ("0s w1 limited 10s; 0s w1 look 429; 9s w1 look 429", "w1 retries-without-pause 1"),
        ("0s w1 limited 10s; 0s w1 look 429; 10s w1 look", ""),
        (
            "0s w1 limited 10s; 0s w1 look 429; 4s w1 look 429; 9s w1 look 429",
            "w1 retries-without-pause 2",
        ),
    ]);
}

#[test]
fn failed_trades_are_ignored() {
    check(&[
        ("0s w1 failed t1 5s; 6s w1 order A SELL t1 short", "w1 failed-trades-ignored 1 A"),
        ("0s w1 failed t1 5s; 6s w1 look; 7s w1 order A SELL t1 short", ""),
        ("0s w1 failed t1 5s; 6s w1 balance; 7s w1 order A SELL t1 short", ""),
        (
            "0s w1 failed t1 5s; 4s w1 look; 7s w1 order A SELL t1 short",
            "w1 failed-trades-ignored 1 A",
        ),
        ("0s w1 failed t1 5s; 4s w1 order A SELL t1 short", ""),
        ("0s w1 failed t1 5s; 6s w1 order A SELL t2 short", ""),
        ("0s w1 failed t1 5s; 6s w1 order A BUY t1 short", ""),
        ("0s w1 failed t1 5s; 6s w1 order A SELL t1", ""),
        ("0s w1 failed t1 5s; 6s w2 order A SELL t1 short", ""),
        ("0s w1 lag t1 5s; 6s w1 order A SELL t1 short", ""),
    ]);
}

/// Requests take their time, and their lines come after those of later ones.
#[test]
fn lines_may_be_out_of_order() {
    check(&[
        ("2s w1 look; 0s w1 order A BUY t1 lost; 3s w1 order B BUY t1", ""),
        ("3s w1 order B BUY t1; 0s w1 order A BUY t1 lost", "w1 orders-doubled 1 B"),
    ]);
}

#[test]
fn a_report_says_what_was_met_and_what_was_done() {
    let report = report_of(
        "0s w2 order A BUY t1 lost; 1s w2 look; 2s w2 order B BUY t1 lost; 3s w2 order B BUY t1; \
         4s w2 order C BUY t1 reset; 5s w2 cancel; 6s w2 user-socket; 7s w2 order D BUY t1 lost; \
         8s w1 look; 9s a3 reset",
    );
    let shown = serde_json::to_value(&report).unwrap();
    let expected = serde_json::json!({
        "is_clean": true,
        "from_ms": 0,
        "until_ms": 9_000,
        "line_count": 14,
        "unjudged_count": 0,
        "parties": [
            {
                "wallet": "0x2",
                "address": null,
                "request_count": 7,
                "met": {"lost": 3, "reset": 1},
                "unanswered_orders": {
                    "count": 4, "repeated": 1, "looked_for": 1, "cancelled": 1, "on_socket": 1,
                },
                "findings": [],
            },
            {
                "wallet": null,
                "address": "10.0.0.3",
                "request_count": 0,
                "met": {"reset": 1},
                "unanswered_orders": {
                    "count": 0, "repeated": 0, "looked_for": 0, "cancelled": 0, "on_socket": 0,
                },
                "findings": [],
            },
        ],
    });
    assert_eq!(shown, expected);
    let report = report_of("5s w1 order A BUY t1 lost; 70s w1 order A SELL t1 unsettled");
    let findings = serde_json::to_value(&report.parties[0].findings).unwrap();
    let expected = serde_json::json!([
        {
            "mistake": "orders-never-looked-for",
            "count": 1,
            "advice": Mistake::NeverLookedFor.advice(),
            "examples": [{"at_ms": 5_000, "order": "id-A", "salt": "A", "token": "t1"}],
        },
        {
            "mistake": "unsettled-sales",
            "count": 1,
            "advice": Mistake::Unsettled.advice(),
            "examples": [{"at_ms": 70_000, "order": null, "salt": "A", "token": "t1"}],
        },
    ]);
    assert_eq!(findings, expected);
    assert!(!report.is_clean && report.without_findings().parties[0].findings.is_empty());
}

#[test]
fn what_does_not_fit_is_counted() {
    let mut reader = Reader::default();
    let record = |salt| format!("{salt}ms w1 order {salt} BUY t{salt} lost");
    (0..300).flat_map(|salt| lines(&record(salt))).for_each(|line| reader.read(line));
    let report = reader.report();
    assert_eq!((report.line_count, report.unjudged_count), (600, 44));
    assert_eq!(report.parties[0].findings[0].count, 256);
    assert_eq!(report.parties[0].findings[0].examples.len(), 3);

    let mut reader = Reader::default();
    let record = |number| format!("0s w{number} reset");
    let count = 2 * PARTIES_MAX + 5;
    (0..count).flat_map(|number| lines(&record(number))).for_each(|line| reader.read(line));
    let report = reader.report();
    assert_eq!((report.parties.len(), report.unjudged_count), (2 * PARTIES_MAX, 5));
}
