mod trouble;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::ws::fanout::tests::pass_on;
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::Markets;
use paperbourse_core::market::book::{Book, Ladder, LastTrade, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::trades::TRADES_WAITING_MAX;
use paperbourse_core::money::{Rounding, Shares};
use paperbourse_venue::feed::verify::HashedBook;
use paperbourse_venue::polymarket::hash::BookHasher;

const TOKENS: [&str; 2] = ["t-Yes", "t-No"];

/// One market at a venue, its fan-out, and the number of the next change, which is also its time.
struct Venue {
    fanout: Arc<Fanout>,
    markets: Arc<Markets>,
    market: Arc<Market>,
    info: MarketInfo,
    ladders: [Option<Ladder>; 2],
    last_trades: [Option<LastTrade>; 2],
    change: i64,
}

impl Venue {
    fn new() -> Self {
        let markets = Arc::new(Markets::new());
        let info = MarketInfo::bare_yes_no("m");
        markets.list(vec![info.clone()]).unwrap();
        Self {
            fanout: Arc::new(Fanout::new(markets.clone())),
            market: markets.by_condition("m").unwrap(),
            markets,
            info,
            ladders: [None, None],
            last_trades: [None, None],
            change: 1,
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.change)
    }

    fn publish(&mut self, outcome: usize) {
        let Some(ladder) = &self.ladders[outcome] else { return };
        let mut book = Book::new(ladder.clone(), self.now());
        book.last_trade = self.last_trades[outcome];
        let index = OutcomeIndex(u8::try_from(outcome).unwrap());
        self.markets.publish(&self.market, index, Arc::new(book));
        self.change += 1;
    }

    fn set(&mut self, outcome: usize, side: Side, cents: i64, size: i64) {
        let (price, size) = (Price::from_micros(cents * 10_000), Shares::from_micros(size));
        let ladder = self.ladders[outcome].get_or_insert_default();
        ladder.set(side, price, size).unwrap();
        self.publish(outcome);
    }

    /// A trade, of which the venue tells in a message or only in the next book.
    fn trade(&mut self, outcome: usize, cents: i64, is_told: bool) {
        let price = Price::from_micros(cents * 10_000);
        let (size, side) = (Shares::from_micros(self.change), Some(Side::Sell));
        let trade = LastTrade { price, size, side, at: self.now() };
        self.last_trades[outcome] = Some(trade);
        if is_told {
            let index = OutcomeIndex(u8::try_from(outcome).unwrap());
            self.market.note_trade(index, trade);
        }
        self.publish(outcome);
    }

    fn describe(&mut self, change: impl FnOnce(&mut MarketInfo)) {
        change(&mut self.info);
        self.markets.list(vec![self.info.clone()]).unwrap();
    }

    fn pass_on(&self) {
        pass_on(&self.fanout);
        self.fanout.clob().announce(&self.markets, self.now());
    }
}

/// A client that keeps books from the frames alone, and checks every hash.
struct Client {
    socket: ClobSubscriptions,
    turns: Arc<Turns>,
    books: BTreeMap<String, Kept>,
    trades: Vec<(String, String)>,
    tops: BTreeMap<String, [String; 2]>,
    kinds: Vec<String>,
}

#[derive(Default)]
struct Kept {
    sides: [BTreeMap<String, String>; 2],
    tick: String,
    last_trade: String,
}

impl Client {
    fn new(venue: &Venue) -> Self {
        Self::in_trouble(venue, None)
    }

    fn in_trouble(venue: &Venue, trouble: Option<SocketTrouble>) -> Self {
        let turns = Arc::default();
        let socket = ClobSubscriptions::open(&venue.fanout, &turns, trouble).unwrap();
        let (books, tops) = (BTreeMap::new(), BTreeMap::new());
        Self { socket, turns, books, trades: Vec::new(), tops, kinds: Vec::new() }
    }

    fn join(&mut self, token_id: &str, now: Timestamp) {
        self.socket.join_token(token_id, true, now).unwrap();
    }

    fn leave(&mut self, token_id: &str) {
        self.socket.leave_token(token_id);
        self.books.remove(token_id);
    }

    /// Takes one turn, in which about so many bytes are due.
    fn read(&mut self, venue: &Venue, bytes_goal: usize) -> Result<(), Stop> {
        self.turns.give();
        let mut out = Vec::new();
        self.socket.take_turn(&mut out, bytes_goal)?;
        for text in texts(&out) {
            self.take(&venue.info, &serde_json::from_slice(text).unwrap());
        }
        Ok(())
    }

    /// Takes everything that is due, and returns the kinds of frames.
    fn read_all(&mut self, venue: &Venue) -> Vec<String> {
        self.kinds.clear();
        while self.turns.give() > 0 {
            self.read(venue, usize::MAX).unwrap();
        }
        std::mem::take(&mut self.kinds)
    }

    fn take(&mut self, info: &MarketInfo, frame: &Value) {
        let text = |name: &str| frame[name].as_str().unwrap_or_default().to_owned();
        let (kind, token) = (text("event_type"), text("asset_id"));
        self.kinds.push(kind.clone());
        match &*kind {
            "book" => {
                let mut kept = Kept { tick: text("tick_size"), ..Kept::default() };
                kept.last_trade = text("last_trade_price");
                for (side, levels) in kept.sides.iter_mut().zip(["bids", "asks"]) {
                    for level in frame[levels].as_array().unwrap() {
                        let text = |name: &str| level[name].as_str().unwrap().to_owned();
                        assert_eq!(side.insert(text("price"), text("size")), None);
                    }
                }
                self.books.insert(token.clone(), kept);
                self.check(info, &token, &text("timestamp"), &text("hash"));
            }
            "price_change" => {
                let changes = frame["price_changes"].as_array().unwrap();
                for change in changes {
                    let text = |name: &str| change[name].as_str().unwrap().to_owned();
                    let Some(kept) = self.books.get_mut(&text("asset_id")) else { continue };
                    let side = &mut kept.sides[usize::from(text("side") == "SELL")];
                    if text("size") == "0" {
                        assert!(side.remove(&text("price")).is_some(), "{change}");
                    } else {
                        let before = side.insert(text("price"), text("size"));
                        assert_ne!(before.as_ref(), Some(&text("size")), "{change}");
                    }
                }
                for change in changes {
                    let token = change["asset_id"].as_str().unwrap();
                    if self.books.contains_key(token) {
                        let hash = change["hash"].as_str().unwrap();
                        self.check(info, token, &text("timestamp"), hash);
                    }
                }
            }
            "last_trade_price" => {
                let size = text("size");
                if let Some(kept) = self.books.get_mut(&token) {
                    kept.last_trade = text("price");
                }
                self.trades.push((token, size));
            }
            "tick_size_change" => {
                if let Some(kept) = self.books.get_mut(&token) {
                    assert_eq!(kept.tick, text("old_tick_size"));
                    kept.tick = text("new_tick_size");
                }
            }
            "best_bid_ask" => {
                self.tops.insert(token, [text("best_bid"), text("best_ask")]);
            }
            "new_market" | "market_resolved" => {}
            other => panic!("{other}"),
        }
    }

    /// Checks that the kept book has this hash.
    fn check(&self, info: &MarketInfo, token: &str, at: &str, hash: &str) {
        assert_eq!(hash, self.hash(info, token, at), "{token} at {at}");
    }

    /// The hash of the kept book.
    fn hash(&self, info: &MarketInfo, token: &str, at: &str) -> String {
        let kept = &self.books[token];
        let price = |text: &str| Price::from_text(text, Rounding::Exact).unwrap();
        BookHasher::default().hash(
            HashedBook {
                market: "m",
                token_id: token,
                at: Timestamp::from_millis(at.parse().unwrap()),
                ladder: &kept.ladder(),
                order_size_min: info.order_size_min,
                tick: price(&kept.tick),
                neg_risk: info.neg_risk,
                version: None,
            },
            (!kept.last_trade.is_empty()).then(|| price(&kept.last_trade)),
        )
    }
}

impl Kept {
    fn ladder(&self) -> Ladder {
        let [bids, asks] = [0, 1].map(|side: usize| {
            let level = |(price, size): (&String, &String)| Level {
                price: Price::from_text(price, Rounding::Exact).unwrap(),
                size: Shares::from_text(size, Rounding::Exact).unwrap(),
            };
            self.sides[side].iter().map(level).collect()
        });
        Ladder::from_levels(bids, asks).unwrap()
    }
}

/// Returns the payloads of these frames of a server.
fn texts(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut texts = Vec::new();
    while let [0x81, short, rest @ ..] = bytes {
        let length_bytes = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let (length, rest) = rest.split_at(length_bytes);
        let long = length.iter().fold(0, |sum: usize, &byte| sum << 8 | usize::from(byte));
        let length = if length.is_empty() { usize::from(*short) } else { long };
        let (text, rest) = rest.split_at(length);
        texts.push(text);
        bytes = rest;
    }
    assert!(bytes.is_empty());
    texts
}

/// A venue with books, and a client that has them.
fn joined(tokens: &[&str]) -> (Venue, Client) {
    let mut venue = Venue::new();
    venue.set(0, Side::Buy, 40, 5);
    venue.set(0, Side::Sell, 60, 5);
    let mut client = Client::new(&venue);
    for token in tokens {
        client.join(token, venue.now());
    }
    venue.pass_on();
    assert_eq!(client.read_all(&venue), vec!["book"; tokens.len()]);
    (venue, client)
}

#[test]
fn changes_follow_each_other_and_whoever_missed_some_gets_the_book() {
    let (mut venue, mut client) = joined(&["t-Yes", "t-No"]);
    for cents in [41, 42, 43] {
        venue.set(0, Side::Buy, cents, 7);
        venue.pass_on();
        // The other outcome has no book of its own, so it is part of the same change.
        assert_eq!(client.read_all(&venue), ["price_change"]);
    }
    for cents in [44, 45] {
        venue.set(0, Side::Buy, cents, 7);
        venue.pass_on();
    }
    assert_eq!(client.read_all(&venue), ["book", "book"]);
    // Nobody would see a difference.
    venue.publish(0);
    venue.pass_on();
    assert_eq!(client.read_all(&venue), [""; 0]);
    venue.set(0, Side::Buy, 45, 0);
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["price_change"]);
}

