//! What operators do to accounts, beside servers that run and that were killed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use paperbourse::http::operation::Operation;
use paperbourse::http::operations::OPERATIONS;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Client, Request};
use serde_json::{Value, json};

use crate::accounts::{account, failure};
use crate::world::{MARKET, Trader, buy, files, json_of, start, text, tool};

/// The events of this kind that the journal holds.
pub(crate) fn journaled(data: &Path, kind: &str) -> Vec<Value> {
    let dump = tool(&["journal", "dump", text(data), "--json"]);
    let dump = String::from_utf8(dump.stdout).unwrap();
    let records = dump.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events =
        records.flat_map(|record| record["events"].as_array().cloned().unwrap_or_default());
    events.filter(|event| event["kind"] == kind).collect()
}

/// Places an order that rests, and returns its id.
fn rest(client: &mut Client) -> u64 {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10,
                       "order_type": "limit", "price": "0.01"});
    client.post("/v1/orders", &order).ok(200)["order_id"].as_u64().unwrap()
}

/// A request for each operation that writes, with what it may name.
fn writes(order: u64, key: u64, comment: u64) -> Vec<(&'static str, Request)> {
    let trade = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    let none = json!({});
    let post = |path: &str, body: &Value| Request::post(path, body);
    vec![
        ("POST /trade", post("/trade", &trade)),
        (
            "POST /trades/{order_id}/comments",
            post(&format!("/trades/{order}/comments"), &json!({"content": "words"})),
        ),
        ("DELETE /comments/{comment_id}", Request::delete(format!("/comments/{comment}"))),
        ("POST /v1/orders", post("/v1/orders", &trade)),
        // Nothing is written, but what it previews would be refused.
        ("POST /v1/orders/preview", post("/v1/orders/preview", &trade)),
        ("DELETE /v1/orders/{order_id}", Request::delete(format!("/v1/orders/{order}"))),
        ("POST /v1/cancel-all", post("/v1/cancel-all?confirm=true", &none)),
        ("DELETE /v1/cancel-all", Request::delete("/v1/cancel-all")),
        (
            "DELETE /v1/cancel-market-orders",
            Request::delete(format!("/v1/cancel-market-orders?market={MARKET}")),
        ),
        ("POST /v1/heartbeats", post("/v1/heartbeats", &none)),
        ("POST /heartbeats", post("/heartbeats", &none)),
        ("POST /v1/me/wallets/{wallet_id}/reset", post("/v1/me/wallets/api/reset", &none)),
        ("POST /v1/account/reset-api-balance", post("/v1/account/reset-api-balance", &none)),
        ("POST /v1/keys/bootstrap", post("/v1/keys/bootstrap", &none)),
        ("POST /v1/keys", post("/v1/keys", &none)),
        (
            "PATCH /v1/keys/{key_id}",
            Request::patch(format!("/v1/keys/{key}"), &json!({"name": "n"})),
        ),
        ("POST /v1/keys/{key_id}/rotate", post(&format!("/v1/keys/{key}/rotate"), &none)),
        ("DELETE /v1/keys/{key_id}", Request::delete(format!("/v1/keys/{key}"))),
    ]
}

