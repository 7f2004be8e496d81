//! An account's balance, positions, fills, settlements and past value.

mod equity;
mod history;
mod portfolio;
mod reset;

pub(in crate::http) use equity::{EquityRow, QUERY as EQUITY_QUERY, equity};
pub(in crate::http) use history::{FillFields, QUERY as HISTORY_QUERY, history};
pub(in crate::http) use portfolio::{PortfolioAnswer, portfolio};
pub(in crate::http) use reset::{ResetAnswer, reset, reset_wallet};

use schemars::JsonSchema;
use serde::Serialize;

use super::order_fields::MARKET_ID_CHARACTERS_MAX;
use crate::http::call::{Answer, Call};
use crate::http::csv::Line;
use crate::http::invalid::Invalid;
use crate::http::parameter::{Parameter, words};
use crate::http::query::{Bound, Query};
use crate::http::reply::Reply;
use paperbourse_core::engine::market::payout::Settlement;
use paperbourse_core::engine::state::view::{SettlementFilter, SettlementPage, SettlementRow};
use paperbourse_core::money::Price;
use paperbourse_core::wire::{Decimal, Time};
use paperbourse_exchange::service::{Balance, MarkedPosition, Wallet};

/// Maximum number of rows in a list of settlements.
const SETTLEMENTS_MAX: usize = 500;

const POSITION_STATUSES: [(&str, bool); 2] = [("OPEN", true), ("CLOSED", false)];

/// The query of operations that take only a wallet.
pub(in crate::http) const WALLET_QUERY: [Parameter; 1] = [Parameter::WALLET];

pub(in crate::http) const POSITIONS_QUERY: [Parameter; 2] = [
    Parameter::choice("status", &words(&POSITION_STATUSES), "only open or only closed positions"),
    Parameter::WALLET,
];

pub(in crate::http) const SETTLEMENTS_QUERY: [Parameter; 6] = [
    FROM,
    TO,
    MARKET,
    Parameter::limit(100, SETTLEMENTS_MAX),
    Parameter::cursor("cursor"),
    Parameter::WALLET,
];

pub(super) const MARKET: Parameter =
    Parameter::text("market_id", 1, MARKET_ID_CHARACTERS_MAX, "only in this market");
pub(super) const FROM: Parameter = Parameter::time("from", "only from this time on");
pub(super) const TO: Parameter =
    Parameter::time("to", "only up to this time, or to the end of this day");

pub(in crate::http) async fn balance(call: &Call<'_>) -> Answer {
    call.caller.require_own(read_wallet(call.query())?)?;
    let balance = call.service().balance(&call.caller, call.context).await?;
    Ok(Reply::ok(&BalanceAnswer::of(&balance)))
}

pub(in crate::http) async fn positions(call: &Call<'_>) -> Answer {
    let (is_open, wallet) = read_positions(call.query())?;
    call.caller.require_own(wallet)?;
    let positions = call.service().positions(&call.caller, is_open, call.context).await?;
    Ok(Reply::ok(&positions.iter().map(PositionRow::of).collect::<Vec<_>>()))
}

pub(in crate::http) async fn settlements(call: &Call<'_>) -> Answer {
    let SettlementsQuery { filter, before, limit, wallet } = read_settlements(call.query())?;
    call.caller.require_own(wallet)?;
    let page =
        call.service().settlements(&call.caller, filter, before, limit, call.context).await?;
    Ok(Reply::ok(&SettlementsAnswer::of(&page)))
}

/// Reads the wallet that the request names.
pub(super) fn read_wallet(mut query: Query<'_>) -> Result<Wallet, Invalid> {
    let wallet = query.wallet();
    query.finish(wallet)
}

/// Reads the wallet and the status filter, which is `None` for both open and closed positions.
fn read_positions(mut query: Query<'_>) -> Result<(Option<bool>, Wallet), Invalid> {
    let is_open = query.choice("status", &POSITION_STATUSES);
    let wallet = query.wallet();
    query.finish((is_open, wallet))
}

#[derive(Clone, PartialEq, Debug)]
struct SettlementsQuery {
    filter: SettlementFilter,
    /// Selects settlements of positions with a lower number than this; `None` for an empty cursor.
    before: Option<u64>,
    limit: usize,
    wallet: Wallet,
}

