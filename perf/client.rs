//! An HTTP/1.1 client for measuring: one connection that stays open, one request in flight on it.
//!
//! It understands what the servers that it measures send and nothing more: a status line, headers,
//! `Content-Length`, a body of that length. Whatever else arrives is an error that says so; nothing
//! is guessed. It does not know what the requests mean.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::io::{self, BufRead as _};
use std::net::SocketAddr;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest status line and headers.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The longest body: the listing of 200 markets fits several times.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Room for one read. A response that fits costs one system call: a read that does not fill its
/// buffer tells the runtime that the socket is empty.
const READ_BYTES: usize = 8 * 1024;

/// A connection that stays open.
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

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// The socket failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server hung up before the end of a response.
    #[error("the server closed the connection after {byte_count} bytes of a response")]
    Closed {
        /// What had arrived of the response.
        byte_count: usize,
    },
    /// What arrived is not a response that this client understands.
    #[error(transparent)]
    Response(#[from] ResponseError),
}

/// Why bytes are not a response that this client understands.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    /// The status line and headers do not end.
    #[error("the response's head is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    /// The first line is not `HTTP/1.1` and a status.
    #[error("not an HTTP/1.1 status line: {0:?}")]
    StatusLine(String),
    /// A line of the head is not `name: value`.
    #[error("not a header: {0:?}")]
    Header(String),
    /// The body comes in chunks.
    #[error("the response has `Transfer-Encoding: {0}`; only `Content-Length` is supported")]
    TransferEncoding(String),
    /// The head does not say how long the body is.
    #[error("the response has no Content-Length")]
    LengthMissing,
    /// Not a length, or two of them.
    #[error("not a usable Content-Length: {0:?}")]
    Length(String),
    /// The body is longer than this client takes.
    #[error("the response's body has {0} bytes, more than {BODY_BYTES_MAX}")]
    BodyTooLong(usize),
    /// The server sent more than it was asked for.
    #[error("{0} bytes came after the end of the response")]
    Excess(usize),
}

/// What a response's head says about the whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Head {
    status: u16,
    byte_count_before_body: usize,
    body_byte_count: usize,
}

impl Connection {
    /// Connects, without delay for small writes.
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, received: BytesMut::with_capacity(READ_BYTES) })
    }

    /// Sends one request and waits for the whole response. After an error the connection is of no
    /// use.
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
                head = parse_head(&self.received)?;
            }
            if let Some(head) = head
                && head.is_complete(self.received.len())?
            {
                return Ok(Response {
                    status: head.status,
                    body: &self.received[head.byte_count_before_body..],
                    byte_count: self.received.len(),
                });
            }
        }
    }
}

impl Head {
    /// Whether so many bytes are the whole response.
    fn is_complete(self, received_byte_count: usize) -> Result<bool, ResponseError> {
        let byte_count = self.byte_count_before_body + self.body_byte_count;
        match received_byte_count.checked_sub(byte_count) {
            None => Ok(false),
            Some(0) => Ok(true),
            Some(excess) => Err(ResponseError::Excess(excess)),
        }
    }
}

/// The bytes of a request. The caller vouches that names and values hold no line ends.
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

/// The head of a response, or `None` while it is incomplete.
fn parse_head(received: &[u8]) -> Result<Option<Head>, ResponseError> {
    let mut status = None;
    let mut body_byte_count = None;
    let mut offset = 0;
    while let Some(length) = find(b'\n', &received[offset..]) {
        let line = &received[offset..offset + length];
        offset += length + 1;
        if offset > HEAD_BYTES_MAX {
            return Err(ResponseError::HeadTooLong);
        }
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match (status, line) {
            (None, line) => status = Some(parse_status(line)?),
            (Some(status), []) => {
                let body_byte_count = body_byte_count.ok_or(ResponseError::LengthMissing)?;
                return Ok(Some(Head { status, byte_count_before_body: offset, body_byte_count }));
            }
            (Some(_), line) => read_header(line, &mut body_byte_count)?,
        }
    }
    if received.len() > HEAD_BYTES_MAX { Err(ResponseError::HeadTooLong) } else { Ok(None) }
}

/// The place of a byte. The standard library searches many at a time here, and only here: a loop
/// over the bytes of the heads was a tenth of what the generator burned.
fn find(byte: u8, mut bytes: &[u8]) -> Option<usize> {
    let all = bytes;
    let length = bytes.skip_until(byte).expect("reading from memory does not fail");
    all[..length].ends_with(&[byte]).then(|| length - 1)
}

fn parse_status(line: &[u8]) -> Result<u16, ResponseError> {
    let digits = line.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .filter(|status| (200..600).contains(status))
        .ok_or_else(|| ResponseError::StatusLine(text(line)))
}

/// Takes from one header what decides the length of the body.
fn read_header(line: &[u8], body_byte_count: &mut Option<usize>) -> Result<(), ResponseError> {
    let colon = find(b':', line);
    let (name, value) =
        colon.map(|at| (&line[..at], &line[at + 1..])).ok_or_else(|| header_error(line))?;
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return Err(ResponseError::TransferEncoding(text(value)));
    }
    if name.eq_ignore_ascii_case(b"content-length") {
        let value = text(value);
        let is_digits = value.bytes().all(|byte| byte.is_ascii_digit());
        let length = value.parse().ok().filter(|_| is_digits && body_byte_count.is_none());
        let length: usize = length.ok_or(ResponseError::Length(value))?;
        if length > BODY_BYTES_MAX {
            return Err(ResponseError::BodyTooLong(length));
        }
        *body_byte_count = Some(length);
    }
    Ok(())
}

fn header_error(line: &[u8]) -> ResponseError {
    ResponseError::Header(text(line))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii()).into_owned()
}
