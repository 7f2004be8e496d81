//! The recorded venue on real recordings, if they are available, and always on invented ones.
//!
//! The program in `tests/oracle` reads the same files independently; it and the server must agree
//! on which outcomes are tradable.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod live_cases;
mod others;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use paperbourse::ids::{OutcomeIndex, Timestamp};
use paperbourse::market::book::Side;
use paperbourse::market::catalogue::{Fees, MarketInfo, MarketStatus, Outcome};
use paperbourse::market::{Market, Markets};
use paperbourse::money::Price;
use paperbourse::venue::NewestTrade;
use paperbourse::venue::feed::verify::{HashedBook, Verifier as _};
use paperbourse::venue::feed::{Feed, FeedCounts, MismatchPolicy};
use paperbourse::venue::polymarket::hash::BookHasher;
use paperbourse::venue::polymarket::resolution::{
    self, Payouts, Pending, Resolution, SourceReport,
};
use paperbourse::venue::polymarket::wire::clob;
use paperbourse::venue::polymarket::wire::gamma;
use paperbourse::venue::polymarket::wire::socket::{Frame, frame};
use paperbourse::venue::recorded::{LoadReport, NotPlayable, Player, Recording};
use paperbourse::venue::speed::Speed;
use paperbourse::venue::{VenueChange, VenueEvent};
use paperbourse_test_support::recordings;
use proptest::prelude::*;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/venue")
}

fn feed() -> Feed {
    Feed::new(Arc::new(Markets::new()), MismatchPolicy::Count)
}

/// Plays a whole recording at once.
fn play(directory: &Path) -> (Player, LoadReport) {
    let (recording, report) = Recording::load(directory).unwrap();
    (recording.play(Speed::Max, feed()), report)
}

/// The condition id of a market of the fixtures: a repeated byte.
fn condition(number: u8) -> String {
    format!("0x{}", format!("{number:02x}").repeat(32))
}

#[track_caller]
fn check_not_playable(report: &LoadReport, expected: &[(&str, NotPlayable)]) {
    let actual: Vec<_> =
        report.not_playable.iter().map(|file| (file.file.as_str(), file.why.clone())).collect();
    assert_eq!(actual, expected);
}

/// The tradable outcomes, in the oracle's terms.
fn tradable(markets: &Markets) -> BTreeSet<(String, String, &'static str)> {
    let mut rows = BTreeSet::new();
    for market in markets.listing().markets() {
        let snapshot = market.snapshot();
        if !snapshot.info().is_tradable() {
            continue;
        }
        for (index, outcome) in (0..).zip(&snapshot.info().outcomes) {
            if snapshot.quoted(OutcomeIndex(index)).is_none() {
                continue;
            }
            let own = market.book(OutcomeIndex(index)).is_some();
            let source = if own { "own" } else { "mirrored" };
            let condition_id = snapshot.info().condition_id.to_string();
            rows.insert((condition_id, outcome.label.to_string(), source));
        }
    }
    rows
}

#[track_caller]
fn check_against_oracle(directory: &Path, markets: &Markets) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/fills.py");
    let Ok(output) = Command::new("python3").arg(script).arg(directory).arg("--list").output()
    else {
        eprintln!("SKIPPED: no python3 to run the oracle with");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut expected = BTreeSet::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let source = if row["book"] == "own" { "own" } else { "mirrored" };
        expected.insert((text("market_id"), text("outcome"), source));
    }
    assert_eq!(tradable(markets), expected);
}

