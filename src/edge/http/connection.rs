//! Serves one connection: reads requests, writes responses, and drops clients that stall.
//!
//! hyper does the parsing and writing. Its own deadline for heads starts when the last response has
//! been sent, so it cannot tell an idle client from one that stalls. Here the transport records its
//! progress, and one timer per connection checks that record. The timer is reset only when it would
//! fire too late, so a busy connection never touches it.
//!
//! This module does not depend on routes, keys or JSON.

mod activity;
mod lane;
mod limit;
mod outgoing;
mod parting;
mod reply_body;
mod timed;
mod unsent;

pub use activity::{Activity, Phase};
pub use lane::IsHot;
pub use limit::{ConnectionGuard, ConnectionLimit, LEAVING_MAX, NoSlot, REFUSAL};
pub use outgoing::{Outgoing, PlainBody, Written, write_header, write_response, write_status};
#[cfg(feature = "cluster")]
pub(super) use reply_body::bytes_of;
pub use reply_body::{CutOff, ReplyBody, Source};

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1::{self, UpgradeableConnection};
use hyper::service::service_fn;
use hyper::upgrade::{Parts, Upgraded};
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::RequestBody;
use activity::Watchdog;
use lane::Left;
use parting::Parting;
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
    /// The transport failed.
    #[error("the connection failed: {0}")]
    Lost(#[from] io::Error),
}

