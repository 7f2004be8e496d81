//! Orders that wallets have signed: one, or a list of up to fifteen.
//!
//! The id of an order is what its wallet has signed, so the same order has the same id however
//! often it is sent. The engine keeps the id as the order's name: a repeated order gets its first
//! answer, also if it is sent as another type, which is not signed.

use std::ops::RangeInclusive;
use std::sync::Arc;

use hyper::StatusCode;
use serde_json::value::RawValue;

use super::list::{Stages, find};
use super::{Awaited, object, request, tick};
use crate::http::call::Call;
use crate::http::error::{ClobError, ClobRefusal};
use crate::http::json::write::{JsonObject, write_list, write_text};
use crate::http::operations::orders::place::count_placed;
use crate::http::reply::Reply;
use crate::rows::clob_trade::Trade;
use crate::rows::stage::Stage;
use crate::rows::{Party, transaction_hash};
use crate::trouble::{About, Stage as Settlement, Subject};
use paperbourse_clob::order::{
    Caller, MarketFacts, MarketKind, OrderError, OrderSize, OrderTerms, OrderType, PostedOrder,
    Side as SignedSide, SignatureType, SignedOrder, Version,
};
use paperbourse_clob::trouble::Kind;
use paperbourse_core::engine::command::{OrderNames, TradeOrder};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::order::payload::{NamedTimeInForce, NewOrder, PayloadFlaw};
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::{OrderKind, OrderStatus};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{OrderId, Timestamp};
use paperbourse_core::market::book::Side;
use paperbourse_core::money::{Notional, Price, Shares, Usd};
use paperbourse_exchange::service::{OutcomeSnapshot, PlaceRequest, ServiceError};
use paperbourse_exchange::shard::Refusal;

/// How orders of the venue's interface are taken and answered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClobOrders {
    /// Whether orders are refused that the venue refuses, though they could be filled here.
    pub is_strict: bool,
    /// Whether the answer to an order that matches names transactions. If not, clients ask for
    /// them, as they have to at the venue.
    pub has_hashes: bool,
}

/// How the error of an order begins that needs more cash or shares.
pub(in crate::http) const NOT_ENOUGH: &str = "not enough balance / allowance";

/// Maximum number of orders in a list, whatever the caller's tier allows.
const ORDERS_MAX: usize = 15;

/// The least that a purchase which takes liquidity may cost, in dollars.
const PURCHASE_MIN: Usd = Usd::from_micros(1_000_000);

pub(super) async fn place(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let signed = verify(call, &sent).await?;
    let placed = match &signed.terms {
        Ok(order) => {
            require_settled(call, &signed, order).await?;
            let request = signed.request(order);
            let (service, context) = (call.service(), call.context);
            Some(match held_ms(call, &signed) {
                0 => service.place(&call.caller, request, context).await,
                held_ms => service.place_held(&call.caller, request, held_ms, context).await,
            })
        }
        Err(_) => None,
    };
    let answer = answer(call, &signed, placed).await?;
    Ok(object(|body| answer.write(call, body)))
}

/// Places each order of a list, in order and in one visit of the account's shard. Each has an entry
/// in the answer, whether it is taken or refused.
pub(super) async fn place_list(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let entries: Vec<&RawValue> =
        serde_json::from_slice(&sent).map_err(|_| ClobError::INVALID_ORDER)?;
    if entries.is_empty() {
        return Err(ClobError::INVALID_ORDER.into());
    }
    if entries.len() > ORDERS_MAX {
        let count = entries.len();
        let text = format!("Too many orders in payload: {count}, max allowed: {ORDERS_MAX}");
        return Err(ClobError::refused(text).into());
    }
    let mut orders = Vec::with_capacity(entries.len());
    let mut requests = Vec::with_capacity(entries.len());
    for entry in entries {
        let signed = verify(call, entry.get().as_bytes()).await;
        let mut signed = signed.map_err(ClobRefusal::from);
        if let Ok(placed) = &signed
            && let Ok(order) = &placed.terms
        {
            match require_settled(call, placed, order).await {
                Ok(()) => requests.push(placed.request(order)),
                Err(refusal) => signed = Err(refusal),
            }
        }
        orders.push(signed);
    }
    let outcomes = call.service().place_all(&call.caller, &requests, call.context).await?;
    let mut outcomes = outcomes.into_iter();
    let mut answers = Vec::with_capacity(orders.len());
    for signed in orders {
        answers.push(match signed {
            Ok(signed) => {
                let placed = if signed.terms.is_ok() { outcomes.next() } else { None };
                let placed = placed.map(|placed| placed.map_err(ServiceError::from));
                answer(call, &signed, placed).await
            }
            Err(refusal) => Err(refusal),
        });
    }
    let mut body = Vec::with_capacity(16 + 320 * answers.len());
    write_list(&mut body, answers, |out, answer| {
        let mut entry = JsonObject::new(out);
        match answer {
            Ok(answer) => answer.write(call, &mut entry),
            Err(refusal) => {
                write_refused(&mut entry, refusal.into_error(call.operation.access).text());
            }
        }
        entry.end();
    });
    Ok(Reply::json(StatusCode::OK, body))
}

