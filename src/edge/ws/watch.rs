//! Checks the sockets of one worker at regular intervals: whether a peer is silent or does not
//! read, whether its credential is still valid, and whether the server is shutting down.
//!
//! One task checks all sockets in turn. With a timer each, ten thousand sockets would wake their
//! tasks 25,000 times a second, nearly always for nothing. This way, a socket's task is woken only
//! if it has something to do.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::close::{CloseReason, Credential};
use super::connection::Ended;

/// Number of sockets checked before the worker's other tasks run. Checking one takes about 0.2 µs.
const SOCKETS_PER_SLICE: usize = 256;

/// The interval between the server's pings.
pub const PING_INTERVAL: Duration = Duration::from_secs(20);

/// How long a peer may send no frame before it is dropped.
pub const SILENCE_MAX: Duration = Duration::from_secs(40);

/// The interval between checks of a socket. It bounds how late a ping can be, and how long a socket
/// outlives its credential: together with [`CLOSE_MAX`](super::connection::CLOSE_MAX), up to a
/// second.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(400);

/// How long a write may make no progress before the socket ends.
pub const WRITE_STALL_MAX: Duration = Duration::from_secs(10);

/// The open sockets of one worker.
#[derive(Default)]
pub struct Watch {
    sockets: Mutex<Sockets>,
    opened: Notify,
}

#[derive(Default)]
struct Sockets {
    /// A socket that has ended stays in the list until it is next checked.
    open: Vec<Weak<Watched>>,
    /// Whether the server is shutting down.
    is_closing: bool,
}

/// A socket under watch. Dropping it ends the watch.
pub(super) struct Watched {
    is_valid: Box<dyn Fn() -> bool + Send + Sync>,
    state: Mutex<State>,
    noticed: Notify,
}

struct State {
    /// When the last frame from the peer was complete.
    heard_at: Instant,
    pinged_at: Instant,
    /// When the peer last took some of the bytes being written; `None` if it takes all at once.
    taken_at: Option<Instant>,
    /// Whether the budget had no room for the bytes that the peer has not read.
    lacks_room: bool,
    notice: Option<Notice>,
}

/// The action that a socket must take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Notice {
    /// Send a ping to the peer.
    Ping,
    /// End the socket.
    End(Ended),
}

impl Watch {
    /// Checks the sockets until the server is shutting down: until `shutdown` is true or its sender
    /// is dropped. Sockets added later are notified of the shutdown at once.
    pub async fn run(&self, mut shutdown: watch::Receiver<bool>) {
        loop {
            let mut next_at = Instant::now() + WATCH_INTERVAL;
            if self.sockets.lock().open.is_empty() {
                // A worker without sockets has no reason to wake up.
                let opened = async {
                    self.opened.notified().await;
                    next_at = Instant::now() + WATCH_INTERVAL;
                };
                tokio::select! {
                    () = opened => {}
                    _ = shutdown.wait_for(|&is_down| is_down) => break,
                }
            }
            if timeout_at(next_at, shutdown.wait_for(|&is_down| is_down)).await.is_ok() {
                break;
            }
            self.look(Watched::look).await;
        }
        self.sockets.lock().is_closing = true;
        self.look(|socket, _| socket.notice(Notice::End(GOING_AWAY))).await;
    }

    /// Starts watching a socket. `is_valid` says whether its credential is still valid.
    pub(super) fn add(&self, is_valid: Box<dyn Fn() -> bool + Send + Sync>) -> Arc<Watched> {
        let now = Instant::now();
        let state = State {
            heard_at: now,
            pinged_at: now,
            taken_at: None,
            lacks_room: false,
            notice: None,
        };
        let socket =
            Arc::new(Watched { is_valid, state: Mutex::new(state), noticed: Notify::new() });
        let mut sockets = self.sockets.lock();
        if sockets.is_closing {
            socket.notice(Notice::End(GOING_AWAY));
        } else {
            sockets.open.push(Arc::downgrade(&socket));
            if sockets.open.len() == 1 {
                self.opened.notify_one();
            }
        }
        drop(sockets);
        socket
    }

    /// Calls `look` for every open socket, and removes ended sockets from the list. Yields to other
    /// tasks after each slice.
    async fn look(&self, look: impl Fn(&Watched, Instant)) {
        let mut index = 0;
        while self.look_at_slice(&mut index, &look) {
            yield_now().await;
        }
    }

    /// Checks the next slice of sockets, from `index`. Returns whether there may be more.
    fn look_at_slice(&self, index: &mut usize, look: impl Fn(&Watched, Instant)) -> bool {
        let now = Instant::now();
        let mut sockets = self.sockets.lock();
        for _ in 0..SOCKETS_PER_SLICE {
            let Some(socket) = sockets.open.get(*index) else { return false };
            if let Some(socket) = socket.upgrade() {
                look(&socket, now);
                *index += 1;
            } else {
                // The last socket takes its place and is checked next.
                sockets.open.swap_remove(*index);
            }
        }
        true
    }
}

const GOING_AWAY: Ended = Ended::Closed(CloseReason::GoingAway);

impl Watched {
    /// Waits for the next action to take.
    pub(super) async fn noticed(&self) -> Notice {
        loop {
            if let Some(notice) = self.state.lock().notice.take() {
                return notice;
            }
            self.noticed.notified().await;
        }
    }

    /// Records that a frame from the peer is complete.
    pub(super) fn note_heard(&self, now: Instant) {
        self.state.lock().heard_at = now;
    }

    /// Records that the peer does not take everything at once, and last took something at this
    /// time.
    pub(super) fn note_taken(&self, now: Instant) {
        self.state.lock().taken_at = Some(now);
    }

