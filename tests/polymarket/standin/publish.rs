//! Changes of the venue's books, and the frames that announce them.

use super::decimal::{micros, mirrored, padded, text};
use super::frames::{BookForm, price_change, text_frame, write_book, write_entry};
use super::history::Change;
use super::ladder::{Ladder, Level, Side};
use super::state::{State, now_us};

/// Prices and sizes.
type Levels = Vec<(String, String)>;

impl State {
    /// Sets levels of this token, and the mirrored levels of the other token, in one frame.
    pub(crate) fn change_levels(&mut self, token: usize, changes: &[(Side, &str, &str)]) {
        self.change_levels_at(now_us() / 1000, token, changes);
    }

    /// The same, with this timestamp, or that of the newer of both books if it is later.
    pub(crate) fn change_levels_at(
        &mut self,
        timestamp_ms: u64,
        token: usize,
        changes: &[(Side, &str, &str)],
    ) {
        let at_us = now_us();
        let sister = self.sister(token);
        let changed = [Some(token), sister].into_iter().flatten();
        let newest_ms = changed.clone().map(|place| self.tokens[place].timestamp_ms).max();
        let timestamp_ms = newest_ms.unwrap_or(0).max(timestamp_ms);
        let mut entries = String::new();
        let mut tops = Vec::new();
        for place in changed {
            let changes: Vec<(Side, Level)> = changes
                .iter()
                .map(|&(side, price, size)| {
                    if place == token {
                        (side, (price.into(), size.into()))
                    } else {
                        (side.opposite(), (mirrored(price).into(), size.into()))
                    }
                })
                .collect();
            let token = &mut self.tokens[place];
            let before = token.ladder.top();
            let before = (before.0.to_owned(), before.1.to_owned());
            for (side, (price, size)) in &changes {
                token.ladder.set(*side, price, size);
            }
            self.stamp(place, timestamp_ms);
            let token = &mut self.tokens[place];
            for (side, (price, size)) in &changes {
                write_entry(&mut entries, token, (*side, price, size));
            }
            if token.ladder.top() != (&*before.0, &*before.1) {
                tops.push(place);
            }
            token.history.push(Change::Levels(changes), &token.hash, timestamp_ms, at_us);
        }
        let market = self.tokens[token].market;
        let payload = price_change(&self.markets[market], &entries, timestamp_ms);
        let frame = text_frame(payload.as_bytes());
        if !self.options.is_top_first {
            self.send_to_market(market, &frame);
        }
        for place in tops {
            self.send_top(place);
        }
        if self.options.is_top_first {
            self.send_to_market(market, &frame);
        }
    }

    /// Changes levels of this token, each in a frame of its own, all with one timestamp and the
    /// hashes of the last books; those before the last frame have this hash instead, if any.
    pub(crate) fn change_group(
        &mut self,
        token: usize,
        changes: &[(Side, &str, &str)],
        other_hash: Option<&str>,
    ) {
        let timestamp_ms = self.tokens[token].timestamp_ms.max(now_us() / 1000);
        let market = self.tokens[token].market;
        let tokens = self.markets[market].tokens.clone();
        let side_of =
            |place: usize, side: Side| if place == token { side } else { side.opposite() };
        let price_of = |place: usize, price: &str| {
            if place == token { price.to_owned() } else { mirrored(price) }
        };
        // Best prices and hashes are those of the last books, in every frame.
        for &place in &tokens {
            for &(side, price, size) in changes {
                let ladder = &mut self.tokens[place].ladder;
                ladder.set(side_of(place, side), &price_of(place, price), size);
            }
            self.stamp(place, timestamp_ms);
            let token = &mut self.tokens[place];
            let whole = Change::Whole(Box::new(token.ladder.clone()));
            token.history.push(whole, &token.hash, timestamp_ms, now_us());
        }
        for (index, &(side, price, size)) in changes.iter().enumerate() {
            let mut entries = String::new();
            for &place in &tokens {
                let entry = (side_of(place, side), &*price_of(place, price), size);
                write_entry(&mut entries, &self.tokens[place], entry);
                if let Some(other) = other_hash.filter(|_| index + 1 < changes.len()) {
                    entries = entries.replace(&self.tokens[place].hash, other);
                }
            }
            let payload = price_change(&self.markets[market], &entries, timestamp_ms);
            self.send_to_market(market, &text_frame(payload.as_bytes()));
        }
    }

    /// Sends this token's book, as after a trade.
    pub(crate) fn send_book(&mut self, token: usize) {
        let mut payload = Vec::new();
        let place = &self.tokens[token];
        write_book(&mut payload, &self.markets[place.market], place.shown(), BookForm::Again);
        self.send_to_token(token, &text_frame(&payload));
    }

    /// A taker takes this size, or what there is, from the other side of this token's book: a
    /// change of the consumed levels, both books, and the trades. Returns the prices and sizes
    /// traded.
    pub(crate) fn trade(&mut self, token: usize, taker: Side, size: &str) -> Vec<(String, String)> {
        let (trades, changes) = self.taken(token, taker, size);
        if trades.is_empty() {
            return trades;
        }
        let side = taker.opposite();
        let levels: Vec<_> =
            changes.iter().map(|(price, size)| (side, price.as_str(), size.as_str())).collect();
        self.change_levels(token, &levels);
        let market = self.tokens[token].market;
        self.note_trade(market, &trades);
        self.restate_market(market);
        self.report(token, taker, &trades);
        trades
    }

