//! The venue's Data API: what wallets hold and have done, without credentials.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use paperbourse_clob::signature::wallets::Wallets;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::clob_wallets::Client;
use super::recording::{PLAIN, WITH_FEE, token_id};
use super::server::{Server, shared_with_clob as server};

const ON: [&str; 2] = ["--clob", "on"];
const NO_USER: &str = r#"{"error":"required query param 'user' not provided"}"#;
const NOBODY: &str = "0x00000000000000000000000000000000deadbeef";

/// All paths that ask for a user.
const PATHS: [&str; 13] = [
    "/positions",
    "/closed-positions",
    "/value",
    "/activity",
    "/trades",
    "/traded",
    "/v2/positions",
    "/v2/trades",
    "/v2/activity",
    "/v2/value",
    "/v2/user-pnl",
    "/v2/user-stats",
    "/v2/user-volume",
];

impl Client<'_> {
    /// Trades in the outcome with this token.
    #[track_caller]
    fn trade(&self, salt: u64, token: &str, asked: &str) {
        let answer = self.call("POST", "/order", &self.body(salt, token, asked)).ok(200);
        assert_eq!(answer["status"], "matched", "{answer}");
    }

    /// Reads something of a wallet, without credentials.
    fn read(&self, path: &str, query: &str) -> Value {
        let user = self.signer.address();
        self.server.get(format!("{path}?user={user}{query}")).ok(200)
    }
}

/// Puts a name in place of the value of a field.
fn named(text: &str, field: &str, name: &str) -> String {
    let key = format!("\"{field}\":");
    let mut parts = text.split(&key);
    let mut told = parts.next().unwrap().to_owned();
    for part in parts {
        let end = part.find([',', '}']).unwrap();
        write!(told, "{key}{name}{}", &part[end..]).unwrap();
    }
    told
}

/// An amount in millionths.
#[track_caller]
fn micros(amount: &Value) -> i64 {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    let (digits, sign) = text.strip_prefix('-').map_or((&*text, 1), |digits| (digits, -1));
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    sign * format!("{whole}{decimals:0<6}").parse::<i64>().unwrap()
}

#[track_caller]
fn sum(rows: &Value, field: &str) -> i64 {
    rows.as_array().unwrap().iter().map(|row| micros(&row[field])).sum()
}

#[test]
fn each_wallet_of_a_signer_shows_what_it_has_traded() {
    let client = Client::new(server(), 301);
    for (salt, (place, outcome), asked) in [
        (1, (0, 0), "BUY FOK 5 for 10"),
        (2, (0, 0), "SELL FOK 4 for 1.92"),
        (3, (0, 1), "BUY FOK 2.6 for 5 safe"),
        (4, (2, 0), "BUY FOK 7.77 for 15.54 proxy"),
        (5, (2, 0), "SELL FOK 15.54 for 7.4592"),
    ] {
        client.trade(salt, &token_id(place, outcome), asked);
    }
    let signer = client.signer.address();
    let Wallets { proxy, safe, deposit, deposit_without_beacon } = Wallets::of(signer);
    let read = |path: &str, address: &str| {
        let text = server().get(format!("{path}?user={address}")).text;
        let lower = address.to_lowercase();
        assert_eq!(text.contains(&lower), path != "/v2/user-volume", "{path} {text}");
        let text = text.replace(&lower, "[wallet]");
        let times = ["timestamp", "first_entry_at", "last_event_at", "join_date"];
        times.iter().fold(text, |text, field| named(&text, field, "[time]"))
    };
    let mut transcript = String::new();
    for path in PATHS {
        let told = read(path, &signer.to_string());
        assert_eq!(read(path, &signer.checksummed()), told);
        for contract in [proxy, safe, deposit, deposit_without_beacon] {
            assert_eq!(read(path, &contract.to_string()), told, "{contract}");
        }
        let told = ["transactionHash", "transaction_hash"]
            .iter()
            .fold(told, |told, field| named(&told, field, "[hash]"));
        let told = told.replace("},{", "},\n{");
        writeln!(transcript, "# GET {path}\n{told}\n").unwrap();
    }
    insta::assert_snapshot!(transcript);
}