#[test]
fn a_suspended_account_reads_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let trader = Trader::new(data, &server, "owner");
    let other = Trader::new(data, &server, "other");
    let mut client = trader.connect(&server);
    let filled = buy(&mut client, "an order");
    let comment = client.post(&format!("/trades/{filled}/comments"), &json!({"content": "words"}));
    let comment = comment.ok(200)["id"].as_u64().unwrap();
    let open = rest(&mut client);
    let kept = rest(&mut other.connect(&server));
    let key = client.get("/v1/keys").ok(200)[0]["id"].as_u64().unwrap();

    let suspend = ["suspend", "--subject", "owner", "--reason", "spam\nand more"];
    let done = account(data, &suspend);
    assert_eq!((&done["is_new"], &done["orders_cancelled"]), (&json!(true), &json!(1)), "{done}");
    let line = &done["account"];
    assert_eq!((&line["state"], &line["open_orders"]), (&json!("suspended"), &json!(0)), "{done}");
    assert_eq!(line["suspension"]["reason"], "spam\nand more");
    let again = account(data, &suspend);
    assert_eq!((&again["is_new"], &again["account"]), (&json!(false), line), "{again}");
    let id = line["account"].to_string();

    let writes = writes(open, key, comment);
    let named = OPERATIONS.iter().filter(|it| it.can_answer("ACCOUNT_SUSPENDED"));
    let mut named: Vec<_> = named.map(Operation::name).collect();
    named.sort_unstable();
    let mut tried: Vec<_> = writes.iter().map(|(name, _)| *name).collect();
    tried.sort_unstable();
    assert_eq!(tried, named);
    let others = OPERATIONS.iter().map(Operation::name);
    let mut others: Vec<_> =
        others.filter(|name| !name.starts_with("GET ") && !tried.contains(&&**name)).collect();
    others.sort_unstable();
    assert_eq!(
        others,
        ["POST /v1/keys/ws-token", "POST /v1/orders/batch", "POST /v1/prices/batch"]
    );

    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server = start(data);
        }
        let token = trader.token(data);
        let mut with_key = trader.connect(&server);
        let mut with_token = Client::with_token(server.address, &token);
        for (name, request) in &writes {
            let client = if name.ends_with("bootstrap") { &mut with_token } else { &mut with_key };
            let answer = client.send(request.clone());
            assert_eq!(answer.status, 403, "{name}: {answer:?}");
            assert_eq!(answer.json()["error"], "ACCOUNT_SUSPENDED", "{name}");
        }
        let trade = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
        let batch = with_key.post("/v1/orders/batch", &json!({"orders": [trade, trade]})).ok(200);
        for result in batch["results"].as_array().unwrap() {
            assert_eq!(result["error"], "ACCOUNT_SUSPENDED");
        }
        with_key.get("/v1/account/portfolio").ok(200);
        with_key.post("/v1/keys/ws-token", &json!({})).ok(200);
        let shown = with_key.get(&format!("/v1/orders/{open}")).ok(200);
        assert_eq!(
            (&shown["status"], &shown["cancelled_reason"]),
            (&json!("CANCELLED"), &json!("suspended"))
        );
        let mut neighbour = other.connect(&server);
        assert_eq!(neighbour.get(&format!("/v1/orders/{kept}")).ok(200)["status"], "PENDING");
        assert_eq!(account(data, &["show", &id]), *line);
    }

    let shown = tool(&["account", "show", &id, "--data", text(data)]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\nsuspended for     spam\\nand more\n"), "{shown}");
    let resume = tool(&["account", "resume", &id, "--reason", "sorry", "--data", text(data)]);
    assert_eq!(String::from_utf8(resume.stdout).unwrap(), format!("resumed account {id}\n"));
    buy(&mut trader.connect(&server), "another order");

    let acts = journaled(data, "operator_acted");
    let acts: Vec<_> = acts.iter().map(|act| [&act["act"], &act["reason"]]).collect();
    assert_eq!(
        acts,
        [[&json!("suspend"), &json!("spam\nand more")], [&json!("resume"), &json!("sorry")]]
    );
    let ended = journaled(data, "order_ended");
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!((&ended[0]["order"], &ended[0]["reason"]), (&json!(open), &json!("suspended")));
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!(code, 0, "{report}");
    server.terminate();
}

