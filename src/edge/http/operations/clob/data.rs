//! The venue's Data API: what wallets hold and have done. As at the venue, it needs no credentials:
//! whoever knows an address may read it.
//!
//! Rows come from positions, fills and settlements of the wallet's account. They name the wallet
//! that was asked for, since clients compare it with their own, and all wallets of a signer share
//! one account. A resolved market has been paid already, so nothing can be redeemed, and the payout
//! is an activity.

mod activity;
mod facts;
mod holdings;
mod pnl;
mod position_rows;
mod references;
mod request;
mod trade_rows;
mod walk;

use hyper::StatusCode;

use self::request::Parameters;
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::json::write::{JsonObject, write_list};
use crate::http::reply::Reply;
use paperbourse_clob::signature::address::Address;
use paperbourse_core::ids::AccountId;
use paperbourse_core::money::div_half_even;

pub(super) use activity::{activity, activity_v2, trades, trades_v2};
pub(super) use holdings::{closed_positions, positions, positions_v2, traded, value, value_v2};
pub(super) use pnl::{user_pnl, user_stats, user_volume};
pub(super) use references::{live_volume, live_volume_v2, prices, tokens};

/// The index of an outcome that nobody can name, the venue's.
const NO_INDEX: u64 = 999;

/// The wallet that a request asks for, and its account if it has one.
struct User {
    wallet: Address,
    account: Option<AccountId>,
}

impl User {
    /// Finds the user in the query. Fails with [`ClobError::NO_USER`] without an address.
    async fn of(call: &Call<'_>) -> Result<Self, ClobRefusal> {
        let text = super::request::filled(call.head.uri.query(), "user").unwrap_or_default();
        let wallet = Address::parse(&*text).map_err(|_| ClobError::NO_USER)?;
        let account = call.service().account_of_wallet(wallet, call.context).await?;
        Ok(Self { wallet, account })
    }
}

/// Answers with a list, each row with `write`.
fn list<T>(
    rows: impl IntoIterator<Item = T>,
    row_bytes: usize,
    write: impl FnMut(&mut Vec<u8>, T),
) -> Reply {
    let rows = rows.into_iter();
    let mut body = Vec::with_capacity(16 + row_bytes * rows.size_hint().0);
    write_list(&mut body, rows, write);
    Reply::json(StatusCode::OK, body)
}

/// Answers with a page of a list, and the cursor of the next one.
fn page<T>(
    rows: impl IntoIterator<Item = T>,
    row_bytes: usize,
    next: Option<&str>,
    write: impl FnMut(&mut Vec<u8>, T),
) -> Reply {
    let rows = rows.into_iter();
    let mut out = Vec::with_capacity(128 + row_bytes * rows.size_hint().0);
    let mut body = JsonObject::new(&mut out);
    write_list(body.value("data"), rows, write);
    let mut pagination = JsonObject::new(body.value("pagination"));
    pagination.flag("has_more", next.is_some());
    pagination.text_or_null("next_cursor", next);
    pagination.end();
    body.end();
    Reply::json(StatusCode::OK, out)
}

/// Answers with a whole list in `data`.
fn rows<T>(
    rows: impl IntoIterator<Item = T>,
    row_bytes: usize,
    write: impl FnMut(&mut Vec<u8>, T),
) -> Reply {
    let rows = rows.into_iter();
    let mut out = Vec::with_capacity(16 + row_bytes * rows.size_hint().0);
    let mut body = JsonObject::new(&mut out);
    write_list(body.value("data"), rows, write);
    body.end();
    Reply::json(StatusCode::OK, out)
}

/// Answers with a list in `data` that has no rows.
#[expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]
pub(super) fn no_rows(_: &Call<'_>) -> super::Answer {
    Ok(rows([(); 0], 0, |_, ()| {}))
}

/// Answers with a page that has no rows.
#[expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]
pub(super) fn no_page(_: &Call<'_>) -> super::Answer {
    Ok(page([(); 0], 0, None, |_, ()| {}))
}

/// Answers with a page of the best traders, of whom there are none; with `user`, with its place,
/// which is null.
pub(super) fn no_leaders(call: &Call<'_>) -> super::Answer {
    let user = Parameters(call.head.uri.query()).text("user");
    let nowhere = || Reply::json(StatusCode::OK, b"{\"data\":null}".to_vec());
    user.map_or_else(|| no_page(call), |_| Ok(nowhere()))
}

/// Answers with an object in `data`.
fn data(write: impl FnOnce(&mut JsonObject<'_>)) -> Reply {
    super::object(|body| {
        let mut object = JsonObject::new(body.value("data"));
        write(&mut object);
        object.end();
    })
}

/// Returns the part in percent of the whole, in millionths of a percent, rounded half to even; 0 of
/// nothing.
fn percent_micros(part: i64, whole: i64) -> i64 {
    if whole == 0 {
        return 0;
    }
    let percent = div_half_even(i128::from(part) * 100_000_000, i128::from(whole));
    i64::try_from(percent).unwrap_or(if part < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_are_exact_to_a_millionth() {
        for (part, whole, expected) in [
            (1, 3, 33_333_333),
            (-1, 3, -33_333_333),
            (5_000_000, 5_000_000, 100_000_000),
            (7, 0, 0),
            (0, 7, 0),
            (i64::MAX, 1, i64::MAX),
            (-i64::MAX, 1, i64::MIN),
        ] {
            assert_eq!(percent_micros(part, whole), expected, "{part} of {whole}");
        }
    }

    #[test]
    fn a_page_and_its_cursor_agree() {
        let text = |next: Option<&str>| {
            let reply = page([1_u64, 2], 8, next, |out, row| {
                out.extend_from_slice(row.to_string().as_bytes());
            });
            String::from_utf8(reply.body).unwrap()
        };
        let last = r#"{"data":[1,2],"pagination":{"has_more":false,"next_cursor":null}}"#;
        assert_eq!(text(None), last);
        let more = r#"{"data":[1,2],"pagination":{"has_more":true,"next_cursor":"7"}}"#;
        assert_eq!(text(Some("7")), more);
    }
}
