//! The console in a real browser: what it shows in every state, and that its numbers are the API's.

mod keys;
mod numbers;
mod recording;
mod text;
mod trades;

use std::path::Path;

use paperbourse_test_support::Client;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::json;

use super::driver::{Browser, Screen};
use super::{BINARY, PHONE, axe, check_page, picture};
use recording::{Market, Stage};

const WIDE: Screen = Screen { name: "wide", width: 1440, height: 900, is_phone: false };
const STALE: &str =
    "The book is stale: market orders are refused, limit orders wait for a fresh book.";

/// A venue that stands still, with a market in each state.
fn each_state() -> Vec<Market> {
    use Stage::{Bookless, Closed, Empty, Open, Paused, Resolved};
    [Open, Empty, Bookless, Paused, Closed, Resolved].map(Market::of).to_vec()
}

/// A server that plays these markets, and the folder of its data.
fn server_of(markets: &[Market], flags: &[&str]) -> (ServerProcess, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    recording::write(&folder.path().join("recording"), markets);
    (serve(&folder, flags), folder)
}

/// A server that plays what is in `recording` in this folder, with its data beside it.
fn serve(folder: &tempfile::TempDir, flags: &[&str]) -> ServerProcess {
    let played = folder.path().join("recording");
    let venue = format!("recorded:{}", played.display());
    let flags = [&["--venue", &venue, "--address-limits", "off"][..], flags].concat();
    ServerProcess::start(BINARY, &folder.path().join("data"), &flags)
}

/// A client with a new key of a new account.
fn client(server: &ServerProcess, data: &Path) -> (Client, String) {
    let minted =
        command(BINARY).args(["token", "--subject", "reader", "--data"]).arg(data).output();
    let token = String::from_utf8(minted.unwrap().stdout).unwrap();
    let made = Client::with_token(server.address, token.trim_end())
        .post("/v1/keys/bootstrap", &json!({}))
        .ok(201);
    let key = made["raw_key"].as_str().unwrap().to_owned();
    (Client::with_key(server.address, &key), key)
}

fn open(screen: Screen, server: &ServerProcess) -> Browser {
    let mut browser = Browser::start(screen);
    browser.open(&format!("http://{}/console", server.address));
    browser.find(".book .at, .book .note, .book .empty");
    browser
}

fn sign_in(browser: &mut Browser, key: &str) {
    browser.fill("[aria-label='API key']", key);
    browser.click(".sign-in button");
    browser.wait_for("[data-field=total_value]", |text| text.starts_with('$'));
}

/// Shows one of a phone's views; elsewhere all are there.
fn view(browser: &mut Browser, screen: Screen, name: &str) {
    if screen.is_phone {
        let at = ["Markets", "Trade", "Account"].iter().position(|it| *it == name).unwrap();
        browser.click(&format!(".views button:nth-child({})", at + 1));
    }
}

fn choose(browser: &mut Browser, screen: Screen, question: &str) {
    view(browser, screen, "Markets");
    let choose = format!(
        "const wanted = {};
         const rows = [...document.querySelectorAll('.list li button')];
         const row = rows.find((row) => row.querySelector('.question')?.textContent === wanted);
         row?.click();
         return Boolean(row);",
        json!(question)
    );
    browser.check_value(&choose, &json!(true));
    browser.wait_for("h1", |text| text == question);
}

/// Chooses a tab of the account, and waits for what is below it.
fn choose_tab(browser: &mut Browser, name: &str) {
    let id = match name {
        "Open orders" => "orders".to_owned(),
        name => name.to_lowercase(),
    };
    browser.run(&format!("document.getElementById('tab-{id}').click()"));
    browser.find(&format!("#panel table[aria-label='{name}'], #panel .empty"));
}

/// Fails if the page keeps somebody out, complains, loads from elsewhere or is wider than the
/// screen; and keeps a picture. Obstacles are looked for in this part of the page.
#[track_caller]
fn look(browser: &mut Browser, axe: &str, screen: Screen, name: &str, part: &str) {
    check_page(browser, axe, &[part.to_owned()]);
    // The check ends with the dark scheme.
    browser.keep_picture(&picture(screen, &format!("console-{name}")));
    if screen.is_phone {
        let small = browser.run(
            "const pressed = [...document.querySelectorAll('button, input, label:has(input)')];
             const height = (it) => it.getBoundingClientRect().height;
             return pressed.filter((it) => it.checkVisibility() && height(it) < 43.5)
               .filter((it) => !it.closest('label') || it.matches('label'))
               .map((it) => it.outerHTML.slice(0, 200));",
        );
        assert_eq!(small, json!([]), "{name}: too small to be touched");
    }
}

