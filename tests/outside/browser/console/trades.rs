//! Trading on the console: by keyboard, by touch, once, and what happens when it is refused.

use std::net::SocketAddr;

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{Process, ServerProcess, command};
use serde_json::{Value, json};

use super::recording::{self, Market, Stage};
use super::{WIDE, choose, client, open, serve, server_of, sign_in, view};
use crate::browser::driver::Browser;
use crate::browser::{BINARY, PHONE, axe};

/// Limits that no test reaches.
const OPEN: [&str; 2] = ["--tier", "free=1000/60000/2/5"];
const STATUS: &str = ".ticket [role=status]";
const BUTTON: &str = ".ticket .main";

/// The orders of the account, the newest first.
fn orders(client: &mut Client) -> Vec<Value> {
    client.get("/v1/orders").ok(200)["orders"].as_array().unwrap().clone()
}

/// A browser whose person is signed in, on a market that stands still.
fn signed_in() -> (Browser, Client, ServerProcess, tempfile::TempDir) {
    let (server, folder) = server_of(&[Market::of(Stage::Open)], &OPEN);
    let (client, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(WIDE, &server);
    sign_in(&mut browser, &key);
    (browser, client, server, folder)
}

/// Types into the fields of the ticket; without a price, it is for a market order.
fn fill(browser: &mut Browser, quantity: &str, price: Option<&str>) {
    let kind = if price.is_some() { 2 } else { 1 };
    browser.click(&format!(".choice:nth-of-type(2) label:nth-of-type({kind}) input"));
    browser.fill("[name=quantity]", quantity);
    if let Some(price) = price {
        browser.fill("[name=price]", price);
    }
}

#[test]
fn a_trade_takes_only_a_keyboard() {
    if axe().is_none() {
        return;
    }
    let markets = super::each_state();
    let (server, folder) = server_of(&markets, &OPEN);
    let (mut client, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(WIDE, &server);
    // From the mark of the page to the field for the key. Where the first Tab leads depends on the
    // version of the browser: it may start from the market that the page has chosen.
    browser.run("document.querySelector('.mark').focus()");
    browser.press(&["Tab"]);
    let typed: Vec<String> = key.chars().map(String::from).collect();
    browser.press(&typed.iter().map(String::as_str).collect::<Vec<_>>());
    browser.press(&["Enter"]);
    browser.wait_for("[data-field=total_value]", |text| text == "$1,000.00");

    browser.press(&["/"]);
    browser.press(&["O", "p", "e", "n", " ", "g", "Enter"]);
    browser.wait_for("h1", |text| text == "Which side wins the Open game?");
    browser.find(".book .at");
    let focused = browser.run(
        "for (const key of ['Escape', 's', 'Escape']) {
           const pressed = new KeyboardEvent('keydown', { key, bubbles: true });
           document.activeElement.dispatchEvent(pressed);
         }
         for (let frame = 0; frame < 4; frame += 1) await new Promise(requestAnimationFrame);
         return document.activeElement.tagName;",
    );
    assert_eq!(focused, json!("BODY"), "Esc leaves a field for good");
    browser.press(&["Escape", "s", "j", "Escape", "b", "2", "0", "Enter"]);
    // The letter went into no field, or would be in this one.
    browser.wait_for(STATUS, |text| {
        text.starts_with("Filled 20 at 0.50 for $10.00, fee $0.00. Order ")
    });
    let placed = orders(&mut client);
    assert_eq!((placed.len(), &placed[0]["side"]), (1, &json!("BUY")));
    assert_eq!(placed[0]["filled_quantity"], json!("20"));
    browser.press(&["Escape", "?"]);
    browser.find("dialog[open]");
    browser.press(&["Escape"]);
    // Esc closes the list of keys.
    browser.check_value("return document.querySelector('dialog') === null", &json!(true));
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}

#[test]
fn a_trade_takes_only_a_finger() {
    if axe().is_none() {
        return;
    }
    let (server, folder) = server_of(&[Market::of(Stage::Open)], &OPEN);
    let (mut client, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(PHONE, &server);
    sign_in(&mut browser, &key);
    browser.tap(".list li button");
    browser.wait_for("h1", |text| text == "Which side wins the Open game?");
    for selector in [".asks .at button", "[name=quantity]"] {
        browser.run(&format!(
            "document.querySelector('{selector}').scrollIntoView({{ block: 'center' }})"
        ));
        browser.tap(selector);
    }
    browser.press(&["2", "0"]);
    browser
        .run(&format!("document.querySelector('{BUTTON}').scrollIntoView({{ block: 'center' }})"));
    browser.tap(BUTTON);
    browser.wait_for(STATUS, |text| text.starts_with("Filled 20 at 0.50"));
    let placed = orders(&mut client);
    assert_eq!((placed.len(), &placed[0]["limit_price"]), (1, &json!("0.5")));
}

#[test]
fn two_clicks_are_one_order_and_open_ones_are_cancelled() {
    if axe().is_none() {
        return;
    }
    let (mut browser, mut client, _server, _folder) = signed_in();
    fill(&mut browser, "20", None);
    browser.run(&format!(
        "const button = document.querySelector('{BUTTON}');
         for (let n = 0; n < 20; n += 1) {{
           button.click();
           await new Promise((done) => setTimeout(done, n * 10));
         }}"
    ));
    browser.wait_for(STATUS, |text| text.starts_with("Filled 20"));
    browser.click(BUTTON);
    assert_eq!(orders(&mut client).len(), 1);
    browser.wait_for(".held", |text| text.contains("20 at 0.50"));

    for price in ["0.1", "0.2", "0.3"] {
        fill(&mut browser, "10", Some(price));
        browser.click(BUTTON);
        let said = format!("Placed: 10 at {price}0 rests on the book. Order ");
        browser.wait_for(STATUS, |text| text.starts_with(&said));
    }
    browser.click("#tab-orders");
    let open = orders(&mut client);
    browser.click(&format!("[aria-label='Cancel order {}']", open[0]["order_id"]));
    browser.wait_for("#tab-orders", |text| text == "Open orders 2");
    browser.click(".tabs > button");
    browser.check_text(".tabs > span", "Cancel all open orders?");
    browser.click(".tabs > button:last-of-type");
    assert_eq!(client.get("/v1/orders?status=OPEN").ok(200)["orders"].as_array().unwrap().len(), 2);
    browser.click(".tabs > button");
    browser.click(".tabs > button:first-of-type");
    browser.wait_for(".panel", |text| text.starts_with("No open orders."));
    assert_eq!(client.get("/v1/orders?status=OPEN").ok(200)["orders"], json!([]));
    browser.check_text("[data-field=available]", "$990.00");
}

/// Clicks, and returns once the order is on its way. The page gets `answered` for its answer.
fn send(browser: &mut Browser, answered: &str) {
    browser.run(&format!(
        "const real = window.fetch;
         const sent = new Promise((done) => {{
           window.fetch = (path, request) => {{
             const answer = real(path, request);
             if (path !== 'v1/orders' || request.method !== 'POST') return answer;
             done();
             return {answered};
           }};
         }});
         document.querySelector('{BUTTON}').click();
         await sent;"
    ));
}

#[test]
fn a_reload_while_an_order_is_on_its_way_makes_no_second_one() {
    if axe().is_none() {
        return;
    }
    let (mut browser, mut client, _server, _folder) = signed_in();
    fill(&mut browser, "20", None);
    // The order arrives, and its answer does not.
    send(&mut browser, "new Promise(() => {})");
    let is_placed = (0..200).any(|_| {
        browser.run("await new Promise((done) => setTimeout(done, 50))");
        !orders(&mut client).is_empty()
    });
    assert!(is_placed);
    browser.run("setTimeout(() => location.reload(), 0)");
    browser.wait_for(BUTTON, |text| text == "Send again");
    browser.wait_for(STATUS, |text| text.starts_with("No answer came"));
    let quantity = "return document.querySelector('[name=quantity]').value";
    browser.check_value(quantity, &json!("20"));
    browser.wait_for("[data-field=total_value]", |text| text.starts_with('$'));
    browser.click(BUTTON);
    browser.wait_for(STATUS, |text| text.starts_with("Filled 20 at 0.50"));
    assert_eq!(orders(&mut client).len(), 1);
}

#[test]
fn an_order_to_a_server_that_is_killed_happens_once() {
    if axe().is_none() {
        return;
    }
    let (mut browser, client, server, folder) = signed_in();
    drop(client);
    let address = server.address;
    fill(&mut browser, "20", None);
    server.signal("-STOP");
    send(&mut browser, "answer");
    server.kill();
    browser.wait_for(BUTTON, |text| text == "Send again");
    let server = serve_at(address, &folder);
    browser.click(BUTTON);
    browser.wait_for(STATUS, |text| text.starts_with("Filled 20 at 0.50"));
    let key = browser.run("return sessionStorage.getItem('paperbourse-key')");
    let placed = orders(&mut Client::with_key(server.address, key.as_str().unwrap()));
    assert_eq!(placed.len(), 1);
    let name = placed[0]["client_order_id"].as_str().unwrap();
    assert!(name.starts_with("console-"), "{name}");
}

/// The server of this folder again, where it was before.
fn serve_at(address: SocketAddr, folder: &tempfile::TempDir) -> ServerProcess {
    let venue = format!("recorded:{}", folder.path().join("recording").display());
    let mut again = command(BINARY);
    again.args(["serve", "--listen", &address.to_string(), "--venue", &venue]).args(OPEN);
    again.args(["--address-limits", "off", "--data"]).arg(folder.path().join("data"));
    Process::spawn(&mut again).ready()
}

#[test]
fn what_another_program_trades_is_told_and_saved() {
    if axe().is_none() {
        return;
    }
    let (mut browser, mut client, _server, _folder) = signed_in();
    let order = json!({ "market_id": recording::id(0), "outcome": "Red", "side": "BUY",
                        "order_type": "market", "quantity": "20" });
    client.post("/v1/orders", &order).ok(200);
    browser.wait_for(STATUS, |text| text == "Bought 20 Red at 0.50.");
    browser.click("#tab-fills");
    browser.wait_for(".panel", |text| text.contains("Buy Red"));
    browser.run(
        "const made = URL.createObjectURL;
         window.saved = new Promise((done) => {
           URL.createObjectURL = (file) => {
             file.text().then(done);
             return made.call(URL, file);
           };
         });",
    );
    browser.click(".tabs > button");
    let saved = browser.run("return window.saved");
    let exported = client.get("/v1/export/trades.csv").text;
    assert_eq!(exported.lines().count(), 2);
    assert_eq!(saved, json!(exported));
}

#[test]
fn refusals_are_shown_as_the_server_says_them() {
    if axe().is_none() {
        return;
    }
    let (mut browser, mut client, _server, _folder) = signed_in();
    for (side, quantity, price, code) in [
        ("BUY", "many", None, "VALIDATION_FAILED"),
        ("BUY", "10", Some("1.5"), "VALIDATION_FAILED"),
        ("BUY", "10", Some("0.555"), "INVALID_ORDER_MIN_TICK_SIZE"),
        ("BUY", "1", Some("0.5"), "INVALID_ORDER_MIN_SIZE"),
        ("BUY", "50000", None, "INSUFFICIENT_BALANCE"),
        ("BUY", "50000", Some("0.3"), "INSUFFICIENT_BALANCE"),
        ("BUY", "900000", None, "INSUFFICIENT_LIQUIDITY"),
        ("SELL", "5", None, "INSUFFICIENT_POSITION"),
        ("SELL", "5", Some("0.9"), "INSUFFICIENT_POSITION"),
    ] {
        let at = if side == "BUY" { 1 } else { 2 };
        browser.click(&format!(".choice:nth-of-type(1) label:nth-of-type({at}) input"));
        fill(&mut browser, quantity, price);
        browser.click(BUTTON);
        let kind = if price.is_some() { "limit" } else { "market" };
        let order = json!({ "market_id": recording::id(0), "outcome": "Red", "side": side,
                            "order_type": kind, "quantity": quantity, "price": price });
        let refused = client.post("/v1/orders", &order);
        let refused = refused.json();
        assert_eq!(refused["error"], json!(code), "{order}");
        let said = format!("{} {code}", refused["message"].as_str().unwrap());
        browser.wait_for(STATUS, |text| text == said);
        // What was typed stays.
        browser.check_value(
            "const value = (name) => document.querySelector(`[name=${name}]`)?.value ?? null;
             return ['quantity', 'price'].map(value);",
            &json!([quantity, price]),
        );
    }
    assert_eq!(orders(&mut client), Vec::<Value>::new());
}

#[test]
fn the_button_is_off_where_nothing_can_be_traded() {
    if axe().is_none() {
        return;
    }
    let (server, folder) = server_of(&super::each_state(), &OPEN);
    let (mut client, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(WIDE, &server);
    let check = |browser: &mut Browser, reason: &str| {
        browser.wait_for(".reason", |text| text == reason);
        let is_off = format!("return document.querySelector('{BUTTON}').disabled");
        browser.check_value(&is_off, &json!(true));
    };
    check(&mut browser, "Sign in to trade.");
    sign_in(&mut browser, &key);
    for (stage, reason) in [
        (Stage::Paused, "This market is paused: it takes no orders."),
        (Stage::Closed, "This market is closed: it takes no orders."),
        (Stage::Resolved, "This market is resolved: it takes no orders."),
    ] {
        choose(&mut browser, WIDE, &Market::of(stage).question);
        check(&mut browser, reason);
    }
    let only_read = client.post("/v1/keys", &json!({ "permissions": ["read"] })).ok(201);
    browser.click("header > button");
    sign_in(&mut browser, only_read["raw_key"].as_str().unwrap());
    choose(&mut browser, WIDE, &Market::of(Stage::Open).question);
    check(&mut browser, "This key may only read.");
    // Browsers are few, and the next one is another.
    drop(browser);

    let folder = tempfile::tempdir().unwrap();
    recording::write_outages(&folder.path().join("recording"), &Market::of(Stage::Open), 0);
    let server = serve(&folder, &OPEN);
    let (_, key) = super::client(&server, &folder.path().join("data"));
    let mut browser = open(WIDE, &server);
    sign_in(&mut browser, &key);
    check(&mut browser, "The book is stale: market orders are refused.");
    // A limit order waits for a fresh book.
    fill(&mut browser, "10", Some("0.4"));
    view(&mut browser, WIDE, "Trade");
    browser.click(BUTTON);
    browser.wait_for(STATUS, |text| text.contains("rests on the book. It waits for a fresh book."));
}

/// How many tickets are compared with their fills, unless the variable says another number.
const TICKETS_DEFAULT: usize = 4;
const TICKETS: &str = "PAPERBOURSE_CONSOLE_TICKETS";

/// Dollars as the page shows them.
fn money(micros: i128) -> String {
    let part = format!("{:06}", micros % 1_000_000);
    let part = part.trim_end_matches('0');
    format!("${}.{part:0<2}", micros / 1_000_000)
}

/// The millionths of decimal text.
fn micros(text: &Value) -> i128 {
    let text = text.as_str().unwrap();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    format!("{whole}{part:0<6}").parse().unwrap()
}

#[test]
fn a_preview_is_what_the_order_then_costs() {
    if axe().is_none() {
        return;
    }
    let count = std::env::var(TICKETS).map_or(TICKETS_DEFAULT, |text| text.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let still = ["--venue", "simulated:1", "--venue-speed", "0.000001", "--venue-delay", "off"];
    let rich = ["--address-limits", "off", "--starting-balance", "900000"];
    let flags = [&still[..], &rich, &OPEN].concat();
    let server = ServerProcess::start(BINARY, folder.path(), &flags);
    let (mut client, key) = client(&server, folder.path());
    let mut browser = open(WIDE, &server);
    sign_in(&mut browser, &key);
    // This one has fees, and prices with three decimals.
    choose(&mut browser, WIDE, "Will the Kestrel probe land in one piece?");
    browser.find(".book .at");
    for ticket in 0..count {
        // Purchases first, so that there is something to sell; both over several levels.
        let side = if ticket % 4 == 3 { 2 } else { 1 };
        let quantity = format!("{}.{:06}", 7 + ticket * 977 % 2_500, 1 + ticket * 7_919 % 999_999);
        browser.click(&format!(".choice:nth-of-type(1) label:nth-of-type({side}) input"));
        let quantity = if side == 2 { "5.5".to_owned() } else { quantity };
        fill(&mut browser, &quantity, None);
        // Until the server has answered, it is the cost before the fee.
        let is_whole =
            |text: &str| text.contains(", with fee\n$") || text.contains(", after fee\n$");
        browser.wait_for(".ticket .preview", is_whole);
        let previewed = browser.wait_for("[data-field=preview-cost]", |text| !text.is_empty());
        let average = browser.wait_for("[data-field=preview-average]", |text| !text.is_empty());
        browser.click(BUTTON);
        browser.wait_for(STATUS, |text| text.starts_with("Filled "));
        let placed = &orders(&mut client)[0];
        let (notional, fee) = (micros(&placed["notional"]), micros(&placed["fee"]));
        let total = if side == 1 { notional + fee } else { notional - fee };
        assert!(fee > 0, "{placed}");
        assert_eq!(previewed.replace(',', ""), money(total), "{placed}");
        assert_eq!(micros(&json!(average)), micros(&placed["fill_price"]), "{placed}");
    }
}
