//! Follows both sockets, and compares what they tell with what requests return: books that are kept
//! from the frames of the market socket, and the orders and trades of the user socket. The client
//! passes over a frame that it cannot read, and only says so in its log, which has to stay empty.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{Debug, Write as _};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::stream::{Peekable, select_all};
use futures::{Stream, StreamExt as _};
use polymarket_client_sdk_v2::auth::state::Authenticated;
use polymarket_client_sdk_v2::auth::{Credentials, Normal, Signer as _};
use polymarket_client_sdk_v2::clob::types::request::{OrderBookSummaryRequest, TradesRequest};
use polymarket_client_sdk_v2::clob::types::response::{
    OpenOrderResponse, OrderBookSummaryResponse, OrderSummary, TradeResponse,
};
use polymarket_client_sdk_v2::clob::types::{
    Amount, OrderStatusType, OrderType, Side, SignableOrder,
};
use polymarket_client_sdk_v2::clob::ws::interest::InterestTracker;
use polymarket_client_sdk_v2::clob::ws::subscription::SubscriptionManager;
use polymarket_client_sdk_v2::clob::ws::types::response::{
    OrderBookLevel, OrderMessageType, TradeMessageStatus, TradeMessageType,
};
use polymarket_client_sdk_v2::clob::ws::{
    BookUpdate, Client, OrderMessage, PriceChange, TradeMessage, WsMessage,
};
use polymarket_client_sdk_v2::error::Error;
use polymarket_client_sdk_v2::types::{B256, Decimal, U256};
use polymarket_client_sdk_v2::ws::ConnectionManager;
use polymarket_client_sdk_v2::ws::config::Config;
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::orders::{Outcome, outcomes};
use super::{Wallet, client, signer};

const TIME_MAX: Duration = Duration::from_secs(60);

/// How many books are read at a time. The client takes no frame meanwhile.
const READ: usize = 20;

/// How often a kept book has to be compared with one that was read.
const COMPARED: usize = 500;

/// How many events of each of these kinds two connections have to agree on.
const AGREED: usize = 3;
const KINDS: [&str; 4] = ["BestBidAsk", "Book", "LastTradePrice", "PriceChange"];

/// How long an order may take to be told of before another one is placed.
const TOLD_TIME: Duration = Duration::from_millis(100);

/// What the client has said of frames that it could not read, and of lost connections.
static COMPLAINTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Collects [`COMPLAINTS`].
struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN && metadata.target().contains("::ws")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        COMPLAINTS.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, "{field}={value:?} ").unwrap();
    }
}

/// Has the client's log collected, which has to be done before its first line.
pub(super) fn collect_log() {
    tracing::subscriber::set_global_default(Log).unwrap();
}

fn check_log() {
    let complaints = COMPLAINTS.lock().unwrap();
    assert!(complaints.is_empty(), "{complaints:?}");
}

fn sockets(host: &str) -> String {
    host.replacen("http", "ws", 1)
}

type Stated<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

/// What a stream yields, none of which may be an error.
fn stated<T: 'static>(stream: impl Stream<Item = Result<T, Error>> + Send + 'static) -> Stated<T> {
    Box::pin(stream.map(|it| it.unwrap()))
}

type Levels = BTreeMap<Decimal, Decimal>;

/// A book as frames tell it.
#[derive(Clone, PartialEq, Debug, Default)]
struct Book {
    market: B256,
    at_ms: i64,
    bids: Levels,
    asks: Levels,
    /// Known once it has changed.
    tick: Option<Decimal>,
    /// Known once there was a trade.
    last_trade: Option<Decimal>,
}

impl Book {
    fn from_frame(frame: &BookUpdate) -> Self {
        let levels =
            |levels: &[OrderBookLevel]| levels.iter().map(|it| (it.price, it.size)).collect();
        let (bids, asks) = (levels(&frame.bids), levels(&frame.asks));
        Self { market: frame.market, at_ms: frame.timestamp, bids, asks, ..Self::default() }
    }

    /// The best prices. A side without levels has the price beyond all others.
    fn tops(&self) -> (Decimal, Decimal) {
        let bid = self.bids.keys().next_back().copied().unwrap_or(Decimal::ZERO);
        let ask = self.asks.keys().next().copied().unwrap_or(Decimal::ONE);
        (bid, ask)
    }

