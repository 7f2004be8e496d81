use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::feed::{SETTLE_DELAY, SETTLING_MAX};
use super::*;
use crate::ws::FrameLimit;
use crate::ws::bounds::WRITE_BYTES_GOAL;
use crate::ws::clob::FIRST_FRAME_MAX;
use crate::ws::counts::{CountedSocket, SocketCounts};
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::command::{
    CancelOrder, ExpireOrders, Identity, OrderNames, Owner, PlaceOrder,
};
use paperbourse_core::engine::order::delayed::DecideDelayed;
use paperbourse_core::engine::order::payload::{NamedTimeInForce, NewOrder};
use paperbourse_core::engine::order::place::Placed;
use paperbourse_core::engine::order::terms::OrderStatus;
use paperbourse_core::engine::state::view::{OrderCursor, OrderFilter};
use paperbourse_core::engine::{Command, Rules, State};
use paperbourse_core::ids::{OrderId, OutcomeIndex, ShardId};
use paperbourse_core::limits::budget::ByteBudget;
use paperbourse_core::market::Markets as Catalogue;
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse_core::money::{Price, Shares};
use paperbourse_exchange::shard::Shards;
use paperbourse_store::journal::{Gate, Journal, JournalConfig, MemoryJournal};
use paperbourse_store::snapshot::Recovered;

const SHARD: u8 = 9;
/// Orders in the first are decided at once, those in the second are delayed.
const MARKETS: [&str; 2] = ["0xabc", "0xdef"];
const OWNER: &str = "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab";
const OTHER_OWNER: &str = "0b8a2f6e-1c3d-4e5f-8a9b-ba9876543210";

/// Shards with two markets that ask 0.50 for a thousand shares, over a journal that the test can
/// hold.
struct World {
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    markets: Arc<Catalogue>,
    gate: Gate,
    feed: Arc<UserFeed>,
    unsent: Arc<ByteBudget>,
}

/// A client, and the socket's other end.
struct Client {
    socket: WebSocket<DuplexStream>,
    ended: JoinHandle<Ended>,
    shutdown: watch::Sender<bool>,
    is_valid: Arc<AtomicBool>,
}

fn shard_id() -> ShardId {
    ShardId::new(SHARD).unwrap()
}

/// The account of the trader with this number, who is the one to trade so early.
fn account(trader: u8) -> AccountId {
    AccountId::new(shard_id(), trader.into()).unwrap()
}

fn shares(count: i64) -> Shares {
    Shares::from_micros(count * 1_000_000)
}

/// Publishes a book that asks 0.50 for so many shares; without shares, an empty one.
fn publish(markets: &Catalogue, market_id: &str, count: i64) {
    let ask = Level { price: Price::from_micros(500_000), size: shares(count) };
    let asks = if count > 0 { vec![ask] } else { vec![] };
    let book = Book::new(Ladder::from_levels(vec![], asks).unwrap(), Timestamp::EPOCH);
    markets.publish(&markets.by_condition(market_id).unwrap(), OutcomeIndex(0), Arc::new(book));
}

fn infos(status: MarketStatus) -> [MarketInfo; 2] {
    MARKETS.map(|market_id| {
        let outcomes =
            ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
        let taker_delay_ms = if market_id == MARKETS[1] { 1_000 } else { 0 };
        MarketInfo { taker_delay_ms, status, ..MarketInfo::bare(market_id, outcomes) }
    })
}

/// A world with two accounts.
async fn world() -> World {
    let (memory, gate) = MemoryJournal::gated(&JournalConfig::default());
    gate.release();
    let journal = Arc::new(Journal::from(memory));
    let waiters = journal.register();
    tokio::spawn({
        let waiters = waiters.clone();
        async move { waiters.run().await }
    });
    let markets = Arc::new(Catalogue::new());
    markets.list(infos(MarketStatus::Open).into()).unwrap();
    for market_id in MARKETS {
        publish(&markets, market_id, 1_000);
    }
    let shards = Arc::new(Shards::new(
        Recovered::default(),
        journal,
        markets.clone(),
        Rules::default(),
        Clock::System,
        Arc::default(),
        Box::new(|_, _| {}),
    ));
    let feed = Arc::new(UserFeed::new(shards.clone()));
    let unsent = ByteBudget::new(64 << 20);
    let world = World { shards, waiters, markets, gate, feed, unsent };
    for trader in [1, 2] {
        let placed = world.place(trader, "BUY GTC 10 0.01", MARKETS[0]).await;
        assert_eq!(placed.receipt.account, account(trader));
        world.cancel(trader, placed.receipt.order).await;
    }
    world
}

