use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::ws::bounds::PRICES_BYTES_GOAL;
use crate::ws::connection::{CLOSE_MAX, FINISH_MAX, LINGER_MAX};
use crate::ws::counts::{CountedSocket, SocketCounts};
use crate::ws::frame::FrameLimit;
use crate::ws::watch::WRITE_STALL_MAX;
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::Rules;
use paperbourse_core::engine::command::{Identity, OrderNames, Owner, Trade, TradeOrder};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::ids::{AccountId, OutcomeIndex, ShardId};
use paperbourse_core::limits::budget::ByteBudget;
use paperbourse_core::market::Markets;
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, Outcome};
use paperbourse_core::money::{Price, Shares};
use paperbourse_exchange::shard::Shards;
use paperbourse_store::journal::{Gate, Journal, JournalConfig, MemoryJournal, Waiters};
use paperbourse_store::snapshot::Recovered;

const SHARD: u8 = 9;
const MARKET: &str = "0xabc";

/// Shards with one market, over a journal that the test can hold.
struct World {
    shards: Arc<Shards>,
    waiters: Arc<Waiters>,
    gate: Gate,
    counts: Arc<ExecutionCounts>,
    trade_count: u64,
}

/// A client, and the socket's other end.
struct Client {
    socket: WebSocket<DuplexStream>,
    ended: JoinHandle<Ended>,
    shutdown: watch::Sender<bool>,
    is_valid: Arc<AtomicBool>,
}

fn account_id() -> AccountId {
    AccountId::new(ShardId::new(SHARD).unwrap(), 1).unwrap()
}

/// A world in which the account has traded `trade_count` times.
async fn world(kept_orders_max: u32, trade_count: u64) -> World {
    let (memory, gate) = MemoryJournal::gated(&JournalConfig::default());
    gate.release();
    let journal = Arc::new(Journal::from(memory));
    let waiters = journal.register();
    tokio::spawn({
        let waiters = waiters.clone();
        async move { waiters.run().await }
    });
    let markets = Arc::new(Markets::new());
    let outcomes =
        ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
    markets.list(vec![MarketInfo::bare(MARKET, outcomes)]).unwrap();
    let ask =
        Level { price: Price::from_micros(500_000), size: Shares::from_micros(1_000_000_000) };
    let book = Book::new(Ladder::from_levels(vec![], vec![ask]).unwrap(), Timestamp::EPOCH);
    markets.publish(&markets.by_condition(MARKET).unwrap(), OutcomeIndex(0), Arc::new(book));
    let shards = Arc::new(Shards::new(
        Recovered::default(),
        journal,
        markets,
        Rules { kept_orders_max, ..Rules::default() },
        Clock::System,
        Arc::default(),
        Box::new(|_, _| {}),
    ));
    let mut world = World { shards, waiters, gate, counts: Arc::default(), trade_count: 0 };
    for _ in 0..trade_count {
        world.trade().await;
    }
    world
}

impl World {
    /// Buys a tenth of a share, and returns once the trade is durable.
    async fn trade(&mut self) {
        self.begin_trade().await.unwrap();
    }

    /// Buys a tenth of a share in a task of its own.
    fn begin_trade(&mut self) -> JoinHandle<()> {
        self.trade_count += 1;
        let name = format!("order-{}", self.trade_count);
        let mut digest = [0; 32];
        digest[0] = SHARD;
        let trade = Trade::new(
            Owner::Identity(Identity { digest, issuer: "i".into(), subject: "s".into() }),
            TradeOrder {
                market_id: MARKET.into(),
                outcome: "Yes".into(),
                side: Side::Buy,
                quantity: Shares::from_micros(100_000),
                expected_price: None,
                max_slippage_bps: None,
            },
            OrderNames::new([NameHash::of_order(&name)], Some(name.into())),
        );
        let (shards, waiters) = (self.shards.clone(), self.waiters.clone());
        tokio::spawn(async move {
            let traded = shards.execute(ShardId::new(SHARD).unwrap(), trade, &waiters).await;
            drop(traded.expect("the order fills"));
        })
    }

