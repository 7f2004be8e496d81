//! One connection: a request out, an answer back, or nothing because the server is gone.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use paperbourse::money::{Rounding, Usd};
use serde_json::Value;

/// A server that leaves a request unanswered for so long hangs.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A request that can be sent again, to the byte.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Request {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    /// Whole lines.
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Request {
    pub(crate) fn new(method: &'static str, path: impl Into<String>, key: &str) -> Self {
        let headers = format!("x-api-key: {key}\r\n");
        Self { method, path: path.into(), headers, body: String::new() }
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.body = body.to_string();
        self
    }

    pub(crate) fn named(mut self, name: &str) -> Self {
        self.headers.extend(["idempotency-key: ", name, "\r\n"]);
        self
    }
}

/// What came back.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) is_replay: bool,
    pub(crate) body: String,
}

impl Answer {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub(crate) struct Connection(TcpStream);

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        Ok(Self(stream))
    }

    /// The port at this end: it tells connections apart from the other end.
    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().expect("it is connected").port()
    }

    /// Sends a request and reads the whole answer. An error means that the connection broke, and
    /// nothing is known.
    pub(crate) fn send(&mut self, request: &Request) -> io::Result<Answer> {
        let Request { method, path, headers, body } = request;
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n\
             {body}"
        );
        self.0.write_all(text.as_bytes())?;
        let mut received = Vec::new();
        let head_length = loop {
            if let Some(at) = received.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            self.read_more(&mut received)?;
        };
        let head = String::from_utf8_lossy(&received[..head_length]).to_ascii_lowercase();
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let length: usize =
            header("content-length: ").and_then(|length| length.parse().ok()).expect("a length");
        while received.len() < head_length + length {
            self.read_more(&mut received)?;
        }
        assert_eq!(received.len(), head_length + length, "more than one answer");
        Ok(Answer {
            status: head
                .split(' ')
                .nth(1)
                .and_then(|status| status.parse().ok())
                .expect("a status"),
            is_replay: header("idempotent-replayed: true").is_some(),
            body: String::from_utf8(received.split_off(head_length)).expect("answers are text"),
        })
    }

    /// The answer to a request that must succeed.
    #[track_caller]
    pub(crate) fn done(&mut self, request: &Request) -> Answer {
        let answer = self.send(request).unwrap_or_else(|error| panic!("{error}: {request:?}"));
        assert!(matches!(answer.status, 200 | 201), "{request:?}: {answer:?}");
        answer
    }

    fn read_more(&mut self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut buffer = [0; 8 * 1024];
        let count = self.0.read(&mut buffer)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into.extend_from_slice(&buffer[..count]);
        Ok(())
    }
}

/// Millionths, of a JSON number or of decimal text.
#[track_caller]
pub(crate) fn micros(value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), String::from);
    Usd::from_text(&text, Rounding::Exact)
        .unwrap_or_else(|error| panic!("{value}: {error}"))
        .micros()
}
