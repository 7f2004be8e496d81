//! A small WebSocket client that shows every frame, and can send bad ones.

use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::server::Server;

/// A received frame.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Frame {
    Text(Value),
    Close(u16),
    Ping,
    Pong(Vec<u8>),
    /// The stream ended without a close frame.
    End,
}

/// The first byte of a frame with a whole text message.
pub(crate) const TEXT: u8 = 0x81;
/// The first byte of a frame with the first part of a text message.
pub(crate) const TEXT_BEGINS: u8 = 0x01;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;

pub(crate) struct Socket {
    stream: BufReader<TcpStream>,
}

/// An upgrade request without a credential.
pub(crate) fn upgrade(path: &str) -> Request {
    Request::get(path)
        .header("upgrade", "websocket")
        .header("connection", "Upgrade")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

impl Socket {
    /// Sends the request. Returns the response as an error if it is no upgrade.
    pub(crate) fn open(server: &Server, request: &Request) -> Result<Self, Response> {
        let mut connection = server.connect();
        let response = connection.send(request);
        if response.status != 101 {
            return Err(response);
        }
        // The answer that RFC 6455 computes for this key.
        assert_eq!(response.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Ok(Self { stream: connection.into_stream() })
    }

    /// Opens a price socket and reads its first frame.
    #[track_caller]
    pub(crate) fn prices(server: &Server, key: &str) -> Self {
        let mut socket = Self::open(server, &upgrade("/v1/ws/prices").key(key)).unwrap();
        let hello = socket.text();
        assert_eq!(hello["type"], "connected", "{hello}");
        socket
    }

    pub(crate) fn say(&mut self, message: &Value) {
        self.send(TEXT, message.to_string().as_bytes());
    }

    pub(crate) fn subscribe(&mut self, markets: &[impl AsRef<str>]) {
        let markets: Vec<&str> = markets.iter().map(AsRef::as_ref).collect();
        self.say(&json!({"action": "subscribe", "markets": markets}));
    }

    /// Sends a frame with this first byte, masked as clients must.
    pub(crate) fn send(&mut self, first: u8, payload: &[u8]) {
        let mut frame = vec![first];
        match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
            (Ok(length @ ..0x7e), _) => frame.push(0x80 | length),
            (_, Ok(length)) => {
                frame.push(0x80 | 0x7e);
                frame.extend_from_slice(&length.to_be_bytes());
            }
            _ => {
                frame.push(0x80 | 0x7f);
                frame.extend_from_slice(&(payload.len() as u64).to_be_bytes());
            }
        }
        let mask = [7, 11, 13, 17];
        frame.extend_from_slice(&mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        // The server may have closed the connection already.
        let _ = self.stream.get_mut().write_all(&frame);
    }

    /// The next frame of any kind.
    pub(crate) fn next(&mut self) -> Frame {
        let mut head = [0; 2];
        if self.stream.read_exact(&mut head).is_err() {
            return Frame::End;
        }
        assert_eq!(head[1] & 0x80, 0, "a server does not mask");
        let length = match head[1] {
            126 => u64::from(u16::from_be_bytes(self.bytes())),
            127 => u64::from_be_bytes(self.bytes()),
            length => length.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload).unwrap();
        match head[0] {
            TEXT => Frame::Text(serde_json::from_slice(&payload).unwrap()),
            CLOSE => Frame::Close(u16::from_be_bytes([payload[0], payload[1]])),
            PING => Frame::Ping,
            0x8a => Frame::Pong(payload),
            first => panic!("a frame that no server sends: {first:#x}"),
        }
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next text frame.
    #[track_caller]
    pub(crate) fn text(&mut self) -> Value {
        match self.next() {
            Frame::Text(value) => value,
            other => panic!("a text frame: {other:?}"),
        }
    }

    /// Closes the socket with a handshake, after which the server has freed its slot.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.send(CLOSE, &1000_u16.to_be_bytes());
        assert_eq!(self.close_code(), 1000);
    }

    /// The next text frame of this type; skips others.
    #[track_caller]
    pub(crate) fn text_of(&mut self, kind: &str) -> Value {
        loop {
            let value = self.text();
            if value["type"] == kind {
                return value;
            }
        }
    }

    /// The code of the server's close frame; skips other frames before it.
    #[track_caller]
    pub(crate) fn close_code(&mut self) -> u16 {
        loop {
            match self.next() {
                Frame::Close(code) => return code,
                Frame::Text(_) | Frame::Ping | Frame::Pong(_) => {}
                Frame::End => panic!("a close frame"),
            }
        }
    }
}
