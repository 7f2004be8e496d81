//! A small client of streams, such as server-sent events, that shows how a stream ends.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use crate::witness::{self, Witness};
use crate::{Connection, Request, Response};

/// How a stream ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// With the last chunk, after which nothing is missing.
    Clean,
    /// Before the last chunk.
    CutOff,
}

/// An open stream.
pub struct EventStream {
    /// The head of the response.
    pub head: Response,
    stream: BufReader<TcpStream>,
    /// How long the server last asked to wait before coming back, in milliseconds.
    pub retry_ms: Option<u64>,
    /// What has arrived and was not returned yet.
    received: String,
    witness: Option<Box<dyn Witness>>,
}

impl EventStream {
    /// Sends the request. Returns the response as an error if it is no stream.
    #[track_caller]
    pub fn open(address: impl Into<SocketAddr>, request: &Request) -> Result<Self, Response> {
        let mut connection = Connection::open(address.into());
        connection.write(&request.to_bytes());
        let head = connection.read_head().unwrap();
        if head.header("transfer-encoding") != Some("chunked") {
            return Err(connection.read_body(head).unwrap());
        }
        let (stream, witness) = (connection.into_stream(), witness::of(request));
        Ok(Self { head, stream, retry_ms: None, received: String::new(), witness })
    }

    /// The text of the next event, with its last line break, and without `retry`.
    pub fn text(&mut self) -> Result<String, End> {
        loop {
            if let Some(at) = self.received.find("\n\n") {
                let rest = self.received.split_off(at + 2);
                let mut text = std::mem::replace(&mut self.received, rest);
                text.truncate(at + 1);
                if let Some(rest) = text.strip_prefix("retry: ") {
                    let (retry_ms, rest) = rest.split_once('\n').unwrap();
                    self.retry_ms = Some(retry_ms.parse().unwrap());
                    text = rest.to_owned();
                    if text.is_empty() {
                        continue;
                    }
                }
                if let Some(witness) = &mut self.witness {
                    let (kind, data) = parts(&text);
                    witness.received(&kind, &data);
                }
                return Ok(text);
            }
            let chunk = self.chunk().map_err(|_| End::CutOff)?;
            if chunk.is_empty() {
                return Err(End::Clean);
            }
            self.received.push_str(&chunk);
        }
    }

    /// The kind of the next event, and its data.
    #[track_caller]
    pub fn event(&mut self) -> (String, Value) {
        parts(&self.text().unwrap())
    }

    /// Reads to the end.
    pub fn end(&mut self) -> End {
        loop {
            if let Err(end) = self.text() {
                return end;
            }
        }
    }

    /// All that is left, and how it ended.
    pub fn rest(mut self) -> (String, End) {
        loop {
            match self.chunk() {
                Ok(chunk) if chunk.is_empty() => return (self.received, End::Clean),
                Ok(chunk) => self.received.push_str(&chunk),
                Err(_) => return (self.received, End::CutOff),
            }
        }
    }

    fn chunk(&mut self) -> io::Result<String> {
        let mut size = String::new();
        self.stream.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim_end(), 16);
        let size = size.map_err(|_| io::ErrorKind::UnexpectedEof)?;
        let mut chunk = vec![0; size + 2];
        self.stream.read_exact(&mut chunk)?;
        assert!(chunk.ends_with(b"\r\n"));
        chunk.truncate(size);
        Ok(String::from_utf8(chunk).unwrap())
    }
}

/// The kind of an event, and its data.
#[track_caller]
fn parts(text: &str) -> (String, Value) {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    (field("event: ").to_owned(), serde_json::from_str(field("data: ")).unwrap())
}
