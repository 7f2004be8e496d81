//! What Polymarket's own clients do when the server has trouble: how often they ask, how long they
//! take, what they raise, and what their streams tell. The tables say what is in the sources of the
//! clients.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use paperbourse_clob::trouble::{Draws, Kind, Plan};
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Connection, Request};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Script;
use super::clob::{BINARY, admin, clients, folder, host};

/// By how many seconds a call may take longer than expected, on a busy machine.
const SLACK_SECONDS: f64 = 8.0;

/// One call of a client.
#[derive(Clone, Copy)]
struct Row {
    /// What trouble there is. A probability of 1 % stands for the first request alone.
    plan: &'static str,
    call: &'static str,
    /// What the server takes from the client, with the statuses of its answers; 0 is none. At the
    /// end, an ellipsis stands for at least one more of the last.
    requests: &'static str,
    /// What the call returns or raises.
    outcome: &'static str,
    /// How long it takes at least.
    seconds: f64,
}

const fn row(
    plan: &'static str,
    call: &'static str,
    requests: &'static str,
    outcome: &'static str,
) -> Row {
    Row { plan, call, requests, outcome, seconds: 0.0 }
}

const fn slow(seconds: f64, row: Row) -> Row {
    Row { seconds, ..row }
}

/// py-clob-client: one request, whose failure is raised: without a status if there is no answer,
/// which it awaits for 5 s between two bytes.
const PY_CLOB_CLIENT: &[Row] = &[
    row("lost=100%", "place", "order 200", "PolyApiException"),
    row("lost=100%", "cancel", "cancel 200", "PolyApiException"),
    row("reset=100%", "place", "order 0", "PolyApiException"),
    row("reset=100%", "orders", "look 0", "PolyApiException"),
    slow(5.0, row("late=100%:7s", "place", "order 200", "PolyApiException")),
    row("restarting=100%", "place", "order 425", "PolyApiException 425"),
    row("restarting=100%", "cancel", "cancel 425", "PolyApiException 425"),
    row("not-run=100%", "place", "order 500", "PolyApiException 500"),
    row("cancel-only=100%", "place", "order 503", "PolyApiException 503"),
    row("cancel-only=100%", "cancel", "cancel 200", "done"),
    row("post-only=100%", "place", "order 503", "PolyApiException 503"),
    row("blocked=100%", "place", "order 403", "PolyApiException 403"),
    row("blocked=100%", "orders", "look 403", "PolyApiException 403"),
    row("limited=100%:7s", "place", "order 429", "PolyApiException 429"),
    row("limited=100%:7s", "orders", "look 429", "PolyApiException 429"),
    row("version=100%", "place", "order 400", "PolyApiException 400"),
    row("clock=100%:40s", "time", "other 200", "40 s ahead"),
    // It does not ask for the time.
    row("clock=100%:40s", "place", "order 200", "live"),
    row("tick=100%:60s", "place", "order 400", "PolyApiException 400"),
    row("delayed=100%:1s", "take", "order 200", "delayed"),
    // It does not ask for transactions.
    row("lag=100%:60s", "take", "order 200", "matched"),
];

