//! A small blocking HTTP client that shows everything that is on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;

/// An answer that takes longer than this is none.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A request that is not sent yet.
#[derive(Clone)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: Vec<(&'static str, Vec<u8>)>,
    body: Vec<u8>,
    is_chunked: bool,
}

/// A whole response.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) text: String,
}

/// One connection, kept alive.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Request {
    pub(crate) fn new(method: &'static str, path: impl Into<String>) -> Self {
        let path = path.into();
        Self { method, path, headers: Vec::new(), body: Vec::new(), is_chunked: false }
    }

    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    pub(crate) fn post(path: impl Into<String>, body: &Value) -> Self {
        Self::new("POST", path).body(body.to_string())
    }

    pub(crate) fn patch(path: impl Into<String>, body: &Value) -> Self {
        Self::new("PATCH", path).body(body.to_string())
    }

    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new("DELETE", path)
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self.header("content-type", "application/json")
    }

    /// Sends the body in chunks instead of telling its length.
    pub(crate) fn chunked(mut self) -> Self {
        self.is_chunked = true;
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("x-api-key", key)
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.header("authorization", format!("Bearer {token}"))
    }

    /// As it stands on the wire.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes =
            format!("{} {} HTTP/1.1\r\nhost: test\r\n", self.method, self.path).into_bytes();
        if self.is_chunked {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
        } else if !self.body.is_empty() || self.method == "POST" {
            write!(bytes, "content-length: {}\r\n", self.body.len()).unwrap();
        }
        for (name, value) in &self.headers {
            bytes.extend_from_slice(name.as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        if self.is_chunked {
            for chunk in self.body.chunks(4096) {
                write!(bytes, "{:x}\r\n", chunk.len()).unwrap();
                bytes.extend_from_slice(chunk);
                bytes.extend_from_slice(b"\r\n");
            }
            bytes.extend_from_slice(b"0\r\n\r\n");
        } else {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }

    pub(crate) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }
}

impl Response {
    /// The value of a header; `None` when it was not sent, a panic when it was sent twice.
    #[track_caller]
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(known, _)| known == name);
        let value = values.next().map(|(_, value)| value.as_str());
        assert!(values.next().is_none(), "{name} was sent twice: {self:?}");
        value
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The body, once the status is the expected one.
    #[track_caller]
    pub(crate) fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.text);
        self.json()
    }
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    /// Writes what the server may no longer want to read.
    pub(crate) fn try_write(&mut self, bytes: &[u8]) {
        // A server that has answered closes, and the rest of a body finds nobody.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    pub(crate) fn send(&mut self, request: &Request) -> Response {
        self.try_write(&request.to_bytes());
        self.read(request.is_head())
    }

    /// The next response; that to a HEAD has no body, whatever length it tells.
    #[track_caller]
    pub(crate) fn read(&mut self, is_head: bool) -> Response {
        let head = self.read_head();
        let mut lines = head.lines();
        let status = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default();
        let status = status.parse().unwrap_or_else(|_| panic!("not a response: {head:?}"));
        let headers: Vec<_> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut response = Response { status, headers, text: String::new() };
        let length = response.header("content-length").map_or(0, |text| text.parse().unwrap());
        if !is_head {
            let mut body = vec![0; length];
            self.stream.read_exact(&mut body).unwrap();
            response.text = String::from_utf8(body).unwrap();
        }
        response
    }

    #[track_caller]
    fn read_head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let length = self.stream.read_line(&mut head).expect("a response in time");
            assert!(length > 0, "the connection ended: {head:?}");
        }
        head
    }

    /// Whether the server has ended the connection, without another byte.
    pub(crate) fn is_ended(&mut self) -> bool {
        // A reset is an end as well.
        self.stream.fill_buf().is_ok_and(<[u8]>::is_empty) || self.has_failed()
    }

    fn has_failed(&self) -> bool {
        self.stream.get_ref().take_error().is_ok_and(|error| error.is_some())
    }

    pub(crate) fn into_stream(self) -> BufReader<TcpStream> {
        self.stream
    }
}
