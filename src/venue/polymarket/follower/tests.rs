//! Scenarios, step by step: what comes in and when, the resulting requests, and what readers see.

mod odd;

use std::fmt::Write as _;

use super::*;
use crate::feed::{Feed, MismatchPolicy};
use crate::follow::request::Notice;
use crate::polymarket::wire::{Description, clob, gamma};
use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::Markets;

/// The start of a scenario, on the venue's clock and on ours.
const START_MS: i64 = 1_800_000_000_000;

/// What comes in.
enum Step {
    /// A page that lists these markets.
    List(Vec<Description>),
    /// Descriptions of these markets, as requested.
    Describe(Vec<Description>),
    /// The CLOB service's compact description of a market.
    Delay(&'static str),
    /// Socket 0 has this connection.
    Open(u64),
    /// A frame of socket 0.
    Frame(String),
    /// The connection of socket 0 ended.
    Lost,
    /// An answer of the book endpoint to the last request.
    Answer(&'static str),
    /// A sweep while no frames are queued.
    Sweep,
    /// A sweep while frames are queued.
    SweepBehind,
}

use Step::{Answer, Delay, Describe, Frame, List, Lost, Open, Sweep, SweepBehind};

/// A market with the tokens `{id}1` and `{id}2`.
fn market(id: &str, fields: &str) -> Description {
    let text = format!(
        r#"{{"conditionId":"0x{id}","outcomes":"[\"Yes\",\"No\"]",
            "clobTokenIds":"[\"{id}1\",\"{id}2\"]","active":true,
            "acceptingOrders":true,"enableOrderBook":true{fields}}}"#
    );
    gamma::market(&text).unwrap()
}

fn book(token: &str, bid: &str, at_ms: i64) -> String {
    format!(
        r#"{{"event_type":"book","asset_id":"{token}","market":"0xa","timestamp":"{}",
            "bids":[{{"price":"{bid}","size":"7"}}],"asks":[{{"price":"0.9","size":"8"}}]}}"#,
        START_MS + at_ms
    )
}

fn change(token: &str, bid: &str, at_ms: i64) -> String {
    format!(
        r#"{{"event_type":"price_change","market":"0xa","timestamp":"{}","price_changes":[{{
            "asset_id":"{token}","price":"{bid}","size":"3","side":"BUY","best_bid":"{bid}",
            "best_ask":"0.9"}}]}}"#,
        START_MS + at_ms
    )
}

/// One frame with both books.
fn books(at_ms: i64) -> String {
    format!("[{},{}]", book("a1", "0.4", at_ms), book("a2", "0.1", at_ms))
}

fn event(event_type: &str, market: &str, fields: &str) -> String {
    format!(
        r#"{{"event_type":"{event_type}","market":"{market}","timestamp":"{START_MS}"{fields}}}"#
    )
}

fn show(request: Request) -> String {
    let list = |ids: &[Arc<str>]| {
        let mut ids = ids.to_vec();
        ids.sort();
        ids.join(" ")
    };
    match request {
        Request::Assign { socket, tokens } => format!("assign {socket}: {}", list(&tokens)),
        Request::Subscribe { socket, tokens } => format!("subscribe {socket}: {}", list(&tokens)),
        Request::Renew { socket, token } => format!("renew {socket}: {token}"),
        Request::GiveUp { socket, connection, why } => {
            format!("give up {socket} #{connection}: {why}")
        }
        Request::Expired(tokens) => format!("expired {}", list(&tokens)),
        Request::Describe { condition_id, is_new: false } => format!("describe {condition_id}"),
        Request::Describe { condition_id, is_new: true } => format!("describe new {condition_id}"),
        Request::Delay { condition_id } => format!("delay {condition_id}"),
        Request::Unresolved(ids) => format!("unresolved {}", list(&ids)),
        Request::Log(Notice::UnreadableMessage { .. }) => "log UnreadableMessage".to_owned(),
        Request::Log(notice) => format!("log {notice:?}"),
    }
}

struct Scenario {
    follower: Follower<Feed>,
    asked: BookRequest,
    asked_at: Duration,
}

impl Scenario {
    /// Follows at most two markets from lists, or four with a selective filter.
    fn start() -> Self {
        let feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
        let filter = MarketFilter { count_max: 2, ..MarketFilter::default() };
        let follower = Follower::new(feed, filter, Timing::VENUE);
        Self { follower, asked: BookRequest::new(), asked_at: Duration::ZERO }
    }

