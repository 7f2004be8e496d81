use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::json;

use super::*;
use crate::polymarket::wire::{clob, socket};

const TOKEN: &str = "12";

/// An invented book, whose only bid has this size.
#[derive(Clone, Copy)]
struct Invented {
    ms: i64,
    size: u32,
    traded: &'static str,
}

impl Invented {
    fn text(self, hash: &str) -> String {
        let Self { ms, size, traded } = self;
        let head = format!(r#"{{"market":"0xab","asset_id":"{TOKEN}","timestamp":"{ms}""#);
        let bids = format!(r#""bids":[{{"price":"0.4","size":"{size}"}}]"#);
        let asks = r#""asks":[{"price":"0.6","size":"7"}]"#;
        let terms = r#""min_order_size":"5","tick_size":"0.01","neg_risk":false"#;
        let tail = format!(r#""last_trade_price":"{traded}"}}"#);
        format!(r#"{head},"hash":"{hash}",{bids},{asks},{terms},{tail}"#)
    }

    fn hash(self) -> String {
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, self.text("").as_bytes());
        let pairs: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        pairs.concat()
    }
}

/// A book that never traded.
fn at(ms: i64, size: u32) -> Invented {
    Invented { ms, size, traded: "" }
}

fn time(ms: i64) -> Timestamp {
    Timestamp::from_millis(ms)
}

struct Desk {
    books: Books,
}

impl Desk {
    /// Has the token's book of 1000 ms, with 10 at its bid.
    fn new() -> Self {
        let mut desk = Self { books: Books::new(Duration::from_secs(1)) };
        let text = at(1_000, 10).text(&at(1_000, 10).hash());
        let book = clob::book(&text).unwrap();
        let judged = desk.books.requested(&book, false, &text).unwrap();
        assert!(matches!(judged, Judged::Hash { is_proven: true, .. }), "{judged:?}");
        let judged = desk.book(at(1_000, 10));
        assert_eq!(judged, [Judged::FirstBook, proven()]);
        desk
    }

    fn say(&mut self, text: &str, now_ms: i64) -> Vec<Judged> {
        let message = socket::message(text).unwrap();
        self.books.message(&message, text, time(now_ms))
    }

    /// The socket sends this book, without the price of the last trade.
    fn book(&mut self, book: Invented) -> Vec<Judged> {
        let text = book.text(&book.hash()).replace(r#","last_trade_price":"""#, "");
        let start = text.find(r#","min_order_size""#).unwrap();
        self.say(&format!(r#"{},"event_type":"book"}}"#, &text[..start]), book.ms)
    }

    /// The socket sends a change to this book, with this hash and these best prices.
    fn change(&mut self, book: Invented, hash: &str, (bid, ask): (&str, &str)) -> Vec<Judged> {
        let Invented { ms, size, .. } = book;
        let entry = json!({
            "asset_id": TOKEN, "price": "0.4", "size": size.to_string(), "side": "BUY",
            "hash": hash, "best_bid": bid, "best_ask": ask,
        });
        let change = json!({
            "event_type": "price_change", "market": "0xab", "timestamp": ms.to_string(),
            "price_changes": [entry],
        });
        self.say(&change.to_string(), ms)
    }

    fn top(&mut self, bid: &str, now_ms: i64) -> Vec<Judged> {
        let top = json!({
            "event_type": "best_bid_ask", "market": "0xab", "asset_id": TOKEN, "best_bid": bid,
            "best_ask": "0.6",
        });
        self.say(&top.to_string(), now_ms)
    }
}

const TOPS: (&str, &str) = ("0.4", "0.6");

fn proven() -> Judged {
    let (subject, text) = (Subject::Socket, String::new());
    Judged::Hash { subject, is_v2: false, neg_risk: false, is_proven: true, text }
}

fn top(stated_by: Statement, fit: &'static str) -> Judged {
    Judged::Top { stated_by, fit: Some(fit), text: String::new() }
}

fn group(is_own: bool) -> Judged {
    Judged::Group { is_own, is_proven: true, text: String::new() }
}

#[test]
fn a_change_has_the_hash_and_the_best_prices_of_the_book_after_it() {
    let mut desk = Desk::new();
    let judged = desk.change(at(2_000, 11), &at(2_000, 11).hash(), TOPS);
    assert_eq!(judged, [top(Statement::Change, "after its change"), proven()]);
    // Another at the same time, with a hash of its own.
    let judged = desk.change(at(2_000, 12), &at(2_000, 12).hash(), TOPS);
    assert_eq!(judged, [top(Statement::Change, "after its change"), proven(), group(true)]);
}

#[test]
fn a_wrong_hash_is_given_up_after_a_second() {
    let mut desk = Desk::new();
    let judged = desk.change(at(2_000, 11), &at(2_000, 12).hash(), TOPS);
    assert_eq!(judged, [top(Statement::Change, "after its change")]);
    assert_eq!(desk.books.finish(time(3_000)), []);
    let judged = desk.books.finish(time(3_001));
    assert!(
        matches!(&judged[..], [Judged::Hash { is_proven: false, text, .. }] if !text.is_empty())
    );
    assert_eq!(desk.books.finish(time(9_000)), [], "it is judged once");
}

#[test]
fn what_waits_on_a_lost_connection_is_forgotten() {
    let mut desk = Desk::new();
    desk.change(at(2_000, 11), "00", ("0.3", "0.6"));
    desk.books.forget_waiting();
    assert_eq!(desk.books.finish(time(9_000)), []);
}

#[test]
fn a_group_may_have_the_hash_of_its_last_book() {
    let mut desk = Desk::new();
    let last = at(2_000, 13).hash();
    assert_eq!(desk.change(at(2_000, 11), &last, TOPS).len(), 1);
    assert_eq!(desk.change(at(2_000, 12), &last, TOPS).len(), 1);
    let judged = desk.change(at(2_000, 13), &last, TOPS);
    let expected =
        [top(Statement::Change, "after its change"), group(false), group(false), proven()];
    assert_eq!(judged, expected);

    // A hash of no book of the group.
    desk.change(at(3_000, 14), &last, TOPS);
    desk.change(at(3_000, 15), &at(3_000, 15).hash(), TOPS);
    let judged = desk.books.finish(time(5_000));
    assert!(matches!(judged[..], [Judged::Group { is_proven: false, .. }]), "{judged:?}");
}

#[test]
fn a_trade_explains_the_book_before_it() {
    let mut desk = Desk::new();
    let traded = Invented { traded: "0.600", ..at(2_000, 10) };
    assert_eq!(desk.book(traded), []);
    // Books of other times in between do not matter.
    let next = Invented { traded: "0.600", ..at(2_100, 11) };
    desk.change(next, &next.hash(), TOPS);
    let trade = r#"{"event_type":"last_trade_price","market":"0xab","asset_id":"99","price":"0.6",
                   "size":"1","side":"BUY","timestamp":"2000"}"#;
    assert_eq!(desk.say(trade, 2_200), [proven(), proven()]);
    assert_eq!(desk.books.finish(time(9_000)), []);
}

#[test]
fn a_best_price_comes_before_or_after_its_change_or_is_unexplained() {
    let mut desk = Desk::new();
    assert_eq!(desk.top("0.4", 1_500), [top(Statement::BestBidAsk, "after its change")]);
    assert_eq!(desk.top("0.5", 1_500), []);
    let bid = r#"{"event_type":"price_change","market":"0xab","timestamp":"1600","price_changes":[
        {"asset_id":"12","price":"0.5","size":"1","side":"BUY"}]}"#;
    assert_eq!(desk.say(bid, 1_600), [top(Statement::BestBidAsk, "before its change")]);
    // The one before the newest change.
    assert_eq!(desk.top("0.4", 1_700), [top(Statement::BestBidAsk, "after its change")]);
    assert_eq!(desk.top("0.1", 1_700), []);
    let judged = desk.books.finish(time(2_800));
    assert!(matches!(judged[..], [Judged::Top { fit: None, .. }]), "{judged:?}");
}