    /// The prices and sizes that a taker of this size trades, and what is left of each level.
    fn taken(&self, token: usize, taker: Side, size: &str) -> (Levels, Levels) {
        let mut left = micros(size);
        let (mut trades, mut changes) = (Levels::new(), Levels::new());
        for (price, offered) in self.tokens[token].ladder.best_first(taker.opposite()) {
            let taken = left.min(micros(offered));
            if taken == 0 {
                break;
            }
            left -= taken;
            trades.push((price.to_string(), text(taken)));
            changes.push((price.to_string(), text(micros(offered) - taken)));
        }
        (trades, changes)
    }

    /// From now on the last of these trades is the market's newest.
    fn note_trade(&mut self, market: usize, trades: &[(String, String)]) {
        let last = trades.last().map(|trade| padded(&trade.0));
        self.markets[market].last_trade_price = last.unwrap_or_default();
        self.markets[market].is_trade_unknown = false;
    }

    /// The same in pieces; see [`super::StandIn::trade_in_pieces`].
    pub(crate) fn trade_in_pieces(
        &mut self,
        token: usize,
        taker: Side,
        size: &str,
    ) -> Vec<(String, String)> {
        let (trades, changes) = self.taken(token, taker, size);
        if trades.is_empty() {
            return trades;
        }
        let side = taker.opposite();
        let levels: Vec<_> =
            changes.iter().map(|(price, size)| (side, price.as_str(), size.as_str())).collect();
        let market = self.tokens[token].market;
        self.note_trade(market, &trades);
        self.change_group(token, &levels, None);
        for place in self.markets[market].tokens.clone() {
            self.send_book(place);
        }
        trades
    }

    /// Sends a `last_trade_price` for each of these trades.
    pub(crate) fn report(&mut self, token: usize, taker: Side, trades: &[(String, String)]) {
        let market = self.tokens[token].market;
        for (price, size) in trades {
            let hash = [(); 4].map(|()| format!("{:016x}", self.random.below(1 << 53))).concat();
            let payload = format!(
                concat!(
                    r#"{{"market":"{}","asset_id":"{}","price":"{}","size":"{}","#,
                    r#""fee_rate_bps":"0","side":"{}","timestamp":"{}","#,
                    r#""event_type":"last_trade_price","transaction_hash":"0x{}"}}"#
                ),
                self.markets[market].condition_id,
                self.tokens[token].id,
                price,
                size,
                taker.text(),
                self.tokens[token].timestamp_ms,
                hash
            );
            self.send_to_token(token, &text_frame(payload.as_bytes()));
        }
    }

    /// Changes the market's tick size. The venue announces it twice for each token, and then sends
    /// both books.
    pub(crate) fn change_tick_size(&mut self, market: usize, tick_size: &str) {
        let old = std::mem::replace(&mut self.markets[market].tick_size, tick_size.to_owned());
        let timestamp_ms = now_us() / 1000;
        for _ in 0..2 {
            for token in self.markets[market].tokens.clone() {
                let payload = format!(
                    concat!(
                        r#"{{"market":"{}","asset_id":"{}","old_tick_size":"{}","#,
                        r#""new_tick_size":"{}","timestamp":"{}","#,
                        r#""event_type":"tick_size_change"}}"#
                    ),
                    self.markets[market].condition_id,
                    self.tokens[token].id,
                    old,
                    tick_size,
                    timestamp_ms
                );
                self.send_to_token(token, &text_frame(payload.as_bytes()));
            }
        }
        self.restate_market(market);
    }

    /// Replaces this token's book, and the other token's with its mirror image.
    pub(crate) fn replace_book(&mut self, token: usize, ladder: &Ladder) {
        let replaced = [Some(token), self.sister(token)];
        for place in replaced.into_iter().flatten() {
            let own = if place == token { ladder.clone() } else { ladder.mirrored() };
            self.tokens[place].ladder = own;
            self.tokens[place].has_book = true;
        }
        self.restate_market(self.tokens[token].market);
    }

    /// Sends the market's current books, with a new timestamp and hash, to their subscribers.
    pub(crate) fn restate_market(&mut self, market: usize) {
        let at_us = now_us();
        for token in self.markets[market].tokens.clone() {
            let timestamp_ms = self.tokens[token].timestamp_ms.max(at_us / 1000);
            self.stamp(token, timestamp_ms);
            let token_now = &mut self.tokens[token];
            let whole = Change::Whole(Box::new(token_now.ladder.clone()));
            token_now.history.push(whole, &token_now.hash, timestamp_ms, at_us);
            self.send_book(token);
        }
    }

    /// Sets the timestamp of this token's book, and recomputes its hash.
    pub(super) fn stamp(&mut self, token: usize, timestamp_ms: u64) {
        let token = &mut self.tokens[token];
        token.timestamp_ms = timestamp_ms;
        let head = self.markets[token.market].head(&token.id, timestamp_ms);
        token.hash = token.ladder.hash(head);
    }

    /// Sends this token's best bid and ask to the subscribers that requested custom events.
    fn send_top(&mut self, token: usize) {
        let place = &self.tokens[token];
        let (bid, ask) = place.ladder.top();
        let payload = format!(
            concat!(
                r#"{{"market":"{}","asset_id":"{}","best_bid":"{}","best_ask":"{}","#,
                r#""spread":"{}","timestamp":"{}","event_type":"best_bid_ask"}}"#
            ),
            self.markets[place.market].condition_id,
            place.id,
            bid,
            ask,
            text((micros(ask) - micros(bid)).max(0)),
            place.timestamp_ms
        );
        self.send_to_custom(token, &text_frame(payload.as_bytes()));
    }
}
