//! Serves one connection: reads requests, writes responses, and drops clients that stall.
//!
//! hyper does the parsing and writing. Its own deadline for heads starts when the last response has
//! been sent, so it cannot tell an idle client from one that stalls. Here the transport records its
//! progress, and one timer per connection checks that record. The timer is reset only when it would
//! fire too late, so a busy connection never touches it.
//!
//! This module does not depend on routes, keys or JSON.

mod activity;
mod limit;
mod reply_body;
mod timed;
mod unsent;

pub use activity::{Activity, Phase};
pub use limit::{ConnectionGuard, ConnectionLimit, LEAVING_MAX, NoSlot, REFUSAL};
pub use reply_body::{CutOff, ReplyBody, Source};

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{Parts, Upgraded};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::RequestBody;
use activity::Watchdog;
use reply_body::Sending;
use timed::Timed;

/// Size limit of a request's head, including the request line, in bytes. A larger one gets 431.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of bytes that a connection may read ahead of the handler.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Minimum rate of a body. At this rate 64 KiB would take a minute, so for large bodies
/// [`Deadlines::body_total`] is the tighter limit.
const BODY_BYTES_PER_SECOND_MIN: NonZeroU32 = NonZeroU32::new(1024).unwrap();
/// Minimum rate at which a client must take an answer. It is higher than that of bodies, because an
/// unread answer may hold megabytes of memory.
const ANSWER_BYTES_PER_SECOND_MIN: NonZeroU32 = NonZeroU32::new(16 * 1024).unwrap();

/// Delay between a shutdown and the closing of an idle connection. Meanwhile the runtime polls its
/// sockets once more, so that requests which had already arrived are read.
const SETTLE: Duration = Duration::from_millis(1);

/// Time limits for the phases of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// From a response, or the start of the connection, to the first byte of the next request.
    pub idle: Duration,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From one piece of a body to the next.
    pub body: Duration,
    /// From the start of a body to its end.
    pub body_total: Duration,
    /// The rate at which a body must arrive after [`Self::body`] has passed.
    pub body_bytes_per_second: NonZeroU32,
    /// From one piece of a response that the client accepts to the next.
    pub write: Duration,
    /// The rate at which a response must be accepted after [`Self::write`] has passed. In a stream,
    /// the time spent producing its parts does not count, and an endless stream has no minimum
    /// rate.
    pub write_bytes_per_second: NonZeroU32,
    /// Time for a client that is still sending to receive a refusal.
    pub linger: Duration,
    /// Time for a client to take the farewell of an endless stream.
    pub farewell: Duration,
    /// At a shutdown, time for the first byte from a client that has sent nothing yet.
    pub first: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        let stall = Duration::from_secs(10);
        Self {
            idle: Duration::from_secs(75),
            head: stall,
            body: stall,
            body_total: Duration::from_secs(30),
            body_bytes_per_second: BODY_BYTES_PER_SECOND_MIN,
            write: stall,
            write_bytes_per_second: ANSWER_BYTES_PER_SECOND_MIN,
            linger: Duration::from_secs(2),
            farewell: Duration::from_millis(500),
            first: Duration::from_millis(500),
        }
    }
}

/// How to end a connection early.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// Finish what is in flight. An idle connection closes once it has read what has arrived. A new
    /// connection waits up to [`Deadlines::first`] for its request. An endless stream sends its
    /// farewell and is cut off. A pending request is answered with `Connection: close`.
    Graceful,
    /// Finish what is in flight, then leave the idle connection to another process.
    HandedOver,
    /// Close at once, because another connection needs the slot.
    Abrupt,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The client made no progress before a deadline.
    #[error("the client stalled: {phase:?}")]
    Stalled {
        /// The phase that timed out.
        phase: Phase,
    },
    /// The client of an endless stream took none of it for too long, or the memory budget had no
    /// room for data that the client had not taken.
    #[error("the stream was cut off: its client reads too slowly")]
    CutOff,
    /// The connection's slot was given to another connection.
    #[error("another connection needed the slot")]
    Dismissed,
    /// The transport failed, or the client did not speak HTTP.
    #[error("the connection failed: {0}")]
    Broken(#[from] hyper::Error),
}

