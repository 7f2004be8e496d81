//! One connection: requests in, responses out, and an end for whoever stalls.
//!
//! hyper parses and writes. It has a deadline of its own for heads, but starts it when the last
//! response is out, and so cannot tell a client that is idle from one that stalls. Here the
//! transport notes what happens, and one timer for each connection looks at these notes. It is set
//! anew only when it would fire too late, so that a busy connection leaves it alone.
//!
//! This module knows nothing of routes, keys or JSON.

mod activity;
mod limit;
mod timed;

pub use activity::{Activity, Phase};
pub use limit::{ConnectionGuard, ConnectionLimit, LEAVING_MAX, NoPlace, REFUSAL};

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::body::RequestBody;
use activity::Watchdog;
use timed::Timed;

/// The longest head of a request, its first line included; past it the answer is 431.
pub const HEAD_BYTES_MAX: usize = 16 * 1024;
/// What is read ahead of the handler on one connection, at most.
const BUFFER_BYTES_MAX: usize = 64 * 1024;

/// The rate below which a body is dropped. A body of 64 KiB at this rate would take a minute, so
/// that for large ones the deadline for the whole is the tighter one.
const BODY_BYTES_PER_SECOND_MIN: NonZeroU32 = NonZeroU32::new(1024).unwrap();

/// How long a connection may take for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadlines {
    /// From a response to the first byte of the next request, and from the start to the first.
    pub idle: Duration,
    /// From the first byte of a head to its last.
    pub head: Duration,
    /// From one piece of a body to the next.
    pub body: Duration,
    /// For a whole body.
    pub body_total: Duration,
    /// What has to come of a body in each second that it takes beyond [`Self::body`].
    pub body_bytes_per_second: NonZeroU32,
    /// From one piece of a response that the client takes to the next.
    pub write: Duration,
    /// For the client to hear of a refusal while it still sends.
    pub linger: Duration,
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
            linger: Duration::from_secs(2),
        }
    }
}

/// How a connection is told to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// With what is in flight: an idle connection closes at once, a request gets its answer with
    /// `Connection: close`.
    Graceful,
    /// At once: somebody else needs its place.
    Abrupt,
}

/// Why a connection has ended otherwise than by agreement.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The client was too slow.
    #[error("the client stalled: {phase:?}")]
    Stalled {
        /// At what.
        phase: Phase,
    },
    /// It gave up its place.
    #[error("somebody else needed the place")]
    Dismissed,
    /// The transport broke, or what came was not HTTP.
    #[error("the connection broke: {0}")]
    Broken(#[from] hyper::Error),
}

/// Serves requests until the client leaves, stalls, or `ending` says how to end.
///
/// The handler may take its time, and may upgrade the connection: what follows the upgrade is
/// outside of these deadlines.
pub async fn serve_connection<Io, Handler, Answer>(
    io: Io,
    deadlines: Deadlines,
    handler: Handler,
    ending: impl Future<Output = Ending>,
) -> Result<(), ConnectionError>
where
    Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    Handler: Fn(Request<RequestBody>) -> Answer,
    Answer: Future<Output = Response<Full<Bytes>>>,
{
    let activity = Arc::new(Activity::default());
    let io = TokioIo::new(Timed::new(io, activity.clone()));
    let service = service_fn(|request: Request<Incoming>| {
        let is_pipelined = activity.begin_request();
        let answer = handler(request.map(|body| RequestBody::new(body, activity.clone())));
        let activity = activity.clone();
        async move {
            // hyper would serve up to 16 of them in a row, while other connections wait.
            if is_pipelined {
                tokio::task::yield_now().await;
            }
            let mut response = answer.await;
            // Nothing can follow the rest of a body that nobody reads.
            if activity.has_unread_body() && response.status() != StatusCode::SWITCHING_PROTOCOLS {
                response.headers_mut().append(CONNECTION, HeaderValue::from_static("close"));
            }
            activity.enter(Phase::Responding);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        // Whoever has sent a request and closes their side may still read the answer. hyper would
        // look for that end between a request and its answer, into a new buffer of 8 KiB each time.
        .half_close(true)
        .header_read_timeout(None)
        .serve_connection(io, service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut ending = pin!(ending);
    let mut watchdog = pin!(Watchdog::new(&activity, deadlines));
    let mut is_closing = false;
    let waker = Waker::from(activity.clone());
    let bell = Arc::new(Bell { has_rung: AtomicBool::new(true), activity: activity.clone() });
    let bell_waker = Waker::from(bell.clone());
    let served = poll_fn(|context| {
        activity.set_task(context.waker());
        if !is_closing
            && bell.has_rung.load(Ordering::Acquire)
            && bell.has_rung.swap(false, Ordering::AcqRel)
            && let Poll::Ready(ending) = ending.as_mut().poll(&mut Context::from_waker(&bell_waker))
        {
            if ending == Ending::Abrupt {
                return Poll::Ready(Err(ConnectionError::Dismissed));
            }
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        if let Poll::Ready(result) = connection.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Poll::Ready(result.map_err(ConnectionError::Broken));
        }
        watchdog.as_mut().poll(context).map(|phase| match phase {
            // The answer is out, and the client had its time to read it.
            Phase::Lingering => Ok(()),
            phase => Err(ConnectionError::Stalled { phase }),
        })
    })
    .await;
    // An upgraded transport keeps the notes, and would keep the memory of this task.
    activity.forget_task();
    served
}

/// Rings when there is a reason to look whether the connection has to end, which a busy connection
/// does not ask each time that it is polled.
struct Bell {
    has_rung: AtomicBool,
    activity: Arc<Activity>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.has_rung.store(true, Ordering::Release);
        self.activity.pass_on();
    }
}

#[cfg(test)]
mod tests;
