//! The fills and the settlements of an account as CSV files, newest first.
//!
//! A file is sent page by page. Each page is read from the account's shard once the client has
//! taken the one before it. Fills are read by number, so new fills do not shift the rest.

mod file;

use std::net::IpAddr;
use std::sync::Arc;

use hyper::header::{CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};

use super::account::{FROM, FillFields, MARKET, SettledRow, TO, read_settlement_filter};
use crate::http::app::AppState;
use crate::http::call::{Answer, Call};
use crate::http::connection::ReplyBody;
use crate::http::csv::Line;
use crate::http::error::ApiError;
use crate::http::invalid::Invalid;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::ws::counts::OpenExport;
use file::{File, List};
use paperbourse_core::engine::fills::{FillCursor, FillFilter, PastFill};
use paperbourse_core::engine::state::view::{SettlementFilter, SettlementRow};
use paperbourse_exchange::service::{Caller, RequestContext, ServiceError, Wallet};
use paperbourse_store::journal::Waiters;

/// Maximum number of rows in a file; a last line says if there are more.
pub(in crate::http) const ROWS_PER_FILE_MAX: usize = 1_000_000;

/// Maximum number of exports of an account that are sent at the same time.
const EXPORTS_PER_ACCOUNT_MAX: u32 = 2;

/// The parameters of the query.
pub(in crate::http) const QUERY: [Parameter; 4] = [FROM, TO, MARKET, Parameter::WALLET];

/// The error codes of an export, besides those of every operation.
pub(in crate::http) const ERRORS: [&str; 4] =
    ["HTTP_VERSION_TOO_OLD", "ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND", "EXPORT_LIMIT_EXCEEDED"];

pub(in crate::http) async fn trades(call: &Call<'_>) -> Answer {
    let SettlementFilter { market_id, from, to } = open(call)?;
    let filter = FillFilter { market_id, from, to, ..FillFilter::default() };
    send(call, Fills { reader: Reader::of(call), filter, from: FillCursor::newest(0) }).await
}

pub(in crate::http) async fn settlements(call: &Call<'_>) -> Answer {
    let filter = open(call)?;
    send(call, Settlements { reader: Reader::of(call), filter, before: None }).await
}

/// Makes the checks that precede the first read.
fn open(call: &Call<'_>) -> Result<SettlementFilter, ApiError> {
    call.require_streams()?;
    let (filter, wallet) = read_query(call.query())?;
    call.caller.require_own(wallet)?;
    Ok(filter)
}

/// Reads the first page, so that a failure there is answered with an error, and then sends the
/// file.
async fn send<L: List>(call: &Call<'_>, list: L) -> Answer {
    let open = open_export(call)?;
    let mut file = File::new(list, ROWS_PER_FILE_MAX, open);
    let mut first = format!("{}\r\n", L::COLUMNS).into_bytes();
    let has_more = file.write_page(&mut first).await?;
    let mut reply = Reply::json(StatusCode::OK, first);
    if has_more {
        let first = std::mem::take(&mut reply.body);
        if call.head.method != Method::HEAD {
            reply.instead = Some(ReplyBody::Stream(file.into_source(first), None));
        }
    }
    let disposition = format!("attachment; filename=\"{}\"", L::FILE_NAME);
    let disposition = HeaderValue::try_from(disposition).expect("a file name is visible ASCII");
    let headers = &mut reply.headers;
    headers
        .insert(CONTENT_TYPE, HeaderValue::from_static("text/csv; charset=utf-8; header=present"));
    headers.insert(CONTENT_DISPOSITION, disposition);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(reply)
}

fn open_export(call: &Call<'_>) -> Result<OpenExport, ApiError> {
    let open = call.app.exports.try_open(call.caller.account()?, EXPORTS_PER_ACCOUNT_MAX);
    open.ok_or_else(|| ApiError::export_limit_exceeded(EXPORTS_PER_ACCOUNT_MAX))
}

/// Reads the filter and the wallet. Fills are filtered like settlements.
fn read_query(mut query: Query<'_>) -> Result<(SettlementFilter, Wallet), Invalid> {
    let filter = read_settlement_filter(&mut query);
    let wallet = query.wallet();
    query.finish((filter, wallet))
}

