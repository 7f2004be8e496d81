//! A walk through all operations, as an example of each.

use std::collections::BTreeMap;

use paperbourse::http::operation::{Access, Operation, Verb};
use paperbourse::http::operations::OPERATIONS;
use paperbourse::http::parameter::{Parameter, ParameterKind};
use paperbourse_test_support::event_stream::EventStream;
use paperbourse_test_support::{Request, Response};
use serde_json::{Map, Value, json};

use crate::expect::eventually;
use crate::server::Server;

/// The simulated venue, whose books stand still.
pub(super) const STILL: [&str; 6] =
    ["--venue", "simulated:1", "--venue-speed", "0.000001", "--venue-delay", "off"];
/// The same venue, which resolves markets within a second.
const FAST: [&str; 6] = ["--venue", "simulated:1", "--venue-speed", "1000", "--venue-delay", "off"];

/// A market that stays open.
const SLUG: &str = "port-amber-tide";
/// A market that resolves as chance decides.
const DRAWN_SLUG: &str = "northmere-noon-rain";
/// A market that resolves, half to each outcome.
const SPLIT_SLUG: &str = "quillford-saltmarsh-match";

/// Shares that the walk trades in the market that stays open.
const TRADED: &str = "15";

/// What was sent and answered, by the names of operations.
type Examples = BTreeMap<String, Value>;

struct Walk {
    server: Server,
    token: String,
    key: String,
    /// Values of parameters, by their names.
    known: BTreeMap<&'static str, Value>,
    examples: Examples,
}

/// Calls every operation.
pub(super) fn taken() -> Examples {
    let server = Server::simulated_with(&STILL);
    let token = server.token("examples", None);
    let known = [
        ("wallet_id", json!("api")),
        ("slug", json!(SLUG)),
        ("after", json!("1767225600")),
        ("before", json!("1769904000")),
        ("endTs", json!(1_769_904_000)),
        ("end_time", json!(1_769_904_000)),
        ("to", json!("2026-01-31")),
    ];
    let known = BTreeMap::from(known);
    let mut walk = Walk { server, token, key: String::new(), known, examples: Examples::new() };
    walk.makes_keys();
    walk.sees_markets();
    walk.trades();
    walk.places_orders();
    walk.reads_its_account();
    walk.ends_keys();
    walk.sees_the_server();
    walk.holds_what_resolves();
    let mut walk = Walk { server: walk.server.crash_and_restart_with(&FAST), ..walk };
    walk.is_paid();
    walk.starts_anew();
    walk.examples
}

impl Walk {
    fn sees_markets(&mut self) {
        let market = self.call("GET /v1/markets/by-slug/{slug}", &[], None);
        self.known.insert("condition_id", market["condition_id"].clone());
        self.known.insert("market_id", market["condition_id"].clone());
        self.known.insert("token_id", market["clob_token_ids"][0].clone());
        self.known.insert("asset_id", market["clob_token_ids"][0].clone());
        self.known.insert("outcome", market["outcomes"][0].clone());
        self.known.insert("category", market["category"].clone());
        for name in ["q", "search"] {
            self.known.insert(name, json!("tide"));
        }
        self.known.insert("asset", json!("AMBER"));
        self.finds_cursor("/v1/markets?envelope=true&limit=1");
        self.call("GET /v1/markets", &[("limit", json!(1))], None);
        self.call("GET /v1/markets/{condition_id}", &[], None);
        self.call("GET /v1/markets-by-token/{token_id}", &[], None);
        self.call("GET /v1/markets/{condition_id}/book", &[("depth", json!(2))], None);
        self.call("GET /v1/book", &[("depth", json!(2))], None);
        self.call("GET /v1/fee-rate", &[], None);
        let events = [("limit", json!(1)), ("markets_per_event", json!(1))];
        self.call("GET /v1/events", &events, None);
        for name in ["GET /v1/markets/updown", "GET /markets/updown"] {
            self.call(name, &[("limit", json!(1)), ("interval", json!("5M"))], None);
        }
        self.call("GET /v1/markets/updown/intervals", &[], None);
        self.known.insert("condition_ids", self.known["condition_id"].clone());
        self.streams();
        let ids = json!({ "market_ids": [self.known["condition_id"]] });
        self.call("POST /v1/prices/batch", &[], Some(ids));
    }