/// Returns for how long trouble on demand holds an order before it may match, in milliseconds.
fn held_ms(call: &Call<'_>, signed: &Verified) -> u32 {
    let Some(trouble) = &call.app.trouble else { return 0 };
    let wallet = Party::of(call).wallet.to_string();
    let subject = Subject::wallet(&wallet, Some(call.context.address));
    let about = About { orders: &[&signed.id], token: Some(&signed.token_id) };
    let drawn = trouble.draw(Kind::Delayed, subject, about, call.context.moment.now);
    drawn.map_or(0, |drawn| drawn.length_ms)
}

/// Refuses a sale of shares whose purchase is not settled. An order that is known has its answer.
async fn require_settled(
    call: &Call<'_>,
    signed: &Verified,
    order: &NewOrder,
) -> Result<(), ClobRefusal> {
    let (Some(trouble), Side::Sell, Some(asked)) = (&call.app.trouble, order.side, order.quantity)
    else {
        return Ok(());
    };
    let account = call.caller.account()?;
    let _still = trouble.hold_still().await;
    let bought = trouble.moved(account, Some(&signed.token_id)).bought;
    if bought == Shares::ZERO {
        return Ok(());
    }
    let Some(shown) = request::find(call, &signed.token_id) else { return Ok(()) };
    let shares = call.service().shares(&call.caller, &shown, call.context).await?;
    let settled = shares - bought;
    if asked <= settled || find(call, &signed.id).await?.is_some() {
        return Ok(());
    }
    Err(ClobError::refused(not_enough(settled.micros(), asked.micros())).into())
}

/// An order that its wallet has signed.
struct Verified {
    order: SignedOrder,
    token_id: Arc<str>,
    /// The text of its id, under which the engine keeps it.
    id: String,
    /// The order in the engine's terms, or why a new order would be refused as it stands. The
    /// market and the time may have made it so since it was first sent.
    terms: Result<NewOrder, ClobError>,
}

/// Verifies an order. Yields to the worker's other tasks once, since that takes some 40 to 120
/// microseconds.
async fn verify(call: &Call<'_>, json: &[u8]) -> Result<Verified, ClobError> {
    let verified = verify_now(call, json);
    tokio::task::yield_now().await;
    verified
}

fn verify_now(call: &Call<'_>, json: &[u8]) -> Result<Verified, ClobError> {
    let posted = PostedOrder::parse(json)?;
    let shown = request::find(call, posted.token_id()).ok_or(ClobError::NO_BOOK)?;
    let info = shown.market.info();
    let kind = MarketKind::of_token(posted.token_id(), info.neg_risk);
    let tick_micros = info.tick.micros().unsigned_abs();
    let market = MarketFacts { kind: kind.ok_or(ClobError::NO_BOOK)?, tick_micros };
    let Party { owner, wallet } = Party::of(call);
    let order = posted.verify(&Caller { address: wallet, api_key: owner }, &market)?;
    tick::draw(call, &order, posted.token_id(), info);
    let terms = terms(call, &order, &market, &shown);
    let token_id = info.outcomes[usize::from(shown.outcome.0)].token_id.clone();
    Ok(Verified { id: order.id.to_string(), order, token_id, terms })
}

/// Returns the order in the engine's terms.
fn terms(
    call: &Call<'_>,
    order: &SignedOrder,
    market: &MarketFacts,
    shown: &OutcomeSnapshot,
) -> Result<NewOrder, ClobError> {
    let OrderTerms { price_micros, size } = order.terms(market)?;
    let price = Price::from_micros(bounded(price_micros)?);
    tick::check(call, order, price, shown.market.info())?;
    order.check_expiration(call.context.moment.now.seconds().unsigned_abs())?;
    if call.app.clob.is_strict {
        if order.version == Version::V1 {
            return Err(OrderError::Version.into());
        }
        if matches!(order.signature_type, SignatureType::Eoa | SignatureType::Proxy) {
            return Err(ClobError::MAKER_NOT_ALLOWED);
        }
        order.check_decimals(market)?;
    }
    let (quantity, amount) = match size {
        OrderSize::Shares(micros) => (Some(Shares::from_micros(bounded(micros)?)), None),
        OrderSize::Budget(micros) => (None, Some(Usd::from_micros(bounded(micros)?))),
    };
    let info = shown.market.info();
    let new = NewOrder {
        market_id: (&*info.condition_id).into(),
        outcome: (&*info.outcomes[usize::from(shown.outcome.0)].label).into(),
        side: match order.side {
            SignedSide::Buy => Side::Buy,
            SignedSide::Sell => Side::Sell,
        },
        kind: if order.order_type.may_rest() { OrderKind::Limit } else { OrderKind::Market },
        quantity,
        amount,
        price: Some(price),
        time_in_force: Some(match order.order_type {
            OrderType::Gtc => NamedTimeInForce::Gtc,
            OrderType::Gtd => NamedTimeInForce::Gtd,
            OrderType::Fok => NamedTimeInForce::Fok,
            OrderType::Fak => NamedTimeInForce::Fak,
        }),
        expiration: order.ends_at_s().map(timestamp),
        post_only: order.post_only,
        expected_price: None,
        max_slippage_bps: None,
    };
    require_worth(&new, shown)?;
    Ok(new)
}