#[test]
fn the_console_says_that_trouble_is_on() {
    let Some(axe) = axe() else { return };
    let trouble = ["--clob", "on", "--clob-trouble", "lost=1%"];
    let (server, _folder) = server_of(&each_state(), &trouble);
    let mut browser = open(WIDE, &server);
    browser.wait_for(".on-demand", |text| text.contains("Trouble on demand is on"));
    browser.wait_for(".on-demand", |text| text.ends_with("seed=0,lost=1%"));
    look(&mut browser, &axe, WIDE, "trouble", "html");
}

#[track_caller]
fn check_states(screen: Screen) {
    let Some(axe) = axe() else { return };
    let markets = each_state();
    let (server, folder) = server_of(&markets, &["--default-tier", "enterprise"]);
    let (_, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(screen, &server);
    look(&mut browser, &axe, screen, "signed-out", "html");

    for (stage, chip, said) in [
        (Stage::Open, "", "12,027.49"),
        (Stage::Empty, "", "Nobody offers anything here."),
        (Stage::Bookless, "", "book"),
        (Stage::Paused, "paused", "This market is paused: it takes no orders now."),
        (Stage::Closed, "closed", "This market is closed: its result is not final"),
        (Stage::Resolved, "resolved", "Red pays $1.00, Blue pays $0.00 a share."),
    ] {
        let question = Market::of(stage).question;
        view(&mut browser, screen, "Markets");
        let chips = format!(
            "const rows = [...document.querySelectorAll('.list li button')];
             const row = rows.find((it) => it.textContent.includes({}));
             return [...row.querySelectorAll('.chip')].map((it) => it.textContent).join();",
            json!(question)
        );
        browser.check_value(&chips, &json!(chip));
        choose(&mut browser, screen, &question);
        view(&mut browser, screen, "Trade");
        browser.wait_for(".book", |text| text.contains(said));
        look(&mut browser, &axe, screen, &format!("{stage:?}").to_lowercase(), ".market");
    }
    view(&mut browser, screen, "Markets");
    browser.fill("[type=search]", "<i>x");
    browser.wait_for(".list .empty", |text| text == "No market matches “<i>x”.");
    look(&mut browser, &axe, screen, "no-market", ".list");
    browser.fill("[type=search]", "game");

    view(&mut browser, screen, "Account");
    browser.check_text(".panel .empty", "Sign in to see your account.");
    sign_in(&mut browser, &key);
    browser.wait_for(".panel", |text| text == "No positions. Choose a market and buy.");
    look(&mut browser, &axe, screen, "empty-account", ".account");
    let order = |price: Option<&str>| {
        let kind = if price.is_some() { "limit" } else { "market" };
        json!({ "market_id": recording::id(0), "outcome": "Red", "side": "BUY",
                "quantity": "20", "order_type": kind, "price": price })
    };
    // A new connection: looking at each state takes longer than the server keeps an idle one.
    let mut client = Client::with_key(server.address, &key);
    client.post("/v1/orders", &order(None)).ok(200);
    client.post("/v1/orders", &order(Some("0.1"))).ok(200);
    for (tab, said) in [
        ("Positions", "$9.90"),
        ("Open orders", "0.10"),
        ("Fills", "Buy Red"),
        ("Settlements", "No settlements. A market that resolves pays here."),
        ("Equity", "$999.90"),
    ] {
        choose_tab(&mut browser, tab);
        browser.wait_for(".panel", |text| text.contains(said));
        look(
            &mut browser,
            &axe,
            screen,
            &format!("tab-{}", tab.to_lowercase().replace(' ', "-")),
            ".account",
        );
    }
    check_names(&mut browser, screen);
    check_key_stays_here(&mut browser, &key);

    choose(&mut browser, screen, &Market::of(Stage::Open).question);
    view(&mut browser, screen, "Trade");
    browser.wait_for(".book", |text| text.contains("12,027.49"));
    drop(server);
    let said = "Disconnected: prices are from before. Trying again.";
    browser.wait_for(".book", |text| text.contains(said));
    look(&mut browser, &axe, screen, "disconnected", "html");
}

/// Fails unless people who do not see the page find everything by these names.
#[track_caller]
fn check_names(browser: &mut Browser, screen: Screen) {
    view(browser, screen, "Account");
    for (tab, name) in [
        ("positions", "Positions"),
        ("orders", "Open orders"),
        ("fills", "Fills"),
        ("settlements", "Settlements"),
        ("equity", "Equity"),
    ] {
        browser.check_named(&format!("#tab-{tab}"), "tab", name);
        if name != "Settlements" {
            choose_tab(browser, name);
            browser.check_named("#panel table", "table", name);
        }
    }
    let question = Market::of(Stage::Resolved).question;
    for (view_of, selector, role, name) in [
        ("Account", ".account", "region", "Account"),
        ("Account", "header button", "button", "Sign out"),
        ("Markets", ".list", "navigation", "Markets"),
        ("Markets", "[type=search]", "searchbox", "Search markets"),
        ("Trade", "h1", "heading", &question),
        ("Trade", ".outcomes label:first-of-type input", "radio", "Red"),
        ("Trade", ".outcomes label:last-of-type input", "radio", "Blue"),
        ("Trade", ".book-of", "region", "Book"),
        ("Trade", ".ticket form", "form", "Order"),
        ("Trade", ".choice:nth-of-type(1) label:nth-of-type(1) input", "radio", "Buy"),
        ("Trade", ".choice:nth-of-type(1) label:nth-of-type(2) input", "radio", "Sell"),
        ("Trade", ".choice:nth-of-type(2) label:nth-of-type(1) input", "radio", "Market"),
        ("Trade", ".choice:nth-of-type(2) label:nth-of-type(2) input", "radio", "Limit"),
        ("Trade", "[name=quantity]", "textbox", "Shares"),
        ("Trade", ".ticket .main", "button", "Buy Red"),
    ] {
        view(browser, screen, view_of);
        browser.check_named(selector, role, name);
    }
    browser.check_value("return document.querySelectorAll('h1').length", &json!(1));
}

/// Fails if the key is anywhere but in the storage of this tab.
#[track_caller]
fn check_key_stays_here(browser: &mut Browser, key: &str) {
    let found = browser.run(&format!(
        "const key = '{key}';
         const named = performance.getEntriesByType('resource').map(({{ name }}) => name);
         return [
           location.href.includes(key), document.cookie, localStorage.length,
           document.documentElement.outerHTML.includes(key), named.join().includes(key),
           Object.values(sessionStorage),
         ];"
    ));
    assert_eq!(found, json!([false, "", 0, false, false, [key]]));
}

#[track_caller]
fn check_stale(screen: Screen) {
    let Some(axe) = axe() else { return };
    let folder = tempfile::tempdir().unwrap();
    recording::write_outages(&folder.path().join("recording"), &Market::of(Stage::Open), 0);
    let server = serve(&folder, &[]);
    let mut browser = open(screen, &server);
    view(&mut browser, screen, "Trade");
    browser.wait_for(".book", |text| text.contains(STALE));
    browser.wait_for(".confirmed", |text| text.starts_with("Not confirmed since "));
    browser.check_named(".dot", "image", "stale");
    look(&mut browser, &axe, screen, "stale", "html");
}

#[test]
fn a_stale_book_is_shown_as_such() {
    check_stale(WIDE);
    check_stale(PHONE);
}

/// What the page and `/v1/status` say of the same moments.
#[test]
fn an_outage_is_shown_while_it_lasts() {
    if axe().is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The first ones may be over before the browser has started.
    recording::write_outages(&folder.path().join("recording"), &Market::of(Stage::Open), 100);
    let server = serve(&folder, &["--venue-speed", "1"]);
    let mut browser = open(WIDE, &server);
    let seen = browser.run(
        "const isStale = {
           page: () => document.querySelector('.book')?.textContent.includes('The book is stale'),
           status: async () => (await (await fetch('/v1/status')).json()).markets.tradable === 0,
         };
         const seen = { page: [], status: [] };
         const begin = Math.round(performance.now());
         while (seen.page.length < 4 && performance.now() - begin < 19_000) {
           for (const [name, look] of Object.entries(isStale)) {
             const now = await look();
             const known = seen[name];
             const last = known.at(-1) ?? { stale: now, at: begin };
             if (last.stale !== now) known.push({ stale: now, at: Math.round(performance.now()) });
             else if (!known.length) known.push(last);
           }
           await new Promise((done) => setTimeout(done, 20));
         }
         return seen;",
    );
    // The state in the beginning, an end of it, and another one.
    assert!(seen["page"].as_array().unwrap().len() >= 3, "{seen}");
    eprintln!("changes on the page and of /v1/status, in ms: {seen}");
}

#[test]
fn every_state_is_shown_on_a_desktop() {
    check_states(WIDE);
}

#[test]
fn every_state_is_shown_on_a_phone() {
    check_states(PHONE);
}
