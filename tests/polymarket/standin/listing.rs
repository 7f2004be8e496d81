//! Markets that come and go: listed to everybody, resolved step by step, as the venue does.

use serde_json::{Value, json};

use super::frames::text_frame;
use super::market::Payout;
use super::state::{State, now_us};
use super::world::MarketSeed;

impl State {
    /// A market from now on, told to every socket that asked for more than books.
    pub(crate) fn list_market(&mut self, seed: &MarketSeed) {
        let place = self.add_market(seed);
        let market = &self.markets[place];
        let told = |name: &str| {
            let description = market.description.as_ref();
            description.map_or(Value::Null, |description| description.field(name).clone())
        };
        let schedule = match told("feeSchedule") {
            Value::Object(fields) => json!({
                "exponent": fields["exponent"].to_string(),
                "rate": fields["rate"].to_string(),
                "taker_only": fields["takerOnly"],
                "rebate_rate": fields["rebateRate"].to_string(),
            }),
            _ => Value::Null,
        };
        let frame = json!({
            "id": told("id"),
            "question": told("question"),
            "market": market.condition_id,
            "slug": told("slug"),
            "description": told("description"),
            "assets_ids": seed.token_ids,
            "outcomes": seed.outcomes,
            "event_message": null,
            "timestamp": (now_us() / 1000).to_string(),
            "event_type": "new_market",
            "tags": [],
            "condition_id": market.condition_id,
            "active": told("active"),
            "clob_token_ids": seed.token_ids,
            "order_price_min_tick_size": market.tick_size,
            "group_item_title": "",
            "taker_base_fee": "1000",
            "fees_enabled": told("feesEnabled"),
            "fee_schedule": schedule,
        });
        self.tell_all_custom(&text_frame(frame.to_string().as_bytes()));
    }

    /// The books of the market are gone, and Gamma and the CLOB tell it as closed and paid so.
    pub(crate) fn resolve(&mut self, place: usize, payout: Payout) {
        self.remove_books(place);
        self.resolve_on_clob(place, payout);
        self.resolve_on_gamma(place, payout);
        if let Payout::Winner(winner) = payout {
            self.tell_resolved(place, winner);
        }
    }

    /// The venue has no books of this market any more.
    pub(crate) fn remove_books(&mut self, place: usize) {
        for &token in &self.markets[place].tokens {
            self.tokens[token].has_book = false;
        }
    }

    /// The CLOB tells the market as closed and paid so.
    pub(crate) fn resolve_on_clob(&mut self, place: usize, payout: Payout) {
        let market = &mut self.markets[place];
        market.payout = Some(payout);
        market.long = None;
        market.compact = None;
    }

    /// Gamma tells the market as closed and paid so.
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

    /// Those who have a token of the market hear who has won. Real frames name no half.
    pub(crate) fn tell_resolved(&mut self, place: usize, winner: usize) {
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
        self.tell_event(place, &text_frame(frame.to_string().as_bytes()));
    }
}
