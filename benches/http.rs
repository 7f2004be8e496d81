//! The cost of the HTTP layer for one trade, without the network: the request line, the body, the
//! answer.
//!
//! Reading a body costs more than serde into a struct of floats, because it also handles repeated
//! names, depth, exact decimals, a list of all mistakes, and the SHA-256 of the order's name. More
//! than twice the cost would mean that a field is scanned once too often. Routing does not
//! allocate, and writing allocates only the buffer of the answer.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hyper::Method;
use paperbourse::engine::fills::fill::Fill;
use paperbourse::engine::order::receipt::OrderReceipt;
use paperbourse::http::operations::trade::{read_trade, write_trade};
use paperbourse::http::route::find;
use paperbourse::ids::{AccountId, OrderId, Timestamp};
use paperbourse::market::book::Side;
use paperbourse::money::{FeeRate, Shares, Usd};

const BODY: &[u8] = concat!(
    r#"{"market_id":"0x0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef","#,
    r#""outcome":"Yes","side":"BUY","quantity":94.339622,"#,
    r#""client_order_id":"6f1c2a52-6f0b-4b55-9f53-0d8b2b6f7f0a","#,
    r#""expected_price":0.53,"max_slippage_bps":250}"#
)
.as_bytes();

/// The order as a plain serde struct, with floats.
#[derive(serde::Deserialize)]
struct NaiveTrade {
    market_id: String,
    outcome: String,
    side: NaiveSide,
    quantity: f64,
    client_order_id: Option<String>,
    expected_price: Option<f64>,
    max_slippage_bps: Option<u16>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum NaiveSide {
    Buy,
    Sell,
}

impl NaiveTrade {
    fn is_valid(&self) -> bool {
        (1..=256).contains(&self.market_id.chars().count())
            && (1..=200).contains(&self.outcome.chars().count())
            && matches!(self.side, NaiveSide::Buy | NaiveSide::Sell)
            && self.quantity > 0.0
            && self.quantity <= 1_000_000.0
            && self.client_order_id.as_ref().is_none_or(|name| name.chars().count() <= 256)
            && self.expected_price.is_none_or(|price| (0.0..=1.0).contains(&price))
            && self.max_slippage_bps.is_none_or(|bps| bps <= 10_000)
    }
}

fn receipt() -> OrderReceipt {
    OrderReceipt {
        order: OrderId::from_raw(7_104).expect("an id"),
        account: AccountId::from_raw(128).expect("an id"),
        market_id: "0x0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".into(),
        outcome: "Yes".into(),
        side: Side::Buy,
        fill: Fill {
            quantity: Shares::from_micros(94_339_622),
            notional: Usd::from_micros(50_000_000),
            fee: Usd::from_micros(1_645_000),
            fee_rate: FeeRate::from_micros(70_000),
            balance: Usd::from_micros(948_355_000),
            position_shares: Shares::from_micros(94_339_622),
            position_cost: Usd::from_micros(50_000_000),
            at: Timestamp::from_millis(1_784_578_686_071),
        },
        level_count: 2,
        slippage_bps: Some(12),
        client_order_id: Some("6f1c2a52-6f0b-4b55-9f53-0d8b2b6f7f0a".into()),
        order_state: None,
    }
}

fn body(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("trade_body");
    group.throughput(Throughput::Elements(1));
    group.bench_function("read", |bencher| {
        bencher.iter(|| read_trade(black_box(BODY), None).expect("a valid order"));
    });
    // The cost of names is SHA-256, not parsing.
    group.bench_function("read_with_header_name", |bencher| {
        bencher.iter(|| read_trade(black_box(BODY), Some(b"retry-1")).expect("valid"));
    });
    group.bench_function("serde_json_into_struct", |bencher| {
        bencher.iter(|| {
            let trade: NaiveTrade = serde_json::from_slice(black_box(BODY)).expect("valid");
            assert!(trade.is_valid());
            trade
        });
    });
    group.finish();
}

fn route(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("route");
    group.throughput(Throughput::Elements(1));
    for (name, method, path) in [
        ("trade", Method::POST, "/trade"),
        ("order", Method::GET, "/v1/orders/7104"),
        ("unknown", Method::GET, "/v1/no/such/path"),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| find(black_box(&method), black_box(path), false).is_ok());
        });
    }
    group.finish();
}

fn answer(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("answer");
    group.throughput(Throughput::Elements(1));
    let receipt = receipt();
    let mut out = Vec::with_capacity(1_024);
    group.bench_function("trade", |bencher| {
        bencher.iter(|| {
            out.clear();
            write_trade(&mut out, black_box(&receipt));
            out.len()
        });
    });
    group.finish();
}

criterion_group!(benches, body, route, answer);
criterion_main!(benches);
