//! The markets that a stand-in starts with, invented or recorded.

use serde_json::{Map, Value, json};

use super::decimal::text;
use super::description::Description;
use super::ladder::{Ladder, Side};

/// A market's initial book.
#[derive(Clone, Debug)]
pub(crate) struct BookSeed {
    pub(crate) ladder: Ladder,
    /// The recorded hash; computed if `None`.
    pub(crate) hash: Option<String>,
    /// Zero stands for the start of the stand-in.
    pub(crate) timestamp_ms: u64,
}

impl BookSeed {
    /// A recorded book; a missing hash or timestamp is filled in.
    pub(crate) fn of_json(book: &Value) -> Self {
        Self {
            ladder: Ladder::of_json(book),
            hash: book["hash"].as_str().map(str::to_owned),
            timestamp_ms: book["timestamp"].as_str().map_or(0, |text| text.parse().unwrap()),
        }
    }
}

/// A market that a stand-in starts with or lists later.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct MarketSeed {
    pub(crate) condition_id: String,
    pub(crate) token_ids: Vec<String>,
    pub(crate) outcomes: Vec<String>,
    pub(crate) tick_size: String,
    pub(crate) min_order_size: String,
    pub(crate) neg_risk: bool,
    /// Whether the CLOB says that it holds marketable orders, which Gamma does not say.
    pub(crate) holds_takers: bool,
    /// Whether the market is of version 2 of the protocol.
    pub(crate) is_v2: bool,
    pub(crate) last_trade_price: String,
    /// Whether books leave that out: the recording does not have it.
    pub(crate) is_trade_unknown: bool,
    /// Gamma's description; `None` for a market that only the CLOB knows.
    pub(crate) description: Option<Description>,
    pub(crate) compact: Option<String>,
    pub(crate) long: Option<String>,
    /// In the order of the tokens.
    pub(crate) books: Vec<Option<BookSeed>>,
}

/// Everything that a stand-in starts with.
#[derive(Clone, Default, Debug)]
pub(crate) struct World {
    pub(crate) markets: Vec<MarketSeed>,
}

impl World {
    /// Invented markets of two tokens, with books 20 levels deep on each side. Market `n` has the
    /// ids of [`condition_id`] and [`token_id`], volume falls with `n`, and every third market
    /// belongs to an event of which exactly one wins.
    pub(crate) fn invented(market_count: usize) -> Self {
        Self { markets: (0..market_count).map(MarketSeed::invented).collect() }
    }
}

/// The condition id of the invented market with this number.
pub(crate) fn condition_id(number: usize) -> String {
    format!("0x{:064x}", 0xabc_0000_0000_u64 + number as u64)
}

/// The same in version 2 of the protocol, with 64 digits.
pub(crate) fn condition_id_of_version_2(number: usize) -> String {
    format!("0x{:062x}00", 0xdef_0000_0000_u64 + number as u64)
}

/// The id of a token of the invented market with this number, as long as the venue's longest.
pub(crate) fn token_id(number: usize, outcome: usize) -> String {
    format!("1158{:073}{outcome}", number + 1)
}

impl MarketSeed {
    /// The invented market with this number.
    pub(crate) fn invented(number: usize) -> Self {
        let token_ids = vec![token_id(number, 0), token_id(number, 1)];
        let outcomes = vec!["Yes".to_owned(), "No".to_owned()];
        let mut seed = Self::named(&condition_id(number), token_ids, outcomes);
        let ladder = invented_ladder(number);
        let books = [ladder.clone(), ladder.mirrored()];
        seed.books =
            books.map(|ladder| Some(BookSeed { ladder, hash: None, timestamp_ms: 0 })).to_vec();
        seed.neg_risk = number % 3 == 2;
        if !number.is_multiple_of(5) {
            seed.last_trade_price.push_str("0.500");
        }
        let neg_risk = seed.neg_risk;
        seed.describe(|fields| number_fields(fields, number, neg_risk));
        seed
    }

    /// The same on which way a price goes, where marketable orders are held.
    pub(crate) fn up_or_down(number: usize) -> Self {
        let mut seed = Self::invented(number);
        seed.outcomes = vec!["Up".to_owned(), "Down".to_owned()];
        seed.holds_takers = true;
        let outcomes = json!(seed.outcomes).to_string();
        seed.describe(|fields| drop(fields.insert("outcomes".to_owned(), outcomes.into())));
        seed
    }

