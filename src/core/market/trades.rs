//! The venue's trades in a market, each once, for those that pass them on. Books show only the
//! newest one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Market;
use super::book::LastTrade;
use crate::ids::OutcomeIndex;

/// Maximum number of trades of a market that wait to be taken. The oldest are dropped first.
pub const TRADES_WAITING_MAX: usize = 256;

/// A trade at the venue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VenueTrade {
    /// The outcome whose shares were traded.
    pub outcome: OutcomeIndex,
    /// The trade.
    pub trade: LastTrade,
}

/// The trades of a market that nobody has taken yet. Empty while there is no [`TradeReader`].
#[derive(Default)]
pub(super) struct Waiting {
    reader_count: u32,
    trades: VecDeque<VenueTrade>,
}

/// Keeps a market's trades until they are taken. If there are several readers, each trade is taken
/// by one of them.
pub struct TradeReader(Arc<Market>);

impl TradeReader {
    /// Starts to keep the market's trades.
    pub fn new(market: &Arc<Market>) -> Self {
        market.trades.lock().reader_count += 1;
        Self(market.clone())
    }

    /// Takes the trades since the last call, oldest first. They include every trade in books that
    /// were published before the call.
    pub fn take(&self) -> VecDeque<VenueTrade> {
        std::mem::take(&mut self.0.trades.lock().trades)
    }
}

impl Drop for TradeReader {
    fn drop(&mut self) {
        let mut waiting = self.0.trades.lock();
        waiting.reader_count -= 1;
        if waiting.reader_count == 0 {
            waiting.trades = VecDeque::new();
        }
    }
}

impl Market {
    /// Keeps a trade for the readers of trades, if there are any. The feed calls this before it
    /// publishes the book that shows the trade.
    pub fn note_trade(&self, outcome: OutcomeIndex, trade: LastTrade) {
        let mut waiting = self.trades.lock();
        if waiting.reader_count > 0 {
            if waiting.trades.len() == TRADES_WAITING_MAX {
                waiting.trades.pop_front();
            }
            waiting.trades.push_back(VenueTrade { outcome, trade });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Timestamp;
    use crate::market::catalogue::MarketInfo;
    use crate::money::{Price, Shares};

    fn note(market: &Market, size: i64) {
        let (price, size) = (Price::from_micros(400_000), Shares::from_micros(size));
        let trade = LastTrade { price, size, side: None, at: Timestamp::EPOCH };
        market.note_trade(OutcomeIndex(0), trade);
    }

    fn sizes(reader: &TradeReader) -> Vec<i64> {
        reader.take().iter().map(|it| it.trade.size.micros()).collect()
    }

    #[test]
    fn trades_are_kept_while_somebody_takes_them() {
        let market = Arc::new(Market::new(MarketInfo::bare_yes_no("m")));
        note(&market, 1);
        let reader = TradeReader::new(&market);
        note(&market, 2);
        note(&market, 3);
        let other = TradeReader::new(&market);
        assert_eq!(sizes(&reader), [2, 3]);
        assert_eq!(sizes(&other), [0; 0]);
        note(&market, 4);
        drop(reader);
        assert_eq!(sizes(&other), [4]);
        note(&market, 5);
        drop(other);
        assert_eq!(sizes(&TradeReader::new(&market)), [0; 0]);
    }

    #[test]
    fn the_number_of_waiting_trades_is_bounded() {
        let market = Arc::new(Market::new(MarketInfo::bare_yes_no("m")));
        let reader = TradeReader::new(&market);
        let count = i64::try_from(TRADES_WAITING_MAX).unwrap() + 2;
        (0..count).for_each(|size| note(&market, size));
        assert_eq!(sizes(&reader), (2..count).collect::<Vec<_>>());
    }
}