    /// Records that the budget has no room for the bytes that the peer has not read.
    pub(super) fn note_lack_of_room(&self) {
        self.state.lock().lacks_room = true;
    }

    /// Records that the peer has taken everything.
    pub(super) fn note_all_taken(&self) {
        let mut state = self.state.lock();
        state.taken_at = None;
        state.lacks_room = false;
    }

    #[cfg(test)]
    pub(super) fn lacks_room(&self) -> bool {
        self.state.lock().lacks_room
    }

    fn look(&self, now: Instant) {
        let notice = if (self.is_valid)() {
            self.state.lock().due(now)
        } else {
            Some(Notice::End(Ended::Closed(CloseReason::BadCredential(Credential::Ended))))
        };
        if let Some(notice) = notice {
            self.notice(notice);
        }
    }

    fn notice(&self, notice: Notice) {
        self.state.lock().notice = Some(notice);
        self.noticed.notify_one();
    }
}

impl State {
    fn due(&mut self, now: Instant) -> Option<Notice> {
        let is_stalled = self.taken_at.is_some_and(|at| now - at >= WRITE_STALL_MAX);
        if now - self.heard_at >= SILENCE_MAX {
            Some(Notice::End(Ended::Silent))
        } else if is_stalled || self.lacks_room {
            Some(Notice::End(Ended::Closed(CloseReason::TooSlow)))
        } else if now - self.pinged_at >= PING_INTERVAL {
            self.pinged_at = now;
            Some(Notice::Ping)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use std::task::{Context, Wake};

    use tokio::time::{advance, sleep, timeout};

    use super::*;

    const BAD_CREDENTIAL: Ended = Ended::Closed(CloseReason::BadCredential(Credential::Ended));

    /// Adds a socket, and returns it with the flag that makes its credential valid.
    fn add(watch: &Watch) -> (Arc<Watched>, Arc<AtomicBool>) {
        let is_valid = Arc::new(AtomicBool::new(true));
        let known = is_valid.clone();
        (watch.add(Box::new(move || known.load(Ordering::Relaxed))), is_valid)
    }

    fn run() -> (Arc<Watch>, watch::Sender<bool>) {
        let watch: Arc<Watch> = Arc::default();
        let (shutdown, is_down) = watch::channel(false);
        let running = watch.clone();
        tokio::spawn(async move { running.run(is_down).await });
        (watch, shutdown)
    }

    /// This holds whichever sockets have closed before, and wherever a socket is in the list.
    #[tokio::test(start_paused = true)]
    async fn every_socket_is_looked_at_within_the_interval() {
        let (watch, _shutdown) = run();
        let mut sockets: Vec<_> = (0..3 * SOCKETS_PER_SLICE).map(|_| add(&watch)).collect();
        // All of this happens before the first ping.
        for _ in 0..8 {
            sockets.retain(|(_, is_valid)| is_valid.load(Ordering::Relaxed));
            sockets.remove(sockets.len() / 2);
            let last = sockets.len() - 1;
            for index in [0, 1, last / 3, last - 1, last] {
                let (socket, is_valid) = &sockets[index];
                is_valid.store(false, Ordering::Relaxed);
                // The two clocks may tick in either order.
                let in_time = WATCH_INTERVAL + Duration::from_millis(1);
                let noticed = timeout(in_time, socket.noticed()).await;
                assert_eq!(noticed, Ok(Notice::End(BAD_CREDENTIAL)), "socket {index} of {last}");
            }
            assert!(watch.sockets.lock().open.len() <= sockets.len() + 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_hears_only_of_what_it_has_to_do() {
        let (watch, _shutdown) = run();
        let (socket, _) = add(&watch);
        let opened_at = Instant::now();
        assert_eq!(socket.noticed().await, Notice::Ping);
        assert_eq!(opened_at.elapsed(), PING_INTERVAL);
        socket.note_heard(Instant::now());
        socket.note_taken(Instant::now());
        assert_eq!(socket.noticed().await, Notice::End(Ended::Closed(CloseReason::TooSlow)));
        assert_eq!(opened_at.elapsed(), PING_INTERVAL + WRITE_STALL_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_is_told_at_once_to_all_sockets_and_to_later_ones() {
        let (watch, shutdown) = run();
        let (early, _) = add(&watch);
        sleep(WATCH_INTERVAL / 4).await;
        let asked_at = Instant::now();
        shutdown.send(true).unwrap();
        assert_eq!(early.noticed().await, Notice::End(GOING_AWAY));
        assert_eq!(add(&watch).0.noticed().await, Notice::End(GOING_AWAY));
        assert_eq!(asked_at.elapsed(), Duration::ZERO);
    }

    /// Counts the wake-ups of a task.
    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_without_sockets_sleeps() {
        let watch = Watch::default();
        let (_shutdown, is_down) = watch::channel(false);
        let wakes: Arc<Wakes> = Arc::default();
        let waker = wakes.clone().into();
        let mut running = pin!(watch.run(is_down));
        let mut run = || running.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        assert!(run());
        advance(WATCH_INTERVAL * 100).await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
        let socket = add(&watch);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert!(run());
        for count in 2..5 {
            advance(WATCH_INTERVAL).await;
            assert_eq!(wakes.0.load(Ordering::Relaxed), count);
            assert!(run());
        }
        drop(socket);
        advance(WATCH_INTERVAL).await;
        assert!(run());
        advance(WATCH_INTERVAL * 100).await;
        assert_eq!(wakes.0.load(Ordering::Relaxed), 5);
    }
}
