//! The body of a request: read whole, up to the size that its operation takes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use hyper::body::{Body, Frame, Incoming};

use super::connection::{Activity, Phase};

/// The first allocation for a body that comes in pieces; it grows with what has really come.
const FIRST_CAPACITY_BYTES: usize = 8 * 1024;

/// A body that is still on its way.
#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    activity: Arc<Activity>,
    is_read: bool,
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
    /// The connection broke, or what came is not a body. There is nobody left to tell.
    #[error("the body did not arrive: {0}")]
    Broken(#[from] hyper::Error),
}

impl RequestBody {
    pub(super) const fn new(incoming: Incoming, activity: Arc<Activity>) -> Self {
        Self { incoming, activity, is_read: false }
    }

    /// Refuses a body whose announced length is too large, before any of it is read. A chunked body
    /// announces nothing and passes.
    pub fn check_length(&self, bytes_max: usize) -> Result<(), BodyError> {
        let announced = self.incoming.size_hint().lower();
        if announced > bytes_max as u64 {
            return Err(BodyError::TooLarge { bytes_max });
        }
        Ok(())
    }

    /// Reads all of it. While it waits, the connection's deadline for bodies holds.
    pub async fn read(mut self, bytes_max: usize) -> Result<Bytes, BodyError> {
        self.check_length(bytes_max)?;
        if self.incoming.is_end_stream() {
            return Ok(Bytes::new());
        }
        self.activity.enter(Phase::Body);
        let result = self.collect(bytes_max).await;
        self.activity.enter(Phase::Handling);
        self.is_read = result.is_ok();
        result
    }

    /// Gathers the pieces; a body of one piece is not copied.
    async fn collect(&mut self, bytes_max: usize) -> Result<Bytes, BodyError> {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while !self.incoming.is_end_stream()
            && let Some(frame) = poll_fn(|context| self.poll_frame(context)).await
        {
            // Trailers are no part of the body.
            let Ok(data) = frame?.into_data() else { continue };
            if first.len() + rest.len() + data.len() > bytes_max {
                return Err(BodyError::TooLarge { bytes_max });
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

    fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let Self { incoming, activity, .. } = self;
        activity.poll_body(|| {
            let polled = Pin::new(&mut *incoming).poll_frame(context);
            (polled, incoming.is_end_stream())
        })
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if !self.is_read && !self.incoming.is_end_stream() {
            self.activity.note_unread_body(true);
        }
    }
}