/// py-clob-client-v2: the same, but it can repeat an order once, after 30 ms, if there was no
/// answer or one of 500 and more. It never repeats an order for its version: the refusal is raised
/// before the client looks for that.
const PY_CLOB_CLIENT_V2: &[Row] = &[
    row("lost=100%", "place", "order 200", "PolyApiException"),
    slow(0.03, row("lost=100%", "place retrying", "order 200, order 200", "PolyApiException")),
    slow(0.03, row("lost=1%", "place retrying", "order 200, order 200", "live")),
    row("lost=100%", "cancel", "cancel 200", "PolyApiException"),
    slow(0.03, row("reset=1%", "place retrying", "order 0, order 200", "live")),
    row("reset=100%", "orders", "look 0", "PolyApiException"),
    slow(5.0, row("late=1%:7s", "place retrying", "order 200, order 200", "live")),
    slow(5.0, row("late=100%:7s", "place", "order 200", "PolyApiException")),
    row("restarting=100%", "place retrying", "order 425", "PolyApiException 425"),
    row("restarting=100%", "cancel", "cancel 425", "PolyApiException 425"),
    row("not-run=100%", "place", "order 500", "PolyApiException 500"),
    slow(0.03, row("not-run=1%", "place retrying", "order 500, order 200", "live")),
    slow(
        0.03,
        row("cancel-only=100%", "place retrying", "order 503, order 503", "PolyApiException 503"),
    ),
    row("cancel-only=100%", "cancel", "cancel 200", "done"),
    row("post-only=100%", "place", "order 503", "PolyApiException 503"),
    row("blocked=100%", "place retrying", "order 403", "PolyApiException 403"),
    row("limited=100%:7s", "place retrying", "order 429", "PolyApiException 429"),
    row("limited=100%:7s", "orders", "look 429", "PolyApiException 429"),
    row("version=100%", "place retrying", "order 400", "PolyApiException 400"),
    row("clock=100%:40s", "time", "other 200", "40 s ahead"),
    // Its signature has the server's time, which must not be more than 30 s ahead. Requests with
    // bad signatures are nobody's, so they are not recorded.
    row("clock=100%:40s", "orders by server time", "other 200", "PolyApiException 401"),
    row("clock=100%:20s", "orders by server time", "other 200, look 200", "0 orders"),
    row("clock=100%:40s", "orders", "look 200", "0 orders"),
    row("tick=100%:60s", "place", "order 400", "PolyApiException 400"),
    row("delayed=100%:1s", "take", "order 200", "delayed"),
    // Asks for the transactions every 250 ms.
    slow(1.5, row("lag=100%:1500ms", "take", "order 200, look 200 …", "matched in 1")),
    slow(1.5, row("retrying=100%:1500ms", "take", "order 200, look 200 …", "matched in 1")),
];

/// @polymarket/clob-client-v2: waits for an answer as long as it takes, and raises errors only if
/// it is told to. It reads the version of orders again after a refusal for it, but repeats the
/// order only if that has changed.
const CLOB_CLIENT_V2: &[Row] = &[
    row("lost=100%", "place", "order 200", "ApiError"),
    row("lost=100%", "place quietly", "order 200", "returned error"),
    slow(0.03, row("lost=100%", "place retrying", "order 200, order 200", "ApiError")),
    slow(0.03, row("lost=1%", "place retrying", "order 200, order 200", "live")),
    row("lost=100%", "cancel", "cancel 200", "ApiError"),
    slow(0.03, row("reset=1%", "place retrying", "order 0, order 200", "live")),
    row("reset=100%", "orders", "look 0", "ApiError"),
    slow(11.0, row("late=100%:11s", "place retrying", "order 200", "live")),
    row("restarting=100%", "place retrying", "order 425", "ApiError 425"),
    row("restarting=100%", "place quietly", "order 425", "returned 425"),
    row("restarting=100%", "cancel", "cancel 425", "ApiError 425"),
    row("not-run=100%", "place", "order 500", "ApiError 500"),
    slow(0.03, row("not-run=1%", "place retrying", "order 500, order 200", "live")),
    slow(0.03, row("cancel-only=100%", "place retrying", "order 503, order 503", "ApiError 503")),
    row("cancel-only=100%", "cancel", "cancel 200", "done"),
    row("post-only=100%", "place", "order 503", "ApiError 503"),
    row("blocked=100%", "place retrying", "order 403", "ApiError 403"),
    row("limited=100%:7s", "place retrying", "order 429", "ApiError 429"),
    row("limited=100%:7s", "orders", "look 429", "ApiError 429"),
    row("version=100%", "place retrying", "order 400, other 200", "ApiError 400"),
    row("version=100%", "place quietly", "order 400, other 200", "returned 400"),
    row("clock=100%:40s", "time", "other 200", "40 s ahead"),
    row("clock=100%:40s", "orders by server time", "other 200", "ApiError 401"),
    row("clock=100%:20s", "orders by server time", "other 200, look 200", "0 orders"),
    row("clock=100%:40s", "orders", "look 200", "0 orders"),
    row("tick=100%:60s", "place", "order 400", "ApiError 400"),
    row("delayed=100%:1s", "take", "order 200", "delayed"),
    // Asks for the transactions every 250 ms.
    slow(1.5, row("lag=100%:1500ms", "take", "order 200, look 200 …", "matched in 1")),
    slow(1.5, row("retrying=100%:1500ms", "take", "order 200, look 200 …", "matched in 1")),
];

