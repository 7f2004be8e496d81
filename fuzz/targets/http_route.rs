//! Whatever arrives on a connection, the server must not fail: it never answers 500, each answer
//! has the request's id, and an answer declared as JSON is JSON. This covers the whole path from
//! the first byte of a request head to the journal in memory; only the network and the timers'
//! clock are fake.
//!
//! Each input goes to two servers: one whose connections have a lane, and one where hyper serves
//! all requests. Their answers differ in numbers and random names alone.
//!
//! Both have the venue's interface beside their own. In the input, `{key}` stands for a valid API
//! key and `{token}` for an access token.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{Method, Request, Response, StatusCode};
use paperbourse::auth::identity::IdentitySource;
use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::auth::ws_token::WsTokens;
use paperbourse::clock::Clock;
use paperbourse::engine::Rules;
use paperbourse::http::app::{AppState, ConnectionSlot, Server, Worker};
use paperbourse::http::body::RequestBody;
use paperbourse::http::connection::{Deadlines, IsHot, Outgoing, ReplyBody, serve_connection};
use paperbourse::http::handle::handle;
use paperbourse::http::hot::is_hot_with_clob;
use paperbourse::http::route::{RouteError, find};
use paperbourse::ids::Timestamp;
use paperbourse::journal::{Journal, JournalConfig, MemoryJournal};
use paperbourse::limits::bucket::AccountRates;
use paperbourse::limits::tier::{TierTable, Tiers};
use paperbourse::market::Markets;
use paperbourse::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse::service::{Parts, Service, key_observer, key_table};
use paperbourse::shard::Shards;
use paperbourse::snapshot::Recovered;
use paperbourse::venue::VenueStatus;
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::polymarket::wire::clob;
use paperbourse::venue::{VenueChange, VenueEvent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

const CONNECTION_MAX: Duration = Duration::from_mins(10);

/// How long a task may outlive the connection that it was spawned for.
const TASK_MAX: Duration = Duration::from_mins(1);

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const BOOK: &str = concat!(
    r#"{"market":"0x1","asset_id":"1","timestamp":"1","bids":[{"price":"0.4","size":"1000"}],"#,
    r#""asks":[{"price":"0.6","size":"1000"},{"price":"0.5","size":"2.5"}]}"#,
);

/// The exchange shared by all inputs, and a runtime with one thread.
struct World {
    runtime: Runtime,
    worker: Worker,
    slot: Arc<ConnectionSlot>,
    token: String,
    key: String,
    /// How many tasks the worker itself has, which its first requests spawn.
    worker_tasks: usize,
    is_hot: Option<IsHot>,
}

/// The two servers, which get the same inputs in the same order.
static WORLDS: LazyLock<Mutex<[World; 2]>> =
    LazyLock::new(|| Mutex::new([World::new(None), World::new(Some(is_hot_with_clob))]));

/// The shortest word that counts as a random name, such as a key or a token.
const RANDOM_NAME_BYTES_MIN: usize = 16;

/// An exchange with one market, and an access token.
fn exchange() -> (AppState, String) {
    let journal: Arc<Journal> = Arc::new(MemoryJournal::new(&JournalConfig::default()).into());
    let markets = Arc::new(Markets::new());
    let mut feed = Feed::new(markets.clone(), MismatchPolicy::Count);
    let outcomes = [("Yes", "1"), ("No", "2")]
        .map(|(label, token)| Outcome { label: label.into(), token_id: token.into() });
    let info = MarketInfo { status: MarketStatus::Open, ..MarketInfo::bare("0x1", outcomes) };
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: VenueChange::Listed(vec![info]) });
    feed.apply(clob::book(BOOK).unwrap().event(|name| name.into()));

    let mut tiers = Tiers::default();
    tiers.set("free=unlimited/unlimited/2/5".parse().unwrap());
    let recovered = Recovered::default();
    let keys = Arc::new(key_table(recovered.states(), &tiers).unwrap());
    let tiers = Arc::new(TierTable::new(tiers));
    let observer = key_observer(keys.clone(), tiers.clone());
    let rules = Rules::default();
    let shards = Arc::new(Shards::new(
        recovered,
        journal.clone(),
        markets.clone(),
        rules,
        Clock::System,
        Arc::default(),
        observer,
    ));
    let issuer = EmbeddedIssuer::in_memory().unwrap();
    let token = issuer.mint("somebody", None, u32::MAX, Timestamp::now()).unwrap();
    let service = Service::new(Parts {
        markets,
        shards,
        keys,
        issuer: IdentitySource::Embedded(issuer),
        ws_tokens: WsTokens::from_secret([7; 32]),
        tiers,
        default_tier: paperbourse::limits::tier::Tier::Free,
        address_rules: None,
        account_rates: AccountRates::UNLIMITED,
    });
    (AppState::new(service, journal, VenueStatus::default()), token)
}

