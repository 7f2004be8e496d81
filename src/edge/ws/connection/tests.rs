mod counted;
mod room;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use self::counted::Counted;
use super::*;
use crate::ws::bounds::{PRICES_BYTES_GOAL, SUBSCRIPTIONS_MAX};
use crate::ws::close::Credential;
use crate::ws::counts::SocketCounts;
use crate::ws::fanout::Fanout;
use crate::ws::fanout::tests::publish_bid;
use crate::ws::frame::CLIENT_FRAME_BYTES_MAX;
use crate::ws::prices::serve_prices;
use crate::ws::turns::Turns;
use crate::ws::watch::{SILENCE_MAX, WATCH_INTERVAL, WRITE_STALL_MAX};
use paperbourse_core::ids::AccountId;
use paperbourse_core::limits::budget::ByteBudget;
use paperbourse_core::limits::tier::MarketsMax;
use paperbourse_core::market::Markets;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse_core::money::Price;

/// A server with sixty markets, `m0` to `m59`, and one client.
struct World {
    client: WebSocket<DuplexStream>,
    ended: JoinHandle<Ended>,
    markets: Arc<Markets>,
    fanout: Arc<Fanout>,
    counts: Arc<SocketCounts>,
    unsent: Arc<ByteBudget>,
    /// How often the server has written.
    writes: Arc<AtomicU32>,
    shutdown: watch::Sender<bool>,
    is_valid: Arc<AtomicBool>,
    /// How many more frames the client may send.
    allowance: Arc<AtomicU32>,
}

#[derive(Clone, PartialEq, Debug)]
enum Received {
    Json(Value),
    Ping,
    Pong(Vec<u8>),
    Close(u16),
    End,
}

fn account_id() -> AccountId {
    AccountId::from_raw(199).unwrap()
}

fn names(markets: Range<u32>) -> Vec<String> {
    markets.map(|market| format!("m{market}")).collect()
}

/// Both ends are joined by a pipe that buffers this many bytes per direction.
fn world(pipe_bytes: usize) -> World {
    world_for(pipe_bytes, MarketsMax::Count(50))
}

/// A world whose client may have this many markets.
fn world_for(pipe_bytes: usize, markets_max: MarketsMax) -> World {
    world_within(&ByteBudget::new(usize::MAX), pipe_bytes, markets_max)
}

/// A world in which what the client does not take is part of this budget.
fn world_within(unsent: &Arc<ByteBudget>, pipe_bytes: usize, markets_max: MarketsMax) -> World {
    world_of_batches(PRICES_BYTES_GOAL, unsent, pipe_bytes, markets_max)
}

/// A world whose client is sent about this many bytes of prices at a time.
fn world_of_batches(
    batch_bytes: usize,
    unsent: &Arc<ByteBudget>,
    pipe_bytes: usize,
    markets_max: MarketsMax,
) -> World {
    let markets = Arc::new(Markets::new());
    let infos = (0..60).map(|market| {
        let outcomes =
            ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
        MarketInfo::bare(&format!("m{market}"), outcomes)
    });
    markets.list(infos.collect()).unwrap();
    let fanout = Arc::new(Fanout::new(markets.clone()));
    let passing_on = fanout.clone();
    tokio::spawn(async move { passing_on.run().await });

    let (counts, is_valid) = (Arc::<SocketCounts>::default(), Arc::new(AtomicBool::new(true)));
    let allowance = Arc::new(AtomicU32::new(u32::MAX));
    let peer = Peer {
        open: CountedSocket::OfAccount(counts.try_open(account_id(), 1).unwrap()),
        frames: FrameLimit::OWN,
        unsent: unsent.share(),
        batch_bytes,
        allow: Box::new({
            let allowance = allowance.clone();
            move |_| {
                let taken = |left: u32| left.checked_sub(1);
                allowance.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken).is_ok()
            }
        }),
        is_valid: Box::new({
            let is_valid = is_valid.clone();
            move || is_valid.load(Ordering::Relaxed)
        }),
    };
    let (shutdown, is_down) = watch::channel(false);
    let (client, server) = tokio::io::duplex(pipe_bytes);
    let writes: Arc<AtomicU32> = Arc::default();
    let server = Counted { io: server, writes: writes.clone() };
    let turns: Arc<Turns> = Arc::default();
    let giving = turns.clone();
    tokio::spawn(async move { giving.run(|| {}).await });
    let watch: Arc<Watch> = Arc::default();
    let watching = watch.clone();
    tokio::spawn(async move { watching.run(is_down).await });
    let serving = fanout.clone();
    let ended = tokio::spawn(async move {
        let (from, shown) = ((&serving, &turns), (account_id(), markets_max));
        serve_prices((server, Vec::new()), peer, from, shown, &watch).await
    });
    let client = client_socket(client);
    let unsent = unsent.clone();
    World { client, ended, markets, fanout, counts, unsent, writes, shutdown, is_valid, allowance }
}

