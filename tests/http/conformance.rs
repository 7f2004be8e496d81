//! RFC 6455 from a raw client, family by family as the Autobahn test suite numbers them. That suite
//! expects a server that echoes; this one answers each text with a text, `error` if it is no
//! request, takes no binary messages (1003) and no fragments or frames above 16 KiB (1009).

use paperbourse_test_support::socket::{
    BINARY, CLOSE, Frame, PING, Socket, TEXT, TEXT_BEGINS, masked,
};

use super::server::{Account, shared};

const PONG: u8 = 0x8a;
const CONTINUES: u8 = 0x00;
const CONTINUES_LAST: u8 = 0x80;
const REQUEST: &[u8] = br#"{"action":"ping"}"#;

/// Sends the bytes, then a close frame, and returns everything that comes back.
fn answers(account: &Account<'_>, bytes: &[u8], is_chopped: bool) -> String {
    let mut socket = Socket::prices(account.server, &account.key).unwitnessed();
    let piece_bytes = if is_chopped { 1 } else { bytes.len().max(1) };
    bytes.chunks(piece_bytes).for_each(|piece| socket.write(piece));
    socket.send(CLOSE, &1000_u16.to_be_bytes());
    let mut answers = Vec::new();
    loop {
        answers.push(match socket.next_frame() {
            Frame::Text(message) => message["type"].as_str().unwrap().to_owned(),
            Frame::Ping => continue,
            Frame::Pong(payload) if payload.len() <= 8 => {
                format!("pong {}", String::from_utf8_lossy(&payload))
            }
            Frame::Pong(payload) => format!("pong of {}", payload.len()),
            Frame::Close(code) => format!("close {code}"),
            Frame::End => return answers.join(", "),
        });
    }
}

/// What one account may send in a burst without being too fast.
const CASES_PER_ACCOUNT: usize = 5;

/// Each case is a number, frames and what comes back; a final `close 1000` goes without saying.
fn check(cases: &[(&str, &[Vec<u8>], &str)]) {
    for cases in cases.chunks(CASES_PER_ACCOUNT) {
        let account = shared().account();
        for (number, frames, expected) in cases {
            let bytes = frames.concat();
            let expected = match *expected {
                "" => "close 1000".to_owned(),
                text if text.contains("close") => text.to_owned(),
                text => format!("{text}, close 1000"),
            };
            for is_chopped in [false, true] {
                if is_chopped && bytes.len() > 4_096 {
                    continue;
                }
                let seen = answers(&account, &bytes, is_chopped);
                assert_eq!(seen, expected, "case {number}, byte by byte: {is_chopped}");
            }
        }
    }
}

fn text(payload: impl AsRef<[u8]>) -> Vec<u8> {
    masked(TEXT, payload.as_ref())
}

/// A text of this length.
fn text_of(length: usize) -> Vec<u8> {
    text("*".repeat(length))
}

fn binary_of(length: usize) -> Vec<u8> {
    masked(BINARY, &vec![0xfe; length])
}

fn ping(payload: &[u8]) -> Vec<u8> {
    masked(PING, payload)
}

fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    masked(CLOSE, &[&code.to_be_bytes(), reason].concat())
}

#[test]
fn messages_of_every_length() {
    check(&[
        ("1.1.1", &[text_of(0)], "error"),
        ("1.1.2", &[text_of(125)], "error"),
        ("1.1.3", &[text_of(126)], "error"),
        ("1.1.4", &[text_of(127)], "error"),
        ("1.1.5", &[text_of(128)], "error"),
        ("1.1, the longest", &[text_of(16_384)], "error"),
        ("1.1, too long", &[text_of(16_385)], "close 1009"),
        ("1.1.6", &[text_of(65_535)], "close 1009"),
        ("1.1.7", &[text_of(65_536)], "close 1009"),
        ("1.1, a request", &[text(REQUEST)], "pong"),
        ("1.2.1", &[binary_of(0)], "close 1003"),
        ("1.2.2", &[binary_of(125)], "close 1003"),
        ("1.2.3", &[binary_of(126)], "close 1003"),
        ("1.2.4", &[binary_of(127)], "close 1003"),
        ("1.2.5", &[binary_of(128)], "close 1003"),
        ("1.2.6", &[binary_of(65_535)], "close 1009"),
        ("1.2.7", &[binary_of(65_536)], "close 1009"),
        ("9.1.6", &[text_of(16 << 20)], "close 1009"),
    ]);
}

