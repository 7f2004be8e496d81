//! The numbers of the page are the API's, to the last digit.

use paperbourse_test_support::Client;
use paperbourse_test_support::process::ServerProcess;
use serde_json::{Value, json};

use super::{Browser, WIDE, client, open, sign_in};
use crate::browser::{BINARY, axe};

/// How many moments are compared, unless the variable says another number.
const MOMENTS_DEFAULT: usize = 20;
const MOMENTS: &str = "PAPERBOURSE_CONSOLE_MOMENTS";

#[test]
fn decimals_are_exact() {
    if axe().is_none() {
        return;
    }
    let (server, _folder) = super::server_of(&super::each_state(), &[]);
    let mut browser = open(WIDE, &server);
    let rows = [
        ("micros('994.7')", "994700000"),
        ("micros('-0.000001')", "-1"),
        ("micros(' 5. ')", "5000000"),
        ("micros('.5')", "500000"),
        ("micros('9223372036854.775807')", "9223372036854775807"),
        ("micros('0.1234567')", "null"),
        ("micros('1e3')", "null"),
        ("micros('1,000')", "null"),
        ("micros('.')", "null"),
        ("micros('')", "null"),
        ("micros(null)", "null"),
        ("money('994.7')", "$994.70"),
        ("money('0')", "$0.00"),
        ("money('-1234567.5')", "−$1,234,567.50"),
        ("money('9007199254740993.000001')", "$9,007,199,254,740,993.000001"),
        ("money('1000000')", "$1,000,000.00"),
        ("money('999')", "$999.00"),
        ("money(-1n)", "−$0.000001"),
        ("money(null)", "–"),
        ("gain('0.62')", "+$0.62"),
        ("gain('-0.1')", "−$0.10"),
        ("gain('0')", "$0.00"),
        ("gain(undefined)", "–"),
        ("shares('188')", "188"),
        ("shares('7484.12', 2)", "7,484.12"),
        ("shares('20433', 2)", "20,433.00"),
        ("shares('1234567.123456', 2)", "1,234,567.123456"),
        ("price('0.5', '0.01')", "0.50"),
        ("price('0.535', '0.01')", "0.535"),
        ("price('0.5', '0.0001')", "0.5000"),
        ("price('1', '0.1')", "1.0"),
        ("price('0.5')", "0.50"),
        ("price(null, '0.01')", "–"),
        ("signOf('-0.000001')", "-1"),
        ("signOf('0.0')", "0"),
        ("signOf('3')", "1"),
    ];
    let calls: Vec<String> = rows.iter().map(|(call, _)| format!("() => {call}")).collect();
    let shown = browser.run(&format!(
        "const {{ gain, micros, money, price, shares, signOf }} =
           await import('/console/console.js');
         return [{}].map((call) => String(call()));",
        calls.join(", "),
    ));
    for ((call, expected), shown) in rows.iter().zip(shown.as_array().unwrap()) {
        assert_eq!(shown, expected, "{call}");
    }
}

/// Decimal text with thousands separators and at least so many decimals, made from the text alone.
fn written(text: &Value, decimals_min: usize) -> String {
    let text = text.as_str().unwrap();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match format!("{part:0<decimals_min$}") {
        part if part.is_empty() => grouped,
        part => format!("{grouped}.{part}"),
    }
}

/// What the page should show of this market and of the account, as the API has it now.
fn expected(client: &mut Client, anyone: &mut Client, id: &str) -> Value {
    let market = anyone.get(&format!("/v1/markets/{id}")).ok(200);
    let tick = market["tick_size"].as_str().unwrap();
    let decimals = tick.split_once('.').unwrap().1.len();
    let book = anyone.get(&format!("/v1/markets/{id}/book?depth=8")).ok(200);
    let side = |name: &str| -> Vec<Value> {
        let levels = book[name].as_array().unwrap().iter().rev();
        let row =
            |level: &Value| json!([written(&level["price"], decimals), written(&level["size"], 2)]);
        levels.map(row).collect()
    };
    let outcomes = market["live_price"]["outcomes"].as_array().unwrap();
    let prices: Vec<String> =
        outcomes.iter().map(|outcome| written(&outcome["price"], decimals)).collect();
    let folio = client.get("/v1/account/portfolio").ok(200);
    let money = |value: &Value| format!("${}", written(value, 2));
    let position = &folio["positions"][0];
    json!({
        "bids": side("bids"),
        "asks": side("asks"),
        "listed": prices[0],
        "prices": prices,
        "total_value": money(&folio["balance"]["total_value"]),
        "available": money(&folio["balance"]["available"]),
        "position": [
            written(&position["quantity"], 0),
            written(&position["avg_entry_price"], 2),
            written(&position["current_price"], 2),
            money(&position["market_value"]),
        ],
    })
}

/// What the page shows.
fn shown(browser: &mut Browser) -> Value {
    browser.run(
        "const text = (selector) => document.querySelector(selector)?.textContent.trim();
         const texts = (selector, of = document) => (
           [...of.querySelectorAll(selector)].map((it) => it.textContent.trim())
         );
         const side = (name) => [...document.querySelectorAll(`.${name} tbody tr`)].map((row) => [
           row.querySelector('.at').textContent, row.querySelector('.size').textContent.trim(),
         ]);
         return {
           bids: side('bids'),
           asks: side('asks'),
           listed: text('.list [aria-current] .figure'),
           prices: texts('.outcomes b'),
           total_value: text('[data-field=total_value]'),
           available: text('[data-field=available]'),
           position: texts('#panel tbody tr:first-child .number').slice(0, 4),
         };",
    )
}

#[test]
fn numbers_are_the_apis() {
    if axe().is_none() {
        return;
    }
    let moments = std::env::var(MOMENTS).map_or(MOMENTS_DEFAULT, |text| text.parse().unwrap());
    let data = tempfile::tempdir().unwrap();
    let venue = ["--venue", "simulated:1", "--venue-speed", "0.1", "--venue-delay", "off"];
    let open_limits = ["--address-limits", "off", "--tier", "free=1000/60000/2/5"];
    let server = ServerProcess::start(BINARY, data.path(), &[&venue[..], &open_limits].concat());
    let (mut client, key) = client(&server, data.path());
    let mut anyone = Client::anonymous(server.address);
    let markets = anyone.get("/v1/markets?limit=200").ok(200);
    let ids: Vec<&str> =
        markets.as_array().unwrap().iter().map(|it| it["id"].as_str().unwrap()).collect();
    let order = json!({ "market_id": ids[0], "outcome": "Yes", "side": "BUY", "quantity": "12.5",
                        "order_type": "market" });
    client.post("/v1/orders", &order).ok(200);
    let mut browser = open(WIDE, &server);
    sign_in(&mut browser, &key);
    for moment in 0..moments {
        let id = ids[moment % ids.len()];
        browser.run(&format!("location.hash = '{id}'"));
        let pair = browser.wait_until(
            |browser| {
                let api = expected(&mut client, &mut anyone, id);
                json!({ "page": shown(browser), "api": api })
            },
            |pair| pair["page"] == pair["api"],
        );
        assert_eq!(pair["page"], pair["api"], "moment {moment}");
    }
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}
