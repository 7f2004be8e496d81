//! How many connections there may be at a time, and what the one too many is told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What a connection past the limit gets before it is closed, whatever it asks.
pub const REFUSAL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/json\r\n\
    x-polysim-code: SERVER_BUSY\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    x-content-type-options: nosniff\r\n\
    content-length: 136\r\n\
    \r\n\
    {\"detail\":\"The server is busy; nothing was done. Retry.\",\"error\":\"SERVER_BUSY\",\
    \"message\":\"The server is busy; nothing was done. Retry.\"}";

/// Counts connections against a maximum.
#[derive(Debug)]
pub struct ConnectionLimit {
    count: AtomicUsize,
    count_max: usize,
}

/// One connection that is counted until this is dropped.
#[derive(Debug)]
pub struct ConnectionGuard(Arc<ConnectionLimit>);

impl ConnectionLimit {
    /// At most so many at a time.
    pub fn new(count_max: usize) -> Arc<Self> {
        Arc::new(Self { count: AtomicUsize::new(0), count_max })
    }

    /// Counts one more, unless there are as many as there may be.
    pub fn admit(self: &Arc<Self>) -> Option<ConnectionGuard> {
        let more = |count| (count < self.count_max).then_some(count + 1);
        // Only the number matters: nothing else is published through it.
        self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(ConnectionGuard(self.clone()))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let before = self.0.count.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a connection is counted once");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::error::ApiError;

    #[test]
    fn the_one_too_many_is_refused_until_another_leaves() {
        let limit = ConnectionLimit::new(2);
        let first = limit.admit().expect("room for two");
        let _second = limit.admit().expect("room for two");
        assert!(limit.admit().is_none());
        assert_eq!(limit.count(), 2);
        drop(first);
        assert!(limit.admit().is_some());
        assert_eq!(limit.count(), 1);
        assert!(ConnectionLimit::new(0).admit().is_none());
    }

    #[test]
    fn the_refusal_is_the_error_that_everybody_gets() {
        let text = std::str::from_utf8(REFUSAL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let error = ApiError::server_busy();
        assert_eq!(body.as_bytes(), error.body());
        for line in [
            format!("content-length: {}", body.len()),
            format!("x-polysim-code: {}", error.code),
            format!("retry-after: {}", error.retry_after_seconds.unwrap()),
            "x-content-type-options: nosniff".to_owned(),
        ] {
            assert!(head.lines().any(|header| header == line), "{line}");
        }
        assert!(head.starts_with("HTTP/1.1 503 "));
    }
}