/// The state that an export needs to keep reading after its request handler has returned.
struct Reader {
    app: Arc<AppState>,
    waiters: Arc<Waiters>,
    caller: Caller,
    address: IpAddr,
}

impl Reader {
    fn of(call: &Call<'_>) -> Self {
        Self {
            app: call.app.clone(),
            waiters: call.context.waiters.clone(),
            caller: call.caller.clone(),
            address: call.context.address,
        }
    }

    /// Returns a context for the next read.
    fn context(&self) -> RequestContext<'_> {
        let moment = self.app.service.moment();
        RequestContext { moment, address: self.address, waiters: &self.waiters }
    }

    /// Fails if the credential is no longer valid or the account was erased. An erased account has
    /// no rows, so its file would look complete.
    fn require_valid(&self) -> Result<(), ServiceError> {
        let service = &self.app.service;
        service.require_valid(&self.caller, service.moment().now)?;
        service.require_unerased(&self.caller)
    }
}

struct Fills {
    reader: Reader,
    filter: FillFilter,
    from: FillCursor,
}

impl List for Fills {
    type Row = PastFill;
    const FILE_NAME: &'static str = "trades.csv";
    const COLUMNS: &'static str = FillFields::COLUMNS;

    async fn read(&mut self, limit: usize) -> Result<(Vec<PastFill>, bool), ServiceError> {
        let Reader { app, caller, .. } = &self.reader;
        let (filter, context) = (self.filter.clone(), self.reader.context());
        let page = app.service.fill_page(caller, filter, self.from, limit, context).await?;
        // Checked after the read, during which the key may have been revoked or the account erased.
        self.reader.require_valid()?;
        self.from = page.next.unwrap_or(self.from);
        Ok((page.fills, page.next.is_some()))
    }

    fn write(row: &PastFill, line: &mut Line<'_>) {
        FillFields::of(row).write_csv(line);
    }
}

struct Settlements {
    reader: Reader,
    filter: SettlementFilter,
    /// The position before which the next page starts; `None` at the start of the list.
    before: Option<u64>,
}

impl List for Settlements {
    type Row = SettlementRow;
    const FILE_NAME: &'static str = "settlements.csv";
    const COLUMNS: &'static str = SettledRow::COLUMNS;

    async fn read(&mut self, limit: usize) -> Result<(Vec<SettlementRow>, bool), ServiceError> {
        let Reader { app, caller, .. } = &self.reader;
        let (filter, context) = (self.filter.clone(), self.reader.context());
        let service = &app.service;
        let page = service.settlement_page(caller, filter, self.before, limit, context).await?;
        self.reader.require_valid()?;
        self.before = page.next;
        Ok((page.rows, page.next.is_some()))
    }

    fn write(row: &SettlementRow, line: &mut Line<'_>) {
        SettledRow::of(row).write_csv(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::query::tests::query;
    use paperbourse_core::ids::Timestamp;

    #[test]
    fn an_export_is_of_a_period_and_a_market() {
        let read = |text| read_query(query("GET /v1/export/trades.csv", text));
        let all = SettlementFilter { market_id: None, from: None, to: None };
        assert_eq!(read(None), Ok((all, Wallet::Own)));
        let expected = SettlementFilter {
            market_id: Some("0xa".into()),
            from: Some(Timestamp::from_seconds(86_400)),
            to: Some(Timestamp::from_nanos(2 * 86_400_000_000_000 - 1)),
        };
        let text = "market_id=0xa&from=1970-01-02&to=1970-01-02&wallet_id=api";
        assert_eq!(read(Some(text)), Ok((expected, Wallet::Own)));
        for (text, expected) in [
            (
                "from=yesterday&to=",
                vec!["query.from: datetime_parsing", "query.to: datetime_parsing"],
            ),
            ("market_id=", vec!["query.market_id: string_too_short"]),
            ("wallet_id=x", vec!["query.wallet_id: int_parsing"]),
        ] {
            assert_eq!(errors_of(&read(Some(text))), expected, "{text}");
        }
    }
}
