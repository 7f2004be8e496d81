//! A small WebSocket client that shows every frame, and can send bad ones.

use std::io::{self, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};

use crate::witness::{self, Witness};
use crate::{Connection, Request, Response};

/// A received frame.
#[derive(Clone, PartialEq, Debug)]
pub enum Frame {
    /// A text message, which is JSON, or else `PONG`.
    Text(Value),
    /// The end, with its code.
    Close(u16),
    /// The server wants to know whether the client is there.
    Ping,
    /// The answer to a ping.
    Pong(Vec<u8>),
    /// The stream ended without a close frame.
    End,
}

/// The first byte of a frame with a whole text message.
pub const TEXT: u8 = 0x81;
/// The first byte of a frame with the first part of a text message.
pub const TEXT_BEGINS: u8 = 0x01;
/// The first byte of a frame with bytes.
pub const BINARY: u8 = 0x82;
/// The first byte of a close frame.
pub const CLOSE: u8 = 0x88;
/// The first byte of a ping.
pub const PING: u8 = 0x89;

/// An open socket.
pub struct Socket {
    stream: BufReader<TcpStream>,
    witness: Option<Box<dyn Witness>>,
}

/// An upgrade request without a credential.
pub fn upgrade(path: &str) -> Request {
    Request::get(path)
        .header("upgrade", "websocket")
        .header("connection", "Upgrade")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
}

/// A frame with this first byte, masked as clients must.
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
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
    frame
}

impl Socket {
    /// Sends the request. Returns the response as an error if it is no upgrade.
    #[track_caller]
    pub fn open(address: impl Into<SocketAddr>, request: &Request) -> Result<Self, Response> {
        Self::try_open(address, request).unwrap()
    }

    /// The same at a server that may be gone.
    pub fn try_open(
        address: impl Into<SocketAddr>,
        request: &Request,
    ) -> io::Result<Result<Self, Response>> {
        Self::try_upgrade(Connection::try_open(address.into())?, request)
    }

    /// The same on a connection that is open.
    pub fn try_upgrade(
        mut connection: Connection,
        request: &Request,
    ) -> io::Result<Result<Self, Response>> {
        let response = connection.try_send(request)?;
        if response.status != 101 {
            return Ok(Err(response));
        }
        Ok(Ok(Self::upgraded(connection, request, &response)))
    }

    /// Opens a socket and sends a text message in one write. The last bytes of its frame, this
    /// many, follow once the socket is open.
    #[track_caller]
    pub fn open_saying(
        address: impl Into<SocketAddr>,
        request: &Request,
        message: &Value,
        late_bytes: usize,
    ) -> Self {
        let text = message.to_string();
        let frame = masked(TEXT, text.as_bytes());
        let (early, late) = frame.split_at(frame.len() - late_bytes);
        let mut connection = Connection::open(address.into());
        connection.write(&[&request.to_bytes(), early].concat());
        let response = connection.read(true);
        assert_eq!(response.status, 101, "{response:?}");
        let mut socket = Self::upgraded(connection, request, &response);
        if let Some(witness) = &mut socket.witness {
            witness.sent(text.as_bytes());
        }
        socket.write(late);
        socket
    }

    fn upgraded(connection: Connection, request: &Request, response: &Response) -> Self {
        // The answer that RFC 6455 computes for this key.
        assert_eq!(response.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        Self { stream: connection.into_stream(), witness: witness::of(request) }
    }

    /// Opens a price socket and reads its first frame.
    #[track_caller]
    pub fn prices(address: impl Into<SocketAddr>, key: &str) -> Self {
        let mut socket = Self::open(address, &upgrade("/v1/ws/prices").key(key)).unwrap();
        let hello = socket.text();
        assert_eq!(hello["type"], "connected", "{hello}");
        socket
    }

    /// Sends a text message.
    pub fn say(&mut self, message: &Value) {
        self.send(TEXT, message.to_string().as_bytes());
    }

    /// Asks for the prices of these markets.
    pub fn subscribe(&mut self, markets: &[impl AsRef<str>]) {
        let markets: Vec<&str> = markets.iter().map(AsRef::as_ref).collect();
        self.say(&json!({"action": "subscribe", "markets": markets}));
    }

    /// Sends a frame with this first byte, masked as clients must.
    pub fn send(&mut self, first: u8, payload: &[u8]) {
        match (first, &mut self.witness) {
            (TEXT, Some(witness)) => witness.sent(payload),
            (CLOSE, Some(witness)) => witness.leaves(),
            _ => {}
        }
        self.write(&masked(first, payload));
    }

    /// Stops comparing frames with the socket's description: for clients that break its rules.
    #[must_use]
    pub fn unwitnessed(self) -> Self {
        Self { witness: None, ..self }
    }

    /// Sends these bytes as they are, which need not be frames.
    pub fn write(&mut self, bytes: &[u8]) {
        // The server may have closed the connection already.
        let _ = self.stream.get_mut().write_all(bytes);
    }

    /// The next frame of any kind. A frame of which a part is missing counts as the end.
    #[track_caller]
    pub fn next_frame(&mut self) -> Frame {
        self.try_next().unwrap_or(Frame::End)
    }

    fn try_next(&mut self) -> io::Result<Frame> {
        let [first, length] = self.bytes()?;
        assert_eq!(length & 0x80, 0, "a server does not mask");
        let length = match length {
            126 => u64::from(u16::from_be_bytes(self.bytes()?)),
            127 => u64::from_be_bytes(self.bytes()?),
            length => length.into(),
        };
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        self.stream.read_exact(&mut payload)?;
        Ok(match first {
            TEXT => {
                // The venue's answer to its own ping is no JSON.
                let message = if payload == b"PONG" {
                    json!("PONG")
                } else {
                    serde_json::from_slice(&payload).unwrap()
                };
                if let Some(witness) = &mut self.witness {
                    witness.received(message["type"].as_str().unwrap_or_default(), &message);
                }
                Frame::Text(message)
            }
            CLOSE => {
                let code = u16::from_be_bytes([payload[0], payload[1]]);
                if let Some(witness) = &mut self.witness {
                    witness.closed(code, std::str::from_utf8(&payload[2..]).unwrap());
                }
                Frame::Close(code)
            }
            PING => Frame::Ping,
            0x8a => Frame::Pong(payload),
            first => panic!("a frame that no server sends: {first:#x}"),
        })
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The next text frame.
    #[track_caller]
    pub fn text(&mut self) -> Value {
        match self.next_frame() {
            Frame::Text(value) => value,
            other => panic!("a text frame: {other:?}"),
        }
    }

    /// Closes the socket with a handshake, after which the server has freed its slot.
    #[track_caller]
    pub fn end(mut self) {
        self.send(CLOSE, &1000_u16.to_be_bytes());
        assert_eq!(self.close_code(), 1000);
    }

    /// The next text frame of this type; skips others.
    #[track_caller]
    pub fn text_of(&mut self, kind: &str) -> Value {
        loop {
            let value = self.text();
            if value["type"] == kind {
                return value;
            }
        }
    }

    /// The code of the server's close frame; skips other frames before it.
    #[track_caller]
    pub fn close_code(&mut self) -> u16 {
        loop {
            match self.next_frame() {
                Frame::Close(code) => return code,
                Frame::Text(_) | Frame::Ping | Frame::Pong(_) => {}
                Frame::End => panic!("a close frame"),
            }
        }
    }
}
