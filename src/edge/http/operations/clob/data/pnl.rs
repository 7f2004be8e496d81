//! What a user has made, and how much it has traded.

use hyper::StatusCode;

use super::holdings::{Holding, holdings};
use super::position_rows::seconds;
use super::request::Parameters;
use super::walk::{Filter, Place, Walk};
use super::{User, data};
use crate::http::call::Call;
use crate::http::error::ClobRefusal;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::clob::Awaited;
use crate::http::reply::Reply;
use paperbourse_core::money::{Shares, Usd};

/// How far back a series goes, and its steps. Here a series has one point, the present.
const INTERVALS: [(&str, &str); 7] = [
    ("max", "max"),
    ("all", "all"),
    ("1m", "1m"),
    ("1w", "1w"),
    ("1d", "1d"),
    ("12h", "12h"),
    ("6h", "6h"),
];
const FIDELITIES: [(&str, &str); 5] =
    [("1d", "1d"), ("18h", "18h"), ("12h", "12h"), ("3h", "3h"), ("1h", "1h")];

/// Sums over the positions of a user.
#[derive(Default)]
struct Sums {
    fill_count: u64,
    realised: Usd,
    unrealised: Usd,
    shares: Shares,
    dollars: Usd,
    fees: Usd,
}

impl Sums {
    fn of(holdings: &[Holding]) -> Self {
        let mut sums = Self::default();
        for holding in holdings {
            sums.realised += holding.realised();
            sums.unrealised += holding.unrealised();
            let Some(traded) = &holding.traded.turnover else { continue };
            sums.fill_count += traded.fill_count;
            sums.shares += traded.bought + traded.sold;
            sums.dollars += traded.bought_for + traded.sold_for;
            sums.fees += traded.bought_fees + traded.sold_fees;
        }
        sums
    }

    /// Writes the point of a series at this moment.
    fn write(&self, call: &Call<'_>, point: &mut JsonObject<'_>) {
        point.integer("timestamp", seconds(Some(call.context.moment.now)));
        point.integer("source_block", 0);
        point.integer("trade_count", self.fill_count);
        point.number("realized_market_pnl", self.realised.micros());
        point.number("realized_lp_pnl", 0);
        point.number("realized_combo_pnl", 0);
        point.number("realized_pnl", self.realised.micros());
        point.number("volume", self.shares.micros());
        point.number("volume_usdc", self.dollars.micros());
        point.number("unrealized_pnl", self.unrealised.micros());
        point.number("position_pnl", (self.realised + self.unrealised).micros());
        point.number("trade_pnl", (self.realised + self.unrealised - self.fees).micros());
        point.number("fees", self.fees.micros());
        point.number("fees_paid", self.fees.micros());
    }
}

/// Returns what a user has made up to now.
pub(in crate::http::operations::clob) async fn user_pnl(call: &Call<'_>) -> Awaited {
    let parameters = Parameters(call.head.uri.query());
    let user = User::of(call).await?;
    let interval = parameters.choice("interval", &INTERVALS)?.unwrap_or("1m");
    let fidelity = parameters.choice("fidelity", &FIDELITIES)?.unwrap_or("1d");
    let holdings = holdings(call, &user).await?;
    let sums = user.account.map(|_| Sums::of(&holdings));
    Ok(data(|body| {
        body.text("proxy_wallet", &user.wallet.to_string());
        body.word("interval", interval);
        body.word("fidelity", fidelity);
        body.word("source_fidelity", fidelity);
        write_list(body.value("points"), sums, |out, sums| {
            let mut point = JsonObject::new(out);
            sums.write(call, &mut point);
            point.end();
        });
    }))
}

/// Returns in how many markets a user has traded, and its greatest profit; null for an unknown one.
pub(in crate::http::operations::clob) async fn user_stats(call: &Call<'_>) -> Awaited {
    let user = User::of(call).await?;
    let Some(opened_at) = opened_at(call, &user).await? else {
        return Ok(Reply::json(StatusCode::OK, b"{\"data\":null}".to_vec()));
    };
    let holdings = holdings(call, &user).await?;
    let mut markets: Vec<_> =
        holdings.iter().map(|holding| holding.traded.marked.row.position.market.0).collect();
    markets.sort_unstable();
    markets.dedup();
    let biggest_win = holdings.iter().map(Holding::realised).max().unwrap_or(Usd::ZERO);
    Ok(data(|body| {
        body.text("proxy_wallet", &user.wallet.to_string());
        body.integer("trades", markets.len() as u64);
        body.number("biggest_win", biggest_win.max(Usd::ZERO).micros());
        body.integer("views", 0);
        body.integer("join_date", opened_at);
        let mut point = JsonObject::new(body.value("all_time_pnl"));
        Sums::of(&holdings).write(call, &mut point);
        point.end();
    }))
}

/// Returns how much a user has traded in a period, as far as its fills are kept.
pub(in crate::http::operations::clob) async fn user_volume(call: &Call<'_>) -> Awaited {
    let user = User::of(call).await?;
    let period = Parameters(call.head.uri.query()).period()?;
    let [mut shares_micros, mut dollars_micros] = [0_i64; 2];
    let mut count = 0;
    if let Some(account) = user.account {
        let filter = Filter { has_trades: true, period, ..Filter::default() };
        let mut walk = Walk::begin(call, account, filter, Place::START).await?;
        while let Some(trade) = walk.next().await? {
            shares_micros = shares_micros.saturating_add(trade.shares_micros());
            dollars_micros = dollars_micros.saturating_add(trade.dollars_micros());
            count += 1;
        }
    }
    Ok(data(|body| {
        body.number("volume", shares_micros);
        body.number("volume_usdc", dollars_micros);
        body.integer("trade_count", count);
    }))
}

/// Returns when the account of a user was opened, in seconds since 1970.
async fn opened_at(call: &Call<'_>, user: &User) -> Result<Option<u64>, ClobRefusal> {
    let Some(account) = user.account else { return Ok(None) };
    let opened_at = call.service().opened_at(account, call.context).await?;
    Ok(Some(seconds(Some(opened_at))))
}