#[test]
fn a_deposit_is_made_once_and_is_no_profit() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let trader = Trader::new(data, &server, "owner");
    let other = Trader::new(data, &server, "other");
    buy(&mut trader.connect(&server), "an order");
    let shown = |server: &ServerProcess, trader: &Trader| {
        let mut client = trader.connect(server);
        let balance = client.get("/v1/account/balance").ok(200);
        let equity = client.get("/v1/account/equity").ok(200);
        let newest = equity.as_array().unwrap().last().unwrap().clone();
        let starting = cents(&balance["starting_balance"]);
        let profit = cents(&balance["total_value"]) - starting;
        assert_eq!(cents(&newest["pnl"]), profit, "{newest} {balance}");
        (cents(&balance["balance"]), starting, profit)
    };
    let (cash, starting, profit) = shown(&server, &trader);
    let untouched = shown(&server, &other);

    let token = "00000000000000000000000000000abc";
    let deposit = |amount: &str, more: &[&str]| {
        let arguments =
            ["deposit", "--subject", "owner", "--reason", "a prize", "--amount", amount];
        account(data, &[&arguments, more].concat())
    };
    let first = deposit("70.25", &["--token", token]);
    assert_eq!((&first["act"], &first["is_new"]), (&json!("deposit"), &json!(true)), "{first}");
    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server = start(data);
        }
        let again = deposit("70.25", &["--token", token]);
        assert_eq!((&again["is_new"], &again["account"]), (&json!(false), &first["account"]));
    }
    // Without a token, each is another one.
    assert_eq!(deposit("0.5", &[])["is_new"], true);
    assert_eq!(deposit("0.5", &[])["is_new"], true);
    assert_eq!(shown(&server, &trader), (cash + 7_125, starting + 7_125, profit));
    assert_eq!(shown(&server, &other), untouched);

    let deposits = journaled(data, "operator_acted");
    let amounts: Vec<_> = deposits.iter().map(|act| act["amount"].as_str().unwrap()).collect();
    assert_eq!(amounts, ["70.25", "0.5", "0.5"]);
    assert_eq!((&deposits[0]["token"], &deposits[0]["reason"]), (&json!(token), &json!("a prize")));
    assert_ne!(deposits[1]["token"], deposits[2]["token"]);
    for (amount, token, code, part) in [
        ("71", token, 1, "This token was used for a deposit of 70.25"),
        ("-1", token, 1, "must be above 0"),
        ("0", token, 1, "must be above 0 and at most 1000000000"),
        ("1000000000.000001", token, 1, "at most 1000000000"),
        ("0.0000001", token, 1, "more than 6 decimals"),
        ("ten", token, 1, "the amount \"ten\" is not a decimal number"),
        ("1", "abc", 1, "must be 32 hexadecimal digits"),
        ("1", "+0000000000000000000000000000abc", 1, "must be 32 hexadecimal digits"),
    ] {
        let amount = format!("--amount={amount}");
        let deposit = ["deposit", "--subject", "owner", "--reason", "r", &amount, "--token", token];
        let (found, error) = failure(data, &deposit);
        assert!(found == code && error.contains(part), "{amount} {token}: {found} {error}");
    }
    server.terminate();
}

#[test]
fn an_operator_resets_an_account() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    let trader = Trader::new(data, &server, "owner");
    let mut client = trader.connect(&server);
    buy(&mut client, "an order");
    rest(&mut client);
    let reset = ["reset", "--subject", "owner", "--reason", "a new season"];
    let done = account(data, &reset);
    let counts = ["is_new", "orders_cancelled", "positions_closed"].map(|name| done[name].clone());
    assert_eq!(counts, [json!(true), json!(1), json!(1)], "{done}");
    let line = &done["account"];
    assert_eq!((&line["balance"], &line["resets"]), (&json!("1000000"), &json!(1)), "{line}");
    assert_eq!(account(data, &reset)["is_new"], false);
    assert_eq!(client.get("/v1/account/portfolio").ok(200)["positions"], json!([]));
    let acts = journaled(data, "operator_acted");
    assert_eq!(acts.len(), 1, "{acts:?}");
    assert_eq!((&acts[0]["act"], &acts[0]["reason"]), (&json!("reset"), &json!("a new season")));
    assert_eq!(journaled(data, "account_reset").len(), 1);
    server.terminate();
}