/// polymarket-client: waits 10 s for an answer, never repeats an order, and tells why the venue
/// takes none.
const POLYMARKET_CLIENT: &[Row] = &[
    row("lost=100%", "place", "order 200", "TransportError"),
    row("lost=100%", "cancel", "cancel 200", "TransportError"),
    row("reset=100%", "place", "order 0", "TransportError"),
    row("reset=100%", "orders", "look 0", "TransportError"),
    slow(10.0, row("late=100%:13s", "place", "order 200", "TransportError")),
    row("restarting=100%", "place", "order 425", "RequestRejectedError 425 restarting"),
    row("restarting=100%", "cancel", "cancel 425", "RequestRejectedError 425 restarting"),
    row("not-run=100%", "place", "order 500", "RequestRejectedError 500"),
    row("cancel-only=100%", "place", "order 503", "RequestRejectedError 503 cancel_only"),
    row("cancel-only=100%", "cancel", "cancel 200", "done"),
    row("post-only=100%", "place", "order 503", "RequestRejectedError 503 post_only"),
    row("blocked=100%", "place", "order 403", "RequestRejectedError 403"),
    row("blocked=100%", "orders", "look 403", "RequestRejectedError 403"),
    row("limited=100%:7s", "place", "order 429", "RateLimitError after 7"),
    row("limited=100%:7s", "orders", "look 429", "RateLimitError after 7"),
    row("version=100%", "place", "order 400", "RequestRejectedError 400"),
    row("clock=100%:40s", "place", "order 200", "live"),
    row("tick=100%:60s", "place", "order 400", "RequestRejectedError 400"),
    row("delayed=100%:1s", "take", "order 200", "delayed"),
    row("lag=100%:60s", "take", "order 200", "matched"),
    slow(1.5, row("lag=100%:1500ms", "take and wait", "order 200, look 200 …", "in 1")),
    slow(1.5, row("retrying=100%:1500ms", "take and wait", "order 200, look 200 …", "in 1")),
];

/// One call of polymarket-client, which has a user stream and opens market streams.
struct StreamRow {
    kind: Kind,
    length: &'static str,
    /// How often trouble is met before it ends.
    met: u64,
    call: &'static str,
    /// What the stream tells: of an order that takes, or the best prices of books.
    outcome: &'static str,
    seconds: f64,
    /// The sockets that are opened and end.
    sockets: &'static str,
}

const USER_STREAM: StreamRow = StreamRow {
    kind: Kind::Twice,
    length: "",
    met: 1,
    call: "take",
    outcome: "",
    seconds: 0.0,
    sockets: "",
};

const MARKET_STREAM: StreamRow = StreamRow { call: "watch", ..USER_STREAM };

/// The client tells all frames as they come: repeated, swapped, and books that nobody has quoted.
/// It connects again at once, subscribes again, and does not look for what it has missed.
const STREAMS: &[StreamRow] = &[
    StreamRow {
        met: 5,
        // That the trade is mined and confirmed comes later.
        outcome: "PLACEMENT, PLACEMENT, UPDATE, UPDATE, MATCHED, MATCHED",
        ..USER_STREAM
    },
    StreamRow { kind: Kind::Omitted, met: 5, ..USER_STREAM },
    StreamRow { kind: Kind::TradeFirst, outcome: "MATCHED, PLACEMENT, UPDATE", ..USER_STREAM },
    StreamRow {
        kind: Kind::UserClosed,
        sockets: "user-socket-end 0, user-socket 0",
        ..USER_STREAM
    },
    StreamRow {
        kind: Kind::Ghost,
        length: ":60s",
        call: "watch two",
        outcome: "0.01/0.99, 0.51/0.53",
        sockets: "market-socket 0",
        ..MARKET_STREAM
    },
    // Whatever is silent but answers `PING` is taken to be well.
    StreamRow {
        kind: Kind::Silence,
        length: ":1500ms",
        outcome: "0.51/0.53",
        seconds: 1.5,
        sockets: "market-socket 0",
        ..MARKET_STREAM
    },
    StreamRow {
        kind: Kind::MarketClosed,
        outcome: "0.51/0.53",
        sockets: "market-socket 0, market-socket-end 0, market-socket 0",
        ..MARKET_STREAM
    },
];