impl World {
    fn new(is_hot: Option<IsHot>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        let server = Arc::new(Server::new(1).with_clob());
        let (exchange, token) = exchange();
        server.open(Arc::new(exchange));
        let slot =
            ConnectionSlot::new(server.connections.admit(None, 0).unwrap(), mpsc::channel(1).0);
        let (worker, slot) = (Worker::new(server), Arc::new(slot));
        let (key, worker_tasks) = (String::new(), usize::MAX);
        let mut world = Self { runtime, worker, slot, token, key, worker_tasks, is_hot };
        let body = r#"{"permissions":["read","trade","admin"]}"#;
        let bootstrap = format!(
            "POST /v1/keys/bootstrap HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {{token}}\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = String::from_utf8(world.serve(bootstrap.as_bytes())).unwrap();
        let (_, after) = answer
            .split_once(r#""raw_key":""#)
            .unwrap_or_else(|| panic!("no key was made: {answer}"));
        after.split_once('"').unwrap().0.clone_into(&mut world.key);
        // A client that sends ahead, and a socket.
        world.serve(&b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n".repeat(2));
        let upgrade = "GET /v1/ws/prices HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\
                       connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
        let answer = String::from_utf8_lossy(&world.serve(upgrade.as_bytes())).into_owned();
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        world.runtime.block_on(async { tokio::time::sleep(TASK_MAX).await });
        world.worker_tasks = world.runtime.metrics().num_alive_tasks();
        world
    }

    /// Everything that the server sends to a client that sends this input and then only listens,
    /// until the connection has been idle for too long. The clock is paused, so that takes no time.
    fn serve(&self, input: &[u8]) -> Vec<u8> {
        let input = replace(input, b"{key}", self.key.as_bytes());
        let input = replace(&input, b"{token}", self.token.as_bytes());
        let (client, server) = tokio::io::duplex(64 << 10);
        let (mut reader, mut writer) = tokio::io::split(client);
        let handler = |request| self.answer(request);
        let mut answers = Vec::new();
        self.runtime.block_on(async {
            // The server may close the connection before everything is sent.
            let send = async { drop(writer.write_all(&input).await) };
            let (deadlines, never) = (Deadlines::default(), std::future::pending());
            let served = serve_connection(server, deadlines, self.is_hot, handler, never);
            let all = async { tokio::join!(served, send, reader.read_to_end(&mut answers)) };
            // A socket may stay open for longer than other connections.
            let _ = tokio::time::timeout(CONNECTION_MAX, all).await;
            drop((reader, writer));
            // The client is gone, so what the server spawned for it ends: the task of a socket.
            let spawned = self.runtime.metrics();
            let until = tokio::time::Instant::now() + TASK_MAX;
            while spawned.num_alive_tasks() > self.worker_tasks {
                assert!(tokio::time::Instant::now() < until, "a task outlives its connection");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        answers
    }

    async fn answer(&self, request: Request<RequestBody>) -> Response<ReplyBody> {
        for has_clob in [false, true] {
            check_route(request.uri().path(), has_clob);
        }
        let response = handle(&self.worker, &self.slot, ADDRESS, request).await.into_response();
        assert_ne!(response.status(), StatusCode::INTERNAL_SERVER_ERROR, "{response:?}");
        assert!(response.headers().contains_key("x-request-id"));
        let is_json = |value: &[u8]| value.starts_with(b"application/json");
        if response.headers().get("content-type").is_some_and(|value| is_json(value.as_bytes()))
            && let ReplyBody::Whole(body, _) = response.body()
        {
            let body = body.clone().collect().await.unwrap().to_bytes();
            serde_json::from_slice::<serde::de::IgnoredAny>(&body).expect("its type is JSON");
        }
        response
    }
}

/// Whether a path exists does not depend on the method, unless an operation is left out on purpose.
fn check_route(path: &str, has_clob: bool) {
    let methods = [Method::GET, Method::HEAD, Method::POST, Method::DELETE, Method::PATCH];
    let found = methods.map(|method| find(&method, path, has_clob));
    assert_eq!(found[0], found[1], "HEAD has the same route as GET");
    let is_left_out = |result: &_| matches!(result, Err(RouteError::NotOffered { .. }));
    let is_unknown = |result: &Result<_, _>| *result == Err(RouteError::NotFound);
    let mut unknown = found.iter().filter(|result| !is_left_out(*result)).map(is_unknown);
    let first = unknown.next();
    assert!(unknown.all(|is_unknown| Some(is_unknown) == first));
}

fn replace(text: &[u8], word: &[u8], by: &[u8]) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.windows(word.len()).position(|window| window == word) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(by);
        rest = &rest[at + word.len()..];
    }
    replaced.extend_from_slice(rest);
    replaced
}

/// An answer without what differs from server to server and from second to second.
fn common(answers: &[u8]) -> String {
    let text = String::from_utf8_lossy(answers);
    let is_common =
        |line: &&str| !["date: ", "x-request-id: "].iter().any(|it| line.starts_with(it));
    let lines = text.split_inclusive('\n').filter(is_common);
    let mut common = String::new();
    for line in lines {
        let is_of_word = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
        for word in line.split_inclusive(|letter| !is_of_word(letter)) {
            if word.len() > RANDOM_NAME_BYTES_MIN {
                common.push('*');
                common.extend(word.chars().last());
            } else {
                common.extend(word.chars().map(|it| if it.is_ascii_digit() { '#' } else { it }));
            }
        }
    }
    while common.contains("##") {
        common = common.replace("##", "#");
    }
    common
}

pub(crate) fn run(input: &[u8]) {
    let worlds = WORLDS.lock().unwrap_or_else(PoisonError::into_inner);
    let [by_hyper, by_lane] = worlds.each_ref().map(|world| world.serve(input));
    for answers in [&by_hyper, &by_lane] {
        let is_answer = answers.is_empty() || answers.starts_with(b"HTTP/1.");
        assert!(is_answer, "{}", answers.escape_ascii());
    }
    assert_eq!(common(&by_lane), common(&by_hyper));
}
