//! Sixteen connections trade in every market that ends, until all of them have ended. Whatever was
//! in flight when a market closed, no position stays open once the venue reported a result, and
//! every account has, to the micro-dollar, what its own answers and the results add up to.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use paperbourse::money::{Price, Shares, Usd};
use paperbourse_test_support::Client;
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::value::micros;
use serde_json::json;

use crate::world::{self, Trader, get, payout, text};

const CONNECTION_COUNT: usize = 16;
const START_MICROS: i64 = 1_000_000_000_000;
/// The simulated venue resolves three markets within eight minutes of its own time, eight seconds
/// at this speed; the first one closes after two.
const RESOLVED_COUNT: usize = 3;
const VENUE_SPEED: &str = "60";
const PATIENCE: Duration = Duration::from_mins(3);

/// An open market with an end date.
struct Market {
    id: String,
    labels: [String; 2],
}

/// Values by market and outcome.
type Outcomes<T> = BTreeMap<(String, String), T>;

/// A trader's books, kept from the answers to their orders.
#[derive(Default, Debug)]
struct OwnBooks {
    spent_micros: i64,
    held_micros: Outcomes<i64>,
    fill_count: u64,
    refusal_count: u64,
}

impl OwnBooks {
    /// Buys and sells in turns until `is_over`.
    fn trade(mut client: Client, number: usize, markets: &[Market], is_over: &AtomicBool) -> Self {
        let mut books = Self::default();
        let began = Instant::now();
        for turn in number.. {
            if is_over.load(Ordering::Relaxed) || began.elapsed() > PATIENCE {
                break;
            }
            let market = &markets[turn % markets.len()];
            let label = &market.labels[turn / 7 % 2];
            let held = books.held_micros.entry((market.id.clone(), label.clone())).or_default();
            let is_sale = *held > 0 && turn % 3 == 0;
            let wanted = if is_sale { *held / 2 + 1 } else { 1_000_000 + small(turn % 999_983) };
            let order = json!({
                "market_id": market.id, "outcome": label,
                "side": if is_sale { "SELL" } else { "BUY" },
                "quantity": format!("{}.{:06}", wanted / 1_000_000, wanted % 1_000_000),
            });
            let answer = client.post("/trade", &order);
            let body = answer.json();
            match (answer.status, body["error"].as_str()) {
                (200, _) => {
                    let (notional, fee) = (micros(&body["notional"]), micros(&body["fee"]));
                    let sign = if is_sale { -1 } else { 1 };
                    *held += sign * wanted;
                    books.spent_micros += sign * notional + fee;
                    books.fill_count += 1;
                }
                (400, Some("MARKET_CLOSED")) => books.refusal_count += 1,
                _ => panic!("{order}: {}", answer.text),
            }
        }
        books
    }

    /// Checks that the account agrees with these books and the results. Records the payouts.
    fn check(&self, trader: &Trader, server: &ServerProcess, paid: &mut Outcomes<Price>) {
        let after = trader.holdings(server);
        let settlements = trader.settlements(server);
        let mut owed = Usd::ZERO;
        for (number, position) in &after.positions {
            let outcome = (position.market_id.clone(), position.outcome.clone());
            let held = Shares::from_micros(self.held_micros[&outcome]);
            let Some(settlement) = settlements.get(number) else {
                assert_eq!(position.shares, held, "paid without a result: {position:?}");
                continue;
            };
            assert_eq!((position.status.as_str(), position.shares), ("CLOSED", Shares::ZERO));
            let price = *paid.entry(outcome).or_insert(settlement.payout_per_share);
            assert_eq!(settlement.payout_per_share, price, "payouts per share differ");
            assert_eq!(settlement.shares, held, "shares are missing: {position:?}");
            assert_eq!(settlement.payout, payout(held, price));
            owed += settlement.payout;
        }
        let bought = self.held_micros.values().filter(|&&micros| micros > 0).count();
        let open_or_settled = after.positions.values().filter(|it| it.status == "OPEN").count();
        assert_eq!(open_or_settled + settlements.len(), bought);
        let cash = START_MICROS - self.spent_micros + owed.micros();
        assert_eq!(after.cash.micros(), cash, "{self:?}");
    }
}