#[test]
fn an_unknown_user_has_nothing() {
    for path in PATHS {
        let answer = server().get(format!("{path}?user={NOBODY}")).ok(200);
        let wallet = |mut it: Value, name: &str| {
            assert_eq!(it[name].take(), NOBODY);
            it
        };
        match path {
            "/value" => assert_eq!(answer, json!([{"user": NOBODY, "value": 0}])),
            "/traded" => assert_eq!(answer, json!({"user": NOBODY, "traded": 0})),
            "/v2/value" => {
                assert_eq!(answer, json!({"data": {"proxy_wallet": NOBODY, "value": 0}}));
            }
            "/v2/user-stats" => assert_eq!(answer, json!({"data": null})),
            "/v2/user-volume" => {
                let nothing = json!({"volume": 0, "volume_usdc": 0, "trade_count": 0});
                assert_eq!(answer, json!({ "data": nothing }));
            }
            "/v2/user-pnl" => {
                assert_eq!(wallet(answer["data"].clone(), "proxy_wallet")["points"], json!([]));
            }
            _ if path.starts_with("/v2") => {
                let pagination = json!({"has_more": false, "next_cursor": null});
                assert_eq!(answer, json!({"data": [], "pagination": pagination}));
            }
            _ => assert_eq!(answer, json!([])),
        }
        for query in ["", "?user=", "?user=0x1", "?user=notawallet", "?market=0x7"] {
            let refused = server().get(format!("{path}{query}"));
            assert_eq!((refused.status, &*refused.text), (400, NO_USER), "{path}{query}");
        }
    }
    for (target, text) in [
        ("/positions?limit=x", "Invalid payload"),
        ("/positions?offset=10001", "Invalid payload"),
        ("/positions?sortBy=LUCK", "Invalid payload"),
        ("/positions?market=0x7", "Invalid market"),
        ("/activity?sortDirection=UP", "Invalid payload"),
        ("/trades?side=HOLD", "Invalid side"),
        ("/trades?takerOnly=maybe", "Invalid payload"),
        ("/v2/trades?cursor=x", "Invalid payload"),
        ("/v2/activity?cursor=1.2", "Invalid payload"),
        ("/v2/positions?cursor=x", "Invalid payload"),
        ("/v2/positions?status=LOST", "Invalid payload"),
        ("/v2/user-pnl?interval=1y", "Invalid payload"),
    ] {
        let refused = server().get(format!("{target}&user={NOBODY}"));
        assert_eq!((refused.status, refused.json()), (400, json!({ "error": text })), "{target}");
    }
}

/// What this server has not, or does not tell, is empty rather than unknown.
#[test]
fn there_are_no_leaders_builders_and_combos() {
    let pagination = json!({"has_more": false, "next_cursor": null});
    let market = format!("market={PLAIN}&condition_id={PLAIN}");
    for path in ["/holders", "/oi", "/v1/leaderboard", "/v1/builders/leaderboard"] {
        assert_eq!(server().get(format!("{path}?{market}")).ok(200), json!([]), "{path}");
    }
    assert_eq!(server().get("/v1/builders/volume").ok(200), json!([]));
    for path in ["/v2/oi", "/v2/resolutions", "/v2/builders/volume"] {
        assert_eq!(server().get(format!("{path}?{market}")).ok(200), json!({"data": []}), "{path}");
    }
    for path in [
        "/v2/holders",
        "/v2/leaderboard",
        "/v2/biggest-winners",
        "/v2/builders/leaderboard",
        "/v2/activity/combos",
        "/v2/positions/combos",
    ] {
        let expected = json!({"data": [], "pagination": pagination});
        assert_eq!(server().get(format!("{path}?{market}")).ok(200), expected, "{path}");
    }
    let standing = server().get(format!("/v2/leaderboard?user={NOBODY}")).ok(200);
    assert_eq!(standing, json!({"data": null}));
}

