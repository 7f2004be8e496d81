//! RFC 6455 frames, whatever the messages mean: reads and checks client frames, and encodes server
//! frames back to back, so that everything due to a socket leaves in one write.
//!
//! A message is a single frame of at most [`FrameLimit::payload_bytes_max`] bytes. A fragmented
//! message is refused at its first fragment.

use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

use super::close::{ClobFlaw, CloseReason};

/// The maximum size of a client frame's payload, in bytes.
pub const CLIENT_FRAME_BYTES_MAX: usize = 16 * 1024;

/// How large the frames of a client may be.
#[derive(Clone, Copy, Debug)]
pub struct FrameLimit {
    /// The maximum size of a frame's payload, in bytes.
    pub payload_bytes_max: usize,
    /// Why a socket with a larger frame, or a fragmented message, is closed.
    pub too_big: CloseReason,
}

impl FrameLimit {
    /// The limit on this server's own sockets.
    pub const OWN: Self =
        Self { payload_bytes_max: CLIENT_FRAME_BYTES_MAX, too_big: CloseReason::TooBig };

    /// The limit on the venue's sockets, whose clients name some 80 bytes for each asset, all in
    /// one frame.
    pub const CLOB: Self =
        Self { payload_bytes_max: 128 * 1024, too_big: CloseReason::Clob(ClobFlaw::TooBig) };
}

/// The maximum size of a control frame's payload, in bytes.
const CONTROL_PAYLOAD_BYTES_MAX: usize = 125;

/// The size of a read, in bytes.
const READ_BYTES: usize = 4 * 1024;

/// Reads client frames. Holds no buffer while no part of a frame has arrived, which is the usual
/// state of a socket.
pub(super) struct FrameReader<R> {
    stream: R,
    /// Bytes read but not yet returned: whole frames and the start of one.
    received: Vec<u8>,
    /// The length of the prefix of `received` that was returned.
    taken_bytes: usize,
    limit: FrameLimit,
}

#[derive(PartialEq, Eq, Debug)]
pub(super) enum ClientFrame {
    /// A text message, valid UTF-8.
    Text(Vec<u8>),
    /// A ping, with the payload to echo in a pong.
    Ping(Vec<u8>),
    Pong,
}

/// Why reading has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadEnd {
    /// The connection must be closed with this reason.
    Close(CloseReason),
    /// The stream has ended or failed.
    Gone,
}

/// The header of an acceptable client frame.
struct FrameHead {
    opcode: OpCode,
    mask: [u8; 4],
    head_bytes: usize,
    payload_bytes: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Creates a reader of the stream. `received` are bytes already read from it.
    pub(super) const fn new(stream: R, received: Vec<u8>, limit: FrameLimit) -> Self {
        Self { stream, received, taken_bytes: 0, limit }
    }

    /// Reads the next frame. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<ClientFrame, ReadEnd> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            poll_fn(|context| self.poll_fill(context)).await?;
        }
    }

    /// Takes the next frame if it has arrived completely.
    fn take(&mut self) -> Result<Option<ClientFrame>, ReadEnd> {
        debug_assert!(self.taken_bytes <= self.received.len(), "only what was received is taken");
        let unread = &mut self.received[self.taken_bytes..];
        let Some(head) = FrameHead::parse(unread, self.limit).map_err(ReadEnd::Close)? else {
            return Ok(None);
        };
        let end = head.head_bytes + head.payload_bytes;
        let Some(payload) = unread.get(head.head_bytes..end) else { return Ok(None) };
        let payload: Vec<u8> =
            payload.iter().zip(head.mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
        self.taken_bytes += end;
        self.release_room();
        match head.opcode {
            OpCode::Text if std::str::from_utf8(&payload).is_err() => {
                Err(ReadEnd::Close(CloseReason::NotUtf8))
            }
            OpCode::Text => Ok(Some(ClientFrame::Text(payload))),
            OpCode::Ping => Ok(Some(ClientFrame::Ping(payload))),
            OpCode::Pong => Ok(Some(ClientFrame::Pong)),
            OpCode::Close => Err(ReadEnd::Close(returned(&payload))),
            OpCode::Binary => Err(ReadEnd::Close(CloseReason::Binary)),
            // Any message that this could continue was refused at its first fragment.
            OpCode::Continuation => Err(ReadEnd::Close(CloseReason::Protocol)),
        }
    }

    /// Shrinks the buffer once it is much larger than the unread bytes. Otherwise a peer that sends
    /// the start of a frame after each large frame would keep the buffer space of both.
    fn release_room(&mut self) {
        let rest = &self.received[self.taken_bytes..];
        if rest.is_empty() || self.received.capacity() > rest.len() + READ_BYTES {
            (self.received, self.taken_bytes) = (rest.to_vec(), 0);
        }
    }

    /// Reads more bytes, by way of a buffer on the stack.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ReadEnd>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_BYTES];
        let mut chunk = ReadBuf::uninit(&mut space);
        match ready!(Pin::new(&mut self.stream).poll_read(context, &mut chunk)) {
            Ok(()) if !chunk.filled().is_empty() => {
                self.received.drain(..std::mem::take(&mut self.taken_bytes));
                let room = self.received.capacity() - self.received.len();
                if !self.received.is_empty() && room < chunk.filled().len() {
                    // Without this, the buffer would double.
                    self.received.reserve_exact(READ_BYTES);
                }
                self.received.extend_from_slice(chunk.filled());
                Poll::Ready(Ok(()))
            }
            Ok(()) | Err(_) => Poll::Ready(Err(ReadEnd::Gone)),
        }
    }

    /// Returns the stream. Bytes read ahead are lost.
    pub(super) fn into_stream(self) -> R {
        self.stream
    }
}

