//! Handwritten tapes, intact and damaged.

use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;
use crate::feed::MismatchPolicy;
use paperbourse_core::market::Markets;
use paperbourse_core::market::catalogue::MarketStatus;

const BEGIN: &str = r#""kind":"begin","version":1,"markets_max":5,"lag_max_ms":5000"#;

/// A page with one market, and the lines that follow from it.
const LISTED: [&str; 3] = [
    concat!(
        r#""kind":"answer","get":"/markets/keyset?limit=100","json":{"markets":["#,
        r#"{"conditionId":"0xa","outcomes":"[\"Yes\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]","#,
        r#""active":true,"closed":false,"acceptingOrders":true,"enableOrderBook":true,"#,
        r#""orderPriceMinTickSize":0.01,"orderMinSize":5}]}"#,
    ),
    r#""kind":"listed","ids":["0xa"]"#,
    r#""kind":"follow","socket":0,"tokens":["1","2"]"#,
];

const OPEN: &str = r#""kind":"open","socket":0,"connection":1"#;

fn book(socket: usize, token: &str, bid: &str) -> String {
    format!(
        concat!(
            r#""kind":"frame","socket":{},"json":{{"event_type":"book","asset_id":"{}","#,
            r#""market":"0xa","timestamp":"1795317300000","bids":[{{"price":"{}","size":"7"}}],"#,
            r#""asks":[{{"price":"0.9","size":"8"}}]}}"#,
        ),
        socket, token, bid
    )
}

const CHANGE: &str = concat!(
    r#""kind":"frame","socket":0,"json":{"event_type":"price_change","market":"0xa","#,
    r#""timestamp":"1795317300001","price_changes":[{"asset_id":"1","price":"0.5","size":"3","#,
    r#""side":"BUY","best_bid":"0.5","best_ask":"0.9"}]}"#,
);

const BOOKS: &str = concat!(
    r#""kind":"books","ask":1,"asked_ns":3,"json":[{"asset_id":"1","market":"0xa","#,
    r#""timestamp":"1795317300002","bids":[{"price":"0.6","size":"1"}],"asks":[]}]"#,
);

const RESOLVED: &str = concat!(
    r#""kind":"answer","get":"/markets?closed=true","json":[{"conditionId":"0xa","#,
    r#""outcomes":"[\"Yes\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]","active":true,"#,
    r#""closed":true,"umaResolutionStatus":"resolved","outcomePrices":"[\"1\",\"0\"]"}]"#,
);

fn whole_tape() -> Vec<String> {
    let mut lines: Vec<String> = [BEGIN].into_iter().chain(LISTED).map(String::from).collect();
    lines.extend([OPEN.to_owned(), book(0, "1", "0.4"), book(0, "2", "0.1"), CHANGE.to_owned()]);
    lines.extend(
        [
            r#""kind":"expired","tokens":["1"]"#,
            r#""kind":"ask","ask":1,"tokens":["1","9"]"#,
            BOOKS,
            r#""kind":"answer","get":"/markets?closed=true","error":"no answer""#,
            RESOLVED,
            r#""kind":"described","ids":["0xa"],"second":[]"#,
            r#""kind":"lost","socket":0,"why":"x""#,
            r#""kind":"given_up","socket":0,"why":"x""#,
            r#""kind":"gap","since_ns":1,"lines":1,"bytes":2"#,
            r#""kind":"later","what":[1]"#,
            r#""kind":"end","why":"x""#,
        ]
        .map(String::from),
    );
    lines
}

fn replay() -> Replay {
    Replay::new(Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust))
}

fn play(replay: &mut Replay, lines: &[impl AsRef<str>]) {
    play_every(1, replay, lines);
}

/// A replay of the listed market, these books, and then these lines.
fn played(books: &[String], lines: Vec<String>) -> Replay {
    let mut all: Vec<String> = [BEGIN].into_iter().chain(LISTED).map(String::from).collect();
    all.push(OPEN.to_owned());
    all.extend_from_slice(books);
    all.extend(lines);
    let mut replay = replay();
    play(&mut replay, &all);
    replay
}

