//! The owner's side: answers the requests that other nodes forward.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::ext::Protocol;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, UPGRADE};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::{
    CLIENT, HEADER_BYTES_MAX, LINK_WINDOW_BYTES, OWNER, PING_INTERVAL, PING_PATIENCE,
    STREAM_WINDOW_BYTES, UPGRADE_TO, VERSION,
};
use crate::http::app::{ConnectionSlot, Server, Worker};
use crate::http::body::RequestBody;
use crate::http::connection::{Activity, CutOff, Outgoing as _, ReplyBody, Source, bytes_of};
use crate::http::handle::handle;
use paperbourse_cluster::link::Links;
use paperbourse_core::limits::budget::Share;
use paperbourse_exchange::service::Moment;
use paperbourse_store::journal::replicated::NodeName;

/// Pause before links are accepted again after a failure.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Size of the pieces in which an answer is handed to HTTP/2, which keeps each piece until the
/// other node has received it.
const PIECE_BYTES: usize = 16 * 1024;

/// Maximum number of requests and sockets that a node forwards at a time. A node's own connection
/// limit is lower.
const STREAMS_MAX: u32 = 1 << 20;

/// Accepts links from other nodes as the owner of the log since `epoch`. Returns when listening
/// fails or ends, or once the worker has drained.
pub(super) async fn accept(
    worker: &Arc<Worker>,
    node: &NodeName,
    links: &Links,
    epoch: u64,
    alive: &mpsc::WeakSender<()>,
) {
    match links.listen(epoch).await {
        Ok(mut listener) => {
            while let Some(opening) = listener.next().await {
                // A worker that has drained accepts no more links.
                let Some(alive) = alive.upgrade() else { break };
                let now_ns = Moment::at(Instant::now()).monotonic_ns;
                let Ok(guard) = worker.server.connections.admit(None, now_ns) else {
                    tracing::warn!("refused a link to another node: all connections are taken");
                    opening.refuse().await;
                    continue;
                };
                // A link serves many clients, so it is never closed to make room for one.
                guard.recognize();
                let slot = ConnectionSlot::new(guard, alive);
                if let Some(link) = opening.accept().await {
                    tokio::spawn(serve(worker.clone(), node.clone(), link, slot));
                }
            }
        }
        Err(error) => tracing::debug!(%error, "links are not accepted"),
    }
    sleep(RETRY_PAUSE).await;
}

/// Answers the requests received over a link, until it ends or the server shuts down.
pub(super) async fn serve<Io>(worker: Arc<Worker>, node: NodeName, link: Io, slot: ConnectionSlot)
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let server = worker.server.clone();
    let slot = Arc::new(slot);
    let name = HeaderValue::from_str(node.as_str()).expect("a node's name has no other characters");
    let service = service_fn(|request: Request<Incoming>| {
        let (worker, slot, name) = (worker.clone(), slot.clone(), name.clone());
        async move {
            let Some((client, request)) = received(request) else {
                let mut refused = Response::new(PassedBack::empty());
                *refused.status_mut() = StatusCode::BAD_REQUEST;
                return Ok::<_, Infallible>(refused);
            };
            let is_head = request.method() == Method::HEAD;
            let response = handle(&worker, &slot, client, request).await.into_response();
            let mut response = answered(response, is_head, &worker);
            response.headers_mut().insert(&OWNER, name);
            Ok(response)
        }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_PATIENCE)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(LINK_WINDOW_BYTES)
        .max_header_list_size(HEADER_BYTES_MAX)
        .max_concurrent_streams(STREAMS_MAX)
        // Clients may come and go at any rate, and each one that leaves early resets its stream.
        .max_pending_accept_reset_streams(usize::MAX)
        .max_local_error_reset_streams(None)
        .enable_connect_protocol();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(link), service));
    let closing = closing(&server);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a link to another node ended");
    }
}