    /// Connects a client over a pipe that buffers this many bytes per direction.
    fn connect(&self, pipe_bytes: usize) -> Client {
        let (client, server) = tokio::io::duplex(pipe_bytes);
        let is_valid = Arc::new(AtomicBool::new(true));
        let peer = Peer {
            open: CountedSocket::OfAccount(
                Arc::new(SocketCounts::default()).try_open(account_id(), 1).unwrap(),
            ),
            frames: FrameLimit::OWN,
            unsent: ByteBudget::new(usize::MAX).share(),
            batch_bytes: PRICES_BYTES_GOAL,
            allow: Box::new(|_| true),
            is_valid: Box::new({
                let is_valid = is_valid.clone();
                move || is_valid.load(Ordering::Relaxed)
            }),
        };
        let (shutdown, is_down) = watch::channel(false);
        let follower = self.shards.follow_fills(account_id(), &self.waiters).unwrap();
        let counts = self.counts.clone();
        let watch: Arc<Watch> = Arc::default();
        let watching = watch.clone();
        tokio::spawn(async move { watching.run(is_down).await });
        let ended = tokio::spawn(async move {
            serve_executions((server, Vec::new()), peer, (follower, &counts), &watch).await
        });
        let mut socket = WebSocket::after_handshake(client, Role::Client);
        socket.set_auto_close(false);
        socket.set_auto_pong(false);
        Client { socket, ended, shutdown, is_valid }
    }

    /// Connects a client and reads its first frame.
    async fn greeted(&self) -> Client {
        let mut client = self.connect(64 * 1024);
        assert_eq!(client.json().await, hello(self.trade_count));
        client
    }
}

/// The first frame of a socket when the newest fill has this number.
fn hello(seq: u64) -> Value {
    let user_id = account_id().get();
    json!({"type": "connected", "user_id": user_id, "protocol_version": "1.0", "seq": seq})
}

/// What a client received.
#[derive(PartialEq, Debug)]
enum Received {
    Json(Value),
    Close(u16),
    End,
}

impl Client {
    async fn receive(&mut self) -> Received {
        loop {
            let Ok(frame) = self.socket.read_frame().await else { return Received::End };
            let payload = &frame.payload;
            match frame.opcode {
                OpCode::Text => return Received::Json(serde_json::from_slice(payload).unwrap()),
                OpCode::Close => {
                    return Received::Close(u16::from_be_bytes([payload[0], payload[1]]));
                }
                OpCode::Ping => {}
                other => panic!("the server sent {other:?}"),
            }
        }
    }

    async fn json(&mut self) -> Value {
        match self.receive().await {
            Received::Json(json) => json,
            other => panic!("{other:?} instead of a message"),
        }
    }

    async fn send(&mut self, message: Value) {
        let payload = Payload::Owned(message.to_string().into_bytes());
        self.socket.write_frame(Frame::text(payload)).await.unwrap();
    }

    async fn resume(&mut self, after: u64) {
        self.send(json!({"action": "resume", "after": after})).await;
    }

