//! Any message of the market socket or a catalogue is read or refused without a panic, and never
//! leads to a crossed book for readers.
//!
//! The frames, one per line, apply to a market whose books are known: once to the feed alone, where
//! a line that describes a market lists it, so that later lines can refer to it; and once to
//! everything behind a live socket.

use std::sync::Arc;

use paperbourse::ids::{OutcomeIndex, Timestamp};
use paperbourse::market::Markets;
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::follow::timing::Timing;
use paperbourse::venue::polymarket::hash::BookHasher;
use paperbourse::venue::polymarket::live::unconnected::Unconnected;
use paperbourse::venue::polymarket::wire::socket::{Frame, frame};
use paperbourse::venue::polymarket::wire::{clob, gamma};
use paperbourse::venue::{VenueChange, VenueEvent};

/// The books of both outcomes before the input.
const BOOKS: &str = concat!(
    r#"[{"event_type":"book","market":"0x1","asset_id":"1","timestamp":"1","bids":"#,
    r#"[{"price":"0.4","size":"10"},{"price":"0.41","size":"5"}],"asks":"#,
    r#"[{"price":"0.6","size":"10"},{"price":"0.5","size":"2.5"}],"last_trade_price":"0.41"},"#,
    r#"{"event_type":"book","market":"0x1","asset_id":"2","timestamp":"1","#,
    r#""bids":[{"price":"0.5","size":"2.5"}],"asks":[{"price":"0.59","size":"5"}]}]"#,
);

/// The market as described by the live venue's catalogue.
const MARKET: &str = concat!(
    r#"{"conditionId":"0x1","outcomes":"[\"Yes\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]","#,
    r#""active":true,"closed":false,"enableOrderBook":true,"acceptingOrders":true}"#,
);

pub(crate) fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    let outcomes = ["1", "2"].map(|token| Outcome { label: token.into(), token_id: token.into() });
    let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
    feed.verify_with(BookHasher::default());
    list(&mut feed, vec![MarketInfo::bare("0x1", outcomes)]);
    apply(&mut feed, BOOKS);
    check(feed.markets());
    for line in text.lines() {
        let descriptions = [gamma::market(line).ok(), clob::compact_market(line).ok()];
        list(&mut feed, descriptions.into_iter().flatten().map(|market| market.info).collect());
        let _ = gamma::event(line);
        let _ = clob::long_market(line);
        let _ = clob::book(line);
        apply(&mut feed, line);
        check(feed.markets());
    }
    live(text);
}

/// The same lines as messages of a live socket.
fn live(text: &str) {
    let markets = Arc::new(Markets::new());
    let feed = Feed::new(markets.clone(), MismatchPolicy::Distrust);
    let described = gamma::market(MARKET).expect("the description is valid");
    let mut venue = Unconnected::new(Timing::VENUE, feed, vec![described]);
    venue.frame(BOOKS);
    check(&markets);
    for line in text.lines() {
        venue.frame(line);
        check(&markets);
    }
    assert!(venue.status().frames > 0);
}

fn list(feed: &mut Feed, infos: Vec<MarketInfo>) {
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: VenueChange::Listed(infos) });
}

fn apply(feed: &mut Feed, line: &str) {
    let Frame::Messages(messages) = frame(line) else { return };
    for message in messages.into_iter().flatten() {
        if let Some(event) = message.event(|name| name.into()) {
            feed.apply(event);
        }
    }
}

fn check(markets: &Markets) {
    let listing = markets.listing();
    assert!(listing.by_condition("0x1").is_some(), "a listed market stays listed");
    for market in listing.markets() {
        let outcomes = market.info().outcomes.len();
        for outcome in (0..outcomes).map(|index| OutcomeIndex(index.try_into().expect("few"))) {
            if let Some(book) = market.book(outcome).as_deref() {
                assert!(!book.ladder().is_crossed());
            }
        }
    }
}
