//! The schemas of answers whose JSON is written by hand for speed: bots poll these answers, or send
//! the requests for them in a loop. A test compares the schemas with the server's answers.
#![expect(dead_code, reason = "only the schemas are used")]
#![expect(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "the fields are those of the wire"
)]

use std::collections::BTreeMap;

use schemars::JsonSchema;

use crate::http::operations::candles::PricesRow;
use paperbourse_core::wire::{Decimal, Time};

/// A filled order. Amounts are JSON numbers.
#[derive(JsonSchema)]
pub(in crate::http) struct Trade {
    /// The order's id.
    order_id: u64,
    #[schemars(extend("const" = "FILLED"))]
    status: String,
    /// The average price of the fill.
    price: f64,
    /// In shares.
    quantity: f64,
    /// Price times quantity, in dollars, without the fee.
    notional: f64,
    /// The taker fee, in dollars.
    fee: f64,
    /// The cash after the order, in dollars.
    account_balance: f64,
    /// The account's position after the order.
    position: TradePosition,
    /// How long the venue's delay held the order, in milliseconds, if it did.
    #[schemars(rename = "held_ms", skip_serializing_if = "Option::is_none")]
    delayed_ms: Option<u32>,
    /// A sentence about each field of the request that was ignored, if any was.
    #[schemars(skip_serializing_if = "Option::is_none", length(min = 1))]
    warnings: Option<Vec<String>>,
}

#[derive(JsonSchema)]
struct TradePosition {
    /// The market's condition id.
    market_id: String,
    /// The outcome's label.
    outcome: String,
    /// In shares.
    quantity: f64,
    /// What a share cost on average, without fees.
    avg_entry_price: f64,
    #[schemars(extend("enum" = ["OPEN", "CLOSED"]))]
    status: String,
}

/// A market as lists show it.
#[derive(JsonSchema)]
pub(in crate::http) struct MarketRow {
    /// The same as the condition id.
    id: String,
    /// What orders name as `market_id`.
    condition_id: String,
    slug: Option<String>,
    question: Option<String>,
    image_url: Option<String>,
    category: Option<String>,
    /// Always null.
    display_label: Option<String>,
    /// The labels of the outcomes.
    outcomes: Vec<String>,
    /// Whether the market is open.
    active: bool,
    /// Whether the market has closed.
    closed: bool,
    /// Whether orders are accepted now.
    accepting_orders: bool,
    /// Whether much is traded.
    is_hot: bool,
    /// The tokens of the outcomes.
    clob_token_ids: Vec<String>,
    /// In dollars.
    volume_24h: Option<Decimal>,
    /// In dollars.
    volume_total: Option<Decimal>,
    /// The price of the first outcome.
    last_price: Option<Decimal>,
    /// Null if no price is known.
    live_price: Option<LivePrice>,
}

#[derive(JsonSchema)]
struct LivePrice {
    #[schemars(flatten)]
    prices: Prices,
    /// The market's total volume, in dollars.
    volume: Option<Decimal>,
}

#[derive(JsonSchema)]
struct Prices {
    /// The price of the first outcome.
    buy: Option<Decimal>,
    /// The price of the second outcome.
    sell: Option<Decimal>,
    outcomes: Vec<OutcomePrice>,
    /// Where the prices come from.
    source: Option<String>,
    updated_at: Option<Time>,
    /// True if a book is not known to be the venue's current one.
    #[schemars(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
}

#[derive(JsonSchema)]
struct OutcomePrice {
    label: String,
    price: Option<Decimal>,
    token_id: String,
}

/// A market.
#[derive(JsonSchema)]
pub(in crate::http) struct Market {
    #[schemars(flatten)]
    row: MarketRow,
    event_group_id: Option<String>,
    event_title: Option<String>,
    end_date: Option<Time>,
    /// The outcome that won.
    resolved_outcome: Option<String>,
    /// Always false.
    archived: bool,
    /// Always null.
    archived_at: Option<Time>,
    tokens: Vec<MarketToken>,
    question_id: String,
    market_slug: Option<String>,
    neg_risk: bool,
    /// The prices of orders are multiples of this.
    tick_size: Decimal,
    /// In shares.
    min_order_size: Decimal,
}

#[derive(JsonSchema)]
struct MarketToken {
    token_id: String,
    outcome: String,
    price: Option<f64>,
    winner: bool,
}

/// A list of markets, or with `envelope` a page of it.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(in crate::http) enum MarketList {
    Rows(Vec<MarketRow>),
    Page(MarketPage),
}

#[derive(JsonSchema)]
pub(in crate::http) struct MarketPage {
    data: Vec<MarketRow>,
    /// `LTE=` on the last page.
    next_cursor: String,
    limit: u64,
    count: u64,
}

