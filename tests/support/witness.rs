//! Who looks at what sockets and streams say: a test binary may have each message checked.

use std::sync::OnceLock;

use serde_json::Value;

/// Sees everything that one socket or stream says. It panics about what it objects to.
pub trait Witness: Send {
    /// The client sent this text.
    fn sent(&mut self, text: &[u8]);
    /// The server sent a message of this type.
    fn received(&mut self, name: &str, message: &Value);
    /// The client sent a close frame.
    fn leaves(&mut self) {}
    /// The server closed the socket with this code and reason.
    fn closed(&mut self, _code: u16, _reason: &str) {}
}

/// Makes the witness of a socket or stream that was opened at this path, if it has one.
type Call = fn(path: &str) -> Option<Box<dyn Witness>>;

static CALL: OnceLock<Call> = OnceLock::new();

/// From now on, every socket and stream of this process gets a witness. Only the first call counts.
pub fn call(witness: Call) {
    // Another thread may have been here.
    let _ = CALL.set(witness);
}

pub(crate) fn of(request: &crate::Request) -> Option<Box<dyn Witness>> {
    let (path, _query) = request.path().split_once('?').unwrap_or((request.path(), ""));
    CALL.get().and_then(|call| call(path))
}