impl FrameHead {
    /// Parses the header of a frame; `None` if it has not arrived completely. Rejects a bad frame
    /// before its payload arrives.
    fn parse(bytes: &[u8], limit: FrameLimit) -> Result<Option<Self>, CloseReason> {
        const FINAL: u8 = 0x80;
        const RESERVED: u8 = 0x70;
        const MASKED: u8 = 0x80;
        let &[first, second, ref rest @ ..] = bytes else { return Ok(None) };
        let opcode = OpCode::parse(first & 0x0f).filter(|_| first & RESERVED == 0);
        let opcode = opcode.ok_or(CloseReason::Protocol)?;
        let (is_final, is_masked) = (first & FINAL != 0, second & MASKED != 0);
        let short = usize::from(second & !MASKED);
        if !is_masked || (opcode.is_control() && (!is_final || short > CONTROL_PAYLOAD_BYTES_MAX)) {
            return Err(CloseReason::Protocol);
        }
        // The number of bytes of the extended length, and the minimum length that they may encode,
        // since a length must be encoded in as few bytes as possible.
        let (length_bytes, long_min) = match short {
            126 => (2, 126),
            127 => (8, 65_536),
            _ => (0, 0),
        };
        let (Some(length), Some(mask)) =
            (rest.get(..length_bytes), rest.get(length_bytes..length_bytes + 4))
        else {
            return Ok(None);
        };
        let long = length.iter().fold(0, |sum: u64, &byte| sum << 8 | u64::from(byte));
        if long < long_min {
            return Err(CloseReason::Protocol);
        }
        let payload_bytes =
            if length.is_empty() { short } else { usize::try_from(long).unwrap_or(usize::MAX) };
        let is_first_fragment = !is_final && opcode != OpCode::Continuation;
        if payload_bytes > limit.payload_bytes_max || is_first_fragment {
            return Err(limit.too_big);
        }
        let mask = mask.try_into().expect("a mask has four bytes");
        Ok(Some(Self { opcode, mask, head_bytes: 2 + length_bytes + 4, payload_bytes }))
    }
}

/// The frame opcodes of RFC 6455.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum OpCode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xa,
}

impl OpCode {
    fn parse(code: u8) -> Option<Self> {
        let all =
            [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong];
        all.into_iter().find(|&opcode| opcode as u8 == code)
    }

    const fn is_control(self) -> bool {
        matches!(self, Self::Close | Self::Ping | Self::Pong)
    }
}

/// Returns the reason to reply with to a close frame with this payload: its own code, if a peer may
/// send that code.
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

/// Returns the text of the first of these text frames of a server, and the frame's length in bytes.
pub(super) fn text_frame(frames: &[u8]) -> (&[u8], usize) {
    let (header_bytes, text_bytes) = match frames {
        [_, 127, length @ ..] => {
            let length = length.first_chunk().expect("a long frame has its length");
            (10, usize::try_from(u64::from_be_bytes(*length)).expect("it is in memory"))
        }
        [_, 126, high, low, ..] => (4, u16::from_be_bytes([*high, *low]).into()),
        [_, length, ..] => (2, (*length).into()),
        _ => unreachable!("a frame has at least two bytes"),
    };
    let whole_bytes = header_bytes + text_bytes;
    (&frames[header_bytes..whole_bytes], whole_bytes)
}

/// Appends an empty ping.
pub(super) fn put_ping(out: &mut Vec<u8>) {
    put(out, OpCode::Ping, &[]);
}

/// Appends a pong.
pub(super) fn put_pong(out: &mut Vec<u8>, payload: &[u8]) {
    put(out, OpCode::Pong, &[payload]);
}