fn client_socket(stream: DuplexStream) -> WebSocket<DuplexStream> {
    let mut client = WebSocket::after_handshake(stream, Role::Client);
    client.set_auto_close(false);
    client.set_auto_pong(false);
    client
}

async fn receive(client: &mut WebSocket<DuplexStream>) -> Received {
    let Ok(frame) = client.read_frame().await else { return Received::End };
    assert!(frame.fin);
    match frame.opcode {
        OpCode::Text => Received::Json(serde_json::from_slice(&frame.payload).unwrap()),
        OpCode::Ping => Received::Ping,
        OpCode::Pong => Received::Pong(frame.payload.to_vec()),
        OpCode::Close => Received::Close(u16::from_be_bytes([frame.payload[0], frame.payload[1]])),
        other => panic!("the server sent {other:?}"),
    }
}

impl World {
    async fn receive(&mut self) -> Received {
        receive(&mut self.client).await
    }

    async fn json(&mut self) -> Value {
        match self.receive().await {
            Received::Json(json) => json,
            other => panic!("{other:?} instead of a message"),
        }
    }

    async fn send(&mut self, json: Value) {
        self.send_text(&json.to_string()).await;
    }

    async fn send_text(&mut self, text: &str) {
        let payload = Payload::Owned(text.as_bytes().to_vec());
        self.client.write_frame(Frame::text(payload)).await.unwrap();
    }

    async fn send_raw(&mut self, first_byte: u8, payload: &[u8]) {
        let opcode = OpCode::try_from(first_byte & 0xf).unwrap();
        let payload = Payload::Owned(payload.to_vec());
        let frame = Frame::new(first_byte & 0x80 != 0, opcode, None, payload);
        self.client.write_frame(frame).await.unwrap();
    }

    /// A client that is greeted, subscribed to `m0` and shown its first price.
    async fn subscribed(pipe_bytes: usize) -> Self {
        let mut world = world(pipe_bytes);
        world.send(json!({"action": "subscribe", "markets": ["m0"]})).await;
        assert_eq!(world.json().await["type"], "connected");
        assert_eq!(world.json().await, json!({"type": "subscribed", "markets": ["m0"]}));
        assert_eq!(world.json().await["seq"], 1);
        world
    }

    fn publish(&self, market: &str, change: i64) {
        publish_bid(&self.markets, market, change);
    }

    /// Everything the server still sends, up to the close frame, and how the socket ended. Checks
    /// that it leaves nothing behind.
    async fn end(mut self) -> (Vec<Received>, Ended) {
        let mut received = Vec::new();
        loop {
            match self.receive().await {
                Received::End => break,
                other => received.push(other),
            }
        }
        drop(self.client);
        let ended = self.ended.await.unwrap();
        assert_eq!(self.fanout.socket_count(), 0);
        assert_eq!(self.fanout.channel_count(), 0);
        assert_eq!(self.counts.of(account_id()), 0);
        assert_eq!(self.unsent.held_bytes(), 0);
        (received, ended)
    }