/// Reads the filter and the page.
fn read_settlements(mut query: Query<'_>) -> Result<SettlementsQuery, Invalid> {
    let request = SettlementsQuery {
        before: query.cursor_of(["cursor"], |text| text.parse().ok().filter(|&it| it > 0)),
        limit: query.number("limit", 1, SETTLEMENTS_MAX).unwrap_or(100),
        filter: read_settlement_filter(&mut query),
        wallet: query.wallet(),
    };
    query.finish(request)
}

/// Reads a market and a period. If the period ends with a date, it includes the whole day.
pub(super) fn read_settlement_filter(query: &mut Query<'_>) -> SettlementFilter {
    SettlementFilter {
        market_id: query.text("market_id", 1, MARKET_ID_CHARACTERS_MAX).map(Into::into),
        from: query.time("from", Bound::From),
        to: query.time("to", Bound::To),
    }
}

/// The account's cash and what it is worth, in dollars.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Balance")]
pub(in crate::http) struct BalanceAnswer {
    /// What can be spent. Clients size their orders by it.
    balance: Decimal,
    #[schemars(extend("const" = "USD"))]
    currency: &'static str,
    /// What the open positions are worth above their cost.
    unrealized_pnl: Decimal,
    /// All cash, also what open orders hold back, and the value of the positions.
    total_value: Decimal,
    /// The cash that the account started with, or was reset to, and all that operators have
    /// deposited since: profit counts from here.
    starting_balance: Decimal,
    /// What open orders hold back.
    reserved: Decimal,
    /// The same as the balance.
    available: Decimal,
}

/// The shares of one outcome that the account holds or held.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Position")]
pub(in crate::http) struct PositionRow<'a> {
    /// Unique within the account.
    id: u64,
    /// The market's condition id.
    market_id: &'a str,
    /// The outcome's label.
    outcome: &'a str,
    /// In shares.
    quantity: Decimal,
    /// The quantity without what open sales hold back.
    available_quantity: Decimal,
    /// What a share cost on average, without fees.
    avg_entry_price: Decimal,
    /// Null if no price is known.
    current_price: Option<Decimal>,
    /// At the current price, in dollars.
    market_value: Option<Decimal>,
    /// The market value minus the cost, in dollars.
    unrealized_pnl: Option<Decimal>,
    /// What sales and payouts made above the cost, in dollars.
    realized_pnl: Decimal,
    #[schemars(extend("enum" = ["OPEN", "CLOSED", "CLOSED_BY_RESET"]))]
    status: &'static str,
    /// Null if the market is no longer listed.
    market_question: Option<&'a str>,
}

/// A page, and the cursor of the next one, empty if this is the last.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "SettlementList")]
pub(in crate::http) struct SettlementsAnswer<'a> {
    data: Vec<SettledRow<'a>>,
    next_cursor: String,
}

/// The payout of a position in a resolved market.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Settlement")]
pub(in crate::http) struct SettledRow<'a> {
    /// The position's id.
    position_id: u64,
    /// The market's condition id.
    market_id: &'a str,
    /// The outcome's label.
    outcome: &'a str,
    /// In shares.
    quantity: Decimal,
    /// What a share cost on average, without fees.
    avg_entry_price: Decimal,
    /// What the shares cost, in dollars.
    cost_basis: Decimal,
    /// In dollars.
    payout: Decimal,
    /// 1, 0, or what the resolution says.
    payout_per_share: Decimal,
    /// The payout minus the cost, in dollars.
    realized_pnl: Decimal,
    #[schemars(extend("enum" = ["won", "lost", "split", "partial"]))]
    result: &'static str,
    /// When it was paid.
    settled_at: Time,
}

impl BalanceAnswer {
    fn of(balance: &Balance) -> Self {
        let available = balance.ledger.available().into();
        Self {
            balance: available,
            currency: "USD",
            unrealized_pnl: balance.profit().into(),
            total_value: balance.total().into(),
            starting_balance: balance.starting_balance.into(),
            reserved: balance.ledger.reserved.into(),
            available,
        }
    }
}

