//! Replays recorded events: sends them verbatim, and applies them to the stand-in's state, so that
//! the REST services agree with the socket.

use serde_json::Value;

use super::decimal::padded;
use super::frames::text_frame;
use super::history::Change;
use super::ladder::{Ladder, Level, Side, text_of};
use super::recordings::Played;
use super::state::{State, now_us};

impl State {
    /// Replays an event; returns the number of sockets it was sent to.
    pub(crate) fn play(&mut self, played: &Played) -> usize {
        match played {
            Played::Frame(text) => self.play_frame(text),
            Played::Book(book) => {
                let token = self.absorb_book(book);
                self.send_book(token);
                self.tokens[token].subscribers.len()
            }
            Played::Ladder { token, ladder } => {
                let token = self.token(token);
                self.replace_book(token, ladder);
                self.tokens[token].subscribers.len()
            }
            Played::Level { token, side, price, size } => {
                let token = self.token(token);
                self.change_levels(token, &[(*side, price, size)]);
                self.tokens[token].subscribers.len()
            }
        }
    }

    /// Sends a frame to the subscribers of its tokens, or to all sockets if it names no token.
    fn play_frame(&mut self, text: &str) -> usize {
        let parsed: Value = serde_json::from_str(text).unwrap_or_default();
        let events = match &parsed {
            Value::Array(events) => events.as_slice(),
            Value::Null => &[],
            event => std::slice::from_ref(event),
        };
        let mut tokens = Vec::new();
        for event in events {
            tokens.extend(self.absorb(event));
        }
        let mut receivers: Vec<u64> = if tokens.is_empty() {
            self.sockets.keys().copied().collect()
        } else {
            tokens.iter().flat_map(|&token| self.tokens[token].subscribers.clone()).collect()
        };
        receivers.sort_unstable();
        receivers.dedup();
        let frame = text_frame(text.as_bytes());
        let mut sent_count = 0;
        for id in receivers {
            sent_count += usize::from(self.send(id, &frame));
        }
        if sent_count > 0 {
            for token in tokens {
                self.tokens[token].history.shown();
            }
        }
        sent_count
    }

    /// Applies an event to the state; returns the tokens it concerns.
    fn absorb(&mut self, event: &Value) -> Vec<usize> {
        let names = [&event["assets_ids"], &event["price_changes"]];
        let many = names.into_iter().filter_map(Value::as_array).flatten();
        let ids = many.map(|item| item.get("asset_id").unwrap_or(item)).chain([&event["asset_id"]]);
        let ids: Vec<&str> = ids.filter_map(Value::as_str).collect();
        let mut tokens: Vec<usize> =
            ids.iter().filter_map(|&id| self.token_by_id.get(id).copied()).collect();
        tokens.sort_unstable();
        tokens.dedup();
        let Some(&first) = tokens.first() else { return tokens };
        let market = self.tokens[first].market;
        match event["event_type"].as_str() {
            Some("book") => {
                self.absorb_book(event);
            }
            Some("price_change") => self.absorb_changes(event, &tokens),
            Some("last_trade_price") => {
                self.markets[market].last_trade_price = padded(text_of(&event["price"]));
                self.markets[market].is_trade_unknown = false;
                // The hash of every later book covers the trade.
                for token in self.markets[market].tokens.clone() {
                    self.stamp(token, self.tokens[token].timestamp_ms);
                }
            }
            Some("tick_size_change") => {
                text_of(&event["new_tick_size"]).clone_into(&mut self.markets[market].tick_size);
            }
            Some("new_market") => tokens.clear(),
            _ => {}
        }
        tokens
    }

    /// Applies a book with its recorded hash and timestamp; returns its token.
    fn absorb_book(&mut self, book: &Value) -> usize {
        let place = self.token(text_of(&book["asset_id"]));
        let market = &mut self.markets[self.tokens[place].market];
        for (name, field) in [
            ("tick_size", &mut market.tick_size),
            ("last_trade_price", &mut market.last_trade_price),
            ("min_order_size", &mut market.min_order_size),
        ] {
            if let Some(text) = book[name].as_str() {
                text.clone_into(field);
            }
        }
        let token = &mut self.tokens[place];
        token.ladder = Ladder::of_json(book);
        token.has_book = true;
        let whole = Change::Whole(Box::new(token.ladder.clone()));
        self.remember(place, whole, &book["hash"], &book["timestamp"]);
        place
    }

    fn absorb_changes(&mut self, event: &Value, tokens: &[usize]) {
        for &place in tokens {
            let mut changes: Vec<(Side, Level)> = Vec::new();
            let mut hash = &event["hash"];
            let entries = event["price_changes"].as_array().into_iter().flatten();
            // Before 2025-09-15 an event carried the changes of one token.
            let old = event["changes"].as_array().into_iter().flatten();
            for entry in entries.chain(old) {
                let is_other =
                    entry["asset_id"].as_str().is_some_and(|id| id != self.tokens[place].id);
                if is_other {
                    continue;
                }
                let [side, price, size] =
                    ["side", "price", "size"].map(|name| text_of(&entry[name]));
                changes.push((Side::parse(side), (price.into(), size.into())));
                if entry["hash"].is_string() {
                    hash = &entry["hash"];
                }
            }
            for (side, (price, size)) in &changes {
                self.tokens[place].ladder.set(*side, price, size);
            }
            self.remember(place, Change::Levels(changes), hash, &event["timestamp"]);
        }
    }

    fn remember(&mut self, place: usize, change: Change, hash: &Value, timestamp: &Value) {
        let token = &mut self.tokens[place];
        token.timestamp_ms = text_of(timestamp).parse().unwrap();
        text_of(hash).clone_into(&mut token.hash);
        token.history.push(change, &token.hash, token.timestamp_ms, now_us());
    }
}