#[test]
fn tokens_name_their_markets() {
    let read = |query: &str| server().get(format!("/v2/tokens?{query}"));
    let [yes, no] = [token_id(0, 0), token_id(0, 1)];
    let row = |token: &str, opposite: &str, index: u64, outcome: &str| {
        json!({
            "token_id": token, "condition_id": PLAIN, "structural_condition_id": null,
            "module": "v1_ctf", "outcome_index": index, "clob_index": index, "outcome": outcome,
            "opposite_token_id": opposite, "resolved": false, "final_price": null,
            "title": "Does invented thing 0 happen?", "market_slug": "invented-market-0",
            "closed": false, "neg_risk": false, "neg_risk_market_id": null,
            "question_index": null, "event_id": 55, "event_slug": "first-things",
        })
    };
    let both = json!({"data": [row(&yes, &no, 0, "Yes"), row(&no, &yes, 1, "No")]});
    assert_eq!(read(&format!("token_id={yes},1,{no}")).ok(200), both);
    assert_eq!(read(&format!("condition={PLAIN}")).ok(200), both);
    assert_eq!(read("token_id=1").ok(200), json!({"data": []}));
    let many = |name: &str, count: usize| format!("{name}={}", vec![PLAIN; count].join(","));
    for query in [
        String::new(),
        format!("token_id={yes}&condition={PLAIN}"),
        many("token_id", 51),
        many("condition", 11),
    ] {
        assert_eq!(read(&query).status, 400, "{query}");
    }
    assert_eq!(read(&many("condition", 10)).ok(200)["data"].as_array().unwrap().len(), 20);
}

#[test]
fn events_have_the_volumes_of_their_markets() {
    let event = server().get("/gamma/events/55").ok(200);
    let markets = event["markets"].as_array().unwrap();
    let of_markets = |name: &str, value: &str| -> Vec<Value> {
        let rows = markets.iter().filter(|market| !market["volumeNum"].is_null());
        rows.map(|it| json!({name: it["conditionId"], value: it["volumeNum"]})).collect()
    };
    let volume = &event["volume"];
    assert!(micros(volume) > 0, "{event}");
    let expected = json!([{"total": volume, "markets": of_markets("market", "value")}]);
    assert_eq!(server().get("/live-volume?id=55").ok(200), expected);
    let conditions = of_markets("condition_id", "taker_volume");
    let expected = json!({"data": {"taker_volume_total": volume, "conditions": conditions}});
    assert_eq!(server().get("/v2/live-volume?event_id=55,56").ok(200), expected);
    assert_eq!(server().get("/live-volume?id=56").ok(200), json!([]));
    let many = vec!["55"; 21].join(",");
    for query in ["/live-volume", "/v2/live-volume?id=55", &format!("/live-volume?id={many}")] {
        assert_eq!(server().get(query).status, 400, "{query}");
    }
}

