//! Reads request bodies whole, up to the size that the operation accepts.
//!
//! An unparsed body is memory that a client makes the server hold. So all bodies share a budget,
//! and each has deadlines ([`super::connection::Deadlines`]).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};

use super::connection::{Activity, Phase};
use super::holder::Holder;
#[cfg(feature = "traces")]
use crate::telemetry::Trace;
use paperbourse_core::limits::budget::{ByteBudget, Share};

/// Default memory budget of all bodies together, in bytes.
pub const BUDGET_BYTES: usize = 64 << 20;
/// Bytes of each body that do not count towards the budget, so that large bodies never keep a small
/// one out.
pub const UNCOUNTED_BYTES: usize = 4 * 1024;
/// Initial allocation for a body that arrives in pieces; it grows only as the body arrives.
const FIRST_CAPACITY_BYTES: usize = 8 * 1024;

/// A body that is still arriving.
#[derive(Debug)]
pub struct RequestBody {
    rest: Rest,
    activity: Arc<Activity>,
    /// The size limit of the operation; 0 before [`Self::limit`] sets it, and once a body exceeds
    /// it.
    bytes_max: usize,
    has_begun: bool,
    /// Whether the whole body has arrived. After the end of a chunked body, hyper's `is_end_stream`
    /// stays false, so the end is recorded here.
    is_ended: bool,
    is_late: bool,
    /// The holder that the body's memory is charged to, once known.
    holder: Option<Holder>,
    held: Option<Share>,
}

/// The part of a body that has not been taken.
#[derive(Debug)]
enum Rest {
    /// A body that hyper receives.
    Incoming(Incoming),
    /// A body that arrived with the head, to be taken as a whole.
    Whole(Bytes),
}

/// A complete body. It counts towards the budget until it is dropped.
#[derive(Debug, Default)]
pub struct WholeBody {
    bytes: Bytes,
    _held: Option<Share>,
}

#[cfg(feature = "cluster")]
impl WholeBody {
    /// Returns the bytes. They count towards the budget only as long as this body exists.
    pub fn bytes(&self) -> Bytes {
        self.bytes.clone()
    }
}

impl std::ops::Deref for WholeBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Why the body could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than the operation accepts.
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit of the operation.
        bytes_max: usize,
    },
    /// The budget that all bodies share is exhausted.
    #[error("the bodies of all requests together exceed their budget")]
    OverBudget,
    /// The connection failed, or the body was malformed. There is no client left to answer.
    #[error("the body could not be read: {0}")]
    Broken(#[from] hyper::Error),
}

impl RequestBody {
    pub(super) const fn new(incoming: Incoming, activity: Arc<Activity>) -> Self {
        Self::of(Rest::Incoming(incoming), activity)
    }

    /// A body that arrived with its head.
    pub(super) const fn whole(bytes: Bytes, activity: Arc<Activity>) -> Self {
        Self::of(Rest::Whole(bytes), activity)
    }

    const fn of(rest: Rest, activity: Arc<Activity>) -> Self {
        Self {
            rest,
            activity,
            bytes_max: 0,
            has_begun: false,
            is_ended: false,
            is_late: false,
            holder: None,
            held: None,
        }
    }

