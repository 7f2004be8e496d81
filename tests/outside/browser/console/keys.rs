//! Keys: signing in and out, keys that end or may only read, and how often one is used.

use paperbourse_test_support::{Client, Request};
use serde_json::{Value, json};

use super::{Market, Stage, WIDE, client, open, server_of, sign_in};
use crate::browser::axe;

/// The least time between two requests with the key, in milliseconds.
const GAP_MS_MIN: f64 = 1_000.0;

#[test]
fn a_key_signs_in_until_it_ends() {
    if axe().is_none() {
        return;
    }
    let flags = ["--tier", "free=1000/60000/2/5"];
    let (server, folder) = server_of(&[Market::of(Stage::Open)], &flags);
    let (_, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(WIDE, &server);
    for (wrong, said) in [
        ("ps_live_wrong", "Not an API key: a key is `ps_live_` and 64 hexadecimal digits"),
        ("schlüssel", "Not an API key."),
    ] {
        browser.fill("[aria-label='API key']", wrong);
        browser.click(".sign-in button");
        browser.wait_for(".sign-in p", |text| text.starts_with(said));
    }
    sign_in(&mut browser, &key);
    browser.check_text("[data-field=available]", "$1,000.00");
    // A reload keeps it, as this tab does, and a person who signs out is asked again.
    browser.run("location.reload()");
    browser.wait_for("[data-field=available]", |text| text == "$1,000.00");
    browser.click("header > button");
    browser.find("[aria-label='API key']");
    browser.check_value("return sessionStorage.length", &json!(0));
    browser.run("location.reload()");
    browser.find("[aria-label='API key']");

    sign_in(&mut browser, &key);
    let mut own = Client::with_key(server.address, &key);
    let keys = own.get("/v1/keys").ok(200);
    own.send(Request::delete(format!("/v1/keys/{}", keys[0]["id"]))).ok(200);
    let refused = own.get("/v1/me").ok(401);
    let said = refused["message"].as_str().unwrap();
    browser.wait_for(".sign-in p", |text| text == said);
    browser.check_value("return sessionStorage.length", &json!(0));
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}

#[test]
fn a_key_is_used_once_a_second_at_most() {
    if axe().is_none() {
        return;
    }
    let (server, folder) = server_of(&[Market::of(Stage::Open)], &[]);
    let (_, key) = client(&server, &folder.path().join("data"));
    let mut browser = open(WIDE, &server);
    browser.run(
        "window.used = [];
         const real = window.fetch;
         window.fetch = (path, request) => {
           const headers = new Headers(request?.headers);
           const hasKey = headers.has('X-API-Key');
           if (hasKey) window.used.push(performance.now());
           const isPublic = /^v1\\/(markets|status|prices-history)/.test(path);
           if (hasKey === isPublic) window.used.push(`${path}: ${hasKey}`);
           return real(path, request);
         };",
    );
    sign_in(&mut browser, &key);
    // Somebody who clicks at everything.
    let used = browser.run(
        "const until = performance.now() + 6_000;
         const tabs = [...document.querySelectorAll('[role=tab]')];
         for (let n = 0; performance.now() < until; n += 1) {
           tabs[n % tabs.length].click();
           await new Promise((done) => setTimeout(done, 90));
         }
         return window.used;",
    );
    let used: Vec<f64> = serde_json::from_value(used).expect("only reads of the account have it");
    let gaps = used.windows(2).map(|two| two[1] - two[0]);
    let least = gaps.fold(f64::INFINITY, f64::min);
    assert!(used.len() >= 4, "{used:?}");
    assert!(least >= GAP_MS_MIN, "{least} ms between two requests");
}
