//! Each record of the API: exactly its fields, with their types.

use paperbourse_test_support::Request;
use paperbourse_test_support::socket::{Socket, upgrade};
use serde_json::{Value, json};

use super::expect::Kind::{self, Decimal, Flag, Integer, List, Null, Number, Object, Text, Time};
use super::expect::check_fields;
use super::recording::{BOOKLESS, PLAIN, buy, limit, sell};
use super::server::shared;

/// The answer to a request for a key.
pub(crate) fn check_new_key(key: &Value, name: Kind) {
    check_fields(
        key,
        &[
            ("id", Integer),
            ("raw_key", Text),
            ("key_prefix", Text),
            ("rate_limit_tier", Text),
            ("permissions", List),
            ("created_at", Time),
            ("name", name),
        ],
    );
    let raw = key["raw_key"].as_str().unwrap();
    let hex = raw.strip_prefix("ps_live_").unwrap();
    assert_eq!(hex.len(), 64, "{raw}");
    assert!(hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')), "{raw}");
    assert_eq!(key["key_prefix"], raw[..16]);
    assert!((1..1 << 53).contains(&key["id"].as_u64().unwrap()));
}

#[test]
fn key_creation_result() {
    let server = shared();
    let token = server.token("key-creation-result", None);
    let body = json!({"name": "first", "permissions": ["trade", "read", "admin"]});
    let first = server.send(&Request::post("/v1/keys/bootstrap", &body).bearer(&token)).ok(201);
    check_new_key(&first, Text);
    assert_eq!((&first["name"], &first["rate_limit_tier"]), (&json!("first"), &json!("free")));
    assert_eq!(first["permissions"], json!(["read", "trade", "admin"]));
    let key = first["raw_key"].as_str().unwrap();
    let second = server.send(&Request::post("/v1/keys", &json!({})).key(key)).ok(201);
    check_new_key(&second, Null);
    assert_ne!(first["raw_key"], second["raw_key"]);
    assert_ne!(first["id"], second["id"]);
}

#[test]
fn key_list_row() {
    let account = shared().account();
    let second = account.new_key(&json!({"name": "second"}));
    let made = account.post("/v1/keys", &json!({})).ok(201);
    let rows = account.get("/v1/keys").ok(200);
    let rows = rows.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (row, (name, last_used, maker)) in
        rows.iter().zip([(Null, Time, Null), (Text, Null, Null), (Null, Null, Integer)])
    {
        check_fields(
            row,
            &[
                ("id", Integer),
                ("key_prefix", Text),
                ("name", name),
                ("rate_limit_tier", Text),
                ("permissions", List),
                ("is_active", Flag),
                ("created_at", Time),
                ("last_used_at", last_used),
                ("expires_at", Null),
                ("created_by", maker),
            ],
        );
    }
    assert_eq!(rows[1]["key_prefix"], second["key_prefix"]);
    assert_eq!((&rows[2]["id"], &rows[2]["created_by"]), (&made["id"], &rows[0]["id"]));
}

/// The numbers of `/trade` for a fill that is known in advance.
#[test]
fn trade_result_and_position() {
    let account = shared().account();
    let result = account.buy(150);
    let number = [
        ("order_id", Integer),
        ("status", Text),
        ("price", Number),
        ("quantity", Number),
        ("notional", Number),
        ("fee", Number),
        ("account_balance", Number),
        ("position", Object),
    ];
    check_fields(&result, &number);
    check_fields(
        &result["position"],
        &[
            ("market_id", Text),
            ("outcome", Text),
            ("quantity", Number),
            ("avg_entry_price", Number),
            ("status", Text),
        ],
    );
    let order_id = result["order_id"].as_u64().unwrap();
    assert!((1..1 << 53).contains(&order_id));
    // 100 at 0.50 and 50 at 0.53.
    assert_eq!(
        result,
        json!({
            "order_id": order_id, "status": "FILLED", "price": 0.51, "quantity": 150,
            "notional": 76.5, "fee": 0, "account_balance": 923.5,
            "position": {
                "market_id": PLAIN, "outcome": "Yes", "quantity": 150, "avg_entry_price": 0.51,
                "status": "OPEN",
            },
        })
    );
    let sold = account.post("/trade", &sell(150)).ok(200);
    check_fields(&sold, &number);
    // 100 at 0.48 and 50 at 0.47.
    assert_eq!(sold["notional"], 71.5);
    assert_eq!(sold["account_balance"], 995);
    assert_eq!(sold["position"]["status"], "CLOSED");
    assert_eq!(
        (&sold["position"]["quantity"], &sold["position"]["avg_entry_price"]),
        (&json!(0), &json!(0))
    );
}

#[test]
fn tiers() {
    let server = super::server::Server::start(&[]);
    let row = |tier: &str, [second, minute]: [u32; 2], sockets: u32, markets, batch: u32| {
        let markets: Option<u32> = markets;
        json!({"tier": tier, "requests_per_second": second, "requests_per_minute": minute,
               "max_ws_connections": sockets, "max_ws_markets": markets, "max_batch_size": batch})
    };
    assert_eq!(
        server.get("/v1/keys/tiers").ok(200),
        json!([
            row("free", [5, 300], 2, Some(50), 5),
            row("pro", [20, 1200], 10, Some(200), 20),
            row("enterprise", [50, 3000], 50, None, 50),
        ])
    );
    let unlimited = shared().get("/v1/keys/tiers").ok(200);
    assert_eq!(unlimited[0], row("free", [2_147_483_647; 2], 2, Some(50), 5));
}

#[test]
fn order_rows() {
    let account = shared().account();
    let named = {
        let mut order = buy(10);
        order["client_order_id"] = json!("mine");
        order
    };
    let placed = account.post("/trade", &named).ok(200);
    let row = account.get(format!("/v1/orders/{}", placed["order_id"])).ok(200);
    check_fields(
        &row,
        &[
            ("order_id", Integer),
            ("market_id", Text),
            ("side", Text),
            ("outcome", Text),
            ("order_type", Text),
            ("price", Decimal),
            ("limit_price", Null),
            ("quantity", Decimal),
            ("time_in_force", Text),
            ("status", Text),
            ("client_order_id", Text),
            ("created_at", Time),
            ("filled_at", Time),
            ("fill_price", Decimal),
            ("notional", Decimal),
            ("fee", Decimal),
            ("cancelled_at", Null),
            ("cancelled_reason", Null),
            ("expires_at", Null),
            ("filled_quantity", Decimal),
            ("remaining_quantity", Decimal),
            ("making_amount", Decimal),
            ("taking_amount", Decimal),
            ("trade_ids", List),
        ],
    );
    let list = account.get("/v1/orders").ok(200);
    check_fields(
        &list,
        &[("orders", List), ("next_cursor", Null), ("has_more", Flag), ("total_hint", Null)],
    );
    assert_eq!(list["orders"], json!([row]));
}

#[test]
fn batch_rows() {
    let account = shared().account();
    let mut refused = buy(1);
    refused["market_id"] = json!(BOOKLESS);
    let orders = json!({"orders": [buy(10), refused]});
    let answer = account.post("/v1/orders/batch", &orders).ok(200);
    check_fields(&answer, &[("results", List), ("succeeded", Integer), ("failed", Integer)]);
    check_fields(
        &answer["results"][0],
        &[
            ("order_id", Integer),
            ("status", Text),
            ("order_type", Text),
            ("side", Text),
            ("outcome", Text),
            ("price", Decimal),
            ("quantity", Decimal),
            ("notional", Decimal),
            ("fee", Decimal),
            ("filled_at", Time),
            ("price_source", Text),
            ("slippage_bps", Integer),
            ("book_walk_levels", Integer),
            ("account_balance", Decimal),
            ("position", Object),
            ("client_order_id", Null),
            ("time_in_force", Text),
            ("limit_price", Null),
            ("filled_quantity", Decimal),
            ("remaining_quantity", Decimal),
            ("making_amount", Decimal),
            ("taking_amount", Decimal),
            ("trade_ids", List),
        ],
    );
    check_fields(
        &answer["results"][0]["position"],
        &[
            ("market_id", Text),
            ("outcome", Text),
            ("quantity", Decimal),
            ("avg_entry_price", Decimal),
            ("status", Text),
        ],
    );
    check_fields(
        &answer["results"][1],
        &[
            ("order_id", Integer),
            ("status", Text),
            ("order_type", Text),
            ("side", Text),
            ("outcome", Text),
            ("price", Decimal),
            ("quantity", Decimal),
            ("notional", Decimal),
            ("fee", Decimal),
            ("client_order_id", Null),
            ("error", Text),
            ("error_message", Text),
        ],
    );
}

#[test]
fn the_caller() {
    let account = shared().account();
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    account.post("/v1/orders", &limit("BUY", 100, "0.4")).ok(200);
    let me = account.get("/v1/me").ok(200);
    check_fields(
        &me,
        &[
            ("id", Integer),
            ("user_id", Integer),
            ("auth_user_id", Text),
            ("email", Null),
            ("balance", Decimal),
            ("api_balance", Decimal),
            ("reserved", Decimal),
            ("currency", Text),
            ("tier", Text),
            ("permissions", List),
            ("key_count", Integer),
        ],
    );
    let follow = upgrade("/v1/ws/executions").key(&account.key);
    let hello = Socket::open(shared(), &follow).unwrap().text();
    assert_eq!((&me["id"], &me["user_id"]), (&hello["user_id"], &hello["user_id"]));
    assert_eq!(me["auth_user_id"], account.subject);
    let money = ["balance", "api_balance", "reserved", "currency"].map(|field| &me[field]);
    assert_eq!(money, ["960", "960", "40", "USD"]);
    assert_eq!((&me["tier"], &me["key_count"]), (&json!("free"), &json!(2)));
    let me = shared().send(&Request::get("/v1/me").key(reads["raw_key"].as_str().unwrap())).ok(200);
    assert_eq!(me["permissions"], json!(["read"]));
    account.delete(format!("/v1/keys/{}", reads["id"])).ok(200);
    let me = shared().send(&Request::get("/v1/me").bearer(&account.token)).ok(200);
    assert_eq!(me["permissions"], json!(["read", "trade", "admin"]));
    assert_eq!((&me["tier"], &me["key_count"]), (&json!("free"), &json!(1)));
}

#[test]
fn balance_and_positions() {
    let account = shared().account();
    account.buy(100);
    let balance = account.get("/v1/account/balance").ok(200);
    check_fields(
        &balance,
        &[
            ("balance", Decimal),
            ("currency", Text),
            ("unrealized_pnl", Decimal),
            ("total_value", Decimal),
            ("starting_balance", Decimal),
            ("reserved", Decimal),
            ("available", Decimal),
        ],
    );
    assert_eq!(
        (&balance["balance"], &balance["starting_balance"]),
        (&json!("950"), &json!("1000"))
    );
    let positions = account.get("/v1/account/positions").ok(200);
    check_fields(
        &positions[0],
        &[
            ("id", Integer),
            ("market_id", Text),
            ("outcome", Text),
            ("quantity", Decimal),
            ("available_quantity", Decimal),
            ("avg_entry_price", Decimal),
            ("current_price", Decimal),
            ("market_value", Decimal),
            ("unrealized_pnl", Decimal),
            ("realized_pnl", Decimal),
            ("status", Text),
            ("market_question", Text),
        ],
    );
    assert_eq!(
        (&positions[0]["quantity"], &positions[0]["avg_entry_price"]),
        (&json!("100"), &json!("0.5"))
    );
}

#[test]
fn what_open_orders_hold_back_is_not_available() {
    let account = shared().account();
    account.buy(100);
    let bid = account.post("/v1/orders", &limit("BUY", 50, "0.4")).ok(200);
    let ask = account.post("/v1/orders", &limit("SELL", 30, "0.9")).ok(200);
    let shown = || {
        let balance = account.get("/v1/account/balance").ok(200);
        let positions = account.get("/v1/account/positions").ok(200);
        let money = ["balance", "available", "reserved", "total_value"];
        let shares = ["quantity", "available_quantity"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (money.map(|name| text(&balance[name])), shares.map(|name| text(&positions[0][name])))
    };
    let texts =
        |money: [&str; 4], shares: [&str; 2]| (money.map(str::to_owned), shares.map(str::to_owned));
    // 50 dollars bought shares that are worth 49 at 0.49, and the bid holds 20.
    assert_eq!(shown(), texts(["930", "930", "20", "999"], ["100", "70"]));
    account.delete(format!("/v1/orders/{}", ask["order_id"])).ok(200);
    assert_eq!(shown(), texts(["930", "930", "20", "999"], ["100", "100"]));
    account.delete(format!("/v1/orders/{}", bid["order_id"])).ok(200);
    assert_eq!(shown(), texts(["950", "950", "0", "999"], ["100", "100"]));
}

#[test]
fn a_portfolio_adds_up() {
    let account = shared().account();
    let portfolio = |trades: u64, win_rate: Value| {
        let portfolio = account.get("/v1/account/portfolio").ok(200);
        let balance = account.get("/v1/account/balance").ok(200);
        let open = account.get("/v1/account/positions?status=OPEN").ok(200);
        let expected = json!({
            "balance": balance, "positions": open, "total_trades": trades, "win_rate": win_rate,
        });
        assert_eq!(portfolio, expected);
    };
    portfolio(0, Value::Null);
    let trade = |market: &str, outcome: &str, side: &str| {
        let order = json!({"market_id": market, "outcome": outcome, "side": side, "quantity": 10});
        account.post("/trade", &order).ok(200);
    };
    trade(PLAIN, "Yes", "BUY");
    portfolio(1, Value::Null);
    // Bought at 0.50, sold at 0.48.
    trade(PLAIN, "Yes", "SELL");
    portfolio(2, json!("0.0%"));
    // Bought at 0.52, the other outcome's bid, and kept.
    trade(PLAIN, "No", "BUY");
    portfolio(3, json!("0.0%"));
    // A limit order that rests is no trade.
    account.post("/v1/orders", &limit("BUY", 10, "0.4")).ok(200);
    portfolio(3, json!("0.0%"));
}