    /// Checks that a book that was read is the same.
    fn check(&self, read: &OrderBookSummaryResponse) {
        let levels =
            |levels: &[OrderSummary]| levels.iter().map(|it| (it.price, it.size)).collect();
        assert_eq!((self.market, self.at_ms), (read.market, read.timestamp.timestamp_millis()));
        assert_eq!(self.bids, levels(&read.bids), "{}", read.asset_id);
        assert_eq!(self.asks, levels(&read.asks), "{}", read.asset_id);
        let tick = self.tick.unwrap_or(read.tick_size.as_decimal());
        assert_eq!(tick, read.tick_size.as_decimal(), "{}", read.asset_id);
        if self.last_trade.is_some() {
            assert_eq!(self.last_trade, read.last_trade_price, "{}", read.asset_id);
        }
    }
}

/// Books that are kept from frames, and those that were read meanwhile.
#[derive(Default)]
struct Books {
    now: HashMap<U256, Book>,
    /// By asset and hash.
    told: HashMap<(U256, String), Book>,
    read: HashMap<(U256, String), OrderBookSummaryResponse>,
    compared: BTreeSet<(U256, String)>,
    /// Events as each of two connections told them, until enough of them are the same.
    events: [BTreeSet<String>; 2],
    /// How many are the same, by kind.
    agreed: BTreeMap<&'static str, usize>,
}

impl Books {
    /// Takes an event of the connection that tells of everything in order.
    fn keep(&mut self, event: &WsMessage) {
        match event {
            WsMessage::Book(frame) => self.renew(frame),
            WsMessage::PriceChange(frame) => self.change(frame),
            WsMessage::LastTradePrice(frame) => {
                assert!(frame.side.is_some() && frame.size > Some(Decimal::ZERO), "{frame:?}");
                let book = self.now.get_mut(&frame.asset_id).unwrap();
                assert_eq!(frame.market, book.market);
                book.last_trade = Some(frame.price);
            }
            WsMessage::TickSizeChange(frame) => {
                let book = self.now.get_mut(&frame.asset_id).unwrap();
                assert_eq!(frame.market, book.market);
                assert!(book.tick.is_none_or(|tick| tick == frame.old_tick_size), "{frame:?}");
                book.tick = Some(frame.new_tick_size);
            }
            WsMessage::BestBidAsk(frame) => {
                let book = &self.now[&frame.asset_id];
                assert_eq!((frame.market, frame.timestamp), (book.market, book.at_ms));
                assert_eq!((frame.best_bid, frame.best_ask), book.tops(), "{frame:?}");
                assert_eq!(frame.spread, frame.best_ask - frame.best_bid);
            }
            WsMessage::MarketResolved(frame) => {
                assert!(frame.asset_ids.contains(&frame.winning_asset_id), "{frame:?}");
            }
            WsMessage::NewMarket(frame) => assert!(!frame.asset_ids.is_empty(), "{frame:?}"),
            other => panic!("{other:?}"),
        }
    }

    fn renew(&mut self, frame: &BookUpdate) {
        let mut book = Book::from_frame(frame);
        book.tick = self.now.get(&frame.asset_id).and_then(|known| known.tick);
        self.now.insert(frame.asset_id, book);
        self.tell(frame.asset_id, frame.hash.as_ref());
    }

    fn change(&mut self, frame: &PriceChange) {
        let mut ends = BTreeMap::new();
        for change in &frame.price_changes {
            let book = self.now.get_mut(&change.asset_id).unwrap();
            assert_eq!(frame.market, book.market);
            book.at_ms = frame.timestamp;
            let side = if change.side == Side::Buy { &mut book.bids } else { &mut book.asks };
            let size = change.size.unwrap();
            if size == Decimal::ZERO {
                assert!(side.remove(&change.price).is_some(), "{change:?}");
            } else {
                assert_ne!(side.insert(change.price, size), Some(size), "{change:?}");
            }
            ends.insert(change.asset_id, change);
        }
        for (asset, change) in ends {
            let tops = (change.best_bid.unwrap(), change.best_ask.unwrap());
            assert_eq!(self.now[&asset].tops(), tops, "{change:?}");
            self.tell(asset, change.hash.as_ref());
        }
    }

    /// Notes that the book of an asset has this hash.
    fn tell(&mut self, asset: U256, hash: Option<&String>) {
        let name = (asset, hash.unwrap().clone());
        self.told.insert(name.clone(), self.now[&asset].clone());
        self.compare(name);
    }

    fn read(&mut self, book: OrderBookSummaryResponse) {
        let name = (book.asset_id, book.hash.clone().unwrap());
        self.read.insert(name.clone(), book);
        self.compare(name);
    }

    fn compare(&mut self, name: (U256, String)) {
        if let (Some(told), Some(read)) = (self.told.get(&name), self.read.get(&name)) {
            told.check(read);
            self.compared.insert(name);
        }
    }

