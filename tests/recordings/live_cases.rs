//! Messages of the live venue that other people have met, with what must follow from them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use paperbourse::ids::{OutcomeIndex, Timestamp};
use paperbourse::market::Markets;
use paperbourse::money::{Price, Rounding};
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::follow::Stamp;
use paperbourse::venue::follow::timing::Timing;
use paperbourse::venue::polymarket::filter::MarketFilter;
use paperbourse::venue::polymarket::follower::Follower;
use paperbourse::venue::polymarket::hash::BookHasher;
use paperbourse::venue::polymarket::wire::gamma;
use paperbourse_test_support::recordings::case_path;
use serde_json::{Value, json};

use super::play;

/// One market on one socket.
struct Live {
    follower: Follower<Feed>,
    condition_id: String,
}

/// Seconds since the start of the follower.
fn at(seconds: u64) -> Stamp {
    let elapsed = Duration::from_secs(seconds);
    let start = Timestamp::from_millis(1_784_578_686_000);
    Stamp { elapsed, time: start.after_ms(u32::try_from(seconds * 1_000).unwrap()) }
}

impl Live {
    /// Follows a market with these tokens, and has both of these books.
    fn start(condition_id: &str, tokens: [&str; 2], books: &[&str]) -> Self {
        let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
        feed.verify_with(BookHasher::default());
        let timing = Timing { lag_max: Duration::MAX, ..Timing::VENUE };
        let filter = MarketFilter { count_max: 1, ..MarketFilter::default() };
        let mut follower = Follower::new(feed, filter, timing);
        let described = json!({
            "conditionId": condition_id, "outcomes": ["Yes", "No"], "clobTokenIds": tokens,
            "active": true, "acceptingOrders": true, "enableOrderBook": true,
            "orderPriceMinTickSize": 0.01, "orderMinSize": 5,
        });
        let described = gamma::market(&described.to_string()).unwrap();
        follower.listed(vec![described], at(0));
        follower.opened(0, 1, at(0));
        for book in books {
            follower.frame(0, book, at(0));
        }
        Self { follower, condition_id: condition_id.to_owned() }
    }

    /// The best ask of an outcome, if orders can fill on it.
    fn fresh_ask(&self, outcome: u8) -> Option<Price> {
        let market = self.follower.books().markets().by_condition(&self.condition_id).unwrap();
        let book = market.book(OutcomeIndex(outcome)).clone()?;
        book.ladder().best_ask().filter(|_| !book.stale).map(|level| level.price)
    }
}

fn read(case: &Path, file: &str) -> String {
    std::fs::read_to_string(case.join(file)).unwrap()
}

fn price(text: &str) -> Price {
    Price::from_text(text, Rounding::Exact).unwrap()
}

/// A book without a hash.
fn book(condition_id: &str, token: &str, bid: &str, ask: &str) -> String {
    let level = |price| json!([{"price": price, "size": "100"}]);
    json!({
        "event_type": "book", "market": condition_id, "asset_id": token,
        "timestamp": "1784578686000", "bids": level(bid), "asks": level(ask),
        "tick_size": "0.01", "last_trade_price": "0.500",
    })
    .to_string()
}

const MARKET: &str = "0x0000000000000000000000000000000000000000000000000000000000000001";

#[test]
fn nothing_fills_on_a_ghost_book() {
    let Some(case) = case_path("ghost-book") else { return };
    let first = read(&case, "socket-book.json");
    let no = book(MARKET, "12", "0.4", "0.6");
    let mut live = Live::start(MARKET, ["11", "12"], &[&first, &no]);
    assert_eq!(live.fresh_ask(0), Some(price("0.6")));
    let ghost = read(&case, "books-answer.json");
    for minute in 1..=60 {
        let now = at(60 * minute);
        live.follower.sweep(now, true);
        while let Some(asked) = live.follower.next_book_request() {
            live.follower.answer(&asked, Some(ghost.as_bytes()), now.elapsed, now);
        }
        live.follower.take_requests();
        for outcome in [0, 1] {
            assert_eq!(live.fresh_ask(outcome), Some(price("0.6")), "minute {minute}");
        }
        // The socket sends its books again when it is asked to.
        live.follower.frame(0, &first, now);
        live.follower.frame(0, &no, now);
    }
}

#[test]
fn the_changes_of_a_crossing_burst_are_all_proven() {
    let Some(case) = case_path("crossing-burst") else { return };
    let (player, _) = play(&case);
    let counts = player.feed().counts();
    assert_eq!((counts.hashes_verified, counts.hashes_mismatched), (51, 0), "{counts}");
}

#[test]
fn a_top_before_its_change_makes_no_book_stale() {
    let Some(case) = case_path("top-before-change") else { return };
    let frames = read(&case, "ws/captured.jsonl");
    let frames: Vec<&str> = frames.lines().collect();
    let changes: Value = serde_json::from_str(frames[2]).unwrap();
    let condition_id = changes["market"].as_str().unwrap();
    let [no, yes] =
        [0, 1].map(|place| changes["price_changes"][place]["asset_id"].as_str().unwrap());
    let books = [book(condition_id, yes, "0.34", "0.39"), book(condition_id, no, "0.61", "0.66")];
    // What comes before the first frame is not recorded, so hashes cannot match.
    let bare: Vec<String> = frames
        .iter()
        .map(|text| {
            let mut frame: Value = serde_json::from_str(text).unwrap();
            for change in frame["price_changes"].as_array_mut().into_iter().flatten() {
                change.as_object_mut().unwrap().remove("hash");
            }
            frame.to_string()
        })
        .collect();
    let mut live = Live::start(condition_id, [yes, no], &[&books[0], &books[1]]);
    for (index, frame) in bare.iter().enumerate().take(3) {
        live.follower.frame(0, frame, at(1));
        let fresh = [0, 1].map(|outcome| live.fresh_ask(outcome).is_some());
        assert_eq!(fresh, [true; 2], "frame {index}");
    }
    assert_eq!(live.fresh_ask(0), Some(price("0.38")));
}

#[test]
fn a_row_that_cannot_be_read_harms_no_book() {
    if let Some(case) = case_path("unreadable-book-row") {
        let books = [book(MARKET, "11", "0.4", "0.6"), book(MARKET, "12", "0.4", "0.6")];
        let mut live = Live::start(MARKET, ["11", "12"], &[&books[0], &books[1]]);
        live.follower.sweep(at(60), true);
        let asked = live.follower.next_book_request().unwrap();
        let answer = read(&case, "books-answer.json");
        live.follower.answer(&asked, Some(answer.as_bytes()), at(60).elapsed, at(61));
        assert_eq!([0, 1].map(|it| live.fresh_ask(it)), [Some(price("0.6")); 2]);
    }
    if let Some(case) = case_path("unreadable-print") {
        let books = [book(MARKET, "11", "0.4", "0.6"), book(MARKET, "12", "0.4", "0.6")];
        for frame in read(&case, "frames.jsonl").lines() {
            let mut live = Live::start(MARKET, ["11", "12"], &[&books[0], &books[1]]);
            live.follower.frame(0, frame, at(1));
            assert_eq!([0, 1].map(|it| live.fresh_ask(it)), [Some(price("0.6")); 2], "{frame}");
        }
    }
}