/// Plays lines that were received this many nanoseconds apart, starting about when the venue's
/// timestamps do.
fn play_every(pause_ns: i64, replay: &mut Replay, lines: &[impl AsRef<str>]) {
    for (number, fields) in (1..).zip(lines) {
        let at_ns = 1_795_317_300_000_000_000 + number * pause_ns;
        let line = format!(r#"{{"n":{number},"ns":{at_ns},{}}}"#, fields.as_ref());
        match Line::read(line.as_bytes()) {
            Ok(line) => replay.take(&line),
            Err(_) => replay.note_unusable(),
        }
    }
}

/// Each token with a book: its best bid, and whether orders can fill on it.
fn books(replay: &Replay) -> String {
    let mut text = String::new();
    for token in ["1", "2"] {
        let listing = replay.feed().markets().listing();
        let Some((market, outcome)) = listing.by_token(token) else { continue };
        if let Some(book) = market.book(outcome).as_deref() {
            let bid = book.ladder().best_bid().map(|level| level.price.to_string());
            let state = if book.stale { "stale" } else { "live" };
            let _ = write!(text, "{token} {} {state}; ", bid.unwrap_or_default());
        }
    }
    text.trim_end_matches("; ").to_owned()
}

#[test]
fn each_line_has_its_effect() {
    let lines = whole_tape();
    let mut seen = Vec::new();
    for end in 6..=lines.len() {
        let mut replay = replay();
        play(&mut replay, &lines[..end]);
        seen.push(books(&replay));
    }
    assert_eq!(
        seen,
        [
            "1 0.4 live",
            "1 0.4 live; 2 0.1 live",
            "1 0.5 live; 2 0.1 live",
            "1 0.5 stale; 2 0.1 live",
            "1 0.5 stale; 2 0.1 live",
            // An answer does not replace it.
            "1 0.5 stale; 2 0.1 live",
            "1 0.5 stale; 2 0.1 live",
            "1 0.5 stale; 2 0.1 live",
            "1 0.5 stale; 2 0.1 stale",
            "1 0.5 stale; 2 0.1 stale",
            "1 0.5 stale; 2 0.1 stale",
            "1 0.5 stale; 2 0.1 stale",
            "1 0.5 stale; 2 0.1 stale",
            "1 0.5 stale; 2 0.1 stale",
        ]
    );
    let mut replay = replay();
    play(&mut replay, &lines);
    let market = replay.feed().markets().by_condition("0xa").unwrap();
    assert_eq!(market.info().status, MarketStatus::Resolved);
    let expected =
        ReplayCounts { frames: 3, answers: 4, gaps: 1, unknown: 1, ..ReplayCounts::default() };
    assert_eq!(replay.counts(), expected);
}

/// Lines after the listed market, and the resulting books.
#[test]
fn inconsistent_lines_are_harmless() {
    let (own, other) = (book(0, "1", "0.4"), book(3, "1", "0.4"));
    let far = OPEN.replace(r#""socket":0"#, r#""socket":1024"#);
    let at_three = OPEN.replace(r#""socket":0"#, r#""socket":3"#);
    let moved = r#""kind":"follow","socket":3,"tokens":["1","7"]"#;
    let lost = r#""kind":"lost","socket":0"#;
    let given_up = r#""kind":"given_up","socket":0"#;
    for (lines, expected, unusable) in [
        (&[OPEN, &own][..], "1 0.4 live", 0),
        // A socket that is not open, and one that carries tokens of another.
        (&[&own], "", 0),
        (&[&at_three, &other], "", 0),
        // The recorder chose another socket than we would.
        (&[moved, &at_three, &other], "1 0.4 live", 0),
        (&[&at_three, moved, &other], "1 0.4 live", 0),
        (&[&at_three, moved, &other, lost], "1 0.4 live", 0),
        (&[OPEN, &own, moved], "1 0.4 stale", 0),
        (&[OPEN, &own, given_up], "1 0.4 stale", 0),
        (&[OPEN, given_up, &own], "", 0),
        (&[&far], "", 1),
        (&[OPEN, r#""kind":"frame","socket":0"#, r#""kind":"frame","text":"x""#], "", 2),
        (&[OPEN, r#""kind":"frame","socket":0,"base64":"/w==""#], "", 1),
        (&[OPEN, r#""kind":"frame","socket":0,"base64":"%""#], "", 1),
        (&[r#""kind":"books","ask":7,"asked_ns":1,"json":[]"#], "", 0),
        (&[r#""kind":"ask","ask":7"#, r#""kind":"listed""#, r#""kind":"expired""#], "", 3),
        (&[OPEN, &own, BEGIN], "1 0.4 stale", 0),
        (&[OPEN, &own, r#""kind":"begin","version":2"#, OPEN, &own], "1 0.4 stale", 0),
        (&[r#""kind":"begin","version":1,"markets_max":18446744073709551615"#], "", 0),
    ] {
        let mut replay = replay();
        let all: Vec<&str> =
            [BEGIN].into_iter().chain(LISTED).chain(lines.iter().copied()).collect();
        play(&mut replay, &all);
        play(&mut replay, &LISTED[..2]);
        assert_eq!((&*books(&replay), replay.counts().unusable), (expected, unusable), "{lines:?}");
    }
}

/// Whether a change is late depends on the times on the tape, not on the time of the replay.
#[test]
fn lateness_is_judged_by_the_times_of_the_tape() {
    for (pause_ns, expected) in [(1_000_000_000, "1 0.5 live"), (6_000_000_000, "1 0.5 stale")] {
        let own = book(0, "1", "0.4");
        let lines = [BEGIN].into_iter().chain(LISTED).chain([OPEN, &own, CHANGE, CHANGE]);
        let mut replay = replay();
        play_every(pause_ns, &mut replay, &lines.collect::<Vec<_>>());
        assert_eq!(books(&replay), expected, "{pause_ns}");
    }
}

/// A timestamp in the future does not make later messages late, on this connection or the next.
#[test]
fn one_frame_from_the_future_stops_nothing() {
    let own = book(0, "1", "0.4");
    let future = CHANGE.replace("1795317300001", "3795317300001");
    let later = CHANGE.replace("1795317300001", "1795317300500").replace("\"0.5\"", "\"0.6\"");
    let lost = r#""kind":"lost","socket":0,"why":"x""#;
    let future_book = own.replace("1795317300000", "3795317300000");
    for (lines, expected) in [
        (&[&*own, CHANGE, &future, &later][..], "1 0.6 live"),
        (&[&own, &future, &later], "1 0.6 live"),
        (&[&future_book, &later], "1 0.6 live"),
        (&[&own, &future, lost, OPEN, &own, &later], "1 0.6 live"),
        (&[&own, &future, &future, &future, CHANGE, &later], "1 0.6 live"),
    ] {
        let all = [BEGIN].into_iter().chain(LISTED).chain([OPEN]).chain(lines.iter().copied());
        let mut replay = replay();
        play(&mut replay, &all.collect::<Vec<_>>());
        assert_eq!(books(&replay), expected, "{lines:?}");
    }
}

/// A page that lists the outcomes in another order changes neither the payouts nor the books:
/// both belong to tokens.
#[test]
fn outcomes_in_another_order_are_aligned_by_token() {
    let turned = |text: &str| {
        text.replace(r#"[\"Yes\",\"No\"]"#, r#"[\"No\",\"Yes\"]"#)
            .replace(r#"[\"1\",\"2\"]"#, r#"[\"2\",\"1\"]"#)
    };
    let resolved = turned(RESOLVED).replace(r#"[\"1\",\"0\"]"#, r#"[\"0\",\"1\"]"#);
    let (first, second) = (book(0, "1", "0.4"), book(0, "2", "0.1"));
    let described = r#""kind":"described","ids":["0xa"],"second":[]"#;
    for (lines, status, payouts) in [
        (vec![turned(LISTED[0]), LISTED[1].to_owned()], MarketStatus::Open, &[][..]),
        (vec![resolved, described.to_owned()], MarketStatus::Resolved, &["1", "0"]),
    ] {
        let replay = played(&[first.clone(), second.clone()], lines);
        let market = replay.feed().markets().by_condition("0xa").unwrap();
        let info = market.info();
        let tokens: Vec<&str> = info.outcomes.iter().map(|it| &*it.token_id).collect();
        assert_eq!((tokens, info.status), (vec!["1", "2"], status));
        assert_eq!(&*info.outcomes[0].label, "Yes");
        let paid: Vec<String> = info.payouts.iter().map(ToString::to_string).collect();
        assert_eq!(paid, payouts);
        let books = |index| {
            let book = market.book(paperbourse_core::ids::OutcomeIndex(index)).clone().unwrap();
            book.ladder().best_bid().unwrap().price.to_string()
        };
        assert_eq!([books(0), books(1)], ["0.4", "0.1"], "each book stays with its token");
    }
}

/// With other tokens, it is unknown what an order would buy.
#[test]
fn a_description_with_other_tokens_makes_its_market_untradable() {
    let other = |text: &str| text.replace(r#"[\"1\",\"2\"]"#, r#"[\"1\",\"7\"]"#);
    let described = r#""kind":"described","ids":["0xa"],"second":[]"#;
    let page = |text: &str| vec![text.to_owned(), LISTED[1].to_owned()];
    let other_page = page(&other(LISTED[0]));
    let again = [other_page.clone(), page(LISTED[0])].concat();
    for (lines, status) in [
        (other_page, MarketStatus::Paused),
        (again, MarketStatus::Open),
        (vec![other(RESOLVED), described.to_owned()], MarketStatus::Closed),
        (
            vec![other(RESOLVED), described.to_owned(), RESOLVED.to_owned(), described.to_owned()],
            MarketStatus::Resolved,
        ),
    ] {
        let replay = played(&[book(0, "1", "0.4")], lines);
        let market = replay.feed().markets().by_condition("0xa").unwrap();
        let info = market.info();
        let tokens: Vec<&str> = info.outcomes.iter().map(|it| &*it.token_id).collect();
        assert_eq!((tokens, info.status), (vec!["1", "2"], status));
        assert_eq!(info.payouts.is_empty(), status != MarketStatus::Resolved);
    }
}

proptest! {
    /// Shuffled lines with some bytes replaced cause no panic and no crossed book.
    #[test]
    fn damaged_tapes_are_refused_or_harmless(
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        damage in prop::collection::vec((any::<prop::sample::Index>(), 0x20_u8..0x7f), 0..8),
    ) {
        let whole = whole_tape();
        let mut text = whole.join("\n");
        for index in order {
            text.push('\n');
            text.push_str(&whole[index.index(whole.len())]);
        }
        let mut bytes = text.into_bytes();
        for (index, byte) in damage {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        let text = String::from_utf8(bytes).unwrap();
        let mut replay = replay();
        play(&mut replay, &text.lines().collect::<Vec<_>>());
        for market in replay.feed().markets().listing().markets() {
            for (index, _) in (0..).zip(&market.info().outcomes) {
                let book = market.book(paperbourse_core::ids::OutcomeIndex(index)).clone();
                prop_assert!(book.is_none_or(|book| !book.ladder().is_crossed()));
            }
        }
    }
}

/// The answer is used where the tape says so, as it was when the tape was made.
#[test]
fn a_delay_on_the_tape_is_used_where_it_was_used() {
    let answer = concat!(
        r#""kind":"answer","get":"/clob-markets/0xa","json":{"c":"0xa","itode":true,"#,
        r#""t":[{"t":"1","o":"Yes"},{"t":"2","o":"No"}]}"#,
    );
    let (used, failed) = (r#""kind":"delay","ids":["0xa"]"#, r#""kind":"delay""#);
    let error = r#""kind":"answer","get":"/clob-markets/0xa","error":"no answer""#;
    for (lines, expected, unusable) in [
        (&[answer][..], 0, 0),
        (&[used], 0, 0),
        (&[error, used], 0, 0),
        (&[answer, failed], 0, 1),
        (&[answer, used], 150, 0),
        (&[answer, used, LISTED[0], LISTED[1]], 150, 0),
        // Nothing of an earlier session is used.
        (&[answer, BEGIN, LISTED[0], LISTED[1], used], 0, 0),
    ] {
        let replay = played(&[], lines.iter().map(|&line| line.to_owned()).collect());
        let market = replay.feed().markets().by_condition("0xa").unwrap();
        let unused = replay.counts().unusable;
        let delay_ms = market.snapshot().quote().taker_delay_ms;
        assert_eq!((delay_ms, unused), (expected, unusable), "{lines:?}");
    }
}
