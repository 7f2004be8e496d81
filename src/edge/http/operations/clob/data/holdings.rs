//! Positions, open and closed, and what they are worth.

use std::cmp::Ordering;
use std::collections::HashMap;

use hyper::StatusCode;

use super::facts::Facts;
use super::position_rows::{write_closed, write_open, write_v2};
use super::request::{Bounds, PAGE_ROWS, Parameters, Unit};
use super::{User, data, list, page, percent_micros};
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::clob::{Awaited, object};
use crate::http::reply::Reply;
use paperbourse_core::engine::fills::turnover::Turnover;
use paperbourse_core::engine::market::payout::Settlement;
use paperbourse_core::engine::state::view::SettlementFilter;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::{Price, Shares, Usd};
use paperbourse_exchange::service::{PositionStatus, TradedPosition};

const POSITIONS: Bounds = Bounds { default: 100, most: 500, offset_max: 10_000 };
const CLOSED_POSITIONS: Bounds = Bounds { default: 10, most: 50, offset_max: 100_000 };

/// The smallest size of a position that is shown unless the client names another, in millionths of
/// a share.
const SIZE_LEAST: i64 = 1_000_000;

/// What positions are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SortBy {
    AveragePrice,
    Cost,
    End,
    PercentProfit,
    Price,
    Realised,
    Shares,
    Time,
    Title,
    Total,
    Unrealised,
    Value,
}

const SORTS: [(&str, SortBy); 9] = [
    ("TOKENS", SortBy::Shares),
    ("CURRENT", SortBy::Value),
    ("INITIAL", SortBy::Cost),
    ("CASHPNL", SortBy::Unrealised),
    ("PERCENTPNL", SortBy::PercentProfit),
    ("TITLE", SortBy::Title),
    ("RESOLVING", SortBy::End),
    ("PRICE", SortBy::Price),
    ("AVGPRICE", SortBy::AveragePrice),
];

const CLOSED_SORTS: [(&str, SortBy); 5] = [
    ("REALIZEDPNL", SortBy::Realised),
    ("TITLE", SortBy::Title),
    ("PRICE", SortBy::Price),
    ("AVGPRICE", SortBy::AveragePrice),
    ("TIMESTAMP", SortBy::Time),
];

const SORTS_V2: [(&str, SortBy); 7] = [
    ("CURRENT_VALUE", SortBy::Value),
    ("PRICE", SortBy::Price),
    ("TOKENS", SortBy::Shares),
    ("UNREALIZED_PNL", SortBy::Unrealised),
    ("REALIZED_PNL", SortBy::Realised),
    ("TOTAL_PNL", SortBy::Total),
    ("TIMESTAMP", SortBy::Time),
];

/// A status that the second version selects by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Open,
    Closed,
    /// What is to be redeemed or merged, which nothing is.
    Absent,
}

const STATUSES: [(&str, Status); 5] = [
    ("OPEN", Status::Open),
    ("CLOSED", Status::Closed),
    ("REDEEMABLE", Status::Absent),
    ("REDEEMABLE_LOST", Status::Absent),
    ("MERGEABLE", Status::Absent),
];

/// A position as rows show it.
pub(super) struct Holding {
    pub(super) traded: TradedPosition,
    pub(super) facts: Facts,
    /// The payout that closed it.
    pub(super) payout: Option<Settlement>,
}

impl Holding {
    pub(super) fn shares(&self) -> Shares {
        self.traded.marked.row.position.shares
    }

    /// What the shares cost, without fees.
    pub(super) fn cost(&self) -> Usd {
        self.traded.marked.row.position.cost
    }

    pub(super) fn realised(&self) -> Usd {
        self.traded.marked.row.position.realised
    }

    fn turnover(&self) -> Option<&Turnover> {
        self.traded.turnover.as_ref()
    }

    /// The shares that were ever bought, as far as their fills are kept.
    pub(super) fn bought(&self) -> Shares {
        self.turnover().map_or(Shares::ZERO, |sums| sums.bought).max(self.shares())
    }

    /// What they cost, without fees.
    pub(super) fn bought_for(&self) -> Usd {
        self.turnover().map_or(Usd::ZERO, |sums| sums.bought_for).max(self.cost())
    }

    /// The fees that were paid for them.
    pub(super) fn bought_fees(&self) -> Usd {
        self.turnover().map_or(Usd::ZERO, |sums| sums.bought_fees)
    }

    /// What a share cost on average: one that is held, or one of those that were bought.
    pub(super) fn average_price(&self) -> Price {
        if self.is_open() {
            return self.traded.marked.row.position.average_entry_price();
        }
        let of_payout = || self.payout.and_then(|paid| paid.cost.per_share(paid.shares));
        let of_fills = self.turnover().and_then(|sums| sums.bought_for.per_share(sums.bought));
        of_fills.or_else(of_payout).unwrap_or(Price::ZERO)
    }

