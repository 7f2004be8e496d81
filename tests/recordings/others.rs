//! Recordings as other people's programs write them: descriptions and announcements that take
//! effect at their time, all forms of files and envelopes, and the reasons for what is not played.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use paperbourse::ids::OutcomeIndex;
use paperbourse::market::Markets;
use paperbourse::market::catalogue::MarketStatus;
use paperbourse::money::Price;
use paperbourse::venue::recorded::{
    LEFT_OUT_NAMED_MAX, LoadReport, MALFORMED_NAMED_MAX, NotPlayable, Recorded, Recording,
};
use paperbourse::venue::speed::Speed;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::recordings::case_path;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{check_not_playable, condition, feed, play};

/// When the invented recordings begin, in milliseconds since 1970.
const START_MS: i64 = 1_795_317_300_000;

/// A recording of these files, by their paths in it.
fn recording(files: &[(&str, &[u8])]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    folder
}

fn lines(rows: &[Value]) -> Vec<u8> {
    let lines: Vec<String> = rows.iter().map(Value::to_string).collect();
    lines.join("\n").into_bytes()
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}

/// An RFC 3339 time this many seconds after the start.
fn time(seconds: i64) -> String {
    jiff::Timestamp::from_millisecond(START_MS + seconds * 1_000).unwrap().to_string()
}

/// A Gamma description of an open market, last updated this many seconds after the start.
fn described(number: u8, seconds: i64) -> Value {
    json!({
        "conditionId": condition(number), "question": format!("Question {number}?"),
        "outcomes": "[\"Yes\",\"No\"]", "outcomePrices": "[\"0.5\",\"0.5\"]",
        "clobTokenIds": format!("[\"{number}1\",\"{number}2\"]"),
        "active": true, "closed": false, "acceptingOrders": true, "enableOrderBook": true,
        "feesEnabled": false, "updatedAt": time(seconds),
    })
}

fn with(mut row: Value, fields: Value) -> Value {
    let Value::Object(fields) = fields else { panic!("{fields} is no object") };
    row.as_object_mut().unwrap().extend(fields);
    row
}

fn resolved(number: u8, seconds: i64) -> Value {
    let fields = json!({
        "closed": true, "acceptingOrders": false, "umaResolutionStatus": "resolved",
        "outcomePrices": "[\"1\",\"0\"]",
    });
    with(described(number, seconds), fields)
}

/// A frame of a book of the first outcome, this many seconds after the start.
fn book(number: u8, seconds: i64) -> Value {
    json!({
        "event_type": "book", "market": condition(number), "asset_id": format!("{number}1"),
        "timestamp": (START_MS + seconds * 1_000).to_string(),
        "bids": [{"price": "0.4", "size": "100"}], "asks": [{"price": "0.6", "size": "100"}],
    })
}

fn announced(number: u8, seconds: i64) -> Value {
    json!({
        "event_type": "new_market", "market": condition(number), "question": "A new one?",
        "assets_ids": [format!("{number}1"), format!("{number}2")], "outcomes": ["Yes", "No"],
        "timestamp": (START_MS + seconds * 1_000).to_string(), "active": true,
        "order_price_min_tick_size": "0.01",
    })
}

#[track_caller]
fn check_malformed(report: &LoadReport, expected: &[&str]) {
    let malformed: Vec<String> = report.malformed.iter().map(ToString::to_string).collect();
    assert_eq!(malformed, expected);
}

/// The ask of an outcome in micro-dollars, if orders can fill on it.
fn ask(markets: &Markets, condition_id: &str, outcome: u8) -> Option<i64> {
    let market = markets.by_condition(condition_id)?;
    let is_tradable = market.snapshot().info().is_tradable();
    let book = market.book(OutcomeIndex(outcome)).clone().filter(|_| is_tradable)?;
    book.ladder().best_ask().map(|level| level.price.micros())
}