    /// Checks that the next frames are the fills with these numbers.
    async fn fills(&mut self, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            let fill = self.json().await;
            assert_eq!((&fill["type"], &fill["seq"]), (&json!("fill"), &json!(number)), "{fill}");
            assert_eq!(fill["client_order_id"], format!("order-{number}"));
        }
    }

    /// Checks that nothing arrives while no task can continue.
    async fn nothing(&mut self) {
        let early = timeout(Duration::from_millis(1), self.receive()).await;
        assert!(early.is_err(), "{early:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation() {
    let mut world = world(100, 2).await;
    let mut client = world.greeted().await;
    world.trade().await;
    let fill = client.json().await;
    let order = 64 * 3 + u64::from(SHARD);
    let expected = json!({
        "type": "fill", "seq": 3, "order_id": order, "trade_id": format!("{order}-1"),
        "market_id": MARKET, "side": "BUY", "outcome": "Yes", "price": "0.5", "quantity": "0.1",
        "notional": "0.05", "fee": "0", "filled_at": fill["filled_at"],
        "client_order_id": "order-3", "account_balance": "999.85",
    });
    assert_eq!(fill, expected);
    assert!(fill["filled_at"].as_str().unwrap().ends_with('Z'), "{fill}");

    client.send(json!({"action": "subscribe", "markets": ["a"]})).await;
    assert_eq!(client.json().await, json!({"type": "subscribed"}));
    client.send(json!({"type": "ping"})).await;
    assert_eq!(client.json().await["type"], "pong");
    for request in [
        json!({"action": "resume", "after": 4}),
        json!({"action": "resume", "after": -1}),
        json!({"action": "resume", "after": "1"}),
        json!({"action": "resume"}),
        json!({"action": "unsubscribe"}),
        json!(7),
    ] {
        client.send(request.clone()).await;
        assert_eq!(client.json().await["type"], "error", "{request}");
    }
    for after in [0, 2, 3, 1] {
        client.resume(after).await;
        assert_eq!(client.json().await, json!({"type": "resumed", "after": after}));
        client.fills(after + 1..=3).await;
    }
    world.trade().await;
    client.fills(4..=4).await;
    assert_eq!(world.counts.fills(), 1 + 3 + 1 + 2 + 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_kept_is_a_gap() {
    let mut world = world(3, 5).await;
    let mut client = world.greeted().await;
    client.resume(0).await;
    assert_eq!(client.json().await, json!({"type": "resumed", "after": 0}));
    assert_eq!(client.json().await, json!({"type": "gap", "from": 1, "to": 2}));
    client.fills(3..=5).await;
    client.resume(1).await;
    assert_eq!(client.json().await, json!({"type": "resumed", "after": 1}));
    assert_eq!(client.json().await, json!({"type": "gap", "from": 2, "to": 2}));
    client.fills(3..=5).await;
    world.trade().await;
    client.fills(6..=6).await;
    assert_eq!(world.counts.gaps(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_before_it_is_durable() {
    let mut world = world(100, 1).await;
    let mut before = world.greeted().await;
    world.gate.hold();
    let trade = world.begin_trade();
    before.nothing().await;
    // Not even the number of the newest fill.
    let mut during = world.connect(1024);
    during.send(json!({"action": "ping"})).await;
    during.nothing().await;
    assert!(!trade.is_finished());
    world.gate.release();
    before.fills(2..=2).await;
    assert_eq!(during.json().await["seq"], 2);
    assert_eq!(during.json().await["type"], "pong");
}

#[tokio::test(start_paused = true)]
async fn every_socket_of_an_account_gets_every_fill() {
    let mut world = world(1_000, 0).await;
    let mut clients = [world.connect(64 * 1024), world.connect(64 * 1024)];
    for client in &mut clients {
        client.send(json!({"action": "ping"})).await;
        assert_eq!(client.json().await, hello(0));
        assert_eq!(client.json().await["type"], "pong");
    }
    for _ in 0..300 {
        world.begin_trade();
    }
    for client in &mut clients {
        client.fills(1..=300).await;
    }
    assert_eq!(world.shards.fill_follower_count(), 2);
    for client in clients {
        let Client { socket, ended, shutdown: _shutdown, .. } = client;
        drop(socket);
        assert_eq!(ended.await.unwrap(), Ended::Gone);
    }
    assert_eq!(world.shards.fill_follower_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_misses_nothing() {
    let mut world = world(1_000, 0).await;
    let mut client = world.connect(512);
    for _ in 0..500 {
        world.trade().await;
    }
    assert_eq!(client.json().await["type"], "connected");
    client.resume(0).await;
    // What was sent before the resume took effect.
    while client.json().await["type"] != "resumed" {}
    for number in 1..=500 {
        client.fills(number..=number).await;
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_is_closed_1013() {
    let mut world = world(1_000, 0).await;
    let mut client = world.connect(512);
    assert_eq!(client.json().await["type"], "connected");
    for _ in 0..100 {
        world.trade().await;
    }
    let began = Instant::now();
    sleep(WRITE_STALL_MAX + Duration::from_millis(450)).await;
    // It begins to read while the close frame is being sent.
    let mut last = client.receive().await;
    loop {
        match client.receive().await {
            Received::End => break,
            next => last = next,
        }
    }
    assert_eq!(last, Received::Close(1013));
    drop(client.socket);
    assert_eq!(client.ended.await.unwrap(), Ended::Closed(CloseReason::TooSlow));
    assert!(began.elapsed() < WRITE_STALL_MAX + CLOSE_MAX + LINGER_MAX);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_credential_loses_its_socket() {
    let world = world(100, 3).await;
    let mut client = world.greeted().await;
    client.is_valid.store(false, Ordering::Relaxed);
    let closed = timeout(Duration::from_secs(1), client.receive()).await;
    assert_eq!(closed, Ok(Received::Close(4001)));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_sends_what_is_left() {
    let mut world = world(1_000, 0).await;
    let mut client = world.greeted().await;
    world.gate.hold();
    let trades: Vec<_> = (0..250).map(|_| world.begin_trade()).collect();
    client.nothing().await;
    client.shutdown.send(true).unwrap();
    client.nothing().await;
    world.gate.release();
    client.fills(1..=250).await;
    assert_eq!(client.receive().await, Received::Close(1001));
    drop(trades);

    // It does not wait for a disk that stalls.
    let mut client = world.greeted().await;
    world.gate.hold();
    world.begin_trade();
    client.nothing().await;
    let asked_at = Instant::now();
    client.shutdown.send(true).unwrap();
    assert_eq!(client.receive().await, Received::Close(1001));
    let elapsed = asked_at.elapsed();
    assert!(elapsed >= FINISH_MAX && elapsed < FINISH_MAX * 2, "{elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_resumes_are_bounded() {
    let mut world = world(100, 1).await;
    let mut client = world.greeted().await;
    world.gate.hold();
    world.begin_trade();
    client.nothing().await;
    for _ in 0..RESUMES_WAITING_MAX + 2 {
        client.resume(2).await;
    }
    for _ in 0..2 {
        assert_eq!(client.json().await["type"], "error");
    }
    world.gate.release();
    client.fills(2..=2).await;
    for _ in 0..RESUMES_WAITING_MAX {
        assert_eq!(client.json().await, json!({"type": "resumed", "after": 2}));
    }
    client.nothing().await;
}

/// What a client does in the property below.
#[derive(Clone, Debug)]
enum Action {
    /// The account trades this often.
    Trade(u64),
    /// The client reads this many frames, or as many as arrive.
    Read(usize),
    /// The client connects again, and resumes from what it has.
    Reconnect,
    /// The client resumes from an earlier fill.
    Repeat(u64),
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        3 => (1..40_u64).prop_map(Action::Trade),
        3 => (1..60_usize).prop_map(Action::Read),
        1 => Just(Action::Reconnect),
        1 => (1..50_u64).prop_map(Action::Repeat),
    ]
}

/// Notes a frame. A fill that follows another has the next number, and the same number always means
/// the same fill.
fn note(frame: &Value, at: &mut u64, seen: &mut BTreeMap<u64, Value>) {
    match frame["type"].as_str() {
        Some("fill") => {
            let seq = frame["seq"].as_u64().unwrap();
            assert_eq!(seq, *at + 1);
            *at = seq;
            let known = seen.entry(seq).or_insert_with(|| frame.clone());
            assert_eq!(known, frame);
        }
        Some("resumed") => *at = frame["after"].as_u64().unwrap(),
        Some("connected") => *at = frame["seq"].as_u64().unwrap(),
        _ => panic!("{frame}"),
    }
}

/// The number up to which a client has every fill.
fn whole(seen: &BTreeMap<u64, Value>) -> u64 {
    (1..).zip(seen.keys()).take_while(|(number, seq)| number == *seq).count() as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// However often a client reconnects and resumes, it ends up with every fill once.
    #[test]
    fn reconnects_lose_and_repeat_nothing(actions in prop::collection::vec(action(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut world = world(10_000, 0).await;
            let mut seen = BTreeMap::new();
            let mut client = world.connect(2_048);
            let mut at = 0;
            for action in actions {
                match action {
                    Action::Trade(count) => (0..count).for_each(|_| drop(world.begin_trade())),
                    Action::Read(count) => {
                        for _ in 0..count {
                            let next = timeout(Duration::from_millis(1), client.json()).await;
                            let Ok(frame) = next else { break };
                            note(&frame, &mut at, &mut seen);
                        }
                    }
                    Action::Reconnect => {
                        client = world.connect(2_048);
                        let after = whole(&seen);
                        client.resume(after).await;
                    }
                    Action::Repeat(back) => client.resume(whole(&seen).saturating_sub(back)).await,
                }
            }
            let mut client = world.connect(2_048);
            client.resume(whole(&seen)).await;
            while let Ok(frame) = timeout(Duration::from_millis(1), client.json()).await {
                note(&frame, &mut at, &mut seen);
            }
            let numbers: Vec<u64> = seen.keys().copied().collect();
            let all: Vec<u64> = (1..=world.trade_count).collect();
            assert_eq!(numbers, all);
        });
    }
}