    /// A stream has no end, so its example is the first event.
    fn streams(&mut self) {
        let id = self.known["condition_id"].as_str().unwrap();
        let request = Request::get(format!("/prices/stream?condition_ids={id}"));
        let event = EventStream::open(&self.server, &request).unwrap().text().unwrap();
        let (_, last_id) = event.trim_end().rsplit_once("id: ").unwrap();
        let parameters = json!({ "condition_ids": id, "Last-Event-ID": last_id });
        let example = json!({ "parameters": parameters, "answer": event + "\n" });
        self.examples.insert("GET /prices/stream".to_owned(), example);
    }

    fn makes_keys(&mut self) {
        self.call("GET /v1/keys/tiers", &[], None);
        let body = json!({ "name": "market maker", "permissions": ["read", "trade", "admin"] });
        let key = self.call("POST /v1/keys/bootstrap", &[], Some(body));
        key["raw_key"].as_str().unwrap().clone_into(&mut self.key);
        let body = json!({ "name": "dashboard", "permissions": ["read"] });
        let key = self.call("POST /v1/keys", &[], Some(body));
        self.known.insert("key_id", key["id"].clone());
        self.call("PATCH /v1/keys/{key_id}", &[], Some(json!({ "name": "wall screen" })));
        self.call("GET /v1/keys", &[], None);
        self.call("POST /v1/keys/ws-token", &[], None);
    }

    fn trades(&mut self) {
        let name = [("Idempotency-Key", json!("rebalance-1"))];
        let trade = self.call("POST /trade", &name, Some(self.order("BUY", 10)));
        self.known.insert("order_id", trade["order_id"].clone());
        let comment = json!({ "content": "Bought the dip." });
        let comment = self.call("POST /trades/{order_id}/comments", &[], Some(comment));
        self.known.insert("comment_id", comment["id"].clone());
        self.call("GET /trades/{order_id}/comments", &[], None);
        self.call("DELETE /comments/{comment_id}", &[], None);
        // A second fill, so that lists have a second page.
        self.send(Request::post("/trade", &self.order("SELL", 4))).ok(200);
    }

    fn places_orders(&mut self) {
        let mut limit = self.order("BUY", 20);
        limit["order_type"] = json!("limit");
        limit["price"] = json!("0.45");
        let mut named = limit.clone();
        named["client_order_id"] = json!("bid-1");
        self.known.insert("client_order_id", json!("bid-1"));
        let batch = json!({ "orders": [self.order("SELL", 1), named] });
        self.call("POST /v1/orders/batch", &[("Idempotency-Key", json!("batch-1"))], Some(batch));
        self.call("POST /v1/orders/preview", &[], Some(limit.clone()));
        let name = [("Idempotency-Key", json!("bid-2"))];
        let placed = self.call("POST /v1/orders", &name, Some(limit.clone()));
        self.known.insert("order_id", placed["order_id"].clone());
        self.call("GET /v1/orders/{order_id}", &[], None);
        self.finds_cursor("/v1/orders?limit=1");
        self.call("GET /v1/orders", &[("limit", json!(1))], None);
        self.known.insert("market", self.known["condition_id"].clone());
        self.known.insert("id", json!(placed["order_id"].to_string()));
        self.call("GET /v1/data/orders", &[("limit", json!(1))], None);
        let trades = self.finds_cursor("/v1/data/trades?limit=1");
        self.known.insert("id", trades["data"][0]["id"].clone());
        self.call("GET /v1/data/trades", &[("limit", json!(1))], None);
        self.call("DELETE /v1/orders/{order_id}", &[], None);
        for name in ["POST /v1/heartbeats", "POST /heartbeats"] {
            let body = json!({ "interval_ms": 60_000, "client_label": "market maker" });
            self.call(name, &[], Some(body));
        }
        let market = json!({ "market": self.known["condition_id"] });
        self.call("DELETE /v1/cancel-market-orders", &[], Some(market));
        self.send(Request::post("/v1/orders", &limit)).ok(200);
        self.call("POST /v1/cancel-all", &[("confirm", json!(true))], None);
        self.send(Request::post("/v1/orders", &limit)).ok(200);
        self.call("DELETE /v1/cancel-all", &[], None);
    }