/// Serves requests until the client leaves or stalls, or until `ending` resolves. If the connection
/// is handed over and no byte of another request has been read, returns its transport.
///
/// The handler has no time limit and may upgrade the connection; the deadlines do not apply after
/// an upgrade. Requests for which `is_hot` holds are answered in the lane.
pub async fn serve_connection<Io, Handler, Answer>(
    io: Io,
    deadlines: Deadlines,
    is_hot: Option<IsHot>,
    handler: Handler,
    ending: impl Future<Output = Ending>,
) -> Result<Option<Io>, ConnectionError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Handler: Fn(Request<RequestBody>) -> Answer,
    Answer: Future<Output: Outgoing>,
{
    let activity = Arc::new(Activity::default());
    let io = Timed::new(io, activity.clone());
    // Whether hyper keeps the connection to its end: after a stream, or after a request or response
    // that says that the connection closes.
    let stays = AtomicBool::new(false);
    let service = service_fn(|request: Request<Incoming>| {
        activity.begin_request();
        let is_usual = keeps_alive(&request);
        let request = request.map(|body| RequestBody::new(body, activity.clone()));
        let (handler, activity, stays) = (&handler, activity.clone(), &stays);
        async move {
            // hyper would serve up to 16 pipelined requests in a row while other connections wait.
            if activity.is_pipelined() {
                tokio::task::yield_now().await;
            }
            // The handler is called inside the block: a block that captured the handler's future
            // would store that future twice.
            let response = begin(handler(request).await.into_response(), activity);
            if !is_usual || says_more(&response) {
                stays.store(true, Ordering::Relaxed);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let by_hyper = |io| builder().serve_connection(TokioIo::new(io), &service).with_upgrades();
    let in_lane = |io| {
        let is_hot = is_hot.expect("there is a lane");
        lane::serve(io, &activity, is_hot, &handler)
    };
    let mut connection = None;
    let mut lane = pin!(None);
    // The connection's progress when hyper took it over.
    let mut taken_at = 0;
    match is_hot {
        Some(_) => lane.set(Some(in_lane(io))),
        None => connection = Some(by_hyper(io)),
    }
    let ending = pin!(ending);
    let mut parting = Parting::new(&activity, deadlines, ending);
    let mut watchdog = pin!(Watchdog::new(&activity, deadlines));
    let waker = Waker::from(activity.clone());
    let served = poll_fn(|context| {
        activity.set_task(context.waker());
        parting.poll_ending()?;
        let mut polled = loop {
            if let Some(serving) = lane.as_mut().as_pin_mut() {
                match serving.poll(context) {
                    Poll::Pending => break Poll::Pending,
                    Poll::Ready(Ok(Left::Closed)) => return Poll::Ready(Ok(false)),
                    Poll::Ready(Ok(Left::ToHyper(io))) => {
                        lane.set(None);
                        connection = Some(by_hyper(io));
                        taken_at = activity.note();
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                }
            }
            let serving = connection.as_mut().expect("hyper serves what the lane does not");
            let polled = Pin::new(serving).poll(&mut Context::from_waker(&waker));
            let is_idle = polled.is_pending() && activity.phase() == Phase::Idle;
            // The request that the lane left to hyper must be answered first.
            let has_answered = activity.note() != taken_at;
            let stays = parting.has_begun() || stays.load(Ordering::Relaxed);
            if is_hot.is_none() || !is_idle || !has_answered || stays {
                break polled;
            }
            let Some(parts) = connection.take().and_then(UpgradeableConnection::into_parts) else {
                return Poll::Ready(Ok(false));
            };
            let mut io = parts.io.into_inner();
            io.put_back(parts.read_buf);
            lane.set(Some(in_lane(io)));
        };
        if polled.is_pending()
            && let Some(connection) = &mut connection
            && parting.has_settled(context)
        {
            Pin::new(&mut *connection).graceful_shutdown();
            polled = Pin::new(connection).poll(&mut Context::from_waker(&waker));
        }
        if let Poll::Ready(result) = polled {
            // Cutting off an endless stream is the only way to end it, so this is no failure.
            let result = if parting.cuts_off() { Ok(()) } else { result };
            return Poll::Ready(result.map(|()| false).map_err(|error| broken(&activity, error)));
        }
        if parting.cuts_off() && parting.poll_farewell(context).is_ready() {
            return Poll::Ready(Ok(false));
        }
        // Checked after the poll, which has read everything that had arrived.
        if parting.hands_over() {
            return Poll::Ready(Ok(true));
        }
        if activity.takes_poll() {
            context.waker().wake_by_ref();
        }
        watchdog.as_mut().poll(context).map(|phase| stalled(phase, &activity).map(|()| false))
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
    let parts = connection
        .and_then(UpgradeableConnection::into_parts)
        .filter(|parts| parts.read_buf.is_empty());
    Ok(parts.map(|parts| parts.io.into_inner().into_inner()))
}

/// Returns hyper's side of a connection, with our limits.
fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        // A client may close its sending side after a request and still read the answer. With the
        // default, hyper would check for that between a request and its answer, with a new 8 KiB
        // buffer each time.
        .half_close(true)
        .header_read_timeout(None);
    builder
}

/// Whether a request keeps the connection open in the way of HTTP/1.1.
fn keeps_alive<Body>(request: &Request<Body>) -> bool {
    let connection = request.headers().get(CONNECTION).map(HeaderValue::as_bytes);
    request.version() == Version::HTTP_11
        && connection.is_none_or(|it| it.eq_ignore_ascii_case(b"keep-alive"))
}

/// Begins to send a response. For a 101, records that the connection becomes a socket. Otherwise
/// adds `Connection: close` if no request can follow, for example because the unread rest of a body
/// would be in the way.
fn begin(mut response: Response<ReplyBody>, activity: Arc<Activity>) -> Response<Sending> {
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        activity.begin_socket();
    } else if activity.is_last_answer() {
        response.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
    }
    activity.begin_answer();
    response.map(|body| Sending::begin(body, activity))
}

/// Whether a response is a stream, or the last one on its connection.
fn says_more(response: &Response<Sending>) -> bool {
    response.body().is_stream() || response.headers().contains_key(CONNECTION)
}

/// Returns the outcome of a connection whose client made no progress in a phase until its deadline.
fn stalled(phase: Phase, activity: &Activity) -> Result<(), ConnectionError> {
    match phase {
        // The response has been sent, and the client had time to read it.
        Phase::Lingering => Ok(()),
        Phase::Responding if activity.is_endless() => Err(ConnectionError::CutOff),
        phase => Err(ConnectionError::Stalled { phase }),
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

#[cfg(test)]
mod tests;
