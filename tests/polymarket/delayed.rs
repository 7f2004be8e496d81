//! Marketable orders in a market that delays them: the whole program, following the stand-in, and
//! bots that trade while the books move.

mod attacks;
mod ends;
mod full_disk;
mod repeats;
mod tapes;
mod waits;

use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use paperbourse::market::catalogue::TAKER_DELAY_MS_MAX;
use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use crate::served::Served;
use crate::standin::world::{condition_id, token_id};
use crate::standin::{Options, Side, StandIn, World, micros};

/// The number of the market that delays orders. Its best ask is [`ASK`], and [`NEXT_ASK`] follows;
/// either is for at least ten shares.
const GAME: usize = 1;

const ASK: &str = "0.38";
const NEXT_ASK: &str = "0.39";

/// How long orders are delayed while a test does things: as long as the server allows, so that a
/// busy machine has the time for them.
const LONG: Duration = Duration::from_millis(TAKER_DELAY_MS_MAX as u64);

/// What a purchase of five shares at [`ASK`] costs, fee included.
const COST_OF_FIVE: i64 = 1_958_900;

/// An ordinary market, and one that delays orders for so long.
fn world(delay: Duration) -> World {
    let mut world = World::invented(2);
    world.markets[GAME].describe(|fields| {
        fields.insert("secondsDelay".into(), delay.as_secs_f64().into());
    });
    world
}

/// Starts a venue whose game delays orders for so long, and a server with these arguments, and runs
/// the test once all books are fresh.
async fn play(
    delay: Duration,
    arguments: &'static [&'static str],
    test: impl FnOnce(&StandIn, Served) + Send + 'static,
) {
    let venue = StandIn::start(world(delay), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::start_with(&venue, arguments);
        served.until_fresh();
        test(&venue, served);
    });
    played.await.unwrap();
}

/// An answer, and how long it took.
struct Answered {
    response: Response,
    after: Duration,
}

impl Answered {
    /// The body of an order that was delayed at least this long.
    #[track_caller]
    fn delayed(&self, delay: Duration) -> Value {
        let order = self.response.ok(200);
        assert!(self.after >= delay, "{:?}: {order}", self.after);
        assert!(delayed_ms(&order) >= delay.as_millis(), "{order}");
        order
    }
}

#[track_caller]
fn delayed_ms(order: &Value) -> u128 {
    order["held_ms"].as_u64().unwrap_or_else(|| panic!("not delayed: {order}")).into()
}

/// A number, or decimal text, in millionths.
#[track_caller]
fn millionths(value: &Value) -> i64 {
    value.as_str().map_or_else(|| micros(&value.to_string()), micros)
}

/// An order in the game, for `POST /trade`.
fn trade(side: &str, quantity: u32) -> Value {
    json!({
        "market_id": condition_id(GAME), "outcome": "Yes", "side": side, "quantity": quantity,
    })
}

/// A purchase in the game with these fields, for `POST /v1/orders`.
fn buy(fields: &Value) -> Value {
    let mut order = json!({"market_id": condition_id(GAME), "outcome": "Yes", "side": "BUY"});
    for (name, value) in fields.as_object().unwrap() {
        order[name] = value.clone();
    }
    order
}

/// Removes the best ask of the game.
fn remove_best_ask(venue: &StandIn) {
    venue.change_level(&token_id(GAME, 0), Side::Sell, ASK, "0");
}

fn restore_best_ask(venue: &StandIn) {
    venue.change_level(&token_id(GAME, 0), Side::Sell, ASK, "100");
}

impl Served {
    fn until_fresh(&self) {
        self.until("books", |it| it.get("/v1/health/ready").1["status"] == "ok");
    }

    /// Sends a request of the account in a thread of its own.
    fn begin<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        request: Request,
    ) -> ScopedJoinHandle<'s, Answered> {
        let request = self.signed(request);
        scope.spawn(move || {
            let began = Instant::now();
            let response = self.answer(&request);
            Answered { response, after: began.elapsed() }
        })
    }

    /// The answer to a request of the account.
    fn done(&self, request: Request) -> Response {
        self.answer(&self.signed(request))
    }

    #[track_caller]
    fn trade_named(&self, order: &Value, name: &str) -> Response {
        self.done(Request::post("/trade", order).named(name))
    }

    /// The account's orders.
    fn orders(&self) -> Vec<Value> {
        let list = self.done(Request::get("/v1/orders?limit=200")).ok(200);
        list["orders"].as_array().unwrap().clone()
    }

    /// The account's orders that are delayed.
    fn delayed(&self) -> Vec<Value> {
        let mut orders = self.orders();
        orders.retain(|order| order["hold_reason"] == "venue_delay");
        assert!(orders.iter().all(|order| order["status"] == "PENDING"), "{orders:?}");
        orders
    }

    fn until_delayed(&self, count: usize) {
        self.until("delayed orders", |it| it.delayed().len() == count);
    }

    /// The account's cash, and the part of it that orders hold back.
    fn cash(&self) -> (i64, i64) {
        let balance = self.done(Request::get("/v1/account/balance")).ok(200);
        let [free, reserved, available] =
            ["balance", "reserved", "available"].map(|name| millionths(&balance[name]));
        assert_eq!(free, available, "{balance}");
        (free + reserved, reserved)
    }

    /// The best price of the game's first outcome on one side, as the server knows it.
    fn best(&self, side: &str) -> Option<i64> {
        let path = format!("/v1/markets/{}/book?outcome=Yes", condition_id(GAME));
        let (_, book) = self.get(&path);
        Some(micros(book[side].as_array()?.last()?["price"].as_str()?))
    }

    fn until_ask(&self, price: &str) {
        self.until("the new book", |it| it.best("asks") == Some(micros(price)));
    }
}
