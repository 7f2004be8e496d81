//! What the sockets of the venue's interface have in common. They are opened without a credential,
//! so a client must say soon what it wants; what it says wrong closes the socket, since its
//! libraries take no frame for an error.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::close::{ClobFlaw, CloseReason};
use super::connection::Ended;
use super::frame::put_text;

/// How long a client may take to send a valid frame other than a ping.
pub(super) const FIRST_FRAME_MAX: Duration = Duration::from_secs(10);

/// What a protocol knows of its socket: whether the client has subscribed, and whether the socket
/// must end. Shared with the future that ends the socket.
#[derive(Default)]
pub(super) struct Opening {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    has_begun: bool,
    end: Option<Ended>,
}

impl Opening {
    /// Records that the client has subscribed.
    pub(super) fn begin(&self) {
        self.state.lock().has_begun = true;
        self.changed.notify_one();
    }

    /// Has the socket closed.
    pub(super) fn close(&self, reason: CloseReason) {
        self.end(Ended::Closed(reason));
    }

    /// Has the socket end like this: closed, or gone without a close frame, which clients call
    /// 1006. The first end counts.
    pub(super) fn end(&self, end: Ended) {
        self.state.lock().end.get_or_insert(end);
        self.changed.notify_one();
    }

    /// Waits until the socket must end, because of [`close`](Self::close) or [`end`](Self::end), or
    /// because the client has not subscribed in time. Only one task may wait.
    pub(super) async fn ended(&self) -> Ended {
        let begun = self.until(|state| state.has_begun || state.end.is_some());
        if timeout(FIRST_FRAME_MAX, begun).await.is_err() {
            return Ended::Closed(CloseReason::Clob(ClobFlaw::Late));
        }
        self.until(|state| state.end.is_some()).await;
        let end = self.state.lock().end;
        end.expect("it was just seen, and is never taken back")
    }

    async fn until(&self, is_met: impl Fn(&State) -> bool) {
        while !is_met(&self.state.lock()) {
            self.changed.notified().await;
        }
    }
}

/// Answers the venue's own ping, a text frame. Returns whether the frame was one.
pub(super) fn answer_ping(text: &[u8], replies: &mut Vec<u8>) -> bool {
    let is_ping = text == b"PING";
    if is_ping {
        put_text(replies, &[b"PONG"]);
    }
    is_ping
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_has_ten_seconds_to_subscribe() {
        let late = Ended::Closed(CloseReason::Clob(ClobFlaw::Late));
        let opened_at = Instant::now();
        assert_eq!(Opening::default().ended().await, late);
        assert_eq!(opened_at.elapsed(), FIRST_FRAME_MAX);
        let opening = Opening::default();
        opening.begin();
        let still_open = timeout(10 * FIRST_FRAME_MAX, opening.ended()).await;
        assert!(still_open.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_can_end_without_a_close_frame() {
        let opening = Opening::default();
        opening.end(Ended::Gone);
        opening.close(CloseReason::Busy);
        assert_eq!(opening.ended().await, Ended::Gone);
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_reason_closes_a_socket() {
        for has_begun in [false, true] {
            let opening = Opening::default();
            if has_begun {
                opening.begin();
            }
            let closing = async {
                sleep(FIRST_FRAME_MAX / 2).await;
                opening.close(CloseReason::Busy);
                opening.close(CloseReason::TooSlow);
            };
            let (ended, ()) = tokio::join!(opening.ended(), closing);
            assert_eq!(ended, Ended::Closed(CloseReason::Busy));
        }
    }
}
