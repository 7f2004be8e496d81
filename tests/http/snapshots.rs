//! One answer of each operation and each kind of error, as on the wire.

use std::fmt::Write as _;

use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::recording::{
    BOOKLESS, PAUSED, PLAIN, WITH_FEE, WITH_FEE_SLUG, buy, limit, other, sell, token_id,
};
use super::server::{Server, shared};

/// The fields that differ from run to run.
const CHANGING: [&str; 21] = [
    "id",
    "order_id",
    "account_id",
    "raw_key",
    "key_prefix",
    "created_at",
    "last_used_at",
    "created_by",
    "filled_at",
    "cancelled_at",
    "trade_ids",
    "fill_id",
    "token",
    "timestamp",
    "version",
    "commit",
    "commit_date",
    "features",
    "user_id",
    "auth_user_id",
    "emit_ts_ms",
];
/// The headers that do not differ between runs.
const HEADERS: [&str; 9] = [
    "content-type",
    "x-polysim-code",
    "retry-after",
    "allow",
    "www-authenticate",
    "connection",
    "idempotent-replayed",
    "x-ratelimit-tier",
    "x-ratelimit-limit",
];

/// Requests and their answers.
#[derive(Default)]
struct Transcript(String);

impl Transcript {
    fn note(&mut self, what: &str, response: &Response) {
        writeln!(self.0, "# {what}\n{}", response.status).unwrap();
        for name in HEADERS {
            if let Some(value) = response.header(name) {
                writeln!(self.0, "{name}: {value}").unwrap();
            }
        }
        writeln!(self.0, "{}\n", redacted(&response.text)).unwrap();
    }
}

/// The text with the values of [`CHANGING`] fields replaced, and nothing else touched.
fn redacted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(colon) = rest.find("\":") {
        let (field, value) = rest.split_at(colon + 2);
        out.push_str(field);
        rest = value;
        let name = field[..colon].rsplit('"').next().unwrap_or_default();
        let is_list = ["trade_ids", "features"].contains(&name);
        // What is built without git has no commit.
        let is_whole = is_list || name.starts_with("commit");
        if CHANGING.contains(&name) && (is_whole || !value.starts_with(['{', '[', 'n'])) {
            let end = match value.strip_prefix('"') {
                Some(inner) => inner.find('"').unwrap() + 2,
                None if is_list => value.find(']').unwrap() + 1,
                None => value.find([',', '}']).unwrap(),
            };
            write!(out, "[{name}]").unwrap();
            rest = &value[end..];
        }
    }
    out + rest
}

