//! Frames that wait in the queue.

use super::*;
use crate::feed::MismatchPolicy;
use crate::polymarket::wire::gamma;
use crate::tls::{self, Roots};
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::Markets;

const MARKET: &str = concat!(
    r#"{"conditionId":"0xa","outcomes":"[\"Yes\",\"No\"]","clobTokenIds":"[\"1\",\"2\"]","#,
    r#""active":true,"closed":false,"acceptingOrders":true,"enableOrderBook":true}"#,
);

/// Follows the market on socket 0, as if that were open.
fn live() -> Live {
    live_with(Timing::VENUE)
}

fn live_with(timing: Timing) -> Live {
    let feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
    let filter = MarketFilter { count_max: 1, ..MarketFilter::default() };
    let nowhere = ["http", "http", "http", "ws"];
    let nowhere = nowhere.map(|scheme| format!("{scheme}://127.0.0.1:9").parse().unwrap());
    let tls = tls::client_config(Roots::Nobody).unwrap();
    let mut live = Live::new(LiveConfig::new(nowhere, tls, filter, timing), feed);
    live.take(Event::Listed(vec![gamma::market(MARKET).unwrap()]));
    live.take(Event::Opened { socket: 0, connection: 1 });
    live
}

/// A frame of socket 0, received now.
fn received(text: String) -> Event {
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    Event::Frame(Received::new(0, text, room))
}

fn book(at: i64) -> String {
    format!(
        r#"{{"event_type":"book","asset_id":"1","market":"0xa","timestamp":"{at}",
            "bids":[{{"price":"0.4","size":"7"}}],"asks":[{{"price":"0.9","size":"8"}}]}}"#
    )
}

fn change(price: &str, at: i64) -> String {
    format!(
        r#"{{"event_type":"price_change","market":"0xa","timestamp":"{at}","price_changes":[{{
            "asset_id":"1","price":"{price}","size":"3","side":"BUY","best_bid":"{price}",
            "best_ask":"0.9"}}]}}"#
    )
}

/// The best bid of the first token, and whether orders can fill on its book.
fn shown(live: &Live) -> (String, bool) {
    let market = live.follower.books().markets().by_condition("0xa").unwrap();
    let book = market.book(OutcomeIndex(0)).clone().unwrap();
    (book.ladder().best_bid().unwrap().price.to_string(), !book.stale)
}

/// Frames that queue up while the process is paused were received in time.
#[tokio::test(start_paused = true)]
async fn a_frame_that_waited_in_our_queue_is_not_late() {
    let second = Duration::from_secs(1);
    let start_ms = Timestamp::now().millis();
    // The delay until the receipt, and the time in the queue after that.
    for (delay_ms, waited, expected) in [
        (0, Duration::ZERO, ("0.5", true)),
        (0, 60 * second, ("0.5", true)),
        (4_000, 60 * second, ("0.5", true)),
        (6_000, Duration::ZERO, ("0.4", false)),
        (6_000, 60 * second, ("0.4", false)),
    ] {
        let mut live = live();
        for text in [book(start_ms), change("0.4", start_ms)] {
            live.take(received(text));
        }
        tokio::time::advance(10 * second).await;
        let event = received(change("0.5", start_ms + 10_000 - delay_ms));
        tokio::time::advance(waited).await;
        live.take(event);
        let (price, is_fresh) = shown(&live);
        assert_eq!((&*price, is_fresh), expected, "{delay_ms} ms, {waited:?}");
        assert_eq!(live.follower.snapshot().late_messages, u64::from(!is_fresh));
    }
}

/// A paused process, or a hanging thread, leaves books fresh that nobody has looked at since.
#[tokio::test(start_paused = true)]
async fn nothing_fills_on_books_that_are_no_longer_swept() {
    let fills = |live: &Live| {
        let market = live.follower.books().markets().by_condition("0xa").unwrap();
        market.snapshot().has_fresh_book()
    };
    let now_ms = Timestamp::now().millis();
    for (sweep_timeout, may_fill) in [(Timing::VENUE.sweep_timeout, true), (Duration::ZERO, false)]
    {
        let mut live = live_with(Timing { sweep_timeout, ..Timing::VENUE });
        live.take(received(book(now_ms)));
        live.sweep(true);
        assert_eq!((shown(&live).1, fills(&live)), (true, may_fill), "{sweep_timeout:?}");
        // Nobody looks at the books while one server takes over from another.
        live.move_to(Arc::new(Markets::new()));
        assert_eq!((shown(&live).1, fills(&live)), (true, may_fill), "{sweep_timeout:?}");
    }
}
