//! Handles one request: checks the route, size, credential, limits and permission, reads the body,
//! and runs the operation. A body is read only if the caller may send it.
//!
//! The order of the checks is the same for every operation and part of the API: if several fail,
//! the client gets the first error.

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
#[cfg(feature = "cluster")]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Request, StatusCode, Version};

use super::app::{ConnectionSlot, Server, Worker};
use super::body::RequestBody;
use super::call::{Answer, Call};
use super::complete_reply::CompleteReply;
use super::cors;
use super::error::{ApiError, ClobError, ClobRefusal};
use super::holder::Holder;
use super::operation::{Access, Operation, Run};
use super::operations::clob::l2_headers;
use super::operations::{docs, socket, trade};
use super::query::{Query, warn_of_ignored};
use super::reply::{Reply, RequestId};
use super::request_headers::{RequestHeaders, Sent};
use super::route::{RouteError, decode, find_for, row};
#[cfg(feature = "traces")]
use super::trace;
use super::troubled;
#[cfg(feature = "traces")]
use crate::telemetry::Answered;
use crate::telemetry::{AccessLine, AccessLog, Metrics};
use paperbourse_core::ids::KeyId;
use paperbourse_exchange::auth::presented::{Precedence, Presented};
use paperbourse_exchange::service::{Admission, Caller, Denied, Moment, RequestContext, Service};
#[cfg(feature = "traces")]
use paperbourse_exchange::trace::{Stage, start};

/// Answers one request of a connection from `peer`.
pub fn handle(
    worker: &Worker,
    slot: &Arc<ConnectionSlot>,
    peer: IpAddr,
    request: Request<RequestBody>,
) -> impl Future<Output = CompleteReply> {
    // Not an `async fn`, whose future would store the request as well as its parts.
    let (head, mut body) = request.into_parts();
    async move {
        let began = Instant::now();
        if body.is_pipelined() {
            worker.give_way(slot).await;
        }
        let access = worker.server.access.get();
        let progress = Progress::default();
        let origin = worker.server.cors.of(&head.headers);
        let headers = RequestHeaders::of(&head.headers);
        let request_id = RequestId::of(headers.request_id.first());
        let mut admitted = None;
        let framing = require_framing(&headers, head.version);
        let path = head.uri.path();
        let found = framing.and_then(|()| {
            let has_clob = worker.server.has_clob();
            let to = (headers.host.first(), &head.headers);
            let found = find_for(&head.method, path, to, has_clob);
            found.map_err(|error| ApiError::no_route(error, &head.method, path))
        });
        let operation = found.as_ref().ok().copied();
        #[cfg(feature = "traces")]
        let trace = trace::begin(&worker.server, &head, operation, &request_id, began);
        let is_read = operation.is_some_and(Operation::is_read);
        let answer = match found {
            Ok(operation) => {
                let to = (&head, &headers, &mut body, &mut admitted, &progress);
                let answer = answer(worker, slot, (peer, began), operation, to);
                #[cfg(feature = "cluster")]
                let answer = unless_given_up(worker, operation, &progress, answer);
                let mut answer = pin!(answer);
                poll_fn(|context| {
                    #[cfg(feature = "traces")]
                    let _entered = trace.as_ref().map(|trace| trace.record().enter());
                    if access.is_none() && !worker.server.is_owner() {
                        return answer.as_mut().poll(context);
                    }
                    // No other request runs during the poll, so the positions waited for are this
                    // request's.
                    worker.take_position();
                    let polled = answer.as_mut().poll(context);
                    progress.note_newest(worker.take_position());
                    polled
                })
                .await
            }
            Err(ApiError { allow: Some(allow), .. })
                if origin.is_some() && cors::is_preflight(&head) =>
            {
                Ok(cors::preflight(allow, worker.server.has_clob()))
            }
            Err(error) => Err(error),
        };
        // A completed write is in the cluster's log, whichever node owns the log by now. Any other
        // answer is based on state that another node may have changed.
        let answer = match answer {
            Ok(_) if !is_read => answer,
            Err(ApiError { code: "OUTCOME_UNKNOWN", .. }) => answer,
            _ if admitted.is_some() && !worker.server.may_answer() => Err(ApiError::not_ready()),
            _ => answer,
        };
        let elapsed = began.elapsed();
        if admitted.is_some() {
            // An identified caller keeps the connection, whatever the answer is.
            body.discard().await;
        }
        #[cfg(feature = "traces")]
        let error_code = answer.as_ref().err().map(|error| error.code);
        let mut reply = answer.unwrap_or_else(|error| {
            debug_assert!(
                operation.is_none_or(|operation| operation.may_fail_with(error.code)),
                "the row of {operation:?} does not name {}",
                error.code
            );
            if let Some(cause) = error.cause {
                tracing::error!(%request_id, cause, "internal error, please report it");
            }
            refused(operation, &head, error)
        });
        if let (Some(operation), Some(query)) = (operation, head.uri.query()) {
            warn_of_ignored(&mut reply, operation, query);
        }
        // A write has been carried out, so its answer is sent regardless of memory; few of them are
        // large.
        let holder = || body.holder().unwrap_or_else(|| Holder::of(None, peer));
        if is_read && !reply.hold(&worker.server.answers, holder) {
            reply = refused(operation, &head, ApiError::server_busy());
        }
        worker.metrics.answered(row(operation), reply.status.as_u16(), elapsed);
        if let Some(log) = access {
            let key_id = admitted.and_then(|(admission, _)| admission.key_id);
            let about = (key_id, progress.newest_position());
            log_request(log, operation, reply.status, elapsed, &request_id, about);
        }
        #[cfg(feature = "traces")]
        if let Some(mut trace) = trace {
            let key_id = admitted.and_then(|(admission, _)| admission.key_id);
            trace.answer(Answered {
                status: reply.status.as_u16(),
                error: error_code,
                key_id: key_id.map(KeyId::get),
            });
            body.end_trace_when_sent(trace);
        }
        CompleteReply::new(reply, request_id, admitted, origin, head.headers)
    }
}

