//! An account's money and positions.

use super::trade::position_status;
use crate::engine::account::Ledger;
use crate::engine::payout::Settlement;
use crate::engine::view::{PositionRow, SettlementPage};
use crate::http::json::write::{JsonObject, write_list};
use crate::money::{Notional, Price, Usd};

/// A position with what the market says about it now.
#[derive(Clone, Copy, Debug)]
pub struct PricedPosition<'a> {
    /// The holding.
    pub row: &'a PositionRow,
    /// What one share is worth, where a price is known.
    pub price: Option<Price>,
    /// What the market predicts, where the catalogue knows it.
    pub question: Option<&'a str>,
}

impl PricedPosition<'_> {
    /// What the shares are worth, rounded down to a micro-dollar.
    pub fn value(&self) -> Option<Usd> {
        self.price.map(|price| Notional::of(price, self.row.position.shares).floor())
    }
}

/// The answer to `GET /v1/account/positions`.
pub fn write_positions<'a>(
    out: &mut Vec<u8>,
    positions: impl IntoIterator<Item = PricedPosition<'a>>,
) {
    write_list(out, positions, |out, priced| {
        let position = &priced.row.position;
        let value = priced.value();
        let mut row = JsonObject::new(out);
        row.integer("id", priced.row.number);
        row.text("market_id", &priced.row.market_id);
        row.text("outcome", &priced.row.outcome);
        row.decimal("quantity", position.shares.micros());
        row.decimal("avg_entry_price", position.average_entry_price().micros());
        row.decimal_or_null("current_price", priced.price.map(Price::micros));
        row.decimal_or_null("market_value", value.map(Usd::micros));
        let unrealised = value.map(|value| value - position.cost);
        row.decimal_or_null("unrealized_pnl", unrealised.map(Usd::micros));
        row.decimal("realized_pnl", position.realised.micros());
        row.word("status", position_status(position.shares));
        row.text_or_null("market_question", priced.question);
        row.end();
    });
}

/// The answer to `GET /v1/account/settlements`: a page, and the cursor of the next one, empty when
/// there is none.
pub fn write_settlements(out: &mut Vec<u8>, page: &SettlementPage) {
    let mut body = JsonObject::new(out);
    write_list(body.value("data"), &page.rows, |out, row| {
        let Settlement { shares, cost, payout, payout_per_share, at } = row.settlement;
        let mut object = JsonObject::new(out);
        object.integer("position_id", row.number);
        object.text("market_id", &row.market_id);
        object.text("outcome", &row.outcome);
        object.decimal("quantity", shares.micros());
        let average = cost.per_share(shares).unwrap_or(Price::ZERO);
        object.decimal("avg_entry_price", average.micros());
        object.decimal("cost_basis", cost.micros());
        object.decimal("payout", payout.micros());
        object.decimal("payout_per_share", payout_per_share.micros());
        object.decimal("realized_pnl", (payout - cost).micros());
        object.word("result", result(payout_per_share));
        object.time("settled_at", at);
        object.end();
    });
    let cursor = page.next.map(|number| number.to_string()).unwrap_or_default();
    body.text("next_cursor", &cursor);
    body.end();
}

/// What became of a position.
fn result(payout_per_share: Price) -> &'static str {
    const HALF: Price = Price::from_micros(500_000);
    match payout_per_share {
        Price::ONE => "won",
        Price::ZERO => "lost",
        HALF => "split",
        _ => "partial",
    }
}

/// The answer to `GET /v1/account/balance`. `position_value` is what all open positions are worth,
/// those without a price at their cost.
pub fn write_balance(out: &mut Vec<u8>, ledger: &Ledger, position_value: Usd) {
    let total = ledger.cash() + position_value;
    let mut body = JsonObject::new(out);
    body.decimal("balance", ledger.cash().micros());
    body.word("currency", "USD");
    body.decimal("unrealized_pnl", (total - ledger.granted).micros());
    body.decimal("total_value", total.micros());
    body.decimal("starting_balance", ledger.granted.micros());
    body.end();
}

#[cfg(test)]
mod tests {
    use super::super::fixture::written;
    use super::*;
    use crate::engine::position::Position;
    use crate::engine::view::SettlementRow;
    use crate::ids::{MarketIndex, OutcomeIndex, Timestamp};
    use crate::money::Shares;

    #[test]
    fn positions_are_shown_with_and_without_a_price() {
        let open = PositionRow {
            number: 1,
            market_id: "0xabc".into(),
            outcome: "Yes".into(),
            outcome_index: OutcomeIndex(0),
            position: Position {
                shares: Shares::from_micros(3_000_000),
                cost: Usd::from_micros(1_000_000),
                realised: Usd::from_micros(-250_000),
                ..Position::empty(MarketIndex(0), OutcomeIndex(0))
            },
        };
        let closed = PositionRow {
            number: 2,
            position: Position::empty(MarketIndex(1), OutcomeIndex(0)),
            ..open.clone()
        };
        let rows = [
            PricedPosition {
                row: &open,
                price: Some(Price::from_micros(333_333)),
                question: Some("Will it?"),
            },
            PricedPosition { row: &closed, price: None, question: None },
        ];
        insta::assert_snapshot!(written(|out| write_positions(out, rows)));
    }

    #[test]
    fn settlements_are_shown_with_what_became_of_them() {
        let row = |number, (shares, cost), (payout, payout_per_share)| SettlementRow {
            number,
            market_id: "0xabc".into(),
            outcome: "Yes".into(),
            settlement: Settlement {
                shares: Shares::from_micros(shares),
                cost: Usd::from_micros(cost),
                payout: Usd::from_micros(payout),
                payout_per_share: Price::from_micros(payout_per_share),
                at: Timestamp::from_seconds(1_800_000_000),
            },
        };
        let rows = vec![
            row(9, (3_000_000, 1_000_000), (3_000_000, 1_000_000)),
            row(7, (3_000_000, 1_000_000), (0, 0)),
            row(5, (3, 1), (1, 500_000)),
            row(4, (3_000_000, 1_000_000), (750_000, 250_000)),
        ];
        let page = SettlementPage { rows, next: Some(4) };
        insta::assert_snapshot!(written(|out| write_settlements(out, &page)));
        let page = SettlementPage { rows: Vec::new(), next: None };
        let empty = written(|out| write_settlements(out, &page));
        assert_eq!(empty, "{\"data\":[],\"next_cursor\":\"\"}");
    }

    #[test]
    fn a_balance_counts_positions() {
        let usd = |dollars: i64| Usd::from_micros(dollars * 1_000_000);
        let ledger = Ledger { granted: usd(1_000), purchases: usd(300), ..Ledger::default() };
        assert_eq!(
            written(|out| write_balance(out, &ledger, usd(250))),
            "{\"balance\":\"700\",\"currency\":\"USD\",\"unrealized_pnl\":\"-50\",\
             \"total_value\":\"950\",\"starting_balance\":\"1000\"}"
        );
    }
}
