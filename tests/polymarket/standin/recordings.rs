//! Recorded payloads: the markets in them, and tapes of events.
//!
//! A file is a list of JSON values, one a line, or a single value. Objects are recognised by their
//! keys. A market without a recorded description gets an invented one, and tokens that were
//! recorded without an id get one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use paperbourse_test_support::recordings::folder;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::decimal::{ONE_MICROS, text};
use super::description::Description;
use super::ladder::{Ladder, Side, text_of};
use super::world::{BookSeed, MarketSeed, World};

/// A recorded event, to be replayed.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Played {
    /// A text of the socket, verbatim.
    Frame(String),
    /// A book from the REST service.
    Book(Value),
    /// A book that was recorded without its token.
    Ladder { token: String, ladder: Ladder },
    /// A level that was recorded without its frame.
    Level { token: String, side: Side, price: String, size: String },
}

/// The folder of recordings.
pub(crate) struct Recordings {
    folder: PathBuf,
}

/// The condition id of the market whose books were recorded without token ids.
pub(crate) const UNNAMED_MARKET: &str =
    "0xb1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1";
/// Its tokens, up and down.
pub(crate) const UNNAMED_TOKENS: [&str; 2] = ["2025121101", "2025121102"];

/// The prefixes of the tokens of one game; each pair is a market.
const GAME_PAIRS: [[&str; 2]; 3] = [["72034", "92414"], ["45956", "56376"], ["66111", "94018"]];

/// What is known about a market while the files are read.
#[derive(Default)]
struct Known {
    tokens: Vec<String>,
    outcomes: Vec<String>,
    description: Option<Description>,
    question: Option<String>,
    compact: Option<String>,
    long: Option<String>,
    /// The first book of each token.
    books: BTreeMap<String, Value>,
}

impl Recordings {
    /// Finds the recordings, or reports on stderr that they are missing.
    pub(crate) fn open() -> Option<Self> {
        Some(Self { folder: folder()? })
    }

    /// The names of all files, as `folder/file`.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        for kind in ["gamma", "clob", "ws"] {
            for entry in fs::read_dir(self.folder.join(kind)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                files.push(format!("{kind}/{name}"));
            }
        }
        files.sort_unstable();
        files
    }

    /// Where a file is.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    /// The JSON values of a file.
    pub(crate) fn values(&self, file: &str) -> Vec<Box<RawValue>> {
        let content = fs::read_to_string(self.folder.join(file)).unwrap();
        if Path::new(file).extension().is_some_and(|extension| extension == "jsonl") {
            let lines = content.lines().filter(|line| !line.trim().is_empty());
            return lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        vec![serde_json::from_str(&content).unwrap()]
    }

    /// Every market of every file, each with the first book of its tokens.
    pub(crate) fn world(&self) -> World {
        static READ: OnceLock<World> = OnceLock::new();
        READ.get_or_init(|| self.read_world()).clone()
    }

    fn read_world(&self) -> World {
        let mut known = BTreeMap::new();
        for file in self.files() {
            let is_ticks = file.starts_with("ws/nhl");
            for value in self.values(&file) {
                if is_ticks {
                    learn_game_token(&mut known, &value);
                } else {
                    visit(&value, &mut |raw, object| learn(&mut known, raw, object));
                }
            }
        }
        let unnamed: &mut Known = known.entry(UNNAMED_MARKET.to_owned()).or_default();
        unnamed.tokens = UNNAMED_TOKENS.map(str::to_owned).to_vec();
        // Some rows name no token at all: nothing can happen in such a market.
        known.retain(|_, known| !known.tokens.is_empty());
        let markets = known.into_iter().map(|(id, known)| known.into_seed(&id)).collect();
        World { markets }
    }

    /// The events of books and trades in a file, in its order.
    pub(crate) fn tape(&self, file: &str) -> Vec<Played> {
        let unnamed = UNNAMED_TOKENS[usize::from(file.contains("_down_"))];
        let mut tape = Vec::new();
        if file.starts_with("gamma/") {
            return tape;
        }
        for value in self.values(file) {
            let parsed: Value = serde_json::from_str(value.get()).unwrap();
            if let Some(frame) = parsed.get("frame") {
                let text = frame.as_str().map_or_else(|| frame.to_string(), str::to_owned);
                tape.push(Played::Frame(text));
            } else if file.starts_with("ws/nhl") {
                tape.push(game_tick(&parsed));
            } else if file.starts_with("ws/btc_1h") {
                tape.push(unnamed_tick(unnamed, &parsed));
            } else if file.starts_with("ws/") {
                tape.push(Played::Frame(value.get().to_owned()));
            } else {
                visit(&value, &mut |_, object| {
                    if !object["asset_id"].is_null() && object["bids"].is_array() {
                        tape.push(Played::Book(object.clone()));
                    } else if object["asset"].is_string() && object["conditionId"].is_string() {
                        tape.push(public_trade(object));
                    }
                });
            }
        }
        tape
    }
}

