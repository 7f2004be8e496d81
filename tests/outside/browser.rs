//! The pages for people in a real browser that reaches nothing but the server: they are shown, a
//! trade can be tried, and nobody is kept out. Needs Debian's `chromium` and `chromium-driver`;
//! `.ci/browser` installs axe-core, which looks for obstacles for people with disabilities.

mod console;
mod driver;

use std::path::{Path, PathBuf};
use std::process::Command;

use driver::{Browser, Screen};
use paperbourse_test_support::Client;
use paperbourse_test_support::process::{ServerProcess, command};
use serde_json::{Value, json};

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// Whether everything is looked at for obstacles on a phone too.
const ALL: &str = "PAPERBOURSE_BROWSER_ALL";
/// Without that, so many operations are: the first, which are used most.
const OPERATIONS_ON_A_PHONE: usize = 12;

const DESKTOP: Screen = Screen { name: "desktop", width: 1280, height: 900, is_phone: false };
const PHONE: Screen = Screen { name: "phone", width: 390, height: 844, is_phone: true };

/// The script of axe-core; `None` if it or the browser is not installed, which fails in CI.
fn axe() -> Option<String> {
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let script = results.join("browser/node_modules/axe-core/axe.min.js");
    let lacks = |name: &&str| Command::new(name).arg("--version").output().is_err();
    let missing = if let Some(name) = ["chromium", "chromedriver"].into_iter().find(lacks) {
        format!("{name} is not installed")
    } else if let Ok(script) = std::fs::read_to_string(script) {
        return Some(script);
    } else {
        "axe-core is not installed (.ci/browser does it)".to_owned()
    };
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
    eprintln!("SKIPPED: {missing}, so the pages were not looked at");
    None
}

/// A server whose books stand still, and a new key.
fn server(data: &Path) -> (ServerProcess, String) {
    let still = ["--venue", "simulated:1", "--venue-speed", "0.000001"];
    let open = ["--address-limits", "off", "--tier", "free=1000/60000/2/5"];
    let flags = [&still[..], &["--venue-delay", "off"], &open].concat();
    let server = ServerProcess::start(BINARY, data, &flags);
    let minted =
        command(BINARY).args(["token", "--subject", "reader", "--data"]).arg(data).output();
    let token = String::from_utf8(minted.unwrap().stdout).unwrap();
    let mut client = Client::with_token(server.address, token.trim_end());
    let key = client.post("/v1/keys/bootstrap", &json!({})).ok(201);
    (server, key["raw_key"].as_str().unwrap().to_owned())
}

/// Fails if this part of the page keeps somebody out, in either colour scheme.
#[track_caller]
fn check_accessible(browser: &mut Browser, axe: &str, part: &str) {
    // Half a megabyte, which a page needs once.
    if browser.run("return Boolean(window.axe)") == json!(false) {
        browser.run(axe);
    }
    // The schemes differ in nothing but colours.
    let rules = "resultTypes: ['violations']";
    for (scheme, rules, passes_min) in
        [("light", rules, 5), ("dark", "runOnly: ['color-contrast']", 1)]
    {
        browser.prefer(scheme);
        let found = browser.run(&format!(
            "const part = document.querySelectorAll('{part}');
             const {{ violations, passes }} = await axe.run(part, {{ {rules} }});
             const serious = violations.filter(({{ impact }}) => /serious|critical/.test(impact));
             return {{
               passes: passes.length,
               serious: serious.map(({{ id, nodes }}) => [id, nodes.map(({{ html }}) => html)]),
             }};"
        ));
        assert!(found["passes"].as_u64() >= Some(passes_min), "{found}");
        assert_eq!(found["serious"], json!([]), "{scheme} {part}");
    }
}