/// Restores a request as its client sent it. Returns it with the client's address, or `None` if the
/// request does not come from a node.
fn received(mut request: Request<Incoming>) -> Option<(IpAddr, Request<RequestBody>)> {
    let headers = request.headers_mut();
    let client: IpAddr = headers.remove(&CLIENT)?.to_str().ok()?.parse().ok()?;
    let is_old = headers.remove(&VERSION).is_some();
    if request.extensions().get::<Protocol>().is_some() {
        let headers = request.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
        *request.method_mut() = Method::GET;
    }
    *request.version_mut() = if is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    // The deadlines of bodies were enforced by the other node, which has read the whole body.
    Some((client, request.map(|body| RequestBody::new(body, Arc::new(Activity::default())))))
}

/// Converts an answer for the node that forwards it.
fn answered(response: Response<ReplyBody>, is_head: bool, worker: &Worker) -> Response<PassedBack> {
    let (mut head, body) = response.into_parts();
    let mut body = match body {
        ReplyBody::Whole(whole, held) => Sent::Whole { bytes: bytes_of(whole), _held: held },
        ReplyBody::Stream(source, _) => Sent::Stream(source),
    };
    if is_head && let Sent::Whole { bytes, .. } = &mut body {
        // hyper would otherwise send the body.
        head.headers.insert(CONTENT_LENGTH, bytes.len().into());
        bytes.clear();
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // HTTP/2 accepts an upgrade with 200.
        head.status = StatusCode::OK;
    }
    head.headers.remove(CONNECTION);
    if let Some(protocol) = head.headers.remove(UPGRADE) {
        head.headers.insert(&UPGRADE_TO, protocol);
    }
    let closing = match &body {
        Sent::Stream(source) if source.is_endless() => Some(closing(&worker.server)),
        _ => None,
    };
    Response::from_parts(head, PassedBack { body, closing, has_said_farewell: false })
}

/// Resolves when the server shuts down.
fn closing(server: &Server) -> Closing {
    let mut shutdown = server.shutdown();
    Box::pin(async move {
        // If the sender is gone, the server has shut down as well.
        let _ = shutdown.wait_for(|is_closing| *is_closing).await;
    })
}

type Closing = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The content of a body sent to another node.
enum Sent {
    /// A complete body, and its share of the answer budget.
    Whole {
        bytes: Bytes,
        _held: Option<Share>,
    },
    Stream(Box<dyn Source>),
}

/// A body on its way to another node.
pub(super) struct PassedBack {
    body: Sent,
    /// Resolves when an endless stream must be cut off.
    closing: Option<Closing>,
    has_said_farewell: bool,
}

impl PassedBack {
    fn empty() -> Self {
        Self {
            body: Sent::Whole { bytes: Bytes::new(), _held: None },
            closing: None,
            has_said_farewell: false,
        }
    }
}

impl Body for PassedBack {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let Self { body, closing, has_said_farewell } = self.get_mut();
        let source = match body {
            // Sent in pieces: hyper takes each piece only once the other node has room for it.
            Sent::Whole { bytes, .. } => {
                let piece = bytes.split_to(bytes.len().min(PIECE_BYTES));
                return Poll::Ready((!piece.is_empty()).then(|| Ok(Frame::data(piece))));
            }
            Sent::Stream(source) => source,
        };
        let is_closing = *has_said_farewell
            || closing.as_mut().is_some_and(|closing| closing.as_mut().poll(context).is_ready());
        if is_closing {
            // Ends cleanly here. The other node still cuts off its client's stream.
            let is_over = std::mem::replace(has_said_farewell, true);
            let last = if is_over { Bytes::new() } else { source.farewell() };
            return Poll::Ready((!last.is_empty()).then(|| Ok(Frame::data(last))));
        }
        source.poll_bytes(context).map(|bytes| bytes.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Sent::Whole { bytes, .. } => bytes.is_empty(),
            Sent::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Sent::Whole { bytes, .. } => SizeHint::with_exact(bytes.len() as u64),
            Sent::Stream(_) => SizeHint::default(),
        }
    }
}
