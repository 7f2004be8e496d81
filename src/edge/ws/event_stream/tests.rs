use std::future::poll_fn;
use std::sync::atomic::Ordering;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::ws::bounds::READERS_MAX;
use crate::ws::bounds::SUBSCRIPTIONS_MAX;
use crate::ws::counts::StreamCounts;
use crate::ws::fanout::tests::publish_bid;
use paperbourse_core::limits::bucket::Origin;
use paperbourse_core::market::Markets;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};

/// Markets with a running fan-out.
struct World {
    markets: Arc<Markets>,
    fanout: Arc<Fanout>,
    turns: Arc<Turns>,
    counts: Arc<StreamCounts>,
}

/// A stream, and what was taken from it but not yet read.
struct Reader {
    stream: EventStream,
    received: String,
    /// What it was told about when to come back, in milliseconds.
    retry_ms: Vec<u64>,
    /// The last id that it got.
    last_id: Option<String>,
}

fn holder() -> Origin {
    Origin::of("192.0.2.1".parse().unwrap())
}

fn name(market: usize) -> String {
    format!("m{market}")
}

/// A world with the markets `m0`, `m1`, ….
fn world(market_count: usize) -> World {
    let markets = Arc::new(Markets::new());
    let fanout = Arc::new(Fanout::new(markets.clone()));
    let passing_on = fanout.clone();
    tokio::spawn(async move { passing_on.run().await });
    let turns: Arc<Turns> = Arc::default();
    let giving = turns.clone();
    tokio::spawn(async move { giving.run(|| {}).await });
    let world = World { markets, fanout, turns, counts: Arc::default() };
    world.list((0..market_count).map(|market| MarketInfo::bare_yes_no(&name(market))).collect());
    world
}

impl World {
    fn list(&self, infos: Vec<MarketInfo>) {
        self.markets.list(infos).unwrap();
    }

    fn publish(&self, market: &str, change: i64) {
        publish_bid(&self.markets, market, change);
    }

    fn open(&self, ids: &[&str]) -> Reader {
        self.open_after(None, ids)
    }

    /// Opens a stream for a client that comes back.
    fn open_after(&self, last_id: Option<&str>, ids: &[&str]) -> Reader {
        let ids: Vec<String> = ids.iter().copied().map(str::to_owned).collect();
        let open = self.counts.try_open(holder(), 10).unwrap();
        let from = (&self.fanout, &self.turns);
        let stream = EventStream::open(from, &ids, last_id, open, Timestamp::EPOCH);
        let (received, retry_ms) = (String::new(), Vec::new());
        Reader { stream: stream.unwrap(), received, retry_ms, last_id: None }
    }

    fn check_empty(&self) {
        assert_eq!((self.fanout.socket_count(), self.fanout.channel_count()), (0, 0));
        assert_eq!((self.counts.of(holder()), self.counts.total()), (0, 0));
    }
}