impl World {
    async fn execute<C: Command<Answer: Send> + Send + 'static>(&self, command: C) -> C::Answer {
        self.shards.execute(shard_id(), command, &self.waiters).await.expect("it is accepted")
    }

    /// Places an order like "BUY GTC 10 0.40", whose price has two decimals, and returns once it
    /// is durable.
    async fn place(&self, trader: u8, order: &str, market_id: &str) -> Placed {
        let [side, time_in_force, count, price] =
            order.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let side = if side == "BUY" { Side::Buy } else { Side::Sell };
        let cents: i64 = price.strip_prefix("0.").unwrap().parse().unwrap();
        let price = Price::from_micros(cents * 10_000);
        let quantity = shares(count.parse().unwrap());
        let mut order = NewOrder::limit(market_id, "Yes", side, quantity, price);
        order.time_in_force = Some(match time_in_force {
            "GTC" => NamedTimeInForce::Gtc,
            "FOK" => NamedTimeInForce::Fok,
            "FAK" => NamedTimeInForce::Fak,
            _ => NamedTimeInForce::Gtd,
        });
        if let Some(ms) = time_in_force.strip_prefix("GTD+") {
            order.expiration = Some(Timestamp::now().after_ms(ms.parse().unwrap()));
        }
        let mut digest = [trader; 32];
        digest[0] = SHARD;
        let identity = Identity { digest, issuer: "i".into(), subject: "s".into() };
        let command = PlaceOrder::new(Owner::Identity(identity), order, OrderNames::default());
        self.execute(command).await
    }

    async fn has_open_orders(&self, trader: u8) -> bool {
        let filter = OrderFilter { status: Some(OrderStatus::Pending), ..OrderFilter::default() };
        let read = move |state: &State| {
            state.observe_orders(account(trader), &filter, OrderCursor::START, 1)
        };
        let page = self.shards.observe(shard_id(), &self.waiters, read).await.unwrap().unwrap();
        !page.orders.is_empty()
    }

    async fn cancel(&self, trader: u8, order: OrderId) {
        self.execute(CancelOrder { account: account(trader), order }).await;
    }

    /// Connects a client over a pipe that buffers this many bytes per direction.
    fn connect(&self, pipe_bytes: usize) -> Client {
        let (client, server) = tokio::io::duplex(pipe_bytes);
        let is_valid = Arc::new(AtomicBool::new(true));
        let counts = Arc::new(SocketCounts::default());
        let peer = Peer {
            open: CountedSocket::OfAccount(counts.try_open(account(1), 1).unwrap()),
            frames: FrameLimit::CLOB,
            unsent: self.unsent.share(),
            batch_bytes: WRITE_BYTES_GOAL,
            allow: Box::new(|_| true),
            is_valid: Box::new({
                let is_valid = is_valid.clone();
                move || is_valid.load(Ordering::Relaxed)
            }),
        };
        let (shutdown, is_down) = watch::channel(false);
        let watch: Arc<Watch> = Arc::default();
        let watching = watch.clone();
        tokio::spawn(async move { watching.run(is_down).await });
        let unsent = self.unsent.clone();
        let authenticate: Authenticate = Box::new(move |shown| {
            let wallet = Address::from_bytes([7; 20]);
            let trader = match shown.secret {
                b"1" => 1,
                b"2" => 2,
                _ => return Err(CloseReason::Clob(ClobFlaw::Credential)),
            };
            assert_eq!(shown.passphrase, b"p");
            Ok(User { account: account(trader), wallet, unsent: unsent.share() })
        });
        let (feed, waiters) = (self.feed.clone(), self.waiters.clone());
        let ended = tokio::spawn(async move {
            let from = (&feed, &waiters, authenticate);
            serve_user((server, Vec::new()), peer, from, &watch, None).await
        });
        let mut socket = WebSocket::after_handshake(client, Role::Client);
        socket.set_auto_close(false);
        socket.set_auto_pong(false);
        Client { socket, ended, shutdown, is_valid }
    }

    /// Connects a client that follows a trader, in these markets.
    async fn follow(&self, trader: u8, owner: &str, markets: &[&str]) -> Client {
        let mut client = self.connect(64 * 1024);
        client.open(trader, owner, markets).await;
        client
    }
}

