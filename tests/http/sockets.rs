//! The price socket from the client's side.

use std::collections::HashSet;
use std::io::Read as _;
use std::time::{Duration, Instant};

use paperbourse::limits::tier::Tier;
use paperbourse::venue::simulated::DEEP_MARKET_CONDITION_ID;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Decimal, Flag, Integer, List, Object, Text, Time};
use super::expect::{check_error, check_fields, eventually};
use super::recording::{DEEP, MARKETS, PLAIN, other};
use super::server::{Account, Server, shared};
use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::socket::{BINARY, Frame, PING, Socket, TEXT, TEXT_BEGINS, upgrade};

const PATH: &str = "/v1/ws/prices";

fn ws_token(account: &Account<'_>, key: &str) -> String {
    let request = Request::post("/v1/keys/ws-token", &json!({})).key(key);
    let token = account.server.send(&request).ok(200);
    token["token"].as_str().unwrap().to_owned()
}

/// Opens a socket with any credential, and returns the first frame.
fn first_frame(request: &Request) -> Frame {
    Socket::open(shared(), request).unwrap().next_frame()
}

#[test]
fn the_first_frame_names_the_account_of_the_socket() {
    let account = shared().account();
    let order = account.buy(1);
    let path = format!("/trades/{}/comments", order["order_id"]);
    let comment = account.post(path, &json!({"content": "x"})).ok(200);
    let token = ws_token(&account, &account.key);
    let token_of_token = {
        let request = Request::post("/v1/keys/ws-token", &json!({})).bearer(&account.token);
        shared().send(&request).ok(200)["token"].as_str().unwrap().to_owned()
    };
    for request in [
        upgrade(&format!("{PATH}?token={token}")),
        upgrade(PATH).key(&account.key),
        upgrade(PATH).bearer(&account.key),
        upgrade(&format!("{PATH}?token={token_of_token}")),
    ] {
        let mut socket = Socket::open(shared(), &request).unwrap();
        let hello = socket.text();
        let user_id = &comment["account_id"];
        let expected = json!({"type": "connected", "user_id": user_id, "protocol_version": "1.0"});
        assert_eq!(hello, expected);
        socket.end();
    }
}

#[test]
fn an_insufficient_credential_is_closed_4001() {
    let account = shared().account();
    let trades = account.new_key(&json!({"permissions": ["trade"]}));
    let trades = trades["raw_key"].as_str().unwrap();
    let revoked = account.new_key(&json!({}));
    let of_revoked = ws_token(&account, revoked["raw_key"].as_str().unwrap());
    account.delete(format!("/v1/keys/{}", revoked["id"])).ok(200);
    let of_trades = ws_token(&account, trades);
    let long = "x".repeat(5_000);
    for request in [
        upgrade(PATH),
        upgrade(PATH).key("nonsense"),
        upgrade(PATH).key(trades),
        upgrade(PATH).key(revoked["raw_key"].as_str().unwrap()),
        upgrade(PATH).bearer(&account.token),
        upgrade(PATH).bearer("nonsense"),
        upgrade(&format!("{PATH}?token=nonsense")),
        upgrade(&format!("{PATH}?token={long}")),
        upgrade(&format!("{PATH}?token={of_revoked}")),
        upgrade(&format!("{PATH}?token={of_trades}")),
        // A token in the URL takes precedence.
        upgrade(&format!("{PATH}?token=nonsense")).key(&account.key),
    ] {
        assert_eq!(first_frame(&request), Frame::Close(4001));
    }
}

#[test]
fn a_request_that_is_no_upgrade_gets_426() {
    let account = shared().account();
    let offer = |request: Request| {
        request.header("upgrade", "websocket").header("connection", "Upgrade").key(&account.key)
    };
    let version = |text: &str| Request::get(PATH).header("sec-websocket-version", text);
    for request in [
        Request::get(PATH).key(&account.key),
        offer(version("8")).header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        offer(version("13")),
    ] {
        let mut connection = shared().connect();
        let response = connection.send(&request);
        check_error(&response, 426, "UPGRADE_REQUIRED");
        assert_eq!(response.header("upgrade"), Some("websocket"));
        assert_eq!(response.header("connection"), Some("upgrade"));
        assert_eq!(response.header("sec-websocket-version"), Some("13"));
        // It was an ordinary request, so the connection stays open.
        connection.send(&Request::get("/v1/health")).ok(200);
    }
    // None of these counted as a socket of the account.
    Socket::prices(shared(), &account.key);
    let head = upgrade_with("HEAD").key(&account.key);
    assert_eq!(shared().send(&head).status, 426);
}