    /// Takes a step at this time. Returns the resulting requests.
    fn take(&mut self, at_ms: u32, step: Step) -> String {
        let now = Stamp {
            elapsed: Duration::from_millis(at_ms.into()),
            time: Timestamp::from_millis(START_MS + i64::from(at_ms)),
        };
        let follower = &mut self.follower;
        match step {
            List(markets) => follower.listed(markets, now),
            Describe(markets) => {
                follower.described(markets.into_iter().map(Described::from).collect(), now);
            }
            Delay(text) => {
                follower.delay_described(&clob::compact_market(text).unwrap(), now);
            }
            Open(connection) => follower.opened(0, connection, now),
            Frame(text) => follower.frame(0, &text, now),
            Lost => follower.lost(0, now),
            Answer(body) => {
                let asked = std::mem::take(&mut self.asked);
                follower.answer(&asked, Some(body.as_bytes()), self.asked_at, now);
            }
            Sweep => follower.sweep(now, true),
            SweepBehind => follower.sweep(now, false),
        }
        let mut shown: Vec<String> = follower.take_requests().into_iter().map(show).collect();
        if let Some(asked) = follower.next_book_request() {
            let mut ids: Vec<&str> = asked.iter().map(|(id, _)| &**id).collect();
            ids.sort_unstable();
            shown.push(format!("ask {}", ids.join(" ")));
            (self.asked, self.asked_at) = (asked, now.elapsed);
        }
        shown.join("; ")
    }

    /// Each book of market `a`: its best bid, and whether orders can fill on it.
    fn shown(&self) -> String {
        let market = self.follower.books().markets().by_condition("0xa").unwrap();
        let mut text = String::new();
        for index in 0..2 {
            if let Some(book) = market.book(OutcomeIndex(index)).as_deref() {
                let bid = book.ladder().best_bid().unwrap().price;
                let state = if book.stale { "stale" } else { "live" };
                let _ = write!(text, "{bid} {state} ");
            }
        }
        text.trim_end().to_owned()
    }
}

/// Takes steps at their times, and checks the requests of each and the final books of market `a`.
#[track_caller]
fn check(steps: Vec<(u32, Step, &str)>, expected: &str) -> Follower<Feed> {
    let mut scenario = Scenario::start();
    for (number, (at_ms, step, requests)) in (1..).zip(steps) {
        assert_eq!(scenario.take(at_ms, step), requests, "step {number}, at {at_ms} ms");
    }
    assert_eq!(scenario.shown(), expected);
    scenario.follower
}

/// First, at 0 ms, market `a` is listed, socket 0 opens, and both of its books arrive.
fn followed(steps: Vec<(u32, Step, &'static str)>) -> Vec<(u32, Step, &'static str)> {
    const LISTED: &str = "log Following { markets: 1, is_held: false }; assign 0: a1 a2; \
                          subscribe 0: a1 a2; unresolved 0xa";
    let mut all = vec![
        (0, List(vec![market("a", "")]), LISTED),
        (0, Open(1), "log Opened { socket: 0, tokens: 2 }"),
        (0, Frame(books(0)), ""),
    ];
    all.extend(steps);
    all
}

/// The first book, unchanged.
const SAME: &str = r#"[{"asset_id":"a1","market":"0xa","timestamp":"1800000000000",
    "bids":[{"price":"0.4","size":"7"}],"asks":[{"price":"0.9","size":"8"}]}]"#;

#[test]
fn quiet_books_are_requested_and_expire_without_an_answer() {
    check(
        followed(vec![
            (59_999, Sweep, ""),
            (60_000, Sweep, "ask a1 a2"),
            // Without an answer there is no second request.
            (120_000, Sweep, ""),
            (120_001, Sweep, "expired a1 a2"),
        ]),
        "0.4 stale 0.1 stale",
    );
    check(
        followed(vec![
            (60_000, Sweep, "ask a1 a2"),
            // The venue has no book for `a2`: its market is about to end.
            (61_000, Answer(SAME), "describe 0xa"),
            // The age of the book counts from the request.
            (119_999, Sweep, "ask a2"),
            (120_000, Sweep, "ask a1"),
        ]),
        "0.4 live 0.1 stale",
    );
}