/// Returns an amount or a price as the engine counts it, if it is within the engine's range.
fn bounded(micros: u64) -> Result<i64, ClobError> {
    let micros = i64::try_from(micros).ok();
    let range = 1..=TradeOrder::QUANTITY_MAX.micros();
    micros.filter(|micros| range.contains(micros)).ok_or(ClobError::INVALID_ORDER)
}

/// Returns this time, or the last second that the engine can count: a client may sign a later one.
fn timestamp(seconds: u64) -> Timestamp {
    let last_s = Timestamp::from_nanos(i64::MAX).seconds();
    Timestamp::from_seconds(i64::try_from(seconds).map_or(last_s, |seconds| seconds.min(last_s)))
}

/// Refuses a purchase for less than a dollar, unless it rests.
fn require_worth(order: &NewOrder, shown: &OutcomeSnapshot) -> Result<(), ClobError> {
    let worth = match (order.side, order.kind, order.quantity, order.price) {
        (Side::Buy, OrderKind::Market, ..) => order.amount,
        (Side::Buy, OrderKind::Limit, Some(quantity), Some(price)) => {
            let quoted = shown.book().ok();
            let touch = quoted.and_then(|quoted| quoted.liquidity.touch(Side::Buy));
            let takes = touch.is_some_and(|touch| touch <= price) && !order.post_only;
            takes.then(|| Notional::of(price, quantity).floor())
        }
        _ => None,
    };
    match worth.filter(|&worth| worth < PURCHASE_MIN) {
        Some(worth) => Err(ClobError::refused(too_small(worth))),
        None => Ok(()),
    }
}

impl Verified {
    fn request(&self, order: &NewOrder) -> PlaceRequest {
        let names = OrderNames::new([NameHash::of_order(&self.id)], Some(self.id.as_str().into()));
        PlaceRequest { order: order.clone(), names }
    }

    /// Returns the venue's words for the engine's refusal, where it has any.
    fn refusal(&self, error: ServiceError) -> ClobRefusal {
        let ServiceError::Refused(Refusal::Rejected(rejection)) = &error else {
            return error.into();
        };
        let id = &self.id;
        let text = match rejection {
            Rejection::InsufficientBalance { available, needed } => {
                not_enough(available.micros(), needed.micros())
            }
            Rejection::InsufficientPosition { available, asked } => {
                not_enough(available.micros(), asked.micros())
            }
            Rejection::InsufficientLiquidity { .. }
            | Rejection::NotFilledWithinPrice { .. }
            | Rejection::AmountNotSpent { .. } => killed(self.order.order_type).to_owned(),
            Rejection::PostOnlyWouldCross { .. } => {
                "invalid post-only order: order crosses book".to_owned()
            }
            Rejection::OffTick { price, tick } => format!(
                "order {id} is invalid. Price ({price}) breaks minimum tick size rule: {tick}"
            ),
            Rejection::BelowMinimum { asked, quantity_min } => {
                format!(
                    "order {id} is invalid. Size ({asked}) lower than the minimum: {quantity_min}"
                )
            }
            Rejection::AmountTooSmall { amount } => too_small(*amount),
            Rejection::Payload(PayloadFlaw::Expiration) => "invalid expiration".to_owned(),
            Rejection::AccountSuspended | Rejection::SuspendedWhileDelayed => {
                format!("'{}' address banned", self.order.signer.checksummed())
            }
            _ => return error.into(),
        };
        ClobError::refused(text).into()
    }
}

fn not_enough(balance_micros: i64, asked_micros: i64) -> String {
    format!(
        "{NOT_ENOUGH}: the balance is not enough -> balance: {balance_micros}, order amount: \
         {asked_micros}"
    )
}

fn too_small(worth: Usd) -> String {
    format!("invalid amount for a marketable BUY order (${worth}), min size: ${PURCHASE_MIN}")
}

