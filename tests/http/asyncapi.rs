//! The document at `/asyncapi.json` against the server: the official parser accepts it, and what
//! crosses sockets and streams has the described form. [`frames`] looks at all sockets and streams
//! of these tests; the tests here show that it can object.

pub(crate) mod frames;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use frames::Channel;
use paperbourse::http::asyncapi::document;
use paperbourse::http::operations::OPERATIONS;
use paperbourse::ids::Timestamp;
use paperbourse::limits::bucket::Origin;
use paperbourse::market::Markets;
use paperbourse::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse::money::Price;
use paperbourse::ws::counts::StreamCounts;
use paperbourse::ws::event_stream::EventStream as Stream;
use paperbourse::ws::execution_frame::ExecutionRequest;
use paperbourse::ws::fanout::Fanout;
use paperbourse::ws::protocol;
use paperbourse::ws::turns::Turns;
use paperbourse_test_support::Request;
use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::socket::{Socket, upgrade};
use serde_json::{Value, json};

use super::recording::{PLAIN, buy};
use super::server::{Server, shared};

const PRICES: &str = "/v1/ws/prices";
const EXECUTIONS: &str = "/v1/ws/executions";
const STREAM: &str = "/prices/stream";

#[test]
fn every_socket_and_stream_is_described() {
    let served = shared().get("/asyncapi.json").ok(200);
    assert_eq!(served, document());
    let rows = OPERATIONS.iter().map(|row| row.path.as_str());
    let mut paths: Vec<&str> =
        rows.filter(|path| path.contains("/ws/") || path.ends_with("/stream")).collect();
    paths.sort_unstable();
    let channels = served["channels"].as_object().unwrap().values();
    let mut described: Vec<&str> = channels.map(|it| it["address"].as_str().unwrap()).collect();
    described.sort_unstable();
    assert_eq!(described, paths);
}

/// The folder of the official parser; `None` if it is not installed, which fails in CI.
fn parser() -> Option<String> {
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = results.join("asyncapi");
    let missing = if Command::new("node").arg("--version").output().is_err() {
        "node is not installed"
    } else if !folder.join("installed").exists() {
        "the parser of AsyncAPI is not installed (.ci/asyncapi does it)"
    } else {
        return Some(folder.to_str().unwrap().to_owned());
    };
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
    eprintln!("SKIPPED: {missing}, so /asyncapi.json was not parsed");
    None
}

/// What the official parser objects to in each of these documents.
#[track_caller]
fn objections(parser: &str, documents: &[Value]) -> Vec<Vec<Value>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/asyncapi/parse.cjs");
    let mut node = Command::new("node")
        .arg(script)
        .arg(parser)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    node.stdin.take().unwrap().write_all(json!(documents).to_string().as_bytes()).unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn the_official_parser_accepts_the_document() {
    let Some(parser) = parser() else { return };
    let mut documents = vec![document()];
    for (pointer, wrong) in [
        ("/operations/prices_ping/action", json!("answer")),
        ("/operations/prices_ping/messages/0/$ref", json!("#/channels/prices/messages/dance")),
        ("/channels/prices/servers/0/$ref", json!("#/servers/elsewhere")),
    ] {
        let mut broken = document();
        *broken.pointer_mut(pointer).unwrap() = wrong;
        documents.push(broken);
    }
    let objections = objections(&parser, &documents);
    assert_eq!(objections.len(), documents.len());
    assert_eq!(objections[0], Vec::<Value>::new());
    assert!(objections[1..].iter().all(|found| !found.is_empty()), "{objections:#?}");
}