/// Fails if the page is wider than the screen, loaded something from elsewhere, or made the browser
/// complain.
#[track_caller]
fn check_page(browser: &mut Browser, axe: &str, parts: &[String]) {
    let found = browser.run(
        "const loaded = performance.getEntriesByType('resource').map(({ name }) => name);
         // Programs in the guide may use these words.
         const body = document.body.cloneNode(true);
         if (body.matches('.guide')) body.querySelectorAll('pre').forEach((it) => it.remove());
         return {
           overflow: document.documentElement.scrollWidth > innerWidth,
           foreign: loaded.filter((name) => !name.startsWith(location.origin + '/')),
           text: body.textContent,
         };",
    );
    assert_eq!((&found["overflow"], &found["foreign"]), (&json!(false), &json!([])));
    for mistake in ["[object", "undefined", "NaN"] {
        assert!(!found["text"].as_str().unwrap().contains(mistake), "the page says {mistake}");
    }
    for part in parts {
        check_accessible(browser, axe, part);
    }
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}

/// Fails unless the page shows every message of the document, with its fields and an example.
#[track_caller]
fn check_sockets(browser: &mut Browser, document: &Value) {
    for (path, part) in [
        ("/prices/stream", "#get_prices_stream"),
        ("/v1/ws/executions", "#get_v1_ws_executions"),
        ("/v1/ws/prices", "#get_v1_ws_prices"),
    ] {
        browser.run(&format!(
            "const part = document.querySelector('{part}');
             part.open = true;
             part.scrollIntoView();"
        ));
        browser.find(&format!("{part} .answers"));
        // What each item of the list shows: the name, the names of the fields, and the example.
        let shown = browser.run(&format!(
            "const names = (list) => [...list.querySelectorAll(':scope > li > .name')];
             const items = document.querySelectorAll('{part} .body > .answers > li');
             const isMessage = (it) => it.querySelector('pre') && it.querySelector('.fields');
             return [...items].filter(isMessage).map((it) => [
               it.querySelector('strong').textContent,
               [...it.querySelectorAll(':scope > .beside > div > .fields')].flatMap(names)
                 .map((name) => name.textContent),
               JSON.parse(it.querySelector('pre').textContent),
             ]);"
        ));
        let channels = document["channels"].as_object().unwrap();
        let channel = channels.values().find(|it| it["address"] == path).unwrap();
        let messages = channel["messages"].as_object().unwrap();
        assert_eq!(shown.as_array().unwrap().len(), messages.len(), "{path} {shown}");
        for item in shown.as_array().unwrap() {
            let message = &messages[item[0].as_str().unwrap()];
            let schema = match message["payload"]["$ref"].as_str() {
                Some(reference) => document.pointer(&reference[1..]).unwrap(),
                None => &message["payload"],
            };
            let mut fields: Vec<&str> =
                item[1].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
            fields.sort_unstable();
            assert!(schema["properties"].as_object().unwrap().keys().eq(fields), "{item}");
            assert_eq!(item[2], message["examples"][0]["payload"], "{path}");
        }
    }
}

/// Scrolls until nothing covers the element.
#[track_caller]
fn show(browser: &mut Browser, selector: &str) {
    let scroll = "scrollIntoView({ block: 'center', behavior: 'instant' })";
    browser.run(&format!("document.querySelector('{selector}').{scroll}"));
}