const NEWER: &str = r#"[{"asset_id":"a1","market":"0xa","timestamp":"1800000060500",
    "bids":[{"price":"0.5","size":"7"}],"asks":[{"price":"0.9","size":"8"}]},
    {"asset_id":"a2","market":"0xa","timestamp":"1800000000000",
    "bids":[{"price":"0.1","size":"7"}],"asks":[{"price":"0.9","size":"8"}]}]"#;

#[test]
fn a_socket_that_does_not_confirm_the_book_endpoint_is_given_up() {
    check(
        followed(vec![
            (60_000, Sweep, "ask a1 a2"),
            (61_000, Answer(NEWER), "renew 0: a1"),
            (66_000, Sweep, "expired a1; ask a1"),
            // We may be lagging ourselves, so a second sweep decides.
            (66_250, Sweep, ""),
            (66_500, Sweep, "give up 0 #1: it lacks an update that the book endpoint has"),
            (66_600, Lost, ""),
            (67_000, Open(2), "log Opened { socket: 0, tokens: 2 }"),
            (67_000, Frame(books(67_000)), ""),
        ]),
        "0.4 live 0.1 live",
    );
    // The expected change may still be queued.
    check(
        followed(vec![
            (60_000, Sweep, "ask a1 a2"),
            (61_000, Answer(NEWER), "renew 0: a1"),
            (90_000, SweepBehind, "ask a1"),
            (90_250, SweepBehind, ""),
            (61_100, Frame(book("a1", "0.5", 60_500)), ""),
            (90_500, Sweep, ""),
            (90_750, Sweep, ""),
        ]),
        "0.5 live 0.1 live",
    );
}

/// The book endpoint has served books that never were. Nothing fills on one, and the socket's own
/// book is not lost to it.
#[test]
fn the_socket_decides_between_its_book_and_another_one() {
    let ghost = (61_000, Answer(NEWER), "renew 0: a1");
    check(followed(vec![(60_000, Sweep, "ask a1 a2"), ghost]), "0.4 live 0.1 live");
    for (after, requests, expected) in [
        // The socket repeats its book, or has another one.
        ((61_050, Frame(book("a1", "0.4", 0)), ""), "", "0.4 live 0.1 live"),
        ((61_050, Frame(book("a1", "0.5", 60_500)), ""), "", "0.5 live 0.1 live"),
        // Without an answer nothing is certain.
        ((61_050, Sweep, ""), "expired a1", "0.4 stale 0.1 live"),
    ] {
        let ghost = (61_000, Answer(NEWER), "renew 0: a1");
        let steps = vec![(60_000, Sweep, "ask a1 a2"), ghost, after, (61_501, Sweep, requests)];
        check(followed(steps), expected);
    }
    // If the socket has sent no book, the other one waits for it.
    let mut scenario = Scenario::start();
    for (at_ms, step, requests) in followed(vec![
        (100, Lost, ""),
        (60_200, Open(2), "log Opened { socket: 0, tokens: 2 }"),
        (65_200, Sweep, "ask a1 a2"),
        (65_300, Answer(NEWER), "renew 0: a1; renew 0: a2"),
    ]) {
        let taken = scenario.take(at_ms, step);
        let mut taken: Vec<&str> = taken.split("; ").collect();
        if at_ms == 65_300 {
            taken.sort_unstable();
        }
        assert_eq!(taken.join("; "), requests, "at {at_ms} ms");
    }
    assert_eq!(scenario.shown(), "0.5 stale 0.1 stale");
    scenario.take(65_400, Frame(books(65_400)));
    assert_eq!(scenario.shown(), "0.4 live 0.1 live");
}

#[test]
fn a_connection_with_a_change_that_is_too_late_is_given_up() {
    const LATE: &str = "give up 0 #1: message too late";
    for (sent_ms, received_ms, requests, expected) in [
        (10_000, 10_000, "", "0.5 live 0.1 live"),
        (10_000, 15_000, "", "0.5 live 0.1 live"),
        (10_000, 15_100, LATE, "0.4 stale 0.1 stale"),
    ] {
        let first = (0, Frame(change("a1", "0.4", 0)), "");
        let second = (received_ms, Frame(change("a1", "0.5", sent_ms)), requests);
        let follower = check(followed(vec![first, second]), expected);
        assert_eq!(follower.snapshot().late_messages, u64::from(!requests.is_empty()));
    }
}

