//! The current state of a market and its tokens.

use super::description::Description;
use super::history::History;
use super::ladder::{Head, Ladder};
use super::world::MarketSeed;

/// A market, with what the venue knows about it.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Market {
    pub(crate) condition_id: String,
    /// Indices into the list of tokens, in the order of the outcomes.
    pub(crate) tokens: Vec<usize>,
    pub(crate) outcomes: Vec<String>,
    pub(crate) tick_size: String,
    pub(crate) min_order_size: String,
    pub(crate) neg_risk: bool,
    /// Whether the CLOB says that it holds marketable orders.
    pub(crate) holds_takers: bool,
    /// Whether it is of version 2 of the protocol.
    pub(crate) is_v2: bool,
    /// With three decimals, or empty. Both tokens share it, as recorded hashes show.
    pub(crate) last_trade_price: String,
    /// Whether books leave that out.
    pub(crate) is_trade_unknown: bool,
    /// Gamma's description.
    pub(crate) description: Option<Description>,
    /// Gamma omits the tokens from this many more answers.
    pub(crate) hydration_left: u32,
    /// The recorded answer of `/clob-markets/{condition id}`.
    pub(crate) compact: Option<String>,
    /// The recorded answer of `/markets/{condition id}`.
    pub(crate) long: Option<String>,
    /// The payout on the CLOB.
    pub(crate) payout: Option<Payout>,
    /// The payout on the chain, as the data API reports it.
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
    /// Whether the venue has a book for this token, or else answers that there is none.
    pub(crate) has_book: bool,
    pub(crate) hash: String,
    pub(crate) timestamp_ms: u64,
    pub(crate) history: History,
    /// The sockets subscribed to it.
    pub(crate) subscribers: Vec<u64>,
}

/// A token's book as clients see it.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'a> {
    pub(crate) asset_id: &'a str,
    pub(crate) ladder: &'a Ladder,
    pub(crate) hash: &'a str,
    pub(crate) timestamp_ms: u64,
}

impl Token {
    /// The current book.
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
    /// The seed's market, still without its tokens.
    pub(crate) fn of_seed(seed: &MarketSeed) -> Self {
        Self {
            condition_id: seed.condition_id.clone(),
            tokens: Vec::new(),
            outcomes: seed.outcomes.clone(),
            tick_size: seed.tick_size.clone(),
            min_order_size: seed.min_order_size.clone(),
            neg_risk: seed.neg_risk,
            holds_takers: seed.holds_takers,
            is_v2: seed.is_v2,
            last_trade_price: seed.last_trade_price.clone(),
            is_trade_unknown: seed.is_trade_unknown,
            description: seed.description.clone(),
            hydration_left: 0,
            compact: seed.compact.clone(),
            long: seed.long.clone(),
            payout: None,
            payout_on_chain: None,
        }
    }

    /// What the hash of one of this market's books covers besides the levels.
    pub(crate) fn head<'a>(&'a self, asset_id: &'a str, timestamp_ms: u64) -> Head<'a> {
        Head {
            market: &self.condition_id,
            asset_id,
            timestamp_ms,
            min_order_size: &self.min_order_size,
            tick_size: &self.tick_size,
            neg_risk: self.neg_risk,
            last_trade_price: &self.last_trade_price,
            is_v2: self.is_v2,
        }
    }
}