#[test]
fn each_trade_is_sent_before_the_book_that_it_changed() {
    let (mut venue, mut client) = joined(&["t-No"]);
    venue.trade(0, 60, true);
    venue.set(0, Side::Sell, 60, 3);
    venue.trade(0, 60, true);
    venue.pass_on();
    let kinds = client.read_all(&venue);
    assert_eq!(kinds, ["last_trade_price", "last_trade_price", "price_change"]);
    assert_eq!(client.books["t-No"].last_trade, "0.4");
    // No level has changed.
    venue.trade(0, 55, true);
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["last_trade_price"]);
    // Only a book tells of this one.
    venue.trade(0, 59, false);
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["book"]);
    assert_eq!(client.books["t-No"].last_trade, "0.410");
}

#[test]
fn a_socket_that_would_miss_a_trade_ends() {
    let (mut venue, mut client) = joined(&["t-Yes"]);
    for count in [TRADES_WAITING_MAX, 1] {
        (0..count).for_each(|_| venue.trade(0, 60, true));
        venue.pass_on();
    }
    assert_eq!(client.read(&venue, usize::MAX), Err(Stop::Lost));
    let mut quick = Client::new(&venue);
    quick.join("t-Yes", venue.now());
    quick.read_all(&venue);
    (0..TRADES_WAITING_MAX).for_each(|_| venue.trade(0, 60, true));
    venue.pass_on();
    assert_eq!(quick.read_all(&venue).len(), TRADES_WAITING_MAX);
}

