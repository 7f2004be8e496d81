//! Trades of a user, and everything that changed its positions: trades and payouts.

use super::request::{Bounds, PAGE_ROWS, Parameters, Part};
use super::trade_rows::{write_activity, write_activity_v2, write_trade, write_trade_v2};
use super::walk::{Filter, Happened, Place, Walk};
use super::{User, list, page};
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::operations::clob::Awaited;

const TRADES: Bounds = Bounds { default: 100, most: 10_000, offset_max: 10_000 };
const ACTIVITY: Bounds = Bounds { default: 100, most: 500, offset_max: 10_000 };

/// What an activity list is sorted by.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SortBy {
    Time,
    Shares,
    Dollars,
}

const SORTS: [(&str, SortBy); 3] =
    [("TIMESTAMP", SortBy::Time), ("TOKENS", SortBy::Shares), ("CASH", SortBy::Dollars)];

/// The order of a list.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Order {
    by: SortBy,
    is_ascending: bool,
}

impl Order {
    /// The order in which they are read.
    const NEWEST_FIRST: Self = Self { by: SortBy::Time, is_ascending: false };

    /// Sorts what is in the order of [`Self::NEWEST_FIRST`], in which equal rows stay.
    fn sort(self, rows: &mut [(u64, Happened)]) {
        rows.sort_by_key(|(place, happened)| {
            let key = match self.by {
                SortBy::Time => 0,
                SortBy::Shares => happened.shares_micros(),
                SortBy::Dollars => happened.dollars_micros(),
            };
            let place = i128::from(*place);
            match (self.by, self.is_ascending) {
                (SortBy::Time, true) => (-place, 0),
                (SortBy::Time, false) => (place, 0),
                (_, true) => (i128::from(key), place),
                (_, false) => (-i128::from(key), place),
            }
        });
    }
}

/// Lists the trades of a user, newest first.
pub(in crate::http::operations::clob) async fn trades(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let part = parameters.part(TRADES)?;
    let filter = read_trades(parameters, "takerOnly", ["filterType", "filterAmount"])?;
    let rows = rows(call, &user, filter, Order::NEWEST_FIRST, part).await?;
    Ok(list(rows, 640, |out, row| write_trade(out, &user, &row)))
}

/// Lists the trades of a user in pages, newest first.
pub(in crate::http::operations::clob) async fn trades_v2(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let filter = read_trades(parameters, "taker_only", ["filter_type", "filter_amount"])?;
    let (rows, next) = page_of(call, &user, filter).await?;
    Ok(page(rows, 640, next.as_deref(), |out, row| write_trade_v2(out, &user, &row)))
}

/// Lists the trades and payouts of a user.
pub(in crate::http::operations::clob) async fn activity(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let part = parameters.part(ACTIVITY)?;
    let by = parameters.choice("sortBy", &SORTS)?.unwrap_or(SortBy::Time);
    let order = Order { by, is_ascending: parameters.is_ascending("sortDirection")? };
    let rows = rows(call, &user, read_activity(parameters)?, order, part).await?;
    Ok(list(rows, 720, |out, row| write_activity(out, &user, &row)))
}

/// Lists the trades and payouts of a user in pages.
pub(in crate::http::operations::clob) async fn activity_v2(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let filter = read_activity(parameters)?;
    let (rows, next) = if parameters.is_ascending("sort_direction")? {
        oldest_first(call, &user, filter).await?
    } else {
        page_of(call, &user, filter).await?
    };
    Ok(page(rows, 720, next.as_deref(), |out, row| write_activity_v2(out, &user, &row)))
}

/// Reads which trades are asked for. `least` has the names of the smallest amount.
fn read_trades(
    parameters: Parameters<'_>,
    taker_only: &str,
    least: [&str; 2],
) -> Result<Filter, ClobError> {
    Ok(Filter {
        selection: parameters.selection()?,
        side: parameters.side()?,
        has_trades: true,
        has_payouts: false,
        is_taker_only: parameters.flag(taker_only)?.unwrap_or(true),
        least: parameters.least(least)?,
        period: parameters.period()?,
    })
}

