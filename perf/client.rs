//! An HTTP/1.1 client for measuring: one persistent connection with one request in flight.
//!
//! It supports only what the measured servers send: a status line, headers, `Content-Length` and a
//! body of that length. Anything else is an error. It does not interpret requests.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use bytes::BytesMut;
use paperbourse_test_support::head::{Head, ResponseError};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

/// Buffer space for one read, in bytes. A response that fits costs one system call: after a read
/// that does not fill its buffer, the runtime considers the socket empty.
const READ_BYTES: usize = 8 * 1024;

/// Size of the receive buffer of a reader that stops, in bytes.
const SMALL_BUFFER_BYTES: u32 = 4 * 1024;

/// Size of the kernel's receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReceiveBuffer {
    /// The default size.
    Usual,
    /// A small size, so that the server has to hold almost everything that is not read.
    Small,
}

/// A persistent connection.
pub(crate) struct Connection {
    stream: TcpStream,
    received: BytesMut,
}

/// A complete response.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Response<'a> {
    /// The status code.
    pub(crate) status: u16,
    /// The body.
    pub(crate) body: &'a [u8],
    /// The length of the whole response, head and body.
    pub(crate) byte_count: usize,
}

/// An error in place of a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server hung up before the end of a response.
    #[error("the server closed the connection after {byte_count} bytes of a response")]
    Closed {
        /// The number of bytes received before that.
        byte_count: usize,
    },
    /// The bytes are not a response that this client supports.
    #[error(transparent)]
    Response(#[from] ResponseError),
}

impl Connection {
    /// Connects, and disables Nagle's algorithm.
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_with(socket_for(address)?, address).await
    }

    async fn open_with(socket: TcpSocket, address: SocketAddr) -> io::Result<Self> {
        let stream = socket.connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: BytesMut::with_capacity(READ_BYTES) })
    }

    /// Sends one request and waits for the whole response. After an error the connection is
    /// unusable.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Response<'_>, ClientError> {
        self.received.clear();
        self.stream.write_all(request).await?;
        let mut head = None;
        loop {
            self.received.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(ClientError::Closed { byte_count: self.received.len() });
            }
            if head.is_none() {
                head = Head::parse(&self.received)?;
            }
            if let Some(head) = head
                && head.is_complete(self.received.len())?
            {
                return Ok(Response {
                    status: head.status,
                    body: &self.received[head.head_bytes..],
                    byte_count: self.received.len(),
                });
            }
        }
    }
}

fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

/// Connects and sends a request whose response never ends. Returns the connection once a head with
/// this status has arrived, and the bytes after the head.
pub(crate) async fn open_endless(
    address: SocketAddr,
    request: &str,
    status: u16,
    buffer: ReceiveBuffer,
) -> anyhow::Result<(TcpStream, BytesMut)> {
    let socket = socket_for(address)?;
    if buffer == ReceiveBuffer::Small {
        socket.set_recv_buffer_size(SMALL_BUFFER_BYTES)?;
    }
    let Connection { mut stream, mut received } =
        Connection::open_with(socket, address).await.context("failed to connect")?;
    stream.write_all(request.as_bytes()).await?;
    let head_byte_count = loop {
        received.reserve(READ_BYTES);
        ensure!(stream.read_buf(&mut received).await? > 0, "the server hung up");
        if let Some(at) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = received.split_to(head_byte_count);
    let text = String::from_utf8_lossy(&head);
    ensure!(text.starts_with(&format!("HTTP/1.1 {status} ")), "the server answered: {text}");
    Ok((stream, received))
}

/// Encodes a request. Header names and values must not contain line breaks.
pub(crate) fn encode_request(
    method: &str,
    path: &str,
    host: SocketAddr,
    headers: &[(&str, &str)],
    body: &str,
) -> String {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    for (name, value) in headers {
        let _ = write!(request, "{name}: {value}\r\n");
    }
    if method != "GET" {
        request.push_str("Content-Type: application/json\r\n");
        let _ = write!(request, "Content-Length: {}\r\n", body.len());
    }
    request.push_str("\r\n");
    request.push_str(body);
    request
}
