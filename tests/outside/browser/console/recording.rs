//! A venue that stands still, in which each market is in another state, written as a recording.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

/// How it stands with a market of the recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    Open,
    /// Open, with a book on which nothing is offered.
    Empty,
    /// Open, without a book.
    Bookless,
    Paused,
    /// Without a result.
    Closed,
    /// The first outcome pays.
    Resolved,
}

/// A market of the recording.
#[derive(Clone, Debug)]
pub(crate) struct Market {
    pub(crate) question: String,
    pub(crate) outcomes: [String; 2],
    pub(crate) category: String,
    pub(crate) stage: Stage,
}

impl Market {
    /// A market whose question says how it stands with it.
    pub(crate) fn of(stage: Stage) -> Self {
        let outcomes = ["Red", "Blue"].map(str::to_owned);
        let question = format!("Which side wins the {stage:?} game?");
        Self { question, outcomes, category: "Games".to_owned(), stage }
    }
}

/// The id of the market at this place.
pub(crate) fn id(place: usize) -> String {
    format!("0x{:064x}", place + 1)
}

fn token_id(place: usize, outcome: usize) -> String {
    (800_000 + 2 * place + outcome).to_string()
}

/// Writes these markets into a folder. They are listed in this order.
pub(crate) fn write(folder: &Path, markets: &[Market]) {
    for name in ["gamma", "clob"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    let rows = || markets.iter().enumerate();
    let lines =
        |rows: Vec<Value>| rows.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let described = rows().map(|(place, market)| description(place, market)).collect();
    fs::write(folder.join("gamma/markets.jsonl"), lines(described)).unwrap();
    let with_book = rows().filter(|(_, market)| {
        matches!(market.stage, Stage::Open | Stage::Empty | Stage::Paused | Stage::Closed)
    });
    let books = with_book.map(|(place, market)| book(place, market)).collect();
    fs::write(folder.join("clob/books.jsonl"), lines(books)).unwrap();
}

fn description(place: usize, market: &Market) -> Value {
    let Market { question, outcomes, category, stage } = market;
    let is_over = matches!(stage, Stage::Closed | Stage::Resolved);
    let tokens = [0, 1].map(|outcome| token_id(place, outcome));
    let prices = if *stage == Stage::Resolved { ["1", "0"] } else { ["0.5", "0.5"] };
    let mut row = json!({
        "id": (9_000 + place).to_string(),
        "conditionId": id(place),
        "slug": format!("market-{place}"),
        "question": question,
        "category": category,
        "outcomes": json!(outcomes).to_string(),
        "outcomePrices": json!(prices).to_string(),
        "clobTokenIds": json!(tokens).to_string(),
        "active": true,
        "closed": is_over,
        "enableOrderBook": true,
        "acceptingOrders": !is_over && *stage != Stage::Paused,
        "orderPriceMinTickSize": 0.01,
        "orderMinSize": 5,
        "negRisk": false,
        "feesEnabled": false,
        "updatedAt": "2026-01-10T10:00:00Z",
        "endDate": "2026-02-01T00:00:00Z",
        "volumeNum": 1_000_000.5,
        "volume24hr": 100_000 - place,
    });
    if *stage == Stage::Resolved {
        row["umaResolutionStatus"] = json!("resolved");
    }
    row
}

fn levels(levels: &[(&str, &str)]) -> Value {
    levels.iter().map(|(price, size)| json!({ "price": price, "size": size })).collect()
}

fn book(place: usize, market: &Market) -> Value {
    let is_empty = market.stage == Stage::Empty;
    let bids = [("0.47", "12027.49"), ("0.48", "100"), ("0.49", "7.5")];
    let asks = [("0.6", "234567.123456"), ("0.53", "1000"), ("0.5", "100")];
    json!({
        "market": id(place),
        "asset_id": token_id(place, 0),
        "timestamp": "1768039205000",
        "hash": null,
        "bids": if is_empty { json!([]) } else { levels(&bids) },
        "asks": if is_empty { json!([]) } else { levels(&asks) },
        "min_order_size": "5",
        "tick_size": "0.01",
        "neg_risk": false,
        "last_trade_price": "0.49",
    })
}

/// How long a connection of a tape with outages lasts, and how long it takes until the next one, in
/// milliseconds.
const CONNECTED_MS: u64 = 2_500;
const OUTAGE_MS: u64 = 1_500;

/// Writes a tape of one market. So many times the connection that carries its book is lost and
/// comes back, with the same book. Then it is lost for good.
pub(crate) fn write_outages(folder: &Path, market: &Market, outages: u64) {
    let (id, token) = (format!("0x{}", "02".repeat(32)), "7003");
    let mut described = description(0, market);
    described["conditionId"] = json!(id);
    described["clobTokenIds"] = json!(json!([token, "7004"]).to_string());
    described["orderPriceMinTickSize"] = json!(0.001);
    described["negRisk"] = json!(true);
    // The hash covers all of this.
    let book = json!([{
        "event_type": "book", "market": id, "asset_id": token, "timestamp": "1768039210000",
        "hash": "624abe330af972dbd8f34669489a7ac12cde2a18",
        "bids": levels(&[("0.1", "500"), ("0.45", "20"), ("0.451", "30")]),
        "asks": levels(&[("0.9", "5"), ("0.46", "11.5"), ("0.455", "40")]),
        "tick_size": "0.001", "last_trade_price": "0.450",
    }]);
    let mut lines = vec![
        (0, "ws", json!({ "kind": "begin", "version": 1 })),
        (1, "gamma", json!({ "kind": "answer", "get": "/markets?limit=1", "json": [described] })),
        (2, "gamma", json!({ "kind": "listed", "ids": [id] })),
        (3, "ws", json!({ "kind": "follow", "socket": 0, "tokens": [token, "7004"] })),
    ];
    for outage in 0..=outages {
        let opened_ms = 4 + outage * (CONNECTED_MS + OUTAGE_MS);
        let lost_ms = opened_ms + CONNECTED_MS;
        lines.extend([
            (opened_ms, "ws", json!({ "kind": "open", "socket": 0, "connection": outage + 1 })),
            (opened_ms + 1, "ws", json!({ "kind": "frame", "socket": 0, "json": book })),
            (lost_ms, "ws", json!({ "kind": "lost", "socket": 0, "why": "the cable was cut" })),
        ]);
    }
    let mut files = BTreeMap::<&str, String>::new();
    for (place, (at_ms, folder, line)) in lines.iter().enumerate() {
        let fields = line.to_string();
        let text = files.entry(folder).or_default();
        let ns = 1_768_039_210_100_000_000_u64 + 1_000_000 * at_ms;
        writeln!(text, "{{\"n\":{},\"ns\":{ns},{}", place + 1, &fields[1..]).unwrap();
    }
    for (name, text) in files {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).unwrap();
        let file = fs::File::create(folder.join("20260110T100010.100Z-000001.tape.jsonl.gz"));
        let mut packed = GzEncoder::new(file.unwrap(), Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        packed.finish().unwrap();
    }
}
