//! A browser without a window, driven through Debian's chromedriver.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use paperbourse_test_support::{Connection, Response};
use serde_json::{Value, json};

/// The key under which the driver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// How long the driver looks for an element that is not there yet, in milliseconds.
const PATIENCE_MS: u32 = 20_000;
/// How long the page may take to become what a check wants. Long, since others build and trade on
/// the same machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// What the driver says of an element that the page is about to replace, show or uncover.
const PASSING_ERRORS: [&str; 3] =
    ["stale element reference", "element not interactable", "element click intercepted"];

/// The size of a screen.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    pub(crate) name: &'static str,
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) is_phone: bool,
}

/// The number of running browsers, and what is notified when one ends.
static RUNNING: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// The right to run a browser. There is one for each processor, since a browser keeps one busy.
struct Slot;

impl Slot {
    fn take() -> Self {
        let count_max = available_parallelism().map_or(1, usize::from);
        let (running, ended) = &RUNNING;
        let running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |running: &mut usize| *running >= count_max;
        *ended.wait_while(running, is_full).unwrap_or_else(PoisonError::into_inner) += 1;
        Self
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let (running, ended) = &RUNNING;
        *running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        ended.notify_one();
    }
}

/// A running browser; dropping it ends it.
pub(crate) struct Browser {
    driver: Child,
    connection: Connection,
    session: String,
    // Dropped last, when the browser has ended.
    _slot: Slot,
}

