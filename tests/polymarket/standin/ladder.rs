//! A book as the venue writes it: levels with the exact texts of price and size, and the hash.

use std::collections::BTreeMap;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serde_json::Value;

use super::decimal::{micros, mirrored};

/// A side of a book, or a taker's side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    /// Bids.
    Buy,
    /// Asks.
    Sell,
}

impl Side {
    /// The venue's name for the side.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Buy => "BUY",
            Self::Sell => "SELL",
        }
    }

    /// The other side.
    pub(crate) fn opposite(self) -> Self {
        match self {
            Self::Buy => Self::Sell,
            Self::Sell => Self::Buy,
        }
    }

    /// Parses the venue's name for a side.
    #[track_caller]
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "BUY" => Self::Buy,
            "SELL" => Self::Sell,
            _ => panic!("{text:?} is not a side"),
        }
    }
}

/// Price and size, as texts.
pub(crate) type Level = (Box<str>, Box<str>);

/// Both sides of one token's book, by price in millionths.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Ladder {
    bids: BTreeMap<i64, Level>,
    asks: BTreeMap<i64, Level>,
}

/// What the hash of a book covers besides its levels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) market: &'a str,
    pub(crate) asset_id: &'a str,
    pub(crate) timestamp_ms: u64,
    pub(crate) min_order_size: &'a str,
    pub(crate) tick_size: &'a str,
    pub(crate) neg_risk: bool,
    pub(crate) last_trade_price: &'a str,
    pub(crate) is_v2: bool,
}

impl Ladder {
    /// Reads a recorded object with `bids` and `asks`.
    #[track_caller]
    pub(crate) fn of_json(book: &Value) -> Self {
        let mut ladder = Self::default();
        for (name, side) in [("bids", Side::Buy), ("asks", Side::Sell)] {
            for level in book[name].as_array().unwrap() {
                ladder.set(side, text_of(&level["price"]), text_of(&level["size"]));
            }
        }
        ladder
    }

    /// Sets the size at this price; `"0"` removes the level.
    pub(crate) fn set(&mut self, side: Side, price: &str, size: &str) {
        let at = micros(price);
        let levels = self.levels_mut(side);
        if micros(size) == 0 {
            levels.remove(&at);
        } else if let Some(level) = levels.get_mut(&at) {
            level.1 = size.into();
        } else {
            levels.insert(at, (price.into(), size.into()));
        }
    }

    /// The levels of a side, best first.
    pub(crate) fn best_first(&self, side: Side) -> Box<dyn Iterator<Item = &Level> + '_> {
        match side {
            Side::Buy => Box::new(self.bids.values().rev()),
            Side::Sell => Box::new(self.asks.values()),
        }
    }

    /// The best bid and ask as they appear on the wire: `"0"` and `"1"` stand for an empty side.
    pub(crate) fn top(&self) -> (&str, &str) {
        let bid = self.bids.last_key_value().map_or("0", |(_, level)| &level.0);
        let ask = self.asks.first_key_value().map_or("1", |(_, level)| &level.0);
        (bid, ask)
    }

    /// The number of levels on both sides.
    pub(crate) fn level_count(&self) -> usize {
        self.bids.len() + self.asks.len()
    }

    /// The size at this price; `None` if there is no level.
    pub(crate) fn size(&self, side: Side, price: &str) -> Option<&str> {
        let levels = if side == Side::Buy { &self.bids } else { &self.asks };
        levels.get(&micros(price)).map(|level| &*level.1)
    }

    /// The same book as seen from the other token.
    pub(crate) fn mirrored(&self) -> Self {
        let mut other = Self::default();
        for side in [Side::Buy, Side::Sell] {
            for (price, size) in self.best_first(side) {
                other.set(side.opposite(), &mirrored(price), size);
            }
        }
        other
    }

    /// Writes `"bids":[…],"asks":[…]`, with the best level last on both sides.
    pub(crate) fn write_sides(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#""bids":["#);
        write_levels(out, self.bids.values());
        out.extend_from_slice(br#"],"asks":["#);
        write_levels(out, self.asks.values().rev());
        out.push(b']');
    }

    /// The venue's hash: SHA-1 of compact JSON with the keys in exactly this order.
    pub(crate) fn hash(&self, head: Head<'_>) -> String {
        let mut text = Vec::with_capacity(512 + 48 * self.level_count());
        let timestamp = head.timestamp_ms.to_string();
        for piece in [
            r#"{"market":""#,
            head.market,
            r#"","asset_id":""#,
            head.asset_id,
            r#"","timestamp":""#,
            &timestamp,
            r#"","hash":"","#,
        ] {
            text.extend_from_slice(piece.as_bytes());
        }
        self.write_sides(&mut text);
        for piece in [
            r#","min_order_size":""#,
            head.min_order_size,
            r#"","tick_size":""#,
            head.tick_size,
            r#"","neg_risk":"#,
            if head.neg_risk { "true" } else { "false" },
            r#","last_trade_price":""#,
            head.last_trade_price,
            if head.is_v2 { r#"","version":"v2"}"# } else { r#""}"# },
        ] {
            text.extend_from_slice(piece.as_bytes());
        }
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, &text);
        let digits = b"0123456789abcdef";
        let pairs = digest.as_ref().iter().flat_map(|byte| [byte >> 4, byte & 15]);
        pairs.map(|digit| char::from(digits[usize::from(digit)])).collect()
    }

    fn levels_mut(&mut self, side: Side) -> &mut BTreeMap<i64, Level> {
        match side {
            Side::Buy => &mut self.bids,
            Side::Sell => &mut self.asks,
        }
    }
}

fn write_levels<'a>(out: &mut Vec<u8>, levels: impl Iterator<Item = &'a Level>) {
    for (index, (price, size)) in levels.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"price":""#);
        out.extend_from_slice(price.as_bytes());
        out.extend_from_slice(br#"","size":""#);
        out.extend_from_slice(size.as_bytes());
        out.extend_from_slice(br#""}"#);
    }
}

/// A JSON string's text.
#[track_caller]
pub(crate) fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}
