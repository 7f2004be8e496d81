//! The venue's interface: orders that wallets have signed, and their cancellation.

use std::fmt::Write as _;

use paperbourse_clob::order::signing::DraftOrder;
use paperbourse_clob::order::{MarketKind, OrderType, Side, SignatureType, Version};
use paperbourse_test_support::Response;
use serde_json::{Value, json};

use super::clob_wallets::{Client, now_s};
use super::recording::token_id;
use super::server::{Server, shared_with_clob as server};

const ON: [&str; 2] = ["--clob", "on"];

/// An order for the first outcome of the plain market: `asked` is "SIDE TYPE GIVES for TAKES", such
/// as "BUY FOK 5 for 10", and then any of `in=SECONDS`, `post-only`, `v1`, `safe` and `proxy`.
pub(super) fn draft<'t>(salt: u64, token_id: &'t str, asked: &str) -> DraftOrder<'t> {
    let words: Vec<&str> = asked.split(' ').collect();
    let [side, order_type, gives, "for", takes, rest @ ..] = &words[..] else {
        panic!("{asked}");
    };
    let micros = |text: &str| {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        format!("{whole}{decimals:0<6}").parse().unwrap()
    };
    let expires = rest.iter().find_map(|word| word.strip_prefix("in="));
    DraftOrder {
        version: if rest.contains(&"v1") { Version::V1 } else { Version::V2 },
        wallet: match (rest.contains(&"safe"), rest.contains(&"proxy")) {
            (true, _) => SignatureType::Safe,
            (_, true) => SignatureType::Proxy,
            _ => SignatureType::Eoa,
        },
        salt,
        token_id,
        kind: MarketKind::of_token(token_id, false).unwrap(),
        side: if *side == "BUY" { Side::Buy } else { Side::Sell },
        maker_amount_micros: micros(gives),
        taker_amount_micros: micros(takes),
        order_type: match *order_type {
            "GTC" => OrderType::Gtc,
            "GTD" => OrderType::Gtd,
            "FOK" => OrderType::Fok,
            "FAK" => OrderType::Fak,
            other => panic!("{other}"),
        },
        expiration_s: expires
            .map_or(0, |seconds| now_s().unsigned_abs() + seconds.parse::<u64>().unwrap()),
        post_only: rest.contains(&"post-only"),
    }
}

impl Client<'_> {
    pub(super) fn body(&self, salt: u64, token_id: &str, asked: &str) -> String {
        self.signer.order(&draft(salt, token_id, asked), &self.credentials.api_key)
    }

    pub(super) fn order(&self, salt: u64, asked: &str) -> Response {
        self.call("POST", "/order", &self.body(salt, &token_id(0, 0), asked))
    }

    pub(super) fn balance(&self, query: &str) -> String {
        let answer = self.get(&format!("/balance-allowance?asset_type={query}")).ok(200);
        answer["balance"].as_str().unwrap().to_owned()
    }
}

/// Whatever text differs between runs is named instead.
fn told(response: &Response) -> String {
    let mut answer = response.json();
    let name = |entry: &mut Value| {
        let Some(entry) = entry.as_object_mut() else { return };
        if let Some(id) = entry.get_mut("orderID").filter(|id| *id != "") {
            assert_eq!(id.as_str().unwrap().len(), 66);
            *id = json!("[id]");
        }
        if let Some(Value::Array(ids)) = entry.get_mut("tradeIDs") {
            for id in ids {
                let (_, number) = id.as_str().unwrap().split_once('-').unwrap();
                *id = json!(format!("[order]-{number}"));
            }
        }
        if let Some(Value::Array(hashes)) = entry.get_mut("transactionsHashes") {
            for hash in hashes {
                assert_eq!(hash.as_str().unwrap().len(), 66);
                *hash = json!("[hash]");
            }
        }
        for field in ["error", "errorMsg"] {
            if let Some(text) = entry.get(field).and_then(Value::as_str)
                && let Some((before, after)) = text.split_once("0x")
                && after.len() > 64
            {
                let named = format!("{before}[id]{}", &after[64..]);
                entry[field] = json!(named);
            }
        }
    };
    match &mut answer {
        Value::Array(entries) => entries.iter_mut().for_each(name),
        entry => name(entry),
    }
    format!("{} {answer}", response.status)
}