impl<'a> PositionRow<'a> {
    fn of(marked: &'a MarkedPosition) -> Self {
        let position = &marked.row.position;
        Self {
            id: marked.row.number,
            market_id: &marked.row.market_id,
            outcome: &marked.row.outcome,
            quantity: position.shares.into(),
            available_quantity: (position.shares - marked.row.reserved).into(),
            avg_entry_price: position.average_entry_price().into(),
            current_price: marked.price.map(Decimal::from),
            market_value: marked.value().map(Decimal::from),
            unrealized_pnl: marked.unrealised().map(Decimal::from),
            realized_pnl: position.realised.into(),
            status: marked.status().as_str(),
            market_question: marked.question.as_deref(),
        }
    }
}

impl<'a> SettlementsAnswer<'a> {
    fn of(page: &'a SettlementPage) -> Self {
        Self {
            data: page.rows.iter().map(SettledRow::of).collect(),
            next_cursor: page.next.map(|number| number.to_string()).unwrap_or_default(),
        }
    }
}

impl<'a> SettledRow<'a> {
    /// The columns of the CSV file.
    pub(super) const COLUMNS: &'static str = "position_id,market_id,outcome,quantity,\
         avg_entry_price,cost_basis,payout,payout_per_share,realized_pnl,result,settled_at";

    pub(super) fn of(row: &'a SettlementRow) -> Self {
        let Settlement { shares, cost, payout, payout_per_share, at } = row.settlement;
        Self {
            position_id: row.number,
            market_id: &row.market_id,
            outcome: &row.outcome,
            quantity: shares.into(),
            avg_entry_price: cost.per_share(shares).unwrap_or(Price::ZERO).into(),
            cost_basis: cost.into(),
            payout: payout.into(),
            payout_per_share: payout_per_share.into(),
            realized_pnl: (payout - cost).into(),
            result: result(payout_per_share),
            settled_at: Time(at),
        }
    }

    /// Writes the fields of [`Self::COLUMNS`].
    pub(super) fn write_csv(&self, line: &mut Line<'_>) {
        line.integer(self.position_id);
        line.text(self.market_id);
        line.text(self.outcome);
        line.decimal(self.quantity);
        line.decimal(self.avg_entry_price);
        line.decimal(self.cost_basis);
        line.decimal(self.payout);
        line.decimal(self.payout_per_share);
        line.decimal(self.realized_pnl);
        line.text(self.result);
        line.time(Some(self.settled_at));
    }
}