/// A server with trouble, and what of its record was read.
struct Venue {
    server: ServerProcess,
    data: tempfile::TempDir,
    admin: SocketAddr,
    read_bytes: usize,
}

impl Venue {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let still = ["--venue", "simulated:1", "--venue-speed", "0.000001", "--clob", "on"];
        let unlimited = ["--address-limits", "off", "--tier", "free=unlimited/unlimited/2/5"];
        let trouble = ["--clob-trouble", "seed=1", "--admin-listen", "127.0.0.1:0"];
        let flags = [&still[..], &unlimited, &trouble].concat();
        let server = ServerProcess::start(BINARY, data.path(), &flags);
        let admin = admin(&server);
        Self { server, data, admin, read_bytes: 0 }
    }

    fn follow(&self, plan: &str) {
        let answer = Connection::open(self.admin).send(&Request::new("PUT", "/trouble").body(plan));
        assert_eq!(answer.status, 200, "{plan}: {answer:?}");
    }

    /// Waits until trouble of a kind was met so often.
    fn wait_for(&self, kind: Kind, count: u64) {
        let mut connection = Connection::open(self.server.address);
        let mut met = || {
            let status = connection.send(&Request::get("/v1/status")).ok(200);
            status["clob_trouble"]["met"][kind.name()].as_u64().unwrap_or(0)
        };
        while met() < count {
            std::thread::yield_now();
        }
    }

    /// Returns what clients have asked since the last time, and how each was answered. Called
    /// without trouble: a request of the test's own marks the end.
    fn asked(&mut self) -> String {
        let mark = Request::new("GET", "/book?token_id=1");
        assert_eq!(Connection::open(self.server.address).send(&mark).status, 404);
        loop {
            let text = fs::read_to_string(self.data.path().join("trouble.jsonl")).unwrap();
            let whole = text.rfind('\n').map_or(0, |end| end + 1);
            let lines = text[self.read_bytes..whole].lines();
            let lines = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
            let acts: Vec<Value> = lines.filter(|line| line["act"].is_string()).collect();
            let is_mark = |act: &Value| act["tokens"] == json!(["1"]);
            if let Some((_, asked)) = acts.split_last().filter(|(last, _)| is_mark(last)) {
                self.read_bytes = whole;
                let shown =
                    |act: &Value| format!("{} {}", act["act"].as_str().unwrap(), act["status"]);
                return asked.iter().map(shown).collect::<Vec<String>>().join(", ");
            }
            std::thread::yield_now();
        }
    }
}

/// The wallet of the scripts, by which draws are counted.
fn wallet() -> String {
    let wallets = fs::read(folder().join("wallets.json")).unwrap();
    let wallets: Value = serde_json::from_slice(&wallets).unwrap();
    wallets["wallets"][0].as_str().unwrap().to_lowercase()
}

/// Returns the plan with a seed of its own. At 50 %, the first request meets the trouble, and the
/// second one does not.
fn seeded(plan: &str, number: usize) -> String {
    let (kind, _) = plan.split_once('=').unwrap();
    let kind = Kind::named(kind).unwrap();
    let wallet = wallet();
    let is_first_alone = |plan: &str| {
        let mut draws = Draws::new(plan.parse::<Plan>().unwrap());
        let mut draw = || draws.draw(kind, &wallet, Some(&wallet), 0).is_some();
        [draw(), draw()] == [true, false]
    };
    let mut seeds = (number * 1_000..).map(|seed| format!("seed={seed},{plan}"));
    let fits = |text: &String| !plan.contains("=1%") || is_first_alone(text);
    seeds.find(fits).unwrap()
}