    /// Takes an event of one of the two connections.
    fn note(&mut self, connection: usize, event: &WsMessage) {
        if let (1, WsMessage::Book(frame)) = (connection, event) {
            let name = (frame.asset_id, frame.hash.clone().unwrap());
            if let Some(read) = self.read.get(&name) {
                Book::from_frame(frame).check(read);
            }
        }
        if self.agree() {
            return;
        }
        let text = format!("{event:?}");
        let kind = KINDS.into_iter().find(|&kind| text.starts_with(kind));
        if self.events[1 - connection].contains(&text) {
            *self.agreed.entry(kind.unwrap_or("other")).or_default() += 1;
        }
        self.events[connection].insert(text);
    }

    /// Whether both connections agree on some events of each kind.
    fn agree(&self) -> bool {
        KINDS.iter().all(|kind| self.agreed.get(kind).is_some_and(|&count| count >= AGREED))
    }
}

/// Follows all books at a venue that moves, once as the parts of the client give all events in
/// order, and once by its methods for each kind. Returns how many books were compared.
pub(super) async fn keep_books(host: &str) -> usize {
    let book = client(host);
    let markets = book.sampling_markets(None).await.unwrap().data;
    let tokens = markets.iter().flat_map(|market| &market.tokens).map(|token| token.token_id);
    let tokens: Vec<U256> = tokens.collect();
    let requests: Vec<OrderBookSummaryRequest> = tokens
        .iter()
        .map(|&token| OrderBookSummaryRequest::builder().token_id(token).build())
        .collect();
    let mut events = select_all([taken(in_order(host, &tokens)), taken(by_kind(host, &tokens))]);
    let mut books = Books::default();
    let kept = async {
        let mut parts = requests.chunks(READ).cycle();
        let mut next = || Box::pin(book.order_books(parts.next().unwrap()));
        let mut answer = next();
        loop {
            tokio::select! {
                event = events.next() => {
                    let (connection, event) = event.unwrap();
                    check_log();
                    books.note(connection, &event);
                    if connection == 0 {
                        books.keep(&event);
                    }
                }
                read = &mut answer => {
                    read.unwrap().into_iter().for_each(|book| books.read(book));
                    if books.compared.len() >= COMPARED && books.agree() {
                        break;
                    }
                    answer = next();
                }
            }
        }
    };
    timeout(TIME_MAX, kept).await.expect("too few books");
    check_log();
    books.compared.len()
}

/// What a stream yields, taken by a task of its own: the client drops what is not taken soon.
fn taken<T: Send + 'static>(stream: Stated<T>) -> UnboundedReceiver<T> {
    let (sender, receiver) = unbounded();
    tokio::spawn(stream.map(Ok).forward(sender));
    receiver
}

/// All events of one connection, in order.
fn in_order(host: &str, tokens: &[U256]) -> Stated<(usize, WsMessage)> {
    let (url, interest) =
        (format!("{}/ws/market", sockets(host)), Arc::<InterestTracker>::default());
    let connection = ConnectionManager::new(url, Config::default(), interest.clone()).unwrap();
    let manager = SubscriptionManager::new(connection, interest);
    let events = manager.subscribe_market_with_options(tokens.to_vec(), true).unwrap();
    // The manager keeps the connection.
    Box::pin(stated(events).map(move |event| {
        let _ = &manager;
        (0, event)
    }))
}

/// The events that each method of the client gives, all of one connection. `subscribe_midpoints` is
/// left out: it takes the first levels of a book, which are the worst, for the best.
fn by_kind(host: &str, tokens: &[U256]) -> Stated<(usize, WsMessage)> {
    let client = Client::new(&sockets(host), Config::default()).unwrap();
    let tokens = || tokens.to_vec();
    let tops = client.subscribe_best_bid_ask(tokens()).unwrap();
    let books = client.subscribe_orderbook(tokens()).unwrap();
    let changes = client.subscribe_prices(tokens()).unwrap();
    let trades = client.subscribe_last_trade_price(tokens()).unwrap();
    let ticks = client.subscribe_tick_size_change(tokens()).unwrap();
    let begun = client.subscribe_new_markets(tokens()).unwrap();
    let ended = client.subscribe_market_resolutions(tokens()).unwrap();
    let events: [Stated<WsMessage>; 7] = [
        Box::pin(taken(stated(tops)).map(WsMessage::BestBidAsk)),
        Box::pin(taken(stated(books)).map(WsMessage::Book)),
        Box::pin(taken(stated(changes)).map(WsMessage::PriceChange)),
        Box::pin(taken(stated(trades)).map(WsMessage::LastTradePrice)),
        Box::pin(taken(stated(ticks)).map(WsMessage::TickSizeChange)),
        Box::pin(taken(stated(begun)).map(WsMessage::NewMarket)),
        Box::pin(taken(stated(ended)).map(WsMessage::MarketResolved)),
    ];
    Box::pin(select_all(events).map(move |event| {
        let _ = &client;
        (1, event)
    }))
}

