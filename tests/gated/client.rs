//! A client for one request. It only writes and reads bytes, so a test sees an answer at the moment
//! the server sends it.

use std::time::Duration;

use paperbourse_test_support::{Request, Response};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

pub(crate) fn get(path: impl Into<String>) -> Request {
    Request::get(path)
}

/// A POST with a JSON body; `null` means no body.
pub(crate) fn post(path: impl Into<String>, body: impl Into<Value>) -> Request {
    match body.into() {
        Value::Null => Request::new("POST", path),
        body => Request::post(path, &body),
    }
}

pub(crate) fn patch(path: impl Into<String>, body: impl Into<Value>) -> Request {
    Request::patch(path, &body.into())
}

pub(crate) fn delete(path: impl Into<String>) -> Request {
    Request::delete(path)
}

/// An upgrade to a socket.
pub(crate) fn upgrade(path: impl Into<String>) -> Request {
    get(path)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// Sends a request and waits for the answer.
pub(crate) async fn answer(request: Request, mut io: DuplexStream) -> Answer {
    io.write_all(&request.to_bytes()).await.expect("the server reads");
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(io.read_u8().await.expect("an answer has a whole head")));
    }
    let mut response = Response::from_head(&head);
    let mut body = vec![0; response.length()];
    io.read_exact(&mut body).await.expect("an answer has a whole body");
    response.text = String::from_utf8(body).expect("answers are text");
    Answer { response, io }
}

/// An answer and its connection.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) response: Response,
    io: DuplexStream,
}

/// A frame that a socket received.
#[derive(PartialEq, Debug)]
pub(crate) enum Frame {
    Text(Value),
    Closed(u16),
}

impl Answer {
    /// A field of the body.
    #[track_caller]
    pub(crate) fn get(&self, field: &str) -> Value {
        let value = self.response.json().get(field).cloned();
        value.unwrap_or_else(|| panic!("no {field} in {}", self.response.text))
    }

    /// What follows until the connection ends.
    pub(crate) async fn rest(mut self) -> String {
        let mut text = String::new();
        self.io.read_to_string(&mut text).await.expect("answers are text");
        text
    }

    /// Sends a text frame, after an upgrade.
    pub(crate) async fn send_frame(&mut self, text: &Value) {
        let text = text.to_string();
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 126);
        // Clients must mask frames; this mask is all zeros.
        let mut frame = vec![0x81, 0x80 | length.expect("a short frame"), 0, 0, 0, 0];
        frame.extend_from_slice(text.as_bytes());
        self.io.write_all(&frame).await.expect("the server reads");
    }

    /// Checks that no frame arrives while no task can continue.
    pub(crate) async fn has_no_frame(&mut self) {
        let early = tokio::time::timeout(Duration::from_millis(1), self.io.read_u8()).await;
        assert!(early.is_err(), "a frame while the record is held");
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
