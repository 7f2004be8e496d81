//! Books by request and by socket, with their changes and hashes.

use serde_json::{Value, json};

use super::super::decimal::padded;
use super::super::ladder::{Head, Ladder, Side, text_of};
use super::super::world::{condition_id, token_id};
use super::super::{Options, StandIn, World};
use super::client::Asker;

/// A client's copy of a book, made from frames alone.
pub(crate) struct Copy {
    pub(crate) ladder: Ladder,
    token: String,
    market: String,
    pub(crate) tick_size: String,
    pub(crate) last_trade_price: String,
    neg_risk: bool,
}

impl Copy {
    pub(crate) fn of_book(book: &Value, neg_risk: bool) -> Self {
        Self {
            ladder: Ladder::of_json(book),
            token: text_of(&book["asset_id"]).to_owned(),
            market: text_of(&book["market"]).to_owned(),
            tick_size: text_of(&book["tick_size"]).to_owned(),
            last_trade_price: text_of(&book["last_trade_price"]).to_owned(),
            neg_risk,
        }
    }

    /// The other token's copy.
    pub(crate) fn mirrored(&self, token: &str) -> Self {
        Self {
            ladder: self.ladder.mirrored(),
            token: token.to_owned(),
            market: self.market.clone(),
            tick_size: self.tick_size.clone(),
            last_trade_price: self.last_trade_price.clone(),
            neg_risk: self.neg_risk,
        }
    }

    /// Whether the frame is about the market of this token.
    pub(crate) fn is_of(&self, frame: &Value) -> bool {
        frame["market"] == *self.market
    }

    /// The price of the newest trade, of either token.
    pub(crate) fn traded(&mut self, frame: &Value) {
        self.last_trade_price = padded(text_of(&frame["price"]));
    }

    pub(crate) fn hash(&self, timestamp: &Value) -> String {
        self.ladder.hash(Head {
            is_v2: false,
            market: &self.market,
            asset_id: &self.token,
            timestamp_ms: text_of(timestamp).parse().unwrap(),
            min_order_size: "5",
            tick_size: &self.tick_size,
            neg_risk: self.neg_risk,
            last_trade_price: &self.last_trade_price,
        })
    }

    /// Applies a `price_change`; returns the hash and the top in this token's last entry.
    pub(crate) fn apply(&mut self, frame: &Value) -> Option<(String, String, String)> {
        let entries = frame["price_changes"].as_array().unwrap();
        let mut last = None;
        for entry in entries.iter().filter(|entry| entry["asset_id"] == *self.token) {
            let side = Side::parse(text_of(&entry["side"]));
            self.ladder.set(side, text_of(&entry["price"]), text_of(&entry["size"]));
            let text = |name: &str| text_of(&entry[name]).to_owned();
            last = Some((text("hash"), text("best_bid"), text("best_ask")));
        }
        last
    }

    #[track_caller]
    pub(crate) fn check(&mut self, frame: &Value) {
        let (hash, bid, ask) = self.apply(frame).expect("the frame has an entry of the token");
        assert_eq!(self.hash(&frame["timestamp"]), hash, "{frame}");
        assert_eq!(self.ladder.top(), (&*bid, &*ask), "{frame}");
    }
}

#[tokio::test]
async fn a_subscriber_follows_both_tokens_with_and_without_tls() {
    for is_tls in [true, false] {
        let options = Options { is_tls, ..Options::default() };
        let venue = StandIn::start(World::invented(3), options).await;
        let asker = Asker::new(&venue);
        let (yes, no) = (token_id(2, 0), token_id(2, 1));
        let (mut socket, dump) = asker.subscribed(&venue, &[&yes, &no]).await;
        let mut copies: Vec<Copy> =
            dump.as_array().unwrap().iter().map(|book| Copy::of_book(book, true)).collect();
        for (copy, book) in copies.iter().zip(dump.as_array().unwrap()) {
            assert_eq!(copy.hash(&book["timestamp"]), book["hash"]);
            assert_eq!(book["market"], condition_id(2));
        }
        // The best bid is 0.44: add a level below and one above, then remove both.
        for (side, price, size, is_top) in [
            (Side::Buy, "0.4", "12.5", false),
            (Side::Sell, "0.444", "3", true),
            (Side::Buy, "0.4", "0", false),
            (Side::Sell, "0.444", "0", true),
        ] {
            venue.change_level(&yes, side, price, size);
            let frame = socket.json().await;
            assert_eq!(frame["event_type"], "price_change");
            for copy in &mut copies {
                copy.check(&frame);
            }
            if is_top {
                for token in [&yes, &no] {
                    let top = socket.json().await;
                    assert_eq!(top["event_type"], "best_bid_ask", "{top}");
                    assert_eq!(top["asset_id"], **token);
                }
            }
        }
        socket.say("PING").await;
        assert_eq!(socket.text().await, "PONG");
        let (status, body) =
            asker.post(&format!("{}/books", venue.clob_url), &json!([{"token_id": no}])).await;
        let books: Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, books.as_array().unwrap().len()), (200, 1));
        assert_eq!(copies[1].hash(&books[0]["timestamp"]), books[0]["hash"]);
        assert_eq!(venue.violations(), [""; 0]);
    }
}
