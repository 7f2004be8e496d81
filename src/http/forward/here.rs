//! The owner's side: answers what other nodes pass on.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
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
use crate::cluster::link::Links;
use crate::http::body::RequestBody;
use crate::http::connection::{Activity, CutOff, ReplyBody};
use crate::http::exchange::{ConnectionSlot, Server, Worker};
use crate::http::handle::handle;
use crate::journal::replicated::NodeName;
use crate::service::Moment;

/// How long to wait before links are accepted after that has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// The most requests and sockets that a node passes on at a time. Its own limit of connections is
/// lower.
const STREAMS_MAX: u32 = 1 << 20;

/// Accepts links of other nodes as the owner since this epoch. Returns if that fails.
pub(super) async fn accept(
    worker: &Arc<Worker>,
    node: &NodeName,
    links: &Links,
    epoch: u64,
    alive: &mpsc::WeakSender<()>,
) {
    match links.listen(epoch).await {
        Ok(mut listener) => {
            while let Some(link) = listener.accept().await {
                // Once the worker has drained, it takes no more.
                let Some(alive) = alive.upgrade() else { break };
                tokio::spawn(serve(worker.clone(), node.clone(), link, alive));
            }
        }
        Err(error) => tracing::debug!(%error, "links are not accepted"),
    }
    sleep(RETRY_PAUSE).await;
}

/// Answers the requests that come over a link, until it ends or the server shuts down.
pub(super) async fn serve<Io>(
    worker: Arc<Worker>,
    node: NodeName,
    link: Io,
    alive: mpsc::Sender<()>,
) where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let server = worker.server.clone();
    let now_ns = Moment::at(Instant::now()).monotonic_ns;
    let Ok(guard) = server.connections.admit(None, now_ns) else {
        tracing::warn!("refused a link to another node: all connection slots are taken");
        return;
    };
    // It serves many clients, so it is never closed to make room for one.
    guard.recognize();
    let slot = Arc::new(ConnectionSlot::new(guard, alive));
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
            let response = handle(&worker, &slot, client, request).await;
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
        // Clients may come and go.
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

/// The request as its client sent it, and the client's address. `None` if no node has sent it.
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
    // The deadlines of bodies are the other node's, which has read all of it.
    Some((client, request.map(|body| RequestBody::new(body, Arc::new(Activity::default())))))
}

/// The answer as a node gets it.
fn answered(response: Response<ReplyBody>, is_head: bool, worker: &Worker) -> Response<PassedBack> {
    let (mut head, mut body) = response.into_parts();
    if is_head && let ReplyBody::Whole(whole, _) = &body {
        // hyper would send the body.
        let bytes = whole.size_hint().exact().unwrap_or_default();
        head.headers.insert(CONTENT_LENGTH, bytes.into());
        body = Full::default().into();
    }
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        // How HTTP/2 says so.
        head.status = StatusCode::OK;
    }
    head.headers.remove(CONNECTION);
    if let Some(protocol) = head.headers.remove(UPGRADE) {
        head.headers.insert(&UPGRADE_TO, protocol);
    }
    let closing = match &body {
        ReplyBody::Stream(source, _) if source.is_endless() => Some(closing(&worker.server)),
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

/// A body on its way to another node.
pub(super) struct PassedBack {
    body: ReplyBody,
    /// Resolves when a stream without an end is to be cut off.
    closing: Option<Closing>,
    has_said_farewell: bool,
}

impl PassedBack {
    fn empty() -> Self {
        Self { body: Full::default().into(), closing: None, has_said_farewell: false }
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
            ReplyBody::Whole(body, _) => {
                return Pin::new(body).poll_frame(context).map_err(|never| match never {});
            }
            ReplyBody::Stream(source, _) => source,
        };
        let is_closing = *has_said_farewell
            || closing.as_mut().is_some_and(|closing| closing.as_mut().poll(context).is_ready());
        if is_closing {
            let is_over = std::mem::replace(has_said_farewell, true);
            let last = if is_over { Bytes::new() } else { source.farewell() };
            let last = if last.is_empty() { Err(CutOff) } else { Ok(Frame::data(last)) };
            return Poll::Ready(Some(last));
        }
        source.poll_bytes(context).map(|bytes| bytes.map(|bytes| bytes.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            ReplyBody::Whole(body, _) => body.is_end_stream(),
            ReplyBody::Stream(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            ReplyBody::Whole(body, _) => body.size_hint(),
            ReplyBody::Stream(..) => SizeHint::default(),
        }
    }
}
