//! Opening a WebSocket as a client: TCP to whichever address of the host answers first, TLS where
//! the address says so, the upgrade.

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
    Connection(#[from] io::Error),
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

/// A connection to the host. Where one family of addresses leads nowhere, the other one is tried
/// beside it: a path that swallows IPv6 costs a moment, not all of our patience.
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
    use std::net::SocketAddr;
    use std::task::{Context, Poll};

    use hyper_util::client::legacy::connect::dns::Name;
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// Resolves every name to these.
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
    async fn an_address_that_leads_nowhere_does_not_hide_the_others() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let live = listener.local_addr().unwrap();
        let dead: SocketAddr = format!("[::1]:{}", live.port()).parse().unwrap();
        let full = TcpSocket::new_v6().unwrap();
        if full.bind(dead).is_err() {
            return eprintln!("SKIPPED: this machine has no IPv6");
        }
        // Whoever comes after these waits for an answer that never comes.
        let full = full.listen(1).unwrap();
        let mut waiting = Vec::new();
        let patience = Duration::from_millis(500);
        while let Ok(stream) = tokio::time::timeout(patience, TcpStream::connect(dead)).await {
            waiting.push(stream.unwrap());
        }
        let connector = HttpConnector::new_with_resolver(Both([dead, live]));
        let found = connect(connector, "venue.test", live.port());
        let found = tokio::time::timeout(Duration::from_secs(20), found).await;
        let found = found.expect("the other family was tried").unwrap();
        assert_eq!(found.peer_addr().unwrap(), live);
        drop(full);
    }

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
