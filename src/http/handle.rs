//! The way of one request: route, size, credential, limits, permission, body, and then its
//! operation. A body is read only for whoever may send it.
//!
//! That order is the same for every operation and part of the interface: of several things that are
//! wrong, a client is told the first.

mod account;
mod health;
mod keys;
mod markets;
mod orders;
mod socket;
mod status;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Request, Response, Version};

use super::body::RequestBody;
use super::error::ApiError;
use super::exchange::{Exchange, Seat, Stage, Worker};
use super::reply::{RequestId, response_of};
use super::respond::Reply;
use super::route::{Access, Route};
use crate::auth::presented::{Precedence, Presented};
use crate::service::{Admission, Caller, Denied, Moment, Service, Visit};
use crate::telemetry::Metrics;

static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// What an operation answers with.
type Answer = Result<Reply, ApiError>;

/// One request on its way, once it is known who sends it.
struct Call<'a> {
    metrics: &'a Metrics,
    exchange: &'a Exchange,
    visit: Visit<'a>,
    caller: Caller,
    head: &'a Parts,
    body: Bytes,
}

impl Call<'_> {
    fn query(&self) -> Option<&str> {
        self.head.uri.query()
    }

    /// The value of a header; of one that comes several times, all values as one list, which is
    /// what that means.
    fn header(&self, name: &HeaderName) -> Option<Cow<'_, [u8]>> {
        let mut values = self.head.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let first = values.next()?;
        Some(
            values.fold(Cow::Borrowed(first), |list, value| [&list, value].join(&b", "[..]).into()),
        )
    }
}

/// Answers one request of a connection from `peer`. Whatever happens, there is an answer.
pub fn handle(
    worker: &Worker,
    seat: &Arc<Seat>,
    peer: IpAddr,
    request: Request<RequestBody>,
) -> impl Future<Output = Response<Full<Bytes>>> {
    // The future holds the parts once. An `async fn` would hold the request and the parts.
    let (mut head, mut body) = request.into_parts();
    async move {
        let request_id = RequestId::of(&head.headers);
        let mut admitted = None;
        let answer = answer(worker, seat, peer, &mut head, &mut body, &mut admitted).await;
        if admitted.is_some() {
            // A caller whom we know keeps the connection, whatever the answer is.
            body.discard().await;
        }
        let reply = answer.unwrap_or_else(|error| {
            if let Some(cause) = error.cause {
                tracing::error!(%request_id, "a bug, please report it: {cause}");
            }
            error.into_reply()
        });
        worker.metrics.responded(reply.status.as_u16());
        response_of(reply, request_id, admitted, head.headers)
    }
}

/// What the answer tells of the caller's limits; nothing before they were looked at.
type Admitted = Option<(Admission, Moment)>;

async fn answer(
    worker: &Worker,
    seat: &Arc<Seat>,
    peer: IpAddr,
    head: &mut Parts,
    body: &mut RequestBody,
    admitted: &mut Admitted,
) -> Answer {
    require_host(head)?;
    let route = Route::find(&head.method, head.uri.path())?;
    let stage = &*worker.stage;
    if let Some(answer) = health::answer(&route, stage, head.uri.query()) {
        return answer;
    }
    let Some(exchange) = stage.exchange() else {
        return Err(ApiError::not_ready());
    };
    let service = &exchange.service;
    body.limit(route.body_bytes_max())?;
    let address = stage.proxies.client(peer, &head.headers);
    let mut visit = Visit { moment: service.moment(), address, waiters: worker.waiters(exchange) };
    if seat.note_request(visit.moment.monotonic_ns) {
        warn_of_forwarding(stage, peer, head);
    }
    if route == Route::PriceSocket {
        let head = std::mem::replace(head, Request::new(()).into_parts().0);
        return Box::pin(socket::open(worker, exchange, seat, head, visit)).await;
    }
    let mut caller = service.identify(&presented(head, &route), address, visit.moment).await?;
    if !matches!(caller, Caller::Anonymous) {
        seat.recognize();
    }
    require_credential(&caller, route.access())?;
    count_limited(&worker.metrics, admit(service, &caller, visit, admitted))?;
    if let Caller::Token(token) = &mut caller {
        Box::pin(service.find_account(token, visit)).await?;
    }
    count_limited(&worker.metrics, service.admit_making(&caller, route.makes(), visit))?;
    require_permission(&caller, route.access())?;
    let bytes = body.read(&stage.bodies).await?;
    if body.is_late() {
        // What was true of the caller may have changed meanwhile.
        visit.moment = service.moment();
        caller.require_valid(visit.moment.now)?;
    }
    let call = Call { metrics: &worker.metrics, exchange, visit, caller, head, body: bytes };
    if route == Route::Trade {
        return orders::trade(&call).await;
    }
    // A connection has room for the largest of these, and moves it with each request: the hot one
    // is small, and the others are worth an allocation.
    Box::pin(perform(&call, route)).await
}