#[test]
fn orders_are_answered_as_the_venue_does() {
    let client = Client::new(server(), 101);
    let mut transcript = String::new();
    for (salt, asked) in [
        "BUY FOK 5 for 10",
        "BUY FAK 5.30 for 10",
        "BUY FOK 51 for 102",
        "BUY FAK 51.5 for 103",
        "SELL FOK 10 for 4.8",
        "SELL FAK 5 for 2",
        "BUY GTC 4 for 10",
        "BUY GTC 5.3 for 10",
        "SELL GTC 5 for 3.5",
        "BUY GTD 4 for 10 in=200",
        "BUY GTC 4 for 10 post-only",
        "BUY FOK 5 for 10 safe",
        "SELL FOK 5 for 2.4 proxy",
        // Less than a limit order may have, and more decimals than the venue takes.
        "SELL FAK 2 for 0.8",
        "BUY FOK 1.234567 for 2.469134",
        "BUY GTC 4.001 for 10.0025",
        "SELL FAK 2.123456 for 0.8",
        // Refused from here on.
        "BUY GTC 5.3 for 10 post-only",
        // The token of a market that only the third version settles.
        "BUY GTC 4 for 10 v1",
        "BUY FOK 5 for 10 post-only",
        "SELL FAK 5 for 2 post-only",
        "SELL GTC 5 for 2 post-only",
        "SELL FAK 5 for 3",
        "BUY FAK 4 for 10",
        "BUY FOK 5.0 for 10.5",
        "BUY FOK 50000 for 100000",
        "BUY GTC 5.005 for 10",
        "BUY GTC 1 for 2.5",
        "BUY GTC 1.2 for 4",
        "SELL GTC 4.99 for 3.493",
        "BUY FOK 0.7 for 1.4",
        "BUY GTC 0.6 for 1.2",
        "BUY GTC 5000 for 10000",
        "SELL GTC 5000 for 3500",
        "SELL FOK 5000 for 2000",
        "BUY GTD 4 for 10 in=170",
        "BUY GTD 4 for 10",
        "BUY GTC 4 for 10 in=400",
        "BUY FOK 5 for 10 in=400",
        "BUY GTC 5 for 5",
        "BUY GTC 2000000 for 4000000",
    ]
    .into_iter()
    .enumerate()
    {
        let answer = told(&client.order(salt as u64, asked));
        writeln!(transcript, "{asked}\n  {answer}").unwrap();
    }
    let signed = |salt| client.body(salt, &token_id(0, 0), "BUY FOK 5 for 10");
    let own = client.signer.address().checksummed();
    let zero = format!("0x{}", "0".repeat(40));
    let with = |role: &str, address: &str| format!(r#""{role}":"{address}""#);
    for (title, body) in [
        ("other maker", signed(52).replace(&with("maker", &own), &with("maker", &zero))),
        ("other signer", signed(53).replace(&with("signer", &own), &with("signer", &zero))),
        ("no order", "{}".to_owned()),
        ("no JSON", "{".to_owned()),
        ("unknown token", client.body(50, "1", "BUY FOK 5 for 10")),
        ("paused market", client.body(50, &token_id(3, 0), "BUY GTC 4 for 10")),
        ("other owner", client.signer.order(&draft(51, &token_id(0, 0), "BUY FOK 5 for 10"), "x")),
    ] {
        let answer = told(&client.call("POST", "/order", &body));
        writeln!(transcript, "{title}\n  {answer}").unwrap();
    }
    insta::assert_snapshot!(transcript);
}

/// A fill costs the same here as by this server's own interface, to the micro-dollar.
#[test]
fn fees_and_cash_are_those_of_our_own_interface() {
    let client = Client::new(server(), 102);
    let own = server().account();
    let token = token_id(2, 0);
    let body = client.body(1, &token, "BUY FOK 7.77 for 15.54");
    assert_eq!(client.call("POST", "/order", &body).ok(200)["status"], "matched");
    let order = json!({"market_id": super::recording::WITH_FEE, "outcome": "Up", "side": "BUY",
                       "order_type": "market", "amount": "7.77", "price": "0.5"});
    own.post("/v1/orders", &order).ok(200);
    let dollars: f64 = own.balance().parse().unwrap();
    assert_eq!(client.balance("COLLATERAL"), format!("{:.0}", dollars * 1e6));
    assert_eq!(client.balance(&format!("CONDITIONAL&token_id={token}")), "15540000");
}

/// An order that is sent again gets its first answer, and nothing happens: at once, after a crash,
/// as another type, and once a new order would be refused.
#[test]
fn an_order_is_placed_once() {
    let server = Server::unlimited_with(&ON);
    let client = Client::new(&server, 1);
    let bodies =
        ["BUY FOK 5 for 10", "BUY GTC 4 for 10"].map(|it| client.body(1, &token_id(0, 0), it));
    let as_other_type = bodies[0].replace("\"FOK\"", "\"FAK\"");
    assert_ne!(as_other_type, bodies[0]);
    let answers = bodies.clone().map(|body| client.call("POST", "/order", &body).ok(200));
    assert_eq!(answers.each_ref().map(|it| it["status"].clone()), ["matched", "live"]);
    let credentials = client.credentials.clone();
    let cash = client.balance("COLLATERAL");
    let server = server.crash_and_restart_with(&ON);
    let client = Client::new(&server, 1);
    assert_eq!(client.credentials, credentials);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for (body, answer) in bodies.iter().zip(&answers) {
                    assert_eq!(client.call("POST", "/order", body).ok(200), *answer);
                }
                assert_eq!(client.call("POST", "/order", &as_other_type).ok(200), answers[0]);
            });
        }
    });
    assert_eq!(client.balance("COLLATERAL"), cash);
    assert_eq!(client.balance(&format!("CONDITIONAL&token_id={}", token_id(0, 0))), "10000000");
    // Nobody else can send it: not with other credentials, nor changed.
    let other = Client::new(&server, 2);
    let stolen = bodies[1].replace(&credentials.api_key, &other.credentials.api_key);
    let refused = other.call("POST", "/order", &stolen);
    let text = "the order signer address has to be the address of the API KEY";
    assert_eq!((refused.status, refused.json()), (400, json!({ "error": text })));
    let changed = bodies[1].replace("\"4000000\"", "\"3900000\"");
    let refused = client.call("POST", "/order", &changed);
    assert_eq!((refused.status, refused.json()), (400, json!({"error": "invalid signature"})));
    let cancelled = client.call("DELETE", "/cancel-all", "").ok(200);
    assert_eq!(cancelled["canceled"], json!([answers[1]["orderID"]]));
    assert_eq!(client.call("POST", "/order", &bodies[1]).ok(200), answers[1]);
}

