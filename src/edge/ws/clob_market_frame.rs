//! What the venue's market socket sends of one market, encoded once and shared by all sockets.
//!
//! Readers see the newest books, and not each change of them. So a frame has the levels in which
//! the books differ from those of the frame before, and each book's hash after that. Whoever has
//! not sent the frame before sends whole books instead. Trades are kept for a while, since each is
//! an event.
//!
//! A hash covers what a reader was told: the levels, the time, the tick, and the price of the last
//! trade, which is sent before the levels that it changed.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};

use smallvec::SmallVec;

use super::channels::Frame;
use super::clob_market_events::{self, INFALLIBLE};
use super::frame::put_text;
use crate::trouble::MaybeTrouble;
use paperbourse_core::ids::{OutcomeIndex, Timestamp, condition};
use paperbourse_core::market::Market;
use paperbourse_core::market::book::{Ladder, LastTrade, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::quote::{Quote, QuotedBook};
use paperbourse_core::market::trades::{TradeReader, VenueTrade};
use paperbourse_core::money::{
    MICROS_PER_UNIT, Price, Shares, write_micros, write_micros_to_thousandths,
};
use paperbourse_venue::feed::verify::HashedBook;
use paperbourse_venue::polymarket::hash::{BookHasher, write_levels};

/// Maximum number of trades of a market that are kept for readers that have not sent them yet.
pub(super) const TRADES_KEPT_MAX: usize = 256;

/// The outcomes of a market, one bit each.
pub(super) type Outcomes = u64;

/// Returns the bit of an outcome.
pub(super) const fn bit(index: usize) -> Outcomes {
    1 << index
}

/// A market at one moment, and what is to be sent about it to readers that know the moment before.
pub(super) struct ClobFrame {
    /// The number of the frame. Rises by one with each frame of the market's channel.
    pub(super) seq: u64,
    pub(super) info: Arc<MarketInfo>,
    /// The book of each outcome; `None` while there is none.
    books: SmallVec<[Option<Arc<ShownBook>>; 2]>,
    trades: Arc<Trades>,
    reader: Arc<TradeReader>,
    /// Complete socket frames with the changes of all levels, except in `renewed` books.
    changes: Vec<u8>,
    /// The books that readers of the frame before need whole.
    renewed: Outcomes,
    /// The books whose best prices have changed since the frame before.
    moved: Outcomes,
    /// May show another tick for a while.
    trouble: MaybeTrouble,
}

/// The error for a socket that is so slow that trades were dropped before it could send them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lost;

/// A book as readers know it.
struct ShownBook {
    ladder: Ladder,
    at: Timestamp,
    /// The newest trade that readers know of: its price and its time.
    last_trade: Option<(Price, Timestamp)>,
    hash: String,
    /// The socket frame with the whole book, made when first needed.
    text: OnceLock<Box<[u8]>>,
}

/// The newest trades of a market.
#[derive(Default)]
struct Trades {
    /// The number of the next trade.
    end: u64,
    /// At most [`TRADES_KEPT_MAX`], oldest first. A mirrored trade is part of the same entry.
    list: VecDeque<Arc<TradeText>>,
}

/// The socket frames of a trade, one for each outcome that shows it.
type TradeText = SmallVec<[(OutcomeIndex, Box<[u8]>); 2]>;

impl ClobFrame {
    /// Encodes the first frame of a channel.
    pub(super) fn first(
        market: &Arc<Market>,
        seq: u64,
        trouble: MaybeTrouble,
        now: Timestamp,
    ) -> Self {
        let reader = Arc::new(TradeReader::new(market));
        let snapshot = market.snapshot();
        let quote = snapshot.quote();
        let info = shown(market, &trouble, now);
        let mut hasher = BookHasher::default();
        let books = (0_u8..).zip(&info.outcomes).map(|(outcome, _)| {
            let seen = Seen::of(&quote, OutcomeIndex(outcome))?;
            let last_trade = seen.stated();
            Some(Arc::new(ShownBook::new(&info, outcome.into(), seen, last_trade, &mut hasher)))
        });
        Self {
            seq,
            books: books.collect(),
            info,
            trades: Arc::default(),
            reader,
            changes: Vec::new(),
            renewed: 0,
            moved: 0,
            trouble,
        }
    }
}

/// Returns the description of a market with the tick that is shown.
fn shown(market: &Market, trouble: &MaybeTrouble, now: Timestamp) -> Arc<MarketInfo> {
    let info = market.info().clone();
    match trouble.as_ref().and_then(|trouble| trouble.tick(&info, now)) {
        Some(tick) => Arc::new(MarketInfo { tick, ..MarketInfo::clone(&info) }),
        None => info,
    }
}

impl Frame for ClobFrame {
    fn next(&self, market: &Arc<Market>, now: Timestamp) -> Option<Self> {
        let snapshot = market.snapshot();
        // After the snapshot, so that every trade that it shows is among them.
        let taken = self.reader.take();
        let info = shown(market, &self.trouble, now);
        let next = Self::after(self, &snapshot.quote(), info, &taken);
        next.differs_from(self).then_some(next)
    }

    fn seq(&self) -> u64 {
        self.seq
    }
}

/// What readers see of an outcome.
struct Seen<'s> {
    ladder: Cow<'s, Ladder>,
    at: Timestamp,
    last_trade: Option<LastTrade>,
    is_mirrored: bool,
}

