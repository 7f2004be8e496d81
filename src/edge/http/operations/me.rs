//! The caller's account, and the permissions of the credential.

use schemars::JsonSchema;
use serde::Serialize;

use super::account::read_wallet;
use crate::http::call::{Answer, Call};
use crate::http::reply::Reply;
use paperbourse_core::engine::key::Permission;
use paperbourse_core::engine::state::view::Profile;
use paperbourse_core::wire::Decimal;
use paperbourse_exchange::auth::policy::Actor;
use paperbourse_exchange::service::Denied;

pub(in crate::http) async fn get(call: &Call<'_>) -> Answer {
    call.caller.require_own(read_wallet(call.query())?)?;
    let actor = call.caller.actor().ok_or(Denied::MissingCredential)?;
    let profile = call.service().profile(&call.caller, call.context).await?;
    Ok(Reply::ok(&MeAnswer::of(&profile, actor)))
}

/// The caller's account. Some values have two names, for clients that expect either one.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Me")]
pub(in crate::http) struct MeAnswer<'a> {
    /// The account's id.
    id: u64,
    /// The same as the id.
    user_id: u64,
    /// The owner, as the issuer of their access tokens names them.
    auth_user_id: &'a str,
    /// The server never learns it.
    email: Option<&'a str>,
    /// What can be spent.
    balance: Decimal,
    /// The same as the balance.
    api_balance: Decimal,
    /// What open orders hold back.
    reserved: Decimal,
    #[schemars(extend("const" = "USD"))]
    currency: &'static str,
    /// The tier of the credential.
    #[schemars(extend("enum" = ["free", "pro", "enterprise"]))]
    tier: &'static str,
    /// Of the credential.
    permissions: Vec<&'static str>,
    /// The number of the account's keys that work.
    key_count: usize,
}

impl<'a> MeAnswer<'a> {
    fn of(profile: &'a Profile, actor: Actor) -> Self {
        let available = profile.ledger.available().into();
        Self {
            id: profile.account.get(),
            user_id: profile.account.get(),
            auth_user_id: &profile.subject,
            email: None,
            balance: available,
            api_balance: available,
            reserved: profile.ledger.reserved.into(),
            currency: "USD",
            tier: actor.tier().as_str(),
            permissions: actor.permissions().iter().map(Permission::as_str).collect(),
            key_count: profile.active_key_count,
        }
    }
}
