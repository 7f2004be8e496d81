//! The connector, following a venue that misbehaves: a table of faults, with an auditor for every
//! row.

mod row;
mod rows;

use std::fmt::Write as _;

use paperbourse::market::book::Book;
use paperbourse::venue::feed::MismatchPolicy;
use paperbourse::venue::polymarket::filter::MarketFilter;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::auditor::{Auditor, SLACK, levels_of, levels_of_state};
use crate::connector::{Connector, QUICK};
use crate::standin::world::{condition_id, token_id};
use crate::standin::{Options, StandIn, World};

use row::{Means, Row, Walking};
use rows::{BOOK_ENDPOINT, CONNECTIONS, FRAMES, SILENCE};

/// All of them on one socket.
const MARKET_COUNT: usize = 3;

/// The rate of changes while books move.
const STEPS_PER_SECOND: u32 = 40;

/// The number of rows that run at a time.
const ROWS_AT_ONCE: usize = 6;

fn tokens() -> Vec<String> {
    (0..MARKET_COUNT).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect()
}

/// Whether this is the venue's current book.
fn is_current(venue: &StandIn, token: &str, book: &Book) -> bool {
    venue.published(token).last().is_some_and(|state| levels_of_state(state) == levels_of(book))
}

/// Plays a row; returns the auditor's complaints.
async fn play(row: Row, policy: MismatchPolicy) -> Vec<String> {
    let venue = StandIn::start(World::invented(MARKET_COUNT), Options::default()).await;
    let filter = MarketFilter { count_max: MARKET_COUNT, ..MarketFilter::default() };
    let connector = Connector::start_trusting(&venue, filter, row.timing.clone(), policy);
    connector.until_fresh(&tokens()).await;
    let auditor = Auditor::start(connector.markets.clone(), tokens());
    let walk = async {
        match row.walking {
            Walking::All => drop(venue.run_walk((1, true), STEPS_PER_SECOND, DAYS).await),
            Walking::Others => venue.run_walk_but(&condition_id(0), 1, STEPS_PER_SECOND).await,
        }
    };
    tokio::select! {
        () = walk => unreachable!("it walks for days"),
        () = body(&row, policy, &venue, &connector, &auditor) => {}
    }
    if policy == MismatchPolicy::Distrust {
        // Books have stopped moving: every book shown is the venue's.
        let is_settled = || {
            tokens().iter().filter(|token| !row.is_over(token)).all(|token| {
                connector.fresh(token).is_some_and(|book| is_current(&venue, token, &book))
            })
        };
        auditor.until(row.venue, is_settled).await;
    }
    let (used_count, complaints) = auditor.complaints(&venue, (row.noticed.duration)(&QUICK));
    assert!(used_count >= tokens().len(), "{}: the auditor saw {used_count} books", row.venue);
    complaints
}

const DAYS: std::time::Duration = std::time::Duration::from_secs(1_000_000);

async fn body(
    row: &Row,
    policy: MismatchPolicy,
    venue: &StandIn,
    connector: &Connector,
    auditor: &Auditor,
) {
    // Start in the middle of the stream.
    let verified = || connector.status().feed.hashes_verified;
    let at_first = verified();
    auditor.until("books that move", || verified() > at_first + 10).await;
    let before = connector.status();
    auditor.forget_unfillable();
    (row.act)(venue);
    if policy == MismatchPolicy::Count {
        // Long enough for a connector that trusts everything to trust too long.
        return tokio::time::sleep((row.noticed.duration)(&QUICK) + 2 * SLACK).await;
    }
    auditor.until(row.venue, || (row.sign)(&connector.status(), &before)).await;
    // The counters may have risen because of other books.
    let is_stale = || tokens().iter().all(|it| !row.stale.has(it) || auditor.was_unfillable(it));
    auditor.until(row.venue, is_stale).await;
    let mended_at = Instant::now();
    (row.mend)(venue);
    let is_back = || {
        tokens().iter().filter(|token| !row.is_over(token)).all(|it| connector.fresh(it).is_some())
            && (row.means != Means::Reconnect
                || connector.status().connections_lost > before.connections_lost)
            && (row.means != Means::Books
                || connector.status().books_requested > before.books_requested)
    };
    auditor.until("all books again", is_back).await;
    let took = mended_at.elapsed();
    let allowed = (row.recovered.duration)(&row.timing) + 2 * SLACK;
    assert!(took <= allowed, "{}: back after {took:?}, {allowed:?} allowed", row.venue);
    let after = connector.status();
    let name = row.venue;
    if row.means != Means::Reconnect {
        assert_eq!(after.connections_lost, before.connections_lost, "{name}: {after:?}");
    }
    let wrong: Vec<_> = tokens()
        .into_iter()
        .filter(|token| auditor.was_unfillable(token) && !row.stale.has(token))
        .collect();
    assert_eq!(wrong, [""; 0], "{name}: only these may be stale: {:?}", row.stale);
}

/// Plays every row of a part of the table.
async fn check(rows: fn() -> Vec<Row>) {
    let mut rows = rows().into_iter();
    let mut playing = JoinSet::new();
    loop {
        while playing.len() < ROWS_AT_ONCE
            && let Some(row) = rows.next()
        {
            playing.spawn(async move { (row.venue, play(row, MismatchPolicy::Distrust).await) });
        }
        let Some(played) = playing.join_next().await else { break };
        let (name, complaints) = played.unwrap();
        assert_eq!(complaints, [""; 0], "{name}");
    }
}

#[tokio::test]
async fn wrong_or_missing_frames() {
    check(FRAMES).await;
}

#[tokio::test]
async fn sockets_that_fall_silent() {
    check(SILENCE).await;
}

#[tokio::test]
async fn connections_that_end_and_cannot_reconnect_at_once() {
    check(CONNECTIONS).await;
}

#[tokio::test]
async fn book_endpoints_that_refuse_or_talk_nonsense() {
    check(BOOK_ENDPOINT).await;
}

/// An auditor that cannot complain proves nothing.
#[tokio::test]
async fn the_auditor_complains_about_a_connector_that_trusts_too_much() {
    let mut playing = JoinSet::new();
    for mut row in
        [FRAMES, SILENCE].into_iter().flat_map(|rows| rows()).filter(|row| row.is_mutated)
    {
        // The connector requests no books and trusts those it has.
        row.timing.check_after = DAYS;
        row.timing.verified_max = DAYS;
        playing.spawn(async move { (row.venue, play(row, MismatchPolicy::Count).await) });
    }
    assert_eq!(playing.len(), 4);
    while let Some(played) = playing.join_next().await {
        let (name, complaints) = played.unwrap();
        assert!(!complaints.is_empty(), "{name}: no complaint");
    }
}

#[test]
fn the_whole_table() {
    let mut table = String::new();
    let mut line = |cells: [&str; 5]| {
        let [venue, noticed, meanwhile, means, recovered] = cells;
        let line = format!("{venue:<52} {noticed:<15} {meanwhile:<16} {means:<10} {recovered}");
        writeln!(table, "{}", line.trim_end()).unwrap();
    };
    line(["the venue", "noticed within", "stale meanwhile", "mended by", "within"]);
    for rows in [FRAMES, SILENCE, CONNECTIONS, BOOK_ENDPOINT] {
        for row in rows() {
            let cells = [row.venue, row.noticed.name, row.stale.name(), row.means.name()];
            let [venue, noticed, stale, means] = cells;
            line([venue, noticed, stale, means, row.recovered.name]);
        }
    }
    insta::assert_snapshot!(table);
}