/// A message of each type by its path and name.
type Frames = BTreeMap<(&'static str, String), Value>;

/// What a server sends on its sockets, and what clients send there.
fn frames_of_sockets(frames: &mut Frames) {
    // It forgets fills soon, so that there is a gap.
    let server = Server::unlimited_with(&["--keep-orders", "2"]);
    let account = server.account();
    let mut prices = Socket::open(&server, &upgrade(PRICES).key(&account.key)).unwrap();
    let mut executions = Socket::open(&server, &upgrade(EXECUTIONS).key(&account.key)).unwrap();
    let of_prices = [
        json!({ "action": "subscribe", "markets": [PLAIN] }),
        json!({ "action": "ping" }),
        json!({ "action": "subscribe", "markets": ["0xabsent"] }),
    ];
    let of_executions = [
        json!({ "action": "resume", "after": 0 }),
        json!({ "action": "subscribe" }),
        json!({ "action": "ping" }),
        json!({ "action": "dance" }),
    ];
    for number in 1..=4 {
        let mut order = buy(number);
        order["client_order_id"] = format!("mine-{number}").into();
        account.post("/trade", &order).ok(200);
    }
    for (path, socket, requests) in
        [(PRICES, &mut prices, &of_prices[..]), (EXECUTIONS, &mut executions, &of_executions)]
    {
        let channel = Channel::at(path).unwrap();
        for request in requests {
            socket.say(request);
            let name = request["action"].as_str().unwrap().to_owned();
            if channel.received.contains_key(&name) {
                frames.entry((path, name)).or_insert(request.clone());
            }
        }
        // Of the end of a market, the stream says the same.
        while !channel
            .sent
            .keys()
            .all(|name| name == "market_status" || frames.contains_key(&(path, name.clone())))
        {
            let frame = socket.text();
            frames.entry((path, frame["type"].as_str().unwrap().to_owned())).or_insert(frame);
        }
    }
    let unsubscribe = json!({ "action": "unsubscribe", "markets": [PLAIN] });
    prices.say(&unsubscribe);
    while prices.text_of("subscribed")["markets"] != json!([]) {}
    frames.insert((PRICES, "unsubscribe".to_owned()), unsubscribe);
}

/// What a server sends on streams.
fn frames_of_streams(frames: &mut Frames) {
    let server = Server::simulated();
    let market = server.get("/v1/markets?limit=1").ok(200)[0]["condition_id"].clone();
    let path = format!("{STREAM}?condition_ids={},0xabsent", market.as_str().unwrap());
    let mut stream = EventStream::open(&server, &Request::get(path)).unwrap();
    for (name, frame) in changes() {
        if name == "market_status" {
            frames.insert((PRICES, name.clone()), frame.clone());
        }
        frames.insert((STREAM, name), frame);
    }
    let own = &Channel::at(STREAM).unwrap().sent;
    while !own.keys().all(|name| frames.contains_key(&(STREAM, name.clone()))) {
        let (name, data) = stream.event();
        frames.entry((STREAM, name)).or_insert(data);
    }
}

/// What a stream says when the tick of its market changes and when the market is resolved, which no
/// venue of these tests does. Of the second, the price socket says the same.
fn changes() -> Vec<(String, Value)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let markets = Arc::new(Markets::new());
        let fanout = Arc::new(Fanout::new(markets.clone()));
        let passing_on = fanout.clone();
        tokio::spawn(async move { passing_on.run().await });
        let outcomes = [("Yes", "71"), ("No", "72")];
        let outcomes =
            outcomes.map(|(label, token)| Outcome { label: label.into(), token_id: token.into() });
        let listed = MarketInfo::bare(PLAIN, outcomes);
        markets.list(vec![listed.clone()]).unwrap();
        let counts: Arc<StreamCounts> = Arc::default();
        let open = counts.try_open(Origin::of([127, 0, 0, 1].into()), 1).unwrap();
        let ids = [PLAIN.to_owned()];
        let turns: Arc<Turns> = Arc::default();
        let from = (&fanout, &turns);
        let mut stream = Stream::open(from, &ids, None, open, Timestamp::now()).unwrap();
        tokio::spawn(async move { turns.run(|| {}).await });
        let mut text = String::new();
        loop {
            let bytes = std::future::poll_fn(|context| stream.poll_bytes(context)).await;
            let is_first = text.is_empty();
            text.push_str(std::str::from_utf8(&bytes).unwrap());
            if is_first {
                let (tick, status) = (Price::from_micros(1_000), MarketStatus::Resolved);
                let payouts = vec![Price::ONE, Price::ZERO];
                let changed = MarketInfo { tick, status, payouts, ..listed.clone() };
                markets.list(vec![changed]).unwrap();
            }
            let said = ["tick_size_change", "market_status"].map(|name| {
                let (_, event) = text.split_once(&format!("event: {name}\ndata: "))?;
                let data = event.lines().next()?;
                Some((name.to_owned(), serde_json::from_str(data).unwrap()))
            });
            if let [Some(tick), Some(status)] = said {
                return vec![tick, status];
            }
        }
    })
}

