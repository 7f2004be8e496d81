//! Whatever the market socket or a recording sends: it is read or refused, never a crash, and what
//! is read never shows readers a crossed book.

#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use paperbourse::ids::{OutcomeIndex, Timestamp};
use paperbourse::market::Markets;
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::polymarket::wire::socket::{Frame, frame};
use paperbourse::venue::polymarket::wire::{clob, gamma};
use paperbourse::venue::{VenueChange, VenueEvent};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = str::from_utf8(data) else { return };
    let _ = gamma::market(text);
    let _ = gamma::event(text);
    let _ = clob::book(text);
    let _ = clob::compact_market(text);
    let _ = clob::long_market(text);

    let outcomes = ["1", "2"].map(|token| Outcome { label: token.into(), token_id: token.into() });
    let info = MarketInfo::bare("0x1", outcomes);
    let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Count);
    let listed = VenueChange::Listed(vec![info]);
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: listed });
    for line in text.lines() {
        let Frame::Messages(messages) = frame(line) else { continue };
        for message in messages.into_iter().flatten() {
            let Some(event) = message.event(|name| name.into()) else { continue };
            feed.apply(event);
        }
    }
    let market = feed.markets().by_condition("0x1").expect("it was listed");
    for outcome in [OutcomeIndex(0), OutcomeIndex(1)] {
        if let Some(book) = market.book(outcome).as_deref() {
            assert!(!book.ladder().is_crossed());
        }
    }
});