impl<'s> Seen<'s> {
    /// Returns the book that an outcome trades on; `None` if it has none.
    fn of(quote: &Quote<'s>, outcome: OutcomeIndex) -> Option<Self> {
        let QuotedBook { liquidity, book } = quote.book(outcome)?;
        let (is_mirrored, own) = (liquidity.is_mirrored(), book.ladder());
        let mirrored_trade = || book.last_trade.map(LastTrade::mirrored);
        Some(Self {
            ladder: if is_mirrored { Cow::Owned(own.mirrored()) } else { Cow::Borrowed(own) },
            at: book.updated_at,
            last_trade: if is_mirrored { mirrored_trade() } else { book.last_trade },
            is_mirrored,
        })
    }

    /// Returns the price and the time of the newest trade.
    fn stated(&self) -> Option<(Price, Timestamp)> {
        self.last_trade.map(|trade| (trade.price, trade.at))
    }
}

impl ClobFrame {
    fn after(
        before: &Self,
        quote: &Quote<'_>,
        info: Arc<MarketInfo>,
        taken: &VecDeque<VenueTrade>,
    ) -> Self {
        // Hashes cover these, and a client knows the new ones only once it is sent a book.
        let terms = |info: &MarketInfo| (info.tick, info.order_size_min, info.neg_risk);
        let is_regridded = terms(&info) != terms(&before.info);
        let mut hasher = BookHasher::default();
        let mut changes = Changes::default();
        let (mut renewed, mut moved, mut mirrors) = (0, 0, 0);
        let mut books = SmallVec::new();
        for (index, known) in before.books.iter().enumerate() {
            let outcome = OutcomeIndex(u8::try_from(index).expect("a market has 64 outcomes"));
            let Some(seen) = Seen::of(quote, outcome) else {
                books.push(None);
                continue;
            };
            if seen.is_mirrored {
                mirrors |= bit(index);
            }
            let told = known.as_ref().and_then(|book| book.last_trade);
            let told = newest_told(told, taken, outcome, seen.is_mirrored);
            // A book can state a trade that no message told of.
            let untold = seen.stated().filter(|&(price, at)| {
                told.is_none_or(|(told_price, told_at)| at > told_at && price != told_price)
            });
            let last_trade = untold.or(told);
            let is_renewed = known.is_none() || is_regridded || untold.is_some();
            let is_same = known.as_ref().is_some_and(|known| {
                let price = |trade: Option<(Price, Timestamp)>| trade.map(|(price, _)| price);
                known.ladder == *seen.ladder && price(known.last_trade) == price(last_trade)
            });
            if is_same && !is_renewed {
                books.push(known.clone());
                continue;
            }
            let book = ShownBook::new(&info, index, seen, last_trade, &mut hasher);
            match known {
                Some(known) => {
                    if known.tops() != book.tops() {
                        moved |= bit(index);
                    }
                    if !is_renewed {
                        changes.add(&info, index, known, &book);
                    }
                }
                None => moved |= bit(index),
            }
            if is_renewed {
                renewed |= bit(index);
            }
            books.push(Some(Arc::new(book)));
        }
        let trades = before.trades_with(&info, taken, mirrors);
        let (seq, reader) = (before.seq + 1, before.reader.clone());
        let changes = changes.end(&info);
        let trouble = before.trouble.clone();
        Self { seq, info, books, trades, reader, changes, renewed, moved, trouble }
    }