fn small(number: usize) -> i64 {
    i64::try_from(number).unwrap()
}

/// The open markets with an end date.
fn ending_markets(client: &mut Client) -> Vec<Market> {
    let rows = get(client, "/v1/markets?limit=200");
    let mut markets = Vec::new();
    for row in rows.as_array().unwrap() {
        let id = text(row, "condition_id");
        let details = get(client, &format!("/v1/markets/{id}"));
        if row["accepting_orders"] == true && !details["end_date"].is_null() {
            let labels = [0, 1].map(|index| row["outcomes"][index].as_str().unwrap().to_owned());
            markets.push(Market { id, labels });
        }
    }
    markets
}

fn is_resolved(client: &mut Client, market: &Market) -> bool {
    let row = get(client, &format!("/v1/markets/{}", market.id));
    row["live_price"]["source"] == "resolution"
}

fn start(data: &Path) -> ServerProcess {
    world::start(data, &["--venue", "simulated", "--venue-speed", VENUE_SPEED])
}

#[test]
fn orders_that_race_a_settlement_leave_no_position_open() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    // Open the accounts before the markets start.
    let server = start(&data);
    let traders: Vec<Trader> = (0..CONNECTION_COUNT)
        .map(|number| Trader::new(&data, &server, &format!("trader {number}")))
        .collect();
    drop(server);
    let server = start(&data);
    let mut client = traders[0].connect(&server);
    let markets = ending_markets(&mut client);
    assert!(markets.len() > RESOLVED_COUNT, "one closes without a result");
    let is_over = AtomicBool::new(false);
    let books: Vec<OwnBooks> = std::thread::scope(|scope| {
        let trade = |(number, trader): (usize, &Trader)| {
            let client = trader.connect(&server);
            let (markets, is_over) = (&markets, &is_over);
            scope.spawn(move || OwnBooks::trade(client, number, markets, is_over))
        };
        let threads: Vec<_> = traders.iter().enumerate().map(trade).collect();
        // Trading continues until everything is resolved and paid.
        let began = Instant::now();
        let mut is_paid = false;
        while !is_paid && began.elapsed() < PATIENCE {
            let resolved: Vec<_> =
                markets.iter().filter(|market| is_resolved(&mut client, market)).collect();
            is_paid = resolved.len() == RESOLVED_COUNT
                && traders.iter().all(|trader| {
                    let held = trader.holdings(&server).positions;
                    let is_owed = |id: &str| resolved.iter().any(|market| market.id == id);
                    held.values().all(|it| it.status != "OPEN" || !is_owed(&it.market_id))
                });
        }
        is_over.store(true, Ordering::Relaxed);
        assert!(is_paid, "the markets did not end, or positions stay open");
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut paid = Outcomes::new();
    for (own, trader) in books.iter().zip(&traders) {
        own.check(trader, &server, &mut paid);
        assert!(own.fill_count > 0 && own.refusal_count > 0, "{own:?}");
    }
    let count = |of: fn(&OwnBooks) -> u64| books.iter().map(of).sum::<u64>();
    let (fills, refusals) = (count(|own| own.fill_count), count(|own| own.refusal_count));
    eprintln!("{fills} fills, and {refusals} orders that came after the end of a market");
    assert_eq!(paid.len(), 2 * RESOLVED_COUNT, "both outcomes of each were held: {paid:?}");
    for market in &markets {
        let prices = market.labels.each_ref().map(|label| {
            paid.get(&(market.id.clone(), label.clone())).map_or(0, |price| price.micros())
        });
        let is_paid = is_resolved(&mut client, market);
        assert_eq!(prices[0] + prices[1], if is_paid { 1_000_000 } else { 0 }, "{}", market.id);
    }
}