    fn reads_its_account(&mut self) {
        for path in ["me", "me/wallets", "me/wallets/{wallet_id}"] {
            self.call(&format!("GET /v1/{path}"), &[], None);
        }
        for path in ["balance", "positions", "portfolio"] {
            self.call(&format!("GET /v1/account/{path}"), &[], None);
        }
        self.call("GET /v1/account/history", &[("limit", json!(1))], None);
        self.call("GET /v1/account/equity", &[("limit", json!(1))], None);
        self.call("GET /v1/export/trades.csv", &[], None);
        self.volume_is_counted();
        // A day seldom ends during this walk.
        let candles = [("interval", json!("1d"))];
        self.call("GET /v1/markets/{condition_id}/candles", &candles, None);
        self.known.insert("market", self.known["token_id"].clone());
        let prices = [("interval", json!("1d")), ("fidelity", json!(24 * 60))];
        self.call("GET /v1/prices-history", &prices, None);
    }

    /// Candles count a fill's volume a little after its answer.
    fn volume_is_counted(&self) {
        let id = self.known["condition_id"].as_str().unwrap();
        let path = format!("/v1/markets/{id}/candles?interval=1d");
        eventually(|| {
            let candles = self.server.get(&path).ok(200);
            (candles[0]["v"] == TRADED).then_some(())
        });
    }

    fn ends_keys(&mut self) {
        let body = json!({ "overlap_seconds": 3_600 });
        let key = self.call("POST /v1/keys/{key_id}/rotate", &[], Some(body));
        self.known.insert("key_id", key["id"].clone());
        self.call("DELETE /v1/keys/{key_id}", &[("descendants", json!(true))], None);
    }

    fn sees_the_server(&mut self) {
        for path in ["status", "time", "health", "health/live", "health/ready"] {
            self.call(&format!("GET /v1/{path}"), &[], None);
        }
        let failed = Server::bookless().get("/v1/health/ready?strict=true");
        assert_eq!(failed.status, 503, "{failed:?}");
        self.examples.get_mut("GET /v1/health/ready").unwrap()["failed"] = failed.json();
    }

    fn holds_what_resolves(&mut self) {
        for slug in [DRAWN_SLUG, SPLIT_SLUG] {
            let market = self.server.get(format!("/v1/markets/by-slug/{slug}")).ok(200);
            let order = json!({
                "market_id": market["condition_id"],
                "outcome": market["outcomes"][0],
                "side": "BUY",
                "quantity": 10,
            });
            self.send(Request::post("/trade", &order)).ok(200);
            self.known.insert("market_id", market["condition_id"].clone());
        }
    }

    fn is_paid(&mut self) {
        eventually(|| {
            let page = self.send(Request::get("/v1/account/settlements")).ok(200);
            page["data"].get(1).map(|_| ())
        });
        self.finds_cursor("/v1/account/settlements?limit=1");
        self.call("GET /v1/account/settlements", &[("limit", json!(1))], None);
        let of_market = [("market_id", self.known["market_id"].clone())];
        self.call("GET /v1/export/settlements.csv", &of_market, None);
    }

    fn starts_anew(&mut self) {
        self.call("POST /v1/account/reset-api-balance", &[], None);
        self.call("POST /v1/me/wallets/{wallet_id}/reset", &[], None);
    }

    /// An order for the first outcome of the market.
    fn order(&self, side: &str, quantity: u32) -> Value {
        json!({
            "market_id": self.known["condition_id"],
            "outcome": self.known["outcome"],
            "side": side,
            "quantity": quantity,
        })
    }

    /// Remembers where the list goes on after this page, which it returns.
    #[track_caller]
    fn finds_cursor(&mut self, page: &str) -> Value {
        let page = self.send(Request::get(page)).ok(200);
        assert!(page["next_cursor"].is_string(), "{page}");
        for name in ["cursor", "next_cursor"] {
            self.known.insert(name, page["next_cursor"].clone());
        }
        page
    }

    fn send(&self, request: Request) -> Response {
        self.server.send(&request.key(&self.key))
    }