    /// The displayed price. If none is known, the payout, or what the shares cost: a position
    /// without a price counts at cost.
    pub(super) fn price(&self) -> Price {
        let paid = || self.payout.map(|paid| paid.payout_per_share);
        let cost = || if self.is_open() { self.average_price() } else { Price::ZERO };
        self.traded.marked.price.or_else(paid).unwrap_or_else(cost)
    }

    pub(super) fn value(&self) -> Usd {
        self.traded.marked.value().unwrap_or_else(|| self.cost())
    }

    pub(super) fn unrealised(&self) -> Usd {
        self.value() - self.cost()
    }

    /// What the shares would bring above their cost, in millionths of a percent.
    pub(super) fn percent_unrealised(&self) -> i64 {
        percent_micros(self.unrealised().micros(), self.cost().micros())
    }

    /// What shares that are gone have brought above their cost, in millionths of a percent.
    pub(super) fn percent_realised(&self) -> i64 {
        let cost_of_gone = self.bought_for() - self.cost();
        percent_micros(self.realised().micros(), cost_of_gone.micros())
    }

    /// When shares were first bought, as far as fills are kept.
    pub(super) fn first_at(&self) -> Option<Timestamp> {
        self.turnover().map(|sums| sums.first_at)
    }

    /// When it last changed, as far as fills are kept.
    pub(super) fn last_at(&self) -> Option<Timestamp> {
        self.turnover().map(|sums| sums.last_at).max(self.payout.map(|paid| paid.at))
    }

    pub(super) fn is_open(&self) -> bool {
        self.traded.marked.row.position.is_open()
    }

    /// Whether it was ever held, as far as is known: all fills of it may have been undone.
    fn was_held(&self) -> bool {
        self.is_open() || self.turnover().is_some() || self.payout.is_some()
    }

    /// Returns the number by which positions are sorted, and the text where it is a text.
    fn key(&self, by: SortBy) -> (i64, &str) {
        let nanos = |time: Option<Timestamp>| time.map_or(0, Timestamp::nanos);
        let number = match by {
            SortBy::Title => return (0, self.facts.title()),
            SortBy::AveragePrice => self.average_price().micros(),
            SortBy::Cost => self.cost().micros(),
            SortBy::End => nanos(self.facts.end_date()),
            SortBy::PercentProfit => self.percent_unrealised(),
            SortBy::Price => self.price().micros(),
            SortBy::Realised => self.realised().micros(),
            SortBy::Shares => self.shares().micros(),
            SortBy::Time => nanos(self.last_at()),
            SortBy::Total => (self.realised() + self.unrealised()).micros(),
            SortBy::Unrealised => self.unrealised().micros(),
            SortBy::Value => self.value().micros(),
        };
        (number, "")
    }
}

/// Lists the open positions of a user.
pub(in crate::http::operations::clob) async fn positions(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let part = parameters.part(POSITIONS)?;
    let selection = parameters.selection()?;
    let least = parameters.amount("sizeThreshold")?.unwrap_or(SIZE_LEAST);
    let [redeemable, mergeable] =
        [parameters.flag("redeemable")?, parameters.flag("mergeable")?].map(|it| it == Some(true));
    let by = parameters.choice("sortBy", &SORTS)?.unwrap_or(SortBy::Shares);
    let is_ascending = parameters.is_ascending("sortDirection")?;
    let mut rows = holdings(call, &user).await?;
    rows.retain(|holding| {
        holding.is_open()
            && holding.shares().micros() >= least
            && selection.fits(&holding.traded.marked.row.market_id, &holding.facts)
            // What is resolved is paid at once, and nothing is merged.
            && !redeemable
            && !mergeable
    });
    sort(&mut rows, by, is_ascending);
    let rows = rows.iter().skip(part.offset).take(part.limit);
    Ok(list(rows, 1_024, |out, holding| write_open(out, &user, holding)))
}

/// Lists the positions of a user that were sold or paid out.
pub(in crate::http::operations::clob) async fn closed_positions(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let part = parameters.part(CLOSED_POSITIONS)?;
    let selection = parameters.selection()?;
    let by = parameters.choice("sortBy", &CLOSED_SORTS)?.unwrap_or(SortBy::Realised);
    let is_ascending = parameters.is_ascending("sortDirection")?;
    let mut rows = holdings(call, &user).await?;
    rows.retain(|holding| {
        !holding.is_open() && selection.fits(&holding.traded.marked.row.market_id, &holding.facts)
    });
    sort(&mut rows, by, is_ascending);
    let rows = rows.iter().skip(part.offset).take(part.limit);
    Ok(list(rows, 768, |out, holding| write_closed(out, &user, holding)))
}

