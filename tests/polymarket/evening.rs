//! A recorded evening, taped through the stand-in: its candles are those that a script folds from
//! the raw rows, live, from the tape, and over HTTP.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use paperbourse::market::Markets;
use paperbourse::market::history::candle::{Candle, Span, Width};
use paperbourse::venue::feed::MismatchPolicy;
use paperbourse::venue::follow::timing::Timing;
use paperbourse::venue::polymarket::filter::MarketFilter;
use paperbourse::venue::recorded::TapePlayer;
use paperbourse::venue::tape::{Recorder, Tape, TapeLimits};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::connector::{Connector, QUICK};
use crate::served::Served;
use crate::standin::{Endpoint, EndpointFault, Options, Played, Recordings, StandIn, World};
use crate::tape::taped::feed;

const TICKS: &str = "ws/nhl_2026-06-07T0130Z_ticks.jsonl";

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Nothing runs out, however busy the machine is: a new connection or a repaired book would skip
/// changes.
const NEVER: Duration = Duration::from_hours(1);

/// How many minutes of the evening are played, of its 16, unless the variable says another number.
const MINUTES_DEFAULT: usize = 4;
const MINUTES: &str = "PAPERBOURSE_EVENING_MINUTES";

/// How many rows are sent before the connector has to have seen them.
const ROWS_PER_WAIT: usize = 200;

/// Start, open, high, low and close.
type Row = (i64, [String; 4]);

/// The candles of each token.
type Candles = BTreeMap<String, Vec<Row>>;

/// Recorded timestamps are old, so they are no measure of lag.
fn timing() -> Timing {
    Timing {
        lag_max: Duration::MAX,
        verified_max: NEVER,
        check_after: NEVER,
        suspect_grace: NEVER,
        sync_timeout: NEVER,
        silence_timeout: NEVER,
        pong_timeout: NEVER,
        connect_timeout: NEVER,
        answer_timeout: NEVER,
        retraction_after: NEVER,
        ..QUICK
    }
}

/// The markets of the evening, whose empty books are as old as its first row.
fn world(recordings: &Recordings, tokens: &BTreeSet<String>, began_ms: u64) -> World {
    let mut world = recordings.world();
    world.markets.retain(|market| market.token_ids.iter().all(|token| tokens.contains(token)));
    for book in world.markets.iter_mut().flat_map(|market| market.books.iter_mut().flatten()) {
        book.timestamp_ms = began_ms;
    }
    world
}

/// Sends the rows until this time with their own times, as fast as the connector takes them.
async fn play(venue: &StandIn, connector: &Connector, recordings: &Recordings, end_ms: u64) {
    let rows = recordings.values(TICKS);
    let rows = rows.iter().map(|row| serde_json::from_str::<Value>(row.get()).unwrap());
    let mut times: Vec<u64> = rows.map(|row| row["ts_ms"].as_u64().unwrap()).collect();
    let tape = recordings.tape(TICKS);
    assert_eq!(tape.len(), times.len());
    let later = times.split_off(times.iter().take_while(|at_ms| **at_ms < end_ms).count());
    assert!(later.iter().all(|at_ms| *at_ms >= end_ms), "rows before the end come after it");
    let seen = || {
        let counts = connector.status().feed;
        counts.level_changes + counts.level_changes_refused + counts.trades
    };
    let mut sent = seen();
    for (played, times) in tape.chunks(ROWS_PER_WAIT).zip(times.chunks(ROWS_PER_WAIT)) {
        for (played, &at_ms) in played.iter().zip(times) {
            match played {
                Played::Level { token, side, price, size } => {
                    venue.change_level_at(at_ms, token, (*side, price, size));
                    // One for each token.
                    sent += 2;
                }
                trade => sent += venue.play(trade) as u64,
            }
        }
        let began = Instant::now();
        while seen() < sent {
            assert!(began.elapsed() < PATIENCE, "{} of {sent}: {:?}", seen(), connector.status());
            // Counters change even if no book does.
            let _ = timeout(QUICK.sweep_interval, connector.markets.changes()).await;
        }
    }
}

fn text(candle: &Candle) -> Row {
    let Candle { start, open, high, low, close, .. } = *candle;
    (start, [open, high, low, close].map(|price| price.to_string()))
}

fn candles(markets: &Markets) -> Candles {
    let always = Span { from: i64::MIN, to: i64::MAX, present: None };
    let minutes = Width::minutes(1).unwrap();
    let mut all = Candles::new();
    for market in markets.listing().markets() {
        for (index, outcome) in (0..).zip(&market.info().outcomes) {
            let index = paperbourse::ids::OutcomeIndex(index);
            let rows = markets.candles(market, index, minutes, always);
            all.insert(outcome.token_id.to_string(), rows.iter().map(text).collect());
        }
    }
    all
}