#[test]
fn a_list_has_an_answer_for_each_order() {
    let client = Client::new(server(), 103);
    let token = token_id(0, 0);
    let body = |salt, asked| client.body(salt, &token, asked);
    let first = body(1, "BUY FOK 5 for 10");
    let list = [
        first.clone(),
        "{}".into(),
        body(2, "BUY GTC 4 for 10"),
        first,
        body(3, "BUY GTC 5.005 for 10"),
        body(4, "SELL FOK 500 for 250"),
    ];
    let sent = format!("[{}]", list.join(","));
    let answer = client.call("POST", "/orders", &sent);
    insta::assert_snapshot!(told(&answer).replace("},{", "},\n{"));
    assert_eq!(client.call("POST", "/orders", &sent).json(), answer.json(), "a repetition");
    let fifteen: Vec<String> = (10..25).map(|salt| body(salt, "BUY GTC 4 for 10")).collect();
    let taken = client.call("POST", "/orders", &format!("[{}]", fifteen.join(","))).ok(200);
    let taken = taken.as_array().unwrap();
    assert_eq!(taken.iter().filter(|it| it["success"] == true).count(), 15);
    let sixteen = vec![fifteen[0].as_str(); 16].join(",");
    for (sent, text) in [
        (format!("[{sixteen}]"), "Too many orders in payload: 16, max allowed: 15"),
        ("[]".into(), "Invalid order payload"),
        ("{}".into(), "Invalid order payload"),
    ] {
        let refused = client.call("POST", "/orders", &sent);
        assert_eq!((refused.status, refused.json()), (400, json!({ "error": text })));
    }
}

