//! The WebSockets and the price streams: the upgrade from HTTP, the limits, the price feed and the
//! feed of an account's fills.
//!
//! `GET /v1/ws/prices` and `GET /v1/ws/executions` are upgraded to WebSockets ([`upgrade`]). A
//! caller that is not admitted is upgraded too and then refused with a close code
//! ([`connection::refuse`]), since browsers show scripts no other reason. [`connection`] runs one
//! task per socket, of either kind, and [`watch`] notifies that task when something is wrong with
//! the socket. The messages are defined in [`protocol`] and [`execution_frame`]. [`fanout`] decides
//! who receives which prices, [`turns`] decides when, and [`executions`] reads an account's fills.
//!
//! Prices are also sent as server-sent events, in the body of an HTTP response ([`event_stream`]).
//! Such a stream shares the fan-out, the subscriptions and the frames of the price socket. A client
//! that lost its stream resumes it with an [`event_id`].
//!
//! Clients of the venue's interface have sockets of their own ([`clob_market`], [`clob_user`]),
//! which anybody can open.
//!
//! Design decisions that clients may ask about:
//!
//! - An `error` frame names the markets of a request that are not listed. The others are
//!   subscribed, and the acknowledgement that follows lists them.
//! - A request that would exceed the tier's markets per socket is refused as a whole, with an
//!   `error` frame and no acknowledgement.
//! - The first price frame of a subscription shows the market's current state and is never marked
//!   as conflated, whatever its `seq`.
//! - A binary frame closes the socket with 1003, an unmasked one with 1002.
//!
//! This module does not depend on the caller's identity, its tier, or the paths of the API.

mod batch;
pub mod bounds;
mod channels;
mod clob;
mod clob_channels;
pub mod clob_market;
mod clob_market_events;
mod clob_market_frame;
mod clob_market_trouble;
mod clob_subscriptions;
pub mod clob_user;
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
pub use frame::FrameLimit;

/// Why a request cannot be upgraded to a WebSocket. Nothing was upgraded; the response is plain
/// HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The request is not an upgrade to a WebSocket.
    #[error("connect with ws:// or wss://")]
    NotAnUpgrade,
    /// The request came over HTTP/1.0, which has no upgrades: the proxy that sent it would pass no
    /// frames.
    #[error("it needs HTTP/1.1; in nginx, set proxy_http_version 1.1")]
    HttpTooOld,
    /// `Sec-WebSocket-Key` is missing.
    #[error("the header sec-websocket-key is missing")]
    MissingKey,
    /// `Sec-WebSocket-Key` is not valid by RFC 6455, section 4.2.1, or was sent more than once.
    #[error("the header sec-websocket-key must be 16 bytes in base64, sent once")]
    InvalidKey,
    /// The client does not speak version 13. Answered with 426, which names that version.
    #[error("the header sec-websocket-version must be 13")]
    UnsupportedVersion,
}

/// A pending upgrade; resolves to the connection once the 101 has been sent.
pub struct Upgrading(UpgradeFut);

/// Builds the 101 response that upgrades this request to a WebSocket, and the pending connection.
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
    // Check the length first, so that no long text is decoded.
    text.len() == 24 && BASE64.decode(text).is_ok_and(|bytes| bytes.len() == 16)
}

/// Whether the request asks to be upgraded to a WebSocket.
#[cfg(feature = "cluster")]
pub fn asks_for_upgrade(head: &Parts) -> bool {
    head.method == Method::GET && is_upgrade_request(&Request::from_parts(head.clone(), ()))
}

impl Upgrading {
    /// Waits until the response has been sent. `None` if the connection ended first.
    pub async fn done(self) -> Option<Upgraded> {
        // The crate's socket has not read anything yet, so unwrapping it loses no bytes.
        self.0.await.ok().map(|socket| socket.into_inner().into_inner())
    }
}

#[cfg(test)]
mod tests;
