//! RFC 6455 frames, independent of what the messages say: reads and checks client frames, and
//! encodes server frames back to back, so that everything due to a socket leaves in one write.
//!
//! Parsing uses `fastwebsockets`, which appears only here and in the upgrade. This module adds the
//! rules the crate leaves open: a client must mask, a message is one frame, and a frame has at most
//! [`CLIENT_FRAME_BYTES_MAX`] bytes. The crate's own reassembly of fragments is unbounded, so the
//! first fragment is refused.

use std::time::Duration;

use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket, WebSocketError};
use tokio::io::{AsyncRead, Join, Sink};

use super::close::CloseReason;

/// Size limit of a client frame's payload, in bytes.
pub const CLIENT_FRAME_BYTES_MAX: usize = 16 * 1024;

/// Size limit of a control frame's payload, in bytes.
const CONTROL_PAYLOAD_BYTES_MAX: usize = 125;

pub(super) struct FrameReader<R> {
    /// Answers neither pings nor closes itself, so it never writes.
    socket: WebSocket<Join<R, Sink>>,
}

pub(super) enum ClientFrame {
    /// Valid UTF-8.
    Text(Payload<'static>),
    /// The payload to echo in a pong.
    Ping(Payload<'static>),
    Pong,
}

/// Why reading ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadEnd {
    /// Send the peer a close frame with this reason.
    Close(CloseReason),
    /// The stream has ended or failed.
    Gone,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(stream: R) -> Self {
        let joined = tokio::io::join(stream, tokio::io::sink());
        let mut socket = WebSocket::after_handshake(joined, Role::Server);
        socket.set_auto_close(false);
        socket.set_auto_pong(false);
        // The crate refuses messages of exactly this size.
        socket.set_max_message_size(CLIENT_FRAME_BYTES_MAX + 1);
        Self { socket }
    }

    /// Reads the next frame. Not cancel-safe: a cancelled read may have consumed half a frame.
    pub(super) async fn next(&mut self) -> Result<ClientFrame, ReadEnd> {
        let mut frame = self.socket.read_frame().await.map_err(|error| ReadEnd::of(&error))?;
        let is_first_fragment = !frame.fin && frame.opcode != OpCode::Continuation;
        if is_first_fragment {
            return Err(ReadEnd::Close(CloseReason::TooBig));
        }
        let is_control = matches!(frame.opcode, OpCode::Ping | OpCode::Pong | OpCode::Close);
        let is_too_long = is_control && frame.payload.len() > CONTROL_PAYLOAD_BYTES_MAX;
        if is_too_long || !is_masked(&mut frame) {
            return Err(ReadEnd::Close(CloseReason::Protocol));
        }
        match frame.opcode {
            OpCode::Text => Ok(ClientFrame::Text(frame.payload)),
            OpCode::Ping => Ok(ClientFrame::Ping(frame.payload)),
            OpCode::Pong => Ok(ClientFrame::Pong),
            OpCode::Close => Err(ReadEnd::Close(returned(&frame.payload))),
            OpCode::Binary => Err(ReadEnd::Close(CloseReason::Binary)),
            // The message that it might continue was refused with its first fragment.
            OpCode::Continuation => Err(ReadEnd::Close(CloseReason::Protocol)),
        }
    }

    /// Returns the stream; bytes that were read ahead are lost.
    pub(super) fn into_stream(self) -> R {
        self.socket.into_inner().into_inner().0
    }
}

impl ReadEnd {
    fn of(error: &WebSocketError) -> Self {
        match error {
            WebSocketError::UnexpectedEOF
            | WebSocketError::ConnectionClosed
            | WebSocketError::IoError(_) => Self::Gone,
            WebSocketError::FrameTooLarge => Self::Close(CloseReason::TooBig),
            WebSocketError::InvalidUTF8 => Self::Close(CloseReason::NotUtf8),
            // Reserved bits or opcodes, or a control frame that is fragmented or above 125 bytes.
            _ => Self::Close(CloseReason::Protocol),
        }
    }
}

/// The crate unmasks silently; only the header it would write back reveals that the frame was
/// masked.
fn is_masked(frame: &mut Frame<'_>) -> bool {
    let mut head = [0; 16];
    frame.fmt_head(&mut head);
    head[1] & 0x80 != 0
}

/// The reply to a close frame with this payload: its code, if a peer may send that code.
fn returned(payload: &[u8]) -> CloseReason {
    const NORMAL: u16 = 1000;
    match payload {
        [] => CloseReason::Returned(NORMAL),
        [high, low, text @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            let is_sendable = matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999);
            match std::str::from_utf8(text) {
                _ if !is_sendable => CloseReason::Protocol,
                Ok(_) => CloseReason::Returned(code),
                Err(_) => CloseReason::NotUtf8,
            }
        }
        [_] => CloseReason::Protocol,
    }
}

/// Appends a text frame made of these pieces.
pub(super) fn put_text(out: &mut Vec<u8>, pieces: &[&[u8]]) {
    put(out, OpCode::Text, pieces);
}

/// Appends an empty ping.
pub(super) fn put_ping(out: &mut Vec<u8>) {
    put(out, OpCode::Ping, &[]);
}

/// Appends a pong.
pub(super) fn put_pong(out: &mut Vec<u8>, payload: &[u8]) {
    put(out, OpCode::Pong, &[payload]);
}

