//! Wallets. An account has one, with the account's id.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::parameter::Parameter;
use crate::http::reply::Reply;
use paperbourse_core::engine::state::view::Profile;
use paperbourse_core::wire::{Decimal, Time};

/// Maximum number of rows in a list.
const ROWS_MAX: usize = 200;

pub(in crate::http) const PAGE_QUERY: [Parameter; 2] =
    [Parameter::limit(50, ROWS_MAX), Parameter::OFFSET];

pub(in crate::http) async fn list(call: &Call<'_>) -> Answer {
    let mut query = call.query();
    let page = query.page(50, ROWS_MAX);
    let page = query.finish(page)?;
    let profile = call.service().profile(&call.caller, call.context).await?;
    let wallets = [WalletRow::of(&profile)].into_iter().skip(page.offset).take(page.limit);
    Ok(Reply::ok(&WalletsAnswer { wallets: wallets.collect() }))
}

pub(in crate::http) async fn get(call: &Call<'_>) -> Answer {
    call.caller.require_own(call.wallet()?)?;
    let profile = call.service().profile(&call.caller, call.context).await?;
    Ok(Reply::ok(&WalletRow::of(&profile)))
}

/// The account's wallets. There is one.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "WalletList")]
pub(in crate::http) struct WalletsAnswer {
    wallets: Vec<WalletRow>,
}

/// The account as a wallet.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Wallet")]
pub(in crate::http) struct WalletRow {
    /// The account's id.
    id: u64,
    kind: &'static str,
    /// Wallets have no names here, nor parents or competitions, and are never archived.
    label: Option<&'static str>,
    /// What can be spent.
    balance: Decimal,
    /// What open orders hold back.
    reserved: Decimal,
    /// What the wallet started with, or was reset to, and all that operators have deposited since.
    baseline: Decimal,
    #[schemars(extend("const" = "USD"))]
    currency: &'static str,
    status: &'static str,
    /// 1, and one more after each reset.
    generation: u64,
    parent_wallet_id: Option<u64>,
    competition_id: Option<u64>,
    /// When the account was opened.
    created_at: Time,
    archived_at: Option<Time>,
    is_legacy: bool,
}

impl WalletRow {
    fn of(profile: &Profile) -> Self {
        Self {
            id: profile.account.get(),
            kind: "API",
            label: None,
            balance: profile.ledger.available().into(),
            reserved: profile.ledger.reserved.into(),
            baseline: profile.baseline.into(),
            currency: "USD",
            status: "ACTIVE",
            generation: u64::from(profile.reset_count) + 1,
            parent_wallet_id: None,
            competition_id: None,
            created_at: Time(profile.opened_at),
            archived_at: None,
            is_legacy: false,
        }
    }
}
