//! A plain client of the REST services and the socket.

use std::time::Duration;

use bytes::Bytes;
use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket};
use http_body_util::{BodyExt as _, Collected, Full};
use hyper::header::{CONNECTION, HOST, UPGRADE, USER_AGENT};
use hyper::upgrade::Upgraded;
use hyper::{HeaderMap, Method, Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use paperbourse::venue::tls::{Roots, client_config};
use serde_json::{Value, json};

use super::super::StandIn;

/// The longest wait for a frame.
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends requests to the stand-in, trusting its authority.
pub(crate) struct Asker {
    inner: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Asker {
    pub(crate) fn new(venue: &StandIn) -> Self {
        let roots = venue.authority_path.as_deref().map_or(Roots::Nobody, Roots::File);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(roots).unwrap())
            .https_or_http()
            .enable_http1()
            .build();
        Self { inner: Client::builder(TokioExecutor::new()).build(connector) }
    }

    /// Returns status and body.
    pub(crate) async fn get(&self, url: &str) -> (u16, String) {
        let request = Request::get(url).header(USER_AGENT, "test").body(Full::default()).unwrap();
        self.ask(request).await
    }

    pub(crate) async fn post(&self, url: &str, body: &Value) -> (u16, String) {
        let body = Full::new(Bytes::from(body.to_string()));
        let request = Request::post(url).header(USER_AGENT, "test").body(body).unwrap();
        self.ask(request).await
    }

    pub(crate) async fn ask(&self, request: Request<Full<Bytes>>) -> (u16, String) {
        let response = self.inner.request(request).await.unwrap();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Returns status and headers.
    pub(crate) async fn head(&self, url: &str) -> (u16, HeaderMap) {
        let request = Request::get(url).header(USER_AGENT, "test").body(Full::default()).unwrap();
        let response = self.inner.request(request).await.unwrap();
        (response.status().as_u16(), response.headers().clone())
    }

    /// Returns the body, if it arrives whole.
    pub(crate) async fn try_get(&self, url: &str) -> Option<Bytes> {
        let request = Request::get(url).header(USER_AGENT, "test").body(Full::default()).unwrap();
        let response = self.inner.request(request).await.ok()?;
        response.into_body().collect().await.ok().map(Collected::to_bytes)
    }

    /// Returns a document, which must exist.
    pub(crate) async fn json(&self, url: &str) -> Value {
        let (status, body) = self.get(url).await;
        assert_eq!(status, 200, "{url}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Opens a socket, or returns the refusing status.
    pub(crate) async fn upgrade(&self, url: &str) -> Result<Socket, u16> {
        let url = url.replacen("ws", "http", 1);
        let request = Request::builder()
            .method(Method::GET)
            .header(HOST, "127.0.0.1")
            .header(USER_AGENT, "test")
            .header(UPGRADE, "websocket")
            .header(CONNECTION, "upgrade")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .header("sec-websocket-version", "13")
            .uri(url)
            .body(Full::default())
            .unwrap();
        let response: Response<_> = self.inner.request(request).await.unwrap();
        if response.status() != 101 {
            return Err(response.status().as_u16());
        }
        let stream = hyper::upgrade::on(response).await.unwrap();
        let mut inner = WebSocket::after_handshake(TokioIo::new(stream), Role::Client);
        inner.set_auto_close(false);
        inner.set_auto_pong(false);
        Ok(Socket { inner })
    }

    /// Opens a socket, subscribes to these tokens, and reads their initial dump.
    pub(crate) async fn subscribed(&self, venue: &StandIn, tokens: &[&str]) -> (Socket, Value) {
        let mut socket = self.upgrade(&venue.ws_url).await.unwrap();
        socket.subscribe(tokens).await;
        let dump = socket.json().await;
        (socket, dump)
    }
}

/// What a socket received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Received {
    Text(String),
    Binary(usize),
    /// The stream has ended.
    End,
}

pub(crate) struct Socket {
    inner: WebSocket<TokioIo<Upgraded>>,
}

impl Socket {
    pub(crate) async fn say(&mut self, text: &str) {
        let frame = Frame::text(Payload::Borrowed(text.as_bytes()));
        self.inner.write_frame(frame).await.unwrap();
    }

    /// Sends the initial form.
    pub(crate) async fn subscribe(&mut self, tokens: &[&str]) {
        let form = json!({"assets_ids": tokens, "type": "market", "custom_feature_enabled": true});
        self.say(&form.to_string()).await;
    }

    pub(crate) async fn receive(&mut self) -> Received {
        let frame = tokio::time::timeout(PATIENCE, self.inner.read_frame()).await;
        match frame.expect("a frame arrives") {
            Ok(frame) if frame.opcode == OpCode::Text => {
                Received::Text(String::from_utf8(frame.payload.to_vec()).unwrap())
            }
            Ok(frame) if frame.opcode == OpCode::Binary => Received::Binary(frame.payload.len()),
            _ => Received::End,
        }
    }

    #[track_caller]
    pub(crate) fn text(&mut self) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            match self.receive().await {
                Received::Text(text) => text,
                other => panic!("{caller}: {other:?} is not a text"),
            }
        }
    }

    pub(crate) async fn json(&mut self) -> Value {
        let text = self.text().await;
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