#[test]
fn a_tier_is_that_of_all_keys_at_once_and_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let trader = Trader::new(data, &server, "owner");
    let tier_now = |server: &ServerProcess| {
        let answer = trader.connect(server).get("/v1/me");
        answer.header("x-ratelimit-tier").unwrap().to_owned()
    };
    let new_key = |server: &ServerProcess, tier: &str| {
        let mut client = Client::with_token(server.address, &trader.token(data));
        client.post("/v1/keys", &json!({"tier": tier}))
    };
    assert_eq!(tier_now(&server), "free");
    assert_eq!(new_key(&server, "pro").json()["error"], "TIER_NOT_AUTHORIZED");
    let give = |tier| ["tier", "--subject", "owner", "--reason", "paid", "--tier", tier];
    let done = account(data, &give("pro"));
    assert_eq!(done["account"]["given_tier"], "pro", "{done}");
    assert_eq!(done["account"]["tier"], "pro", "{done}");
    assert_eq!(account(data, &give("pro"))["is_new"], false);
    assert_eq!(tier_now(&server), "pro");
    server.signal("-HUP");
    server.logged("read the configuration again");
    assert_eq!(tier_now(&server), "pro");
    assert_eq!(new_key(&server, "pro").ok(201)["rate_limit_tier"], "pro");
    server.kill();
    server = start(data);
    assert_eq!(tier_now(&server), "pro");
    account(data, &give("free"));
    assert_eq!(tier_now(&server), "free");
    assert_eq!(new_key(&server, "pro").json()["error"], "TIER_NOT_AUTHORIZED");
    assert_eq!(journaled(data, "operator_acted").len(), 2);
    let (code, error) = failure(data, &give("gold"));
    assert!(code == 2 && error.contains("possible values: free, pro, enterprise"), "{error}");
    server.terminate();
}

/// The files of a folder that contain this text, by name.
fn files_with(data: &Path, folder: &str, needle: &str) -> Vec<String> {
    let paths = files(data, folder).into_iter();
    // The server may remove one meanwhile.
    let found = paths.filter(|path| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
    });
    found.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect()
}

/// The number that a file's name begins with.
fn number(name: &str) -> u64 {
    name.split('.').next().unwrap().parse().unwrap()
}