/// Prices are those of the order book's interface, also page by page and up to a moment.
#[test]
fn prices_are_read_in_pages() {
    let token = token_id(0, 0);
    let read = |query: &str| server().get(format!("/v2/prices-history?token_id={token}{query}"));
    let clob = server().get(format!("/prices-history?market={token}&interval=max")).ok(200);
    let clob: Vec<Value> = clob["history"].as_array().unwrap().clone();
    assert!(!clob.is_empty());
    let (mut walked, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = read(&format!("&interval=max&limit=1{cursor}")).ok(200);
        let [row] = &page["data"].as_array().unwrap()[..] else { panic!("{page}") };
        walked.push(json!({"t": row["timestamp"], "p": row["price"]}));
        let Some(next) = page["pagination"]["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    // The newest price may be another one by now.
    let older = clob.len() - 1;
    assert_eq!(walked[..older], clob[..older]);
    assert!(walked.len() > older);
    let first = &clob[0];
    let at = first["t"].as_u64().unwrap();
    let only = read(&format!("&as_of={at}")).ok(200)["data"].clone();
    let price = &first["p"];
    assert_eq!(only, json!([{"timestamp": at, "price": price, "resolution_seconds": 0}]));
    let before = read(&format!("&start=1&end={}", at - 1_000_000_000)).ok(200);
    assert_eq!(before["data"], json!([]));
    for query in ["", "&interval=1y", "&interval=max&start=1", "&interval=max&cursor=x"] {
        assert_eq!(read(query).status, 400, "{query}");
    }
}

#[test]
fn lists_are_filtered_sorted_and_cut() {
    let client = Client::new(server(), 302);
    let [yes, no, up] = [(0, 0), (0, 1), (2, 0)].map(|(place, outcome)| token_id(place, outcome));
    client.trade(1, &yes, "BUY FOK 5 for 10");
    client.trade(2, &no, "BUY FOK 10.4 for 20");
    client.trade(3, &up, "BUY FOK 2 for 4");
    client.trade(4, &yes, "SELL FOK 9.5 for 4.56");
    let fields = |rows: Value, field: &str| -> Vec<String> {
        let rows = rows.as_array().unwrap().clone();
        rows.iter().map(|row| row[field].to_string().replace('"', "")).collect()
    };
    for (query, expected) in [
        ("", vec!["20", "4"]),
        ("&sizeThreshold=0.1", vec!["20", "4", "0.5"]),
        ("&sizeThreshold=0&sortDirection=ASC", vec!["0.5", "4", "20"]),
        ("&sizeThreshold=0&limit=1&offset=1", vec!["4"]),
        ("&limit=0", vec![]),
        ("&sortBy=AVGPRICE&sortDirection=ASC&sizeThreshold=0", vec!["0.5", "4", "20"]),
        ("&sortBy=CURRENT", vec!["20", "4"]),
        ("&sortBy=CASHPNL", vec!["4", "20"]),
        ("&eventId=55", vec!["20"]),
        ("&eventId=56,57", vec![]),
        ("&redeemable=true", vec![]),
        ("&mergeable=true", vec![]),
        ("&redeemable=false&mergeable=false&title=invented", vec!["20", "4"]),
        ("&title=nothing%20like%20it", vec![]),
    ] {
        assert_eq!(fields(client.read("/positions", query), "size"), expected, "{query}");
    }
    let market = format!("&market={WITH_FEE}");
    assert_eq!(fields(client.read("/positions", &market), "asset"), [&*up]);
    let both = format!("&sizeThreshold=0&market={WITH_FEE},{PLAIN}");
    assert_eq!(client.read("/positions", &both).as_array().unwrap().len(), 3);
    let newest_first = ["9.5", "4", "20", "10"];
    for (query, expected) in [
        ("", newest_first.to_vec()),
        ("&takerOnly=false", newest_first.to_vec()),
        ("&side=SELL", vec!["9.5"]),
        ("&limit=2&offset=1", vec!["4", "20"]),
        ("&filterType=CASH&filterAmount=5", vec!["20", "10"]),
        ("&filterType=TOKENS&filterAmount=9.5", vec!["9.5", "20", "10"]),
        (&*market, vec!["4"]),
        (&*both, newest_first.to_vec()),
    ] {
        assert_eq!(fields(client.read("/trades", query), "size"), expected, "{query}");
    }
    for (query, expected) in [
        ("", newest_first.to_vec()),
        ("&sortDirection=ASC", vec!["10", "20", "4", "9.5"]),
        ("&sortDirection=ASC&limit=2&offset=1", vec!["20", "4"]),
        ("&sortBy=TOKENS", vec!["20", "10", "9.5", "4"]),
        ("&sortBy=CASH&sortDirection=ASC&limit=2", vec!["4", "9.5"]),
        ("&type=REDEEM", vec![]),
        ("&type=TRADE,REDEEM&side=BUY", vec!["4", "20", "10"]),
        ("&start=1&end=2", vec![]),
        ("&start=1800000000", newest_first.to_vec()),
    ] {
        let query = query.replace("1800000000", "1000000000");
        assert_eq!(fields(client.read("/activity", &query), "size"), expected, "{query}");
    }
    for (query, expected) in [
        ("", vec!["20", "4", "0.5"]),
        ("&status=CLOSED", vec![]),
        ("&status=REDEEMABLE", vec![]),
        ("&status=MERGEABLE", vec![]),
        ("&sort_by=TOKENS&sort_direction=ASC", vec!["0.5", "4", "20"]),
        ("&filter_type=TOKENS&filter_amount=1", vec!["20", "4"]),
        ("&event_id=55&title=invented&include_archived=false", vec!["20", "0.5"]),
        ("&start=1000000000&end=1000000001", vec![]),
    ] {
        let page = client.read("/v2/positions", query);
        assert_eq!(fields(page["data"].clone(), "current_size"), expected, "{query}");
    }
    for (query, volume, dollars, count) in [
        ("", json!(43.5), json!(21.96), 4),
        ("&start=1000000000", json!(43.5), json!(21.96), 4),
        ("&end=1000000000", json!(0), json!(0), 0),
    ] {
        let expected = json!({"volume": volume, "volume_usdc": dollars, "trade_count": count});
        assert_eq!(client.read("/v2/user-volume", query)["data"], expected, "{query}");
    }
    let only = client.read("/value", &market);
    let rows = client.read("/positions", &market);
    assert_eq!(micros(&only[0]["value"]), sum(&rows, "currentValue"));
}

/// Cursors lead through everything once, whatever is traded in between.
#[test]
fn pages_follow_each_other() {
    let client = Client::new(server(), 303);
    for salt in 0..5 {
        client.trade(salt, &token_id(0, 0), "BUY FOK 2 for 4");
    }
    for (path, query, key) in [
        ("/v2/trades", "", "transaction_hash"),
        ("/v2/activity", "", "transaction_hash"),
        ("/v2/activity", "&sort_direction=ASC", "transaction_hash"),
        ("/v2/positions", "", "token_id"),
    ] {
        let all = client.read(path, query)["data"].clone();
        let mut walked = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = client.read(path, &format!("{query}&limit=2{cursor}"));
            let (rows, pagination) = (page["data"].as_array().unwrap(), &page["pagination"]);
            assert_eq!(pagination["has_more"], !pagination["next_cursor"].is_null());
            assert!(!rows.is_empty() && rows.len() <= 2);
            walked.extend(rows.iter().map(|row| row[key].clone()));
            let Some(next) = pagination["next_cursor"].as_str() else { break };
            if walked.len() == 2 && query.is_empty() {
                client.trade(100 + path.len() as u64, &token_id(0, 0), "BUY FOK 2 for 4");
            }
            cursor = format!("&cursor={next}");
        }
        let expected: Vec<_> = all.as_array().unwrap().iter().map(|row| row[key].clone()).collect();
        assert_eq!(walked, expected, "{path}{query}");
        assert_eq!(walked.iter().map(Value::to_string).collect::<HashSet<_>>().len(), walked.len());
    }
}

/// The market's recording says from now on that its first outcome has won.
fn resolve(server: &Server, condition_id: &str) {
    let path = server.data().parent().unwrap().join("recording/gamma/markets.jsonl");
    let rows = std::fs::read_to_string(&path).unwrap();
    let rows = rows.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        if row["conditionId"] == condition_id {
            let fields = json!({
                "closed": true, "acceptingOrders": false, "umaResolutionStatus": "resolved",
                "outcomePrices": "[\"1\",\"0\"]", "updatedAt": "2026-01-10T11:00:00Z",
            });
            row.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        }
        row.to_string()
    });
    let rows: Vec<_> = rows.collect();
    std::fs::write(&path, rows.join("\n")).unwrap();
    // Nobody trades there any more.
    let path = server.data().parent().unwrap().join("recording/clob/books.jsonl");
    let books = std::fs::read_to_string(&path).unwrap();
    let books: Vec<_> = books.lines().filter(|line| !line.contains(condition_id)).collect();
    std::fs::write(&path, books.join("\n")).unwrap();
}