    /// Whether it arrived with its head, in the lane.
    #[cfg(test)]
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.rest, Rest::Whole(_))
    }

    /// Whether the request was pipelined, that is, read together with the one before it.
    pub fn is_pipelined(&self) -> bool {
        self.activity.is_pipelined()
    }

    /// Sets the operation's size limit. A body that announces a larger size is refused before any
    /// of it is read; a chunked body announces no size and passes.
    pub fn limit(&mut self, bytes_max: usize) -> Result<(), BodyError> {
        debug_assert!(!self.has_begun, "the limit is set before any of the body is read");
        if self.announced_bytes() > bytes_max as u64 {
            return Err(BodyError::TooLarge { bytes_max });
        }
        self.bytes_max = bytes_max;
        Ok(())
    }

    /// Returns the holder that the memory of the body and the answer is charged to, once known.
    pub(super) const fn holder(&self) -> Option<Holder> {
        self.holder
    }

    /// Sets the holder that the body's memory is charged to.
    pub(super) const fn is_of(&mut self, holder: Holder) {
        self.holder = Some(holder);
    }

    /// Reads the whole body, up to its limit, under the connection's deadlines for bodies.
    pub async fn read(&mut self, budget: &Arc<ByteBudget>) -> Result<WholeBody, BodyError> {
        if self.is_complete() {
            return Ok(WholeBody::default());
        }
        let begun = self.begin();
        let result = self.collect(budget).await;
        self.is_late = self.activity.note() != begun;
        self.activity.enter(Phase::Handling);
        let held = self.held.take();
        result.map(|bytes| WholeBody { bytes, _held: held })
    }

    /// Ends the trace of the request once its answer is sent.
    #[cfg(feature = "traces")]
    pub(super) fn end_trace_when_sent(&self, trace: Box<Trace>) {
        self.activity.end_trace_when_sent(trace);
    }

    /// Whether [`Self::read`] had to wait for bytes that did not arrive with the head.
    pub const fn is_late(&self) -> bool {
        self.is_late
    }

    /// Reads and discards the rest of the body, so that another request can follow. Stops once the
    /// limit is exceeded.
    pub async fn discard(&mut self) {
        // A limit of 0 means that the body was refused for its size. The connection then closes
        // instead.
        if self.is_complete() || self.bytes_max == 0 {
            return;
        }
        self.begin();
        let mut bytes = 0;
        while !self.is_complete()
            && let Some(Ok(frame)) = poll_fn(|context| self.poll_frame(context)).await
        {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > self.bytes_max {
                break;
            }
        }
        self.activity.enter(Phase::Handling);
    }

    fn is_complete(&self) -> bool {
        self.is_ended || self.rest.is_end_stream()
    }

    /// Returns a lower bound on the number of bytes still to come.
    fn announced_bytes(&self) -> u64 {
        match &self.rest {
            Rest::Incoming(incoming) => incoming.size_hint().lower(),
            Rest::Whole(bytes) => bytes.len() as u64,
        }
    }

    /// Starts waiting for the body. Returns the connection's progress at this point.
    fn begin(&mut self) -> u32 {
        if !self.has_begun {
            self.has_begun = true;
            self.activity.begin_body();
        }
        self.activity.enter(Phase::Body);
        self.activity.note()
    }

    /// Collects the pieces; a body in one piece is not copied.
    async fn collect(&mut self, budget: &Arc<ByteBudget>) -> Result<Bytes, BodyError> {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while !self.is_complete()
            && let Some(frame) = poll_fn(|context| self.poll_frame(context)).await
        {
            // Trailers are not part of the body.
            let Ok(data) = frame?.into_data() else { continue };
            let bytes = first.len() + rest.len() + data.len();
            if bytes > self.bytes_max {
                let bytes_max = std::mem::take(&mut self.bytes_max);
                return Err(BodyError::TooLarge { bytes_max });
            }
            if bytes > UNCOUNTED_BYTES {
                self.hold(budget, bytes - UNCOUNTED_BYTES)?;
            }
            if first.is_empty() && rest.is_empty() {
                first = data;
                continue;
            }
            if rest.is_empty() {
                rest.reserve(FIRST_CAPACITY_BYTES.max(first.len() + data.len()));
                rest.extend_from_slice(&std::mem::take(&mut first));
            }
            rest.extend_from_slice(&data);
        }
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }

    /// Grows this body's share of the budget to `bytes`.
    fn hold(&mut self, budget: &Arc<ByteBudget>, bytes: usize) -> Result<(), BodyError> {
        let share = || self.holder.map_or_else(|| budget.share(), |holder| holder.share(budget));
        let held = self.held.get_or_insert_with(share);
        if held.hold(bytes) { Ok(()) } else { Err(BodyError::OverBudget) }
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self { rest, activity, is_ended, .. } = self;
        let incoming = match rest {
            Rest::Incoming(incoming) => incoming,
            Rest::Whole(bytes) => {
                *is_ended = true;
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes)))));
            }
        };
        activity.poll_body(|| {
            let polled = Pin::new(&mut *incoming).poll_frame(context);
            *is_ended |= matches!(polled, Poll::Ready(None)) || incoming.is_end_stream();
            (polled, incoming.is_end_stream())
        })
    }
}

impl Rest {
    fn is_end_stream(&self) -> bool {
        match self {
            Self::Incoming(incoming) => incoming.is_end_stream(),
            Self::Whole(bytes) => bytes.is_empty(),
        }
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_complete() {
            self.activity.note_unread_body();
        }
    }
}
