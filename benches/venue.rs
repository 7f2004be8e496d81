//! The venue's messages on their way to published books.
//!
//! A regression in the first group delays every price; one in the second slows a resync.

use std::fmt::Write;
use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use paperbourse::ids::Timestamp;
use paperbourse::market::Markets;
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::polymarket::wire::{clob, socket};
use paperbourse::venue::{VenueChange, VenueEvent};

const MARKET: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";
const TOKEN: &str = "11111111111111111111111111111111111111111111111111111111111111111111111111111";
const SISTER: &str =
    "22222222222222222222222222222222222222222222222222222222222222222222222222222";

/// A full book with so many levels a side, on a tick of 0.001.
fn book(levels_per_side: usize) -> String {
    let side = |first: usize, step: isize| {
        let mut levels = String::new();
        for index in 0..levels_per_side {
            let price = first.strict_add_signed(step * index.cast_signed());
            let comma = if index == 0 { "" } else { "," };
            let size = 100 + index * 7;
            write!(levels, r#"{comma}{{"price":"0.{price:03}","size":"{size}.25"}}"#)
                .expect("text grows");
        }
        levels
    };
    format!(
        concat!(
            r#"{{"market":"{}","asset_id":"{}","timestamp":"1784578686071","hash":"{:040}","#,
            r#""bids":[{}],"asks":[{}],"min_order_size":"5","tick_size":"0.001","#,
            r#""neg_risk":false,"last_trade_price":"0.480","event_type":"book"}}"#
        ),
        MARKET,
        TOKEN,
        0,
        side(500 - levels_per_side, 1),
        side(500 + levels_per_side, -1),
    )
}

/// A change of one order, told for both tokens; hashes are told but do not fit, so that the whole
/// check is paid for, with both candidates for the last trade.
fn price_change(size: u32, with_hash: bool) -> String {
    let hash = if with_hash { format!(r#""hash":"{:040}","#, 0) } else { String::new() };
    let entry = |token: &str, price: &str, side: &str| {
        format!(
            concat!(
                r#"{{"asset_id":"{}","price":"{}","size":"{}","side":"{}",{}"#,
                r#""best_bid":"0.499","best_ask":"0.501"}}"#
            ),
            token, price, size, side, hash
        )
    };
    format!(
        concat!(
            r#"{{"event_type":"price_change","market":"{}","timestamp":"1784578702354","#,
            r#""price_changes":[{},{}]}}"#
        ),
        MARKET,
        entry(TOKEN, "0.481", "BUY"),
        entry(SISTER, "0.519", "SELL"),
    )
}

fn feed() -> Feed {
    let outcomes = [("Yes", TOKEN), ("No", SISTER)]
        .map(|(label, token_id)| Outcome { label: label.into(), token_id: token_id.into() });
    let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Count);
    let listed = VenueChange::Listed(vec![MarketInfo::bare(MARKET, outcomes)]);
    feed.apply(VenueEvent { at: Timestamp::EPOCH, change: listed });
    feed
}

/// Reads one message and applies it, as the connector does with its names stored once.
fn take(feed: &mut Feed, text: &str, names: &[Arc<str>; 2]) {
    let message = socket::message(text).expect("a message of the bench is valid");
    let event = message.event(|name| names[usize::from(name == SISTER)].clone());
    feed.apply(event.expect("it changes a book"));
}

fn changes(criterion: &mut Criterion) {
    let names = [TOKEN.into(), SISTER.into()];
    let mut group = criterion.benchmark_group("price_change to published book");
    group.throughput(Throughput::Elements(1));
    for levels_per_side in [25, 100] {
        for (with_hash, name) in [(false, "no hash"), (true, "hash")] {
            let mut feed = feed();
            take(&mut feed, &book(levels_per_side), &names);
            let frames = [price_change(50, with_hash), price_change(60, with_hash)];
            let mut turn = 0;
            group.bench_function(format!("{levels_per_side} levels a side, {name}"), |bencher| {
                bencher.iter(|| {
                    turn ^= 1;
                    take(&mut feed, black_box(&frames[turn]), &names);
                });
            });
        }
    }
    group.finish();
}

fn books(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("full book parsed");
    for levels_per_side in [25, 100] {
        let text = book(levels_per_side);
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(format!("{levels_per_side} levels a side"), |bencher| {
            bencher.iter(|| clob::book(black_box(&text)).expect("it is valid"));
        });
        // What the other parser of the package would take, numbers left as text.
        group.bench_function(format!("{levels_per_side} levels a side, simd-json"), |bencher| {
            bencher.iter_batched_ref(
                || text.clone().into_bytes(),
                |bytes| {
                    black_box(simd_json::to_borrowed_value(bytes).expect("it is valid"));
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, changes, books);
criterion_main!(benches);