/// Reads which activities are asked for.
fn read_activity(parameters: Parameters<'_>) -> Result<Filter, ClobError> {
    let types = parameters.text("type");
    let has = |wanted: &str| {
        types
            .as_deref()
            .is_none_or(|types| types.split(',').any(|it| it.trim().eq_ignore_ascii_case(wanted)))
    };
    Ok(Filter {
        selection: parameters.selection()?,
        side: parameters.side()?,
        has_trades: has("TRADE"),
        has_payouts: has("REDEEM"),
        is_taker_only: false,
        least: None,
        period: parameters.period()?,
    })
}

/// Returns part of a list. In memory are at most about twice as many rows as the part ends at.
async fn rows(
    call: &Call<'_>,
    user: &User,
    filter: Filter,
    order: Order,
    part: Part,
) -> Result<Vec<Happened>, ClobRefusal> {
    let Some(account) = user.account else { return Ok(Vec::new()) };
    let end = part.offset + part.limit;
    let mut walk = Walk::begin(call, account, filter, Place::START).await?;
    let mut rows: Vec<(u64, Happened)> = Vec::new();
    if order == Order::NEWEST_FIRST {
        let mut place = 0;
        while place < end as u64
            && let Some(happened) = walk.next().await?
        {
            // What comes before the part is only counted.
            if place >= part.offset as u64 {
                rows.push((place, happened));
            }
            place += 1;
        }
        return Ok(rows.into_iter().map(|(_, happened)| happened).collect());
    }
    let kept_max = 2 * end + 1_000;
    let mut place = 0;
    while let Some(happened) = walk.next().await? {
        rows.push((place, happened));
        place += 1;
        if rows.len() >= kept_max {
            order.sort(&mut rows);
            rows.truncate(end);
        }
    }
    order.sort(&mut rows);
    let rows = rows.into_iter().map(|(_, happened)| happened);
    Ok(rows.skip(part.offset).take(part.limit).collect())
}

/// Returns the page that the query asks for, newest first, and the cursor of the next one.
async fn page_of(
    call: &Call<'_>,
    user: &User,
    filter: Filter,
) -> Result<(Vec<Happened>, Option<String>), ClobRefusal> {
    let parameters = Parameters(call.head.uri.query());
    let limit = parameters.part(PAGE_ROWS)?.limit;
    let place = parameters.text("cursor").map_or(Some(Place::START), |text| Place::parse(&text));
    let place = place.ok_or(ClobError::INVALID_PAYLOAD)?;
    let mut rows = Vec::new();
    let Some(account) = user.account.filter(|_| limit > 0) else { return Ok((rows, None)) };
    let mut walk = Walk::begin(call, account, filter, place).await?;
    loop {
        let place = walk.place();
        match walk.next().await? {
            None => return Ok((rows, None)),
            Some(_) if rows.len() == limit => return Ok((rows, Some(place.to_text()))),
            Some(happened) => rows.push(happened),
        }
    }
}

/// Returns the page that the query asks for, oldest first, and the cursor of the next one: the
/// number of rows so far, which newer ones do not change.
async fn oldest_first(
    call: &Call<'_>,
    user: &User,
    filter: Filter,
) -> Result<(Vec<Happened>, Option<String>), ClobRefusal> {
    let parameters = Parameters(call.head.uri.query());
    let limit = parameters.part(PAGE_ROWS)?.limit;
    let offset = parameters.text("cursor").map_or(Ok(0), |text| text.parse());
    let offset: usize = offset.map_err(|_| ClobError::INVALID_PAYLOAD)?;
    if offset > ACTIVITY.offset_max {
        return Err(ClobError::INVALID_PAYLOAD.into());
    }
    let order = Order { is_ascending: true, ..Order::NEWEST_FIRST };
    // One more says whether there is a next page.
    let part = Part { offset, limit: limit + 1 };
    let mut rows = rows(call, user, filter, order, part).await?;
    let has_more = limit > 0 && rows.len() > limit;
    rows.truncate(limit);
    Ok((rows, has_more.then(|| (offset + limit).to_string())))
}