/// Returns the answer for an error: a page for a browser that looks for one, or else what clients
/// of the operation expect.
fn refused(operation: Option<&Operation>, head: &Parts, error: ApiError) -> Reply {
    match operation {
        Some(operation) if operation.is_clob() => operation.refuse(error),
        _ => docs::instead(head, &error).unwrap_or_else(|| error.into_reply()),
    }
}

/// The progress of a request. Used only by the request's own thread.
#[derive(Default)]
struct Progress {
    /// Whether the operation has begun; it may then have written a record.
    #[cfg(feature = "cluster")]
    has_begun: AtomicBool,
    /// The first journal position that the operation waited for; 0 if there was none.
    #[cfg(feature = "cluster")]
    first_position: AtomicU64,
    /// The last journal position that the request waited for; 0 if there was none.
    newest_position: AtomicU64,
}

impl Progress {
    /// Records that the operation begins. Positions that the request waited for earlier do not
    /// belong to the operation's own records.
    fn begin(&self, worker: &Worker) {
        if !worker.server.is_owner() {
            return;
        }
        self.note_newest(worker.take_position());
        #[cfg(feature = "cluster")]
        {
            self.first_position.store(0, Ordering::Relaxed);
            self.has_begun.store(true, Ordering::Relaxed);
        }
    }

    fn note_newest(&self, position: u64) {
        let newest = self.newest_position().max(position);
        self.newest_position.store(newest, Ordering::Relaxed);
    }

    fn newest_position(&self) -> u64 {
        self.newest_position.load(Ordering::Relaxed)
    }

    #[cfg(feature = "cluster")]
    fn note_first(&self, position: u64) {
        if self.first_position.load(Ordering::Relaxed) == 0 {
            self.first_position.store(position, Ordering::Relaxed);
        }
    }

    /// Whether the request may have written a record to a log that ends at `end`. The record may be
    /// in the log before its position is known here.
    #[cfg(feature = "cluster")]
    fn may_be_below(&self, end: u64) -> bool {
        let first = self.first_position.load(Ordering::Relaxed);
        self.has_begun.load(Ordering::Relaxed) && first <= end
    }
}