    fn differs_from(&self, before: &Self) -> bool {
        let has_ended = self.info.status != before.info.status;
        let has_trades = self.trades.end != before.trades.end;
        has_ended || has_trades || self.renewed != 0 || !self.changes.is_empty()
    }

    fn trades_with(
        &self,
        info: &MarketInfo,
        taken: &VecDeque<VenueTrade>,
        mirrors: Outcomes,
    ) -> Arc<Trades> {
        if taken.is_empty() {
            return self.trades.clone();
        }
        let mut list = self.trades.list.clone();
        for &VenueTrade { outcome, trade } in taken {
            let text =
                |(outcome, trade)| (outcome, clob_market_events::trade(info, outcome, trade));
            let others = (0_u8..).map(OutcomeIndex).take(info.outcomes.len());
            let is_mirror =
                |other: &OutcomeIndex| *other != outcome && mirrors & bit(other.index()) != 0;
            let mirrors = others.filter(is_mirror).map(|other| (other, trade.mirrored()));
            list.push_back(Arc::new(
                [(outcome, trade)].into_iter().chain(mirrors).map(text).collect(),
            ));
        }
        list.drain(..list.len().saturating_sub(TRADES_KEPT_MAX));
        Arc::new(Trades { end: self.trades.end + taken.len() as u64, list })
    }

    /// Returns the number of the next trade.
    pub(super) fn trades_end(&self) -> u64 {
        self.trades.end
    }

    /// Adds the trades from this number on in these outcomes, if all of them are still kept.
    pub(super) fn put_trades(
        &self,
        out: &mut Vec<u8>,
        from: u64,
        wanted: Outcomes,
    ) -> Result<(), Lost> {
        let Trades { end, list } = &*self.trades;
        let skipped = from.checked_sub(end - list.len() as u64).ok_or(Lost)?;
        let skipped = usize::try_from(skipped).unwrap_or(usize::MAX);
        for text in list.iter().skip(skipped) {
            for (outcome, text) in text.iter() {
                if wanted & bit(outcome.index()) != 0 {
                    out.extend_from_slice(text);
                }
            }
        }
        Ok(())
    }

    /// Adds the whole books of these outcomes, as far as there are any.
    pub(super) fn put_books(&self, out: &mut Vec<u8>, wanted: Outcomes) {
        for (index, book) in self.books.iter().enumerate() {
            if let Some(book) = book.as_ref().filter(|_| wanted & bit(index) != 0) {
                out.extend_from_slice(book.text.get_or_init(|| book.text(&self.info, index)));
            }
        }
    }

    /// Adds the books of these outcomes that readers of the frame before need whole.
    pub(super) fn put_renewed(&self, out: &mut Vec<u8>, wanted: Outcomes) {
        self.put_books(out, wanted & self.renewed);
    }

    /// Adds the changes of levels since the frame before, if there are any and one of these
    /// outcomes is not renewed. Changes of the market's other outcomes are part of it, as at the
    /// venue.
    pub(super) fn put_changes(&self, out: &mut Vec<u8>, wanted: Outcomes) {
        if self.has_changes(wanted) {
            out.extend_from_slice(&self.changes);
        }
    }

    /// Whether [`put_changes`](Self::put_changes) adds something.
    pub(super) const fn has_changes(&self, wanted: Outcomes) -> bool {
        wanted & !self.renewed != 0 && !self.changes.is_empty()
    }

    /// Returns the token of the first of these outcomes.
    pub(super) fn token(&self, wanted: Outcomes) -> &str {
        let outcome = self.info.outcomes.get(wanted.trailing_zeros() as usize);
        outcome.map_or("", |outcome| &*outcome.token_id)
    }

    /// Returns which of these outcomes have a book.
    pub(super) fn with_books(&self, wanted: Outcomes) -> Outcomes {
        let books = self.books.iter().enumerate().filter(|(_, book)| book.is_some());
        books.map(|(index, _)| bit(index)).sum::<Outcomes>() & wanted
    }