impl Known {
    fn into_seed(mut self, condition_id: &str) -> MarketSeed {
        // For some markets only one token was recorded; invent the other.
        if let [only] = &self.tokens[..] {
            let first = if only.starts_with('9') { 8 } else { 9 };
            let sister = format!("{first}{}", &only[1..]);
            self.tokens.push(sister);
        }
        let outcomes = match &self.description {
            Some(description) => description.list("outcomes"),
            None if self.outcomes.len() == self.tokens.len() => self.outcomes,
            None => vec!["Yes".to_owned(), "No".to_owned()],
        };
        let mut seed = MarketSeed::named(condition_id, self.tokens, outcomes);
        let field = |name: &str| self.description.as_ref().map(|known| known.field(name).clone());
        let number = |name: &str| field(name).filter(Value::is_number).map(|size| size.to_string());
        let first = self.books.values().next();
        let in_book = |name: &str| first.and_then(|book| book[name].as_str()).map(str::to_owned);
        if let Some(tick) = in_book("tick_size").or_else(|| number("orderPriceMinTickSize")) {
            seed.tick_size = tick;
        }
        if let Some(size) = in_book("min_order_size").or_else(|| number("orderMinSize")) {
            seed.min_order_size = size;
        }
        let neg_risk = first.and_then(|book| book["neg_risk"].as_bool());
        seed.neg_risk = neg_risk.unwrap_or_else(|| field("negRisk") == Some(json!(true)));
        let last_trade_price = in_book("last_trade_price");
        seed.is_trade_unknown = last_trade_price.is_none();
        seed.last_trade_price = last_trade_price.unwrap_or_default();
        seed.books = seed
            .token_ids
            .iter()
            .map(|token| self.books.get(token).map(BookSeed::of_json))
            .collect();
        if let Some(question) = self.question {
            seed.describe(|fields| {
                fields.insert("question".to_owned(), json!(question));
            });
        }
        if self.description.is_some() {
            seed.description = self.description;
        } else if self.long.is_some() {
            // Only the order book service knows this market.
            seed.description = None;
        }
        (seed.compact, seed.long) = (self.compact, self.long);
        seed
    }
}

/// Calls `each` for every object in the value that is a record in itself, with its text.
pub(crate) fn visit(raw: &RawValue, each: &mut impl FnMut(&str, &Value)) {
    if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
        for item in items {
            visit(item, each);
        }
        return;
    }
    let Ok(keys) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()) else { return };
    if !keys.contains_key("conditionId") {
        for name in ["markets", "data", "raw", "frame", "body"] {
            if let Some(inner) = keys.get(name) {
                return visit(inner, each);
            }
        }
    }
    each(raw.get(), &serde_json::from_str(raw.get()).unwrap());
}