/// As nginx asks for a socket unless it is told to speak HTTP/1.1: it would pass no frame on.
#[test]
fn a_socket_over_http_1_0_is_refused() {
    let account = shared().account();
    for path in [PATH, "/v1/ws/executions"] {
        for key in [account.key.as_str(), "nonsense"] {
            let mut connection = shared().connect();
            let head = format!(
                "GET {path} HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                 X-API-Key: {key}\r\n\r\n"
            );
            connection.write(head.as_bytes());
            let refused = connection.read(false);
            check_error(&refused, 426, "HTTP_VERSION_TOO_OLD");
            assert_eq!(refused.header("upgrade"), Some("HTTP/1.1"));
        }
    }
}

fn upgrade_with(method: &'static str) -> Request {
    let request = Request::new(method, PATH).header("upgrade", "websocket");
    let request = request.header("connection", "Upgrade").header("sec-websocket-version", "13");
    request.header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// A client that has read the close frame may reconnect at once.
#[test]
fn a_socket_stops_counting_before_its_close_frame_is_read() {
    let account = shared().account();
    let _other = Socket::prices(shared(), &account.key);
    for _ in 0..30 {
        Socket::prices(shared(), &account.key).end();
    }
}

#[test]
fn the_tier_caps_the_open_sockets_of_an_account() {
    for (tier, most) in [(Tier::Free, 2), (Tier::Pro, 10)] {
        let account = shared().account_with(&json!({"tier": tier.as_str()}), Some(tier));
        let other_key = account.new_key(&json!({"tier": tier.as_str()}));
        let other_key = other_key["raw_key"].as_str().unwrap();
        let mut open: Vec<Socket> =
            (0..most).map(|_| Socket::prices(shared(), &account.key)).collect();
        for key in [&account.key, other_key] {
            assert_eq!(first_frame(&upgrade(PATH).key(key)), Frame::Close(4002), "{tier}");
        }
        // Other accounts are not affected, and a closed socket no longer counts.
        Socket::prices(shared(), &shared().account().key);
        open.pop().unwrap().end();
        Socket::prices(shared(), other_key);
    }
}

#[track_caller]
fn check_price(frame: &Value, market: &str) {
    check_fields(
        frame,
        &[
            ("type", Text),
            ("market_id", Text),
            ("condition_id", Text),
            ("seq", Integer),
            ("emit_ts_ms", Integer),
            ("source", Text),
            ("updated_at", Time),
            ("stale", Flag),
            ("active", Flag),
            ("closed", Flag),
            ("volume", Decimal),
            ("buy", Decimal),
            ("sell", Decimal),
            ("best_bid", Decimal),
            ("best_ask", Decimal),
            ("last_trade", Decimal),
            ("outcomes", List),
            ("tokens", Object),
        ],
    );
    assert_eq!((&frame["type"], &frame["market_id"]), (&json!("price"), &json!(market)));
}

#[test]
fn a_subscription_is_acknowledged_and_priced_at_once() {
    let account = shared().account();
    let mut socket = Socket::prices(shared(), &account.key);
    socket.subscribe(&[PLAIN]);
    assert_eq!(socket.text(), json!({"type": "subscribed", "markets": [PLAIN]}));
    let price = socket.text();
    check_price(&price, PLAIN);
    assert_eq!((&price["best_bid"], &price["best_ask"]), (&json!("0.48"), &json!("0.5")));
    // The older names of both fields, and a market that is subscribed already.
    socket.say(&json!({"type": "subscribe", "conditions": [DEEP, PLAIN]}));
    assert_eq!(socket.text(), json!({"type": "subscribed", "markets": [PLAIN, DEEP]}));
    check_price(&socket.text(), DEEP);
    socket.say(&json!({"action": "unsubscribe", "markets": [PLAIN]}));
    assert_eq!(socket.text(), json!({"type": "subscribed", "markets": [DEEP]}));
    socket.say(&json!({"action": "ping"}));
    let pong = socket.text();
    check_fields(&pong, &[("type", Text), ("ts", Integer)]);
    assert_eq!(pong["type"], "pong");
    socket.send(PING, b"payload");
    assert_eq!(socket.next_frame(), Frame::Pong(b"payload".to_vec()));
}

/// A client need not wait for the answer to its upgrade.
#[test]
fn a_subscription_may_come_with_the_upgrade() {
    let account = shared().account();
    let message = json!({"action": "subscribe", "markets": [PLAIN]});
    // The frame as a whole, and cut in its payload and in its head.
    let length = 6 + message.to_string().len();
    for late_bytes in [0, length / 2, length - 1] {
        let request = upgrade(PATH).key(&account.key);
        let mut socket = Socket::open_saying(shared(), &request, &message, late_bytes);
        assert_eq!(socket.text()["type"], "connected");
        assert_eq!(socket.text(), json!({"type": "subscribed", "markets": [PLAIN]}));
        check_price(&socket.text(), PLAIN);
        socket.end();
    }
}

#[test]
fn prices_follow_the_market() {
    let server = Server::simulated();
    let account = server.account();
    let mut socket = Socket::prices(&server, &account.key);
    let rows = server.get("/v1/markets?limit=5").ok(200);
    let markets: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["condition_id"].as_str().unwrap()).collect();
    socket.subscribe(&markets);
    let mut newest = std::collections::HashMap::new();
    let mut rises = 0;
    while rises < 5 {
        let frame = socket.text_of("price");
        let market = frame["market_id"].as_str().unwrap().to_owned();
        let seq = frame["seq"].as_u64().unwrap();
        if let Some(before) = newest.insert(market, seq) {
            assert!(seq > before, "{frame}");
            rises += 1;
        }
    }
}