/// The candles that a server shows which has played the tape.
fn served(folder: &Path, markets: &[(String, Vec<String>)]) -> Candles {
    let served = Served::play(folder, &["--venue-speed", "max"]);
    let mut all = Candles::new();
    for (condition_id, tokens) in markets {
        for (outcome, token) in ["Yes", "No"].iter().zip(tokens) {
            let path = format!("/v1/markets/{condition_id}/candles?interval=1m&outcome={outcome}");
            let (status, rows) = served.get(&path);
            assert_eq!(status, 200, "{rows}");
            let row = |row: &Value| {
                let price = |name: &str| row[name].as_str().unwrap().to_owned();
                (row["t"].as_i64().unwrap(), ["o", "h", "l", "c"].map(price))
            };
            all.insert(token.clone(), rows.as_array().unwrap().iter().map(row).collect());
        }
    }
    all
}

/// What the script folds; `None` where it cannot run. CI must be able to run it.
fn folded(ticks: &Path) -> Option<Candles> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/polymarket/evening.py");
    let Ok(output) = Command::new("python3").arg(script).arg(ticks).output() else {
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "no python3 to run the script with");
        eprintln!("SKIPPED: no python3 to run the script with");
        return None;
    };
    assert!(output.status.success(), "{output:?}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[track_caller]
fn check(what: &str, candles: &Candles, expected: &Candles) {
    assert_eq!(candles.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what}");
    for (token, rows) in expected {
        for (row, expected) in candles[token].iter().zip(rows) {
            assert_eq!(row, expected, "{what}: {token}");
        }
        assert_eq!(candles[token].len(), rows.len(), "{what}: {token}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn candles_of_a_recorded_evening_equal_a_fold_of_its_rows() {
    let Some(recordings) = Recordings::open() else { return };
    let Some(mut expected) = folded(&recordings.path(TICKS)) else { return };
    let tokens: BTreeSet<String> = expected.keys().cloned().collect();
    let began = 60 * expected.values().map(|rows| rows[0].0 / 60).min().unwrap();
    let minutes = std::env::var(MINUTES).map_or(MINUTES_DEFAULT, |text| text.parse().unwrap());
    let end = began + 60 * i64::try_from(minutes).unwrap();
    for rows in expected.values_mut() {
        rows.retain(|(start, _)| *start < end);
    }
    let count: usize = expected.values().map(Vec::len).sum();
    assert_eq!((tokens.len(), count), (6, 6 * minutes));
    let [began_ms, end_ms] = [began, end].map(|at| 1_000 * u64::try_from(at).unwrap());
    let world = world(&recordings, &tokens, began_ms);
    let markets: Vec<(String, Vec<String>)> =
        world.markets.iter().map(|it| (it.condition_id.clone(), it.token_ids.clone())).collect();
    assert_eq!(markets.len(), 3);

    let patient = Options { ping_patience: NEVER, subscribe_patience: NEVER, ..Options::default() };
    let venue = StandIn::start(world, patient).await;
    let folder = TempDir::new().unwrap();
    let recorder = Recorder::start(folder.path(), TapeLimits::default()).unwrap();
    let filter = MarketFilter { count_max: 3, ..MarketFilter::default() };
    let (policy, tap) = (MismatchPolicy::Distrust, recorder.sender().into());
    let connector = Connector::start_tapped(&venue, filter, timing(), policy, tap);
    let tokens: Vec<String> = tokens.into_iter().collect();
    connector.until_fresh(&tokens).await;
    // A crossed book is suspect, and a new one would skip the changes on their way.
    let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
    venue.misbehave_at(Endpoint::Books, refused, u32::MAX);
    play(&venue, &connector, &recordings, end_ms).await;
    assert_eq!(connector.status().connections_lost, 0);
    let markets_live = connector.markets.clone();
    drop(connector);
    let (totals, result) = recorder.finish("asked").await;
    result.unwrap();
    assert_eq!((totals.gaps, totals.lines_lost), (0, 0));

    check("live", &candles(&markets_live), &expected);
    let tape = Tape::open(folder.path()).unwrap().unwrap();
    let player = TapePlayer::start(tape, "max".parse().unwrap(), feed());
    check("taped", &candles(player.feed().markets()), &expected);
    let served = tokio::task::spawn_blocking(move || served(folder.path(), &markets)).await;
    check("served", &served.unwrap(), &expected);
}