/// Serves requests until the client leaves or stalls, or until `ending` resolves. If the connection
/// is handed over and no byte of another request has been read, returns its transport.
///
/// The handler has no time limit and may upgrade the connection; the deadlines do not apply after
/// an upgrade.
pub async fn serve_connection<Io, Handler, Answer, Body>(
    io: Io,
    deadlines: Deadlines,
    handler: Handler,
    ending: impl Future<Output = Ending>,
) -> Result<Option<Io>, ConnectionError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Handler: Fn(Request<RequestBody>) -> Answer,
    Answer: Future<Output = Response<Body>>,
    Body: Into<ReplyBody>,
{
    let activity = Arc::new(Activity::default());
    let io = TokioIo::new(Timed::new(io, activity.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        activity.begin_request();
        let request = request.map(|body| RequestBody::new(body, activity.clone()));
        let (handler, activity) = (&handler, activity.clone());
        async move {
            // hyper would serve up to 16 pipelined requests in a row while other connections wait.
            if activity.is_pipelined() {
                tokio::task::yield_now().await;
            }
            // The handler is called inside the block: a block that captured the handler's future
            // would store that future twice.
            let mut response = handler(request).await;
            note_end(&mut response, &activity);
            activity.begin_answer();
            Ok::<_, Infallible>(response.map(|body| Sending::begin(body.into(), activity)))
        }
    });
    let mut connection = http1::Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        // A client may close its sending side after a request and still read the answer. With the
        // default, hyper would check for that between a request and its answer, with a new 8 KiB
        // buffer each time.
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(io, service)
        .with_upgrades();
    let mut ending = pin!(ending);
    let mut watchdog = pin!(Watchdog::new(&activity, deadlines));
    let mut has_ending = false;
    let mut settling = None;
    let mut farewell = None;
    let mut is_handed_over = false;
    let waker = Waker::from(activity.clone());
    let signal = Arc::new(EndSignal { is_set: AtomicBool::new(true), activity: activity.clone() });
    let signal_waker = Waker::from(signal.clone());
    let served = poll_fn(|context| {
        activity.set_task(context.waker());
        // The load comes first to spare a busy connection the swap on every poll.
        if !has_ending
            && signal.is_set.load(Ordering::Acquire)
            && signal.is_set.swap(false, Ordering::AcqRel)
            && let Poll::Ready(ending) =
                ending.as_mut().poll(&mut Context::from_waker(&signal_waker))
        {
            if ending == Ending::Abrupt {
                return Poll::Ready(Err(ConnectionError::Dismissed));
            }
            has_ending = true;
            is_handed_over = ending == Ending::HandedOver;
            activity.begin_ending(is_handed_over);
            if !is_handed_over {
                let wait = if activity.is_new() { deadlines.first } else { SETTLE };
                settling = Some((Box::pin(tokio::time::sleep(wait)), activity.note()));
            }
        }
        let mut polled = Pin::new(&mut connection).poll(&mut Context::from_waker(&waker));
        // hyper would close a connection that has received only part of a head.
        if let Some((timer, note)) = &mut settling
            && activity.phase() != Phase::Head
            && (activity.phase() != Phase::Idle
                || activity.note() != *note
                || timer.as_mut().poll(context).is_ready())
            && polled.is_pending()
        {
            settling = None;
            Pin::new(&mut connection).graceful_shutdown();
            polled = Pin::new(&mut connection).poll(&mut Context::from_waker(&waker));
        }
        let is_parting = has_ending && activity.is_endless();
        if let Poll::Ready(result) = polled {
            // Cutting off an endless stream is the only way to end it, so this is no failure.
            let result = if is_parting { Ok(()) } else { result };
            return Poll::Ready(result.map(|()| false).map_err(|error| broken(&activity, error)));
        }
        if is_parting {
            let farewell =
                farewell.get_or_insert_with(|| Box::pin(tokio::time::sleep(deadlines.farewell)));
            if farewell.as_mut().poll(context).is_ready() {
                return Poll::Ready(Ok(false));
            }
        }
        // Checked after the poll, which has read everything that had arrived.
        if is_handed_over && activity.phase() == Phase::Idle {
            return Poll::Ready(Ok(true));
        }
        if activity.takes_poll() {
            context.waker().wake_by_ref();
        }
        watchdog.as_mut().poll(context).map(|phase| match phase {
            // The response has been sent, and the client had time to read it.
            Phase::Lingering => Ok(false),
            Phase::Responding if activity.is_endless() => Err(ConnectionError::CutOff),
            phase => Err(ConnectionError::Stalled { phase }),
        })
    })
    .await;
    // Until `transport_of` takes it apart, an upgraded transport keeps `activity` alive, and with
    // it this task's memory.
    activity.forget_task();
    if !served? {
        return Ok(None);
    }
    // Bytes that were read belong to an unanswered request and exist only in hyper's buffer, so a
    // connection that has any cannot be handed over.
    let parts = connection.into_parts().filter(|parts| parts.read_buf.is_empty());
    Ok(parts.map(|parts| parts.io.into_inner().into_inner()))
}

/// For a 101 response, records that the connection becomes a socket. Otherwise adds
/// `Connection: close` if no request can follow, for example because the unread rest of a body
/// would be in the way.
fn note_end<Body>(response: &mut Response<Body>, activity: &Activity) {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        activity.begin_socket();
    } else if activity.has_unread_body() || activity.is_closing() {
        response.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Returns the reason why a connection with this activity failed.
fn broken(activity: &Activity, error: hyper::Error) -> ConnectionError {
    if activity.lacks_room() { ConnectionError::CutOff } else { ConnectionError::Broken(error) }
}

/// Returns the transport of an upgraded connection, and the bytes that arrived after the head of
/// its request. All other memory of the connection is released. Returns the connection unchanged if
/// its transport is of another type.
pub fn transport_of<Io>(upgraded: Upgraded) -> Result<(Io, Vec<u8>), Upgraded>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Parts { io, read_buf, .. } = upgraded.downcast::<TokioIo<Timed<Io>>>()?;
    Ok((io.into_inner().into_inner(), read_buf.to_vec()))
}

/// The waker of the `ending` future. It records that the future is worth polling, so that a busy
/// connection need not poll it every time.
struct EndSignal {
    is_set: AtomicBool,
    activity: Arc<Activity>,
}

impl Wake for EndSignal {
    fn wake(self: Arc<Self>) {
        self.is_set.store(true, Ordering::Release);
        self.activity.pass_on();
    }
}

#[cfg(test)]
mod tests;