/// They are the numbers of one process: a client that is back must not wait for them to pass those
/// that it knows.
#[test]
fn the_numbers_of_prices_begin_again_at_a_restart() {
    const FAR: u64 = 8;
    let server = Server::simulated_with(&["--venue-speed", "20"]);
    let key = server.account().key.clone();
    let subscribed = |server: &Server| {
        let mut socket = Socket::prices(server, &key);
        socket.subscribe(&[DEEP_MARKET_CONDITION_ID]);
        socket
    };
    let seq = |socket: &mut Socket| socket.text_of("price")["seq"].as_u64().unwrap();
    let mut socket = subscribed(&server);
    assert_eq!(seq(&mut socket), 1);
    while seq(&mut socket) < FAR {}
    socket.end();
    // As long as the process lives, they go on above what anybody has seen.
    assert!(seq(&mut subscribed(&server)) >= FAR);
    let server = server.crash_and_restart();
    assert!(seq(&mut subscribed(&server)) < FAR);
}

#[test]
fn an_unusable_frame_is_answered_and_the_socket_stays() {
    let account = shared().account();
    let mut socket = Socket::prices(shared(), &account.key);
    for message in [
        "nonsense",
        "[]",
        "{}",
        r#"{"action":"dance"}"#,
        r#"{"action":"subscribe"}"#,
        r#"{"action":"subscribe","markets":"m"}"#,
        r#"{"action":"subscribe","markets":[1]}"#,
        r#"{"action":"subscribe","assets_ids":["1"]}"#,
    ] {
        socket.send(TEXT, message.as_bytes());
        let error = socket.text();
        check_fields(&error, &[("type", Text), ("message", Text)]);
        assert_eq!(error["type"], "error", "{message}");
    }
    socket.subscribe(&["0xnone", PLAIN]);
    let error = socket.text();
    assert_eq!(error, json!({"type": "error", "message": "unknown market: 0xnone"}));
    assert_eq!(socket.text(), json!({"type": "subscribed", "markets": [PLAIN]}));
}

#[test]
fn a_socket_has_at_most_fifty_markets() {
    let account = shared().account();
    let mut socket = Socket::prices(shared(), &account.key);
    let fifty: Vec<String> = (0..50).map(other).collect();
    let fifty_one: Vec<String> = (0..51).map(other).collect();
    socket.subscribe(&fifty_one);
    assert_eq!(socket.text()["type"], "error");
    socket.subscribe(&fifty);
    assert_eq!(socket.text_of("subscribed")["markets"], json!(fifty));
    for _ in 0..50 {
        assert_eq!(socket.text()["type"], "price");
    }
    socket.subscribe(&[PLAIN]);
    assert_eq!(socket.text()["type"], "error");
    socket.say(&json!({"action": "unsubscribe", "markets": [other(0)]}));
    assert_eq!(socket.text_of("subscribed")["markets"], json!(fifty[1..]));
    socket.subscribe(&[PLAIN]);
    assert_eq!(socket.text_of("subscribed")["markets"].as_array().unwrap().len(), 50);
}