#[test]
fn orders_are_cancelled_by_what_was_signed() {
    let client = Client::new(server(), 104);
    let other_token = token_id(6, 0);
    let place = |salt, token: &str| {
        let body = client.body(salt, token, "BUY GTC 4 for 10");
        client.call("POST", "/order", &body).ok(200)["orderID"].as_str().unwrap().to_owned()
    };
    let ids: Vec<String> = (0..70).map(|salt| place(salt, &token_id(0, 0))).collect();
    let in_other: Vec<String> = (70..72).map(|salt| place(salt, &other_token)).collect();
    let reason = "order can't be found - already canceled or matched";
    let cancel = |path: &str, body: &Value| {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        client.call("DELETE", path, &body).ok(200)
    };
    let one = json!({"orderID": ids[0]});
    let done = json!({"canceled": [ids[0]], "not_canceled": {}});
    assert_eq!(cancel("/order", &one), done);
    let again = json!({"canceled": [], "not_canceled": {&ids[0]: reason}});
    assert_eq!(cancel("/order", &one), again);
    let unknown = "0xab";
    let some = json!([ids[0], ids[1], unknown, ids[69], ids[1]]);
    let done =
        json!({"canceled": [ids[1], ids[69]], "not_canceled": {&ids[0]: reason, unknown: reason}});
    assert_eq!(cancel("/orders", &some), done);
    let in_market = json!({"market": "", "asset_id": other_token});
    let done = json!({"canceled": in_other, "not_canceled": {}});
    assert_eq!(cancel("/cancel-market-orders", &in_market), done);
    let nowhere = json!({"market": "0x77", "asset_id": ""});
    assert_eq!(cancel("/cancel-market-orders", &nowhere)["canceled"], json!([]));
    assert_eq!(cancel("/cancel-all", &Value::Null)["canceled"], json!(ids[2..69]));
    assert_eq!(cancel("/cancel-all", &Value::Null)["canceled"], json!([]));
    let many: Vec<&str> = vec!["0x1"; 3_001];
    for (path, body, text) in [
        ("/orders", json!(many), "Too many orders in payload, max allowed: 3000"),
        ("/orders", json!({}), "Invalid order payload"),
        ("/order", json!({"orderId": "0x1"}), "Invalid order payload"),
        ("/order", Value::Null, "Invalid order payload"),
    ] {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let refused = client.call("DELETE", path, &body);
        assert_eq!((refused.status, refused.json()), (400, json!({ "error": text })), "{path}");
    }
}

#[test]
fn a_strict_server_refuses_what_the_venue_refuses() {
    let server = Server::unlimited_with(&[&ON[..], &["--clob-strict", "on"]].concat());
    let client = Client::new(&server, 1);
    let mut transcript = String::new();
    for (salt, asked) in [
        "BUY FOK 5.01 for 10.02 safe",
        "BUY FAK 5.01 for 9.8235 safe",
        "BUY GTC 4.004 for 10.01 safe",
        "SELL FOK 5.01 for 2.4048 safe",
        // Refused from here on.
        "BUY FOK 5 for 10",
        "BUY FOK 5 for 10 proxy",
        "BUY FOK 5.001 for 10.002 safe",
        "BUY FAK 5 for 9.80393 safe",
        "BUY GTC 4.0004 for 10.001 safe",
        "SELL GTC 5.001 for 3.5007 safe",
        "SELL FOK 5.001 for 2.40048 safe",
        "SELL FAK 5.001 for 2.40048 safe",
    ]
    .into_iter()
    .enumerate()
    {
        let answer = told(&client.order(salt as u64, asked));
        writeln!(transcript, "{asked}\n  {answer}").unwrap();
    }
    insta::assert_snapshot!(transcript);
}

/// Where the first version would be settled.
#[test]
fn a_strict_server_refuses_the_first_version() {
    let flags = [&ON[..], &["--clob-strict", "on", "--venue-speed", "0.000001"]].concat();
    let server = Server::simulated_with(&flags);
    let client = Client::new(&server, 1);
    let markets = server.get("/sampling-markets").ok(200);
    let is_plain = |market: &&Value| market["neg_risk"] == false;
    let market = markets["data"].as_array().unwrap().iter().find(is_plain).unwrap();
    let token = market["tokens"][0]["token_id"].as_str().unwrap();
    let body = client.body(1, token, "BUY GTC 5 for 500 safe v1");
    let refused = client.call("POST", "/order", &body);
    assert_eq!((refused.status, refused.json()), (400, json!({"error": "order_version_mismatch"})));
    let body = client.body(1, token, "BUY GTC 5 for 500 safe");
    assert_eq!(client.call("POST", "/order", &body).ok(200)["status"], "live");
}

#[test]
fn hashes_come_with_the_answer_if_the_operator_chooses() {
    let flags = [&ON[..], &["--clob-hashes", "at-once"]].concat();
    let server = Server::unlimited_with(&flags);
    let client = Client::new(&server, 1);
    let answer = client.order(1, "BUY FOK 5 for 10").ok(200);
    assert_eq!(answer["transactionsHashes"].as_array().unwrap().len(), 1);
    assert_eq!(answer["tradeIDs"].as_array().unwrap().len(), 1);
    assert_eq!(client.order(1, "BUY FOK 5 for 10").ok(200), answer);
    assert!(client.order(2, "BUY GTC 4 for 10").ok(200).get("transactionsHashes").is_none());
}