#[test]
fn every_real_recording_loads() {
    let Some(directory) = recordings::folder() else { return };
    let (player, report) = play(&directory);
    eprintln!("{report}\n{}", player.feed().counts());
    check_not_playable(
        &report,
        &[
            ("clob/data_api_trades_global_2026-04.json", NotPlayable::DataApiTrades),
            ("clob/rest_probe_2026-06-20.json", NotPlayable::Probe),
            ("ws/btc_1h_2025-12-11_down_books.jsonl", NotPlayable::BookWithoutIds),
            ("ws/btc_1h_2025-12-11_down_trades.jsonl", NotPlayable::TradeWithoutIds),
            ("ws/btc_1h_2025-12-11_up_books.jsonl", NotPlayable::BookWithoutIds),
            ("ws/btc_1h_2025-12-11_up_trades.jsonl", NotPlayable::TradeWithoutIds),
            ("ws/btc_hourly_2025-07-03_oldformat_frames.jsonl", NotPlayable::OldFormat),
            ("ws/nhl_2026-06-07T0130Z_ticks.jsonl", NotPlayable::TickRows),
        ],
    );
    // The page of simplified markets has 54 rows whose condition id is empty.
    assert_eq!((report.file_count, report.malformed_count), (40, 54));
    for row in &report.malformed {
        assert_eq!(row.file, "clob/simplified-markets_page1000.json");
        assert_eq!(row.error, "field condition_id is missing");
    }
    assert_eq!((report.book_count, report.placeholder_count, report.message_count), (525, 1, 56));
    let counts = MarketStatus::ALL.map(|status| report.market_count(status));
    assert_eq!(counts, [1, 293, 5, 945, 293], "hydrating, open, paused, closed, resolved at first");
    let listing = player.feed().markets().listing();
    let is_resolved = |market: &&Arc<Market>| market.info().status == MarketStatus::Resolved;
    assert_eq!(listing.markets().iter().filter(is_resolved).count(), 295, "two are resolved later");
    assert_eq!(report.market_with_book_count, 70);
    assert_eq!(tradable(player.feed().markets()).len(), 140, "both outcomes of 70 markets");
    check_against_oracle(&directory, player.feed().markets());
}

#[test]
fn every_hash_of_a_real_recording_is_reproduced() {
    let Some(directory) = recordings::folder() else { return };
    let (player, _) = play(&directory);
    let counts = player.feed().counts();
    // 525 books of the book endpoint, 2 of the socket, 24 of its changes.
    assert_eq!(
        (counts.hashes_verified, counts.hashes_mismatched, counts.hashes_unchecked),
        (551, 0, 0)
    );
    // The other outcomes' halves of the 24 changes, and one change of a market without a book.
    assert_eq!((counts.level_changes, counts.level_changes_without_book), (24, 26));
}

/// Books of unlisted markets are hashed by their own fields.
#[test]
fn the_books_of_february_are_reproduced() {
    let Some(directory) = recordings::folder() else { return };
    let text = std::fs::read_to_string(directory.join("ws/book_10_2026-02-12.jsonl")).unwrap();
    let mut hasher = BookHasher::default();
    let mut verified = 0;
    for line in text.lines() {
        let book = clob::book(line).unwrap();
        let last_trade_price = book.newest_trade.and_then(NewestTrade::price);
        let hashed = HashedBook {
            market: book.market,
            token_id: book.asset_id,
            at: book.at,
            ladder: &book.ladder,
            order_size_min: paperbourse::money::Shares::from_micros(5_000_000),
            tick: book.tick.unwrap(),
            neg_risk: false,
            version: book.version,
        };
        let hash = book.hash.unwrap();
        verified += usize::from(hasher.matching(hashed, hash, &[last_trade_price]).is_some());
    }
    assert_eq!(verified, 10);
}

#[test]
fn markets_known_only_from_a_recorder_trade_without_a_fee() {
    let Some(directory) = recordings::folder() else { return };
    let text = std::fs::read_to_string(directory.join("clob/books_2026-07-21_markets.json"));
    let rows: Vec<serde_json::Value> = serde_json::from_str(&text.unwrap()).unwrap();
    let (player, _) = play(&directory);
    assert_eq!(rows.len(), 50);
    for row in rows {
        let condition_id = row["condition_id"].as_str().unwrap();
        let market = player.feed().markets().by_condition(condition_id).unwrap();
        let snapshot = market.snapshot();
        assert!(snapshot.info().is_tradable());
        assert_eq!(snapshot.info().fees, Fees::Free);
        for outcome in [OutcomeIndex(0), OutcomeIndex(1)] {
            // The last of five rounds of books.
            assert_eq!(market.book(outcome).as_ref().unwrap().sequence, 5);
        }
    }
}

#[test]
fn every_form_of_the_fixtures_is_told_apart() {
    let (player, report) = play(&fixtures());
    check_not_playable(
        &report,
        &[
            ("clob/probe.json", NotPlayable::Probe),
            ("clob/public_trades.json", NotPlayable::DataApiTrades),
            ("ws/books_without_ids.jsonl", NotPlayable::BookWithoutIds),
            (
                "ws/garbage.jsonl",
                NotPlayable::NothingReadable { row: 1, error: "unknown form: <html>".to_owned() },
            ),
            ("ws/not_text.jsonl", NotPlayable::NotText),
            ("ws/old_format.jsonl", NotPlayable::OldFormat),
            ("ws/ticks.jsonl", NotPlayable::TickRows),
            ("ws/trades_without_ids.jsonl", NotPlayable::TradeWithoutIds),
        ],
    );
    let malformed: Vec<String> = report.malformed.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(malformed.join("\n"));
    assert_eq!(report.malformed_count, malformed.len());
    insta::assert_snapshot!(format!("{report}\n{}", player.feed().counts()));
    check_against_oracle(&fixtures(), player.feed().markets());
}