/// Fails unless the trade that the page shows in each language can be run as it is shown. `curl` is
/// shown first; the language that is chosen is shown at every operation.
#[track_caller]
fn check_commands(browser: &mut Browser, server: &ServerProcess, key: &str) {
    let count =
        |client: &mut Client| client.get("/v1/account/history").ok(200).as_array().unwrap().len();
    let mut client = Client::with_key(server.address, key);
    let mut fills = count(&mut client);
    let results = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let python = results.join("sdk/bin/python");
    let modules = results.join("clients/node_modules");
    for (tab, language, mut program) in [
        (1, "curl", Command::new("bash")),
        (2, "Python", Command::new(&python)),
        (3, "TypeScript", Command::new("node")),
    ] {
        show(browser, "#post_trade [role=tablist]");
        browser.click(&format!("#post_trade [role=tab]:nth-child({tab})"));
        let shown = "#post_trade [role=tabpanel]:not([hidden]) pre";
        let code = browser.wait_for(shown, |text| !text.is_empty());
        assert!(!code.contains(key), "{code}");
        let folder = tempfile::tempdir().unwrap();
        match language {
            "TypeScript" => {
                if !modules.exists() {
                    eprintln!("SKIPPED: .ci/clients was not run, so no TypeScript was tried");
                    continue;
                }
                std::os::unix::fs::symlink(&modules, folder.path().join("node_modules")).unwrap();
                std::fs::write(folder.path().join("trade.mts"), &code).unwrap();
                program.args(["--import", "tsx", "trade.mts"]);
            }
            "Python" if !python.exists() => {
                eprintln!("SKIPPED: .ci/sdk was not run, so no Python was tried");
                continue;
            }
            _ => {
                program.args(["-c", &code]);
            }
        }
        let ran = program.current_dir(folder.path()).env("KEY", key).output().unwrap();
        let output = String::from_utf8_lossy(&ran.stdout);
        let errors = String::from_utf8_lossy(&ran.stderr);
        assert!(output.contains("FILLED"), "{code}\n{output}\n{errors}");
        fills += 1;
        assert_eq!(count(&mut client), fills, "{code}\n{output}");
    }
    let shown = browser.run(
        "const part = document.querySelector('#post_v1_orders');
         part.open = true;
         while (!part.querySelector('[aria-selected=true]')) {
           await new Promise(requestAnimationFrame);
         }
         const chosen = part.querySelector('[aria-selected=true]').textContent;
         document.querySelector('#post_trade [role=tab]').click();
         return [chosen, part.querySelector('[aria-selected=true]').textContent];",
    );
    assert_eq!(shown, json!(["TypeScript", "curl"]));
    show(browser, "#post_trade [role=tablist]");
    browser.click("#post_trade [role=tabpanel]:not([hidden]) .copy");
    // The clipboard takes the text a moment after the click.
    browser.run(
        "const copy = document.querySelector('#post_trade [role=tabpanel]:not([hidden]) .copy');
         while (copy.textContent !== 'Copied') await new Promise(requestAnimationFrame);",
    );
}

/// Fails unless all operations are there, each once, and the trade is first.
#[track_caller]
fn check_order_of_use(browser: &mut Browser, document: &Value) {
    let shown =
        browser.run("return [...document.querySelectorAll('main details')].map(it => it.id)");
    let shown: Vec<&str> =
        shown.as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    assert_eq!(shown[..3], ["post_trade", "post_v1_orders", "post_v1_orders_preview"]);
    let operations = document["paths"].as_object().unwrap().values();
    let operations = operations.flat_map(|path| path.as_object().unwrap().values());
    let mut described: Vec<&str> =
        operations.map(|it| it["operationId"].as_str().unwrap()).collect();
    let mut sorted = shown.clone();
    sorted.sort_unstable();
    described.sort_unstable();
    assert_eq!(sorted, described);
}

/// The file of a picture of what is on this screen.
fn picture(screen: Screen, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("browser");
    folder.join(format!("{}-{name}.png", screen.name))
}

