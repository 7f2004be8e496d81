//! The admin listener, which serves the metrics and the plan of trouble on demand.

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

/// Maximum size of a plan of trouble, in bytes.
const PLAN_BYTES_MAX: usize = 64 * 1024;

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
    let mut response = match request.uri().path() {
        "/metrics" => metrics(request.method(), server).await,
        "/trouble" => trouble(request, &server).await,
        _ => answer(StatusCode::NOT_FOUND, String::new()),
    };
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn metrics(method: &Method, server: Arc<Server>) -> Response<Full<Bytes>> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return answer(StatusCode::METHOD_NOT_ALLOWED, String::new());
    }
    // Rendered off the runtime, since it visits every market and every open file.
    let page = spawn_blocking(move || server.metrics_page()).await;
    let page = page.expect("rendering the metrics does not panic");
    let mut response = answer(StatusCode::OK, page);
    let kind = HeaderValue::from_static("text/plain; version=0.0.4");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Shows the plan of trouble on demand, or follows another one.
async fn trouble(request: Request<RequestBody>, server: &Server) -> Response<Full<Bytes>> {
    let app = server.app();
    let Some(trouble) = app.and_then(|app| app.trouble.as_ref()) else {
        let text = "no trouble on demand: start with --clob on --clob-trouble PLAN\n";
        return answer(StatusCode::NOT_FOUND, text.to_owned());
    };
    let (head, mut body) = request.into_parts();
    match head.method {
        Method::GET | Method::HEAD => {}
        Method::PUT => {
            let read = match body.limit(PLAN_BYTES_MAX) {
                Ok(()) => body.read(&server.bodies).await,
                Err(error) => Err(error),
            };
            let text = match &read {
                Ok(read) => str::from_utf8(read).unwrap_or_default(),
                Err(error) => return answer(StatusCode::BAD_REQUEST, format!("{error}\n")),
            };
            match text.trim().parse() {
                Ok(plan) => trouble.follow(plan),
                Err(flaw) => return answer(StatusCode::BAD_REQUEST, format!("{flaw}\n")),
            }
        }
        _ => return answer(StatusCode::METHOD_NOT_ALLOWED, String::new()),
    }
    answer(StatusCode::OK, format!("{}\n", trouble.plan()))
}

fn answer(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