impl Browser {
    /// Starts a browser that can reach this machine and nothing else.
    pub(crate) fn start(screen: Screen) -> Self {
        let slot = Slot::take();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(driver.stdout.take().unwrap()).lines().map(Result::unwrap);
        let port = lines.filter_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        let port: u16 = { port }.next().expect("chromedriver prints its port");
        let connection = Connection::open(([127, 0, 0, 1], port).into());
        let mut browser = Self { driver, connection, session: String::new(), _slot: slot };
        let metrics = json!({
            "width": screen.width,
            "height": screen.height,
            "pixelRatio": 1,
            "mobile": screen.is_phone,
            "touch": screen.is_phone,
        });
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": {
                "args": [
                    "--headless=new",
                    // The sandbox needs what containers and root do not have.
                    "--no-sandbox",
                    "--disable-dev-shm-usage",
                    "--disable-gpu",
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                ],
                "mobileEmulation": { "deviceMetrics": metrics },
            },
            "timeouts": { "implicit": PATIENCE_MS, "script": PATIENCE_MS },
        }}});
        let session = browser.call("POST", "/session", &capabilities);
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser
    }

    /// Sends a command to the driver and returns its value.
    #[track_caller]
    fn call(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let response = self.send(method, path, body);
        assert_eq!(response.status, 200, "{method} {path}: {}", response.text);
        response.json()["value"].take()
    }

    fn send(&mut self, method: &str, path: &str, body: &Value) -> Response {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        let length = body.len();
        // The driver refuses every host but this.
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n"
        );
        self.connection.write(format!("{head}{body}").as_bytes());
        self.connection.read(false)
    }

    /// Waits for the element and sends the driver a command that names it. The page draws a frame
    /// after what it follows from, so it may replace, show or uncover the element a moment later:
    /// then the command is sent again.
    #[track_caller]
    fn with(&mut self, selector: &str, send: impl Fn(&mut Self, &str) -> Response) -> Value {
        let attempt = |browser: &mut Self| {
            let element = browser.find(selector);
            send(browser, &element)
        };
        let is_over = |response: &Response| {
            let error = &response.json()["value"]["error"];
            !PASSING_ERRORS.iter().any(|passing| error == passing)
        };
        let response = self.wait_until(attempt, is_over);
        assert_eq!(response.status, 200, "{selector}: {}", response.text);
        response.json()["value"].take()
    }

    /// Reads something of the page until it is as wanted, or for as long as [`PATIENCE`]; returns
    /// what was read last.
    pub(crate) fn wait_until<T>(
        &mut self,
        mut read: impl FnMut(&mut Self) -> T,
        is_wanted: impl Fn(&T) -> bool,
    ) -> T {
        let begin = Instant::now();
        loop {
            let found = read(self);
            if is_wanted(&found) || begin.elapsed() > PATIENCE {
                return found;
            }
            self.run("await new Promise((done) => setTimeout(done, 20))");
        }
    }

    /// Sends a command to the element.
    #[track_caller]
    fn on(&mut self, selector: &str, method: &str, command: &str, body: &Value) -> Value {
        self.with(selector, |browser, element| {
            let path = format!("{}/element/{element}/{command}", browser.session);
            browser.send(method, &path, body)
        })
    }

    #[track_caller]
    fn post(&mut self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), body)
    }

    #[track_caller]
    fn get(&mut self, path: &str) -> Value {
        self.call("GET", &format!("{}{path}", self.session), &Value::Null)
    }

    #[track_caller]
    pub(crate) fn open(&mut self, url: &str) {
        self.post("/url", &json!({ "url": url }));
    }

    /// Waits for the element and returns the driver's name for it.
    #[track_caller]
    pub(crate) fn find(&mut self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        found[ELEMENT].as_str().unwrap().to_owned()
    }

    /// The text that people see in the element now. Private: a check that does not wait may see the
    /// page of a frame ago.
    #[track_caller]
    fn text(&mut self, selector: &str) -> String {
        self.on(selector, "GET", "text", &Value::Null).as_str().unwrap().to_owned()
    }

    /// Waits until the text that people see in the element is as wanted, and returns it.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, selector: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let text = self.wait_until(|browser| browser.text(selector), |text| is_wanted(text));
        assert!(is_wanted(&text), "{selector} says {text}");
        text
    }

    /// Fails unless people see this text in the element, now or a moment later.
    #[track_caller]
    pub(crate) fn check_text(&mut self, selector: &str, text: &str) {
        let last = self.wait_until(|browser| browser.text(selector), |found| found == text);
        assert_eq!(last, text, "{selector}");
    }

    /// Fails unless this body of an async function returns the value, now or a moment later.
    #[track_caller]
    pub(crate) fn check_value(&mut self, script: &str, value: &Value) {
        let read = |browser: &mut Self| browser.run(script);
        let last = self.wait_until(read, |found| found == value);
        assert_eq!(&last, value, "{script}");
    }

    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        self.on(selector, "POST", "click", &json!({}));
    }

    #[track_caller]
    pub(crate) fn fill(&mut self, selector: &str, text: &str) {
        self.on(selector, "POST", "clear", &json!({}));
        self.on(selector, "POST", "value", &json!({ "text": text }));
    }

    /// Presses these keys one after the other: characters, or `Enter`, `Tab` or `Escape`.
    #[track_caller]
    pub(crate) fn press(&mut self, keys: &[&str]) {
        let key = |name: &str| match name {
            "Enter" => "\u{e007}".to_owned(),
            "Tab" => "\u{e004}".to_owned(),
            "Escape" => "\u{e00c}".to_owned(),
            character => character.to_owned(),
        };
        let strokes = keys.iter().flat_map(|name| {
            ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key(name) }))
        });
        let source = json!({ "type": "key", "id": "keyboard",
                             "actions": strokes.collect::<Vec<_>>() });
        self.post("/actions", &json!({ "actions": [source] }));
    }

    /// Touches the middle of the element with a finger.
    #[track_caller]
    pub(crate) fn tap(&mut self, selector: &str) {
        self.with(selector, |browser, element| {
            let origin = json!({ ELEMENT: element });
            let finger = json!({
                "type": "pointer",
                "id": "finger",
                "parameters": { "pointerType": "touch" },
                "actions": [
                    { "type": "pointerMove", "origin": origin, "x": 0, "y": 0 },
                    { "type": "pointerDown", "button": 0 },
                    { "type": "pointerUp", "button": 0 },
                ],
            });
            let path = format!("{}/actions", browser.session);
            browser.send("POST", &path, &json!({ "actions": [finger] }))
        });
    }

    /// Fails unless people who do not see the page are told this role and this name of the element,
    /// now or a moment later.
    #[track_caller]
    pub(crate) fn check_named(&mut self, selector: &str, role: &str, name: &str) {
        let read = |browser: &mut Self| {
            ["computedrole", "computedlabel"]
                .map(|command| browser.on(selector, "GET", command, &Value::Null))
        };
        let last = self.wait_until(read, |found| *found == [role, name]);
        assert_eq!(last, [role, name], "{selector}");
    }

    /// Runs the body of an async function in the page, and returns what it returns.
    #[track_caller]
    pub(crate) fn run(&mut self, script: &str) -> Value {
        let script = format!(
            "const done = arguments[0];
             (async () => {{ {script} }})().then(done, (error) => done(`failed: ${{error}}`))"
        );
        self.post("/execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Shows the page as to readers who prefer this colour scheme.
    #[track_caller]
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let command =
            json!({ "cmd": "Emulation.setEmulatedMedia", "params": { "features": features } });
        self.post("/goog/cdp/execute", &command);
    }

    /// Everything in the console, without what the network had to say about errors of the API.
    #[track_caller]
    pub(crate) fn complaints(&mut self) -> Vec<Value> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        let is_complaint = |entry: &&Value| {
            let is_of_page = entry["source"] != "network";
            is_of_page && matches!(entry["level"].as_str(), Some("WARNING" | "SEVERE"))
        };
        log.as_array().unwrap().iter().filter(is_complaint).cloned().collect()
    }

    /// Keeps a picture of the page, for people to look at.
    #[track_caller]
    pub(crate) fn keep_picture(&mut self, file: &Path) {
        let picture = self.get("/screenshot");
        let picture = BASE64_STANDARD.decode(picture.as_str().unwrap()).unwrap();
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, picture).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser too, unless the driver is already gone.
        let head = format!("DELETE {} HTTP/1.1\r\nhost: localhost\r\n\r\n", self.session);
        self.connection.try_write(head.as_bytes());
        self.connection.is_ended();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
