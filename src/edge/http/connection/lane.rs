//! The lane: a fast path that answers plain requests without hyper's dispatch.
//!
//! Every connection starts in the lane. If the bytes of one read begin with a complete, plain
//! request for a hot operation, the lane calls the same handler that hyper would call and sends the
//! answer in one write. Anything else goes to hyper with its bytes untouched, and hyper serves the
//! connection until it is idle again. The lane never refuses a request and never waits for the rest
//! of one, so hyper remains the only place where HTTP is judged.
//!
//! Heads are parsed by httparse, the parser that hyper uses, with the same settings.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use httparse::Status;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode, Uri};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::activity::Activity;
use super::outgoing::{Outgoing, PlainBody, Written, forget_values};
use super::timed::Timed;
use crate::http::body::RequestBody;

/// Whether the lane serves a request that begins with these bytes.
pub type IsHot = fn(&[u8]) -> bool;

/// Size of the read buffer, in bytes. Most requests of bots take less than 1 KiB.
const READ_BYTES: usize = 8 * 1024;
/// Maximum number of headers of a request in the lane. Typical clients send about ten.
const HEADERS_MAX: usize = 32;
/// Initial allocation for the head of an answer, in bytes. The head of a trade's takes about 400.
const ANSWER_HEAD_BYTES: usize = 512;

/// The way in which a connection left the lane.
pub(super) enum Left<Io> {
    /// The connection is closed.
    Closed,
    /// hyper takes over the transport, into which the unanswered bytes have been put back.
    ToHyper(Timed<Io>),
}

/// Answers requests until the client leaves or hyper has to take over: for a request that the lane
/// does not serve, or because the server ends the connection.
pub(super) async fn serve<Io, Handler, Answer>(
    mut io: Timed<Io>,
    activity: &Arc<Activity>,
    is_hot: IsHot,
    handler: &Handler,
) -> io::Result<Left<Io>>
where
    Io: AsyncRead + AsyncWrite + Unpin + 'static,
    Handler: Fn(Request<RequestBody>) -> Answer,
    Answer: Future<Output: Outgoing>,
{
    let mut read = BytesMut::new();
    // The headers of the previous request. The next one usually has the same names.
    let mut spare = HeaderMap::new();
    let mut head = Vec::new();
    loop {
        if read.is_empty() {
            read.reserve(READ_BYTES);
            let mut reading = pin!(io.read_buf(&mut read));
            let count = poll_fn(|context| {
                if activity.is_ending() {
                    return Poll::Ready(None);
                }
                reading.as_mut().poll(context).map(Some)
            })
            .await
            .transpose()?;
            if count == Some(0) {
                io.shutdown().await?;
                return Ok(Left::Closed);
            }
        }
        let Some(request) = take_request(&mut read, &mut spare, is_hot) else {
            io.put_back(read.freeze());
            return Ok(Left::ToHyper(io));
        };
        activity.begin_request();
        if activity.is_pipelined() {
            tokio::task::yield_now().await;
        }
        let request = request.map(|body| RequestBody::whole(body, activity.clone()));
        let answer = handler(request).await;
        let is_last = activity.is_last_answer();
        activity.begin_answer();
        head.clear();
        head.reserve(ANSWER_HEAD_BYTES);
        let Some(Written { status, body, held, spare: unneeded }) = answer.write(&mut head) else {
            debug_assert!(false, "no hot operation answers with a stream");
            return Err(io::Error::other("the answer is a stream, which the lane cannot send"));
        };
        spare = unneeded;
        // The values are slices of the read buffer, which can be reused only once none is left.
        forget_values(&mut spare);
        if let Some(held) = held {
            activity.hold_until_sent(held);
        }
        end_head(&mut head, status, is_last, body.len());
        write(&mut io, &head, body).await?;
        io.flush().await?;
        if is_last {
            io.shutdown().await?;
            return Ok(Left::Closed);
        }
    }
}