#[track_caller]
fn check(screen: Screen) {
    let Some(axe) = axe() else { return };
    let data = tempfile::tempdir().unwrap();
    let (server, key) = server(data.path());
    let picture = |name: &str| picture(screen, name);
    let mut browser = Browser::start(screen);
    browser.open(&format!("http://{}/", server.address));
    browser.check_text("#state", "ready");
    let whole = ["html".to_owned()];
    check_page(&mut browser, &axe, &whole);
    browser.keep_picture(&picture("home"));

    browser.click("a[href=docs]");
    browser.click("#post_trade > summary");
    browser.keep_picture(&picture("operation"));
    // The form is filled in with the example, about a market of this server.
    browser.find("#post_trade textarea[rows]");
    browser.click("#post_trade form > button");
    browser.check_text("#post_trade .result .bad", "401 Unauthorized");
    browser.fill("#credential", &key);
    browser.click("#post_trade form > button");
    browser.check_text("#post_trade .result .ok", "200 OK");
    browser.run("document.querySelector('#post_trade form').scrollIntoView()");
    browser.keep_picture(&picture("trade"));
    let shown = browser.wait_for("#post_trade .result pre", |text| !text.is_empty());
    let trade: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&trade["status"], &trade["quantity"]), (&json!("FILLED"), &json!(10)));
    let mut client = Client::with_key(server.address, &key);
    let fills = client.get("/v1/account/history").ok(200);
    assert_eq!((fills.as_array().unwrap().len(), &fills[0]["order_id"]), (1, &trade["order_id"]));
    check_commands(&mut browser, &server, &key);
    check_order_of_use(&mut browser, &client.get("/openapi.json").ok(200));

    check_sockets(&mut browser, &client.get("/asyncapi.json").ok(200));
    browser.keep_picture(&picture("socket"));
    browser.fill("#filter", "cancel market");
    let visible = "return [...document.querySelectorAll('main details')].filter((it) => \
                   it.checkVisibility()).map(({ id }) => id)";
    browser.check_value(visible, &json!(["delete_v1_cancel_market_orders"]));
    browser.run(
        "const filter = document.getElementById('filter');
         filter.value = '';
         filter.dispatchEvent(new Event('input'));",
    );

    check_page(&mut browser, &axe, &whole);
    let operations = browser.run(
        "const all = [...document.querySelectorAll('main details')];
         for (const details of all) details.open = true;
         const isWhole = ({ childElementCount }) => childElementCount === 2;
         while (!all.every(isWhole)) await new Promise(requestAnimationFrame);
         return all.map(({ id }) => id);",
    );
    let described = client.get("/openapi.json").ok(200);
    let paths = described["paths"].as_object().unwrap().values();
    let count: usize = paths.map(|path| path.as_object().unwrap().len()).sum();
    assert_eq!(operations.as_array().unwrap().len(), count, "{operations}");
    check_page(&mut browser, &axe, &[]);
    // Operations look the same on a phone, and axe-core takes long.
    let looked_at = match operations.as_array().unwrap() {
        all if !screen.is_phone || std::env::var_os(ALL).is_some() => &all[..],
        all => &all[..OPERATIONS_ON_A_PHONE],
    };
    // A few at a time, with the others empty: axe-core reads the whole page for each part of it.
    for ids in looked_at.chunks(6) {
        let ids: Vec<String> = ids.iter().map(|id| format!("#{}", id.as_str().unwrap())).collect();
        let part = ids.join(", ");
        browser.run(&format!(
            "const frame = () => new Promise(requestAnimationFrame);
             for (const details of document.querySelectorAll('main details[open]')) {{
               details.open = false;
               details.querySelector('.body').remove();
             }}
             await frame();
             const opened = [...document.querySelectorAll('{part}')];
             for (const details of opened) details.open = true;
             while (!opened.every(({{ childElementCount }}) => childElementCount === 2)) {{
               await frame();
             }}"
        ));
        check_accessible(&mut browser, &axe, &part);
    }

    for page in ["first-bot", "bots", "orders", "api", "configuration", "nothing"] {
        browser.open(&format!("http://{}/docs/{page}", server.address));
        browser.find("main h1");
        check_page(&mut browser, &axe, &whole);
        browser.keep_picture(&picture(page));
    }
}

#[test]
fn code_of_the_guide_is_copied_in_the_chosen_language() {
    if axe().is_none() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let (server, _) = server(data.path());
    let mut browser = Browser::start(PHONE);
    browser.open(&format!("http://{}/docs/bots", server.address));
    browser.find(".tabs");
    for (tab, file) in [(1, "taker.py"), (2, "taker.ts")] {
        let taker = "h2#taker ~ .tabs";
        browser.click(&format!("{taker} [role=tab]:nth-child({tab})"));
        browser.run(
            "window.copied = undefined;
             Object.defineProperty(navigator, 'clipboard', { configurable: true, value: {
               writeText: async (text) => { window.copied = text; },
             }});",
        );
        browser.click(&format!("{taker} [role=tabpanel]:not([hidden]) .copy"));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide/bots").join(file);
        let text = std::fs::read_to_string(path).unwrap();
        browser.check_value("return window.copied", &json!(text));
    }
    assert_eq!(browser.complaints(), Vec::<Value>::new());
}

#[test]
fn a_trade_is_tried_on_a_desktop() {
    check(DESKTOP);
}

#[test]
fn a_trade_is_tried_on_a_phone() {
    check(PHONE);
}