#[test]
fn pings_and_pongs() {
    let pong = || masked(PONG, b"unasked");
    check(&[
        ("2.1", &[ping(b"")], "pong "),
        ("2.2", &[ping(b"hello")], "pong hello"),
        (
            "2.3",
            &[ping(b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff")],
            "pong \0\u{fffd}\u{fffd}\u{fffd}\u{fffd}\u{fffd}\0\u{fffd}",
        ),
        ("2.4", &[ping(&[0xfe; 125])], "pong of 125"),
        ("2.5", &[ping(&[0xfe; 126])], "close 1002"),
        ("2.7", &[masked(PONG, b"")], ""),
        ("2.8", &[pong()], ""),
        ("2.9", &[pong(), ping(b"asked")], "pong asked"),
        (
            "2.10",
            &[ping(b"1"), ping(b"2"), ping(b"3"), ping(b"4"), ping(b"5")],
            "pong 1, pong 2, pong 3, pong 4, pong 5",
        ),
    ]);
}

#[test]
fn reserved_bits_and_opcodes() {
    for bits in 1..8 {
        for first in [TEXT, BINARY, PING, PONG, CLOSE] {
            let reserved = || masked(first | bits << 4, b"");
            check(&[
                ("3, alone", &[reserved()], "close 1002"),
                ("3, after a text", &[text(REQUEST), reserved(), ping(b"")], "pong, close 1002"),
            ]);
        }
    }
    for opcode in (0x03..=0x07).chain(0x0b..=0x0f) {
        let reserved = |payload: &[u8]| masked(0x80 | opcode, payload);
        check(&[
            ("4, empty", &[reserved(b"")], "close 1002"),
            ("4, with a payload", &[reserved(b"reserved")], "close 1002"),
            ("4, after a text", &[text(REQUEST), reserved(b""), ping(b"")], "pong, close 1002"),
        ]);
    }
}

#[test]
fn fragments_are_refused_at_the_first() {
    let begins = || masked(TEXT_BEGINS, b"{\"action\"");
    let ends = || masked(CONTINUES_LAST, b":\"ping\"}");
    check(&[
        ("5.1", &[masked(PING & 0x7f, b"frag"), masked(CONTINUES_LAST, b"ment")], "close 1002"),
        ("5.2", &[masked(PONG & 0x7f, b"frag"), masked(CONTINUES_LAST, b"ment")], "close 1002"),
        ("5.3", &[begins(), ends()], "close 1009"),
        ("5.6", &[begins(), ping(b""), ends()], "close 1009"),
        ("5.9", &[masked(CONTINUES_LAST, b"alone"), text(REQUEST)], "close 1002"),
        ("5.12", &[masked(CONTINUES, b"alone"), text(REQUEST)], "close 1002"),
        ("5.18", &[begins(), masked(TEXT_BEGINS, b"again")], "close 1009"),
        ("5.19", &[masked(BINARY & 0x7f, b"bytes")], "close 1009"),
    ]);
}

#[test]
fn texts_are_utf_8() {
    let valid: [&[u8]; 24] = [
        "κόσμε".as_bytes(),
        "Hello-µ@ßöäüàá-UTF-8!!".as_bytes(),
        b"\x00",
        b"\x7f",
        b"\xc2\x80",
        b"\xdf\xbf",
        b"\xe0\xa0\x80",
        b"\xed\x9f\xbf",
        b"\xee\x80\x80",
        b"\xef\xbf\xbd",
        b"\xef\xbf\xbe",
        b"\xef\xbf\xbf",
        b"\xf0\x90\x80\x80",
        b"\xf0\x9f\xbf\xbe",
        b"\xf0\x9f\xbf\xbf",
        b"\xf1\x8f\xbf\xbe",
        b"\xf2\x8f\xbf\xbf",
        b"\xf3\x8f\xbf\xbe",
        b"\xf4\x80\x80\x80",
        b"\xf4\x8f\xbf\xbd",
        b"\xf4\x8f\xbf\xbe",
        b"\xf4\x8f\xbf\xbf",
        b"\xef\xbb\xbf",
        b"",
    ];
    let invalid: [&[u8]; 36] = [
        // A surrogate, alone and in a word.
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        b"\xed\xa0\x80",
        b"\xed\xad\xbf",
        b"\xed\xae\x80",
        b"\xed\xaf\xbf",
        b"\xed\xb0\x80",
        b"\xed\xbe\x80",
        b"\xed\xbf\xbf",
        b"\xed\xa0\x80\xed\xb0\x80",
        b"\xed\xaf\xbf\xed\xbf\xbf",
        // Beyond the last character.
        b"\xf4\x90\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\xf8\x88\x80\x80\x80",
        b"\xfb\xbf\xbf\xbf\xbf",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xfd\xbf\xbf\xbf\xbf\xbf",
        // Continuation bytes without a beginning.
        b"\x80",
        b"\xbf",
        b"\x80\xbf\x80",
        b"\xce\xba\xe1\xbd\xb9\x80",
        // Beginnings without an end.
        b"\xc0 \xc1 \xdf ",
        b"\xe0 \xef ",
        b"\xf0 \xf7 ",
        b"\xf8 \xfb ",
        b"\xce\xba\xe1",
        b"\xce\xba\xe1\xbd",
        b"\xf0\x90\x80",
        // Bytes that never occur.
        b"\xfe",
        b"\xff",
        b"\xfe\xfe\xff\xff",
        // Longer than necessary.
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
    ];
    for payload in valid {
        check(&[("6, valid", &[text(payload)], "error")]);
    }
    for payload in invalid {
        check(&[
            ("6, invalid", &[text(payload)], "close 1007"),
            ("7.5", &[close(1000, payload)], "close 1007"),
        ]);
    }
}

#[test]
fn closing_handshakes() {
    let reason = |length: usize| close(1000, "*".repeat(length).as_bytes());
    check(&[
        ("7.1.1", &[text(REQUEST)], "pong"),
        ("7.1.2", &[close(1000, b""), close(1000, b"")], ""),
        ("7.1.3", &[close(1000, b""), ping(b"late")], ""),
        ("7.1.4", &[close(1000, b""), text(REQUEST)], ""),
        ("7.1.5", &[masked(TEXT_BEGINS, b"frag"), close(1000, b"")], "close 1009"),
        ("7.1.6", &[text_of(256 << 10), text(REQUEST), close(1000, b"")], "close 1009"),
        ("7.3.1", &[masked(CLOSE, b"")], ""),
        ("7.3.2", &[masked(CLOSE, b"a")], "close 1002"),
        ("7.3.3", &[close(1000, b"")], ""),
        ("7.3.4", &[close(1000, b"Hello World!")], ""),
        ("7.3.5", &[reason(123)], ""),
        ("7.3.6", &[reason(124)], "close 1002"),
    ]);
    // The codes that a client may send, and what is in between.
    for (codes, is_valid) in [
        (vec![1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014], true),
        (vec![3000, 3999, 4000, 4999], true),
        (vec![0, 1, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999], false),
        (vec![5000, 65_535], false),
    ] {
        for code in codes {
            let expected = if is_valid { format!("close {code}") } else { "close 1002".into() };
            check(&[
                ("7.7, 7.9, 7.13", &[close(code, b"")], &expected),
                ("7.7, 7.9, 7.13 with a reason", &[close(code, b"because")], &expected),
            ]);
        }
    }
}

#[test]
fn frames_that_only_a_server_may_send() {
    let unmasked = |first: u8, payload: &[u8]| {
        [&[first, u8::try_from(payload.len()).unwrap()], payload].concat()
    };
    check(&[
        ("5.1 of RFC 6455, a text", &[unmasked(TEXT, REQUEST)], "close 1002"),
        ("5.1 of RFC 6455, a ping", &[unmasked(PING, b"")], "close 1002"),
        ("5.1 of RFC 6455, an end", &[unmasked(CLOSE, b"\x03\xe8")], "close 1002"),
    ]);
    // A length of which no message could ever be read.
    let endless = [&[TEXT, 0xff][..], &[0xff; 8], &[7, 11, 13, 17]].concat();
    check(&[("5.2 of RFC 6455", &[endless], "close 1009")]);
}