#[test]
fn another_tick_comes_with_the_book() {
    let (mut venue, mut client) = joined(&["t-Yes"]);
    venue.describe(|info| info.tick = Price::from_micros(1_000));
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["tick_size_change", "book"]);
    assert_eq!(client.books["t-Yes"].tick, "0.001");
}

#[test]
fn the_custom_flag_adds_best_prices_new_markets_and_resolutions() {
    let (mut venue, mut client) = joined(&["t-Yes"]);
    client.socket.turn_on_custom();
    // The first round only starts to keep new markets.
    venue.set(0, Side::Buy, 41, 1);
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["price_change", "best_bid_ask"]);
    venue.set(0, Side::Buy, 39, 1);
    venue.markets.list(vec![MarketInfo::bare("new", [])]).unwrap();
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["new_market", "price_change"]);
    assert_eq!(client.tops["t-Yes"], ["0.41", "0.6"]);
    venue.describe(|info| {
        info.status = MarketStatus::Resolved;
        info.payouts = vec![Price::from_micros(0), Price::from_micros(1_000_000)];
    });
    venue.pass_on();
    assert_eq!(client.read_all(&venue), ["market_resolved"]);
}

#[test]
fn dropping_a_socket_leaves_nothing() {
    let (venue, client) = joined(&["t-Yes", "t-No"]);
    assert_eq!((venue.fanout.socket_count(), venue.fanout.subscription_count()), (1, 1));
    drop(client);
    assert_eq!((venue.fanout.socket_count(), venue.fanout.subscription_count()), (0, 0));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, bool, i64, i64),
    Trade(usize, i64, bool),
    Tick(i64),
    PassOn,
    Join(usize, usize),
    Leave(usize, usize),
    Read(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..2_usize, any::<bool>(), 1..50_i64, 0..3_i64)
            .prop_map(|(outcome, is_bid, cents, size)| Step::Set(outcome, is_bid, cents, size)),
        2 => (0..2_usize, 1..99_i64, any::<bool>())
            .prop_map(|(outcome, cents, is_told)| Step::Trade(outcome, cents, is_told)),
        1 => prop::sample::select(vec![1_000, 10_000]).prop_map(Step::Tick),
        5 => Just(Step::PassOn),
        2 => (0..2_usize, 0..2_usize).prop_map(|(client, token)| Step::Join(client, token)),
        1 => (0..2_usize, 0..2_usize).prop_map(|(client, token)| Step::Leave(client, token)),
        5 => (0..2_usize, 1..400_usize).prop_map(|(client, bytes)| Step::Read(client, bytes)),
    ]
}

