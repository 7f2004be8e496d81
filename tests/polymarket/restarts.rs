//! What a resting order has used of the venue's displayed sizes is known after a restart.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use crate::served::Served;
use crate::standin::world::{condition_id, token_id};
use crate::standin::{Options, Side, StandIn, World};

/// More shares than are ever offered at its price.
const WANTED: i64 = 500;

/// An order for [`WANTED`] shares at this price.
fn rest(served: &Served, price: &str) -> u64 {
    let order = json!({
        "market_id": condition_id(0), "outcome": "Yes", "side": "BUY", "order_type": "limit",
        "quantity": WANTED.to_string(), "price": price,
    });
    let answer = served.answer(&served.signed(Request::post("/v1/orders", &order)));
    let placed: Value = answer.json();
    assert_eq!((answer.status, &placed["status"]), (200, &json!("PENDING")), "{placed}");
    placed["order_id"].as_u64().unwrap()
}

/// How many shares of the order have filled.
fn filled(served: &Served, order: u64) -> String {
    let request = served.signed(Request::get(format!("/v1/orders/{order}")));
    served.answer(&request).json()["filled_quantity"].as_str().unwrap().to_owned()
}

/// After `change` the order has filled further, to exactly this.
#[track_caller]
fn assert_fills(served: &Served, order: u64, [before, after]: [&str; 2], change: impl FnOnce()) {
    change();
    served.until("a fill", |it| filled(it, order) != before);
    assert_eq!(filled(served, order), after);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_displayed_size_fills_an_order_once_whatever_restarts() {
    let venue = StandIn::start(World::invented(1), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let token = token_id(0, 0);
        let asks = venue.published(&token).pop().unwrap().asks;
        let price = &*asks[0].0;
        let show = |size: i64| venue.change_level(&token, Side::Sell, price, &size.to_string());
        show(40);
        let served = Served::start_with(&venue, &[]);
        served.until("books", Served::is_fresh);
        served.until("the level", |it| {
            let path = format!("/v1/markets/{}/book?outcome=Yes&depth=1", condition_id(0));
            it.get(&path).1["asks"][0]["size"] == "40"
        });
        // The order takes what is shown when it is placed, and what is added while it rests.
        let order = rest(&served, price);
        assert_eq!(filled(&served, order), "40");
        assert_fills(&served, order, ["40", "43"], || show(43));

        let markets = ["--venue-markets", "2"];
        let served = served.restart(&venue, &markets);
        served.until("books after the restart", Served::is_fresh);
        assert_fills(&served, order, ["43", "45"], || show(45));

        // What is added while no server runs exceeds the size that the order has used.
        let served = served.restart_after(&venue, &markets, || show(50));
        assert_fills(&served, order, ["45", "50"], || {});
        assert_fills(&served, order, ["50", "51"], || show(51));
    });
    played.await.unwrap();
}