/// Appends a close frame, which may tell the peer after which time to come back.
pub(super) fn put_close(out: &mut Vec<u8>, reason: CloseReason, retry_after: Option<Duration>) {
    let retry = retry_after.map(|after| format!("; retry-after-ms={}", after.as_millis()));
    let (code, retry) = (reason.code().to_be_bytes(), retry.unwrap_or_default());
    put(out, OpCode::Close, &[&code, reason.text().as_bytes(), retry.as_bytes()]);
}

/// Appends a server frame: final, unmasked, with the shortest length encoding.
fn put(out: &mut Vec<u8>, opcode: OpCode, pieces: &[&[u8]]) {
    const FINAL: u8 = 0x80;
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    out.reserve(10 + len);
    out.push(FINAL | opcode as u8);
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ 0..126), _) => out.push(len),
        (_, Ok(len)) => {
            out.push(126);
            out.extend_from_slice(&len.to_be_bytes());
        }
        _ => {
            out.push(127);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
    for piece in pieces {
        out.extend_from_slice(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 4];

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        if let Ok(len @ 0..126) = u8::try_from(payload.len()) {
            out.push(0x80 | len);
        } else {
            out.push(0x80 | 0x7e);
            out.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
        out.extend_from_slice(&MASK);
        out.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<&str, ReadEnd>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let read = runtime.block_on(async { FrameReader::new(bytes).next().await });
        let read = read.map(|frame| match frame {
            ClientFrame::Text(text) => format!("text {}", String::from_utf8_lossy(&text)),
            ClientFrame::Ping(payload) => format!("ping {}", payload.len()),
            ClientFrame::Pong => "pong".to_owned(),
        });
        assert_eq!(read.as_ref().map(String::as_str).map_err(|end| *end), expected);
    }

    #[test]
    fn client_frames_are_checked() {
        let close = |reason| Err(ReadEnd::Close(reason));
        let text = |len| masked(0x81, &vec![b'x'; len]);
        check(&masked(0x81, b"hi"), Ok("text hi"));
        check(&masked(0x89, &[7; 125]), Ok("ping 125"));
        check(&masked(0x8a, b""), Ok("pong"));
        check(
            &text(CLIENT_FRAME_BYTES_MAX),
            Ok(&format!("text {}", "x".repeat(CLIENT_FRAME_BYTES_MAX))),
        );
        for (bytes, expected) in [
            (text(CLIENT_FRAME_BYTES_MAX + 1), close(CloseReason::TooBig)),
            (
                vec![0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4],
                close(CloseReason::TooBig),
            ),
            (masked(0x01, b"first"), close(CloseReason::TooBig)),
            (masked(0x80, b"last"), close(CloseReason::Protocol)),
            (masked(0x00, b"middle"), close(CloseReason::Protocol)),
            (masked(0x82, b"binary"), close(CloseReason::Binary)),
            (masked(0x81, b"\xff"), close(CloseReason::NotUtf8)),
            (b"\x81\x02hi".to_vec(), close(CloseReason::Protocol)),
            (b"\x8a\x00".to_vec(), close(CloseReason::Protocol)),
            (masked(0x09, b"ping"), close(CloseReason::Protocol)),
            (masked(0x89, &[7; 126]), close(CloseReason::Protocol)),
            (masked(0x8a, &[7; 126]), close(CloseReason::Protocol)),
            (masked(0x83, b""), close(CloseReason::Protocol)),
            (masked(0xc1, b"compressed"), close(CloseReason::Protocol)),
            (masked(0x88, b""), close(CloseReason::Returned(1000))),
            (masked(0x88, b"\x0f\xa0bye"), close(CloseReason::Returned(4000))),
            (masked(0x88, b"\x03\xec"), close(CloseReason::Protocol)),
            (masked(0x88, b"\x03\xe8\xff"), close(CloseReason::NotUtf8)),
            (masked(0x88, b"x"), close(CloseReason::Protocol)),
            (masked(0x88, &[b'x'; 126]), close(CloseReason::Protocol)),
            (b"\x81".to_vec(), Err(ReadEnd::Gone)),
            (vec![], Err(ReadEnd::Gone)),
        ] {
            check(&bytes, expected);
        }
    }

    #[test]
    fn server_frames_are_encoded_back_to_back() {
        let mut out = Vec::new();
        put_text(&mut out, &[b"a", b"bc"]);
        put_ping(&mut out);
        put_pong(&mut out, b"z");
        put_close(&mut out, CloseReason::NotUtf8, None);
        let close = b"\x88\x1f\x03\xeftext frame is not valid UTF-8";
        assert_eq!(out, [b"\x81\x03abc\x89\x00\x8a\x01z", &close[..]].concat());
        out.clear();
        put_close(&mut out, CloseReason::GoingAway, Some(Duration::from_millis(71_234)));
        let text = b"the server is shutting down; retry-after-ms=71234";
        assert_eq!(out, [b"\x88\x33\x03\xe9", &text[..]].concat());
        for (len, head) in [
            (125, &b"\x81\x7d"[..]),
            (126, b"\x81\x7e\x00\x7e"),
            (65_535, b"\x81\x7e\xff\xff"),
            (65_536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
        ] {
            let payload = vec![b'x'; len];
            let mut out = Vec::new();
            put_text(&mut out, &[&payload]);
            assert_eq!(out, [head, &payload].concat());
        }
    }
}