/// Trades, and follows what the user socket tells of it.
pub(super) async fn follow_user(host: &str, wallet: &Wallet, credentials: Credentials) {
    let followed = async {
        let [plain, with_fees] = outcomes(wallet, 0).await;
        let mut user = User::begin(host, wallet, &credentials, &[], &plain).await;
        user.trade(&plain).await;
        user.trade(&with_fees).await;
        let mut user = User::begin(host, wallet, &credentials, &[&plain], &plain).await;
        user.trade(&plain).await;
        // Not told of.
        let untold = user.place(&with_fees).await;
        wallet.cancel_order(&untold).await.unwrap();
        user.trade(&plain).await;
        user.subscribe(&[&with_fees]);
        user.until_told(&with_fees).await;
        user.trade(&with_fees).await;
        user.trade(&plain).await;
    };
    timeout(TIME_MAX, followed).await.expect("not told in time");
    check_log();
}

/// A wallet that trades, and what its socket tells: all events, and those of each method.
struct User<'w> {
    wallet: &'w Wallet,
    sockets: Client<Authenticated<Normal>>,
    events: Peekable<Stated<WsMessage>>,
    orders: Stated<OrderMessage>,
    trades: Stated<TradeMessage>,
}

impl<'w> User<'w> {
    /// Subscribes to some markets, or to all, and returns once `outcome` is told of.
    async fn begin(
        host: &str,
        wallet: &'w Wallet,
        credentials: &Credentials,
        some: &[&Outcome],
        outcome: &Outcome,
    ) -> Self {
        let sockets = Client::new(&sockets(host), Config::default()).unwrap();
        let sockets = sockets.authenticate(credentials.clone(), signer().address()).unwrap();
        let markets = || some.iter().map(|it| it.condition).collect::<Vec<B256>>();
        let events = stated(sockets.subscribe_user_events(markets()).unwrap()).peekable();
        let orders = stated(sockets.subscribe_orders(markets()).unwrap());
        let trades = stated(sockets.subscribe_trades(markets()).unwrap());
        let mut user = Self { wallet, sockets, events, orders, trades };
        user.until_told(outcome).await;
        user
    }

    /// Adds markets. All streams of the client then tell of them.
    fn subscribe(&self, some: &[&Outcome]) {
        let markets = some.iter().map(|it| it.condition).collect();
        drop(self.sockets.subscribe_user_events(markets).unwrap());
    }

    /// Places and cancels orders until one is told of: the client does not say when the server
    /// knows its subscription.
    async fn until_told(&mut self, outcome: &Outcome) {
        loop {
            let placed = self.place(outcome).await;
            self.wallet.cancel_order(&placed).await.unwrap();
            if timeout(TOLD_TIME, Pin::new(&mut self.events).peek()).await.is_err() {
                continue;
            }
            let mut told = self.order().await;
            // The events of the last order are the last.
            while (&told.id, &told.msg_type) != (&placed, &Some(OrderMessageType::Cancellation)) {
                told = self.order().await;
            }
            return;
        }
    }

    async fn post(&self, order: SignableOrder) -> (String, Vec<String>) {
        let signed = self.wallet.sign(&signer(), order).await.unwrap();
        let answer = self.wallet.post_order(signed).await.unwrap();
        (answer.order_id, answer.trade_ids)
    }

    /// Places an order that rests.
    async fn place(&self, outcome: &Outcome) -> String {
        let order = self.wallet.limit_order().token_id(outcome.token).side(Side::Buy);
        let order = order.price(outcome.bid).size(Decimal::TEN).build().await.unwrap();
        self.post(order).await.0
    }

