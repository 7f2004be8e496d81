//! Rows of trades and activities, in the forms of both versions.

use super::position_rows::seconds;
use super::walk::{Happened, What};
use super::{NO_INDEX, User};
use crate::http::json::write::JsonObject;
use crate::rows::{payout_hash, transaction_hash};
use paperbourse_core::engine::fills::PastFill;
use paperbourse_core::ids::condition;

/// What of a user's profile rows name. Here nobody has one.
const PROFILE: [&str; 5] = ["name", "pseudonym", "bio", "profileImage", "profileImageOptimized"];
const PROFILE_V2: [&str; 5] =
    ["name", "pseudonym", "bio", "profile_image", "profile_image_optimized"];

/// The names of the fields that differ between the versions.
struct Names {
    wallet: &'static str,
    token: &'static str,
    market: &'static str,
    index: &'static str,
    hash: &'static str,
    event_slug: &'static str,
    dollars: &'static str,
    profile: [&'static str; 5],
}

const V1: Names = Names {
    wallet: "proxyWallet",
    token: "asset",
    market: "conditionId",
    index: "outcomeIndex",
    hash: "transactionHash",
    event_slug: "eventSlug",
    dollars: "usdcSize",
    profile: PROFILE,
};

const V2: Names = Names {
    wallet: "proxy_wallet",
    token: "token_id",
    market: "condition_id",
    index: "outcome_index",
    hash: "transaction_hash",
    event_slug: "event_slug",
    dollars: "usdc_size",
    profile: PROFILE_V2,
};

pub(super) fn write_trade(out: &mut Vec<u8>, user: &User, happened: &Happened) {
    write_fill(out, user, happened, &V1);
}

pub(super) fn write_trade_v2(out: &mut Vec<u8>, user: &User, happened: &Happened) {
    write_fill(out, user, happened, &V2);
}

pub(super) fn write_activity(out: &mut Vec<u8>, user: &User, happened: &Happened) {
    write_any(out, user, happened, &V1, |_| {});
}

pub(super) fn write_activity_v2(out: &mut Vec<u8>, user: &User, happened: &Happened) {
    write_any(out, user, happened, &V2, |row| row.flag("is_combo", false));
}

/// Writes a trade. Only trades are in a list of them.
fn write_fill(out: &mut Vec<u8>, user: &User, happened: &Happened, names: &Names) {
    let What::Trade(past) = &happened.what else { return };
    let mut row = JsonObject::new(out);
    row.text(names.wallet, &user.wallet.to_string());
    row.word("side", past.row.side.as_str());
    row.text(names.token, &past.token_id);
    row.text(names.market, &condition::wide(&past.row.market_id));
    row.number("size", past.row.fill.quantity.micros());
    row.number("price", past.row.fill.price().micros());
    row.integer("timestamp", seconds(Some(happened.at())));
    happened.facts.write(&mut row, names.event_slug);
    row.text("outcome", &past.row.outcome);
    row.integer(names.index, outcome_index(happened, past));
    names.profile.iter().for_each(|name| row.text(name, ""));
    row.text(names.hash, &transaction_hash(past.row.order, past.row.part));
    row.end();
}

/// Writes an activity. Like the venue's, a payout has no outcome, side and price, as it is for a
/// market.
fn write_any(
    out: &mut Vec<u8>,
    user: &User,
    happened: &Happened,
    names: &Names,
    write_kind: impl FnOnce(&mut JsonObject<'_>),
) {
    let mut row = JsonObject::new(out);
    row.text(names.wallet, &user.wallet.to_string());
    row.integer("timestamp", seconds(Some(happened.at())));
    row.text(names.market, &condition::wide(happened.market_id()));
    let (kind, hash) = match &happened.what {
        What::Trade(past) => ("TRADE", transaction_hash(past.row.order, past.row.part)),
        What::Payout(paid) => ("REDEEM", payout_hash(user.account, paid.number)),
    };
    row.word("type", kind);
    write_kind(&mut row);
    row.number("size", happened.shares_micros());
    row.number(names.dollars, happened.dollars_micros());
    row.text(names.hash, &hash);
    match &happened.what {
        What::Trade(past) => {
            row.number("price", past.row.fill.price().micros());
            row.text(names.token, &past.token_id);
            row.word("side", past.row.side.as_str());
            row.integer(names.index, outcome_index(happened, past));
        }
        What::Payout(_) => {
            row.number("price", 0);
            row.text(names.token, "");
            row.text("side", "");
            row.integer(names.index, NO_INDEX);
        }
    }
    happened.facts.write(&mut row, names.event_slug);
    let outcome = match &happened.what {
        What::Trade(past) => &*past.row.outcome,
        What::Payout(_) => "",
    };
    row.text("outcome", outcome);
    names.profile.iter().for_each(|name| row.text(name, ""));
    row.end();
}

/// Returns the index of the outcome that was traded, as far as its market is known.
fn outcome_index(happened: &Happened, past: &PastFill) -> u64 {
    happened.facts.outcome_index(&past.token_id).unwrap_or(NO_INDEX)
}