/// An expiration is any number of seconds for those who sign it, and the engine counts until 2262.
#[test]
fn an_order_may_expire_in_ten_thousand_years() {
    let client = Client::new(server(), 107);
    let token = token_id(0, 0);
    let far = |salt, expiration_s| {
        let draft = DraftOrder { expiration_s, ..draft(salt, &token, "BUY GTD 4 for 10") };
        let body = client.signer.order(&draft, &client.credentials.api_key);
        client.call("POST", "/order", &body)
    };
    for (salt, expiration_s) in [(1, 1_000_000_000_000), (2, u64::MAX)] {
        let placed = far(salt, expiration_s).ok(200);
        assert_eq!(placed["status"], "live", "{placed}");
        let id = placed["orderID"].as_str().unwrap();
        let row = client.get(&format!("/data/order/{id}")).ok(200);
        assert_eq!((&row["status"], &row["expiration"]), (&json!("LIVE"), &json!("9223372096")));
        assert_eq!(far(salt, expiration_s).ok(200), placed);
    }
    assert_eq!(client.get("/data/orders").ok(200)["count"], 2);
    assert_eq!(client.call("DELETE", "/cancel-all", "").ok(200)["not_canceled"], json!({}));
}

/// What a client sees of an order between placing it and its end.
#[test]
fn orders_and_their_trades_are_listed() {
    let client = Client::new(server(), 105);
    let token = token_id(0, 0);
    let id = |answer: &Value| answer["orderID"].as_str().unwrap().to_owned();
    let expires = now_s() + 600;
    let resting = client.order(1, "BUY GTD 4 for 10 in=600").ok(200);
    let bought = client.order(2, "BUY FOK 5 for 10").ok(200);
    let open = client.get(&format!("/data/orders?asset_id={token}")).ok(200);
    let row = &open["data"][0];
    assert_eq!((&open["count"], &open["next_cursor"]), (&json!(1), &json!("LTE=")));
    let expiration: i64 = row["expiration"].as_str().unwrap().parse().unwrap();
    assert!((expires - 5..expires + 60).contains(&expiration), "{row}");
    for (field, expected) in [
        ("id", json!(id(&resting))),
        ("status", json!("LIVE")),
        ("owner", json!(client.credentials.api_key)),
        ("maker_address", json!(client.signer.address().checksummed())),
        ("original_size", json!("10")),
        ("size_matched", json!("0")),
        ("price", json!("0.4")),
        ("order_type", json!("GTD")),
        ("asset_id", json!(token)),
    ] {
        assert_eq!(row[field], expected, "{field}");
    }
    let trade_id = bought["tradeIDs"][0].as_str().unwrap();
    let trades = client.get(&format!("/data/trades?id={trade_id}")).ok(200);
    let trade = &trades["data"][0];
    assert_eq!((&trades["count"], &trade["id"]), (&json!(1), &json!(trade_id)));
    assert_eq!(trade["taker_order_id"], json!(id(&bought)));
    assert_eq!((&trade["size"], &trade["price"]), (&json!("10"), &json!("0.5")));
    assert_eq!((&trade["status"], &trade["trader_side"]), (&json!("CONFIRMED"), &json!("TAKER")));
    assert_eq!(trade["transaction_hash"].as_str().unwrap().len(), 66);
    assert_eq!(trade["maker_orders"].as_array().unwrap().len(), 1);
    for (path, order, status) in [
        ("data/order", &resting, "LIVE"),
        ("order", &bought, "MATCHED"),
        ("order", &resting, "LIVE"),
    ] {
        let row = client.get(&format!("/{path}/{}", id(order))).ok(200);
        assert_eq!((&row["id"], &row["status"]), (&json!(id(order)), &json!(status)));
    }
    client.call("DELETE", "/cancel-all", "").ok(200);
    let ended = client.get(&format!("/data/order/{}", id(&resting))).ok(200);
    assert_eq!(ended["status"], "CANCELED");
    assert_eq!(client.get("/data/orders").ok(200)["count"], 0);
    let other = Client::new(server(), 106);
    assert_eq!(other.get(&format!("/data/order/{}", id(&bought))).status, 404);
    assert_eq!(other.get(&format!("/data/trades?id={trade_id}")).ok(200)["count"], 0);
}