#[test]
fn what_was_erased_is_found_nowhere_later() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let trader = Trader::new(data, &server, "owner-to-be-erased");
    let other = Trader::new(data, &server, "other");
    let mut client = trader.connect(&server);
    let mut neighbour = other.connect(&server);
    let own = buy(&mut client, "order-to-be-erased");
    rest(&mut client);
    let theirs = buy(&mut neighbour, "an order");
    let comment = |client: &mut Client, order: u64, content: &str| {
        client.post(&format!("/trades/{order}/comments"), &json!({"content": content})).ok(200);
    };
    comment(&mut client, theirs, "comment-to-be-erased");
    comment(&mut client, own, "comment-to-be-erased");
    comment(&mut neighbour, theirs, "kept");
    let key = client.get("/v1/keys").ok(200)[0].clone();
    let renamed =
        Request::patch(format!("/v1/keys/{}", key["id"]), &json!({"name": "key-to-be-erased"}));
    client.send(renamed).ok(200);
    let prefix = key["key_prefix"].as_str().unwrap().to_owned();
    let needles = [
        "owner-to-be-erased",
        "order-to-be-erased",
        "comment-to-be-erased",
        "key-to-be-erased",
        &prefix,
    ];
    // Until a snapshot holds all of it, in its order file too.
    let mut filler = 0;
    let mut fill_until = |neighbour: &mut Client, is_done: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !is_done() {
            filler += 1;
            let order = buy(neighbour, &format!("filler {filler}"));
            (0..3).for_each(|_| crate::world::comment(neighbour, order));
            // Snapshots are made where nobody else wants the processor.
            assert!(began.elapsed() < Duration::from_mins(15), "no snapshot");
        }
    };
    fill_until(&mut neighbour, &|| {
        needles.iter().all(|needle| !files_with(data, "snapshots", needle).is_empty())
    });

    let id = account(data, &["show", "--subject", "owner-to-be-erased"])["account"].to_string();
    let before = account(data, &["list"])["accounts"].as_array().unwrap().len();
    let erase = ["erase", &id, "--reason", "a request"];
    let done = account(data, &erase);
    assert_eq!((&done["is_new"], &done["orders_cancelled"]), (&json!(true), &json!(1)), "{done}");
    let line = &done["account"];
    let shown = ["state", "subject", "issuer", "balance", "tier"].map(|name| line[name].clone());
    assert_eq!(shown, [json!("erased"), json!(""), json!(""), json!("0"), Value::Null], "{line}");
    let through = done["held_through_segment"].as_u64().unwrap();
    assert_eq!(account(data, &erase)["is_new"], false);

    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server = start(data);
            neighbour = other.connect(&server);
        }
        let refused = trader.connect(&server).get("/v1/account/balance");
        assert_eq!(refused.json()["error"], "INVALID_KEY");
        let unknown = failure(data, &["show", "--subject", "owner-to-be-erased"]);
        assert!(unknown.1.contains("no such account"), "{unknown:?}");
        let list = account(data, &["list"])["accounts"].as_array().unwrap().clone();
        assert_eq!(list.len(), before);
        let comments = neighbour.get(&format!("/trades/{theirs}/comments?limit=5")).ok(200);
        assert_eq!(comments[0]["content"], "kept", "{comments}");
        assert_eq!(neighbour.get(&format!("/trades/{own}/comments")).status, 404);
        neighbour.get(&format!("/v1/orders/{theirs}")).ok(200);
    }
    // Two snapshots later, nothing is left but in segments up to that one. Old files go one after
    // the other, and an order file that a crash left without its snapshot may be the last of them.
    fill_until(&mut neighbour, &|| {
        let names = files(data, "snapshots");
        let names = names.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
        let mut snapshots = names.filter(|name| name.ends_with(".snapshot"));
        let is_left = |needle: &&str| !files_with(data, "snapshots", needle).is_empty();
        snapshots.all(|name| number(name) > through) && !needles.iter().any(is_left)
    });
    for needle in needles {
        for folder in ["journal", "archive"] {
            let held = files_with(data, folder, needle);
            assert!(held.iter().all(|name| number(name) <= through), "{needle}: {held:?}");
        }
    }
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!(code, 0, "{report}");

    // The same person comes again, and finds nothing.
    let again = Trader::new(data, &server, "owner-to-be-erased");
    assert_eq!(again.connect(&server).get("/v1/account/portfolio").ok(200)["total_trades"], 0);
    let found = account(data, &["show", "--subject", "owner-to-be-erased"]);
    assert_ne!(found["account"].to_string(), id);
    server.terminate();
}

/// An amount of at most two decimals, in cents.
fn cents(amount: &Value) -> i64 {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    let (dollars, cents) = text.split_once('.').unwrap_or((&text, ""));
    assert!(cents.len() <= 2, "{text}");
    format!("{dollars}{cents:0<2}").parse().unwrap()
}

#[test]
fn acts_need_an_account_and_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    let _trader = Trader::new(data, &server, "owner");
    let long = "x".repeat(501);
    for (arguments, code, part) in [
        (&["suspend", "--subject", "owner"][..], 2, "--reason"),
        (&["suspend", "--reason", "spam"], 2, "required"),
        (&["suspend", "--subject", "owner", "--reason", " "], 1, "must have 1 to 500 bytes"),
        (&["resume", "--subject", "owner", "--reason", &long], 1, "must have 1 to 500 bytes"),
        (&["suspend", "--subject", "nobody", "--reason", "spam"], 1, "no such account"),
        (&["resume", "9999999", "--reason", "spam"], 1, "no such account"),
    ] {
        let (found, error) = failure(data, arguments);
        assert!(found == code && error.contains(part), "{arguments:?}: {found} {error}");
    }
    assert_eq!(journaled(data, "operator_acted"), [Value::Null; 0]);
    server.terminate();
}