impl Client {
    /// Receives a text; the error is the code of a close frame, or 0 for none.
    async fn receive(&mut self) -> Result<String, u16> {
        loop {
            let Ok(frame) = self.socket.read_frame().await else { return Err(0) };
            let payload = &frame.payload;
            match frame.opcode {
                OpCode::Text => return Ok(String::from_utf8(payload.to_vec()).unwrap()),
                OpCode::Close => return Err(u16::from_be_bytes([payload[0], payload[1]])),
                OpCode::Ping => {}
                other => panic!("the server sent {other:?}"),
            }
        }
    }

    async fn json(&mut self) -> Value {
        serde_json::from_str(&self.receive().await.expect("the socket is open")).unwrap()
    }

    /// The type and the status of frames, one word for each.
    async fn told(&mut self, count: usize) -> Vec<String> {
        let mut told = Vec::new();
        for _ in 0..count {
            let frame = self.json().await;
            let text = |field: &str| frame[field].as_str().unwrap().to_owned();
            told.push(format!("{}:{}", text("type"), text("status")));
        }
        told
    }

    async fn send(&mut self, text: &str) {
        let payload = Payload::Owned(text.as_bytes().to_vec());
        self.socket.write_frame(Frame::text(payload)).await.unwrap();
    }

    async fn open(&mut self, trader: u8, owner: &str, markets: &[&str]) {
        let auth = json!({"apiKey": owner, "secret": trader.to_string(), "passphrase": "p"});
        let first = json!({"type": "user", "auth": auth, "markets": markets, "operation": "x",
                           "assets_ids": [], "initial_dump": true});
        self.send(&first.to_string()).await;
        self.ping().await;
    }

    async fn ping(&mut self) {
        self.send("PING").await;
        assert_eq!(self.receive().await.as_deref(), Ok("PONG"));
    }

    /// Checks that there is nothing, after more than the time that a frame takes.
    async fn nothing(&mut self) {
        let early = timeout(Duration::from_secs(1), self.receive()).await;
        assert!(early.is_err(), "{early:?}");
    }
}

const TRADES: [&str; 3] = ["TRADE:MATCHED", "TRADE:MINED", "TRADE:CONFIRMED"];

#[tokio::test(start_paused = true)]
async fn an_order_is_told_from_its_placement_to_its_end() {
    let world = world().await;
    let mut client = world.follow(1, OWNER, &[]).await;
    let market = MARKETS[0];
    let resting = world.place(1, "BUY GTC 10 0.40", market).await;
    assert_eq!(client.told(1).await, ["PLACEMENT:LIVE"]);
    world.cancel(1, resting.receipt.order).await;
    assert_eq!(client.told(1).await, ["CANCELLATION:CANCELED"]);
    world.place(1, "BUY FOK 5 0.50", market).await;
    assert_eq!(client.told(2).await, ["PLACEMENT:MATCHED", "UPDATE:MATCHED"]);
    assert_eq!(client.told(3).await, TRADES);
    // The rest of a FAK is not heard of again.
    publish(&world.markets, market, 30);
    world.place(1, "BUY FAK 40 0.50", market).await;
    assert_eq!(client.told(2).await, ["PLACEMENT:MATCHED", "UPDATE:MATCHED"]);
    assert_eq!(client.told(3).await, TRADES);
    world.place(1, "BUY GTD+1 10 0.40", market).await;
    assert_eq!(client.told(1).await, ["PLACEMENT:LIVE"]);
    while world.execute(ExpireOrders).await || world.has_open_orders(1).await {}
    assert_eq!(client.told(1).await, ["CANCELLATION:CANCELED_EXPIRED_ORDER"]);
    client.nothing().await;
}

