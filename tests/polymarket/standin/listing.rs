//! Markets that are listed and resolved, in the venue's steps.

use serde_json::{Value, json};

use super::frames::text_frame;
use super::market::Payout;
use super::state::{State, now_us};
use super::world::MarketSeed;

impl State {
    /// Adds a market, and announces it on every socket that requested custom events.
    pub(crate) fn list_market(&mut self, seed: &MarketSeed) {
        let place = self.add_market(seed);
        let market = &self.markets[place];
        let field = |name: &str| {
            let description = market.description.as_ref();
            description.map_or(Value::Null, |description| description.field(name).clone())
        };
        let schedule = match field("feeSchedule") {
            Value::Object(fields) => json!({
                "exponent": fields["exponent"].to_string(),
                "rate": fields["rate"].to_string(),
                "taker_only": fields["takerOnly"],
                "rebate_rate": fields["rebateRate"].to_string(),
            }),
            _ => Value::Null,
        };
        let frame = json!({
            "id": field("id"),
            "question": field("question"),
            "market": market.condition_id,
            "slug": field("slug"),
            "description": field("description"),
            "assets_ids": seed.token_ids,
            "outcomes": seed.outcomes,
            "event_message": null,
            "timestamp": (now_us() / 1000).to_string(),
            "event_type": "new_market",
            "tags": [],
            "condition_id": market.condition_id,
            "active": field("active"),
            "clob_token_ids": seed.token_ids,
            "order_price_min_tick_size": market.tick_size,
            "group_item_title": "",
            "taker_base_fee": "1000",
            "fees_enabled": field("feesEnabled"),
            "fee_schedule": schedule,
        });
        self.send_to_all_custom(&text_frame(frame.to_string().as_bytes()));
    }

    /// Removes the market's books, and closes it with this payout on Gamma and the CLOB.
    pub(crate) fn resolve(&mut self, place: usize, payout: Payout) {
        self.remove_books(place);
        self.resolve_on_clob(place, payout);
        self.resolve_on_gamma(place, payout);
        if let Payout::Winner(winner) = payout {
            self.announce_resolved(place, winner);
        }
    }

    /// Removes the market's books.
    pub(crate) fn remove_books(&mut self, place: usize) {
        for &token in &self.markets[place].tokens {
            self.tokens[token].has_book = false;
        }
    }

    /// Closes the market with this payout on the CLOB.
    pub(crate) fn resolve_on_clob(&mut self, place: usize, payout: Payout) {
        let market = &mut self.markets[place];
        market.payout = Some(payout);
        market.long = None;
        market.compact = None;
    }

    /// Closes the market with this payout on Gamma.
    pub(crate) fn resolve_on_gamma(&mut self, place: usize, payout: Payout) {
        let market = &mut self.markets[place];
        let prices: Vec<&str> = (0..market.tokens.len())
            .map(|outcome| match payout {
                Payout::Winner(winner) if winner == outcome => "1",
                Payout::Winner(_) => "0",
                Payout::Half => "0.5",
            })
            .collect();
        let now = jiff::Timestamp::now();
        let description = market.description.as_mut().expect("the market has a description");
        description.edit(|fields| {
            for (name, value) in [
                ("closed", json!(true)),
                ("acceptingOrders", json!(false)),
                ("closedTime", json!(now.strftime("%Y-%m-%d %H:%M:%S+00").to_string())),
                ("umaEndDate", json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())),
                ("umaResolutionStatus", json!("resolved")),
                ("outcomePrices", json!(json!(prices).to_string())),
            ] {
                fields.insert(name.to_owned(), value);
            }
        });
    }

    /// Announces the winner to the market's subscribers. Real frames never announce a half payout.
    pub(crate) fn announce_resolved(&mut self, place: usize, winner: usize) {
        let market = &self.markets[place];
        let ids: Vec<&str> =
            market.tokens.iter().map(|&token| self.tokens[token].id.as_str()).collect();
        let frame = json!({
            "id": market.description.as_ref().map(|description| description.field("id").clone()),
            "market": market.condition_id,
            "assets_ids": ids,
            "winning_asset_id": ids[winner],
            "winning_outcome": market.outcomes[winner],
            "event_message": null,
            "timestamp": (now_us() / 1000).to_string(),
            "event_type": "market_resolved",
            "tags": [],
        });
        self.send_event(place, &text_frame(frame.to_string().as_bytes()));
    }
}
