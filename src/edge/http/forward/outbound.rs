//! The other nodes' side: forwards requests to the owner of the log.

use std::error::Error as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::Either;
use h2::Reason;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderMap, HeaderName,
    HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, Scheme};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::sleep;

use super::socket::carry;
use super::{
    CLIENT, HEADER_BYTES_MAX, LINK_WINDOW_BYTES, Owner, PING_INTERVAL, PING_PATIENCE,
    STREAM_WINDOW_BYTES, UPGRADE_TO, VERSION,
};
use crate::http::app::{ConnectionSlot, Worker};
use crate::http::body::RequestBody;
use crate::http::complete_reply::CompleteReply;
use crate::http::connection::{CutOff, ReplyBody, Source};
use crate::http::error::ApiError;
use crate::http::forwarded::FORWARDED_FOR;
use crate::http::handle::{handle, log_request, require_framing, warn_of_forwarding};
use crate::http::holder::Holder;
use crate::http::operation::{Operation, Run, Verb};
use crate::http::reply::{RATE_LIMIT_TIER, REQUEST_ID, RequestId, response_of};
use crate::http::request_headers::RequestHeaders;
use crate::http::route::{find_for, row};
use crate::ws::asks_for_upgrade;
use paperbourse_cluster::link::{LinkError, Links};
use paperbourse_core::limits::bucket::Origin;
use paperbourse_exchange::service::Moment;

/// Pause before the next attempt to open a link.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Pause before an unsent request is retried on the next link.
const RESEND_PAUSE: Duration = Duration::from_millis(5);

/// Maximum time that a request waits for a node that can answer it.
const OWNER_WAIT_MAX: Duration = Duration::from_millis(500);

/// Answers up to this size are sent in one piece, and do not count towards the answer budget.
const WHOLE_BYTES_MAX: u64 = 16 * 1024;

/// The authority in requests to the owner. The link itself determines where they go.
const AUTHORITY: &str = "owner";

/// Maximum number of abandoned answers that a link keeps track of, so that late frames are ignored.
const RESET_STREAMS_MAX: usize = 10_000;

/// Headers that are forwarded even if the client names them in `Connection`.
static NOT_OF_CONNECTION: [HeaderName; 5] = [
    HOST,
    AUTHORIZATION,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("idempotency-key"),
];

static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// The sending half of a link to the owner.
type Sender = SendRequest<Full<Bytes>>;

/// A worker's link to the owner of the log, while there is one.
#[derive(Default)]
pub struct ToOwner(watch::Sender<Option<Sender>>);

impl ToOwner {
    fn set(&self, sender: Sender) {
        self.0.send_replace(Some(sender));
    }

    pub(super) fn clear(&self) {
        self.0.send_replace(None);
    }

    /// Waits until a link to the owner is open, and returns its sending half.
    async fn get(&self) -> Sender {
        let mut link = self.0.subscribe();
        let link = link.wait_for(|link| link.as_ref().is_some_and(|link| !link.is_closed())).await;
        link.ok().and_then(|link| link.clone()).expect("the worker has the sender")
    }
}

/// The node that answers a request.
enum Answering {
    /// This node, which has become the owner of the log.
    Here,
    /// The owner at the other end of the link.
    There(Sender),
    Nobody,
    /// This node cannot read the log, so it cannot name an owner.
    Halted,
}

/// Waits up to `time_max` for a node that can answer. During a planned handover, there is soon one.
async fn answering(worker: &Worker, time_max: Duration) -> Answering {
    let mut owner = worker.server.place.owner.subscribe();
    let is_settled = |owner: &Owner| matches!(owner, Owner::Here { .. } | Owner::Halted);
    tokio::select! {
        biased;
        link = worker.to_owner.get() => Answering::There(link),
        owner = owner.wait_for(is_settled) => match owner.as_deref() {
            Ok(Owner::Halted) => Answering::Halted,
            _ => Answering::Here,
        },
        () = sleep(time_max) => Answering::Nobody,
    }
}