fn learn(known: &mut BTreeMap<String, Known>, raw: &str, object: &Value) {
    let id = ["conditionId", "condition_id", "market", "c"]
        .into_iter()
        .find_map(|name| object[name].as_str().filter(|id| id.starts_with("0x")));
    let Some(id) = id else { return };
    // A public trade does not describe its market.
    if object["asset"].is_string() {
        return;
    }
    let strings = |list: &Value, name: &str| -> Vec<String> {
        let items = list.as_array().into_iter().flatten();
        items
            .filter_map(|item| if name.is_empty() { item.as_str() } else { item[name].as_str() })
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let market = known.entry(id.to_owned()).or_default();
    let mut tokens = Vec::new();
    if object["conditionId"].is_string() {
        let description = Description::of_text(raw.to_owned());
        tokens = description.list("clobTokenIds");
        market.description = Some(description);
    } else if object["t"].is_array() {
        tokens = strings(&object["t"], "t");
        market.outcomes = strings(&object["t"], "o");
        market.compact = Some(raw.to_owned());
    } else if object["tokens"].is_array() {
        tokens = strings(&object["tokens"], "token_id");
        market.outcomes = strings(&object["tokens"], "outcome");
        market.long = Some(raw.to_owned());
    } else if object["token_ids"].is_array() {
        tokens = strings(&object["token_ids"], "");
        market.outcomes = strings(&object["outcomes"], "");
    } else if object["assets_ids"].is_array() {
        tokens = strings(&object["assets_ids"], "");
    } else if object["price_changes"].is_array() {
        tokens = strings(&object["price_changes"], "asset_id");
    } else if let Some(token) = object["asset_id"].as_str() {
        tokens.push(token.to_owned());
        if object["bids"].is_array() {
            market.books.entry(token.to_owned()).or_insert_with(|| object.clone());
        }
    }
    if let Some(question) = object["question"].as_str() {
        market.question = Some(question.to_owned());
    }
    for token in tokens {
        if !market.tokens.contains(&token) {
            market.tokens.push(token);
        }
    }
    // A description lists the tokens in the order of its outcomes.
    if let Some(description) = &market.description {
        market.tokens = description.list("clobTokenIds");
    }
}

fn learn_game_token(known: &mut BTreeMap<String, Known>, raw: &RawValue) {
    let row: Value = serde_json::from_str(raw.get()).unwrap();
    let token = text_of(&row["asset_id"]);
    let Some((number, outcome)) = game_place(token) else { return };
    let market = known.entry(game_market(number)).or_default();
    if !market.tokens.iter().any(|known| known == token) {
        let place = outcome.min(market.tokens.len());
        market.tokens.insert(place, token.to_owned());
        // Its book starts empty.
        let empty = json!({"bids": [], "asks": []});
        market.books.insert(token.to_owned(), empty);
    }
}

/// The number of a token's market in the recorded game, and that of its outcome.
pub(crate) fn game_place(token: &str) -> Option<(usize, usize)> {
    GAME_PAIRS.iter().enumerate().find_map(|(number, pair)| {
        Some((number, pair.iter().position(|start| token.starts_with(start))?))
    })
}

fn game_market(number: usize) -> String {
    format!("0x{}", format!("a{number}").repeat(32))
}

/// The text of a number that was recorded as a JSON number.
fn decimal(number: &Value) -> String {
    let micros = (number.as_f64().unwrap() * 1e6).round();
    assert!((0.0..1e15).contains(&micros), "{number} is neither a price nor a size");
    #[expect(clippy::cast_possible_truncation, reason = "the range was asserted")]
    let micros = micros as i64;
    text(micros)
}

fn trade_frame(
    market: &str,
    token: &str,
    [price, size]: [&str; 2],
    side: &str,
    ms: &str,
) -> Played {
    let frame = json!({
        "market": market,
        "asset_id": token,
        "price": price,
        "size": size,
        "fee_rate_bps": "0",
        "side": side,
        "timestamp": ms,
        "event_type": "last_trade_price",
    });
    Played::Frame(frame.to_string())
}

fn game_tick(row: &Value) -> Played {
    let token = text_of(&row["asset_id"]);
    let (price, size) = (decimal(&row["price"]), decimal(&row["size"]));
    let side = if row["side"] == "BID" { Side::Buy } else { Side::Sell };
    if row["event_type"] == "PRICE_CHANGE" {
        return Played::Level { token: token.to_owned(), side, price, size };
    }
    let (number, _) = game_place(token).unwrap();
    let ms = row["ts_ms"].to_string();
    trade_frame(&game_market(number), token, [&price, &size], side.text(), &ms)
}

fn unnamed_tick(token: &str, row: &Value) -> Played {
    if row["bids"].is_array() {
        return Played::Ladder { token: token.to_owned(), ladder: Ladder::of_json(row) };
    }
    let [price, size, side, ms] =
        ["price", "size", "side", "timestamp"].map(|name| text_of(&row[name]));
    trade_frame(UNNAMED_MARKET, token, [price, size], &side.to_uppercase(), ms)
}

fn public_trade(row: &Value) -> Played {
    let ms = row["timestamp"].as_u64().unwrap() * ONE_MICROS.unsigned_abs() / 1000;
    let (price, size) = (decimal(&row["price"]), decimal(&row["size"]));
    let [market, token, side] = ["conditionId", "asset", "side"].map(|name| text_of(&row[name]));
    trade_frame(market, token, [&price, &size], side, &ms.to_string())
}
