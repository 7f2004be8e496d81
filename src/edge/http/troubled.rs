//! Runs operations of the venue's interface with the trouble that their callers meet, and records
//! what the callers do.

use std::net::IpAddr;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::app::ConnectionSlot;
use super::call::{Answer, Call};
use super::error::ClobError;
use super::operation::{Access, Verb};
use super::operations::clob::NOT_ENOUGH;
use super::reply::Reply;
use crate::rows::Party;
use crate::trouble::{About, Subject, Trouble};
use paperbourse_clob::order::OrderError;
use paperbourse_clob::trouble::{Act, ActKind, Drawn, Kind, OrderAct, TOKENS_MAX};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::Shares;

/// The headers of an answer that says that a signer has used up its requests.
const BUCKET: HeaderName = HeaderName::from_static("poly-ratelimit-bucket");
const REMAINING: HeaderName = HeaderName::from_static("poly-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("poly-ratelimit-reset");

/// Maximum length of a text in a recorded act that a client chose, in bytes. Tokens have up to 78
/// digits.
const TEXT_BYTES_MAX: usize = 128;

/// The page of a proxy that blocks a request.
const BLOCKED_PAGE: &[u8] = b"<!DOCTYPE html><html><head><title>Attention Required!</title></head>\
    <body><h1>Sorry, you have been blocked</h1></body></html>\n";

/// What somebody asks.
struct Asked {
    kind: ActKind,
    wallet: Option<String>,
    address: IpAddr,
    /// The name by which requests of this caller are counted.
    name: String,
    orders: Vec<Sent>,
    tokens: Vec<Box<str>>,
}

/// An order as it was sent.
#[derive(Deserialize)]
struct Posted {
    order: Fields,
    #[serde(rename = "postOnly", default)]
    post_only: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Fields {
    salt: Box<RawValue>,
    token_id: Box<str>,
    side: Box<RawValue>,
    maker_amount: Box<str>,
    taker_amount: Box<str>,
}

/// An order that is recorded.
struct Sent {
    act: OrderAct,
    post_only: bool,
}

/// What is known of an order from the answer.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Placed {
    #[serde(rename = "orderID")]
    order_id: Box<str>,
    #[serde(rename = "errorMsg")]
    error_msg: Box<str>,
    error: Box<str>,
}

/// What befalls a request before it is carried out.
enum Early {
    /// The connection ends.
    Cut,
    /// The answer.
    Answer(Box<Reply>),
}

/// Runs an operation with the trouble that its caller meets.
pub(super) async fn run(
    trouble: &Trouble,
    call: &Call<'_>,
    slot: &ConnectionSlot,
    run: impl Future<Output = Answer>,
) -> Answer {
    let mut asked = Asked::of(call);
    let now = call.context.moment.now;
    let answer = match before(trouble, call, &asked, now) {
        Some(Early::Cut) => {
            asked.record(trouble, 0, now);
            slot.cut().await
        }
        Some(Early::Answer(reply)) => Ok(*reply),
        None => run.await,
    };
    let status = match &answer {
        Ok(reply) => {
            asked.read_placed(&reply.body);
            asked.mark_unsettled(trouble, call);
            reply.status.as_u16()
        }
        Err(error) => error.status.as_u16(),
    };
    asked.record(trouble, status, now);
    if asked.changes_orders() {
        let ids: Vec<&str> =
            asked.orders.iter().filter_map(|sent| sent.act.id.as_deref()).collect();
        let about = About { orders: &ids, token: asked.orders.first().map(|it| &*it.act.token) };
        let draw = |kind| trouble.draw(kind, asked.subject(), about, now);
        if draw(Kind::Lost).is_some() {
            slot.cut().await;
        }
        if let Some(late) = draw(Kind::Late) {
            tokio::time::sleep(Duration::from_millis(late.length_ms.into())).await;
        }
    }
    answer
}

/// Draws the trouble that comes before a request is carried out.
fn before(trouble: &Trouble, call: &Call<'_>, asked: &Asked, now: Timestamp) -> Option<Early> {
    let about = About { orders: &[], token: asked.orders.first().map(|sent| &*sent.act.token) };
    let draw = |kind| trouble.draw(kind, asked.subject(), about, now);
    let refuse = |error: ClobError| Some(Early::Answer(Box::new(error.into_reply())));
    if draw(Kind::Reset).is_some() {
        return Some(Early::Cut);
    }
    if draw(Kind::Blocked).is_some() {
        return Some(Early::Answer(Box::new(blocked())));
    }
    if asked.wallet.is_some()
        && let Some(drawn) = draw(Kind::Limited)
    {
        return Some(Early::Answer(Box::new(limited(drawn, now))));
    }
    if call.operation.path.as_str() == "/time" {
        let ahead_s = draw(Kind::Clock)?.length_ms / 1_000;
        let body = (now.seconds() + i64::from(ahead_s)).to_string();
        return Some(Early::Answer(Box::new(Reply::json(StatusCode::OK, body.into_bytes()))));
    }
    if !asked.changes_orders() {
        return None;
    }
    if draw(Kind::Restarting).is_some() {
        return refuse(ClobError::RESTARTING);
    }
    if asked.kind != ActKind::Order {
        return None;
    }
    if draw(Kind::NotRun).is_some() {
        return refuse(ClobError::NOT_RUN);
    }
    if draw(Kind::CancelOnly).is_some() {
        return refuse(ClobError::CANCEL_ONLY);
    }
    if asked.orders.iter().any(|sent| !sent.post_only) && draw(Kind::PostOnly).is_some() {
        return refuse(ClobError::post_only());
    }
    draw(Kind::Version).and_then(|_| refuse(OrderError::Version.into()))
}

fn blocked() -> Reply {
    let mut reply = Reply::json(StatusCode::FORBIDDEN, BLOCKED_PAGE.to_vec());
    reply.headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=UTF-8"));
    reply
}

fn limited(drawn: Drawn, now: Timestamp) -> Reply {
    let wait_seconds = u64::from(drawn.length_ms.div_ceil(1_000).max(1));
    let mut reply = ClobError::too_many(wait_seconds).into_reply();
    let reset = now.seconds().unsigned_abs() + wait_seconds;
    reply.headers.insert(BUCKET, HeaderValue::from_static("orders"));
    reply.headers.insert(REMAINING, HeaderValue::from(0));
    reply.headers.insert(RESET, HeaderValue::from(reset));
    reply
}

impl Asked {
    fn of(call: &Call<'_>) -> Self {
        let is_signed = matches!(call.operation.access, Access::WalletKey(_));
        let wallet = is_signed.then(|| Party::of(call).wallet.to_string());
        let address = call.context.address;
        let name = wallet.clone().unwrap_or_else(|| address.to_string());
        let kind = act_kind(call);
        let orders = if kind == ActKind::Order { orders(&call.body.lock()) } else { Vec::new() };
        let tokens = if kind == ActKind::Book { tokens(call) } else { Vec::new() };
        Self { kind, wallet, address, name, orders, tokens }
    }

    /// Whether it places or cancels orders.
    fn changes_orders(&self) -> bool {
        matches!(self.kind, ActKind::Order | ActKind::Cancel)
    }

    fn subject(&self) -> Subject<'_> {
        Subject { name: &self.name, wallet: self.wallet.as_deref(), address: Some(self.address) }
    }

    /// Reads from an answer which orders were taken.
    fn read_placed(&mut self, answer: &[u8]) {
        for (sent, placed) in self.orders.iter_mut().zip(one_or_many::<Placed>(answer)) {
            let Placed { order_id, error_msg, error } = placed;
            sent.act.id = Some(order_id).filter(|id| !id.is_empty());
            sent.act.error = [error_msg, error].into_iter().find(|text| !text.is_empty());
        }
    }

    /// Marks sales that were refused although the shares were bought.
    fn mark_unsettled(&mut self, trouble: &Trouble, call: &Call<'_>) {
        let Ok(account) = call.caller.account() else { return };
        for Sent { act, .. } in &mut self.orders {
            let is_refused = act.error.as_deref().is_some_and(|it| it.starts_with(NOT_ENOUGH));
            let bought = || trouble.moved(account, Some(&act.token)).bought;
            act.is_unsettled = is_refused && &*act.side == "SELL" && bought() > Shares::ZERO;
        }
    }

    /// Records what was asked. An answer that was never sent has the status 0.
    fn record(&mut self, trouble: &Trouble, status: u16, now: Timestamp) {
        let act = |order, tokens| Act {
            at_ms: now.millis().unsigned_abs(),
            act: self.kind,
            wallet: self.wallet.as_deref().map(Into::into),
            address: Some(self.address.to_string().into()),
            status,
            order,
            tokens,
        };
        if self.orders.is_empty() {
            trouble.act(|| act(None, self.tokens.clone()));
        }
        for sent in &self.orders {
            trouble.act(|| act(Some(sent.act.clone()), Vec::new()));
        }
    }
}

