//! Serves one connection: reads requests, writes responses, and drops clients that stall.
//!
//! hyper parses and writes. Its own deadline for heads starts when the last response is out, so it
//! cannot tell an idle client from one that stalls. Here the transport records its progress, and
//! one timer per connection checks that record. The timer is reset only when it would fire too
//! late, so a busy connection never touches it.
//!
//! This module knows nothing about routes, keys or JSON.

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
/// How many bytes one connection may read ahead of the handler.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The slowest accepted rate of a body. At this rate 64 KiB would take a minute, so for large
/// bodies [`Deadlines::body_total`] is the tighter limit.
const BODY_BYTES_PER_SECOND_MIN: NonZeroU32 = NonZeroU32::new(1024).unwrap();
/// The slowest accepted rate at which a client takes an answer. It is higher than that of bodies:
/// an answer may take megabytes of memory until it is read.
const ANSWER_BYTES_PER_SECOND_MIN: NonZeroU32 = NonZeroU32::new(16 * 1024).unwrap();

/// At a shutdown, an idle connection closes this long after it was told. Meanwhile the runtime
/// looks at its sockets once more, so that requests which had arrived before are read.
const SETTLE: Duration = Duration::from_millis(1);

/// How long each phase of a connection may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// From a response, or the start of the connection, to the first byte of the next request.
    pub idle: Duration,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From one piece of a body to the next.
    pub body: Duration,
    /// For a whole body.
    pub body_total: Duration,
    /// The rate at which a body must arrive after [`Self::body`] has passed.
    pub body_bytes_per_second: NonZeroU32,
    /// From one piece of a response that the client accepts to the next.
    pub write: Duration,
    /// The rate at which a response must be accepted after [`Self::write`] has passed. Of a stream,
    /// the time in which its parts are made does not count, and one without an end may be slower.
    pub write_bytes_per_second: NonZeroU32,
    /// For a client that is still sending to receive a refusal.
    pub linger: Duration,
    /// For a client to take what a stream without an end says last.
    pub farewell: Duration,
    /// At a shutdown, for the first byte from a client that has sent nothing yet.
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
    /// Finish what is in flight: an idle connection closes once it has read what has arrived, a new
    /// one waits for its request for [`Deadlines::first`], a stream without an end says its last
    /// and is cut off, and a pending request is answered with `Connection: close`.
    Graceful,
    /// Finish what is in flight, and then leave the connection to another process: it is at rest.
    HandedOver,
    /// At once: another connection needs the slot.
    Abrupt,
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The client made no progress until a deadline.
    #[error("the client stalled: {phase:?}")]
    Stalled {
        /// The phase that timed out.
        phase: Phase,
    },
    /// The client of a stream without an end took nothing of it for too long, or there was no
    /// memory left for what it had not taken.
    #[error("the stream was cut off: its client reads too slowly")]
    CutOff,
    /// The connection gave up its slot.
    #[error("another connection needed the slot")]
    Dismissed,
    /// The transport failed, or the client did not speak HTTP.
    #[error("the connection failed: {0}")]
    Broken(#[from] hyper::Error),
}

/// Serves requests until the client leaves or stalls, or until `ending` resolves. Returns a
/// connection that is handed over, in which no byte of another request was read.
///
/// The handler may take as long as it wants, and may upgrade the connection; the deadlines do not
/// apply after an upgrade.
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
            // Called here and not outside, where the block would store its future twice.
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
        // hyper would close a connection on which a part of a head has arrived.
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
            // A stream without an end is cut off.
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
        // After the poll: it has read all that there was.
        if is_handed_over && activity.phase() == Phase::Idle {
            return Poll::Ready(Ok(true));
        }
        if activity.takes_poll() {
            context.waker().wake_by_ref();
        }
        watchdog.as_mut().poll(context).map(|phase| match phase {
            // The response is out, and the client had time to read it.
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
    // What was read belongs to a request without an answer, and only hyper has it.
    let parts = connection.into_parts().filter(|parts| parts.read_buf.is_empty());
    Ok(parts.map(|parts| parts.io.into_inner().into_inner()))
}

/// Records that a 101 makes the connection a socket. Otherwise says `Connection: close` if no
/// request can follow: an unread rest of a body would be in its way.
fn note_end<Body>(response: &mut Response<Body>, activity: &Activity) {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        activity.begin_socket();
    } else if activity.has_unread_body() || activity.is_closing() {
        response.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
    }
}

/// Why a connection with this activity failed.
fn broken(activity: &Activity, error: hyper::Error) -> ConnectionError {
    if activity.lacks_room() { ConnectionError::CutOff } else { ConnectionError::Broken(error) }
}

/// The transport of a connection that was upgraded, and the bytes that arrived with the request,
/// after its head. Nothing of the connection's memory is left. Gives the connection back if it has
/// another kind of transport.
pub fn transport_of<Io>(upgraded: Upgraded) -> Result<(Io, Vec<u8>), Upgraded>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Parts { io, read_buf, .. } = upgraded.downcast::<TokioIo<Timed<Io>>>()?;
    Ok((io.into_inner().into_inner(), read_buf.to_vec()))
}

/// The waker of the `ending` future: notes that it is worth polling, so that a busy connection need
/// not do so each time it is polled itself.
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
