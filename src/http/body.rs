//! The body of a request: read whole, up to the size that its operation takes.
//!
//! Until it is parsed a body is memory that a caller makes us hold, so all bodies together have a
//! budget, and each has deadlines ([`super::connection::Deadlines`]).

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};

use super::connection::{Activity, Phase};

/// What all bodies together may hold by default.
pub const BUDGET_BYTES: usize = 64 << 20;
/// The start of each body, which does not count: no large bodies of others keep a small one out.
pub const UNCOUNTED_BYTES: usize = 4 * 1024;
/// The first allocation for a body that comes in pieces; it grows with what has really come.
const FIRST_CAPACITY_BYTES: usize = 8 * 1024;

/// A body that is still on its way.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    activity: Arc<Activity>,
    /// What the operation takes: nothing before [`Self::limit`], and nothing more once that is
    /// passed.
    bytes_max: usize,
    has_begun: bool,
    /// All of it has come. A chunked body does not say so itself.
    is_ended: bool,
    is_late: bool,
    held: Option<Held>,
}

/// Why there is no body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// It is longer than the operation takes.
    #[error("the body is larger than {bytes_max} bytes")]
    TooLarge {
        /// What the operation takes.
        bytes_max: usize,
    },
    /// The bodies of all requests together are as large as they may be.
    #[error("the bodies of all requests together are too large")]
    OverBudget,
    /// The connection broke, or what came is not a body. There is nobody left to tell.
    #[error("the body did not arrive: {0}")]
    Broken(#[from] hyper::Error),
}

/// Bounds what the bodies of all requests hold together, from their first piece to the answer.
#[derive(Debug)]
pub struct BodyBudget {
    held_bytes: AtomicUsize,
    bytes_max: usize,
}

/// A part of the budget, given back on drop.
#[derive(Debug)]
struct Held {
    budget: Arc<BodyBudget>,
    bytes: usize,
}

impl BodyBudget {
    /// Nothing is held yet.
    pub fn new(bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { held_bytes: AtomicUsize::new(0), bytes_max })
    }

    /// What is held now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> Result<(), BodyError> {
        let more = |held: usize| held.checked_add(bytes).filter(|&held| held <= self.bytes_max);
        // Only the number matters: nothing else is published through it.
        let taken = self.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.map(|_| ()).map_err(|_| BodyError::OverBudget)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl RequestBody {
    pub(super) const fn new(incoming: Incoming, activity: Arc<Activity>) -> Self {
        Self {
            incoming,
            activity,
            bytes_max: 0,
            has_begun: false,
            is_ended: false,
            is_late: false,
            held: None,
        }
    }

    /// Says what the operation takes, and refuses a body that announces more, before any of it is
    /// read. A chunked body announces nothing and passes.
    pub fn limit(&mut self, bytes_max: usize) -> Result<(), BodyError> {
        if self.announced_bytes() > bytes_max as u64 {
            return Err(BodyError::TooLarge { bytes_max });
        }
        self.bytes_max = bytes_max;
        Ok(())
    }

    /// Reads all of it, up to its limit. While it waits, the connection's deadlines for bodies
    /// hold.
    pub async fn read(&mut self, budget: &Arc<BodyBudget>) -> Result<Bytes, BodyError> {
        if self.is_complete() {
            return Ok(Bytes::new());
        }
        let begun = self.begin();
        let result = self.collect(budget).await;
        self.is_late = self.activity.note() != begun;
        self.activity.enter(Phase::Handling);
        if result.is_err() {
            self.held = None;
        }
        result
    }

    /// Whether [`Self::read`] had to wait for something that had not come with the head.
    pub const fn is_late(&self) -> bool {
        self.is_late
    }

    /// Reads what is left and forgets it, so that another request can follow. It stops where the
    /// limit is passed.
    pub async fn discard(&mut self) {
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
        self.is_ended || self.incoming.is_end_stream()
    }

    /// What is still to come at the least.
    fn announced_bytes(&self) -> u64 {
        self.incoming.size_hint().lower()
    }

    /// From now on the connection waits for the body. The note of that.
    fn begin(&mut self) -> u32 {
        if !self.has_begun {
            self.has_begun = true;
            self.activity.begin_body();
        }
        self.activity.enter(Phase::Body);
        self.activity.note()
    }

    /// Gathers the pieces; a body of one piece is not copied.
    async fn collect(&mut self, budget: &Arc<BodyBudget>) -> Result<Bytes, BodyError> {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while !self.is_complete()
            && let Some(frame) = poll_fn(|context| self.poll_frame(context)).await
        {
            // Trailers are no part of the body.
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

    /// Takes of the budget until this body has so many bytes of it.
    fn hold(&mut self, budget: &Arc<BodyBudget>, bytes: usize) -> Result<(), BodyError> {
        let held = self.held.get_or_insert_with(|| Held { budget: budget.clone(), bytes: 0 });
        budget.take(bytes - held.bytes)?;
        held.bytes = bytes;
        Ok(())
    }

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self { incoming, activity, is_ended, .. } = self;
        activity.poll_body(|| {
            let polled = Pin::new(&mut *incoming).poll_frame(context);
            *is_ended |= matches!(polled, Poll::Ready(None)) || incoming.is_end_stream();
            (polled, incoming.is_end_stream())
        })
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_complete() {
            self.activity.note_unread_body();
        }
    }
}