/// Messages after one that gives up the connection must not prove books: nothing would ever make
/// those books stale again.
#[test]
fn a_connection_that_is_given_up_proves_nothing_more() {
    for (broken, requests) in [
        (change("a1", "0.5", 0), "give up 0 #1: message too late"),
        (
            r#"{"event_type":"book","bids":7}"#.to_owned(),
            "log UnreadableMessage; give up 0 #1: unreadable message",
        ),
    ] {
        check(
            followed(vec![
                (0, Frame(change("a1", "0.4", 0)), ""),
                (10_000, Frame(format!("[{broken},{}]", book("a1", "0.4", 10_000))), requests),
                (10_001, Frame(book("a1", "0.4", 10_001)), ""),
            ]),
            "0.4 stale 0.1 stale",
        );
    }
}

/// One odd market does not take down the others on its socket.
#[test]
fn an_unreadable_message_affects_only_its_subject() {
    let odd = |market| event("price_change", market, r#","price_changes":7"#);
    for (text, requests, expected) in [
        (odd("0xa"), "log UnreadableMessage", "0.4 stale 0.1 stale"),
        (
            odd("0xb"),
            "log UnreadableMessage; give up 0 #1: unreadable message",
            "0.4 stale 0.1 stale",
        ),
        (
            event("new_market", "0xa", r#","outcomes":7"#),
            "log UnreadableMessage",
            "0.4 live 0.1 live",
        ),
        (
            event("later", "0xa", ""),
            r#"log UnknownMessage { socket: 0, error: "frame of unknown type \"later\"" }"#,
            "0.4 live 0.1 live",
        ),
        ("text".to_owned(), r#"log UnknownFrame { socket: 0, text: "text" }"#, "0.4 live 0.1 live"),
        ("PONG".to_owned(), "", "0.4 live 0.1 live"),
    ] {
        check(followed(vec![(1, Frame(text), requests)]), expected);
    }
}

#[test]
fn a_time_in_the_future_is_logged_once_for_a_connection() {
    const LOGGED: &str = "log Ahead { socket: 0, ahead: 50s }";
    check(
        followed(vec![
            (0, Frame(change("a1", "0.4", 0)), ""),
            (10, Frame(change("a1", "0.5", 50_010)), LOGGED),
            (20, Frame(change("a1", "0.6", 50_020)), ""),
            (30, Lost, ""),
            (40, Open(2), "log Opened { socket: 0, tokens: 2 }"),
            (50, Frame(change("a1", "0.4", 50)), ""),
            (60, Frame(change("a1", "0.5", 50_060)), LOGGED),
        ]),
        "0.6 stale 0.1 stale",
    );
}

#[test]
fn a_winner_closes_its_market_and_requests_a_description() {
    const RESOLVED: &str = concat!(
        r#"log Resolved { market: "0xa", evidence: "Gamma: closed resolved pays 1/0; "#,
        r#"socket: pays 1/0 at 2027-01-15T08:00:00Z" }; unresolved "#
    );

    let won = || event("market_resolved", "0xa", r#","winning_asset_id":"a1""#);
    let ended = concat!(
        r#","closed":true,"umaResolutionStatus":"resolved","#,
        r#""outcomePrices":"[\"1\",\"0\"]""#
    );
    check(
        followed(vec![
            (1, Frame(won()), "describe 0xa"),
            (2, Sweep, "subscribe 0: "),
            (3, Frame(won()), "describe 0xa"),
            (4, Describe(vec![market("a", ended)]), RESOLVED),
        ]),
        "0.4 stale 0.1 stale",
    );
}

#[test]
fn a_new_market_is_described_if_there_is_room() {
    let new = |id: &str| {
        let fields = r#","id":"1","question":"?","slug":"s","outcomes":["Yes","No"]"#;
        event("new_market", id, fields)
    };
    check(
        followed(vec![
            (1, Frame(new("0xa")), ""),
            (1, Frame(new("0xb")), "describe new 0xb"),
            (
                2,
                List(vec![market("b", "")]),
                "log Following { markets: 1, is_held: false }; assign 0: b1 b2; \
                 subscribe 0: a1 a2 b1 b2; unresolved 0xa 0xb",
            ),
            (3, Frame(new("0xc")), ""),
        ]),
        "0.4 live 0.1 live",
    );
}

/// An undocumented stage is logged once, whichever markets have it.
#[test]
fn an_unknown_stage_is_logged_once() {
    let stage = |id, stage: &str| market(id, &format!(r#","umaResolutionStatus":"{stage}""#));
    let log = |stage: &str| {
        format!("log UnknownStage {{ stage: {stage:?}, market: \"0xa\" }}; unresolved 0xa")
    };
    let mut scenario = Scenario::start();
    scenario.take(0, List(vec![market("a", "")]));
    for (descriptions, expected) in [
        (vec![stage("a", "odd")], log("odd")),
        (vec![stage("a", "odd")], "unresolved 0xa".to_owned()),
        (vec![stage("a", "odder"), stage("a", "odder")], log("odder")),
        (vec![stage("a", "proposed")], "unresolved 0xa".to_owned()),
    ] {
        assert_eq!(scenario.take(1, Describe(descriptions)), expected);
    }
}

/// Logged once, until the market has its own tokens again.
#[test]
fn other_tokens_are_logged_once() {
    let own = || market("a", "");
    let other = || {
        let mut other = own();
        other.info.outcomes[1].token_id = "7".into();
        other
    };
    let mut scenario = Scenario::start();
    scenario.take(0, List(vec![own()]));
    let logged = r#"log TokensChanged { market: "0xa" }; unresolved 0xa"#;
    let quiet = "unresolved 0xa";
    for (description, expected) in
        [(other(), logged), (other(), quiet), (own(), quiet), (other(), logged)]
    {
        assert_eq!(scenario.take(1, Describe(vec![description])), expected);
    }
}

/// Gamma states the delay of games. That of markets with the outcomes Up and Down is asked for, and
/// kept whatever Gamma says.
#[test]
fn the_longest_stated_delay_counts() {
    let up_or_down = |id, fields: &str| {
        let mut market = market(id, fields);
        (market.info.outcomes[0].label, market.info.outcomes[1].label) =
            ("up".into(), "Down".into());
        market
    };
    let seconds = |delay: u32| format!(r#","secondsDelay":{delay}"#);
    let mut scenario = Scenario::start();
    let asked = scenario.take(0, List(vec![market("a", &seconds(3)), up_or_down("b", "")]));
    assert!(asked.contains("delay 0xb") && !asked.contains("delay 0xa"), "{asked}");
    let steps = [
        (Describe(vec![market("a", "")]), "3000 0"),
        (Describe(vec![market("a", &seconds(5))]), "5000 0"),
        (Delay(r#"{"c":"0xb","itode":true}"#), "5000 0 or more"),
        (Delay(r#"{"c":"0xelse","itode":true}"#), "5000 0 or more"),
        (Describe(vec![up_or_down("b", "")]), "5000 0 or more"),
        (Describe(vec![up_or_down("b", &seconds(0))]), "5000 0 or more"),
        (Describe(vec![up_or_down("b", &seconds(1))]), "5000 1000 or more"),
        // One in milliseconds is exact.
        (Describe(vec![up_or_down("b", r#","takerDelayMs":40"#)]), "5000 40"),
        (Describe(vec![up_or_down("b", &seconds(1))]), "5000 1000 or more"),
        (Delay(r#"{"c":"0xb"}"#), "5000 1000"),
        (Describe(vec![up_or_down("b", &seconds(0))]), "5000 0"),
        (Describe(vec![market("a", &seconds(0))]), "0 0"),
    ];
    for (number, (step, expected)) in (1..).zip(steps) {
        scenario.take(number, step);
        let markets = scenario.follower.books().markets();
        let delay = |id| {
            let info = markets.by_condition(id).unwrap().info().clone();
            let more = if info.has_unstated_delay { " or more" } else { "" };
            format!("{}{more}", info.taker_delay_ms)
        };
        assert_eq!(["0xa", "0xb"].map(delay).join(" "), expected, "step {number}");
    }
    // Other tokens do not change the delay of the known ones.
    let mut other = up_or_down("b", &seconds(2));
    other.info.outcomes[1].token_id = "7".into();
    scenario.take(20, Describe(vec![other]));
    let market = scenario.follower.books().markets().by_condition("0xb").unwrap();
    assert_eq!(market.info().taker_delay_ms, 2_000);
}

/// A market that has ended is not asked about.
#[test]
fn the_delay_of_a_closed_market_is_not_asked_for() {
    let mut ended = market("a", r#","closed":true"#);
    (ended.info.outcomes[0].label, ended.info.outcomes[1].label) = ("Up".into(), "Down".into());
    let mut scenario = Scenario::start();
    assert!(!scenario.take(0, List(vec![ended])).contains("delay"));
}
