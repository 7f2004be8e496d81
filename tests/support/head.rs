//! Parses the head of a response from the bytes received so far.
//!
//! It only understands what the servers of this repository and their peers send: a status line,
//! headers, `Content-Length`. Anything else is an error that names the problem.

use std::io::BufRead as _;

/// The longest status line and headers, in bytes.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The longest body, in bytes: a listing of 200 markets fits several times.
pub const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Why this client does not understand a response.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResponseError {
    /// The status line and headers do not end.
    #[error("the response's head is longer than {HEAD_BYTES_MAX} bytes")]
    HeadTooLong,
    /// The first line is not `HTTP/1.1` and a status.
    #[error("not an HTTP/1.1 status line: {0:?}")]
    StatusLine(String),
    /// A line of the head is not `name: value`.
    #[error("not a header: {0:?}")]
    Header(String),
    /// The body comes in chunks.
    #[error("the response has `Transfer-Encoding: {0}`; only `Content-Length` is supported")]
    TransferEncoding(String),
    /// The head does not say how long the body is.
    #[error("the response has no Content-Length")]
    LengthMissing,
    /// The length is not a number, or there are two.
    #[error("not a usable Content-Length: {0:?}")]
    Length(String),
    /// The body is longer than this client accepts.
    #[error("the response's body has {0} bytes, more than {BODY_BYTES_MAX}")]
    BodyTooLong(usize),
    /// The server sent more than the declared length.
    #[error("{0} bytes came after the end of the response")]
    Excess(usize),
}

/// The head of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// The status code.
    pub status: u16,
    /// The length of the status line and headers, including the empty line.
    pub head_bytes: usize,
    /// The length of the body.
    pub body_bytes: usize,
}

impl Head {
    /// Reads the head of a response; `None` while it is incomplete.
    pub fn parse(received: &[u8]) -> Result<Option<Self>, ResponseError> {
        let mut status = None;
        let mut body_bytes = None;
        let mut offset = 0;
        while let Some(length) = find(b'\n', &received[offset..]) {
            let line = &received[offset..offset + length];
            offset += length + 1;
            if offset > HEAD_BYTES_MAX {
                return Err(ResponseError::HeadTooLong);
            }
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match (status, line) {
                (None, line) => status = Some(parse_status(line)?),
                (Some(status), []) => {
                    let body_bytes = body_bytes.ok_or(ResponseError::LengthMissing)?;
                    return Ok(Some(Self { status, head_bytes: offset, body_bytes }));
                }
                (Some(_), line) => read_header(line, &mut body_bytes)?,
            }
        }
        if received.len() > HEAD_BYTES_MAX { Err(ResponseError::HeadTooLong) } else { Ok(None) }
    }

    /// Whether this many received bytes are the whole response.
    pub fn is_complete(self, received_bytes: usize) -> Result<bool, ResponseError> {
        match received_bytes.checked_sub(self.head_bytes + self.body_bytes) {
            None => Ok(false),
            Some(0) => Ok(true),
            Some(excess) => Err(ResponseError::Excess(excess)),
        }
    }
}

/// The index of a byte. Of the standard library only `skip_until` searches many bytes at a time; a
/// loop over single bytes took a tenth of the generator's CPU time.
fn find(byte: u8, mut bytes: &[u8]) -> Option<usize> {
    let all = bytes;
    let length = bytes.skip_until(byte).expect("reading from memory does not fail");
    all[..length].ends_with(&[byte]).then(|| length - 1)
}

fn parse_status(line: &[u8]) -> Result<u16, ResponseError> {
    let digits = line.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
    digits
        .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
        .filter(|status| (200..600).contains(status))
        .ok_or_else(|| ResponseError::StatusLine(text(line)))
}

/// Reads a header, and the body's length if it declares one.
fn read_header(line: &[u8], body_bytes: &mut Option<usize>) -> Result<(), ResponseError> {
    let colon = find(b':', line);
    let (name, value) =
        colon.map(|at| (&line[..at], &line[at + 1..])).ok_or_else(|| header_error(line))?;
    if name.eq_ignore_ascii_case(b"transfer-encoding") {
        return Err(ResponseError::TransferEncoding(text(value)));
    }
    if name.eq_ignore_ascii_case(b"content-length") {
        let digits = value.trim_ascii();
        let is_digits = digits.iter().all(u8::is_ascii_digit);
        let length = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
        let length: usize = length
            .filter(|_| is_digits && body_bytes.is_none())
            .ok_or_else(|| ResponseError::Length(text(value)))?;
        if length > BODY_BYTES_MAX {
            return Err(ResponseError::BodyTooLong(length));
        }
        *body_bytes = Some(length);
    }
    Ok(())
}

fn header_error(line: &[u8]) -> ResponseError {
    ResponseError::Header(text(line))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.trim_ascii()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &[u8] =
        b"HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\ncontent-LENGTH:  5 \r\n\r\nhello";

    #[test]
    fn a_head_is_read_once_it_is_complete() {
        let head_bytes = FULL.len() - 5;
        for byte_count in 0..=FULL.len() {
            let head = Head { status: 404, head_bytes, body_bytes: 5 };
            let expected = (byte_count >= head_bytes).then_some(head);
            assert_eq!(Head::parse(&FULL[..byte_count]), Ok(expected), "{byte_count} bytes");
            if let Some(head) = expected {
                assert_eq!(head.is_complete(byte_count), Ok(byte_count == FULL.len()));
            }
        }
        let head = Head::parse(FULL).unwrap().unwrap();
        assert_eq!(head.is_complete(FULL.len() + 2), Err(ResponseError::Excess(2)));
    }

    #[test]
    fn an_unsupported_response_is_an_error_that_says_why() {
        #[track_caller]
        fn check(response: &str, expected: ResponseError) {
            assert_eq!(Head::parse(response.as_bytes()), Err(expected));
        }
        use ResponseError as E;
        check("HTTP/1.0 200 OK\r\n", E::StatusLine("HTTP/1.0 200 OK".into()));
        check("HTTP/1.1 2x0 OK\r\n", E::StatusLine("HTTP/1.1 2x0 OK".into()));
        check("HTTP/1.1 20\r\n", E::StatusLine("HTTP/1.1 20".into()));
        check("HTTP/1.1 100 Continue\r\n\r\n", E::StatusLine("HTTP/1.1 100 Continue".into()));
        check("HTTP/1.1 200 OK\r\nDate\r\n", E::Header("Date".into()));
        check(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n",
            E::TransferEncoding("chunked".into()),
        );
        check("HTTP/1.1 200 OK\r\nDate: today\r\n\r\n", E::LengthMissing);
        check("HTTP/1.1 200 OK\r\nContent-Length: \r\n", E::Length(String::new()));
        check("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n", E::Length("+5".into()));
        check(
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n",
            E::Length("5".into()),
        );
        check("HTTP/1.1 200 OK\r\nContent-Length: 4194305\r\n", E::BodyTooLong(4_194_305));
        check(&format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(HEAD_BYTES_MAX)), E::HeadTooLong);
        check(&format!("HTTP/1.1 200 OK\r\nA: {}\r\n", "a".repeat(HEAD_BYTES_MAX)), E::HeadTooLong);
    }

    #[test]
    fn a_chunked_response_says_what_is_supported() {
        let error = Head::parse(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the response has `Transfer-Encoding: chunked`; only `Content-Length` is supported"
        );
    }
}