    /// Checks that the socket is closed for this reason and that the close frame is the last one.
    #[track_caller]
    fn check_closed(self, reason: CloseReason) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let (received, ended) = self.end().await;
            assert_eq!(ended, Ended::Closed(reason), "{caller}");
            assert_eq!(received.last(), Some(&Received::Close(reason.code())), "{caller}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation() {
    let mut world = world(64 * 1024);
    assert_eq!(
        world.json().await,
        json!({"type": "connected", "user_id": 199, "protocol_version": "1.0"})
    );
    world.send(json!({"action": "subscribe", "markets": ["m3", "m1", "m3"]})).await;
    assert_eq!(world.json().await, json!({"type": "subscribed", "markets": ["m3", "m1"]}));
    for market in ["m3", "m1"] {
        let price = world.json().await;
        assert_eq!((&price["market_id"], &price["seq"]), (&market.into(), &1.into()));
    }
    world.publish("m1", 4_200);
    world.publish("m2", 4_200);
    let price = world.json().await;
    assert_eq!((&price["market_id"], &price["seq"]), (&"m1".into(), &2.into()));
    assert_eq!((&price["best_bid"], &price["conflated"]), (&"0.42".into(), &Value::Null));

    world.send(json!({"type": "PING"})).await;
    let pong = world.json().await;
    assert_eq!(pong["type"], "pong");
    assert!(pong["ts"].as_i64().unwrap() > 1_700_000_000_000);

    world.send(json!({"type": "unsubscribe", "conditions": ["m3", "m9"]})).await;
    assert_eq!(world.json().await, json!({"type": "subscribed", "markets": ["m1"]}));
    world.publish("m3", 4_300);
    world.publish("m1", 4_300);
    assert_eq!(world.json().await["market_id"], "m1");

    world.send_raw(0x89, b"are you there").await;
    assert_eq!(world.receive().await, Received::Pong(b"are you there".to_vec()));
    world.send_raw(0x88, &4_000_u16.to_be_bytes()).await;
    world.check_closed(CloseReason::Returned(4_000)).await;
}

#[tokio::test(start_paused = true)]
async fn an_invalid_request_is_an_error_and_keeps_the_socket() {
    let mut world = World::subscribed(64 * 1024).await;
    let too_many = "at most 50 markets per socket: this one has 1 and asked for 50 more; \
                    none was added";
    for (request, message) in [
        ("PING".to_owned(), "invalid JSON: expected value at line 1 column 1"),
        ("[]".to_owned(), "a frame must be a JSON object"),
        (json!({"action": "subscribe", "markets": names(1..51)}).to_string(), too_many),
    ] {
        world.send_text(&request).await;
        assert_eq!(world.json().await, json!({"type": "error", "message": message}));
    }
    world.send(json!({"action": "subscribe", "markets": ["mx", "m5"]})).await;
    assert_eq!(world.json().await, json!({"type": "error", "message": "unknown market: mx"}));
    assert_eq!(world.json().await, json!({"type": "subscribed", "markets": ["m0", "m5"]}));
    assert_eq!(world.json().await["market_id"], "m5");
    assert_eq!(world.fanout.channel_count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_protocol_violation_closes_the_socket() {
    for (first_byte, payload, reason) in [
        (0x01, &b"{"[..], CloseReason::TooBig),
        (0x80, b"}", CloseReason::Protocol),
        (0x81, &vec![b' '; CLIENT_FRAME_BYTES_MAX + 1], CloseReason::TooBig),
        (0x82, b"{}", CloseReason::Binary),
        (0x81, b"\xff", CloseReason::NotUtf8),
        (0x09, b"", CloseReason::Protocol),
    ] {
        let mut world = World::subscribed(64 * 1024).await;
        world.send_raw(first_byte, payload).await;
        world.check_closed(reason).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_too_much_is_closed() {
    let mut world = World::subscribed(64 * 1024).await;
    world.allowance.store(3, Ordering::Relaxed);
    for _ in 0..3 {
        world.send(json!({"action": "ping"})).await;
        assert_eq!(world.json().await["type"], "pong");
    }
    // More replies than anybody reads: the close frame still gets through.
    for _ in 0..200 {
        world.send(json!({"action": "ping"})).await;
    }
    world.check_closed(CloseReason::TooMuch).await;
}

#[tokio::test(start_paused = true)]
async fn unread_replies_are_bounded() {
    let mut world = World::subscribed(1024).await;
    let mut request_count = 0;
    while !world.ended.is_finished() {
        let text = Payload::Borrowed(b"{\"action\":\"ping\"}");
        let sent = world.client.write_frame(Frame::text(text));
        if timeout(Duration::from_secs(2), sent).await.is_err() {
            break;
        }
        request_count += 1;
        assert!(request_count < 100_000);
    }
    assert!(request_count > 1000, "{request_count}");
    assert_eq!(world.ended.await.unwrap(), Ended::Closed(CloseReason::TooMuch));
}

#[tokio::test(start_paused = true)]
async fn fifty_markets_can_be_added_one_by_one() {
    let mut world = world(512);
    for market in 0..50 {
        world.send(json!({"action": "subscribe", "markets": [format!("m{market}")]})).await;
    }
    let mut last = Value::Null;
    while last["markets"].as_array().is_none_or(|markets| markets.len() < 50) {
        last = world.json().await;
    }
}

#[tokio::test(start_paused = true)]
async fn acknowledgements_of_many_markets_stay_short() {
    let mut world = world_for(64 * 1024, MarketsMax::Count(60));
    world.json().await;
    for (action, markets, acknowledged) in [
        ("subscribe", names(0..50), json!({"markets": names(0..50)})),
        ("subscribe", names(50..60), json!({"markets": names(50..60), "total": 60})),
        ("subscribe", names(9..10), json!({"markets": names(9..10), "total": 60})),
        ("unsubscribe", names(0..5), json!({"markets": [], "total": 55})),
        ("unsubscribe", names(5..10), json!({"markets": names(10..60)})),
    ] {
        world.send(json!({"action": action, "markets": markets})).await;
        let mut received = world.json().await;
        while received["type"] == "price" {
            received = world.json().await;
        }
        let mut expected = acknowledged;
        expected["type"] = "subscribed".into();
        assert_eq!(received, expected, "{action} {markets:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_socket_may_have_all_markets() {
    let mut world = world_for(64 * 1024, MarketsMax::All);
    world.json().await;
    world.send(json!({"action": "subscribe", "markets": ["*"]})).await;
    assert_eq!(world.json().await, json!({"type": "subscribed", "markets": ["*"]}));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let price = world.json().await;
        seen.insert(price["market_id"].as_str().unwrap().to_owned());
    }
    assert_eq!(seen.len(), 60);
    world.publish("m7", 1);
    assert_eq!(world.json().await["market_id"], "m7");
    world.send(json!({"action": "unsubscribe", "markets": ["m7"]})).await;
    let message = "this socket has all markets: unsubscribe from * first";
    assert_eq!(world.json().await, json!({"type": "error", "message": message}));
    world.send(json!({"action": "unsubscribe", "markets": ["*"]})).await;
    assert_eq!(world.json().await, json!({"type": "subscribed", "markets": []}));
    assert_eq!(world.fanout.channel_count(), 0);
}

/// Whether or not there is something else to say.
#[tokio::test(start_paused = true)]
async fn a_socket_with_all_markets_hears_that_it_lacks_some() {
    for room in [0, 1] {
        let mut world = world_for(64 * 1024, MarketsMax::All);
        world.json().await;
        world.fanout.subscription_count.store(SUBSCRIPTIONS_MAX - room, Ordering::Relaxed);
        world.send(json!({"action": "subscribe", "markets": ["*"]})).await;
        assert_eq!(world.json().await["type"], "subscribed");
        for _ in 0..room {
            assert_eq!(world.json().await["type"], "price");
        }
        let error = timeout(Duration::from_secs(1), world.json()).await.unwrap();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("some markets are missing here"), "{message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tier_with_a_limit_does_not_have_all_markets() {
    let mut world = world(64 * 1024);
    world.json().await;
    world.send(json!({"action": "subscribe", "markets": ["*"]})).await;
    let message = "at most 50 markets per socket in this tier: list their condition ids";
    assert_eq!(world.json().await, json!({"type": "error", "message": message}));
}

#[tokio::test(start_paused = true)]
async fn a_silent_peer_is_pinged_and_dropped() {
    let world = World::subscribed(64 * 1024).await;
    let opened_at = Instant::now();
    let (received, ended) = world.end().await;
    assert_eq!(ended, Ended::Silent);
    assert_eq!(received, [Received::Ping]);
    let silent_for = opened_at.elapsed();
    let latest = SILENCE_MAX + WATCH_INTERVAL;
    assert!(silent_for >= SILENCE_MAX && silent_for <= latest, "{silent_for:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_pings_stays() {
    let mut world = World::subscribed(64 * 1024).await;
    let opened_at = Instant::now();
    for _ in 0..10 {
        assert_eq!(world.receive().await, Received::Ping);
        world.send_raw(0x8a, b"").await;
    }
    let open_for = opened_at.elapsed();
    assert!(open_for >= Duration::from_secs(200) && open_for < Duration::from_secs(205));
    world.publish("m0", 1);
    assert_eq!(world.json().await["seq"], 2);
}

/// Each write is a system call.
#[tokio::test(start_paused = true)]
async fn all_that_is_due_leaves_in_one_write() {
    let mut world = world(64 * 1024);
    let markets: Vec<_> = (0..20).map(|market| format!("m{market}")).collect();
    world.send(json!({"action": "subscribe", "markets": markets})).await;
    for _ in 0..22 {
        world.json().await;
    }
    let before = world.writes.load(Ordering::Relaxed);
    for change in 1..=3 {
        for market in &markets {
            world.publish(market, change);
        }
        // Nothing of it is due here.
        world.publish("m50", change);
        for _ in &markets {
            assert_eq!(world.json().await["type"], "price");
        }
    }
    assert_eq!(world.writes.load(Ordering::Relaxed) - before, 3);
}

/// Also to a client that has missed frames, after the price that shows it.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_market_is_said_once() {
    let mut world = World::subscribed(64 * 1024).await;
    let info = (*world.markets.by_condition("m0").unwrap().info()).clone();
    for (status, expected) in [
        (MarketStatus::Paused, None),
        (MarketStatus::Closed, Some("closed")),
        (MarketStatus::Closed, None),
        (MarketStatus::Open, None),
        (MarketStatus::Resolved, Some("resolved")),
        (MarketStatus::Resolved, None),
    ] {
        let payouts = vec![Price::ONE, Price::ZERO];
        let info = MarketInfo { status, payouts, ..MarketInfo::clone(&info) };
        world.markets.list(vec![info.clone()]).unwrap();
        world.markets.list(vec![info]).unwrap();
        let price = world.json().await;
        assert_eq!(
            (&price["type"], &price["closed"]),
            (&json!("price"), &status.is_closed().into())
        );
        if let Some(expected) = expected {
            let end = world.json().await;
            assert_eq!(end["type"], "market_status");
            assert_eq!((&end["status"], &end["seq"]), (&expected.into(), &price["seq"]));
        }
    }
    world.send(json!({"action": "ping"})).await;
    assert_eq!(world.json().await["type"], "pong");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_shuts_down_closes_with_1001() {
    let mut world = World::subscribed(64 * 1024).await;
    let asked_at = Instant::now();
    world.shutdown.send(true).unwrap();
    let frame = world.client.read_frame().await.unwrap();
    let expected =
        [&1001_u16.to_be_bytes()[..], b"the server is shutting down; retry-after-ms=1001"];
    assert_eq!((frame.opcode, &*frame.payload), (OpCode::Close, &*expected.concat()));
    let (received, ended) = world.end().await;
    assert_eq!((received, ended), (vec![], Ended::Closed(CloseReason::GoingAway)));
    assert_eq!(asked_at.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_credential_loses_its_socket_within_a_second() {
    // Whether or not the peer reads.
    for pipe_bytes in [64 * 1024, 1024] {
        let world = World::subscribed(pipe_bytes).await;
        for change in 1..=20 {
            world.publish("m0", change);
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
        world.is_valid.store(false, Ordering::Relaxed);
        let World { ended, client, .. } = world;
        let closed = async {
            if pipe_bytes == 1024 {
                let reason = CloseReason::BadCredential(Credential::Ended);
                assert_eq!(ended.await.unwrap(), Ended::Closed(reason));
                return;
            }
            let mut client = client;
            loop {
                match receive(&mut client).await {
                    Received::Close(4001) => return,
                    Received::End => panic!("the socket ended without a close frame"),
                    _ => {}
                }
            }
        };
        let in_time = tokio::time::timeout(Duration::from_secs(1), closed).await;
        in_time.expect("a revoked credential keeps its socket");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_newest() {
    const CHANGES: i64 = 500;
    let mut world = World::subscribed(1024).await;
    for change in 1..=CHANGES {
        world.publish("m0", change);
        // Let the fan-out and the writer do what they can.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    let mut seq = 1;
    let mut frame_count = 0;
    while seq < CHANGES + 1 {
        let price = world.json().await;
        let next = price["seq"].as_i64().unwrap();
        assert_eq!(price["conflated"] == true, next > seq + 1, "{price}");
        seq = next;
        frame_count += 1;
    }
    assert!((2..10).contains(&frame_count), "{frame_count}");
    // It has caught up: the next frame is not conflated.
    world.publish("m0", 1);
    let price = world.json().await;
    assert_eq!((&price["seq"], &price["conflated"]), (&(CHANGES + 2).into(), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_takes_nothing_is_dropped() {
    let mut world = world(16);
    let opened_at = Instant::now();
    let ended = (&mut world.ended).await.unwrap();
    assert_eq!(ended, Ended::Closed(CloseReason::TooSlow));
    assert_eq!(opened_at.elapsed(), WRITE_STALL_MAX + CLOSE_MAX);
    assert_eq!(world.fanout.socket_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_disconnects_ends_the_socket() {
    let world = World::subscribed(1024).await;
    drop(world.client);
    assert_eq!(world.ended.await.unwrap(), Ended::Gone);
    assert_eq!((world.fanout.socket_count(), world.counts.of(account_id())), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_socket_gets_the_close_code() {
    for reason in [CloseReason::BadCredential(Credential::Ended), CloseReason::TooManySockets] {
        let (client, server) = tokio::io::duplex(1024);
        let refused = tokio::spawn(refuse(server, reason));
        let mut client = client_socket(client);
        assert_eq!(receive(&mut client).await, Received::Close(reason.code()));
        assert_eq!(receive(&mut client).await, Received::End);
        drop(client);
        assert_eq!(refused.await.unwrap(), Ended::Closed(reason));
    }
}