    /// The same in version 2 of the protocol. Gamma writes 62 or 64 digits of its id; all other
    /// services write 64.
    pub(crate) fn of_version_2(number: usize, gamma_digits: usize) -> Self {
        let mut seed = Self::up_or_down(number);
        seed.condition_id = condition_id_of_version_2(number);
        seed.is_v2 = true;
        let catalogued = seed.condition_id[..2 + gamma_digits].to_owned();
        let tokens = json!(seed.token_ids);
        seed.describe(|fields| {
            fields.insert("conditionId".to_owned(), catalogued.into());
            fields.insert("version".to_owned(), "v2".into());
            fields.insert("resolutionStatus".to_owned(), "active".into());
            fields.insert("positionIds".to_owned(), tokens);
            fields.insert("clobTokenIds".to_owned(), Value::Null);
        });
        seed
    }

    /// A market with these ids, without books.
    pub(crate) fn named(condition_id: &str, token_ids: Vec<String>, outcomes: Vec<String>) -> Self {
        let description = invented_description(condition_id, &token_ids, &outcomes);
        Self {
            condition_id: condition_id.to_owned(),
            books: vec![None; token_ids.len()],
            token_ids,
            outcomes,
            tick_size: "0.01".to_owned(),
            min_order_size: "5".to_owned(),
            neg_risk: false,
            holds_takers: false,
            is_v2: false,
            last_trade_price: String::new(),
            is_trade_unknown: false,
            description: Some(Description::of_fields(description)),
            compact: None,
            long: None,
        }
    }

    /// Edits Gamma's description of the market.
    pub(crate) fn describe(&mut self, change: impl FnOnce(&mut Map<String, Value>)) {
        self.description.as_mut().expect("the market has a description").edit(change);
    }
}

/// The best bid is between 0.30 and 0.69, the ask one tick above.
fn invented_ladder(number: usize) -> Ladder {
    const LEVEL_COUNT: i64 = 20;
    let mut ladder = Ladder::default();
    let number = i64::try_from(number).unwrap();
    let best = 30 + (number * 7) % 40;
    for step in 0..LEVEL_COUNT {
        let size = text(10_000_000 + (number % 97) * 250_000 + step * 5_550_000);
        ladder.set(Side::Buy, &text((best - step) * 10_000), &size);
        ladder.set(Side::Sell, &text((best + 1 + step) * 10_000), &size);
    }
    ladder
}

/// Sets the fields that distinguish the invented market with this number from the others.
fn number_fields(fields: &mut Map<String, Value>, number: usize, neg_risk: bool) {
    let volume = 10_000_000.25 / (f64::from(u32::try_from(number).unwrap()) + 1.0);
    let event = json!({
        "id": (800_000 + number / 3).to_string(),
        "slug": format!("invented-event-{}", number / 3),
        "title": format!("Invented event {}", number / 3),
        "negRisk": neg_risk,
        "tags": [{"id": (number % 4 + 1).to_string(), "label": "Invented", "slug": "invented"}],
        "series": [{"id": (500 + number / 3).to_string(), "slug": "invented-up-or-down-5m"}],
    });
    for (name, value) in [
        ("id", json!((700_000 + number).to_string())),
        ("question", json!(format!("Will invented thing {number} happen?"))),
        ("slug", json!(format!("invented-thing-{number}"))),
        ("negRisk", json!(neg_risk)),
        ("volume", json!(volume.to_string())),
        ("volumeNum", json!(volume)),
        ("volume24hr", json!(volume / 10.0)),
        ("events", json!([event])),
    ] {
        fields.insert(name.to_owned(), value);
    }
}

fn invented_description(
    condition_id: &str,
    tokens: &[String],
    outcomes: &[String],
) -> Map<String, Value> {
    let number = u32::from_str_radix(&condition_id[2..9], 16).unwrap_or(0);
    let fields = json!({
        "id": (900_000_000 + u64::from(number)).to_string(),
        "question": format!("Will {condition_id} happen?"),
        "conditionId": condition_id,
        "slug": format!("market-{condition_id}"),
        "description": "Invented: no such description exists.",
        "resolutionSource": "",
        "startDate": "2026-01-01T00:00:00Z",
        "endDate": "2099-12-31T00:00:00Z",
        "outcomes": json!(outcomes).to_string(),
        "outcomePrices": r#"["0.5", "0.5"]"#,
        "clobTokenIds": json!(tokens).to_string(),
        "active": true,
        "closed": false,
        "archived": false,
        "restricted": true,
        "enableOrderBook": true,
        "acceptingOrders": true,
        "orderPriceMinTickSize": 0.01,
        "orderMinSize": 5,
        "negRisk": false,
        "feesEnabled": true,
        "feeType": "general_fees",
        "feeSchedule": {"rate": 0.05, "exponent": 1, "takerOnly": true, "rebateRate": 0.25},
        "volume": "1000.5",
        "volumeNum": 1000.5,
        "volume24hr": 100.5,
        "liquidity": "1000.5",
        "liquidityNum": 1000.5,
        "updatedAt": "2026-01-10T10:00:00.5Z",
    });
    match fields {
        Value::Object(fields) => fields,
        _ => unreachable!("the description is an object"),
    }
}