/// Plays a recording at the speed at which it was recorded, and looks at the markets at these
/// times, in seconds after the first frame.
async fn at_times<T>(directory: &Path, times: &[f64], look: impl Fn(&Markets) -> T) -> Vec<T> {
    let (recording, _) = Recording::load(directory).unwrap();
    let mut player = recording.play(Speed::REAL_TIME, feed());
    let markets = player.feed().markets().clone();
    let looking = async {
        let began = tokio::time::Instant::now();
        let mut seen = Vec::new();
        for &seconds in times {
            tokio::time::sleep_until(began + Duration::from_secs_f64(seconds)).await;
            seen.push(look(&markets));
        }
        seen
    };
    tokio::join!(player.run(), looking).1
}

/// The status of an invented market: its first letter, or `-` if it is not listed.
fn status(markets: &Markets) -> char {
    let market = markets.by_condition(&condition(1));
    market.map_or('-', |market| match market.info().status {
        MarketStatus::Hydrating => 'h',
        MarketStatus::Open => 'o',
        MarketStatus::Paused => 'p',
        MarketStatus::Closed => 'c',
        MarketStatus::Resolved => 'r',
    })
}

#[tokio::test(start_paused = true)]
async fn whatever_is_said_about_a_market_takes_effect_at_its_time() {
    let paused = |seconds| with(described(1, seconds), json!({"acceptingOrders": false}));
    let without_tokens = |seconds| with(described(1, seconds), json!({"clobTokenIds": "[]"}));
    let inactive = |seconds| with(announced(1, seconds), json!({"active": false}));
    let ended = |seconds: i64| {
        json!({
            "event_type": "market_resolved", "market": condition(1), "winning_asset_id": "11",
            "timestamp": (START_MS + seconds * 1_000).to_string(),
        })
    };
    let undated = json!({
        "event_type": "tick_size_change", "market": condition(1), "asset_id": "11",
        "old_tick_size": "0.01", "new_tick_size": "0.001",
    });
    let long = |is_closed: bool| {
        let tokens = json!([
            {"token_id": "11", "outcome": "Yes"}, {"token_id": "12", "outcome": "No"},
        ]);
        json!({
            "condition_id": condition(1), "tokens": tokens, "active": true, "closed": is_closed,
            "accepting_orders": !is_closed, "taker_base_fee": 0,
        })
    };
    let frames = [book(1, 0), book(1, 25)];
    for (described, frames, expected) in [
        // In the order of time, not of rows.
        (
            &[resolved(1, 30), paused(10), described(1, 20), described(1, -5)][..],
            &frames[..],
            "ooppor",
        ),
        (&[described(1, -9_000), paused(-8_000)], &frames, "pppppp"),
        // What happens before the first description shows that the market exists.
        (&[described(1, 10)], &frames, "oooooo"),
        (&[resolved(1, 10), described(1, 20)], &frames, "rrrrrr"),
        // A winner on the socket closes the market, until the catalogue says more.
        (
            &[described(1, -5), described(1, 15), resolved(1, 20)],
            &[book(1, 0), ended(10)],
            "ooccrr",
        ),
        // An announcement opens a market, unless it says otherwise.
        (&[], &[announced(1, 0), book(1, 1)], "oooooo"),
        (&[], &[book(2, 0), announced(1, 5)], "-ooooo"),
        (&[], &[inactive(0), book(1, 1)], "pppppp"),
        (&[], &[announced(1, 0), ended(10), announced(1, 15)], "oocccc"),
        // The catalogue says more than an announcement, at its time.
        (&[paused(10), described(1, 20)], &[announced(1, 0)], "ooppoo"),
        (&[described(1, 10)], &[book(2, 0), announced(1, 5)], "-ooooo"),
        (&[paused(-5)], &[announced(1, 0), book(1, 1)], "pppppp"),
        (&[described(1, 20)], &[inactive(0)], "ppppoo"),
        (&[without_tokens(-5)], &[book(2, 0), announced(1, 10)], "hhoooo"),
        // The pace counts from the first timestamp.
        (&[described(1, -5), resolved(1, 10)], &[undated, book(1, 0)], "oorrrr"),
        // A description without a time holds from its place in the file, or from the start.
        (&[], &[long(false), book(1, 0), book(1, 10), long(true)], "oocccc"),
        (&[long(true)], &frames, "cccccc"),
    ] {
        let folder = recording(&[
            ("gamma/described.jsonl", &lines(described)),
            ("ws/frames.jsonl", &lines(frames)),
        ]);
        let (player, report) = play(folder.path());
        check_not_playable(&report, &[]);
        check_malformed(&report, &[]);
        let seen = at_times(folder.path(), &[0.5, 5.5, 10.5, 15.5, 20.5, 30.5], status).await;
        assert_eq!(seen.into_iter().collect::<String>(), expected, "{described:?} {frames:?}");
        assert_eq!(Some(status(player.feed().markets())), expected.chars().last());
    }
}

