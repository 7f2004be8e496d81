//! What a wallet has: cash and shares.

use super::{Answer, Awaited, object, request};
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::json::write::JsonObject;
use crate::trouble::Moved;
use paperbourse_exchange::service::ServiceError;

/// The venue's contracts that take orders, on either chain. Clients look up those that they trade
/// with.
const EXCHANGES: [&str; 8] = [
    "0x4bFb41d5B3570DeFd03C39a9A4D8dE6Bd8B8982E",
    "0xC5d563A36AE78145C45a50134d48A1215220f80a",
    "0xdFE02Eb6733538f8Ea35D585af8DE5958AD99E40",
    "0xd91E80cF2E7be2e162c6513ceD06f1dD0dA35296",
    "0xE111180000d2663C0091e4f400237545B87B996B",
    "0xe2222d279d744050d28e00520010520000310F59",
    "0xe3333700cA9d93003F00f0F71f8515005F6c00Aa",
    "0x9fE6e61422AdB6F610d8597F9684b16912D50C3D",
];

/// What each of them may spend: everything, 2^256 - 1.
const UNLIMITED: &str =
    "115792089237316195423570985008687907853269984665640564039457584007913129639935";

/// The types of wallets: an account of its own, a proxy, a safe and a deposit wallet.
const SIGNATURE_TYPES: [&str; 4] = ["0", "1", "2", "3"];

/// Says that the wallet may open positions.
#[expect(clippy::unnecessary_wraps, reason = "all rows of the table run functions of one type")]
pub(super) fn closed_only(_: &Call<'_>) -> Answer {
    Ok(object(|body| body.flag("closed_only", false)))
}

/// Returns the cash, or the shares of one outcome, in millionths. Like the venue's, they include
/// what open orders hold back. All wallets of a signer are one account, so the type of the wallet
/// does not matter.
pub(super) async fn balance(call: &Call<'_>) -> Awaited {
    if let Some(of) = request::parameter(call, "signature_type")
        && !SIGNATURE_TYPES.contains(&&*of)
    {
        return Err(ClobError::INVALID_SIGNATURE_TYPE.into());
    }
    let _still = call.hold_still().await;
    let micros = match request::parameter(call, "asset_type").as_deref() {
        Some("COLLATERAL") => {
            let cash = call.service().cash(&call.caller, call.context).await?;
            (cash - moved(call, None)?.cash).micros()
        }
        Some("CONDITIONAL" | "CONDITIONAL-V2") => shares_micros(call).await?,
        _ => return Err(ClobError::INVALID_ASSET_TYPE.into()),
    };
    Ok(object(|body| {
        body.text("balance", &micros.to_string());
        let mut allowances = JsonObject::new(body.value("allowances"));
        for exchange in EXCHANGES {
            allowances.text(exchange, UNLIMITED);
        }
        allowances.end();
    }))
}

/// Returns the shares of the outcome in the query, in millionths.
async fn shares_micros(call: &Call<'_>) -> Result<i64, ClobRefusal> {
    let outcome = request::outcome(call, ClobError::NO_BOOK)?;
    let shares = call.service().shares(&call.caller, &outcome, call.context).await?;
    let token_id = &outcome.market.info().outcomes[usize::from(outcome.outcome.0)].token_id;
    let moved = moved(call, Some(token_id))?;
    Ok((shares - moved.shares).micros())
}

/// Returns what trades have moved that are not settled: at the venue, balances do not show it yet.
fn moved(call: &Call<'_>, token_id: Option<&str>) -> Result<Moved, ServiceError> {
    let Some(trouble) = &call.app.trouble else { return Ok(Moved::default()) };
    Ok(trouble.moved(call.caller.account()?, token_id))
}
