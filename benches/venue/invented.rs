//! A synthetic market and its frames in the venue's format, with matching hashes.

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The condition id.
pub(crate) const MARKET: &str =
    "0x1111111111111111111111111111111111111111111111111111111111111111";
/// Both token ids, as long as the venue's longest.
pub(crate) const TOKENS: [&str; 2] = [
    "111111111111111111111111111111111111111111111111111111111111111111111111111111",
    "222222222222222222222222222222222222222222222222222222222222222222222222222222",
];

/// The time of every book and every change, in milliseconds.
const TIME_MS: &str = "1784578686071";

/// Gamma's description of the market.
pub(crate) fn description() -> String {
    let [yes, no] = TOKENS;
    format!(
        concat!(
            r#"{{"conditionId":"{}","outcomes":"[\"Yes\", \"No\"]","clobTokenIds":"#,
            r#""[\"{}\", \"{}\"]","active":true,"closed":false,"enableOrderBook":true,"#,
            r#""acceptingOrders":true,"orderPriceMinTickSize":0.001,"orderMinSize":5,"#,
            r#""negRisk":false}}"#
        ),
        MARKET, yes, no
    )
}

/// The book of the first token, with prices in thousandths of a dollar; the other token's book is
/// its mirror image.
#[derive(Clone)]
pub(crate) struct Book {
    /// Ascending; sizes in hundredths of a share.
    bids: Vec<(u32, u32)>,
    /// Descending.
    asks: Vec<(u32, u32)>,
}

impl Book {
    /// A book with this many levels on each side, around half a dollar.
    pub(crate) fn of_depth(levels_per_side: u32) -> Self {
        let size = |step: u32| 10_025 + step * 1_237 % 90_000;
        Self {
            bids: (0..levels_per_side).rev().map(|step| (499 - step, size(step))).collect(),
            asks: (0..levels_per_side).rev().map(|step| (501 + step, size(step))).collect(),
        }
    }

    /// Sets the size of the bid at this distance from the best one, in hundredths of a share.
    pub(crate) fn set_bid(&mut self, from_best: usize, size: u32) {
        let place = self.bids.len() - 1 - from_best;
        self.bids[place].1 = size;
    }

    fn mirrored(&self) -> Self {
        let flip = |levels: &[(u32, u32)]| {
            levels.iter().map(|&(price, size)| (1000 - price, size)).collect()
        };
        Self { bids: flip(&self.asks), asks: flip(&self.bids) }
    }

    fn of_token(&self, token: usize) -> Self {
        if token == 0 { self.clone() } else { self.mirrored() }
    }

    fn sides(&self) -> String {
        let side = |levels: &[(u32, u32)]| {
            let levels = levels.iter().map(|&(price, size)| {
                format!(r#"{{"price":"{}","size":"{}"}}"#, thousandths(price), hundredths(size))
            });
            levels.collect::<Vec<_>>().join(",")
        };
        format!(r#""bids":[{}],"asks":[{}]"#, side(&self.bids), side(&self.asks))
    }

    /// The venue's hash of the book of this token.
    pub(crate) fn hash(&self, token: usize) -> String {
        let text = format!(
            concat!(
                r#"{{"market":"{}","asset_id":"{}","timestamp":"{}","hash":"",{},"#,
                r#""min_order_size":"5","tick_size":"0.001","neg_risk":false,"#,
                r#""last_trade_price":"0.480"}}"#
            ),
            MARKET,
            TOKENS[token],
            TIME_MS,
            self.of_token(token).sides()
        );
        let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
        digest.as_ref().iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
    }

    /// The book of this token, as the socket sends it on subscription and, without the type, as the
    /// book endpoint returns it.
    pub(crate) fn message(&self, token: usize, asset_id: &str) -> String {
        format!(
            concat!(
                r#"{{"market":"{}","asset_id":"{}","timestamp":"{}","hash":"{}",{},"#,
                r#""min_order_size":"5","tick_size":"0.001","neg_risk":false,"#,
                r#""event_type":"book","last_trade_price":"0.480"}}"#
            ),
            MARKET,
            asset_id,
            TIME_MS,
            self.hash(token),
            self.of_token(token).sides()
        )
    }

    /// The frame with the sizes of the best `level_count` bids, for both tokens.
    pub(crate) fn price_change(&self, level_count: usize) -> String {
        let mut entries = Vec::new();
        for (token, asset_id) in TOKENS.iter().enumerate() {
            let hash = self.hash(token);
            for &(price, size) in self.bids.iter().rev().take(level_count) {
                let (side, price) =
                    if token == 0 { ("BUY", price) } else { ("SELL", 1000 - price) };
                entries.push(format!(
                    concat!(
                        r#"{{"asset_id":"{}","price":"{}","size":"{}","side":"{}","hash":"{}","#,
                        r#""best_bid":"0.499","best_ask":"0.501"}}"#
                    ),
                    asset_id,
                    thousandths(price),
                    hundredths(size),
                    side,
                    hash
                ));
            }
        }
        format!(
            concat!(
                r#"{{"market":"{}","price_changes":[{}],"timestamp":"{}","#,
                r#""event_type":"price_change"}}"#
            ),
            MARKET,
            entries.join(","),
            TIME_MS
        )
    }
}

fn thousandths(price: u32) -> String {
    trimmed(&format!("0.{price:03}"))
}

fn hundredths(size: u32) -> String {
    trimmed(&format!("{}.{:02}", size / 100, size % 100))
}

/// A number in the venue's format, without trailing zeros.
fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