#[test]
fn a_client_that_breaks_the_protocol_gets_the_close_code() {
    let largest = {
        let padding = "x".repeat(16 * 1024 - r#"{"action":"ping","x":""}"#.len());
        format!(r#"{{"action":"ping","x":"{padding}"}}"#)
    };
    assert_eq!(largest.len(), 16 * 1024);
    let too_large = format!("{largest} ");
    let rows: [(u8, &[u8], u16); 5] = [
        (TEXT, too_large.as_bytes(), 1009),
        (TEXT_BEGINS, b"{\"action\":", 1009),
        (BINARY, b"{}", 1003),
        (TEXT, b"\xff", 1007),
        (0x83, b"", 1002),
    ];
    for (first, payload, code) in rows {
        let account = shared().account();
        let mut socket = Socket::prices(shared(), &account.key);
        socket.send(TEXT, largest.as_bytes());
        assert_eq!(socket.text()["type"], "pong");
        socket.send(first, payload);
        assert_eq!(socket.close_code(), code);
    }
}

#[test]
fn a_client_that_sends_too_much_is_closed_1008() {
    let account = shared().account();
    let mut socket = Socket::prices(shared(), &account.key);
    // The limit is a burst of 50 and then 20 a second; sending these takes no ten seconds.
    for _ in 0..250 {
        socket.send(TEXT, br#"{"action":"ping"}"#);
    }
    assert_eq!(socket.close_code(), 1008);
}

#[test]
fn a_revoked_key_loses_its_sockets_within_a_second() {
    let account = shared().account();
    let key = account.new_key(&json!({"permissions": ["read"]}));
    let key_text = key["raw_key"].as_str().unwrap();
    let by_key = Socket::prices(shared(), key_text);
    let token = ws_token(&account, key_text);
    let by_token = Socket::open(shared(), &upgrade(&format!("{PATH}?token={token}"))).unwrap();
    account.delete(format!("/v1/keys/{}", key["id"])).ok(200);
    let revoked_at = Instant::now();
    for mut socket in [by_key, by_token] {
        assert_eq!(socket.close_code(), 4001);
    }
    // A second by the contract; the rest is for a machine that is busy with other tests.
    assert!(revoked_at.elapsed() < Duration::from_secs(3), "{:?}", revoked_at.elapsed());
}

#[test]
fn the_tier_limits_the_markets_of_a_socket() {
    let server = Server::start(&["--tier", "pro=unlimited/unlimited/2/5/2"]);
    let socket = |tier: Tier| {
        let account = server.account_with(&json!({"tier": tier.as_str()}), Some(tier));
        Socket::prices(&server, &account.key)
    };
    for (tier, markets, most) in [(Tier::Free, 51, 50), (Tier::Pro, 3, 2)] {
        let mut socket = socket(tier);
        let mut wanted: Vec<String> = (0..markets).map(other).collect();
        socket.say(&json!({"action": "subscribe", "markets": wanted}));
        let message = format!(
            "at most {most} markets per socket: this one has 0 and asked for {markets} more; \
             none was added"
        );
        assert_eq!(socket.text_of("error")["message"], message);
        wanted.pop();
        socket.subscribe(&wanted);
        socket.say(&json!({"action": "subscribe", "markets": ["*"]}));
        let message =
            format!("at most {most} markets per socket in this tier: list their condition ids");
        assert_eq!(socket.text_of("error")["message"], message);
    }
    let mut socket = socket(Tier::Enterprise);
    socket.say(&json!({"action": "subscribe", "markets": ["*"]}));
    assert_eq!(socket.text_of("subscribed")["markets"], json!(["*"]));
    let prices = std::iter::from_fn(|| Some(socket.text_of("price")["market_id"].to_string()));
    assert_eq!(prices.take(MARKETS).collect::<HashSet<_>>().len(), MARKETS);
}

/// A client that keeps opening and closing sockets is rate limited, whatever their outcome.
#[test]
fn opening_sockets_is_limited_by_account_or_address() {
    let server = Server::start(&[
        "--tier",
        "free=unlimited/unlimited/2/5",
        "--failure-rate",
        "1/60",
        "--bootstrap-rate",
        "60/60",
    ]);
    let account = server.account();
    let trades = account.new_key(&json!({"permissions": ["trade"]}));
    let refused_after = |request: Request| {
        (0..500).position(|_| match Socket::open(&server, &request) {
            Ok(_) => false,
            Err(response) => {
                check_error(&response, 429, "RATE_LIMIT_EXCEEDED");
                assert!(response.header("retry-after").is_some(), "{response:?}");
                true
            }
        })
    };
    let by_key = || upgrade(PATH).key(&account.key);
    assert!(refused_after(by_key()).is_some_and(|count| count >= 100));
    // The limit belongs to the account: its other keys share it, other accounts do not.
    let token = ws_token(&account, &account.key);
    assert!(refused_after(upgrade(&format!("{PATH}?token={token}"))).is_some_and(|n| n < 60));
    Socket::prices(&server, &server.account().key);
    // Requests that never become a socket count as failed credentials of the address.
    let trades = upgrade(PATH).key(trades["raw_key"].as_str().unwrap());
    assert!(refused_after(trades).is_some_and(|count| count >= 60));
    for request in [upgrade(PATH), upgrade(PATH).bearer(&account.token), upgrade(PATH).key("no")] {
        assert!(refused_after(request).is_some_and(|count| count < 60));
    }
}

/// The tier of an access token is known until the token expires, so its sockets live until then.
#[test]
fn a_socket_closes_when_its_access_token_expires() {
    // Tokens are accepted for a minute after they expire.
    for seconds in [2, 8, 30] {
        let account = shared().account();
        let token = shared().token_that_ends_in(&account.subject, seconds - 60);
        let request = Request::post("/v1/keys/ws-token", &json!({})).bearer(&token);
        let minted = shared().send(&request);
        if minted.status == 401 {
            continue;
        }
        let minted = minted.ok(200)["token"].as_str().unwrap().to_owned();
        let mut socket =
            Socket::open(shared(), &upgrade(&format!("{PATH}?token={minted}"))).unwrap();
        let lasting = Socket::prices(shared(), &account.key);
        assert!(socket.close_code() == 4001);
        lasting.end();
        return;
    }
    panic!("this machine takes half a minute for a request");
}

/// A client that offers compression gets none, and is not made to believe that it does.
#[test]
fn compression_is_declined() {
    let account = shared().account();
    for offer in [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits; server_no_context_takeover",
        "x-webkit-deflate-frame, permessage-deflate; server_max_window_bits=10",
    ] {
        let mut connection = shared().connect();
        let request = upgrade(PATH).key(&account.key).header("sec-websocket-extensions", offer);
        let response = connection.send(&request);
        assert_eq!(response.status, 101);
        assert_eq!(response.header("sec-websocket-extensions"), None, "{offer}");
        let mut stream = connection.into_stream();
        let mut hello = [0; 2];
        stream.read_exact(&mut hello).unwrap();
        assert_eq!(hello[0], TEXT, "no reserved bit");
        let mut text = vec![0; hello[1].into()];
        stream.read_exact(&mut text).unwrap();
        let hello: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(hello["type"], "connected");
    }
}

/// However clients leave, nothing of them stays: no place, no subscription, no descriptor.
#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    const ROUNDS: usize = 60;
    const AT_A_TIME: usize = 5;
    let server = Server::unlimited();
    let account = server.account_with(&json!({"tier": "enterprise"}), Some(Tier::Enterprise));
    let ids: Vec<String> = (0..50).map(other).collect();
    let path = format!("/prices/stream?condition_ids={}", ids.join(","));
    let held = || {
        let status = server.get("/v1/status").ok(200);
        let readers = &status["readers"];
        let count = |value: &Value| value.as_u64().unwrap();
        let open = [&status["websocket"], &status["sse"]].map(|it| count(&it["connections"]));
        (open, count(&readers["subscriptions"]), count(&readers["unsent_bytes"]))
    };
    // Some files are opened by the first clients.
    let mut files_before = None;
    for round in 0..ROUNDS {
        let mut sockets: Vec<Socket> =
            (0..AT_A_TIME).map(|_| Socket::prices(&server, &account.key)).collect();
        let streams: Vec<EventStream> = (0..AT_A_TIME)
            .map(|_| EventStream::open(&server, &Request::get(&*path)).unwrap())
            .collect();
        for socket in &mut sockets {
            socket.subscribe(&ids);
        }
        for (index, mut socket) in sockets.into_iter().enumerate() {
            match index % 3 {
                0 => socket.end(),
                1 => drop(socket.text_of("price")),
                // In the middle of what is being sent.
                _ => drop(socket),
            }
        }
        drop(streams);
        if round == 0 || round == ROUNDS - 1 {
            eventually(|| (held() == ([0, 0], 0, 0)).then_some(()));
        }
        files_before = files_before.or_else(|| server.open_files());
    }
    let Some(files_before) = files_before else { return };
    eventually(|| server.open_files().filter(|&count| count <= files_before));
}
