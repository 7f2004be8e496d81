//! The sockets and the price streams: the upgrade from HTTP, the caps, the stream of prices and
//! that of an account's fills.
//!
//! `GET /v1/ws/prices` and `GET /v1/ws/executions` become sockets ([`upgrade`]). A caller that may
//! not have one is still upgraded and then refused with a close code ([`connection::refuse`]),
//! since browsers show scripts no other reason. [`connection`] runs one task per socket, of either
//! kind, and [`watch`] tells it when something is wrong with the socket. What a socket says is
//! defined in [`protocol`] and [`execution_frame`]; [`fanout`] decides who receives which prices
//! and [`turns`] when, and [`executions`] reads an account's fills.
//!
//! Prices are also sent as server-sent events, as the body of an HTTP response ([`event_stream`]).
//! It has the fan-out, the subscriptions and the frames of the price socket. A client that lost its
//! stream comes back with a [`event_id`].
//!
//! Choices that a client might wonder about:
//!
//! - An `error` frame names the markets of a request that are not listed. The others are
//!   subscribed, and the acknowledgement that follows lists them.
//! - A request that would exceed the tier's markets per socket is refused as a whole, with an
//!   `error` frame and no acknowledgement.
//! - The first price frame of a subscription shows the market's current state and is never marked
//!   as conflated, whatever its `seq`.
//! - A binary frame closes the socket with 1003, an unmasked one with 1002.
//!
//! This module does not know who the caller is, which tier it has, or which paths exist.

mod batch;
pub mod bounds;
pub mod close;
pub mod connection;
pub mod counts;
mod dirty;
pub mod event_id;
pub mod event_stream;
pub mod execution_frame;
pub mod executions;
pub mod fanout;
mod frame;
pub mod price_frame;
pub mod prices;
pub mod protocol;
pub mod subscriptions;
pub mod turns;
pub mod watch;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use fastwebsockets::upgrade::{UpgradeFut, is_upgrade_request};
use http_body_util::Empty;
use hyper::header::SEC_WEBSOCKET_KEY;
#[cfg(feature = "cluster")]
use hyper::http::request::Parts;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response, Version};

pub use bounds::CLIENT_FRAME_BYTES_MAX;

/// Why a request does not become a socket. Nothing was upgraded; the response is plain HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpgradeError {
    /// Not an upgrade request.
    #[error("connect with ws:// or wss://")]
    NotAnUpgrade,
    /// Asked for over HTTP/1.0, which has no upgrades: the proxy that sent it would pass no frame.
    #[error("it needs HTTP/1.1; in nginx, set proxy_http_version 1.1")]
    HttpTooOld,
    /// No `Sec-WebSocket-Key`.
    #[error("the header sec-websocket-key is missing")]
    MissingKey,
    /// A `Sec-WebSocket-Key` that RFC 6455, section 4.2.1, does not allow, or more than one.
    #[error("the header sec-websocket-key must be 16 bytes in base64, sent once")]
    InvalidKey,
    /// Answered with 426 and version 13.
    #[error("the header sec-websocket-version must be 13")]
    UnsupportedVersion,
}

/// Resolves to the socket's connection once the 101 has been sent.
pub struct Upgrading(UpgradeFut);

/// Builds the 101 response that turns this request into a socket, and the stream that follows it.
///
/// Ignores extensions and subprotocols that the client offers.
pub fn upgrade<B>(
    request: &mut Request<B>,
) -> Result<(Response<Empty<Bytes>>, Upgrading), UpgradeError> {
    // HEAD is answered like GET, but only GET opens a socket.
    if request.method() != Method::GET || !is_upgrade_request(request) {
        return Err(UpgradeError::NotAnUpgrade);
    }
    if request.version() < Version::HTTP_11 {
        return Err(UpgradeError::HttpTooOld);
    }
    let mut keys = request.headers().get_all(SEC_WEBSOCKET_KEY).iter();
    let key = keys.next().ok_or(UpgradeError::MissingKey)?;
    if keys.next().is_some() || !is_base64_of_16_bytes(key.as_bytes()) {
        return Err(UpgradeError::InvalidKey);
    }
    match fastwebsockets::upgrade::upgrade(request) {
        Ok((response, upgrading)) => Ok((response, Upgrading(upgrading))),
        Err(_) => Err(UpgradeError::UnsupportedVersion),
    }
}

fn is_base64_of_16_bytes(text: &[u8]) -> bool {
    // The length first, so that nothing long is decoded.
    text.len() == 24 && BASE64.decode(text).is_ok_and(|bytes| bytes.len() == 16)
}

/// Whether the request asks for a socket.
#[cfg(feature = "cluster")]
pub fn asks_for_upgrade(head: &Parts) -> bool {
    head.method == Method::GET && is_upgrade_request(&Request::from_parts(head.clone(), ()))
}

impl Upgrading {
    /// Waits until the response has been sent. `None` if the connection ended first.
    pub async fn done(self) -> Option<Upgraded> {
        // The crate's socket has not read anything yet, so dropping it loses no bytes.
        self.0.await.ok().map(|socket| socket.into_inner().into_inner())
    }
}

#[cfg(test)]
mod tests;