/// Returns the result of a settled position.
fn result(payout_per_share: Price) -> &'static str {
    const HALF: Price = Price::from_micros(500_000);
    match payout_per_share {
        Price::ONE => "won",
        Price::ZERO => "lost",
        HALF => "split",
        _ => "partial",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::csv;
    use crate::http::invalid::tests::errors_of;
    use crate::http::query::tests::query;
    use paperbourse_core::engine::account::ledger::Ledger;
    use paperbourse_core::engine::account::position::Position;
    use paperbourse_core::engine::state::view;
    use paperbourse_core::ids::{AccountId, MarketIndex, OutcomeIndex, Timestamp};
    use paperbourse_core::money::{Shares, Usd};

    /// Checks that a line of a CSV file consists of these fields of the JSON object, in this order.
    #[track_caller]
    pub(super) fn check_csv(
        columns: &str,
        row: &impl Serialize,
        write: impl FnOnce(&mut Line<'_>),
    ) {
        let mut out = Vec::new();
        let mut line = Line::new(&mut out);
        write(&mut line);
        line.end();
        let object = serde_json::to_value(row).unwrap();
        let field = |name| match &object[name] {
            serde_json::Value::Null if object.get(name).is_some() => String::new(),
            serde_json::Value::String(text) => text.clone(),
            number => number.as_u64().unwrap().to_string(),
        };
        let expected: Vec<_> = columns.split(',').map(field).collect();
        assert_eq!(csv::read(std::str::from_utf8(&out).unwrap()), [expected]);
    }

    #[test]
    fn positions_are_filtered() {
        let read = |text| read_positions(query("GET /v1/account/positions", Some(text)));
        assert_eq!(read("status=open"), Ok((Some(true), Wallet::Own)));
        let other = Wallet::WithId(AccountId::from_raw(64));
        assert_eq!(read("wallet_id=64"), Ok((None, other)));
        assert_eq!(errors_of(&read("status=all")), ["query.status: enum"]);
    }

    #[test]
    fn settlements_are_filtered() {
        let read = |text| read_settlements(query("GET /v1/account/settlements", text));
        let filter = SettlementFilter::default();
        let all = SettlementsQuery { filter, before: None, limit: 100, wallet: Wallet::Own };
        assert_eq!(read(None), Ok(all.clone()));
        assert_eq!(read(Some("cursor=")), Ok(all.clone()));
        let day = 86_400;
        let expected = SettlementsQuery {
            limit: 500,
            before: Some(7),
            wallet: Wallet::Own,
            filter: SettlementFilter {
                market_id: Some("0xa".into()),
                from: Some(Timestamp::from_seconds(day)),
                to: Some(Timestamp::from_nanos(2 * day * 1_000_000_000 - 1)),
            },
        };
        let text = "limit=500&cursor=7&market_id=0xa&from=1970-01-02&to=1970-01-02";
        assert_eq!(read(Some(text)), Ok(expected));
        let from = Some(Timestamp::EPOCH);
        let exact = SettlementsQuery { filter: SettlementFilter { from, ..all.filter }, ..all };
        assert_eq!(read(Some("from=1970-01-01T01:00:00%2B01:00")), Ok(exact));
        for (text, expected) in [
            ("limit=501", "query.limit: less_than_equal"),
            ("cursor=0", "query.cursor: cursor_parsing"),
            ("cursor=x", "query.cursor: cursor_parsing"),
            ("from=yesterday", "query.from: datetime_parsing"),
            ("to=1970-02-30", "query.to: datetime_parsing"),
            ("to=9999-12-32", "query.to: datetime_parsing"),
        ] {
            assert_eq!(errors_of(&read(Some(text))), [expected], "{text}");
        }
    }

    #[test]
    fn positions_are_shown_with_and_without_a_price() {
        let open = view::PositionRow {
            number: 1,
            market_id: "0xabc".into(),
            outcome: "Yes".into(),
            outcome_index: OutcomeIndex(0),
            reserved: Shares::from_micros(500_000),
            position: Position {
                shares: Shares::from_micros(3_000_000),
                cost: Usd::from_micros(1_000_000),
                realised: Usd::from_micros(-250_000),
                ..Position::empty(MarketIndex(0), OutcomeIndex(0))
            },
        };
        let closed = view::PositionRow {
            number: 2,
            reserved: Shares::ZERO,
            position: Position::empty(MarketIndex(1), OutcomeIndex(0)),
            ..open.clone()
        };
        let rows = [
            MarkedPosition {
                row: open,
                price: Some(Price::from_micros(333_333)),
                question: Some("Will it?".into()),
            },
            MarkedPosition { row: closed, price: None, question: None },
        ];
        let rows: Vec<_> = rows.iter().map(PositionRow::of).collect();
        insta::assert_snapshot!(serde_json::to_string(&rows).unwrap());
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
        let shown =
            |page: &SettlementPage| serde_json::to_string(&SettlementsAnswer::of(page)).unwrap();
        let page = SettlementPage { rows, next: Some(4) };
        insta::assert_snapshot!(shown(&page));
        for row in &page.rows {
            let row = SettledRow::of(row);
            check_csv(SettledRow::COLUMNS, &row, |line| row.write_csv(line));
        }
        let empty = shown(&SettlementPage { rows: Vec::new(), next: None });
        assert_eq!(empty, "{\"data\":[],\"next_cursor\":\"\"}");
    }

    #[test]
    fn a_balance_counts_positions() {
        let usd = |dollars: i64| Usd::from_micros(dollars * 1_000_000);
        let ledger = Ledger {
            granted: usd(1_000),
            purchases: usd(300),
            reserved: usd(40),
            ..Ledger::default()
        };
        let balance = Balance { ledger, starting_balance: usd(1_000), position_value: usd(250) };
        assert_eq!(
            serde_json::to_string(&BalanceAnswer::of(&balance)).unwrap(),
            "{\"balance\":\"660\",\"currency\":\"USD\",\"unrealized_pnl\":\"-50\",\
             \"total_value\":\"950\",\"starting_balance\":\"1000\",\"reserved\":\"40\",\
             \"available\":\"660\"}"
        );
    }
}
