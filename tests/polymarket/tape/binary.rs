//! The program itself: `record`, and `serve` on a recording.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use paperbourse::venue::tape::Tape;
use paperbourse_test_support::process::{Process, command};
use tempfile::TempDir;

use super::taped::{Played, tokens};
use crate::auditor::{levels_of, levels_of_state};
use crate::served::Served;
use crate::standin::{Options, StandIn, World, micros, now_us};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

const MARKET_COUNT: usize = 2;

/// A running recorder, killed when this is dropped.
struct Recording(Process);

impl Recording {
    fn start(venue: &StandIn, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = record(folder);
        command
            .args(["--venue", "polymarket", "--venue-markets", &MARKET_COUNT.to_string()])
            .args(["--venue-gamma", &venue.gamma_url, "--venue-clob", &venue.clob_url])
            .args(["--venue-data", &venue.data_url, "--venue-socket", &venue.ws_url])
            .arg("--venue-ca")
            .arg(venue.authority_path.as_ref().unwrap())
            .args(arguments)
            .stderr(Stdio::piped());
        Self(Process::spawn(&mut command))
    }

    /// Waits for the recorder to exit; returns its exit status, log and standard error.
    fn ended(mut self) -> (ExitStatus, String, String) {
        let status = self.0.wait();
        let mut errors = String::new();
        self.0.take_stderr().unwrap().read_to_string(&mut errors).unwrap();
        (status, self.0.log_lines("").join("\n"), errors)
    }
}

fn record(folder: &Path) -> Command {
    let mut command = command(env!("CARGO_BIN_EXE_paperbourse"));
    command.arg("record").arg("--out").arg(folder);
    command
}

async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "timed out waiting for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn has_books(folder: &Path) -> bool {
    let is_tape = Tape::open(folder).is_ok_and(|tape| tape.is_some());
    is_tape && Played::of(folder).seen.last_books().len() == 2 * MARKET_COUNT
}

async fn venue() -> StandIn {
    StandIn::start(World::invented(MARKET_COUNT), Options::default()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_can_be_traded_on() {
    let (venue, folder) = (venue().await, TempDir::new().unwrap());
    for session in 0..2 {
        let recording = Recording::start(&venue, folder.path(), &["--rotate-seconds", "1"]);
        until("books", || has_books(folder.path())).await;
        venue.walk(session, 200);
        let is_current = || {
            let books = Played::of(folder.path()).seen.last_books();
            tokens(MARKET_COUNT).iter().all(|token| {
                let newest = levels_of_state(&venue.published(token).pop().unwrap());
                books.get(token).is_some_and(|book| !book.stale && levels_of(book) == newest)
            })
        };
        until("the walk", is_current).await;
        recording.0.signal(["-TERM", "-INT"][usize::try_from(session).unwrap()]);
        let (status, log, errors) = recording.ended();
        assert!(status.success() && errors.is_empty(), "{status}: {log}{errors}");
        let last = log.lines().last().unwrap();
        assert!(last.contains(" recorded ") && last.contains("; 0 gaps of 0 lines"), "{log}");
    }
    let report = Played::of(folder.path()).report;
    assert_eq!((report.session_count, report.torn_count, report.missing_count), (2, 0, 0));
    let ask = micros(&venue.published(&tokens(1)[0]).last().unwrap().asks[0].0);
    drop(venue);
    let bought = tokio::task::spawn_blocking(move || {
        let served = Served::play(folder.path(), &[]);
        let at_its_end = served.buy();
        drop(served);
        let served = Served::play(folder.path(), &["--venue-speed", "50"]);
        served.until("a fill on a tape that plays", |it| it.buy().0 == 200);
        at_its_end
    });
    assert_eq!(crate::served::fill_price(&bought.await.unwrap()), ask);
}

/// The tape of a killed recorder plays, up to about the last second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_recorder_loses_no_more_than_a_second() {
    let (venue, folder) = (venue().await, TempDir::new().unwrap());
    let recording = Recording::start(&venue, folder.path(), &[]);
    until("books", || has_books(folder.path())).await;
    venue.run_walk((7, false), 200, Duration::from_secs(3)).await;
    let killed_us = now_us();
    recording.0.signal("-KILL");
    let walked = recording.ended();
    assert_eq!(walked.0.code(), None, "{walked:?}");
    let played = Played::of(folder.path());
    assert!(played.report.torn_count > 0, "{}", played.report);
    let last_us = played.lines.iter().map(|line| line.ns / 1_000).max().unwrap();
    let lost = Duration::from_micros(killed_us.saturating_sub(last_us.try_into().unwrap()));
    // Twice the bound, because the machine may be busy.
    assert!(lost < Duration::from_secs(2), "{lost:?} are lost");
    for (token, book) in played.seen.last_books() {
        let published = venue.published(&token);
        assert!(published.iter().any(|state| levels_of_state(state) == levels_of(&book)));
        assert!(!book.stale);
    }
    // The next run leaves the existing files alone.
    let recording = Recording::start(&venue, folder.path(), &["--duration", "3"]);
    let (status, log, errors) = recording.ended();
    assert!(status.success(), "{log}{errors}");
    assert!(log.contains("the duration is over"), "{log}");
    let again = Played::of(folder.path());
    assert_eq!(
        (again.report.session_count, again.report.torn_count),
        (2, played.report.torn_count)
    );
    assert!(again.seen.last_books().values().all(|book| !book.stale));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_exit_code_reports_why_recording_ended() {
    let (venue, folder) = (venue().await, TempDir::new().unwrap());
    let recording = Recording::start(&venue, folder.path(), &["--out-bytes-max", "65536"]);
    until("books", || has_books(folder.path())).await;
    venue.run_walk((9, true), 1_000, Duration::from_secs(3)).await;
    let (status, log, errors) = recording.ended();
    let full = "paperbourse: the tape is full: its files may hold 65536 bytes\n";
    assert_eq!((status.code(), &*errors), (Some(4), full), "{log}");
    let played = Played::of(folder.path());
    assert_eq!((played.report.torn_count, &*played.lines.last().unwrap().kind), (0, "end"));

    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let recording = Recording::start(&venue, &file, &[]);
    let (status, _, errors) = recording.ended();
    let error = format!("paperbourse: cannot create {}/gamma: ", file.display());
    assert!(status.code() == Some(74) && errors.starts_with(&error), "{status}: {errors}");

    for (arguments, code, expected) in [
        (&["--venue", "simulated:7"][..], 2, "--venue simulated:7 cannot be recorded"),
        (&["--venue", "polymarket", "--venue-speed", "2"], 2, "takes no --venue-speed"),
        (&["--rotate-bytes", "1"], 2, "too little: use 64K or more"),
        (&["--venue", "polymarket", "--venue-ca", "/nowhere"], 1, "/nowhere"),
    ] {
        let output = record(folder.path()).args(arguments).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(expected), "{arguments:?}: {errors}");
    }
}