#[test]
fn markets_of_the_fixtures_have_the_status_and_fee_that_their_files_tell() {
    let (player, _) = play(&fixtures());
    let mut lines = Vec::new();
    for number in 1..=22 {
        let Some(market) = player.feed().markets().by_condition(&condition(number)) else {
            lines.push(format!("{number:02x} unknown"));
            continue;
        };
        let info = market.info();
        let payouts: Vec<String> = info.payouts.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "{number:02x} {:?} tick {} min {} {:?} [{}] {:?} {:?}",
            info.status,
            info.tick,
            info.order_size_min,
            info.fees,
            payouts.join(" "),
            info.category.as_deref().unwrap_or("-"),
            info.question.as_deref().unwrap_or("-"),
        ));
    }
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn the_frames_of_the_fixtures_keep_a_book() {
    let (player, _) = play(&fixtures());
    let counts = player.feed().counts();
    assert_eq!(counts.crossed, 1, "a buyer takes a level that no change removes");
    let market = player.feed().markets().by_condition(&condition(2)).unwrap();
    let book = market.book(OutcomeIndex(0)).clone().unwrap();
    let micros = |price: Option<Price>| price.map(Price::micros);
    assert_eq!(micros(book.ladder().best_bid().map(|level| level.price)), Some(455_000));
    assert_eq!(micros(book.ladder().best_ask().map(|level| level.price)), Some(460_000));
    let trade = book.last_trade.unwrap();
    assert_eq!(
        (trade.price.micros(), trade.size.micros(), trade.side),
        (455_000, 38_123_456, Some(Side::Buy))
    );
    assert_eq!(market.info().tick, Price::from_micros(10_000), "the tick has changed");
    assert!(market.snapshot().quoted(OutcomeIndex(1)).is_some(), "the other is its mirror");
}

/// Played at its own pace, a tape ends in the same state as played at once.
#[tokio::test(start_paused = true)]
async fn a_tape_plays_at_its_own_pace() {
    let (at_once, _) = play(&fixtures());
    let (recording, _) = Recording::load(&fixtures()).unwrap();
    let recorded = {
        let (first, last) = (&recording.tape()[0], recording.tape().last().unwrap());
        last.at.nanos() - first.at.nanos()
    };
    let mut player = recording.play("2".parse().unwrap(), feed());
    let listed = player.feed().markets().by_condition(&condition(1)).unwrap();
    assert!(listed.book(OutcomeIndex(0)).is_none(), "markets first, books at their time");
    assert_eq!(player.feed().counts(), FeedCounts::default());

    let began = tokio::time::Instant::now();
    let second = std::time::Duration::from_secs(1);
    assert!(tokio::time::timeout(second, player.run()).await.is_err(), "the tape is longer");
    let market = player.feed().markets().by_condition(&condition(1)).unwrap();
    let first_round = market.book(OutcomeIndex(0)).clone().unwrap();
    assert_eq!(first_round.ladder().best_bid().unwrap().price, Price::from_micros(300_000));
    drop(player);

    let (recording, _) = Recording::load(&fixtures()).unwrap();
    let mut player = recording.play("2".parse().unwrap(), feed());
    let begun_again = tokio::time::Instant::now();
    player.run().await;
    assert_eq!(player.feed().counts(), at_once.feed().counts());
    let elapsed = i64::try_from(begun_again.elapsed().as_nanos()).unwrap();
    assert!((elapsed - recorded / 2).abs() < 10_000_000, "{elapsed} of {recorded}");
    assert!(began.elapsed() > second);
}