/// Two accounts trade the same, one of them by this server's own interface, whose sums the Data API
/// has to show for the other, to the micro-dollar.
#[test]
fn sums_are_those_of_our_own_interface() {
    let server = Server::unlimited_with(&ON);
    let client = Client::new(&server, 1);
    let key = server.account().key.clone();
    let cash = micros(&json!(client.balance("COLLATERAL"))) / 1_000_000;
    for (salt, market_id, outcome, token, asked, order) in [
        (1, PLAIN, "Yes", token_id(0, 0), "BUY FOK 5 for 10", json!({"amount": "5"})),
        (2, PLAIN, "No", token_id(0, 1), "BUY FOK 10.4 for 20", json!({"amount": "10.4"})),
        (3, WITH_FEE, "Up", token_id(2, 0), "BUY FOK 7.77 for 15.54", json!({"amount": "7.77"})),
        (4, PLAIN, "Yes", token_id(0, 0), "SELL FOK 3.33 for 1.5984", json!({"quantity": "3.33"})),
        (5, WITH_FEE, "Up", token_id(2, 0), "SELL FOK 1.1 for 0.528", json!({"quantity": "1.1"})),
    ] {
        client.trade(salt, &token, asked);
        let mut order = order;
        let side = asked.split(' ').next().unwrap();
        let fields = json!({"market_id": market_id, "outcome": outcome, "side": side,
                            "order_type": "market"});
        order.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        server.send(&Request::post("/v1/orders", &order).key(&key)).ok(200);
    }
    let compare = |client: &Client<'_>, is_resolved: bool| {
        let own = |path: &str| client.server.send(&Request::get(path).key(&key)).ok(200);
        let balance = own("/v1/account/balance");
        let positions = own("/v1/account/positions");
        let cash_now = client.balance("COLLATERAL").parse::<i64>().unwrap();
        assert_eq!(cash_now, micros(&balance["balance"]));
        let open = client.read("/positions", "&sizeThreshold=0");
        let closed = client.read("/closed-positions", "&limit=50");
        let open_count = if is_resolved { 1 } else { 3 };
        assert_eq!(open.as_array().unwrap().len(), open_count);
        assert_eq!(closed.as_array().unwrap().len(), 3 - open_count);
        for row in positions.as_array().unwrap() {
            let is_same = |it: &&Value| {
                it["conditionId"] == row["market_id"] && it["outcome"] == row["outcome"]
            };
            let rows = if row["status"] == "OPEN" { &open } else { &closed };
            let shown = rows.as_array().unwrap().iter().find(is_same).unwrap();
            assert_eq!(micros(&shown["realizedPnl"]), micros(&row["realized_pnl"]));
            if row["status"] == "OPEN" {
                for (field, ours) in [
                    ("size", "quantity"),
                    ("avgPrice", "avg_entry_price"),
                    ("curPrice", "current_price"),
                    ("currentValue", "market_value"),
                    ("cashPnl", "unrealized_pnl"),
                ] {
                    assert_eq!(micros(&shown[field]), micros(&row[ours]), "{field}");
                }
            }
        }
        let value = micros(&balance["total_value"]) - micros(&balance["balance"]);
        assert_eq!(micros(&client.read("/value", "")[0]["value"]), value);
        assert_eq!(micros(&client.read("/v2/value", "")["data"]["value"]), value);
        assert_eq!(sum(&open, "currentValue"), value);
        let pnl = &client.read("/v2/user-pnl", "")["data"]["points"][0];
        assert_eq!(micros(&pnl["realized_pnl"]), sum(&positions, "realized_pnl"));
        // Profit counts from the starting balance, fees included.
        assert_eq!(micros(&pnl["trade_pnl"]), micros(&balance["unrealized_pnl"]));
        // Every dollar that came or went is an activity or a fee.
        let activity = client.read("/activity", "");
        let rows = activity.as_array().unwrap();
        let flow: i64 = rows
            .iter()
            .map(|row| if row["side"] == "BUY" { -1 } else { 1 } * micros(&row["usdcSize"]))
            .sum();
        assert_eq!(cash + flow - micros(&pnl["fees"]), cash_now);
        let paid = client.read("/activity", "&type=REDEEM");
        let settlements = own("/v1/account/settlements")["data"].clone();
        assert_eq!(sum(&paid, "usdcSize"), sum(&settlements, "payout"));
        assert_eq!(sum(&paid, "size"), sum(&settlements, "quantity"));
        assert_eq!(paid.as_array().unwrap().len(), if is_resolved { 2 } else { 0 });
    };
    compare(&client, false);
    resolve(&server, PLAIN);
    let server = server.crash_and_restart_with(&ON);
    let client = Client::new(&server, 1);
    let began = Instant::now();
    while client.read("/activity", "&type=REDEEM").as_array().unwrap().len() < 2 {
        assert!(began.elapsed() < Duration::from_mins(1), "the market is not paid");
        std::thread::sleep(Duration::from_millis(20));
    }
    compare(&client, true);
    // The index of contracts is built at start.
    let proxy = Wallets::of(client.signer.address()).proxy;
    let rows = server.get(format!("/closed-positions?user={proxy}&limit=50")).ok(200);
    assert_eq!(rows.as_array().unwrap().len(), 2);
    // What was paid out first comes by profit: 6.67 shares that cost half a dollar won.
    assert_eq!((&rows[0]["outcome"], &rows[0]["curPrice"]), (&json!("Yes"), &json!(1)));
    assert_eq!(rows[1]["outcome"], "No");
    assert!(client.read("/positions", "&redeemable=true").as_array().unwrap().is_empty());
}