fn act_kind(call: &Call<'_>) -> ActKind {
    let is_post = call.operation.method == Verb::Post;
    match call.operation.path.as_str() {
        "/order" | "/orders" if is_post => ActKind::Order,
        "/order" | "/orders" | "/cancel-all" | "/cancel-market-orders" => ActKind::Cancel,
        "/data/orders" | "/data/order/{order_id}" | "/order/{order_id}" | "/data/trades" => {
            ActKind::Look
        }
        "/balance-allowance" | "/balance-allowance/update" => ActKind::Balance,
        "/book" | "/books" | "/price" | "/prices" | "/midpoint" | "/midpoints" | "/spread"
        | "/spreads" => ActKind::Book,
        _ => ActKind::Other,
    }
}

/// Returns the orders in a body. Those that cannot be read are left out.
fn orders(body: &[u8]) -> Vec<Sent> {
    one_or_many(body).into_iter().map(Sent::of).collect()
}

/// Reads a list, or one value in place of a list. Returns none if it is neither.
fn one_or_many<'j, T: Deserialize<'j>>(json: &'j [u8]) -> Vec<T> {
    serde_json::from_slice(json)
        .unwrap_or_else(|_| serde_json::from_slice(json).into_iter().collect())
}

/// Returns the beginning of a text that a client sent, so that lines of the record stay short.
fn shortened(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].into()
}