/// Keeps a link to the node that has owned the log since this epoch.
pub(super) async fn keep_link(worker: &Worker, links: &Links, epoch: u64) {
    loop {
        match links.open(epoch).await {
            Ok(link) => follow(worker, link).await,
            // The owner may be about to accept links.
            Err(LinkError::Nobody { .. }) => {}
            Err(error) => tracing::debug!(%error, "no link to the owner of the log"),
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// Forwards requests over this link until it ends.
pub(super) async fn follow<Io>(worker: &Worker, link: Io)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_PATIENCE)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(LINK_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        // Any number of clients may leave before they have their answers.
        .max_concurrent_reset_streams(RESET_STREAMS_MAX)
        .max_local_error_reset_streams(None);
    match builder.handshake(TokioIo::new(link)).await {
        Ok((sender, connection)) => {
            worker.to_owner.set(sender);
            // Spawned, so that requests already sent are still answered after the log has a new
            // owner.
            let ended = tokio::spawn(connection).await;
            worker.to_owner.clear();
            if let Ok(Err(error)) = ended {
                tracing::debug!(%error, "the link to the owner of the log ended");
            }
        }
        Err(error) => tracing::debug!(%error, "the owner of the log does not speak HTTP/2"),
    }
}

/// Answers a request, through the owner of the log if this node does not own it.
pub fn handle_anywhere(
    worker: &Worker,
    slot: &Arc<ConnectionSlot>,
    peer: IpAddr,
    request: Request<RequestBody>,
) -> impl Future<Output = CompleteReply> {
    let server = &worker.server;
    if server.app().is_none()
        && server.place.is_in_cluster()
        && let (method, path) = (request.method(), request.uri().path())
        && let to = (request.headers().get(HOST), request.headers())
        && let Ok(operation) = find_for(method, path, to, server.has_clob())
        && !operation.is_answered_by_any_node(server.is_draining())
    {
        // Boxed, because this future is larger than that of a request answered by this node.
        Either::Left(Box::pin(async move {
            let began = Instant::now();
            if let Answering::Here = answering(worker, OWNER_WAIT_MAX).await {
                return handle(worker, slot, peer, request).await;
            }
            let from = (peer, began);
            CompleteReply::Elsewhere(pass_on(worker, slot, from, operation, request).await)
        }))
    } else {
        Either::Right(handle(worker, slot, peer, request))
    }
}

async fn pass_on(
    worker: &Worker,
    slot: &Arc<ConnectionSlot>,
    (peer, began): (IpAddr, Instant),
    operation: &'static Operation,
    request: Request<RequestBody>,
) -> Response<ReplyBody> {
    let (mut head, mut body) = request.into_parts();
    let origin = worker.server.cors.of(&head.headers);
    let request_id = RequestId::of(RequestHeaders::of(&head.headers).request_id.first());
    // Both nodes log the request under the same id.
    head.headers.insert(&REQUEST_ID, request_id.to_value());
    let from = (slot, peer, began);
    let response = match answer(worker, from, operation, (head, &mut body)).await {
        Ok(response) => response,
        Err(error) => {
            let reply = operation.refuse(error);
            let mut response = response_of(reply, &request_id, None, HeaderMap::new());
            if let Some(origin) = origin {
                crate::http::cors::expose(response.headers_mut(), origin);
            }
            response
        }
    };
    let (status, elapsed) = (response.status(), began.elapsed());
    worker.metrics.answered(row(Some(operation)), status.as_u16(), elapsed);
    if let Some(log) = worker.server.access.get() {
        let request_id = RequestId::of(response.headers().get(&REQUEST_ID));
        log_request(log, Some(operation), status, elapsed, &request_id, (None, 0));
    }
    response
}

/// Forwards a request to the owner and returns its answer.
async fn answer(
    worker: &Worker,
    (slot, peer, began): (&Arc<ConnectionSlot>, IpAddr, Instant),
    operation: &'static Operation,
    (mut head, body): (Parts, &mut RequestBody),
) -> Result<Response<ReplyBody>, ApiError> {
    let server = &worker.server;
    require_framing(&RequestHeaders::of(&head.headers), head.version)?;
    body.limit(operation.body_bytes_max)?;
    let client = server.proxies.client(peer, &head.headers);
    if slot.note_request(Moment::at(began).monotonic_ns) {
        warn_of_forwarding(server, peer, &head);
    }
    if body.is_pipelined() {
        worker.give_way(slot).await;
    }
    let origin = Origin::of(client);
    body.is_of(if slot.is_recognized() {
        Holder::Recognized(origin)
    } else {
        Holder::Stranger(origin)
    });
    let whole = body.read(&server.bodies).await?;
    let upgrading = upgrading(operation, &mut head);
    let bytes = if upgrading.is_some() { Bytes::new() } else { whole.bytes() };
    let request = request_to_owner(head, client, bytes, upgrading.is_some());
    let response = send(worker, operation, request).await?;
    // The owner has answered, so the body need not count towards the budget while the answer is
    // sent.
    drop(whole);
    if response.headers().contains_key(&RATE_LIMIT_TIER) {
        // The owner has identified the caller.
        slot.recognize();
    }
    match upgrading {
        Some(client) if response.status() == StatusCode::OK => {
            Ok(switch_protocols(worker, slot.clone(), client, response))
        }
        _ => answered(operation, response).await,
    }
}

/// Sends a request to the owner, at most once.
async fn send(
    worker: &Worker,
    operation: &Operation,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<Incoming>, ApiError> {
    let deadline = Instant::now() + OWNER_WAIT_MAX;
    loop {
        let time_left = deadline.saturating_duration_since(Instant::now());
        let mut owner = match answering(worker, time_left).await {
            Answering::There(owner) => owner,
            Answering::Halted => return Err(ApiError::log_halted()),
            Answering::Here | Answering::Nobody => return Err(ApiError::not_ready()),
        };
        let mut error = match owner.try_send_request(request).await {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        if let Some(unsent) = error.take_message() {
            if Instant::now() >= deadline {
                return Err(ApiError::not_ready());
            }
            // The link had ended unnoticed. Another may open soon.
            sleep(RESEND_PAUSE).await;
            request = unsent;
            continue;
        }
        tracing::debug!(error = ?error.error(), "the owner of the log has not answered");
        return Err(lost(operation, is_refused(error.error())));
    }
}

/// Returns the connection that becomes a socket if the owner agrees; `None` if the request does not
/// ask for an upgrade.
fn upgrading(operation: &Operation, head: &mut Parts) -> Option<OnUpgrade> {
    let asks = matches!(operation.run, Run::Socket(_)) && asks_for_upgrade(head);
    asks.then(|| head.extensions.remove()).flatten()
}

/// Builds the request that is sent to the owner.
pub(super) fn request_to_owner(
    head: Parts,
    client: IpAddr,
    body: Bytes,
    is_upgrade: bool,
) -> Request<Full<Bytes>> {
    let mut headers = head.headers;
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|names| names.split(',')).map(|name| name.trim().parse());
    let named: Vec<HeaderName> = named.filter_map(Result::ok).collect();
    for name in named.iter().filter(|name| !NOT_OF_CONNECTION.contains(name)) {
        headers.remove(name);
    }
    for name in [&CONNECTION, &CONTENT_LENGTH, &EXPECT, &TE, &TRAILER, &TRANSFER_ENCODING, &UPGRADE]
    {
        headers.remove(name);
    }
    for name in [&KEEP_ALIVE, &PROXY_CONNECTION, &FORWARDED_FOR, &VERSION] {
        headers.remove(name);
    }
    let client =
        HeaderValue::try_from(client.to_string()).expect("an address has no odd characters");
    headers.insert(&CLIENT, client);
    if head.version == Version::HTTP_10 {
        headers.insert(&VERSION, HeaderValue::from_static("1.0"));
    }
    let mut uri = head.uri.into_parts();
    uri.scheme = Some(Scheme::HTTP);
    uri.authority = Some(Authority::from_static(AUTHORITY));
    let uri = Uri::from_parts(uri).expect("a path that was routed");
    let mut request = Request::new(Full::new(body));
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    *request.method_mut() = if is_upgrade {
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        Method::CONNECT
    } else {
        head.method
    };
    request
}

/// Whether the owner reports that it has not processed the request, which was on its way when the
/// owner began to close the link.
fn is_refused(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let reason = cause.reason();
        reason == Some(Reason::REFUSED_STREAM)
            || (cause.is_go_away() && cause.is_remote() && reason == Some(Reason::NO_ERROR))
    })
}

/// Returns the error for a request that the owner will never answer.
fn lost(operation: &Operation, is_unsent: bool) -> ApiError {
    if is_unsent || operation.method == Verb::Get {
        ApiError::not_ready()
    } else {
        ApiError::outcome_unknown()
    }
}

/// Converts the owner's answer into the answer to the client.
async fn answered(
    operation: &Operation,
    response: Response<Incoming>,
) -> Result<Response<ReplyBody>, ApiError> {
    let (mut head, incoming) = response.into_parts();
    restore(&mut head);
    let is_small = incoming.size_hint().upper().is_some_and(|bytes| bytes <= WHOLE_BYTES_MAX);
    let body = if is_small {
        let whole = incoming.collect().await.map_err(|_| lost(operation, false))?;
        Full::new(whole.to_bytes()).into()
    } else {
        let media = head.headers.get(CONTENT_TYPE);
        let is_endless = media.is_some_and(|media| media == "text/event-stream");
        ReplyBody::Stream(Box::new(PassedOn { incoming, is_endless }), None)
    };
    Ok(Response::from_parts(head, body))
}

/// Restores what HTTP/2 cannot express.
fn restore(head: &mut hyper::http::response::Parts) {
    head.version = Version::HTTP_11;
    if let Some(protocol) = head.headers.remove(&UPGRADE_TO) {
        head.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        head.headers.insert(UPGRADE, protocol);
    }
}

/// A long or endless answer from the owner, passed on as it arrives.
struct PassedOn {
    incoming: Incoming,
    is_endless: bool,
}

impl Source for PassedOn {
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>> {
        loop {
            let frame = ready!(std::pin::Pin::new(&mut self.incoming).poll_frame(context));
            match frame.map(|frame| frame.map(Frame::into_data)) {
                // An endless stream must not appear to end cleanly.
                None if self.is_endless => return Poll::Ready(Some(Err(CutOff))),
                None => return Poll::Ready(None),
                Some(Err(_)) => return Poll::Ready(Some(Err(CutOff))),
                Some(Ok(Ok(bytes))) if !bytes.is_empty() => return Poll::Ready(Some(Ok(bytes))),
                // An empty frame, or trailers, which the owner does not send.
                Some(Ok(_)) => {}
            }
        }
    }

    fn is_endless(&self) -> bool {
        self.is_endless
    }
}

/// Answers that the connection is now a socket, and carries its bytes until the socket or the link
/// ends, or the server shuts down.
fn switch_protocols(
    worker: &Worker,
    slot: Arc<ConnectionSlot>,
    client: OnUpgrade,
    mut response: Response<Incoming>,
) -> Response<ReplyBody> {
    let owner = hyper::upgrade::on(&mut response);
    let mut shutdown = worker.server.shutdown();
    tokio::spawn(async move {
        let carried = async {
            let (client, owner) = (TokioIo::new(client.await?), TokioIo::new(owner.await?));
            carry(client, owner, || slot.recognize()).await?;
            anyhow::Ok(())
        };
        tokio::select! {
            carried = carried => {
                if let Err(error) = carried {
                    tracing::debug!(%error, "a socket that was passed on ended");
                }
            }
            () = slot.dismissed() => {}
            _ = shutdown.wait_for(|is_closing| *is_closing) => {}
        }
    });
    let (mut head, _) = response.into_parts();
    restore(&mut head);
    head.status = StatusCode::SWITCHING_PROTOCOLS;
    Response::from_parts(head, Full::default().into())
}