/// Says that a proxy may be missing among the trusted ones: its clients share the limits of one
/// address.
fn warn_of_forwarding(stage: &Stage, peer: IpAddr, head: &Parts) {
    if stage.proxies.ignores(peer, &head.headers)
        && let Some(unlogged) = stage.lines.forwarded.pass(Instant::now())
    {
        tracing::warn!(
            %peer,
            unlogged,
            "ignored X-Forwarded-For: the peer is not a trusted proxy (--trusted-proxy)"
        );
    }
}

/// Refuses a request from which two readers could take different hosts. Only HTTP/1.0 may name
/// none.
fn require_host(head: &Parts) -> Result<(), ApiError> {
    let mut hosts = head.headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), None) => Ok(()),
        (None, None) if head.version == Version::HTTP_10 => Ok(()),
        _ => Err(ApiError::invalid_host()),
    }
}

/// Which credential the headers present.
fn presented<'a>(head: &'a Parts, route: &Route<'_>) -> Presented<'a> {
    let value = |name: &HeaderName| head.headers.get(name).map(HeaderValue::as_bytes);
    let precedence = match route.access() {
        Access::Token => Precedence::Bearer,
        _ => Precedence::Key,
    };
    Presented::from_headers(value(&API_KEY), value(&AUTHORIZATION), precedence)
}

/// Refuses a caller who has brought nothing, or the wrong kind of credential.
fn require_credential(caller: &Caller, access: Access) -> Result<(), Denied> {
    match (access, caller) {
        (Access::Public, _)
        | (Access::Token, Caller::Token(_))
        | (Access::KeyOrToken(_), Caller::Key(_) | Caller::Token(_))
        | (Access::Key(_) | Access::Socket(_), Caller::Key(_)) => Ok(()),
        (_, Caller::Anonymous) | (Access::Token, Caller::Key(_)) => Err(Denied::MissingCredential),
        (Access::Key(_) | Access::Socket(_), Caller::Token(_)) => Err(Denied::TokenNotAccepted),
    }
}

fn require_permission(caller: &Caller, access: Access) -> Result<(), Denied> {
    match access {
        Access::KeyOrToken(Some(needed)) | Access::Key(needed) => caller.require(needed),
        Access::Public | Access::Token | Access::KeyOrToken(None) | Access::Socket(_) => Ok(()),
    }
}

/// Counts the request against its limits. What the answer tells of them is left in `admitted`,
/// whether the request passes or not.
fn admit(
    service: &Service,
    caller: &Caller,
    visit: Visit<'_>,
    admitted: &mut Admitted,
) -> Result<(), Denied> {
    let (result, admission) = service.admit(caller, visit.address, visit.moment);
    *admitted = admission.map(|admission| (admission, visit.moment));
    result
}

/// Counts a refusal for the rate.
fn count_limited(metrics: &Metrics, result: Result<(), Denied>) -> Result<(), Denied> {
    result.inspect_err(|_| metrics.rate_limited.increment())
}

async fn perform(call: &Call<'_>, route: Route<'_>) -> Answer {
    match route {
        Route::BootstrapKey => keys::create(call, true).await,
        Route::CreateKey => keys::create(call, false).await,
        Route::ListKeys => keys::list(call).await,
        Route::RenameKey { key_id } => keys::rename(call, &key_id).await,
        Route::RotateKey { key_id } => keys::rotate(call, &key_id).await,
        Route::RevokeKey { key_id } => keys::revoke(call, &key_id).await,
        Route::ListTiers => Ok(keys::list_tiers(call)),
        Route::CreateSocketToken => keys::create_socket_token(call),
        Route::AddComment { order_id } => orders::comment(call, &order_id).await,
        Route::ListComments { order_id } => orders::comments(call, &order_id).await,
        Route::DeleteComment { comment_id } => orders::delete_comment(call, &comment_id).await,
        Route::PlaceBatch => orders::place_batch(call).await,
        Route::ListOrders => orders::list(call).await,
        Route::GetOrder { order_id } => orders::get(call, &order_id).await,
        Route::ListPrices => markets::list_prices(call),
        Route::ListMarkets => markets::list(call),
        Route::GetMarket { condition_id } => markets::get(call, &condition_id),
        Route::GetMarketBook { condition_id } => markets::get_market_book(call, &condition_id),
        Route::GetBook => markets::get_book(call),
        Route::GetBalance => account::balance(call).await,
        Route::ListPositions => account::positions(call).await,
        Route::ListSettlements => account::settlements(call).await,
        Route::Status => Ok(status::status(call)),
        Route::Time => Ok(status::time(call)),
        Route::Trade
        | Route::PriceSocket
        | Route::Health
        | Route::HealthLive
        | Route::HealthReady => unreachable!("answered before"),
    }
}