/// The names and types in a value.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            // A map has the shape of one of its values.
            let is_map = fields.keys().all(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
            let named = |(name, field): (&String, &Value)| (name.clone(), shape(field));
            match fields.values().next() {
                Some(first) if is_map => json!({ "*": shape(first) }),
                _ => fields.iter().map(named).collect(),
            }
        }
        Value::Array(list) => list.iter().take(1).map(shape).collect(),
        Value::String(text) if text.parse::<f64>().is_ok() => "a number as text".into(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "a number".into(),
        Value::Bool(_) => "true or false".into(),
        Value::Null => Value::Null,
    }
}

#[test]
fn examples_are_what_a_server_says() {
    let mut frames = Frames::new();
    frames_of_sockets(&mut frames);
    frames_of_streams(&mut frames);
    let document = document();
    let mut count = 0;
    let mut wrong = Vec::new();
    for channel in document["channels"].as_object().unwrap().values() {
        let path = channel["address"].as_str().unwrap();
        let path = [PRICES, EXECUTIONS, STREAM].into_iter().find(|it| *it == path).unwrap();
        for (name, message) in channel["messages"].as_object().unwrap() {
            let example = &message["examples"][0]["payload"];
            let sent = &frames[&(path, name.clone())];
            if shape(example) != shape(sent) {
                wrong.push(format!("{path} {name}: {sent}"));
            }
            count += 1;
        }
    }
    assert_eq!(count, frames.len());
    assert!(wrong.is_empty(), "in src/edge/http/asyncapi/examples.json: {}", wrong.join("\n"));
}

/// Values of every type.
fn values() -> [Value; 9] {
    [
        Value::Null,
        json!(true),
        json!(-1),
        json!(7),
        json!(0.5),
        json!("text"),
        json!("0.5"),
        json!(["a"]),
        json!({ "a": 1 }),
    ]
}

/// Whether two values have the same type. Every number and every text counts as another type,
/// unless both are the same kind of number or text.
fn is_alike(value: &Value, other: &Value) -> bool {
    shape(value) == shape(other) && value.is_u64() == other.is_u64()
}