/// A market is open until its second description says that it is resolved, 60 s after the start.
async fn check_resolves_later(directory: &Path, condition_id: &str) {
    let (_, report) = Recording::load(directory).unwrap();
    assert_eq!(report.market_count(MarketStatus::Open), 1, "{report}");
    let look = |markets: &Markets| {
        let info = markets.by_condition(condition_id).unwrap().info();
        (ask(markets, condition_id, 0), info.status, info.payouts.clone())
    };
    let seen = at_times(directory, &[0.1, 59.9, 60.1], look).await;
    let before = (Some(600_000), MarketStatus::Open, vec![]);
    let after = (None, MarketStatus::Resolved, vec![Price::ONE, Price::ZERO]);
    assert_eq!(seen, [before.clone(), before, after]);
}

#[tokio::test(start_paused = true)]
async fn a_market_resolves_when_its_recording_says_so() {
    let folder = recording(&[
        ("gamma/a.json", &lines(&[resolved(1, 60)])),
        ("gamma/b.json", &lines(&[described(1, -5)])),
        ("ws/frames.jsonl", &lines(&[book(1, 0), book(1, 59)])),
    ]);
    check_resolves_later(folder.path(), &condition(1)).await;
    let Some(case) = case_path("resolves-later") else { return };
    check_resolves_later(&case, &format!("0x{:064x}", 1)).await;
}

#[test]
fn an_announced_market_can_be_traded() {
    let folder = recording(&[("ws/frames.jsonl", &lines(&[announced(1, 0), book(1, 1)]))]);
    let (player, report) = play(folder.path());
    assert_eq!(ask(player.feed().markets(), &condition(1), 0), Some(600_000), "{report}");
    assert_eq!(report.undescribed_count, 0);
    let Some(case) = case_path("announced-then-traded") else { return };
    let (player, report) = play(&case);
    let condition_id = format!("0x{:064x}", 1);
    for outcome in [0, 1] {
        let ask = ask(player.feed().markets(), &condition_id, outcome);
        assert_eq!(ask, Some(600_000), "{report}");
    }
}

