//! `paperbourse trouble`: what it shows of a record, and its exit codes.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::{errors, in_folder};

const WALLET: &str = "0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a";
const TOKEN: &str = "71321045679252212594626385532706912750332728571942532289631379312455583992563";

fn id(number: u8) -> String {
    format!("0x{}", format!("{number:02}").repeat(32))
}

/// An order that was taken, or refused with a status, as a line of a record.
fn order(at_ms: u64, number: u8, status: u16) -> String {
    let mut order = json!({
        "salt": number.to_string(),
        "token": TOKEN,
        "side": "BUY",
        "making_micros": 1,
        "taking_micros": 2,
    });
    if status == 200 {
        order["id"] = id(number).into();
    }
    let act = json!({
        "at_ms": at_ms,
        "act": "order",
        "wallet": WALLET,
        "address": "10.0.0.1",
        "status": status,
        "order": order,
    });
    format!("{act}\n")
}

fn lost(at_ms: u64, number: u8) -> String {
    let met = json!({
        "at_ms": at_ms,
        "trouble": "lost",
        "number": 1,
        "length_ms": 0,
        "wallet": WALLET,
        "orders": [id(number)],
    });
    format!("{met}\n")
}

/// What the command prints about this record in `data`, with its exit code.
fn shown(folder: &Path, record: &str, flags: &[&str]) -> (String, Option<i32>) {
    fs::create_dir_all(folder.join("data")).unwrap();
    fs::write(folder.join("data/trouble.jsonl"), record).unwrap();
    let words = [&["trouble"], flags].concat();
    let output = in_folder(folder, &words, None).output().unwrap();
    assert_eq!(errors(&output), "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn people_get_a_text_and_programs_an_object() {
    let folder = tempfile::tempdir().unwrap();
    let at = 1_795_939_200_000;
    let record = [
        order(at, 1, 200),
        lost(at, 1),
        order(at + 1_250, 2, 200),
        order(at + 61_000, 3, 425),
        order(at + 61_010, 3, 425),
        "nonsense\n".to_owned(),
        r#"{"at_ms":17959"#.to_owned(),
    ]
    .concat();
    let (text, code) = shown(folder.path(), &record, &["--report"]);
    insta::assert_snapshot!(text, @"
    5 lines from 2026-11-29T08:00:00Z to 2026-11-29T08:01:01.01Z

    wallet 0x19e7e376e7c213b7e7e7e46cc70a5dd086daff2a, 4 requests
      met: lost 1
      orders without an answer: 1; then sent again 0, looked for 0, cancelled 0,
      seen on a socket 0

      orders doubled: 1
        After an answer that does not come, send the same signed order again, or
        read your orders and trades before you sign another.
        2026-11-29T08:00:01.25Z  order 0x020202020202…  token 71321045679252…

      retries without a pause: 1
        Wait before you try again: as long as Retry-After says, and longer after
        each refusal.
        2026-11-29T08:01:01.01Z  salt 3  token 71321045679252…

    Number of unreadable lines: 1
    The last line is incomplete, as after a kill, and was skipped.
    2 findings.
    ");
    assert_eq!(code, Some(1));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    let (text, code) = shown(folder.path(), &record, &[]);
    assert_eq!(code, Some(0));
    assert!(text.contains("met: lost 1") && text.contains("What they did"), "{text}");
    assert!(!text.contains("doubled"), "{text}");

    let (text, code) = shown(folder.path(), &record, &["--report", "--json"]);
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_str(&text).unwrap();
    let advice = |place: usize| report["parties"][0]["findings"][place]["advice"].clone();
    let example = |at_ms, order: Option<u8>, salt: &str| {
        let order = order.map(id);
        json!({"at_ms": at_ms, "order": order, "salt": salt, "token": TOKEN})
    };
    let expected = json!({
        "is_clean": false,
        "from_ms": at,
        "until_ms": at + 61_010,
        "line_count": 5,
        "unjudged_count": 0,
        "parties": [{
            "wallet": WALLET,
            "address": null,
            "request_count": 4,
            "met": {"lost": 1},
            "unanswered_orders": {
                "count": 1, "repeated": 0, "looked_for": 0, "cancelled": 0, "on_socket": 0,
            },
            "findings": [
                {
                    "mistake": "orders-doubled",
                    "count": 1,
                    "advice": advice(0),
                    "examples": [example(at + 1_250, Some(2), "2")],
                },
                {
                    "mistake": "retries-without-pause",
                    "count": 1,
                    "advice": advice(1),
                    "examples": [example(at + 61_010, None, "3")],
                },
            ],
        }],
        "unreadable_line_count": 1,
        "has_torn_end": true,
        "is_full": false,
    });
    assert_eq!(report, expected);
}

#[test]
fn a_careful_bot_has_a_clean_report() {
    let folder = tempfile::tempdir().unwrap();
    let record = [order(1, 1, 200), lost(1, 1), order(700, 1, 200)].concat();
    let (text, code) = shown(folder.path(), &record, &["--report"]);
    assert!(text.ends_with("\nNothing would have cost money.\n"), "{text}");
    assert_eq!(code, Some(0));
    let (text, code) = shown(folder.path(), "", &["--report"]);
    assert_eq!((&*text, code), ("\nNo trouble was met.\n", Some(0)));
}

#[test]
fn a_full_record_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("data/trouble.jsonl");
    shown(folder.path(), "", &[]);
    // Holes take no room on the disk.
    fs::File::options().write(true).open(&record).unwrap().set_len(256 << 20).unwrap();
    let output = in_folder(folder.path(), &["trouble", "--report"], None).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\nThe record is full, so the newest lines are missing: "), "{text}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn without_a_record_it_says_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let rows: [(&[&str], &str); 2] = [
        (
            &["trouble", "--report"],
            "paperbourse: there is no ./data/trouble.jsonl: start the server with --clob on \
             --clob-trouble PLAN, and name its data folder with --data\n",
        ),
        (
            &["trouble", "--data", "memory"],
            "error: invalid value 'memory' for '--data <DIR>': a server with --data memory keeps \
             no record of trouble\n\nFor more information, try '--help'.\n",
        ),
    ];
    for (words, expected) in rows {
        let output = in_folder(folder.path(), words, None).output().unwrap();
        assert_eq!(errors(&output), expected);
        assert_eq!(output.status.code(), Some(2));
    }
    fs::create_dir_all(folder.path().join("data/trouble.jsonl")).unwrap();
    let output = in_folder(folder.path(), &["trouble"], None).output().unwrap();
    let message = errors(&output);
    assert!(message.starts_with("paperbourse: failed to read ./data/trouble.jsonl: "), "{message}");
    assert_eq!(output.status.code(), Some(2));
}