/// Appends a close frame, optionally with the time after which the peer should reconnect.
pub(super) fn put_close(out: &mut Vec<u8>, reason: CloseReason, retry_after: Option<Duration>) {
    let retry = retry_after.map(|after| format!("; retry-after-ms={}", after.as_millis()));
    let (code, retry) = (reason.code().to_be_bytes(), retry.unwrap_or_default());
    put(out, OpCode::Close, &[&code, reason.text().as_bytes(), retry.as_bytes()]);
}

/// Appends a server frame: final, unmasked, with the shortest length encoding.
fn put(out: &mut Vec<u8>, opcode: OpCode, pieces: &[&[u8]]) {
    const FINAL: u8 = 0x80;
    let len: usize = pieces.iter().map(|piece| piece.len()).sum();
    // The longest header has two bytes and an eight-byte length.
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
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 4];

    fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
        masked_with(MASK, first, payload)
    }

    fn masked_with(mask: [u8; 4], first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = vec![first];
        if let Ok(len @ 0..126) = u8::try_from(payload.len()) {
            out.push(0x80 | len);
        } else {
            out.push(0x80 | 0x7e);
            out.extend_from_slice(&u16::try_from(payload.len()).unwrap().to_be_bytes());
        }
        out.extend_from_slice(&mask);
        out.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        out
    }

    /// Returns a frame with a 16-bit or 64-bit length of this value, and two bytes of payload.
    fn long(first: u8, form: u8, length: &[u8]) -> Vec<u8> {
        [&[first, 0x80 | form], length, &MASK, b"hi"].concat()
    }

    #[track_caller]
    fn check(bytes: &[u8], expected: Result<&str, ReadEnd>) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // In one piece, byte by byte, and with a part read ahead.
        for (ahead_bytes, pieces) in
            [(0, bytes.len()), (0, 1), (bytes.len() / 2, 1), (bytes.len(), 1)]
        {
            let (ahead, rest) = bytes.split_at(ahead_bytes);
            let rest = Pieces(rest, &[pieces], 0);
            let mut reader = FrameReader::new(rest, ahead.to_vec(), FrameLimit::OWN);
            let read = runtime.block_on(reader.next());
            let read = read.map(|frame| match frame {
                ClientFrame::Text(text) => format!("text {}", String::from_utf8_lossy(&text)),
                ClientFrame::Ping(payload) => format!("ping {}", payload.len()),
                ClientFrame::Pong => "pong".to_owned(),
            });
            assert_eq!(read.as_ref().map(String::as_str).map_err(|end| *end), expected);
            if read.is_ok() {
                assert_eq!(reader.received.capacity(), 0, "nothing is kept while there is nothing");
            }
        }
    }

    /// A stream that returns at most this many bytes per read; the sizes are used in turn.
    struct Pieces<'a>(&'a [u8], &'a [usize], usize);

    impl AsyncRead for Pieces<'_> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            let len = self.0.len().min(self.1[self.2]).min(buffer.remaining());
            let (now, later) = self.0.split_at(len);
            buffer.put_slice(now);
            (self.0, self.2) = (later, (self.2 + 1) % self.1.len());
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn frames_that_come_together_are_read_one_by_one() {
        let bytes = [masked(0x81, b"one"), masked(0x89, b"two"), masked(0x81, b"three")].concat();
        for piece_bytes in 1..bytes.len() {
            let pieces = [piece_bytes];
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let mut reader =
                FrameReader::new(Pieces(&bytes, &pieces, 0), Vec::new(), FrameLimit::OWN);
            let expected = [
                Ok(ClientFrame::Text(b"one".to_vec())),
                Ok(ClientFrame::Ping(b"two".to_vec())),
                Ok(ClientFrame::Text(b"three".to_vec())),
                Err(ReadEnd::Gone),
            ];
            for frame in expected {
                assert_eq!(runtime.block_on(reader.next()), frame, "{piece_bytes} at a time");
            }
        }
    }

    /// A peer that sends the start of a frame after each large frame must not keep the buffer space
    /// of both.
    #[test]
    fn a_large_frame_leaves_no_room_behind() {
        let large = masked(0x81, &vec![b'x'; CLIENT_FRAME_BYTES_MAX]);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        // Without bytes read ahead, and with some read ahead with the request.
        for (small_count, ahead_bytes) in [(0, 0), (0, large.len() + 1), (9_000, 63_000)] {
            let small = masked(0x8a, b"").repeat(small_count);
            let bytes = [&small[..], &large, &[0x81]].concat();
            let (ahead, rest) = bytes.split_at(ahead_bytes.min(bytes.len()));
            let mut reader =
                FrameReader::new(Pieces(rest, &[1_500], 0), ahead.to_vec(), FrameLimit::OWN);
            for _ in 0..small_count {
                assert_eq!(runtime.block_on(reader.next()), Ok(ClientFrame::Pong));
            }
            assert!(runtime.block_on(reader.next()).is_ok());
            let capacity = reader.received.capacity();
            assert!(capacity <= 1 + READ_BYTES, "{capacity} bytes for one");
        }
        // An incomplete frame does not take up twice its size either.
        let part = &large[..large.len() - 1];
        let mut reader = FrameReader::new(Pieces(part, &[1_500], 0), Vec::new(), FrameLimit::OWN);
        assert_eq!(runtime.block_on(reader.next()), Err(ReadEnd::Gone));
        let capacity = reader.received.capacity();
        assert!(capacity <= part.len() + READ_BYTES, "{capacity} bytes for {}", part.len());
    }

    #[test]
    fn client_frames_are_checked() {
        let close = |reason| Err(ReadEnd::Close(reason));
        let text = |len| masked(0x81, &vec![b'x'; len]);
        check(&masked(0x81, b"hi"), Ok("text hi"));
        check(&masked(0x89, &[7; 125]), Ok("ping 125"));
        check(&masked(0x8a, b""), Ok("pong"));
        for len in [125, 126] {
            check(&text(len), Ok(&format!("text {}", "x".repeat(len))));
        }
        check(
            &text(CLIENT_FRAME_BYTES_MAX),
            Ok(&format!("text {}", "x".repeat(CLIENT_FRAME_BYTES_MAX))),
        );
        for (bytes, expected) in [
            (text(CLIENT_FRAME_BYTES_MAX + 1), close(CloseReason::TooBig)),
            // Any length that needs eight bytes is too large.
            (long(0x81, 127, &u64::MAX.to_be_bytes()), close(CloseReason::TooBig)),
            (long(0x81, 127, &65_536_u64.to_be_bytes()), close(CloseReason::TooBig)),
            // A length must be encoded in as few bytes as possible.
            (long(0x81, 127, &65_535_u64.to_be_bytes()), close(CloseReason::Protocol)),
            (long(0x81, 127, &2_u64.to_be_bytes()), close(CloseReason::Protocol)),
            (long(0x81, 126, &125_u16.to_be_bytes()), close(CloseReason::Protocol)),
            (long(0x81, 126, &2_u16.to_be_bytes()), close(CloseReason::Protocol)),
            (long(0x81, 126, &0_u16.to_be_bytes()), close(CloseReason::Protocol)),
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

    fn any_frame() -> impl Strategy<Value = (ClientFrame, Vec<u8>)> {
        // Half of the frames are short, as in real traffic.
        let len = prop_oneof![0..200_usize, 0..=CLIENT_FRAME_BYTES_MAX];
        (0..3, len, any::<u8>(), any::<[u8; 4]>()).prop_map(|(kind, len, salt, mask)| {
            let byte = |index: usize| u8::try_from(index % 251).unwrap() ^ salt;
            let control = (0..len % (CONTROL_PAYLOAD_BYTES_MAX + 1)).map(byte).collect::<Vec<_>>();
            match kind {
                0 => {
                    let text = (0..len).map(|index| byte(index) & 0x7f).collect::<Vec<_>>();
                    let bytes = masked_with(mask, 0x81, &text);
                    (ClientFrame::Text(text), bytes)
                }
                1 => {
                    let bytes = masked_with(mask, 0x89, &control);
                    (ClientFrame::Ping(control), bytes)
                }
                _ => (ClientFrame::Pong, masked_with(mask, 0x8a, &control)),
            }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Frames split into any pieces are read as written, and their buffer space is freed.
        #[test]
        fn frames_are_read_as_they_were_written(
            frames in vec(any_frame(), 1..12),
            pieces in vec(1..6_000_usize, 1..20),
            ahead_bytes in 0..40_000_usize,
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|(_, bytes)| bytes).copied().collect();
            let (ahead, rest) = bytes.split_at(ahead_bytes.min(bytes.len()));
            let pieces = Pieces(rest, &pieces, 0);
            let mut reader = FrameReader::new(pieces, ahead.to_vec(), FrameLimit::OWN);
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            for (frame, _) in frames {
                prop_assert_eq!(runtime.block_on(reader.next()), Ok(frame));
                let unread_bytes = reader.received.len() - reader.taken_bytes;
                prop_assert!(reader.received.capacity() <= unread_bytes + READ_BYTES);
            }
            prop_assert_eq!(runtime.block_on(reader.next()), Err(ReadEnd::Gone));
            prop_assert_eq!(reader.received.capacity(), 0);
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