    /// Calls an operation with these values of its parameters besides those that it requires, and
    /// keeps what it answers as its example. Its other parameters are tried one by one.
    #[track_caller]
    fn call(&mut self, name: &str, chosen: &[(&str, Value)], body: Option<Value>) -> Value {
        let operation = OPERATIONS.iter().find(|it| it.name() == name).unwrap();
        let value_of = |parameter: &Parameter| {
            let chosen = chosen.iter().find(|(name, _)| *name == parameter.name);
            chosen.map_or_else(|| self.value_of(parameter), |(_, value)| value.clone())
        };
        let all: Vec<&Parameter> = operation.query.iter().chain(operation.headers).collect();
        let is_sent =
            |it: &&Parameter| it.is_required || chosen.iter().any(|(name, _)| *name == it.name);
        let (sent, others): (Vec<&Parameter>, Vec<_>) = all.iter().partition(|it| is_sent(it));
        let send = |more: Option<&Parameter>, body: Option<&Value>| {
            let sent = sent.iter().copied().chain(more).map(|it| (it, value_of(it))).collect();
            self.answer(operation, sent, body)
        };
        let response = send(None, body.as_ref());
        assert!(matches!(response.status, 200 | 201), "{name}: {response:?}");
        let is_json = response.header("content-type") == Some("application/json");
        let answer = if is_json { response.json() } else { response.text.clone().into() };
        for other in others {
            assert!(operation.method != Verb::Post || body.is_none(), "choose {other:?} of {name}");
            let response = send(Some(other), None);
            assert_eq!(response.status, 200, "{name} with {other:?}: {response:?}");
        }
        let mut parameters: Map<String, Value> =
            all.into_iter().map(|it| (it.name.to_owned(), value_of(it))).collect();
        let of_path = operation.path.parameter();
        if !of_path.is_empty() {
            parameters.insert(of_path.to_owned(), self.known[of_path].clone());
        }
        let mut example = json!({ "parameters": parameters, "answer": answer });
        if let Some(body) = body {
            example["body"] = body;
        }
        let former = self.examples.insert(name.to_owned(), example);
        assert_eq!(former, None, "{name} is called twice");
        answer
    }

    fn answer(
        &self,
        operation: &Operation,
        sent: Vec<(&Parameter, Value)>,
        body: Option<&Value>,
    ) -> Response {
        let text_of = |value: &Value| value.as_str().map_or_else(|| value.to_string(), Into::into);
        let parameter = operation.path.parameter();
        let mut path = operation.path.as_str().to_owned();
        if !parameter.is_empty() {
            path = path.replace(&format!("{{{parameter}}}"), &text_of(&self.known[parameter]));
        }
        let mut headers = Vec::new();
        let mut query = Vec::new();
        for (parameter, value) in sent {
            if operation.headers.iter().any(|it| it.name == parameter.name) {
                headers.push((parameter.name, text_of(&value)));
            } else {
                query.push(format!("{}={}", parameter.name, text_of(&value).replace(' ', "%20")));
            }
        }
        if !query.is_empty() {
            path = format!("{path}?{}", query.join("&"));
        }
        let mut request = Request::new(operation.method.as_str(), path);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let request = match operation.access {
            Access::Public => request,
            Access::Token => request.bearer(&self.token),
            Access::KeyOrToken(_) | Access::Key(_) | Access::Socket => request.key(&self.key),
            Access::Wallet | Access::WalletKey(_) => unreachable!("not part of the document"),
        };
        self.server.send(&request)
    }

    /// A value that the parameter takes.
    fn value_of(&self, parameter: &Parameter) -> Value {
        if let Some(known) = self.known.get(parameter.name) {
            return known.clone();
        }
        match parameter.kind {
            ParameterKind::Number { default: Some(default), .. } => json!(default),
            ParameterKind::Number { min, .. } => json!(min),
            ParameterKind::Flag => json!(true),
            ParameterKind::Choice { words } => json!(words[0]),
            ParameterKind::Time => json!("2026-01-01"),
            ParameterKind::Seconds => json!(1_767_225_600),
            kind => panic!("no value of {kind:?} is known for {}", parameter.name),
        }
    }
}