    async fn trade(&mut self, outcome: &Outcome) {
        let resting = self.place(outcome).await;
        let row = self.wallet.order(&resting).await.unwrap();
        assert_eq!(row.status, OrderStatusType::Live);
        self.check_order(OrderMessageType::Placement, &row, None).await;

        let order = self.wallet.market_order().token_id(outcome.token).side(Side::Buy);
        let order = order.amount(Amount::shares(Decimal::TEN).unwrap());
        let order = order.order_type(OrderType::FOK).build().await.unwrap();
        let (taken, trades) = self.post(order).await;
        let row = self.wallet.order(&taken).await.unwrap();
        let request = TradesRequest::builder().id(trades[0].clone()).build();
        let [trade] = &self.wallet.trades(&request, None).await.unwrap().data[..] else {
            panic!("{trades:?}")
        };
        self.check_order(OrderMessageType::Placement, &row, None).await;
        self.check_order(OrderMessageType::Update, &row, None).await;
        self.check_trade(trade).await;

        self.wallet.cancel_order(&resting).await.unwrap();
        let row = self.wallet.order(&resting).await.unwrap();
        assert_eq!(row.status, OrderStatusType::Canceled);
        self.check_order(OrderMessageType::Cancellation, &row, Some("CANCELED_BY_USER")).await;
    }

    /// The next event, which is about an order.
    async fn order(&mut self) -> OrderMessage {
        let event = self.events.next().await.unwrap();
        let WsMessage::Order(told) = event else { panic!("{event:?}") };
        let also = self.orders.next().await.unwrap();
        assert_eq!(format!("{also:?}"), format!("{told:?}"));
        told
    }

    /// The next event, which is about a trade.
    async fn traded(&mut self) -> TradeMessage {
        let event = self.events.next().await.unwrap();
        let WsMessage::Trade(told) = event else { panic!("{event:?}") };
        let also = self.trades.next().await.unwrap();
        assert_eq!(format!("{also:?}"), format!("{told:?}"));
        told
    }

    /// Checks that the next event is a row, with another status if it has one.
    async fn check_order(
        &mut self,
        kind: OrderMessageType,
        row: &OpenOrderResponse,
        status: Option<&str>,
    ) {
        let told = self.order().await;
        let unknown = |it: &str| OrderStatusType::Unknown(it.to_owned());
        assert_eq!(told.msg_type, Some(kind), "{told:?}");
        assert_eq!(told.status, Some(status.map_or(row.status.clone(), unknown)));
        assert_eq!((&told.id, told.market, told.asset_id), (&row.id, row.market, row.asset_id));
        assert_eq!((told.side, told.price), (row.side, row.price));
        assert_eq!(told.outcome.as_ref(), Some(&row.outcome));
        assert_eq!((told.owner, told.order_owner), (Some(row.owner), Some(row.owner)));
        assert_eq!(told.original_size, Some(row.original_size));
        assert_eq!(told.size_matched, Some(row.size_matched));
        assert_eq!(told.associate_trades.as_ref(), Some(&row.associate_trades));
        assert!(told.timestamp.unwrap() >= row.created_at.timestamp_millis(), "{told:?}");
    }

    /// Checks that the next events are a row, once with each status.
    async fn check_trade(&mut self, row: &TradeResponse) {
        for status in
            [TradeMessageStatus::Matched, TradeMessageStatus::Mined, TradeMessageStatus::Confirmed]
        {
            let told = self.traded().await;
            assert_eq!((&told.status, &told.id), (&status, &row.id));
            assert_eq!(told.msg_type, Some(TradeMessageType::Trade));
            assert_eq!((told.market, told.asset_id), (row.market, row.asset_id));
            assert_eq!((told.side, told.size, told.price), (row.side, row.size, row.price));
            assert_eq!(told.last_update, Some(row.last_update.timestamp()));
            assert_eq!(told.matchtime, Some(row.match_time.timestamp()));
            assert!(told.timestamp.unwrap() >= row.match_time.timestamp_millis(), "{told:?}");
            assert_eq!(told.outcome.as_ref(), Some(&row.outcome));
            assert_eq!((told.owner, told.trade_owner), (Some(row.owner), Some(row.owner)));
            assert_eq!(told.taker_order_id.as_ref(), Some(&row.taker_order_id));
            assert_eq!(told.fee_rate_bps, Some(row.fee_rate_bps));
            assert_eq!(told.transaction_hash, Some(row.transaction_hash));
            assert_eq!(told.trader_side.as_ref(), Some(&row.trader_side));
            let ([other], [shown]) = (&told.maker_orders[..], &row.maker_orders[..]) else {
                panic!("{told:?}")
            };
            assert_eq!((&other.order_id, other.owner), (&shown.order_id, shown.owner));
            assert_eq!((other.asset_id, &other.outcome), (shown.asset_id, &shown.outcome));
            assert_eq!((other.matched_amount, other.price), (shown.matched_amount, shown.price));
        }
    }
}