/// What came of a call, and how long it took.
#[derive(Deserialize, Debug)]
struct Made {
    outcome: String,
    seconds: f64,
}

/// Whether requests are those of a row, which may end in more of the last kind.
fn is_as_said(asked: &str, row: &str) -> bool {
    let Some(row) = row.strip_suffix(" …") else { return asked == row };
    let (_, repeated) = row.rsplit_once(", ").unwrap();
    let rest = asked.strip_prefix(row).unwrap_or("none");
    !rest.is_empty() && rest.replace(&format!(", {repeated}"), "").is_empty()
}

/// Makes all calls of a table. Collects the rows that are not as the client's source says.
#[track_caller]
fn check(script: impl Fn(&Path) -> Command, rows: &[Row]) {
    let Some(clients) = clients() else { return };
    let mut venue = Venue::start();
    let mut script = Script::start(script(&clients).arg(host(&venue.server)));
    assert_eq!(script.line(), "ready\n");
    venue.asked();
    let mut wrong = Vec::new();
    for (number, Row { plan, call, requests, outcome, seconds }) in rows.iter().enumerate() {
        venue.follow(&seeded(plan, number + 1));
        script.say(call);
        let made: Made = script.json();
        venue.follow("");
        let asked = venue.asked();
        let is_in_time = (*seconds..*seconds + SLACK_SECONDS).contains(&made.seconds);
        if made.outcome != *outcome || !is_as_said(&asked, requests) || !is_in_time {
            wrong.push(format!("{plan} {call}: {made:?} after {asked:?}"));
        }
        // Orders that rest would be in the next row's answer.
        script.say("cancel");
        script.json::<Made>();
        venue.asked();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn python(package: &str) -> impl Fn(&Path) -> Command {
    move |clients| {
        let mut python = Command::new(clients.join("bin/python"));
        python.arg(folder().join("troubled.py")).arg(package);
        python
    }
}

#[test]
fn py_clob_client_meets_trouble() {
    check(python("py-clob-client"), PY_CLOB_CLIENT);
}

#[test]
fn py_clob_client_v2_meets_trouble() {
    check(python("py-clob-client-v2"), PY_CLOB_CLIENT_V2);
}

#[test]
fn clob_client_v2_meets_trouble() {
    let node = |clients: &Path| {
        let mut node = Command::new("node");
        node.arg(folder().join("troubled.mjs")).env("MODULES", clients);
        node
    };
    check(node, CLOB_CLIENT_V2);
}

#[test]
fn polymarket_client_meets_trouble() {
    check(python("polymarket-client"), POLYMARKET_CLIENT);
}

/// The streams of the client meet the trouble of frames. The server's trouble ends as soon as it
/// was met, but for a silence, which the client has to wait out.
#[test]
fn polymarket_clients_streams_meet_trouble() {
    let Some(clients) = clients() else { return };
    let mut venue = Venue::start();
    let mut python = Command::new(clients.join("bin/python"));
    python.arg(folder().join("troubled_streams.py")).arg(host(&venue.server));
    let mut script = Script::start(&mut python);
    assert_eq!(script.line(), "ready\n");
    venue.asked();
    let mut wrong = Vec::new();
    for StreamRow { kind, length, met, call, outcome, seconds, sockets } in STREAMS {
        let name = kind.name();
        venue.follow(&format!("{name}=100%{length}"));
        script.say(call);
        if *call == "take" {
            assert_eq!(script.line(), "taken\n");
        }
        venue.wait_for(*kind, *met);
        if *seconds == 0.0 {
            venue.follow("");
        }
        if *call == "take" {
            script.say("over");
        }
        let made: Made = script.json();
        venue.follow("");
        let asked = venue.asked();
        let used: Vec<&str> = asked.split(", ").filter(|act| act.contains("socket")).collect();
        let used = used.join(", ");
        let is_used = if sockets.is_empty() { used.is_empty() } else { used.contains(sockets) };
        if made.outcome != *outcome || made.seconds < *seconds || !is_used {
            wrong.push(format!("{name}: {made:?} by {used:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