/// The prices of a market, or only its id if it is unknown.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(in crate::http) enum MarketPrices {
    Known(KnownPrices),
    Unknown(UnknownPrices),
}

#[derive(JsonSchema)]
pub(in crate::http) struct KnownPrices {
    condition_id: String,
    #[schemars(flatten)]
    prices: Prices,
}

#[derive(JsonSchema)]
pub(in crate::http) struct UnknownPrices {
    condition_id: String,
}

/// A page of events.
#[derive(JsonSchema)]
pub(in crate::http) struct EventList {
    events: Vec<Event>,
    /// How many events there are in all.
    total: u64,
    limit: u64,
    offset: u64,
}

#[derive(JsonSchema)]
struct Event {
    id: String,
    slug: Option<String>,
    title: Option<String>,
    image: Option<String>,
    category: Option<String>,
    end_date: Option<Time>,
    is_hot: bool,
    /// How many open markets it has, listed or not.
    market_count: u64,
    markets: Vec<MarketRow>,
}

/// The book of an outcome.
#[derive(JsonSchema)]
pub(in crate::http) struct Book {
    token_id: String,
    /// The market's condition id.
    market: String,
    /// The same as `token_id`.
    asset_id: String,
    /// The venue's hash of the book.
    hash: Option<String>,
    /// In milliseconds since 1970.
    timestamp: String,
    /// The best one last.
    bids: Vec<Level>,
    /// The best one last.
    asks: Vec<Level>,
    /// In shares.
    min_order_size: Decimal,
    tick_size: Decimal,
    neg_risk: bool,
    /// Empty if the venue's hash covers none.
    last_trade_price: Option<String>,
    /// Halfway between the best prices.
    mid: Option<Decimal>,
    /// Between the best prices; a wider one is shown as 0.1.
    spread: Option<Decimal>,
    /// True if the book is not known to be the venue's current one.
    #[schemars(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
}

#[derive(JsonSchema)]
struct Level {
    price: Decimal,
    /// In shares.
    size: Decimal,
}

/// Prices over time, oldest first: points, or candles with `format=ohlcv`.
#[derive(JsonSchema)]
#[schemars(untagged)]
pub(in crate::http) enum PriceHistory {
    Points(Points),
    Candles(Vec<PricesRow>),
}

#[derive(JsonSchema)]
pub(in crate::http) struct Points {
    history: Vec<Point>,
}

#[derive(JsonSchema)]
struct Point {
    /// In seconds since 1970.
    t: i64,
    p: f64,
}

/// The open Up/Down markets.
#[derive(JsonSchema)]
pub(in crate::http) struct UpDownList {
    markets: Vec<UpDown>,
    /// How many there are in all.
    total: u64,
    interval_counts: BTreeMap<String, u64>,
    available_intervals: Vec<String>,
    asset_counts: BTreeMap<String, u64>,
    available_assets: Vec<String>,
    /// Always empty.
    crypto_prices: BTreeMap<String, u64>,
    timestamp: Time,
}

#[derive(JsonSchema)]
struct UpDown {
    event_id: Option<String>,
    condition_id: String,
    slug: Option<String>,
    title: Option<String>,
    /// Always null.
    description: Option<String>,
    asset: Option<String>,
    interval: Option<String>,
    date_display: Option<String>,
    time_range: Option<String>,
    start_date: Option<Time>,
    end_date: Option<Time>,
    active: bool,
    closed: bool,
    resolved: bool,
    /// Always null.
    group_item_threshold: Option<String>,
    /// Always null.
    event_metadata_ptb: Option<String>,
    /// Always empty.
    tags: Vec<String>,
    image: Option<String>,
    icon: Option<String>,
    live_price: UpDownPrice,
    markets: Vec<UpDownMarket>,
}

/// Prices as JSON numbers.
#[derive(JsonSchema)]
struct UpDownPrice {
    buy: Option<f64>,
    sell: Option<f64>,
    updated_at: Option<Time>,
    #[schemars(skip_serializing_if = "Option::is_none")]
    stale: Option<bool>,
}

/// A market. Each list is a string that contains a JSON array.
#[derive(JsonSchema)]
struct UpDownMarket {
    id: String,
    condition_id: String,
    question: Option<String>,
    outcomes: String,
    outcome_prices: String,
    token_ids: String,
}

/// The lengths of the open Up/Down markets.
#[derive(JsonSchema)]
pub(in crate::http) struct UpDownIntervals {
    asset: Option<String>,
    interval_counts: BTreeMap<String, u64>,
    available_intervals: Vec<String>,
    timestamp: Time,
}

/// A sentence that says what was done.
#[derive(JsonSchema)]
pub(in crate::http) struct Message {
    message: String,
}