impl Sent {
    fn of(Posted { order, post_only }: Posted) -> Self {
        let bare = |text: &RawValue| shortened(text.get().trim_matches('"'));
        let micros = |text: &str| text.parse().unwrap_or(0);
        let act = OrderAct {
            salt: bare(&order.salt),
            id: None,
            token: shortened(&order.token_id),
            side: match &*bare(&order.side) {
                "0" => "BUY".into(),
                "1" => "SELL".into(),
                side => side.into(),
            },
            making_micros: micros(&order.maker_amount),
            taking_micros: micros(&order.taker_amount),
            error: None,
            is_unsettled: false,
        };
        Self { act, post_only }
    }
}

/// Returns the outcomes that a request for books or prices names.
fn tokens(call: &Call<'_>) -> Vec<Box<str>> {
    #[derive(Deserialize)]
    struct Named {
        token_id: Box<str>,
    }
    let query = call.head.uri.query().unwrap_or_default();
    let pairs = form_urlencoded::parse(query.as_bytes());
    let asked = pairs.filter(|(name, _)| name == "token_id").map(|(_, token)| shortened(&token));
    let listed: Vec<Named> = serde_json::from_slice(&call.body.lock()).unwrap_or_default();
    let listed = listed.into_iter().map(|named| shortened(&named.token_id));
    asked.chain(listed).take(TOKENS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An order as a client posts it.
    fn posted(salt: &str, token: &str) -> String {
        let amounts = r#""makerAmount":"5","takerAmount":"10""#;
        let order = format!(r#"{{"salt":{salt},"tokenId":"{token}","side":"BUY",{amounts}}}"#);
        format!(r#"{{"order":{order},"owner":"me"}}"#)
    }

    #[test]
    fn one_order_and_a_list_of_orders_are_recorded() {
        let one = posted("7", "71");
        let salts = |body: &str| -> Vec<Box<str>> {
            orders(body.as_bytes()).into_iter().map(|sent| sent.act.salt).collect()
        };
        assert_eq!(salts(&one), ["7".into()]);
        assert_eq!(salts(&format!("[{one},{}]", posted("\"8\"", "71"))), ["7".into(), "8".into()]);
        assert!(salts("{}").is_empty() && salts("[").is_empty());
    }

    #[test]
    fn what_strangers_send_is_recorded_up_to_a_length() {
        let long = "9".repeat(60_000);
        let sent = orders(posted(&format!("\"{long}\""), &format!("{long}ä")).as_bytes());
        let lengths = sent.iter().map(|sent| (sent.act.salt.len(), sent.act.token.len()));
        assert_eq!(lengths.collect::<Vec<_>>(), [(TEXT_BYTES_MAX, TEXT_BYTES_MAX)]);
        assert_eq!(&*shortened(&"ä".repeat(TEXT_BYTES_MAX)), "ä".repeat(TEXT_BYTES_MAX / 2));
    }
}
