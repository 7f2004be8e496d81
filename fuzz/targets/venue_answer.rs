//! Any answer of the venue's REST services is read or refused without a panic, and a row that
//! cannot be read hides no other.
//!
//! The first byte selects the type of the answer: `b` for books, `g` for a list of markets, `k` for
//! a page of markets with a cursor, `e` for events, `m` for one market of the CLOB service. The
//! rest is its body.

use std::sync::Arc;

use paperbourse::ids::{OutcomeIndex, Timestamp};
use paperbourse::market::Markets;
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::polymarket::wire::clob::{self, BookMessage};
use paperbourse::venue::polymarket::wire::{Description, gamma};
use paperbourse::venue::{VenueChange, VenueEvent};
use serde::Deserialize;
use serde_json::value::RawValue;

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    markets: Vec<&'a RawValue>,
}

pub(crate) fn run(data: &[u8]) {
    let Some((kind, body)) = data.split_first() else { return };
    match kind {
        b'b' => rows(body).into_iter().for_each(read_book),
        b'g' => list(rows(body).into_iter().filter_map(|row| gamma::market(row).ok())),
        b'k' => {
            let page: Option<Page<'_>> = serde_json::from_slice(body).ok();
            let rows = page.map(|page| page.markets).unwrap_or_default();
            list(rows.into_iter().filter_map(|row| gamma::market(row.get()).ok()));
        }
        b'e' => {
            let markets = rows(body).into_iter().filter_map(|row| gamma::event(row).ok());
            list(markets.flatten().flatten());
        }
        b'm' => {
            let text = String::from_utf8_lossy(body);
            list(clob::long_market(&text).into_iter().chain(clob::compact_market(&text)));
        }
        _ => {}
    }
}

/// The rows of an array, split as in the connector.
fn rows(body: &[u8]) -> Vec<&str> {
    let rows: Vec<&RawValue> = serde_json::from_slice(body).unwrap_or_default();
    rows.into_iter().map(RawValue::get).collect()
}

/// A book is published unchanged, unless it is crossed.
fn read_book(row: &str) {
    let Ok(book) = clob::book(row) else { return };
    let BookMessage { market, asset_id, ref ladder, .. } = book;
    let other = if asset_id == "other" { "another" } else { "other" };
    let outcomes =
        [asset_id, other].map(|token| Outcome { label: token.into(), token_id: token.into() });
    let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
    let listed = VenueChange::Listed(vec![MarketInfo::bare(market, outcomes)]);
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: listed });
    let (received, id) = (ladder.clone(), asset_id.to_owned());
    feed.apply(book.event(|name| name.into()));
    let listing = feed.markets().listing();
    let (market, outcome) = listing.by_token(&id).expect("the market was listed");
    let published = market.book(outcome).clone().expect("a complete book is published");
    assert!(!published.ladder().is_crossed());
    assert!(received.is_crossed() || *published.ladder() == received);
    assert!(market.book(OutcomeIndex(1 - outcome.0)).is_none(), "no book was received");
}

/// Valid descriptions of markets are listed, each name once.
fn list(described: impl IntoIterator<Item = Description>) {
    let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
    let infos: Vec<MarketInfo> = described.into_iter().map(|market| market.info).collect();
    let names: Vec<Arc<str>> = infos.iter().map(|info| info.condition_id.clone()).collect();
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: VenueChange::Listed(infos) });
    let listing = feed.markets().listing();
    assert!(names.iter().all(|name| listing.by_condition(name).is_some()));
}