/// Of one source the newest description counts that states a delay; of several, the longest delay.
/// Orders wait at the speed of the recording, and not at all at its end.
#[tokio::test(start_paused = true)]
async fn recorded_delays_pass_at_the_speed_of_the_recording() {
    let gamma = |number: u8, day: u8, fields: &str| {
        format!(
            r#"{{"conditionId":"{}","outcomes":"[\"Up\",\"Down\"]","active":true,
                "clobTokenIds":"[\"{number}1\",\"{number}2\"]","acceptingOrders":true,
                "enableOrderBook":true,"updatedAt":"2026-11-0{day}T00:00:00Z"{fields}}}"#,
            condition(number)
        )
        .replace('\n', "")
    };
    let compact = |number: u8, fields: &str| {
        let (id, tokens) = (condition(number), [1, 2].map(|place| format!("{number}{place}")));
        let [up, down] = tokens;
        format!(
            r#"{{"c":"{id}","t":[{{"t":"{up}","o":"Up"}},{{"t":"{down}","o":"Down"}}]{fields}}}"#
        )
    };
    let long = |number: u8, fields: &str| {
        format!(r#"{{"condition_id":"{}","tokens":[]{fields}}}"#, condition(number))
    };
    let rows = [
        gamma(1, 2, r#","secondsDelay":3"#),
        gamma(1, 1, r#","secondsDelay":5"#),
        gamma(2, 1, r#","secondsDelay":"0.5""#),
        gamma(2, 2, ""),
        gamma(3, 1, ""),
        compact(3, r#","itode":true"#),
        long(3, r#","seconds_delay":0"#),
        gamma(4, 1, r#","secondsDelay":0"#),
        long(4, r#","seconds_delay":"2""#),
        gamma(5, 1, r#","secondsDelay":60"#),
        gamma(6, 1, ""),
    ];
    let (early, late) = ((1, 1_795_317_300_000_i64), (2, 1_795_317_310_000));
    let frames = [early, late].map(|(place, at_ms)| {
        format!(
            r#"{{"event_type":"book","asset_id":"1{place}","market":"{}","timestamp":"{at_ms}",
                "bids":[],"asks":[]}}"#,
            condition(1)
        )
        .replace('\n', "")
    });
    let folder = tempfile::tempdir().unwrap();
    for (name, lines) in [("gamma", &rows[..]), ("ws", &frames)] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
        let path = folder.path().join(name).join("rows.jsonl");
        std::fs::write(path, lines.join("\n")).unwrap();
    }
    let delays = |player: &Player| {
        [1, 2, 3, 4, 5, 6].map(|number| {
            let market = player.feed().markets().by_condition(&condition(number)).unwrap();
            (market.info().taker_delay_ms, market.snapshot().quote().taker_delay_ms)
        })
    };
    let stated = [3_000, 500, 0, 2_000, 10_000, 0];
    // Of the third it is known only that there is one.
    let wall = |divisor: u32| [3_000, 500, 150, 2_000, 10_000, 0].map(|ms: u32| ms / divisor);
    let both = |quoted: [u32; 6]| [0, 1, 2, 3, 4, 5].map(|place| (stated[place], quoted[place]));
    for (speed, divisor) in [("1", 1), ("10", 10)] {
        let (recording, report) = Recording::load(folder.path()).unwrap();
        assert!(report.malformed.is_empty(), "{:?}", report.malformed);
        let mut player = recording.play(speed.parse().unwrap(), feed());
        assert_eq!(delays(&player), both(wall(divisor)), "at {speed}");
        let is_playing = tokio::time::timeout(std::time::Duration::from_millis(900), player.run());
        assert!(is_playing.await.is_err(), "ten seconds of the recording take longer");
        assert_eq!(delays(&player), both(wall(divisor)), "at {speed}");
        player.run().await;
        assert_eq!(delays(&player), both([0; 6]), "at the end");
    }
    let (player, _) = play(folder.path());
    assert_eq!(delays(&player), both([0; 6]), "played at once");
}

/// Applies any frames: nothing panics, and no reader sees a crossed book.
fn take_frames(text: &str) {
    let mut feed = feed();
    let outcomes =
        ["7003", "7004"].map(|token| Outcome { label: token.into(), token_id: token.into() });
    let listed = VenueChange::Listed(vec![MarketInfo::bare(&condition(2), outcomes)]);
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: listed });
    for line in text.lines() {
        let Frame::Messages(messages) = frame(line) else { continue };
        for message in messages.into_iter().flatten() {
            let Some(event) = message.event(|name| name.into()) else { continue };
            feed.apply(event);
        }
    }
    let market = feed.markets().by_condition(&condition(2)).unwrap();
    if let Some(book) = market.book(OutcomeIndex(0)).as_deref() {
        assert!(!book.ladder().is_crossed());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Frames with some of their bytes replaced.
    #[test]
    fn damaged_frames_are_refused_or_harmless(
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0x20_u8..0x7f), 0..12),
    ) {
        let frames = std::fs::read_to_string(fixtures().join("ws/frames.jsonl")).unwrap();
        let mut bytes = frames.into_bytes();
        for (index, byte) in damage {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        take_frames(std::str::from_utf8(&bytes).unwrap());
    }
}

/// The lines of a `.jsonl` file, or the whole text of another file.
fn rows(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap();
    if path.extension().is_some_and(|extension| extension == "jsonl") {
        text.lines().map(str::to_owned).collect()
    } else {
        vec![text]
    }
}

#[test]
fn every_recorded_resolution_is_decided_by_the_rule() {
    let Some(directory) = recordings::folder() else { return };
    let mut winners = [0; 2];
    for row in rows(&directory.join("gamma/resolved_btc_updown_5m_2026-07-24.jsonl")) {
        let row: serde_json::Value = serde_json::from_str(&row).unwrap();
        let described = gamma::market(&row["raw"].to_string()).unwrap();
        let report =
            SourceReport::of(resolution::Source::Gamma, &described, &described.info.outcomes);
        let decided = resolution::decide(&[report]);
        let Resolution::Final { payouts, evidence } = decided else { panic!("{decided:?}") };
        // The collector's own reading of the same market, in a separate column.
        let collected = row["outcome_prices"].to_string();
        let first =
            if collected.find('1') < collected.find('0') { Price::ONE } else { Price::ZERO };
        assert_eq!(payouts, [first, first.complement()], "{collected}");
        assert!(evidence.starts_with("Gamma: closed resolved pays "), "{evidence}");
        winners[usize::from(first == Price::ZERO)] += 1;
    }
    assert_eq!(winners, [140, 152]);

    // 578 name a winner and 9 show a half, but by one source alone. The others never resolve.
    let page = directory.join("clob/simplified-markets_page1000.json");
    let page: serde_json::Value = serde_json::from_str(&rows(&page)[0]).unwrap();
    let mut counts = BTreeMap::new();
    for row in page["data"].as_array().unwrap() {
        let Ok(described) = clob::long_market(&row.to_string()) else {
            *counts.entry(("unreadable".to_owned(), "nothing")).or_insert(0) += 1;
            continue;
        };
        let report =
            SourceReport::of(resolution::Source::Clob, &described, &described.info.outcomes);
        let decided = format!("{:?}", resolution::decide(std::slice::from_ref(&report)));
        let shown = match &report.payouts {
            Payouts::Shown(payouts) if payouts[0] == payouts[1] => "half",
            Payouts::Shown(_) => "winner",
            _ => "nothing",
        };
        *counts.entry((decided, shown)).or_insert(0) += 1;
    }
    let counts: Vec<String> = counts
        .iter()
        .map(|((decided, shown), count)| format!("{count} {shown} {decided}"))
        .collect();
    assert_eq!(
        counts,
        [
            "354 nothing Pending(NoPayouts)",
            "5 nothing Pending(Open)",
            "9 half Pending(Unconfirmed)",
            "578 winner Pending(Unconfirmed)",
            "54 nothing unreadable"
        ]
    );
}

/// Closed markets with recorded rows of both Gamma and the CLOB service, and old rows.
#[test]
fn recorded_pairs_and_old_rows_are_decided_by_the_rule() {
    let Some(directory) = recordings::folder() else { return };
    let row = |name: &str| rows(&directory.join(name)).remove(0);
    for (kind, alone, both) in [
        ("binary_accepting_true", "Pending(Unconfirmed)", [Price::ONE, Price::ZERO]),
        ("binary_accepting_false", "Final", [Price::ZERO, Price::ONE]),
    ] {
        let described =
            gamma::market(&row(&format!("gamma/gamma_market_closed_{kind}.json"))).unwrap();
        let outcomes = &described.info.outcomes;
        let gamma = SourceReport::of(resolution::Source::Gamma, &described, outcomes);
        let other =
            clob::long_market(&row(&format!("clob/clob_market_closed_{kind}.json"))).unwrap();
        let clob = SourceReport::of(resolution::Source::Clob, &other, outcomes);
        let decided = format!("{:?}", resolution::decide(std::slice::from_ref(&gamma)));
        assert!(decided.starts_with(alone), "{kind}: {decided}");
        match resolution::decide(&[gamma, clob]) {
            Resolution::Final { payouts, .. } => assert_eq!(payouts, both, "{kind}"),
            pending @ Resolution::Pending(_) => panic!("{kind}: {pending:?}"),
        }
    }
    for kind in ["nonbinary_legacy", "zero_zero_legacy"] {
        let described =
            gamma::market(&row(&format!("gamma/gamma_market_closed_{kind}.json"))).unwrap();
        let report =
            SourceReport::of(resolution::Source::Gamma, &described, &described.info.outcomes);
        let decided = resolution::decide(&[report]);
        assert_eq!(decided, Resolution::Pending(Pending::NoPayouts), "{kind}");
    }
}
