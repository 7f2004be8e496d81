//! An HTTP server with a single answer: the bytes and headers of a typical trade result.
//!
//! Each worker has a single-threaded runtime and a listening socket. All sockets share a port, so
//! the kernel spreads the connections and workers share nothing.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Builder, Runtime};

/// Maximum number of connections that the kernel queues until they are accepted.
const BACKLOG: u32 = 4096;

/// The body of a trade result, as long as a real one in the middle of a load.
pub(crate) const BODY: &str = concat!(
    r#"{"order_id":8388608,"status":"FILLED","price":0.53,"quantity":1,"notional":0.53,"fee":0,"#,
    r#""account_balance":999964.31,"position":{"market_id":"#,
    r#""0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9","#,
    r#""outcome":"Yes","quantity":1,"avg_entry_price":0.53,"status":"OPEN"}}"#,
);

/// The headers of a trade result besides `Content-Length` and `Date`.
pub(crate) const HEADERS: [(HeaderName, HeaderValue); 8] = [
    (CONTENT_TYPE, HeaderValue::from_static("application/json")),
    header("x-request-id", "6b1f0a52-8388608"),
    header("x-ratelimit-tier", "free"),
    header("x-ratelimit-limit", "2147483647"),
    header("x-ratelimit-limit-per-second", "2147483647"),
    header("x-ratelimit-remaining", "2147483647"),
    header("x-ratelimit-remaining-per-second", "2147483647"),
    header("x-ratelimit-reset", "1784937600"),
];

/// A server that is bound but does not answer yet.
pub(crate) struct CannedServer {
    address: SocketAddr,
    workers: Vec<(Runtime, TcpListener)>,
}

impl CannedServer {
    /// Binds one socket per worker. From here on the kernel accepts connections.
    pub(crate) fn bind(address: SocketAddr, worker_count: usize) -> io::Result<Self> {
        let mut server = Self { address, workers: Vec::with_capacity(worker_count) };
        for _ in 0..worker_count {
            let runtime = Builder::new_current_thread().enable_io().build()?;
            let listener = {
                let _entered = runtime.enter();
                // The first socket picks the port that the others share.
                shared_listener(server.address)?
            };
            server.address = listener.local_addr()?;
            server.workers.push((runtime, listener));
        }
        Ok(server)
    }

    /// Returns the address, with the port that the system picked for port 0.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until any worker fails to accept.
    pub(crate) fn serve(self) -> io::Result<()> {
        let (failed, failures) = std::sync::mpsc::channel();
        for (runtime, listener) in self.workers {
            let failed = failed.clone();
            thread::Builder::new().name("worker".into()).spawn(move || {
                // The receiver is gone if another worker failed first.
                let _ = failed.send(runtime.block_on(accept(&listener)));
            })?;
        }
        drop(failed);
        failures.recv().unwrap_or(Ok(()))
    }
}

pub(crate) fn shared_listener(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

async fn accept(listener: &TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(serve_connection(stream));
    }
}

/// Answers one client until it disconnects.
pub(crate) async fn serve_connection(io: impl AsyncRead + AsyncWrite + Unpin) {
    let connection = http1::Builder::new().serve_connection(TokioIo::new(io), service_fn(answer));
    // A client may hang up in the middle of a request.
    let _ = connection.await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let is_complete = request.into_body().collect().await.is_ok();
    let mut response = Response::new(Full::new(Bytes::from_static(BODY.as_bytes())));
    if !is_complete {
        *response.status_mut() = StatusCode::BAD_REQUEST;
    }
    response.headers_mut().extend(HEADERS);
    Ok(response)
}

const fn header(name: &'static str, value: &'static str) -> (HeaderName, HeaderValue) {
    (HeaderName::from_static(name), HeaderValue::from_static(value))
}