/// Resolves to the answer, or to an error if the answer waits for a record that will never be in
/// the cluster's log. The client can then repeat the request at another node. A 503 says that
/// nothing was done, so it is only for a request that cannot have a record in the log. A delayed
/// order, or a batch that was carried out in part, may have one.
#[cfg(feature = "cluster")]
async fn unless_given_up(
    worker: &Worker,
    operation: &Operation,
    progress: &Progress,
    answer: impl Future<Output = Answer>,
) -> Answer {
    let mut answer = pin!(answer);
    let answer = poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        progress.note_first(worker.first_position());
        polled
    });
    tokio::select! {
        biased;
        answer = answer => answer,
        end = worker.server.given_up() => {
            let end = if operation.is_batch { u64::MAX } else { end };
            let is_unknown = !operation.is_read() && progress.may_be_below(end);
            Err(if is_unknown { ApiError::outcome_unknown() } else { ApiError::not_ready() })
        }
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use std::future::{pending, ready};
    use std::pin::Pin;

    use hyper::Method;

    use super::*;
    use crate::http::route::find;
    use paperbourse_cluster::lease::{self, Lease};

    #[tokio::test]
    async fn who_waits_for_a_log_that_was_given_up_is_told_whether_anything_may_have_been_done() {
        lease::follow_runtime();
        let worker = Worker::new(Arc::new(Server::new(1)));
        worker.server.lease.set(Arc::new(Lease::begun())).unwrap();
        worker.server.give_up(7);
        let operation = |method, path| find(&method, path, false).unwrap();
        let (trade, read) = (operation(Method::POST, "/trade"), operation(Method::GET, "/v1/keys"));
        let batch = operation(Method::POST, "/v1/orders/batch");
        let code = async |operation: &Operation, first: Option<u64>, answer: Pin<Box<_>>| {
            let progress = Progress::default();
            if let Some(first) = first {
                progress.begin(&worker);
                progress.note_first(first);
            }
            let answer: Pin<Box<dyn Future<Output = Answer>>> = answer;
            let answer = unless_given_up(&worker, operation, &progress, answer).await;
            answer.err().map(|error| error.code)
        };
        for (operation, first, expected) in [
            // Its body has not arrived.
            (trade, None, "NOT_READY"),
            // It has begun, and waits for its turn.
            (trade, Some(0), "OUTCOME_UNKNOWN"),
            (trade, Some(7), "OUTCOME_UNKNOWN"),
            (trade, Some(8), "NOT_READY"),
            (read, Some(7), "NOT_READY"),
            (batch, None, "NOT_READY"),
            (batch, Some(8), "OUTCOME_UNKNOWN"),
        ] {
            let found = code(operation, first, Box::pin(pending())).await;
            assert_eq!(found, Some(expected), "{operation:?} {first:?}");
        }
        let refused = Box::pin(ready(Err(ApiError::server_busy())));
        assert_eq!(code(trade, Some(1), refused).await, Some("SERVER_BUSY"), "it is there");
    }
}

/// Adds a request to the access log, if it is sampled.
#[cold]
pub(super) fn log_request(
    log: &AccessLog,
    operation: Option<&Operation>,
    status: StatusCode,
    elapsed: Duration,
    request_id: &RequestId,
    (key_id, position): (Option<KeyId>, u64),
) {
    let request_id = request_id.to_string();
    if log.has_line(&request_id) {
        log.record(AccessLine {
            operation: operation.map_or_else(|| "none".to_owned(), |it| format!("{it:?}")),
            status: status.as_u16(),
            duration_us: u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            request_id,
            key_id: key_id.map(KeyId::get),
            position: (position > 0).then_some(position),
        });
    }
}

/// The state of the caller's rate limits, for the answer's headers; `None` before they are checked.
type Admitted = Option<(Admission, Moment)>;

/// A request, and the state recorded while it is handled.
type Asked<'a> =
    (&'a Parts, &'a RequestHeaders<'a>, &'a mut RequestBody, &'a mut Admitted, &'a Progress);

