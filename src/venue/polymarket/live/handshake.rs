//! Opens a WebSocket as a client: TCP to whichever address of the host answers first, TLS for
//! `wss`, then the HTTP upgrade.

use std::error::Error;
use std::io;
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
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::client::{AGENT, with_causes};

/// Suffix that a server appends to the key before hashing it, to prove that it speaks WebSocket
/// (RFC 6455).
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// An error from opening a socket.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The handshake took too long.
    #[error("no socket within {} ms", timeout.as_millis())]
    TimedOut {
        /// The timeout.
        timeout: Duration,
    },
    /// The address is not a valid WebSocket address.
    #[error("the address is not ws://HOST or wss://HOST")]
    Address,
    /// TCP or TLS failed.
    #[error("{0}")]
    Connection(#[from] io::Error),
    /// The HTTP exchange failed.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The system provides no random bytes for the key.
    #[error("the system provides no random bytes")]
    Random,
    /// The server refused the upgrade.
    #[error("upgrade answered with status {}", .0.as_u16())]
    Status(StatusCode),
    /// The server answered 101 but does not speak WebSocket.
    #[error("upgrade answered by something other than a WebSocket server")]
    NotASocket,
}

/// The connection after the upgrade.
pub(super) type Stream = TokioIo<Upgraded>;

/// Opens a socket at this address within `timeout`.
pub(super) async fn open(
    address: &Uri,
    tls: &Arc<ClientConfig>,
    timeout: Duration,
) -> Result<Stream, HandshakeError> {
    tokio::time::timeout(timeout, open_untimed(address, tls))
        .await
        .unwrap_or(Err(HandshakeError::TimedOut { timeout }))
}

async fn open_untimed(address: &Uri, tls: &Arc<ClientConfig>) -> Result<Stream, HandshakeError> {
    let host = address.host().ok_or(HandshakeError::Address)?;
    let (is_secure, default_port) = match address.scheme_str() {
        Some("wss") => (true, 443),
        Some("ws") => (false, 80),
        _ => return Err(HandshakeError::Address),
    };
    let port = address.port_u16().unwrap_or(default_port);
    // A URI has brackets around an IPv6 address; a server name has none.
    let bare_host = host.trim_start_matches('[').trim_end_matches(']');
    let stream = connect(HttpConnector::new(), host, port).await?;
    if is_secure {
        let name = ServerName::try_from(bare_host.to_owned());
        let name = name.map_err(|_| HandshakeError::Address)?;
        let stream = TlsConnector::from(tls.clone()).connect(name, stream).await?;
        upgrade(address, stream).await
    } else {
        upgrade(address, stream).await
    }
}

/// Connects to the host. If one family of addresses does not answer, the connector tries the other
/// in parallel, so that a network that drops IPv6 does not use up the timeout.
async fn connect<R>(
    mut connector: HttpConnector<R>,
    host: &str,
    port: u16,
) -> Result<TcpStream, HandshakeError>
where
    HttpConnector<R>: Service<Uri, Response = TokioIo<TcpStream>, Error: Error + 'static>,
{
    let address = format!("http://{host}:{port}").parse().map_err(|_| HandshakeError::Address)?;
    connector.set_nodelay(true);
    let connected = connector.call(address).await;
    let connected = connected.map_err(|error| io::Error::other(with_causes(&error)))?;
    Ok(connected.into_inner())
}

async fn upgrade(
    address: &Uri,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<Stream, HandshakeError> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // This task ends with the upgrade. Its errors also surface in the request.
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
    let expected = digest(&SHA1_FOR_LEGACY_USE_ONLY, &[key.as_bytes(), ACCEPT_SUFFIX].concat());
    let accept = headers.get("sec-websocket-accept").map(HeaderValue::as_bytes);
    let is_socket = headers
        .get(UPGRADE)
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    is_socket && accept == Some(BASE64.encode(expected).as_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::task::{Context, Poll};

    use hyper_util::client::legacy::connect::dns::Name;
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// Resolves every name to these addresses.
    #[derive(Clone)]
    struct Both([SocketAddr; 2]);

    impl Service<Name> for Both {
        type Response = std::array::IntoIter<SocketAddr, 2>;
        type Error = io::Error;
        type Future = std::future::Ready<io::Result<Self::Response>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Name) -> Self::Future {
            std::future::ready(Ok(self.0.into_iter()))
        }
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_does_not_block_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let dead: SocketAddr = format!("[::1]:{}", live.port()).parse().unwrap();
        let full = TcpSocket::new_v6().unwrap();
        if full.bind(dead).is_err() {
            return eprintln!("SKIPPED: this machine has no IPv6");
        }
        // Once the backlog is full, further connections get no answer.
        let full = full.listen(1).unwrap();
        let mut waiting = Vec::new();
        let timeout = Duration::from_millis(500);
        while let Ok(stream) = tokio::time::timeout(timeout, TcpStream::connect(dead)).await {
            waiting.push(stream.unwrap());
        }
        let connector = HttpConnector::new_with_resolver(Both([dead, live]));
        let connected = connect(connector, "venue.test", live.port());
        let connected = tokio::time::timeout(Duration::from_secs(20), connected).await;
        let connected = connected.expect("the other family was tried").unwrap();
        assert_eq!(connected.peer_addr().unwrap(), live);
        drop(full);
    }

    #[test]
    fn only_a_websocket_server_is_accepted() {
        // The example of RFC 6455, section 1.3.
        let (key, right) = ("dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for (upgrade, accept, expected) in [
            (Some("websocket"), Some(right), true),
            (Some("WebSocket"), Some(right), true),
            (Some("h2c"), Some(right), false),
            (None, Some(right), false),
            (Some("websocket"), None, false),
            (Some("websocket"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOg="), false),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(upgrade) = upgrade {
                headers.insert(UPGRADE, upgrade.parse().unwrap());
            }
            if let Some(accept) = accept {
                headers.insert("sec-websocket-accept", accept.parse().unwrap());
            }
            assert_eq!(is_accepted(&headers, key), expected, "{upgrade:?} {accept:?}");
        }
    }
}
