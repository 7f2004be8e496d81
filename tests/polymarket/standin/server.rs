//! The listeners, and the handling that is common to all requests.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::{BodyExt as _, Collected, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT_ENCODING, USER_AGENT};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::answer::{Answer, AnswerBody};
use super::fault::{Endpoint, EndpointFault};
use super::state::{REQUESTS_KEPT_MAX, Sent, State, now_us};
use super::tls::TlsStream;
use super::{clob, data, gamma, socket};

/// The largest body that a client may send.
const BODY_BYTES_MAX: usize = 1024 * 1024;

/// The state that all connections share.
pub(crate) struct Shared {
    pub(crate) state: Mutex<State>,
}

/// Which of the venue's hosts a listener plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Host {
    Gamma,
    Clob,
    Data,
    Socket,
}

/// A request, whatever its answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RequestSeen {
    /// In microseconds since 1970.
    pub(crate) at_us: u64,
    pub(crate) host: Host,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) query: String,
    /// The number of tokens in the body.
    pub(crate) token_count: usize,
    /// The status of the answer.
    pub(crate) status: u16,
    /// Whether the client accepts gzip.
    pub(crate) takes_gzip: bool,
}

/// The query parameters in order; a name may be repeated.
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        Self(pairs.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    pub(crate) fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |pair| pair.0 == name).map(|pair| pair.1.as_str())
    }

    pub(crate) fn number(&self, name: &str) -> Option<usize> {
        self.first(name)?.parse().ok()
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let digits = [bytes.next().unwrap_or(b'?'), bytes.next().unwrap_or(b'?')];
                let digits = std::str::from_utf8(&digits).unwrap_or_default();
                out.push(u8::from_str_radix(digits, 16).unwrap_or(b'?'));
            }
            b'+' => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Listens on a free port.
pub(crate) async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Accepts connections, which end when this future is dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    host: Host,
    shared: Arc<Shared>,
    tls: Option<Arc<ServerConfig>>,
) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        // Small frames leave at once, as at the venue.
        let _ = stream.set_nodelay(true);
        connections.spawn(connection(stream, host, shared.clone(), tls.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(
    stream: TcpStream,
    host: Host,
    shared: Arc<Shared>,
    tls: Option<Arc<ServerConfig>>,
) {
    let service = service_fn(move |request| {
        let shared = shared.clone();
        async move { Ok::<_, Infallible>(handle(request, host, shared).await) }
    });
    let server = http1::Builder::new();
    // Clients may disconnect at any point.
    let _ = match tls {
        Some(config) => {
            let stream = TokioIo::new(TlsStream::new(stream, config));
            server.serve_connection(stream, service).with_upgrades().await
        }
        None => server.serve_connection(TokioIo::new(stream), service).with_upgrades().await,
    };
}

async fn handle(
    mut request: Request<Incoming>,
    host: Host,
    shared: Arc<Shared>,
) -> Response<AnswerBody> {
    let at_us = now_us();
    let path = request.uri().path().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let is_named = request.headers().contains_key(USER_AGENT);
    let encodings = request.headers().get(ACCEPT_ENCODING);
    let takes_gzip = encodings
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.split(',').any(|it| it.trim() == "gzip"));
    let fault = shared.state.lock().take_endpoint_fault(Endpoint::of(host, &path, &query));
    let mut seen = RequestSeen { at_us, host, path, query, token_count: 0, status: 0, takes_gzip };
    let response = if !is_named {
        // The edge takes clients without a user agent for robots.
        Answer::status(403, "error code: 1010").into_response()
    } else if host == Host::Socket {
        upgrade(&mut request, &seen.path, &shared, fault)
    } else {
        let body = Limited::new(request.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map(Collected::to_bytes).unwrap_or_default();
        seen.token_count = body.windows(10).filter(|window| window == br#""token_id""#).count();
        let answer = service(&shared, &seen, &body);
        let answer = fault.into_iter().fold(answer, Answer::with);
        let (status, body) = answer.parts();
        let get = format!("{}?{}", seen.path, seen.query);
        shared.state.lock().note(|| Sent::Answer { host, get, status, body });
        let answer = if takes_gzip { answer.compressed() } else { answer };
        answer.into_response()
    };
    seen.status = response.status().as_u16();
    {
        let mut state = shared.state.lock();
        if state.requests.len() == REQUESTS_KEPT_MAX {
            state.requests.pop_front();
        }
        state.requests.push_back(seen);
    }
    match fault {
        Some(EndpointFault::Slow(delay)) => tokio::time::sleep(delay).await,
        Some(EndpointFault::Silent) => std::future::pending().await,
        _ => {}
    }
    response
}

fn service(shared: &Shared, seen: &RequestSeen, body: &[u8]) -> Answer {
    let query = Query::parse(&seen.query);
    let mut state = shared.state.lock();
    match seen.host {
        Host::Gamma => gamma::answer(&mut state, &seen.path, &query),
        Host::Data => data::answer(&state, &seen.path, &query),
        _ => clob::answer(&mut state, &seen.path, &query, body),
    }
}

fn upgrade(
    request: &mut Request<Incoming>,
    path: &str,
    shared: &Arc<Shared>,
    fault: Option<EndpointFault>,
) -> Response<AnswerBody> {
    if let Some(refusal @ EndpointFault::Refuse { .. }) = fault {
        return Answer::json(String::new()).with(refusal).into_response();
    }
    if path != "/ws/market" || !fastwebsockets::upgrade::is_upgrade_request(request) {
        return Answer::status(404, "404 page not found\n").into_response();
    }
    let upgraded = hyper::upgrade::on(&mut *request);
    let Ok((answer, _)) = fastwebsockets::upgrade::upgrade(&mut *request) else {
        return Answer::status(400, "Bad Request").into_response();
    };
    let shared = shared.clone();
    tokio::spawn(async move {
        if let Ok(stream) = upgraded.await {
            socket::run(shared, stream).await;
        }
    });
    answer.map(|_| AnswerBody::default())
}