/// Clients have the answer to their order before its trade is settled. Nothing is left out if there
/// are many trades, or if the server shuts down meanwhile.
#[tokio::test(start_paused = true)]
async fn a_trade_is_told_as_settled_after_a_while() {
    let world = world().await;
    publish(&world.markets, MARKETS[0], 10_000);
    let mut client = world.follow(1, OWNER, &[]).await;
    let matched = ["PLACEMENT:MATCHED", "UPDATE:MATCHED", TRADES[0]];
    world.place(1, "BUY FOK 5 0.50", MARKETS[0]).await;
    assert_eq!(client.told(3).await, matched);
    let begun = Instant::now();
    assert_eq!(client.told(2).await, TRADES[1..]);
    let waited = begun.elapsed();
    assert!(waited <= SETTLE_DELAY && waited > SETTLE_DELAY / 2, "{waited:?}");

    let begun = Instant::now();
    for _ in 0..SETTLING_MAX {
        world.place(1, "BUY FOK 5 0.50", MARKETS[0]).await;
        assert_eq!(client.told(3).await, matched);
    }
    world.place(1, "BUY FOK 5 0.50", MARKETS[0]).await;
    // The oldest is settled early.
    let told = client.told(5).await;
    assert_eq!(told[..3], matched);
    assert_eq!(told[3..], TRADES[1..]);
    assert!(begun.elapsed() < SETTLE_DELAY, "{:?}", begun.elapsed());

    client.shutdown.send(true).unwrap();
    for _ in 0..SETTLING_MAX {
        assert_eq!(client.told(2).await, TRADES[1..]);
    }
    assert!(begun.elapsed() < SETTLE_DELAY, "{:?}", begun.elapsed());
    assert_eq!(client.receive().await, Err(1001));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_order_is_told_whatever_becomes_of_it() {
    let world = world().await;
    let mut client = world.follow(1, OWNER, &[]).await;
    let market = MARKETS[1];
    let decide = |placed: &Placed| DecideDelayed {
        order: placed.receipt.order,
        market_id: MARKETS[1].into(),
    };
    let filled = world.place(1, "BUY FOK 5 0.50", market).await;
    assert_eq!(client.told(1).await, ["PLACEMENT:DELAYED"]);
    world.execute(decide(&filled)).await.unwrap();
    assert_eq!(client.told(1).await, ["UPDATE:MATCHED"]);
    assert_eq!(client.told(3).await, TRADES);
    let killed = world.place(1, "BUY FOK 5 0.50", market).await;
    let dropped = world.place(1, "BUY GTC 5 0.50", market).await;
    assert_eq!(client.told(2).await, ["PLACEMENT:DELAYED"; 2]);
    publish(&world.markets, market, 1);
    world.execute(decide(&killed)).await.unwrap();
    assert_eq!(client.told(1).await, ["CANCELLATION:CANCELED"]);
    world.markets.list(infos(MarketStatus::Paused).into()).unwrap();
    world.execute(decide(&dropped)).await.unwrap_err();
    assert_eq!(client.told(1).await, ["CANCELLATION:INVALID"]);
    client.nothing().await;
}

#[tokio::test(start_paused = true)]
async fn frames_are_rows_with_what_is_new() {
    let world = world().await;
    let mut client = world.follow(1, OWNER, &[]).await;
    world.place(1, "BUY GTC 5 0.50", MARKETS[0]).await;
    let mut frames = Vec::new();
    for _ in 0..5 {
        let mut frame = client.json().await;
        for field in ["timestamp", "created_at", "match_time", "last_update"] {
            let Some(time) = frame.get_mut(field) else { continue };
            let digits = if field == "timestamp" { 13 } else { 10 };
            let text = time.as_str().unwrap();
            assert!(text.len() == digits && text.parse::<u64>().is_ok(), "{field}: {text}");
            *time = json!(format!("[{digits} digits]"));
        }
        frames.push(frame);
    }
    let statuses = frames.drain(3..).map(|frame| frame["status"].clone());
    assert_eq!(statuses.collect::<Vec<_>>(), ["MINED", "CONFIRMED"]);
    insta::assert_snapshot!(serde_json::to_string_pretty(&frames).unwrap());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_before_it_is_durable() {
    let world = Arc::new(world().await);
    let mut before = world.follow(1, OWNER, &[]).await;
    world.gate.hold();
    let placing = tokio::spawn({
        let world = world.clone();
        async move { drop(world.place(1, "BUY GTC 10 0.40", MARKETS[0]).await) }
    });
    before.nothing().await;
    assert!(!placing.is_finished());
    // Who opens a socket meanwhile is answered once what others see of the account is durable.
    let mut during = world.connect(4096);
    let opening = timeout(Duration::from_secs(1), during.open(1, OWNER, &[]));
    assert!(opening.await.is_err());
    world.gate.release();
    assert_eq!(before.told(1).await, ["PLACEMENT:LIVE"]);
    assert_eq!(during.receive().await.as_deref(), Ok("PONG"));
    during.nothing().await;
}

/// What precedes a socket is not told, even if the others have yet to be told.
#[tokio::test(start_paused = true)]
async fn a_socket_is_told_what_happens_from_its_beginning() {
    let world = world().await;
    let mut first = world.follow(1, OWNER, &[]).await;
    for number in 0..20 {
        world.place(1, "BUY GTC 10 0.40", MARKETS[0]).await;
        let mut next = world.follow(1, OWNER, &[]).await;
        world.place(1, "BUY FOK 5 0.50", MARKETS[0]).await;
        assert_eq!(next.told(1).await, ["PLACEMENT:MATCHED"], "socket {number}");
        assert_eq!(first.told(2).await, ["PLACEMENT:LIVE", "PLACEMENT:MATCHED"]);
        assert_eq!(first.told(4).await[1..], TRADES);
    }
}

#[tokio::test(start_paused = true)]
async fn sockets_are_told_of_their_account_and_their_markets() {
    let world = world().await;
    let mut all = world.follow(1, OWNER, &[]).await;
    let mut other_key = world.follow(1, OTHER_OWNER, &[]).await;
    let mut one_market = world.follow(1, OWNER, &[MARKETS[0]]).await;
    let mut other_account = world.follow(2, OWNER, &[]).await;
    for market in MARKETS {
        world.place(1, "BUY GTC 10 0.40", market).await;
    }
    for (client, owner) in [(&mut all, OWNER), (&mut other_key, OTHER_OWNER)] {
        for market in MARKETS {
            let frame = client.json().await;
            assert_eq!(frame["market"], market);
            assert_eq!((&frame["owner"], &frame["order_owner"]), (&json!(owner), &json!(owner)));
        }
    }
    assert_eq!(one_market.json().await["market"], MARKETS[0]);
    one_market.nothing().await;
    other_account.nothing().await;
    let change = |operation: &str, market: &str| {
        json!({"operation": operation, "markets": [market]}).to_string()
    };
    for ignored in ["{}", "[]", "x", r#"{"operation":"subscribe"}"#, r#"{"markets":7}"#] {
        one_market.send(ignored).await;
    }
    one_market.send(&change("subscribe", MARKETS[1])).await;
    one_market.send(&change("unsubscribe", MARKETS[0])).await;
    one_market.ping().await;
    for market in MARKETS {
        world.place(1, "BUY GTC 10 0.40", market).await;
    }
    assert_eq!(one_market.json().await["market"], MARKETS[1]);
    one_market.nothing().await;
    let many: Vec<String> = (0..USER_MARKETS_MAX).map(|number| format!("0x{number}")).collect();
    one_market.send(&json!({"operation": "subscribe", "markets": many}).to_string()).await;
    assert!(one_market.receive().await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_socket_without_good_credentials_is_closed_without_a_word() {
    let world = world().await;
    let mut silent = world.connect(4096);
    silent.ping().await;
    let began = Instant::now();
    sleep(FIRST_FRAME_MAX / 2).await;
    silent.ping().await;
    assert_eq!(silent.receive().await, Err(1008));
    let waited = began.elapsed();
    assert!((FIRST_FRAME_MAX..FIRST_FRAME_MAX + Duration::from_secs(1)).contains(&waited));
    let auth = |secret: &str| json!({"apiKey": OWNER, "secret": secret, "passphrase": "p"});
    for first in [
        json!({"type": "user", "auth": auth("3")}).to_string(),
        json!({"type": "user", "auth": {"apiKey": OWNER}}).to_string(),
        json!({"type": "user"}).to_string(),
        "hello".to_owned(),
    ] {
        let mut client = world.connect(4096);
        client.send(&first).await;
        assert_eq!(client.receive().await, Err(4001), "{first}");
    }
    assert_eq!((world.feed.socket_count(), world.feed.is_running()), (0, false));
}

#[tokio::test(start_paused = true)]
async fn a_socket_ends_with_its_credential() {
    let world = world().await;
    let mut client = world.follow(1, OWNER, &[]).await;
    client.is_valid.store(false, Ordering::Relaxed);
    assert_eq!(client.receive().await, Err(4001));
}

/// The task and its subscription last as long as there are sockets.
#[tokio::test(start_paused = true)]
async fn a_server_without_user_sockets_follows_nothing() {
    let world = world().await;
    for _ in 0..40 {
        let mut clients = [world.follow(1, OWNER, &[]).await, world.follow(2, OWNER, &[]).await];
        assert_eq!((world.feed.socket_count(), world.feed.is_running()), (2, true));
        world.place(1, "BUY GTC 10 0.01", MARKETS[0]).await;
        assert_eq!(clients[0].told(1).await, ["PLACEMENT:LIVE"]);
        for client in clients {
            let Client { socket, ended, shutdown: _shutdown, .. } = client;
            drop(socket);
            assert_eq!(ended.await.unwrap(), Ended::Gone);
        }
        assert_eq!(world.feed.socket_count(), 0);
        sleep(Duration::from_millis(1)).await;
        assert!(!world.feed.is_running());
    }
    assert!(world.feed.parts_are_empty());
}

#[tokio::test(start_paused = true)]
async fn a_socket_whose_client_does_not_read_is_closed() {
    let world = world().await;
    let mut slow = world.connect(4096);
    slow.open(1, OWNER, &[]).await;
    let mut quick = world.follow(1, OWNER, &[]).await;
    let mut count = 0;
    while !slow.ended.is_finished() {
        let placed = world.place(1, "BUY GTC 5 0.01", MARKETS[0]).await;
        world.cancel(1, placed.receipt.order).await;
        assert_eq!(quick.told(2).await, ["PLACEMENT:LIVE", "CANCELLATION:CANCELED"]);
        // The clock is paused. It moves too little for the watch to notice a stalled write.
        sleep(Duration::from_millis(1)).await;
        count += 1;
        assert!(count < 2_000, "it is still open");
    }
    assert_eq!(slow.ended.await.unwrap(), Ended::Closed(CloseReason::TooSlow));
}

/// If the task cannot keep up with the records, no socket goes on as if nothing were missing.
#[tokio::test(start_paused = true)]
async fn all_sockets_are_closed_when_records_are_lost() {
    let mut world = world().await;
    world.feed = Arc::new(UserFeed::with_waiting(world.shards.clone(), 4.try_into().unwrap()));
    let world = Arc::new(world);
    let mut clients = [world.follow(1, OWNER, &[]).await, world.follow(2, OWNER, &[]).await];
    world.gate.hold();
    let placing: Vec<_> = (0..9)
        .map(|_| {
            let world = world.clone();
            tokio::spawn(async move { drop(world.place(1, "BUY GTC 5 0.01", MARKETS[0]).await) })
        })
        .collect();
    sleep(Duration::from_secs(1)).await;
    world.gate.release();
    for client in &mut clients {
        let code = loop {
            if let Err(code) = client.receive().await {
                break code;
            }
        };
        assert_eq!(code, 1013);
    }
    for placing in placing {
        placing.await.unwrap();
    }
    let mut again = world.follow(1, OWNER, &[]).await;
    world.place(1, "BUY GTC 5 0.01", MARKETS[0]).await;
    assert_eq!(again.told(1).await, ["PLACEMENT:LIVE"]);
}

#[test]
fn markets_are_added_and_removed() {
    let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect::<Vec<String>>();
    let mut all = Markets::first(&[]).ok().unwrap();
    assert_eq!(all, Markets::All);
    all.add(&names(&["a"])).ok().unwrap();
    all.remove(&names(&["a"]));
    assert!(all.have("a"));
    let mut some = Markets::first(&names(&["a", "b"])).ok().unwrap();
    assert!(some.have("a") && some.have("b") && !some.have("c"));
    some.remove(&names(&["a", "b", "x"]));
    assert!(!some.have("a"), "without markets, there are none");
    // However they are written.
    let digits = "AB".repeat(32);
    some.add(&names(&[&format!("0x{digits}")])).ok().unwrap();
    assert!(some.have(&format!("0x{}", digits.to_lowercase())));
    let many: Vec<String> = (1..USER_MARKETS_MAX).map(|number| number.to_string()).collect();
    some.add(&many).ok().unwrap();
    some.add(&names(&["1"])).ok().unwrap();
    assert_eq!(some.add(&names(&["0"])), Err(TooManyMarkets));
    assert_eq!(some.add(&["x".repeat(300)]), Err(TooManyMarkets));
    some.add(&[]).ok().unwrap();
    assert_eq!(some, Markets::All);
}