async fn answer(
    worker: &Worker,
    slot: &Arc<ConnectionSlot>,
    (peer, began): (IpAddr, Instant),
    operation: &'static Operation,
    (head, headers, body, admitted, progress): Asked<'_>,
) -> Answer {
    let server = &*worker.server;
    match operation.run {
        Run::Health(run) => {
            return run(server, &head.headers, Query::new(operation, head.uri.query()));
        }
        Run::File(find) => {
            let name = operation.path.segment(head.uri.path()).and_then(decode);
            let file = name.and_then(|name| find(server, &name)).ok_or(RouteError::NotFound)?;
            return Ok(file.reply(&head.headers));
        }
        _ => {}
    }
    let Some(app) = server.app().filter(|_| server.may_answer()) else {
        return Err(ApiError::not_ready());
    };
    let service = &app.service;
    body.limit(operation.body_bytes_max)?;
    let address = server.proxies.client(peer, &head.headers);
    let mut context =
        RequestContext { moment: Moment::at(began), address, waiters: worker.waiters(app) };
    if slot.note_request(context.moment.monotonic_ns) {
        warn_of_forwarding(server, peer, head);
    }
    if let Run::Socket(stream) = operation.run {
        let row = (operation, stream);
        return Box::pin(socket::open(worker, app, slot, row, (head, headers), context)).await;
    }
    #[cfg(feature = "traces")]
    let admission = start(Stage::Admission);
    let identified = if let Access::WalletKey(_) = operation.access {
        l2_headers(&head.headers).map_or(Ok(Caller::Anonymous), |headers| {
            service.identify_wallet(&headers, address, context.moment)
        })
    } else {
        let presented = presented(headers, operation.access);
        let counts = operation.access != Access::Token;
        let last_key = slot.last_key();
        service.identify_for(&presented, last_key, counts, address, context.moment).await
    };
    let mut caller = count_limited(&worker.metrics, identified)?;
    if !matches!(caller, Caller::Anonymous) {
        slot.recognize();
    }
    require_credential(&caller, operation.access)?;
    count_limited(&worker.metrics, admit(service, &caller, context, admitted))?;
    if let Caller::Token(token) = &mut caller {
        Box::pin(service.find_account(token, context)).await?;
    }
    count_limited(&worker.metrics, service.admit_making(&caller, operation.makes, context))?;
    require_permission(&caller, operation.access)?;
    #[cfg(feature = "traces")]
    let reading = {
        caller
            .account()
            .into_iter()
            .for_each(|account| paperbourse_exchange::trace::account(account.get()));
        admission.then(Stage::Body)
    };
    body.is_of(Holder::of(caller.account().ok(), address));
    let bytes = body.read(&server.bodies).await?;
    if body.is_late() {
        // The key may have been revoked while the body arrived.
        context.moment = service.moment();
        service.require_valid(&caller, context.moment.now)?;
    }
    if let Access::WalletKey(_) = operation.access {
        require_signed(service, head, &bytes, context)?;
    }
    #[cfg(feature = "traces")]
    drop(reading);
    let metrics = &worker.metrics;
    let (turns, body) = (worker.turns(), bytes.into());
    let call = Call { metrics, turns, app, operation, context, caller, head, headers, body };
    progress.begin(worker);
    match &app.trouble {
        Some(trouble) if operation.is_clob() => {
            Box::pin(troubled::run(trouble, &call, slot, run(server, &call))).await
        }
        _ => run(server, &call).await,
    }
}

async fn run(server: &Server, call: &Call<'_>) -> Answer {
    match call.operation.run {
        Run::Trade => trade::trade(call).await,
        Run::Now(run) => run(call),
        Run::Later(run) => run(call).await,
        Run::Clob(run) => Ok(run(call).unwrap_or_else(ClobError::into_reply)),
        Run::ClobLater(run) => match run(call).await {
            Ok(reply) => Ok(reply),
            Err(ClobRefusal::Common(error)) => Err(error),
            // Based on state that another node may have changed.
            Err(ClobRefusal::Venue(_)) if !server.may_answer() => Err(ApiError::not_ready()),
            Err(ClobRefusal::Venue(error)) => Ok(error.into_reply()),
        },
        Run::Health(_) | Run::File(_) | Run::Socket(_) => unreachable!("answered before"),
    }
}

/// Checks the signature of a request by a wallet, which covers the body.
fn require_signed(
    service: &Service,
    head: &Parts,
    body: &[u8],
    context: RequestContext<'_>,
) -> Result<(), Denied> {
    let headers = l2_headers(&head.headers).expect("its caller was identified by them");
    let request = (head.method.as_str(), head.uri.path(), body);
    service.require_signed(&headers, request, context.address, context.moment)
}

