//! The admin listener, which serves the metrics.

use std::net::TcpListener as StdListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use crate::http::app::Server;
use crate::http::body::RequestBody;
use crate::http::connection::{ConnectionLimit, Deadlines, Ending, serve_connection};
use crate::service::Moment;

/// Maximum number of connections. Beyond that, a new connection replaces the connection that has
/// been idle longest.
const CONNECTIONS_MAX: usize = 16;

/// Maximum time that a scraper's connection may stay idle.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// Serves metrics until the process ends.
pub(super) async fn serve(socket: StdListener, server: Arc<Server>) {
    let listener = match TcpListener::from_std(socket) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "failed to serve metrics");
            return;
        }
    };
    let limit = ConnectionLimit::new(CONNECTIONS_MAX);
    let now_ns = || Moment::at(Instant::now()).monotonic_ns;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Most likely out of file descriptors: retry a little later.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(slot) = limit.admit(None, now_ns()) else { continue };
        let server = server.clone();
        tokio::spawn(async move {
            let answer = |request| {
                slot.note_request(now_ns());
                respond(request, server.clone())
            };
            let deadlines = Deadlines { idle: IDLE_MAX, ..Deadlines::default() };
            let dismissed = async {
                slot.dismissed().await;
                Ending::Abrupt
            };
            let connection = serve_connection(stream, deadlines, None, answer, dismissed);
            if let Err(error) = connection.await {
                tracing::debug!("an admin connection ended: {error}");
            }
        });
    }
}

async fn respond(request: Request<RequestBody>, server: Arc<Server>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if request.uri().path() != "/metrics" {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    } else {
        // Rendered off the runtime, since it visits every market and every open file.
        let page = spawn_blocking(move || server.metrics_page()).await;
        let page = page.expect("rendering the metrics does not panic");
        let kind = HeaderValue::from_static("text/plain; version=0.0.4");
        response.headers_mut().insert(CONTENT_TYPE, kind);
        *response.body_mut() = Full::new(page.into());
    }
    response
}