#[test]
fn every_form_of_file_is_read() {
    let rows = |number| lines(&[described(number, -5), book(number, 0)]);
    let marked = |content: &[u8]| [b"\xef\xbb\xbf", content].concat();
    let array = |number| json!([described(number, -5), book(number, 0)]).to_string();
    let event = |number| json!({"id": "1", "markets": [described(number, -5)]});
    let text = |value: Value| json!(value.to_string());
    let files: [(&str, Vec<u8>); 17] = [
        ("ws/1.ndjson", rows(1)),
        ("ws/2.JsonL", rows(2)),
        ("ws/3.JSON", array(3).into_bytes()),
        ("ws/4.jsonl.gz", packed(&rows(4))),
        ("ws/5.json.GZ", packed(array(5).as_bytes())),
        ("ws/6.ndjson.gz", [packed(&marked(&rows(6))), packed(b"\n")].concat()),
        ("ws/2026-11/28/7.jsonl", rows(7)),
        // Packed, though its name does not say so, and the other way round.
        ("ws/8.jsonl", packed(&rows(8))),
        ("ws/9.jsonl.gz", rows(9)),
        ("gamma/10.json", marked(array(10).as_bytes())),
        ("gamma/11.jsonl", [marked(&rows(11)), marked(&rows(12))].join(&b'\n')),
        // What the venue's own lists answer.
        ("gamma/13.json", json!({"events": [event(13)], "next_cursor": "x"}).to_string().into()),
        ("gamma/14.json", json!({"data": [described(14, -5)]}).to_string().into()),
        ("ws/13.jsonl", lines(&[json!({"payload": book(13, 0)}), json!({"frame": [book(14, 0)]})])),
        // Texts that contain JSON.
        ("gamma/15.jsonl", lines(&[json!({"payload": text(json!([described(15, -5)]))})])),
        ("ws/15.jsonl", lines(&[text(json!({"frame": text(json!([book(15, 0)]))}))])),
        ("ws/15.json", br#"["PONG", " ", "NO NEW ASSETS"]"#.to_vec()),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (*path, &bytes[..])).collect();
    let folder = recording(&files);
    let (player, report) = play(folder.path());
    check_not_playable(&report, &[]);
    check_malformed(&report, &[]);
    assert_eq!((report.file_count, report.left_out.count), (files.len(), 0));
    for number in 1..=15 {
        let ask = ask(player.feed().markets(), &condition(number), 0);
        assert_eq!(ask, Some(600_000), "market {number}");
    }
    let Some(case) = case_path("envelopes") else { return };
    let (player, report) = play(&case);
    check_not_playable(&report, &[("ws/collector.jsonl", NotPlayable::BookWithoutIds)]);
    check_malformed(&report, &[]);
    assert_eq!(report.market_count(MarketStatus::Open), 2, "{report}");
    assert_eq!((report.message_count, player.feed().counts().level_changes), (2, 1));
    assert_eq!(ask(player.feed().markets(), &format!("0x{:064x}", 1), 0), Some(600_000));
}

/// Numbers are played like the strings that the venue sends.
#[test]
fn rows_of_numbers_are_played() {
    let at = START_MS;
    let change = json!({
        "event_type": "price_change", "market": condition(1), "timestamp": (at + 1).to_string(),
        "price_changes": [{"asset_id": "11", "price": "0.45", "size": "50.5", "side": "BUY",
            "best_bid": "0.45", "best_ask": "0.6"}],
    });
    let trade = json!({
        "event_type": "last_trade_price", "market": condition(1), "asset_id": "11",
        "price": "0.55", "size": "7", "side": "SELL", "timestamp": (at + 2).to_string(),
    });
    let mut answer = book(1, 3);
    answer.as_object_mut().unwrap().remove("event_type");
    let answer =
        with(answer, json!({"tick_size": "0.01", "min_order_size": "5", "neg_risk": false}));
    let strings = lines(&[described(1, -5), book(1, 0), change, trade, answer]);
    let strings = String::from_utf8(strings).unwrap();
    let mut numbers = strings.clone();
    for digits in [
        (at).to_string(),
        (at + 1).to_string(),
        (at + 2).to_string(),
        (at + 3_000).to_string(),
        "11".into(),
        "0.4".into(),
        "0.6".into(),
        "100".into(),
        "0.45".into(),
        "50.5".into(),
        "0.55".into(),
        "7".into(),
        "0.01".into(),
        "5".into(),
    ] {
        let string = format!("\"{digits}\"");
        assert!(numbers.contains(&string), "{string}");
        numbers = numbers.replace(&string, &digits);
    }
    let load = |rows: &str| {
        let folder = recording(&[("ws/rows.jsonl", rows.as_bytes())]);
        Recording::load(folder.path()).unwrap()
    };
    let (recording, report) = load(&numbers);
    check_malformed(&report, &[]);
    assert_eq!((recording, report), load(&strings));
}

#[test]
fn a_file_that_cannot_be_played_is_named_with_the_reason_of_its_first_row() {
    let book = |fields| lines(&[with(book(1, 0), fields)]);
    let level = |size: &str| json!({"bids": [{"price": "0.4", "size": size}]});
    let rows = lines(&[described(1, -5), json!({}), json!([])]);
    let torn = packed(&[&rows[..], &b"\n"[..]].concat());
    let files: [(&str, Vec<u8>); 11] = [
        ("gamma/a-flags.json", lines(&[with(described(2, 0), json!({"active": "perhaps"}))])),
        // Without the checksum at its end.
        ("gamma/b-torn.jsonl.gz", torn[..torn.len() - 8].to_vec()),
        ("gamma/c-torn.json.gz", packed(b"[]")[..12].to_vec()),
        ("gamma/d-unpacks-to-too-much.json.gz", packed(&vec![b' '; (128 << 20) + 1])),
        ("ws/a-seven-decimals.jsonl", book(level("50.1234567"))),
        ("ws/b-no-number.jsonl", book(level("many"))),
        ("ws/c-time.jsonl", book(json!({"timestamp": time(0)}))),
        ("ws/e-unknown.jsonl", b"{\"best\":\t1}\n{\"event_type\":\"book\"}".to_vec()),
        ("ws/f-deep.json", b"[[[[[[[[[[]]]]]]]]]]".to_vec()),
        ("ws/g-not-text.jsonl", b"\xff\n{}".to_vec()),
        ("ws/h-cut.jsonl", b"\"{\\\"event_type\\\":\"".to_vec()),
    ];
    let files: Vec<(&str, &[u8])> = files.iter().map(|(path, bytes)| (*path, &bytes[..])).collect();
    let folder = recording(&files);
    let (player, report) = play(folder.path());
    let refused: Vec<String> = report.not_playable.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(refused.join("\n"));
    let malformed: Vec<String> = report.malformed.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(malformed.join("\n"));
    // What comes before the damage is played.
    assert_eq!(status(player.feed().markets()), 'o');

    let Some(case) = case_path("refused-without-a-reason") else { return };
    let (player, report) = play(&case);
    let refused: Vec<String> = report.not_playable.iter().map(ToString::to_string).collect();
    let begins = "not playable: all rows are malformed; row 1: field";
    assert_eq!(
        refused,
        [
            format!(
                "gamma/no-outcomes.json: {begins} clobTokenIds: expected no more tokens than \
                 outcomes"
            ),
            format!("ws/iso-timestamp.jsonl: {begins} timestamp: expected milliseconds"),
            format!(
                "ws/seven-decimals.jsonl: {begins} size: a number of more than 6 decimals at \
                 line 1 column 217"
            ),
            format!("ws/twice.jsonl: {begins} bids or asks: price 0.4 occurs twice on one side"),
        ]
    );
    assert_eq!(report.book_count + report.message_count, 1);
    assert_eq!(ask(player.feed().markets(), &format!("0x{:064x}", 1), 0), Some(600_000));
}

#[test]
fn the_first_malformed_row_of_every_file_is_named() {
    let mut rows = lines(&[described(1, 0)]);
    rows.extend(b"\nnothing".repeat(MALFORMED_NAMED_MAX + 5));
    let folder =
        recording(&[("gamma/a.jsonl", &rows), ("ws/b.jsonl", &rows), ("ws/c.jsonl", &rows)]);
    let (_, report) = play(folder.path());
    assert_eq!(report.malformed_count, 3 * (MALFORMED_NAMED_MAX + 5));
    let named: Vec<(&str, usize)> =
        report.malformed.iter().map(|row| (row.file.as_str(), row.row)).collect();
    assert_eq!(named[..2], [("gamma/a.jsonl", 2), ("gamma/a.jsonl", 3)]);
    assert_eq!(named[MALFORMED_NAMED_MAX..], [("ws/b.jsonl", 2), ("ws/c.jsonl", 2)]);
}

#[test]
fn whatever_is_not_read_is_named() {
    let tape = "ws/day/20261122T031500.123Z-000001.tape.jsonl.gz";
    let folder = recording(&[
        ("gamma/markets.json", b"[]"),
        ("gamma/README", b""),
        ("clob/books.parquet", b"PAR1"),
        ("clob/books.json.zst", b""),
        ("ws/1/2/3/4/read.json", b"[]"),
        ("ws/1/2/3/4/5/6.json", b"[]"),
        (tape, b""),
        ("stray.jsonl", b""),
        ("books/2.json", b""),
        ("notes.txt", b""),
    ]);
    std::os::unix::fs::symlink("nowhere", folder.path().join("clob/link.json")).unwrap();
    let (_, report) = play(folder.path());
    assert_eq!(report.file_count, 2);
    let named: Vec<String> = report.left_out.named.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(named.join("\n"));
    assert_eq!(report.left_out.count, named.len());

    let names: Vec<String> = (0..=LEFT_OUT_NAMED_MAX).map(|place| format!("ws/{place}")).collect();
    let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
    let folder = recording(&files);
    let (_, report) = play(folder.path());
    assert_eq!(report.left_out.count, LEFT_OUT_NAMED_MAX + 1);
    assert_eq!(report.left_out.named.len(), LEFT_OUT_NAMED_MAX);
}

/// Files that do not belong to a tape stop a start only if they could be played.
#[test]
fn a_tape_may_have_other_files_beside_it() {
    let name = "20261122T031500.123Z-000001.tape.jsonl.gz";
    let (tape, older) = (format!("ws/{name}"), format!("ws/older/{name}"));
    let mut files = vec![(tape.as_str(), &b""[..]), (&older, b""), ("ws/notes.txt", b"")];
    let folder = recording(&files);
    assert!(matches!(Recorded::open(folder.path()), Ok(Recorded::Tape(_))));
    files.push(("ws/day/frames.ndjson", b""));
    let folder = recording(&files);
    let Err(error) = Recorded::open(folder.path()) else { panic!("it opens") };
    assert!(error.to_string().contains("ws/day/frames.ndjson is beside a tape"), "{error}");
}

#[test]
fn every_file_of_a_folder_of_days_is_played() {
    let Some(case) = case_path("left-out") else { return };
    let (player, report) = play(&case);
    let named: Vec<&str> = report.left_out.named.iter().map(|file| file.file.as_str()).collect();
    assert_eq!(named, ["ws/g.parquet"]);
    for outcome in [0, 1] {
        let ask = ask(player.feed().markets(), &format!("0x{:064x}", 1), outcome);
        assert_eq!(ask, Some(600_000), "outcome {outcome}");
    }
}

/// The log says what was not read, why a file cannot be played, and that nothing can be traded
/// without a description.
#[test]
fn the_log_names_what_is_not_played() {
    let folder = recording(&[
        ("ws/frames.jsonl", &lines(&[book(1, 0), book(2, 1)])),
        ("ws/frames.parquet", b"PAR1"),
        ("ws/words.jsonl", b"words"),
    ]);
    let (_, report) = play(folder.path());
    assert_eq!((report.undescribed_count, report.undescribed.as_deref()), (2, Some("11")));
    let data = tempfile::tempdir().unwrap();
    let venue = format!("recorded:{}", folder.path().display());
    let program = env!("CARGO_BIN_EXE_paperbourse");
    let server = ServerProcess::start(program, data.path(), &["--venue", &venue]);
    for text in [
        "ws/frames.parquet: not playable: its name does not end in .json",
        "ws/words.jsonl: not playable: all rows are malformed; row 1: unknown form: words",
        "no market is described for some tokens, such as 11: nothing of them can be traded; put",
    ] {
        assert_eq!(server.log_lines(text).len(), 1, "{text}: {:?}", server.log_lines(""));
    }
}
