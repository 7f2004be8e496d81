//! Opening a WebSocket as a client: TCP, TLS where the address says so, the upgrade.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::Empty;
use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderValue, UPGRADE, USER_AGENT};
use hyper::upgrade::Upgraded;
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::client::AGENT;

/// What RFC 6455 has a server append to the key, to show that it speaks WebSocket.
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Why no socket was opened.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// It took too long.
    #[error("no socket within {} ms", patience.as_millis())]
    TimedOut {
        /// How long was waited.
        patience: Duration,
    },
    /// The address names no server, or is not that of a socket.
    #[error("the address is not ws://HOST or wss://HOST")]
    Address,
    /// No connection, or no TLS.
    #[error("{0}")]
    Connection(#[from] std::io::Error),
    /// No HTTP.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
    /// The server does not open a socket.
    #[error("the answer to the upgrade has status {}", .0.as_u16())]
    Status(StatusCode),
    /// The server answers 101 and speaks something else.
    #[error("the answer to the upgrade is not that of a WebSocket server")]
    NotASocket,
}

/// A connection on which only WebSocket frames follow.
pub(super) type Stream = TokioIo<Upgraded>;

/// Opens a socket at this address.
pub(super) async fn open(
    address: &Uri,
    tls: &Arc<ClientConfig>,
    patience: Duration,
) -> Result<Stream, HandshakeError> {
    tokio::time::timeout(patience, open_slowly(address, tls))
        .await
        .unwrap_or(Err(HandshakeError::TimedOut { patience }))
}

async fn open_slowly(address: &Uri, tls: &Arc<ClientConfig>) -> Result<Stream, HandshakeError> {
    let host = address.host().ok_or(HandshakeError::Address)?;
    let (is_secure, default_port) = match address.scheme_str() {
        Some("wss") => (true, 443),
        Some("ws") => (false, 80),
        _ => return Err(HandshakeError::Address),
    };
    let port = address.port_u16().unwrap_or(default_port);
    // An IPv6 address stands in brackets in a URI, and without them everywhere else.
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare_host, port)).await?;
    stream.set_nodelay(true)?;
    if is_secure {
        let name = ServerName::try_from(bare_host.to_owned());
        let name = name.map_err(|_| HandshakeError::Address)?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
        upgrade(address, stream).await
    } else {
        upgrade(address, stream).await
    }
}

async fn upgrade(
    address: &Uri,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Stream, HandshakeError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the upgrade; how it fails, the request tells.
    tokio::spawn(async move {
        let _ = connection.with_upgrades().await;
    });
    let mut secret = [0; 16];
    getrandom::fill(&mut secret).map_err(|_| HandshakeError::Random)?;
    let key = BASE64.encode(secret);
    let authority = address.authority().ok_or(HandshakeError::Address)?;
    let path = address.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::get(path)
        .header(HOST, authority.as_str())
        .header(USER_AGENT, AGENT)
        .header(CONNECTION, "Upgrade")
        .header(UPGRADE, "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", &key)
        .body(Empty::<Bytes>::new())
        .map_err(|_| HandshakeError::Address)?;
    let mut response = sender.send_request(request).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(HandshakeError::Status(response.status()));
    }
    if !is_accepted(response.headers(), &key) {
        return Err(HandshakeError::NotASocket);
    }
    Ok(TokioIo::new(hyper::upgrade::on(&mut response).await?))
}

fn is_accepted(headers: &HeaderMap, key: &str) -> bool {
    let answer = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), ACCEPT_SUFFIX].concat());
    let told = headers.get("sec-websocket-accept").map(HeaderValue::as_bytes);
    let is_socket = headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_socket && told == Some(BASE64.encode(answer).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_shows_that_the_server_speaks_websocket() {
        // The example of RFC 6455, section 1.3.
        let (key, accept) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (upgrade, told, expected) in [
            (Some("websocket"), Some(accept), true),
            (Some("WebSocket"), Some(accept), true),
            (Some("h2c"), Some(accept), false),
            (None, Some(accept), false),
            (Some("websocket"), None, false),
            (Some("websocket"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOg="), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(upgrade) = upgrade {
                headers.insert(UPGRADE, upgrade.parse().unwrap());
            }
            if let Some(told) = told {
                headers.insert("sec-websocket-accept", told.parse().unwrap());
            }
            assert_eq!(is_accepted(&headers, key), expected, "{upgrade:?} {told:?}");
        }
    }
}