    /// Adds a book that nobody has quoted in place of those of these outcomes: from a cent to 0.99.
    pub(super) fn put_ghosts(&self, out: &mut Vec<u8>, wanted: Outcomes) {
        for (index, book) in self.books.iter().enumerate() {
            let Some(book) = book.as_ref().filter(|_| wanted & bit(index) != 0) else { continue };
            let size = Shares::from_micros(100 * MICROS_PER_UNIT);
            let mut ladder = Ladder::default();
            for (side, price) in [(Side::Buy, 10_000), (Side::Sell, 990_000)] {
                ladder.set(side, Price::from_micros(price), size).expect("it has few levels");
            }
            let (ladder, at) = (Cow::Owned(ladder), book.at);
            let seen = Seen { ladder, at, last_trade: None, is_mirrored: false };
            let mut hasher = BookHasher::default();
            let ghost = ShownBook::new(&self.info, index, seen, book.last_trade, &mut hasher);
            out.extend_from_slice(&ghost.text(&self.info, index));
        }
    }

    /// Returns the outcomes whose best prices have changed since the frame before.
    pub(super) const fn moved(&self) -> Outcomes {
        self.moved
    }

    /// Adds the best prices of these outcomes, as far as they have books.
    pub(super) fn put_tops(&self, out: &mut Vec<u8>, wanted: Outcomes) {
        for (index, book) in self.books.iter().enumerate() {
            if let Some(book) = book.as_ref().filter(|_| wanted & bit(index) != 0) {
                let (bid, ask) = book.tops();
                clob_market_events::put_top(out, &self.info, index, book.at, bid, ask);
            }
        }
    }

    /// Adds the change of the tick in these outcomes since a frame with this tick.
    pub(super) fn put_tick(&self, out: &mut Vec<u8>, old: Price, wanted: Outcomes) {
        for (index, book) in self.books.iter().enumerate() {
            if wanted & bit(index) != 0 && old != self.info.tick {
                let at = book.as_ref().map_or(Timestamp::EPOCH, |book| book.at);
                clob_market_events::put_tick(out, &self.info, index, at, old);
            }
        }
    }

    /// Whether the market is resolved.
    pub(super) fn is_resolved(&self) -> bool {
        self.info.status == MarketStatus::Resolved
    }
}

/// Returns the newest trade of an outcome that readers know of once these are sent.
fn newest_told(
    known: Option<(Price, Timestamp)>,
    taken: &VecDeque<VenueTrade>,
    outcome: OutcomeIndex,
    is_mirror: bool,
) -> Option<(Price, Timestamp)> {
    taken.iter().fold(known, |known, taken| {
        let trade = if taken.outcome == outcome {
            taken.trade
        } else if is_mirror {
            taken.trade.mirrored()
        } else {
            return known;
        };
        Some((trade.price, trade.at))
    })
}

impl ShownBook {
    fn new(
        info: &MarketInfo,
        index: usize,
        seen: Seen<'_>,
        last_trade: Option<(Price, Timestamp)>,
        hasher: &mut BookHasher,
    ) -> Self {
        let (ladder, at) = (seen.ladder.into_owned(), seen.at);
        let hashed = HashedBook {
            market: &info.condition_id,
            token_id: &info.outcomes[index].token_id,
            at,
            ladder: &ladder,
            order_size_min: info.order_size_min,
            tick: info.tick,
            neg_risk: info.neg_risk,
            version: None,
        };
        let hash = hasher.hash(hashed, last_trade.map(|(price, _)| price));
        Self { ladder, at, last_trade, hash, text: OnceLock::new() }
    }

    fn tops(&self) -> (Option<Price>, Option<Price>) {
        let price = |level: Option<Level>| level.map(|level| level.price);
        (price(self.ladder.best_bid()), price(self.ladder.best_ask()))
    }