/// Lists positions of a user, open ones unless the client asks for others.
pub(in crate::http::operations::clob) async fn positions_v2(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let limit = parameters.part(PAGE_ROWS)?.limit;
    let offset = read_cursor(parameters)?;
    let selection = parameters.selection()?;
    let status = parameters.choice("status", &STATUSES)?.unwrap_or(Status::Open);
    let least = parameters.least(["filter_type", "filter_amount"])?;
    let [start, end] = parameters.period()?;
    let default = if status == Status::Closed { SortBy::Realised } else { SortBy::Value };
    let by = parameters.choice("sort_by", &SORTS_V2)?.unwrap_or(default);
    let is_ascending = parameters.is_ascending("sort_direction")?;
    let mut rows = holdings(call, &user).await?;
    rows.retain(|holding| {
        let is_asked_for = match status {
            Status::Open => holding.is_open(),
            Status::Closed => !holding.is_open(),
            Status::Absent => false,
        };
        let amount = |unit| match (unit, holding.is_open()) {
            (Unit::Cash, true) => holding.value().micros(),
            (Unit::Cash, false) => holding.bought_for().micros(),
            (Unit::Tokens, true) => holding.shares().micros(),
            (Unit::Tokens, false) => holding.bought().micros(),
        };
        is_asked_for
            && selection.fits(&holding.traded.marked.row.market_id, &holding.facts)
            && least.is_none_or(|(unit, least)| amount(unit) >= least)
            && start.is_none_or(|start| holding.last_at().is_some_and(|at| at >= start))
            && end.is_none_or(|end| holding.last_at().is_some_and(|at| at <= end))
    });
    sort(&mut rows, by, is_ascending);
    let next = offset.saturating_add(limit);
    let next = (limit > 0 && next < rows.len()).then(|| next.to_string());
    let rows = rows.iter().skip(offset).take(limit);
    Ok(page(rows, 1_280, next.as_deref(), |out, holding| write_v2(out, &user, holding)))
}

/// Reads how many rows the pages before this one had.
fn read_cursor(parameters: Parameters<'_>) -> Result<usize, ClobError> {
    let cursor = parameters.text("cursor").map(|text| text.parse());
    cursor.transpose().map(Option::unwrap_or_default).map_err(|_| ClobError::INVALID_PAYLOAD)
}

/// Returns what the open positions of a user are worth, in a list.
pub(in crate::http::operations::clob) async fn value(call: &Call<'_>) -> Awaited {
    let (user, value) = value_of(call).await?;
    let mut out = Vec::with_capacity(96);
    write_list(&mut out, [value], |out, value| {
        let mut row = JsonObject::new(out);
        row.text("user", &user.wallet.to_string());
        row.number("value", value.micros());
        row.end();
    });
    Ok(Reply::json(StatusCode::OK, out))
}

/// Returns what the open positions of a user are worth.
pub(in crate::http::operations::clob) async fn value_v2(call: &Call<'_>) -> Awaited {
    let (user, value) = value_of(call).await?;
    Ok(data(|body| {
        body.text("proxy_wallet", &user.wallet.to_string());
        body.number("value", value.micros());
    }))
}

async fn value_of(call: &Call<'_>) -> Result<(User, Usd), ClobRefusal> {
    let user = User::of(call).await?;
    let selection = Parameters(call.head.uri.query()).selection()?;
    let Some(account) = user.account else { return Ok((user, Usd::ZERO)) };
    let positions = call.service().positions_of(account, call.context).await?;
    let open = positions.iter().filter(|marked| {
        let market_id = &marked.row.market_id;
        marked.row.position.is_open() && selection.fits(market_id, &Facts::of(call, market_id))
    });
    let value = open.map(|marked| marked.value().unwrap_or(marked.row.position.cost)).sum();
    Ok((user, value))
}

/// Returns in how many markets a user has traded.
pub(in crate::http::operations::clob) async fn traded(call: &Call<'_>) -> Awaited {
    let user = User::of(call).await?;
    let mut markets = Vec::new();
    if let Some(account) = user.account {
        let positions = call.service().positions_of(account, call.context).await?;
        markets = positions.iter().map(|marked| marked.row.position.market.0).collect();
        markets.sort_unstable();
        markets.dedup();
    }
    Ok(object(|body| {
        body.text("user", &user.wallet.to_string());
        body.integer("traded", markets.len() as u64);
    }))
}

/// Returns all positions of a user, oldest first, without those that a reset closed.
pub(super) async fn holdings(call: &Call<'_>, user: &User) -> Result<Vec<Holding>, ClobRefusal> {
    let Some(account) = user.account else { return Ok(Vec::new()) };
    let positions = call.service().traded_positions(account, call.context).await?;
    let filter = SettlementFilter::default();
    let payouts = call.service().payouts_of(account, filter, call.context).await?;
    let payouts: HashMap<u64, Settlement> =
        payouts.into_iter().map(|row| (row.number, row.settlement)).collect();
    let kept = |traded: &TradedPosition| traded.marked.status() != PositionStatus::ClosedByReset;
    let rows = positions.into_iter().filter(kept).map(|traded| Holding {
        facts: Facts::of(call, &traded.marked.row.market_id),
        payout: payouts.get(&traded.marked.row.number).copied(),
        traded,
    });
    Ok(rows.filter(Holding::was_held).collect())
}

/// Sorts positions; those that are equal stay in the order of opening.
fn sort(rows: &mut [Holding], by: SortBy, is_ascending: bool) {
    rows.sort_by(|left, right| -> Ordering {
        let order = left.key(by).cmp(&right.key(by));
        if is_ascending { order } else { order.reverse() }
    });
}
