//! A market of the stand-in and its tokens, as they are now.

use super::description::Description;
use super::history::History;
use super::ladder::{Head, Ladder};
use super::world::MarketSeed;

/// A market, by what the venue knows of it.
#[derive(Debug)]
pub(crate) struct Market {
    pub(crate) condition_id: String,
    /// Places in the list of tokens, in the order of the outcomes.
    pub(crate) tokens: Vec<usize>,
    pub(crate) outcomes: Vec<String>,
    pub(crate) tick_size: String,
    pub(crate) min_order_size: String,
    pub(crate) neg_risk: bool,
    /// With three decimals, or empty; one for both tokens, as recorded hashes show.
    pub(crate) last_trade_price: String,
    /// What Gamma tells.
    pub(crate) description: Option<Description>,
    /// So many answers of Gamma leave out the tokens.
    pub(crate) hydration_left: u32,
    /// What `/clob-markets/{condition id}` answered when it was recorded.
    pub(crate) compact: Option<String>,
    /// What `/markets/{condition id}` answered when it was recorded.
    pub(crate) long: Option<String>,
    /// How it was resolved.
    pub(crate) payout: Option<Payout>,
    /// What the chain has decided, as the data API tells it.
    pub(crate) payout_on_chain: Option<Payout>,
}

/// What the tokens of a resolved market pay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payout {
    /// One dollar for the token of this outcome.
    Winner(usize),
    /// Half a dollar each.
    Half,
}

/// A token and its book.
#[derive(Debug)]
pub(crate) struct Token {
    pub(crate) id: String,
    pub(crate) market: usize,
    pub(crate) ladder: Ladder,
    /// Without one, the venue says that there is no such book.
    pub(crate) has_book: bool,
    pub(crate) hash: String,
    pub(crate) timestamp_ms: u64,
    pub(crate) history: History,
    /// The sockets that have it.
    pub(crate) subscribers: Vec<u64>,
}

/// A token's book as it is shown.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) asset_id: &'a str,
    pub(crate) ladder: &'a Ladder,
    pub(crate) hash: &'a str,
    pub(crate) timestamp_ms: u64,
}

impl Token {
    /// As it is.
    pub(crate) fn shown(&self) -> Shown<'_> {
        Shown {
            asset_id: &self.id,
            ladder: &self.ladder,
            hash: &self.hash,
            timestamp_ms: self.timestamp_ms,
        }
    }
}

impl Market {
    /// Without its tokens.
    pub(crate) fn of_seed(seed: &MarketSeed) -> Self {
        Self {
            condition_id: seed.condition_id.clone(),
            tokens: Vec::new(),
            outcomes: seed.outcomes.clone(),
            tick_size: seed.tick_size.clone(),
            min_order_size: seed.min_order_size.clone(),
            neg_risk: seed.neg_risk,
            last_trade_price: seed.last_trade_price.clone(),
            description: seed.description.clone(),
            hydration_left: 0,
            compact: seed.compact.clone(),
            long: seed.long.clone(),
            payout: None,
            payout_on_chain: None,
        }
    }

    /// What the hash of a book of this market covers beside the levels.
    pub(crate) fn head<'a>(&'a self, asset_id: &'a str, timestamp_ms: u64) -> Head<'a> {
        Head {
            market: &self.condition_id,
            asset_id,
            timestamp_ms,
            min_order_size: &self.min_order_size,
            tick_size: &self.tick_size,
            neg_risk: self.neg_risk,
            last_trade_price: &self.last_trade_price,
        }
    }
}