impl Reader {
    async fn batch(&mut self) -> String {
        let bytes = poll_fn(|context| self.stream.poll_bytes(context)).await;
        assert!(!bytes.is_empty());
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// The next event: its kind, and its data in the form that a test compares.
    async fn event(&mut self) -> (String, Value) {
        while !self.received.contains("\n\n") {
            let batch = self.batch().await;
            self.received.push_str(&batch);
        }
        let received = self.received.clone();
        let (block, rest) = received.split_once("\n\n").unwrap();
        rest.clone_into(&mut self.received);
        let mut lines = block.lines().peekable();
        if let Some(retry_ms) = lines.next_if_map(|line| line.strip_prefix("retry: ").ok_or(line)) {
            self.retry_ms.push(retry_ms.parse().unwrap());
        }
        if lines.peek().is_none() {
            return Box::pin(self.event()).await;
        }
        let kind = lines.next().unwrap().strip_prefix("event: ").unwrap();
        let data = lines.next().unwrap().strip_prefix("data: ").unwrap();
        assert_eq!(lines.next_if_eq(&":").is_some(), kind == "keepalive", "{block}");
        if let Some(line) = lines.next() {
            self.last_id = Some(line.strip_prefix("id: ").unwrap().to_owned());
        }
        assert_eq!(lines.next(), None, "{block}");
        (kind.to_owned(), serde_json::from_str(data).unwrap())
    }

    /// The next event, which has this kind, in the form of [`row`].
    async fn expect(&mut self, kind: &str) -> Value {
        let (found, data) = self.event().await;
        assert_eq!(found, kind, "{data}");
        match kind {
            "market_price" => row(&data),
            "snapshot" => {
                let prices: Vec<_> = data["prices"].as_array().unwrap().iter().map(row).collect();
                match data.get("unknown") {
                    None => json!(prices),
                    Some(unknown) => json!([prices, unknown]),
                }
            }
            _ => data,
        }
    }
}

/// Market, bid and number of a frame, and whether it is conflated.
fn row(frame: &Value) -> Value {
    assert_eq!(frame["type"], "price");
    json!([frame["market_id"], frame["best_bid"], frame["seq"], frame["conflated"]])
}

#[tokio::test(start_paused = true)]
async fn a_stream_begins_with_a_snapshot_and_continues_with_changes() {
    let world = world(3);
    world.publish("m1", 5);
    let mut reader = world.open(&["m1", "absent", "m0", "m1"]);
    let first = json!([["m1", "0.0005", 1, null], ["m0", null, 1, null]]);
    assert_eq!(reader.expect("snapshot").await, json!([first, ["absent"]]));
    // The fan-out has yet to pass on the book that the snapshot shows.
    assert_eq!(reader.expect("market_price").await, json!(["m1", "0.0005", 2, null]));
    for change in 6..9 {
        world.publish("m0", change);
        let bid = format!("0.000{change}");
        let expected = json!(["m0", bid, change - 4, null]);
        assert_eq!(reader.expect("market_price").await, expected);
    }
    world.publish("m2", 1);
    assert_eq!(reader.expect("keepalive").await["n"], 1, "no other market");
    drop(reader);
    world.check_empty();
}

/// Others may have used up all subscriptions when a market is listed.
#[tokio::test(start_paused = true)]
async fn a_market_that_is_listed_while_there_is_no_room_follows_once_there_is() {
    let world = world(1);
    let mut reader = world.open(&["m0", "m1"]);
    assert_eq!(reader.expect("snapshot").await, json!([[["m0", null, 1, null]], ["m1"]]));
    let taken = SUBSCRIPTIONS_MAX - world.fanout.subscription_count();
    assert!(world.fanout.reserve(taken));
    world.list(vec![MarketInfo::bare_yes_no("m1")]);
    for number in 1..3 {
        assert_eq!(reader.expect("keepalive").await["n"], number);
    }
    world.fanout.subscription_count.fetch_sub(taken, Ordering::Relaxed);
    assert_eq!(reader.expect("keepalive").await["n"], 3);
    assert_eq!(reader.expect("market_price").await, json!(["m1", null, 1, null]));
    drop(reader);
    world.check_empty();
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_the_newest_state() {
    let world = world(2);
    let mut reader = world.open(&["m0", "m1"]);
    reader.expect("snapshot").await;
    for change in 1..=4 {
        world.publish("m0", change);
        world.publish("m1", change);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(reader.expect("market_price").await, json!(["m0", "0.0004", 5, true]));
    assert_eq!(reader.expect("market_price").await, json!(["m1", "0.0004", 5, true]));
    world.publish("m0", 5);
    assert_eq!(reader.expect("market_price").await, json!(["m0", "0.0005", 6, null]));
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_no_listed_market_waits_for_them() {
    let world = world(0);
    let mut reader = world.open(&["m0", "m1"]);
    assert_eq!(reader.expect("snapshot").await, json!([[], ["m0", "m1"]]));
    assert_eq!(reader.expect("keepalive").await["n"], 1);
    world.list(vec![MarketInfo::bare_yes_no("m1")]);
    assert_eq!(reader.expect("keepalive").await["n"], 2);
    assert_eq!(reader.expect("market_price").await, json!(["m1", null, 1, null]));
    world.list(vec![MarketInfo::bare_yes_no("m0")]);
    assert_eq!(reader.expect("keepalive").await["n"], 3);
    assert_eq!(reader.expect("market_price").await, json!(["m0", null, 1, null]));
    assert!(reader.stream.unlisted.is_empty());
    drop(reader);
    world.check_empty();
}

#[tokio::test(start_paused = true)]
async fn a_resolution_is_a_price_and_the_stream_goes_on() {
    let world = world(1);
    let mut reader = world.open(&["m0"]);
    reader.expect("snapshot").await;
    let info = MarketInfo::bare_yes_no("m0");
    let payouts = vec![Price::ONE, Price::from_micros(0)];
    let resolved = MarketInfo { status: MarketStatus::Resolved, payouts, ..info.clone() };
    for (info, buy, payouts) in [
        (MarketInfo { status: MarketStatus::Closed, ..info }, json!(null), 0),
        (resolved.clone(), json!("1"), 2),
    ] {
        let status = format!("{:?}", info.status).to_lowercase();
        world.list(vec![info]);
        let (kind, data) = reader.event().await;
        let state = (&data["active"], &data["closed"], &data["buy"]);
        assert_eq!((kind.as_str(), state), ("market_price", (&json!(false), &json!(true), &buy)));
        let end = reader.expect("market_status").await;
        assert_eq!(
            (&end["status"], &end["seq"], end["payouts"].as_array().map_or(0, Vec::len)),
            (&json!(status), &data["seq"], payouts)
        );
    }
    // It is said once, and not to those who come later.
    world.list(vec![resolved]);
    assert_eq!(reader.expect("market_price").await[0], "m0");
    assert_eq!(reader.expect("keepalive").await["n"], 1);
    let mut reader = world.open(&["m0"]);
    reader.expect("snapshot").await;
    assert_eq!(reader.expect("keepalive").await["n"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_gets_what_it_lacks() {
    let world = world(4);
    let ids = ["m0", "m1", "m2"];
    world.publish("m0", 1);
    let mut reader = world.open(&ids);
    reader.expect("snapshot").await;
    world.publish("m1", 2);
    world.publish("m3", 3);
    while reader.expect("market_price").await[0] != "m1" {}
    let last_id = reader.last_id.clone();
    // It is the last reader: whatever is known of its markets is not known from channels.
    drop(reader);

    let mut reader = world.open_after(last_id.as_deref(), &ids);
    assert_eq!(reader.expect("keepalive").await["n"], 1, "it lacks nothing");
    assert_eq!(reader.retry_ms, [1_002]);
    world.publish("m2", 4);
    assert_eq!(reader.expect("market_price").await[1], "0.0004");
    drop(reader);

    // It did not get what came meanwhile, once or repeatedly, before others followed the market or
    // while they did.
    let mut other = world.open(&["m0"]);
    other.expect("snapshot").await;
    for change in 5..8 {
        world.publish("m0", change);
        other.expect("market_price").await;
    }
    let mut reader = world.open_after(last_id.as_deref(), &["m2", "m0", "m1"]);
    let mut rows = [reader.expect("market_price").await, reader.expect("market_price").await];
    rows.sort_by_key(|row| row[0].to_string());
    let expected = [json!(["m0", "0.0007"]), json!(["m2", "0.0004"])];
    assert_eq!(rows.map(|row| json!([row[0], row[1]])), expected);
    assert_eq!(reader.expect("keepalive").await["n"], 1);
    assert_ne!(reader.last_id, last_id);
}

/// What a client missed of a market's stage and tick is said, once, when it comes back.
#[tokio::test(start_paused = true)]
async fn a_client_that_comes_back_hears_of_the_tick_and_the_end_that_it_missed() {
    let world = world(2);
    let ids = ["m0", "m1"];
    let mut reader = world.open(&ids);
    reader.expect("snapshot").await;
    let mut known = vec![reader.last_id.clone()];
    drop(reader);
    let info = MarketInfo { tick: Price::from_micros(1_000), ..MarketInfo::bare_yes_no("m0") };
    let closed = MarketInfo { status: MarketStatus::Closed, ..info.clone() };
    let payouts = vec![Price::ONE, Price::ZERO];
    let resolved = MarketInfo { status: MarketStatus::Resolved, payouts, ..info.clone() };
    let price = vec!["market_price"];
    let tick = vec!["tick_size_change", "tick_size_change"];
    let end = |status| vec!["market_price", status];
    for (change, since) in [
        (Some(info), vec![[tick.clone(), price.clone()].concat()]),
        (Some(closed), vec![[tick.clone(), end("closed")].concat(), end("closed")]),
        (Some(resolved), vec![[tick, end("resolved")].concat(), end("resolved"), end("resolved")]),
        (None, vec![]),
    ] {
        match change {
            Some(info) => world.list(vec![info]),
            None => world.publish("m0", 1),
        }
        let mut others = world.open(&ids);
        while others.event().await.0 != "keepalive" {}
        let now = others.last_id.clone();
        drop(others);
        for (last_id, expected) in known.iter().zip(&since) {
            let mut reader = world.open_after(last_id.as_deref(), &ids);
            let mut events = vec![];
            loop {
                let (kind, data) = reader.event().await;
                if kind == "keepalive" {
                    break;
                }
                let end = data["status"].as_str().filter(|_| kind == "market_status");
                // That the other was listed is its first change.
                if data.to_string().contains("\"m0\"") {
                    events.push(end.map_or(kind, str::to_owned));
                }
            }
            assert_eq!(events, *expected, "since {last_id:?}");
        }
        known.push(now);
    }
    let mut reader = world.open_after(known[3].as_deref(), &ids);
    reader.expect("market_price").await;
    reader.expect("keepalive").await;
}

#[tokio::test(start_paused = true)]
async fn an_id_that_does_not_apply_counts_as_none() {
    let world = world(2);
    let mut reader = world.open(&["m0", "m1"]);
    reader.expect("snapshot").await;
    world.publish("m0", 1);
    reader.expect("market_price").await;
    let id = reader.last_id.clone().unwrap();
    let EventId { scope, round } = EventId::parse(&id).unwrap();
    let later = EventId { scope, round: round + 1 }.to_string();
    let of_others = EventId { scope: scope ^ 1, round }.to_string();
    for (last_id, ids) in [
        (later.as_str(), &["m0", "m1"][..]),
        (&of_others, &["m0", "m1"]),
        ("", &["m0", "m1"]),
        ("7", &["m0", "m1"]),
        (&format!("{id}\n"), &["m0", "m1"]),
        (&id, &["m0"]),
        (&id, &["m0", "m1", "absent"][..1]),
    ] {
        let mut reader = world.open_after(Some(last_id), ids);
        let shown = reader.expect("snapshot").await;
        assert_eq!(shown.as_array().unwrap().len(), ids.len(), "{last_id:?}");
    }
    // The order of the markets makes no difference, nor do those that are not listed.
    for ids in [&["m1", "m0"][..], &["m0", "m1", "absent"]] {
        let mut reader = world.open_after(Some(&id), ids);
        assert_eq!(reader.expect("keepalive").await["n"], 1);
    }
    let other = self::world(2);
    other.open_after(Some(&id), &["m0", "m1"]).expect("snapshot").await;
}

/// A market that is listed while the client is away is new to it.
#[tokio::test(start_paused = true)]
async fn an_id_does_not_apply_to_markets_that_were_not_listed() {
    let world = world(1);
    let mut reader = world.open(&["m0", "m1"]);
    reader.expect("snapshot").await;
    world.publish("m0", 1);
    reader.expect("market_price").await;
    let before = reader.last_id.clone();
    world.list(vec![MarketInfo::bare_yes_no("m1")]);
    // It joins with the keepalive.
    reader.expect("keepalive").await;
    reader.expect("market_price").await;
    world.publish("m1", 2);
    reader.expect("market_price").await;
    let after = reader.last_id.clone();
    world.open_after(before.as_deref(), &["m0", "m1"]).expect("snapshot").await;
    world.open_after(after.as_deref(), &["m0", "m1"]).expect("keepalive").await;
}

/// What a client does, or what happens to a market, in the property below.
#[derive(Clone, Debug)]
enum Step {
    Publish(usize),
    Read,
    ComeBack,
}

proptest! {
    /// However often a client comes back, and wherever it was cut off, it ends up with the newest
    /// state of every market, from what it got alone.
    #[test]
    fn coming_back_loses_nothing(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (0..3_usize).prop_map(Step::Publish),
                3 => Just(Step::Read),
                1 => Just(Step::ComeBack),
            ],
            1..60,
        ),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let world = world(3);
            let ids = ["m0", "m1", "m2"];
            let mut reader = world.open(&ids);
            let mut known = std::collections::HashMap::new();
            let mut published = [0; 3];
            let mut note = |kind: &str, data: &Value| {
                let rows = match kind {
                    "snapshot" => data["prices"].as_array().unwrap().clone(),
                    "market_price" => vec![data.clone()],
                    _ => vec![],
                };
                for row in rows {
                    known.insert(row["market_id"].to_string(), row["best_bid"].clone());
                }
            };
            for (step, change) in steps.iter().zip(1..) {
                match step {
                    Step::Publish(market) => {
                        world.publish(&name(*market), change);
                        published[*market] = change;
                    }
                    Step::Read => {
                        let (kind, data) = reader.event().await;
                        note(&kind, &data);
                    }
                    Step::ComeBack => {
                        let last_id = reader.last_id.take();
                        drop(reader);
                        reader = world.open_after(last_id.as_deref(), &ids);
                        reader.last_id = last_id;
                    }
                }
            }
            loop {
                let (kind, data) = reader.event().await;
                if kind == "keepalive" && reader.received.is_empty() {
                    break;
                }
                note(&kind, &data);
            }
            for (market, change) in published.into_iter().enumerate() {
                let bid = (change > 0).then(|| Price::from_micros(change * 100).to_string());
                assert_eq!(known[&json!(name(market)).to_string()], json!(bid), "{steps:?}");
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn readers_come_back_one_after_the_other() {
    let world = world(1);
    let (mut first, mut second) = (world.open(&["m0"]), world.open(&["m0"]));
    for reader in [&mut first, &mut second] {
        reader.expect("snapshot").await;
    }
    assert_eq!([&first.retry_ms[..], &second.retry_ms], [[1_001], [1_002]]);
    for (reader, expected) in [(&second, "retry: 1001\n\n"), (&first, "retry: 1002\n\n")] {
        assert_eq!(reader.stream.farewell(), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_changed_tick_is_announced_for_each_outcome_before_the_price() {
    let world = world(1);
    let mut reader = world.open(&["m0"]);
    reader.expect("snapshot").await;
    for (tick_micros, tick, before) in [(1_000, 0.001, 0.01), (100, 0.0001, 0.001)] {
        let info = MarketInfo::bare_yes_no("m0");
        world.list(vec![MarketInfo { tick: Price::from_micros(tick_micros), ..info }]);
        for token in ["t-Yes", "t-No"] {
            let mut change = reader.expect("tick_size_change").await;
            assert!(change["ts_ms"].take().as_i64().is_some());
            let expected = json!({
                "type": "tick_size_change", "market": "m0", "asset_id": token, "tick_size": tick,
                "old_tick_size": before, "side": null, "ts_ms": null,
            });
            assert_eq!(change, expected);
        }
        reader.expect("market_price").await;
    }
    // One that changed and changed back between two prices is not announced.
    for tick_micros in [1_000, 100] {
        let info = MarketInfo::bare_yes_no("m0");
        world.list(vec![MarketInfo { tick: Price::from_micros(tick_micros), ..info }]);
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    assert_eq!(reader.expect("market_price").await, json!(["m0", null, 5, true]));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_shows_that_it_is_alive_every_five_seconds() {
    let world = world(0);
    let mut reader = world.open(&["m0"]);
    let began = Instant::now();
    reader.expect("snapshot").await;
    for n in 1..=3 {
        let data = reader.expect("keepalive").await;
        assert_eq!((&data["n"], began.elapsed().as_secs()), (&json!(n), 5 * n));
        assert!(data["ts"].as_str().unwrap().ends_with('Z'), "{data}");
    }
    // What was missed while the reader took nothing is not made up for.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert_eq!(reader.expect("keepalive").await["n"], 4);
    assert!(timeout(Duration::from_secs(4), reader.event()).await.is_err());
    assert_eq!(reader.expect("keepalive").await["n"], 5);
}

/// However long the texts of the markets are, a batch is bounded.
#[tokio::test(start_paused = true)]
async fn a_long_snapshot_is_sent_in_pieces() {
    const LABEL_BYTES: usize = 200;
    let world = world(0);
    let label = |number: usize| format!("{number:x<LABEL_BYTES$}");
    let outcomes = |market: usize| {
        (0..64).map(move |number| paperbourse_core::market::catalogue::Outcome {
            label: label(number).into(),
            token_id: format!("{market}-{number}").into(),
        })
    };
    let count = MARKETS_MAX as usize;
    world.list((0..count).map(|m| MarketInfo::bare(&name(m), outcomes(m))).collect());
    let ids: Vec<String> = (0..count).map(name).collect();
    let mut reader = world.open(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let frame_bytes_max = 64 * (2 * LABEL_BYTES + 200);
    while !reader.received.ends_with("\n\n") {
        let batch = reader.batch().await;
        assert!(batch.len() <= WRITE_BYTES_GOAL + frame_bytes_max, "{}", batch.len());
        reader.received.push_str(&batch);
        let is_amid = !reader.received.ends_with("\n\n");
        assert_eq!(reader.stream.farewell().is_empty(), is_amid);
    }
    assert!(reader.received.len() > 10 * WRITE_BYTES_GOAL);
    let shown = reader.expect("snapshot").await;
    let expected: Vec<_> = ids.iter().map(|id| json!([id, null, 1, null])).collect();
    assert_eq!(shown, json!(expected));
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_gets_little_at_a_time() {
    let world = world(MARKETS_MAX as usize);
    let ids: Vec<String> = (0..MARKETS_MAX as usize).map(name).collect();
    let mut reader = world.open(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    for is_snapshot in [true, false] {
        reader.stream.note_slow();
        for _ in 0..2 {
            let batch = reader.batch().await;
            let is_little = SLOW_WRITE_BYTES_GOAL..SLOW_WRITE_BYTES_GOAL + 1_024;
            assert!(is_little.contains(&batch.len()), "{} bytes, {is_snapshot}", batch.len());
            assert_eq!(batch.starts_with("event: market_price"), !is_snapshot, "{batch}");
        }
        tokio::time::sleep(SLOW_TIME).await;
        assert!(reader.batch().await.len() > SLOW_WRITE_BYTES_GOAL + 1_024, "it is fast again");
        for id in &ids {
            world.publish(id, 1);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_be_opened_leaves_nothing_behind() {
    let world = world(MARKETS_MAX as usize + 1);
    let ids: Vec<String> = (0..=MARKETS_MAX as usize).map(name).collect();
    let open = |ids: &[String]| {
        let open = world.counts.try_open(holder(), 1).unwrap();
        let from = (&world.fanout, &world.turns);
        EventStream::open(from, ids, None, open, Timestamp::EPOCH).err()
    };
    let too_many = SubscribeError::TooMany { markets_max: 50, subscribed: 0, added: 51 };
    assert_eq!(open(&ids), Some(OpenError::Markets(too_many)));
    world.check_empty();
    let others: Vec<_> = (0..READERS_MAX)
        .map(|_| world.fanout.open(MarketsMax::Count(1), &world.turns).unwrap())
        .collect();
    assert_eq!(open(&ids[1..]), Some(OpenError::Busy));
    drop(others);
    world.check_empty();
    assert_eq!(open(&ids[1..]), None);
    world.check_empty();
}
