//! A client of one request: it writes bytes and reads what comes, so that nothing stands between
//! the test and the moment in which the server answers.

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// A request in the making.
#[derive(Clone)]
pub(crate) struct Request {
    method: &'static str,
    path: String,
    headers: String,
    body: String,
}

pub(crate) fn get(path: impl Into<String>) -> Request {
    Request { method: "GET", path: path.into(), headers: String::new(), body: String::new() }
}

/// With a JSON body; `null` stands for none.
pub(crate) fn post(path: impl Into<String>, body: impl Into<Value>) -> Request {
    let body = match body.into() {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    Request { method: "POST", body, ..get(path) }
}

pub(crate) fn patch(path: impl Into<String>, body: impl Into<Value>) -> Request {
    Request { method: "PATCH", ..post(path, body) }
}

pub(crate) fn delete(path: impl Into<String>) -> Request {
    Request { method: "DELETE", ..get(path) }
}

/// An upgrade to the price socket.
pub(crate) fn upgrade(path: impl Into<String>) -> Request {
    get(path)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

impl Request {
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.extend([name, ": ", value, "\r\n"]);
        self
    }

    pub(crate) fn key(self, key: &str) -> Self {
        self.header("x-api-key", key)
    }

    pub(crate) fn token(self, token: &str) -> Self {
        self.header("authorization", &format!("Bearer {token}"))
    }

    /// Sends it and reads the answer, whenever it comes.
    pub(crate) async fn answer(self, mut io: DuplexStream) -> Answer {
        let Self { method, path, headers, body } = self;
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n\
             {body}"
        );
        io.write_all(text.as_bytes()).await.expect("the server reads");
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(io.read_u8().await.expect("an answer has a whole head")));
        }
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut answer = Answer {
            status: status.expect("an answer begins with its status"),
            head: head.to_ascii_lowercase(),
            body: String::new(),
            io,
        };
        let length =
            answer.header("content-length").map_or(0, |length| length.parse().expect("a number"));
        let mut body = vec![0; length];
        answer.io.read_exact(&mut body).await.expect("an answer has a whole body");
        answer.body = String::from_utf8(body).expect("answers are text");
        answer
    }
}

/// What came, and the connection that it came on.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// In small letters.
    head: String,
    pub(crate) body: String,
    io: DuplexStream,
}

/// What a socket got.
#[derive(PartialEq, Debug)]
pub(crate) enum Frame {
    Text(Value),
    Closed(u16),
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// A field of the body.
    #[track_caller]
    pub(crate) fn get(&self, field: &str) -> Value {
        let value = self.json().get(field).cloned();
        value.unwrap_or_else(|| panic!("no {field} in {}", self.body))
    }

    /// Sends a text frame, after an upgrade.
    pub(crate) async fn send_frame(&mut self, text: &Value) {
        let text = text.to_string();
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 126);
        // Masked, as a client must, with a mask that changes nothing.
        let mut frame = vec![0x81, 0x80 | length.expect("a short frame"), 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.io.write_all(&frame).await.expect("the server reads");
    }

    /// The next frame that is not a ping.
    pub(crate) async fn next_frame(&mut self) -> Frame {
        let kind = self.io.read_u8().await.expect("a frame has a head") & 0x0f;
        let length = match self.io.read_u8().await.expect("a frame has a length") {
            126 => usize::from(self.io.read_u16().await.expect("a frame has a length")),
            length => usize::from(length),
        };
        let mut payload = vec![0; length];
        self.io.read_exact(&mut payload).await.expect("a frame is whole");
        match kind {
            1 => Frame::Text(serde_json::from_slice(&payload).expect("frames are JSON")),
            8 => Frame::Closed(u16::from_be_bytes([payload[0], payload[1]])),
            kind => panic!("a frame of kind {kind}"),
        }
    }
}