#[test]
fn what_is_not_described_is_objected_to() {
    let document = document();
    let mut count = 0;
    for channel in document["channels"].as_object().unwrap().values() {
        let own = Channel::at(channel["address"].as_str().unwrap()).unwrap();
        for (name, message) in channel["messages"].as_object().unwrap() {
            let example = &message["examples"][0]["payload"];
            if !own.sent.contains_key(name) {
                assert_eq!(own.name_of(example.to_string().as_bytes()), Some(name.as_str()));
                continue;
            }
            assert_eq!(own.objections(name, example), Vec::<String>::new(), "{name}");
            assert_ne!(own.objections("dance", example), Vec::<String>::new());
            let mut changed = example.clone();
            changed["surprise"] = true.into();
            assert_ne!(own.objections(name, &changed), Vec::<String>::new(), "{name}");
            for (field, value) in example.as_object().unwrap() {
                let is_objected_to = |other: &&Value| {
                    let mut changed = example.clone();
                    changed[field] = (*other).clone();
                    !own.objections(name, &changed).is_empty()
                };
                let others = values();
                let others: Vec<&Value> = others.iter().filter(|it| !is_alike(value, it)).collect();
                let objected = others.iter().filter(|it| is_objected_to(it)).count();
                // Null, and of ids and labels every text, may be described too.
                assert!(objected + 3 > others.len(), "{name}.{field}: {objected} of {others:?}");
                assert!(objected >= 4, "{name}.{field}: {objected} of {others:?}");
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
}

/// The hook in every socket of these tests fails them, in both directions.
#[test]
fn a_witness_fails_the_test() {
    let ping = json!({ "action": "ping" });
    let dance = json!({ "action": "dance" });
    let pong = json!({ "type": "pong", "ts": 7 });
    let closed = json!({ "code": 4001, "reason": "the credential is not valid" });
    for (sent, received, is_fine) in [
        (Some(&ping), pong.clone(), true),
        (None, pong.clone(), false),
        (Some(&dance), pong.clone(), false),
        (Some(&dance), json!({ "type": "error", "message": "unknown" }), true),
        (Some(&ping), json!({ "type": "pong", "ts": "7" }), false),
        (Some(&ping), json!({ "type": "pong", "ts": 7, "more": 1 }), false),
        (Some(&ping), json!({ "type": "pong" }), false),
        (None, json!({ "type": "fill" }), false),
        (None, closed, true),
        (None, json!({ "code": 4001, "reason": "" }), false),
        (None, json!({ "code": 4009, "reason": "no reason" }), false),
    ] {
        let outcome = std::panic::catch_unwind(|| {
            let mut witness = frames::witness(PRICES).unwrap();
            if let Some(sent) = sent {
                witness.sent(sent.to_string().as_bytes());
            }
            match (received["code"].as_u64(), received["type"].as_str()) {
                (Some(code), _) => witness
                    .closed(u16::try_from(code).unwrap(), received["reason"].as_str().unwrap()),
                (_, kind) => witness.received(kind.unwrap(), &received),
            }
        });
        assert_eq!(outcome.is_ok(), is_fine, "{sent:?} {received}");
    }
    assert!(frames::witness("/v1/ws/elsewhere").is_none());
}

#[test]
fn requests_are_accepted_and_refused_as_described() {
    let long = [256, 257].map(|length| json!(["x".repeat(length)]));
    let lists = [json!([]), json!([1]), json!([null]), json!(["a", "a"]), json!(u64::MAX)];
    let mut count = [0, 0];
    for path in [PRICES, EXECUTIONS] {
        let parse = |text: &[u8]| match path {
            PRICES => protocol::Request::parse(text).is_ok(),
            _ => ExecutionRequest::parse(text).is_ok(),
        };
        let channel = Channel::at(path).unwrap();
        let actions = ["subscribe", "unsubscribe", "resume", "ping", "Ping", "dance", ""];
        let actions = actions.map(Value::from).into_iter().chain(values());
        for (action, key) in actions.flat_map(|it| [(it.clone(), "action"), (it, "type")]) {
            for field in ["markets", "conditions", "after", "other"] {
                for value in values().iter().chain(&long).chain(&lists) {
                    let text = json!({ key: action, field: value }).to_string();
                    let is_described = channel.name_of(text.as_bytes()).is_some();
                    assert_eq!(parse(text.as_bytes()), is_described, "{path} {text}");
                    count[usize::from(is_described)] += 1;
                }
            }
        }
        for text in ["", "x", "[]", "null", "7", "{}", r#"{"markets":[]}"#] {
            assert!(!parse(text.as_bytes()) && channel.name_of(text.as_bytes()).is_none());
        }
    }
    assert!(count.iter().all(|it| *it > 200), "{count:?}");
}