#[test]
fn keys() {
    let server = shared();
    let token = server.token("snapshot-of-keys", None);
    let mut transcript = Transcript::default();
    let body = json!({"name": "my \"bot\"", "permissions": ["admin", "read"]});
    let first = server.send(&Request::post("/v1/keys/bootstrap", &body).bearer(&token));
    transcript.note("POST /v1/keys/bootstrap", &first);
    let first = first.json();
    let key = first["raw_key"].as_str().unwrap();
    let second = server.send(&Request::post("/v1/keys", &json!({})).key(key));
    transcript.note("POST /v1/keys", &second);
    transcript.note("GET /v1/keys", &server.send(&Request::get("/v1/keys").key(key)));
    transcript.note("GET /v1/keys/tiers", &server.get("/v1/keys/tiers"));
    let socket_token = Request::post("/v1/keys/ws-token", &json!({})).key(key);
    transcript.note("POST /v1/keys/ws-token", &server.send(&socket_token));
    let path = format!("/v1/keys/{}", second.json()["id"]);
    let delete = Request::delete(&*path).key(key);
    transcript.note("DELETE /v1/keys/{id}", &server.send(&delete));
    let with_children = Request::delete(format!("{path}?descendants=true")).key(key);
    transcript.note("DELETE /v1/keys/{id}?descendants=true", &server.send(&with_children));
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn orders() {
    let account = shared().account();
    let mut transcript = Transcript::default();
    let mut order = buy(150);
    order["client_order_id"] = json!("mine");
    let trade = account.post("/trade", &order);
    transcript.note("POST /trade", &trade);
    transcript.note("POST /trade, again", &account.post("/trade", &order));
    let mut with_fee = buy(10);
    with_fee["market_id"] = json!(WITH_FEE);
    with_fee["outcome"] = json!("down");
    transcript.note("POST /trade, with a fee", &account.post("/trade", &with_fee));
    let batch = json!({"orders": [sell(1), sell(1_000), order]});
    transcript.note("POST /v1/orders/batch", &account.post("/v1/orders/batch", &batch));
    let order_id = trade.json()["order_id"].clone();
    let comments = format!("/trades/{order_id}/comments");
    let content = json!({"content": "a \"good\"\nfill"});
    let comment = account.post(&*comments, &content);
    transcript.note("POST /trades/{id}/comments", &comment);
    transcript.note("GET /trades/{id}/comments", &shared().get(&*comments));
    let delete = format!("/comments/{}", comment.json()["id"]);
    transcript.note("DELETE /comments/{id}", &account.delete(delete));
    transcript.note("GET /v1/me", &account.get("/v1/me"));
    transcript.note("GET /v1/orders/{id}", &account.get(format!("/v1/orders/{order_id}")));
    transcript.note("GET /v1/orders", &account.get("/v1/orders?limit=2"));
    transcript.note("GET /v1/account/balance", &account.get("/v1/account/balance"));
    transcript.note("GET /v1/account/positions", &account.get("/v1/account/positions"));
    transcript.note("GET /v1/account/portfolio", &account.get("/v1/account/portfolio"));
    transcript.note("GET /v1/account/history", &account.get("/v1/account/history"));
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn resting_orders() {
    let account = shared().account();
    let mut transcript = Transcript::default();
    let mut order = limit("BUY", 150, "0.5");
    order["client_order_id"] = json!("mine");
    let placed = account.post("/v1/orders", &order);
    transcript.note("POST /v1/orders", &placed);
    transcript.note("POST /v1/orders, again", &account.post("/v1/orders", &order));
    let mut killed = limit("BUY", 150, "0.5");
    killed["time_in_force"] = json!("IOC");
    transcript.note("POST /v1/orders, in part", &account.post("/v1/orders", &killed));
    transcript.note("POST /v1/orders, a trade", &account.post("/v1/orders", &buy(10)));
    let path = format!("/v1/orders/{}", placed.json()["order_id"]);
    transcript.note("GET /v1/orders/{id}", &account.get(&*path));
    transcript.note("DELETE /v1/orders/{id}", &account.delete(&*path));
    transcript.note("DELETE /v1/orders/{id}, again", &account.delete(&*path));
    let unconfirmed = account.post("/v1/cancel-all", &json!({}));
    transcript.note("POST /v1/cancel-all", &unconfirmed);
    transcript.note("DELETE /v1/cancel-all", &account.delete("/v1/cancel-all"));
    let in_market = account.delete("/v1/cancel-market-orders");
    transcript.note("DELETE /v1/cancel-market-orders", &in_market);
    let mut post_only = limit("BUY", 10, "0.6");
    post_only["post_only"] = json!(true);
    transcript.note("POST /v1/orders, crossing", &account.post("/v1/orders", &post_only));
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn markets() {
    let server = shared();
    let account = server.account();
    let mut transcript = Transcript::default();
    transcript.note("GET /v1/markets", &server.get("/v1/markets?limit=2&offset=4"));
    transcript.note("GET /v1/markets/{id}", &server.get(format!("/v1/markets/{WITH_FEE}")));
    transcript.note("GET /v1/markets/{id}/book", &server.get(format!("/v1/markets/{PLAIN}/book")));
    for query in ["", "?outcome=no&interval=max&start_time=1768039205&end_time=2026-01-10"] {
        let path = format!("/v1/markets/{}/candles{query}", other(33));
        transcript.note("GET /v1/markets/{id}/candles", &server.get(path));
    }
    for query in ["", "&interval=max&format=ohlcv"] {
        let path = format!("/v1/prices-history?market={}{query}", token_id(1, 1));
        transcript.note("GET /v1/prices-history", &server.get(path));
    }
    let by_slug = server.get(format!("/v1/markets/by-slug/{WITH_FEE_SLUG}"));
    transcript.note("GET /v1/markets/by-slug/{slug}", &by_slug);
    transcript.note("GET /v1/events", &server.get("/v1/events?limit=1"));
    transcript.note("GET /v1/markets/updown", &server.get("/v1/markets/updown?asset=COIN"));
    let by_token = server.get(format!("/v1/markets-by-token/{}", token_id(2, 1)));
    transcript.note("GET /v1/markets-by-token/{id}", &by_token);
    let fee_rate = server.get(format!("/v1/fee-rate?token_id={}", token_id(2, 1)));
    transcript.note("GET /v1/fee-rate", &fee_rate);
    let mirror = server.get(format!("/v1/book?token_id={}&depth=1", token_id(0, 1)));
    transcript.note("GET /v1/book", &mirror);
    let wanted = json!({"market_ids": [PLAIN, "0xnone", BOOKLESS]});
    transcript.note("POST /v1/prices/batch", &account.post("/v1/prices/batch", &wanted));
    for path in ["/v1/health", "/v1/health/live", "/v1/health/ready"] {
        transcript.note(&format!("GET {path}"), &server.get(path));
    }
    insta::assert_snapshot!(transcript.0);
}

#[test]
fn socket() {
    let account = shared().account();
    let request = paperbourse_test_support::socket::upgrade("/v1/ws/prices").key(&account.key);
    let mut socket = paperbourse_test_support::socket::Socket::open(shared(), &request).unwrap();
    let mut frames = vec![socket.text()];
    socket.subscribe(&["0xnone", PLAIN]);
    frames.extend((0..3).map(|_| socket.text()));
    let text: Vec<String> = frames.iter().map(|frame| redacted(&frame.to_string())).collect();
    insta::assert_snapshot!(text.join("\n"));
}

#[test]
fn errors() {
    let server = shared();
    let account = server.account();
    let revoked = account.new_key(&json!({}));
    account.delete(format!("/v1/keys/{}", revoked["id"])).ok(200);
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    let reads = reads["raw_key"].as_str().unwrap();
    account.buy(100);
    let used = account.send(Request::post("/trade", &buy(1)).named("used")).ok(200);
    let used = used["order_id"].to_string();
    let order = |field: &str, value: Value| {
        let mut order = buy(1);
        order[field] = value;
        Request::post("/trade", &order).key(&account.key)
    };
    let keyed = |request: Request| request.key(&account.key);
    let mut slipping = buy(150);
    slipping["max_slippage_bps"] = json!(0);
    let mut sixty = json!({"orders": vec![buy(1); 6]});
    sixty["x"] = json!(1);
    let missing = "/v1/orders/9007199254740990";
    let rows = [
        ("no path", Request::get("/nowhere")),
        ("not offered", Request::get("/v1/simulation/coverage")),
        ("no method", Request::get("/trade")),
        ("body too large", keyed(Request::new("POST", "/trade").body(vec![b'x'; 70_000]))),
        ("no credential", Request::get("/v1/orders")),
        ("unknown key", Request::get("/v1/orders").key("nonsense")),
        ("revoked key", Request::get("/v1/orders").key(revoked["raw_key"].as_str().unwrap())),
        ("bad token", Request::get("/v1/keys").bearer("nonsense")),
        ("expired token", Request::get("/v1/keys").bearer(&server.expired_token("x"))),
        ("token not accepted", Request::get("/v1/orders").bearer(&account.token)),
        ("no permission", Request::post("/trade", &buy(1)).key(reads)),
        ("escalation", Request::post("/v1/keys", &json!({})).key(reads)),
        ("tier", keyed(Request::post("/v1/keys", &json!({"tier": "pro"})))),
        ("bootstrap", Request::post("/v1/keys/bootstrap", &json!({})).bearer(&account.token)),
        ("not an object", keyed(Request::new("POST", "/trade").body("[]"))),
        ("not JSON", keyed(Request::new("POST", "/trade").body("{\"a\":}"))),
        ("two fields", keyed(Request::post("/trade", &json!({"market_id": "m", "side": "BUY"})))),
        ("name reused", order("quantity", json!(2)).header("idempotency-key", "used")),
        ("no market", order("market_id", json!("0xnone"))),
        ("no outcome", order("outcome", json!("Maybe"))),
        ("closed", order("market_id", json!(PAUSED))),
        ("no book", order("market_id", json!(BOOKLESS))),
        ("no shares", keyed(Request::post("/trade", &sell(500)))),
        ("no depth", order("quantity", json!(5_000))),
        ("slippage", keyed(Request::post("/trade", &slipping))),
        ("batch", keyed(Request::post("/v1/orders/batch", &sixty))),
        ("no order", keyed(Request::get(missing))),
        ("no comment", keyed(Request::delete("/comments/9007199254740990"))),
        ("no key", keyed(Request::delete("/v1/keys/9007199254740990"))),
        ("no account", Request::get("/v1/account/balance").bearer(&server.token("nobody", None))),
        ("no wallet", keyed(Request::get("/v1/account/history?wallet_id=1"))),
        ("no slug", Request::get("/v1/markets/by-slug/nope")),
        ("no token", Request::get("/v1/book?token_id=1")),
        ("no number", Request::get("/v1/fee-rate?token_id=0xabc")),
        ("no fee rate", Request::get(format!("/v1/fee-rate?token_id={}", token_id(5, 0)))),
        ("no interval", Request::get(format!("/v1/markets/{PLAIN}/candles?interval=1M"))),
        ("no token at all", Request::get("/v1/prices-history?market=")),
        ("nothing told", Request::get(format!("/v1/markets/{BOOKLESS}/book"))),
        ("no upgrade", keyed(Request::get("/v1/ws/prices"))),
    ];
    let mut transcript = Transcript::default();
    for (what, request) in rows {
        transcript.note(what, &server.send(&request));
    }
    let poor = Server::start(&["--starting-balance", "1", "--tier", "free=unlimited/2/2/5"]);
    let account = poor.account();
    transcript.note("no money", &account.post("/trade", &buy(10)));
    account.get("/v1/orders").ok(200);
    let refused = account.get("/v1/orders");
    assert_eq!(refused.header("x-polysim-code"), Some("RATE_LIMIT_EXCEEDED"));
    assert_eq!(refused.json()["error"], "RATE_LIMIT_EXCEEDED");
    let text = transcript.0.replace(&format!("order {used}"), "order [order_id]");
    let text = text.replace(&format!("/v1/orders/{used}"), "/v1/orders/[order_id]");
    insta::assert_snapshot!(text);
}