/// Warns that a proxy may be missing from the trusted proxies. If so, all of the proxy's clients
/// share the limits of one address.
pub(super) fn warn_of_forwarding(server: &Server, peer: IpAddr, head: &Parts) {
    if server.proxies.ignores(peer, &head.headers)
        && let Some(unlogged) = server.lines.forwarded.pass(Instant::now())
    {
        tracing::warn!(
            %peer,
            unlogged,
            "ignored X-Forwarded-For: the peer is not a trusted proxy (--trusted-proxy)"
        );
    }
}

/// Refuses a request in which two readers could see different hosts or different bodies. Only
/// HTTP/1.0 may omit the host. hyper has already refused a transfer encoding whose last coding is
/// not `chunked`; any coding before that would be left undecoded.
pub(super) fn require_framing(
    headers: &RequestHeaders<'_>,
    version: Version,
) -> Result<(), ApiError> {
    match headers.host {
        Sent::Once(_) => {}
        Sent::Never if version == Version::HTTP_10 => {}
        Sent::Never | Sent::Repeatedly(_) => return Err(ApiError::invalid_host()),
    }
    match headers.transfer_encoding {
        Sent::Never => Ok(()),
        Sent::Once(coding) if coding.as_bytes().eq_ignore_ascii_case(b"chunked") => Ok(()),
        Sent::Once(_) | Sent::Repeatedly(_) => Err(ApiError::invalid_transfer_encoding()),
    }
}

/// Returns the credential that the headers present.
pub(super) fn presented<'a>(headers: &RequestHeaders<'a>, access: Access) -> Presented<'a> {
    let value = |sent: Sent<'a>| sent.first().map(HeaderValue::as_bytes);
    if access == Access::Wallet {
        return Presented::Nothing;
    }
    let precedence = match access {
        Access::Token => Precedence::Bearer,
        _ => Precedence::Key,
    };
    Presented::from_headers(value(headers.api_key), value(headers.authorization), precedence)
}

/// Refuses a caller without a credential, or with the wrong kind of credential.
fn require_credential(caller: &Caller, access: Access) -> Result<(), Denied> {
    match (access, caller) {
        // An operation for wallets identifies its caller itself.
        (Access::Public | Access::Wallet, _)
        | (Access::Token, Caller::Token(_))
        | (Access::KeyOrToken(_), Caller::Key(_) | Caller::Token(_))
        | (Access::Key(_) | Access::WalletKey(_) | Access::Socket, Caller::Key(_)) => Ok(()),
        (_, Caller::Anonymous) | (Access::Token, Caller::Key(_)) => Err(Denied::MissingCredential),
        (Access::Key(_) | Access::WalletKey(_) | Access::Socket, Caller::Token(_)) => {
            Err(Denied::TokenNotAccepted)
        }
    }
}

fn require_permission(caller: &Caller, access: Access) -> Result<(), Denied> {
    match access {
        Access::KeyOrToken(Some(needed))
        | Access::Key(needed)
        | Access::WalletKey(Some(needed)) => caller.require(needed),
        Access::Public
        | Access::Token
        | Access::KeyOrToken(None)
        | Access::Wallet
        | Access::WalletKey(None)
        | Access::Socket => Ok(()),
    }
}

/// Counts the request against the caller's rate limits. Their state is stored in `admitted` for the
/// answer's headers, whether or not the request passes.
fn admit(
    service: &Service,
    caller: &Caller,
    context: RequestContext<'_>,
    admitted: &mut Admitted,
) -> Result<(), Denied> {
    let (result, admission) = service.admit(caller, context.address, context.moment);
    *admitted = admission.map(|admission| (admission, context.moment));
    result
}

/// Counts a refusal in the metrics if it comes from a rate limit.
pub(super) fn count_limited<T>(metrics: &Metrics, result: Result<T, Denied>) -> Result<T, Denied> {
    result.inspect_err(|denied| {
        if let Denied::TooOften { rule, .. } = denied {
            metrics.rate_limited(*rule);
        }
    })
}