/// The text for an order that ends at placement without a fill.
const fn killed(order_type: OrderType) -> &'static str {
    match order_type {
        OrderType::Fok => "order couldn't be fully filled. FOK orders are fully filled or killed.",
        OrderType::Fak => {
            "no orders found to match with FAK order. FAK orders are partially filled or killed if \
             no match is found."
        }
        OrderType::Gtc | OrderType::Gtd => "order match delayed due to market conditions",
    }
}

/// Returns the answer to an order, given what the engine made of it; `None` if it was not asked
/// because it would refuse a new order. An order that is known gets its first answer.
async fn answer(
    call: &Call<'_>,
    signed: &Verified,
    placed: Option<Result<(OrderReceipt, bool), ServiceError>>,
) -> Result<PlacedOrder, ClobRefusal> {
    if let Some(placed) = &placed {
        count_placed(call.metrics, placed);
    }
    let receipt = match placed {
        Some(Ok((receipt, _))) => receipt,
        Some(Err(ServiceError::Refused(Refusal::Rejected(Rejection::NameReused { order })))) => {
            call.service().order(&call.caller, Some(order), call.context).await?
        }
        Some(Err(error)) => return Err(signed.refusal(error)),
        None => {
            let found = find(call, &signed.id).await?.map(|listed| listed.receipt);
            match (found, &signed.terms) {
                (Some(receipt), _) => receipt,
                (None, Err(error)) => return Err(error.clone().into()),
                (None, Ok(_)) => unreachable!("the engine is asked for such an order"),
            }
        }
    };
    let placed = PlacedOrder::of(signed, &receipt)?;
    match &call.app.trouble {
        Some(_) => placed.in_stage(call, signed, &receipt),
        None => Ok(placed),
    }
}

/// An order that is taken, as it was when it was placed.
struct PlacedOrder {
    id: String,
    /// What the account gave and got, in millionths, and its fills; `None` if it rests unmatched.
    matched: Option<Matched>,
    /// Whether it is held before it may match.
    is_held: bool,
}

struct Matched {
    making_micros: i64,
    taking_micros: i64,
    order: OrderId,
    fills: RangeInclusive<u32>,
    /// Whether its trades are settled, so that they have transactions.
    is_settled: bool,
}

impl PlacedOrder {
    fn of(signed: &Verified, receipt: &OrderReceipt) -> Result<Self, ClobRefusal> {
        let stage = Stage::at_placement(receipt);
        let (shares, dollars) = (stage.filled().micros(), stage.notional().micros());
        let matched = (shares > 0).then(|| {
            let (order, fills) = stage.trade_ids().numbers();
            let (making_micros, taking_micros) = match receipt.side {
                Side::Buy => (dollars, shares),
                Side::Sell => (shares, dollars),
            };
            Matched { making_micros, taking_micros, order, fills, is_settled: true }
        });
        if matched.is_none() && stage.status() != OrderStatus::Pending {
            return Err(ClobError::refused(killed(signed.order.order_type).to_owned()).into());
        }
        Ok(Self { id: signed.id.clone(), matched, is_held: receipt.is_delayed() })
    }

    /// Decides when the trade of an order that took liquidity is settled.
    fn in_stage(
        mut self,
        call: &Call<'_>,
        signed: &Verified,
        receipt: &OrderReceipt,
    ) -> Result<Self, ClobRefusal> {
        let Some(matched) = &mut self.matched else { return Ok(self) };
        let trade = Trade::of_order(receipt, &signed.token_id, 1, &receipt.fill, true);
        let stage = Stages::of(call, &Party::of(call))?.of_trade(&trade);
        matched.is_settled = stage == Settlement::Confirmed;
        Ok(self)
    }

    fn write(&self, call: &Call<'_>, body: &mut JsonObject<'_>) {
        body.text("errorMsg", "");
        body.text("orderID", &self.id);
        if let Some(Matched { making_micros, taking_micros, order, fills, is_settled }) =
            &self.matched
        {
            body.decimal("takingAmount", *taking_micros);
            body.decimal("makingAmount", *making_micros);
            body.text("status", "matched");
            if call.app.clob.has_hashes && *is_settled {
                write_list(body.value("transactionsHashes"), fills.clone(), |out, number| {
                    write_text(out, &transaction_hash(*order, number));
                });
            }
            write_list(body.value("tradeIDs"), fills.clone(), |out, number| {
                write_text(out, &format!("{order}-{number}"));
            });
        } else {
            body.text("takingAmount", "");
            body.text("makingAmount", "");
            body.text("status", if self.is_held { "delayed" } else { "live" });
        }
        body.flag("success", true);
    }
}

/// Writes the entry of an order that is refused. Clients need each field.
fn write_refused(body: &mut JsonObject<'_>, text: &str) {
    body.text("errorMsg", text);
    for field in ["orderID", "takingAmount", "makingAmount", "status"] {
        body.text(field, "");
    }
    body.flag("success", false);
}