proptest! {
    /// Whatever happens and whenever a client reads, each hash is that of the book that it keeps,
    /// and in the end it has the books that everyone sees.
    #[test]
    fn books_kept_from_frames_are_the_venues(steps in prop::collection::vec(step(), 0..80)) {
        let mut venue = Venue::new();
        let mut clients = [Client::new(&venue), Client::new(&venue)];
        let mut followed = [[false; 2]; 2];
        for step in steps {
            match step {
                Step::Set(outcome, true, cents, size) => {
                    venue.set(outcome, Side::Buy, cents, size);
                }
                Step::Set(outcome, false, cents, size) => {
                    venue.set(outcome, Side::Sell, 50 + cents, size);
                }
                Step::Trade(outcome, cents, is_told) => venue.trade(outcome, cents, is_told),
                Step::Tick(micros) => venue.describe(|info| info.tick = Price::from_micros(micros)),
                Step::PassOn => venue.pass_on(),
                Step::Join(client, token) => {
                    clients[client].join(TOKENS[token], venue.now());
                    followed[client][token] = true;
                }
                Step::Leave(client, token) => {
                    clients[client].leave(TOKENS[token]);
                    followed[client][token] = false;
                }
                Step::Read(client, bytes) => clients[client].read(&venue, bytes).unwrap(),
            }
        }
        venue.pass_on();
        for (client, followed) in clients.iter_mut().zip(followed) {
            client.read_all(&venue);
            for (outcome, token) in TOKENS.iter().enumerate() {
                let other = || venue.ladders[1 - outcome].as_ref().map(Ladder::mirrored);
                let shown = venue.ladders[outcome].clone().or_else(other);
                let kept = client.books.get(*token).map(Kept::ladder);
                prop_assert_eq!(kept, shown.filter(|_| followed[outcome]));
            }
        }
    }
}