/// Takes a request off the front of the read buffer, with its headers in the `spare` map. Returns
/// `None` and takes nothing if the request is for hyper.
fn take_request(
    read: &mut BytesMut,
    spare: &mut HeaderMap,
    is_hot: IsHot,
) -> Option<Request<Bytes>> {
    if !is_hot(read) {
        return None;
    }
    let mut space = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut parsed = httparse::Request::new(&mut space);
    let Ok(Status::Complete(head_bytes)) = parsed.parse(read) else { return None };
    if parsed.version != Some(1) {
        return None;
    }
    let body_bytes = plain_body_bytes(parsed.headers)?;
    if read.len() < head_bytes + body_bytes {
        return None;
    }
    // hyper has special rules for answers to other methods, such as `HEAD`.
    let method = match parsed.method? {
        "GET" => Method::GET,
        "POST" => Method::POST,
        "DELETE" => Method::DELETE,
        _ => return None,
    };
    // Keep ranges instead of slices, which would borrow the buffer that is about to be split.
    let start = read.as_ptr() as usize;
    let range = |part: &[u8]| {
        let first = part.as_ptr() as usize - start;
        first..first + part.len()
    };
    let path = range(parsed.path?.as_bytes());
    let mut ranges = [const { (0..0, 0..0) }; HEADERS_MAX];
    let header_count = parsed.headers.len();
    for (header, ranges) in parsed.headers.iter().zip(&mut ranges) {
        *ranges = (range(header.name.as_bytes()), range(header.value));
    }
    let whole = read.split_to(head_bytes + body_bytes).freeze();
    let mut headers = std::mem::take(spare);
    let fields = &ranges[..header_count];
    let filled =
        refill(&mut headers, &whole, fields).or_else(|| fill(&mut headers, &whole, fields));
    let uri = filled.and_then(|()| Uri::from_maybe_shared(whole.slice(path)).ok());
    let Some(uri) = uri else {
        // Restore the buffer: hyper finds the fault again and reports it.
        let rest = std::mem::replace(read, BytesMut::from(&whole[..]));
        read.unsplit(rest);
        return None;
    };
    let mut request = Request::new(whole.slice(head_bytes..));
    *request.method_mut() = method;
    *request.uri_mut() = uri;
    *request.headers_mut() = headers;
    Some(request)
}

/// The ranges of a header's name and value in the bytes of a request.
type Field = (Range<usize>, Range<usize>);

/// Replaces the values of headers that have the same names as these fields, in the same order.
/// Returns `None` if the names differ. Comparing names is cheaper than inserting into a map.
fn refill(headers: &mut HeaderMap, whole: &Bytes, fields: &[Field]) -> Option<()> {
    if headers.len() != fields.len() {
        return None;
    }
    for ((known, kept), (name, value)) in headers.iter_mut().zip(fields) {
        if !known.as_str().as_bytes().eq_ignore_ascii_case(&whole[name.clone()]) {
            return None;
        }
        *kept = value_of(whole, value)?;
    }
    Some(())
}

/// Fills a map with the headers in these fields. Returns `None` if one is not a valid header.
fn fill(headers: &mut HeaderMap, whole: &Bytes, fields: &[Field]) -> Option<()> {
    headers.clear();
    headers.reserve(fields.len());
    for (name, value) in fields {
        let name = HeaderName::from_bytes(&whole[name.clone()]).ok()?;
        headers.append(name, value_of(whole, value)?);
    }
    Some(())
}

fn value_of(whole: &Bytes, value: &Range<usize>) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(whole.slice(value.clone())).ok()
}

/// Returns the length of the body that these headers announce, in bytes. Returns `None` if the
/// request is not plain: its body is chunked, or it asks for an upgrade or for `close`.
fn plain_body_bytes(headers: &[httparse::Header<'_>]) -> Option<usize> {
    let mut announced = None;
    for header in headers {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let digits = std::str::from_utf8(header.value).ok()?;
            let is_plain = (1..=5).contains(&digits.len())
                && digits.bytes().all(|digit| digit.is_ascii_digit());
            if !is_plain || announced.is_some() {
                return None;
            }
            announced = digits.parse().ok();
        } else if is("connection") {
            if !header.value.eq_ignore_ascii_case(b"keep-alive") {
                return None;
            }
        } else if is("transfer-encoding") || is("expect") || is("upgrade") {
            return None;
        }
    }
    Some(announced.unwrap_or(0))
}

/// Completes the head of an answer as hyper does, with the length of the body and the date.
fn end_head(head: &mut Vec<u8>, status: StatusCode, is_last: bool, body_bytes: usize) {
    if is_last {
        head.extend_from_slice(b"connection: close\r\n");
    }
    if !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
        head.extend_from_slice(b"content-length: ");
        head.extend_from_slice(itoa::Buffer::new().format(body_bytes).as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"date: ");
    write_date(head);
    head.extend_from_slice(b"\r\n\r\n");
}

/// Appends the current date. Each thread formats it at most once a second.
fn write_date(head: &mut Vec<u8>) {
    thread_local! {
        static KEPT: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
    }
    let now = SystemTime::now();
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(0);
    KEPT.with_borrow_mut(|(second, text)| {
        if *second != seconds {
            *second = seconds;
            let at = Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH);
            *text = DateTimePrinter::new()
                .timestamp_to_rfc9110_string(&at)
                .expect("years until 9999 have four digits");
        }
        head.extend_from_slice(text.as_bytes());
    });
}

/// Writes the head and the body. [`Timed`] joins them if they are small.
async fn write<Io>(io: &mut Timed<Io>, head: &[u8], body: PlainBody) -> io::Result<()>
where
    Io: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let (mut head, mut rest) = (head, &body[..]);
    while !head.is_empty() || !rest.is_empty() {
        let slices = [IoSlice::new(head), IoSlice::new(rest)];
        let written =
            poll_fn(|context| Pin::new(&mut *io).poll_write_vectored(context, &slices)).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let of_head = written.min(head.len());
        head = &head[of_head..];
        rest = &rest[written - of_head..];
    }
    Ok(())
}

#[cfg(test)]
mod tests;