    fn text(&self, info: &MarketInfo, index: usize) -> Box<[u8]> {
        let mut text = Vec::with_capacity(4096);
        let market = condition::wide(&info.condition_id);
        let (token_id, at_ms) = (&info.outcomes[index].token_id, self.at.millis());
        write!(text, r#"{{"event_type":"book","market":"{market}","asset_id":"{token_id}","#)
            .expect(INFALLIBLE);
        write!(text, r#""timestamp":"{at_ms}","hash":"{}","bids":["#, self.hash).expect(INFALLIBLE);
        write_levels(&mut text, self.ladder.bids());
        text.extend_from_slice(br#"],"asks":["#);
        write_levels(&mut text, self.ladder.asks());
        text.extend_from_slice(br#"],"tick_size":""#);
        write_micros(&mut text, info.tick.micros());
        text.extend_from_slice(br#"","last_trade_price":""#);
        if let Some((price, _)) = self.last_trade {
            write_micros_to_thousandths(&mut text, price.micros());
        }
        text.extend_from_slice(br#""}"#);
        let mut frame = Vec::with_capacity(text.len() + 10);
        put_text(&mut frame, &[&text]);
        frame.into()
    }
}

/// The changes of levels, in one list for each time: a hash covers the time of its book.
#[derive(Default)]
struct Changes {
    lists: SmallVec<[(Timestamp, Vec<u8>); 2]>,
}

impl Changes {
    fn add(&mut self, info: &MarketInfo, index: usize, before: &ShownBook, after: &ShownBook) {
        let place = self.lists.iter().position(|(at, _)| *at == after.at).unwrap_or_else(|| {
            self.lists.push((after.at, Vec::new()));
            self.lists.len() - 1
        });
        let list = &mut self.lists[place].1;
        let (bid, ask) = after.tops();
        let mut rest = Vec::new();
        write!(rest, r#"","hash":"{}","best_bid":""#, after.hash).expect(INFALLIBLE);
        write_micros(&mut rest, bid.map_or(0, Price::micros));
        rest.extend_from_slice(br#"","best_ask":""#);
        write_micros(&mut rest, ask.map_or(MICROS_PER_UNIT, Price::micros));
        rest.extend_from_slice(br#""}"#);
        let mut put = |side: Side, level: Level| {
            if !list.is_empty() {
                list.push(b',');
            }
            let token_id = &info.outcomes[index].token_id;
            write!(list, r#"{{"asset_id":"{token_id}","price":""#).expect(INFALLIBLE);
            write_micros(list, level.price.micros());
            list.extend_from_slice(br#"","size":""#);
            write_micros(list, level.size.micros());
            write!(list, r#"","side":"{}"#, side.as_str()).expect(INFALLIBLE);
            list.extend_from_slice(&rest);
        };
        let (old, new) = (&before.ladder, &after.ladder);
        differences(old.bids(), new.bids(), |a, b| a < b, |level| put(Side::Buy, level));
        differences(old.asks(), new.asks(), |a, b| a > b, |level| put(Side::Sell, level));
    }

    /// Returns the socket frames.
    fn end(self, info: &MarketInfo) -> Vec<u8> {
        let mut out = Vec::new();
        // A trade alone changes the hash of a book, but no level.
        for (at, list) in self.lists.iter().filter(|(_, list)| !list.is_empty()) {
            let market = condition::wide(&info.condition_id);
            let head = format!(
                r#"{{"event_type":"price_change","market":"{market}","timestamp":"{}","#,
                at.millis()
            );
            put_text(&mut out, &[head.as_bytes(), br#""price_changes":["#, list, b"]}"]);
        }
        out
    }
}

/// Calls `put` for each level in which two sides differ, with its new size, which is 0 if it is
/// gone. Both are sorted such that `is_before` holds between each price and the next.
fn differences(
    old: &[Level],
    new: &[Level],
    is_before: impl Fn(Price, Price) -> bool,
    mut put: impl FnMut(Level),
) {
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        match (old.peek(), new.peek()) {
            (None, None) => return,
            (Some(&&gone), next) if next.is_none_or(|next| is_before(gone.price, next.price)) => {
                put(Level { size: Shares::ZERO, ..gone });
                old.next();
            }
            (Some(&&before), Some(&&after)) if before.price == after.price => {
                if before.size != after.size {
                    put(after);
                }
                old.next();
                new.next();
            }
            (_, Some(&&added)) => {
                put(added);
                new.next();
            }
            (Some(_), None) => unreachable!("the first arm takes it"),
        }
    }
}
