//! Sockets: the upgrade from HTTP, the caps, and the stream of prices.
//!
//! `GET /v1/ws/prices` becomes a socket ([`upgrade`]). A caller that may not have one is still
//! upgraded and then refused with a close code ([`connection::refuse`]), since a browser shows its
//! script no other reason. What a client may say is in [`protocol`]; who receives what is in
//! [`fanout`]; one task for each socket is in [`connection`].
//!
//! What the server decides where a client could wonder:
//!
//! - A market that is not listed is named in an `error` frame; the others of the same request are
//!   subscribed, and the acknowledgement that follows lists them.
//! - A request that would take a socket past [`subscriptions::MARKETS_PER_SOCKET_MAX`] markets is
//!   refused as a whole, with an `error` frame and no acknowledgement.
//! - The first price frame of a subscription is what the market shows now. It is never marked as
//!   conflated, whatever its `seq`.
//! - A binary frame closes the socket with 1003, an unmasked one with 1002.
//!
//! Who the caller is, which tier it has and which paths there are is not known here.

pub mod close;
pub mod connection;
pub mod counts;
pub mod fanout;
mod frame;
pub mod price_frame;
pub mod protocol;
pub mod subscriptions;

use bytes::Bytes;
use fastwebsockets::WebSocketError;
use fastwebsockets::upgrade::{UpgradeFut, is_upgrade_request};
use http_body_util::Empty;
use hyper::upgrade::Upgraded;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;

pub use frame::CLIENT_FRAME_BYTES_MAX;

/// Why a request does not become a socket. Nothing was upgraded: the answer is plain HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpgradeError {
    /// An ordinary request.
    #[error("this path is a socket: connect with ws:// or wss://")]
    NotAnUpgrade,
    /// No `Sec-WebSocket-Key`.
    #[error("the header sec-websocket-key is missing")]
    MissingKey,
    /// The answer is 426 and names version 13.
    #[error("the header sec-websocket-version must be 13")]
    UnsupportedVersion,
}

/// A stream that becomes ours when the 101 has been sent.
pub struct Upgrading(UpgradeFut);

/// The 101 that turns this request into a socket, and the stream that follows it.
///
/// Extensions and subprotocols that the client offers are not taken up.
pub fn upgrade<B>(
    request: &mut Request<B>,
) -> Result<(Response<Empty<Bytes>>, Upgrading), UpgradeError> {
    // A HEAD would be answered as a GET is, and only a GET opens a socket.
    if request.method() != Method::GET || !is_upgrade_request(request) {
        return Err(UpgradeError::NotAnUpgrade);
    }
    match fastwebsockets::upgrade::upgrade(request) {
        Ok((response, upgrading)) => Ok((response, Upgrading(upgrading))),
        Err(WebSocketError::MissingSecWebSocketKey) => Err(UpgradeError::MissingKey),
        Err(_) => Err(UpgradeError::UnsupportedVersion),
    }
}

impl Upgrading {
    /// Waits until the response has left. `None` when the connection ended before.
    pub async fn stream(self) -> Option<TokioIo<Upgraded>> {
        // Nothing was read through the crate's socket yet, so no byte is lost with it.
        self.0.await.ok().map(fastwebsockets::WebSocket::into_inner)
    }
}

#[cfg(test)]
mod tests;
