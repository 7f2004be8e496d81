//! The bare loop to which the price sockets are compared: whenever markets change, it writes their
//! frames to all sockets, one after the other. It has no subscriptions and no other work.
//!
//! If it cannot keep up, it conflates like any such loop: a market that changed several times since
//! the last turn gets one frame in the next, and a socket that has not taken the last turn misses
//! the next. Its timer has a resolution of a millisecond.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local, yield_now};
use tokio::time::{Instant, sleep_until};

use crate::canned::shared_listener;
use crate::plan::Plan;

/// The answer to a client that requests a socket.
const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
    connection: upgrade\r\n\r\n";

/// Interval at which a worker checks whether all sockets are open.
const OPEN_INTERVAL: Duration = Duration::from_millis(10);

/// The sockets of one worker.
type Sockets = Rc<RefCell<Vec<Socket>>>;

struct Socket {
    stream: TcpStream,
    /// The rest of a turn that the socket has not taken.
    unwritten: Vec<u8>,
}

impl Plan {
    /// Binds one listener per worker, and serves each on its own thread. Calls `bound` with the
    /// address.
    pub(crate) fn serve(
        self,
        mut address: SocketAddr,
        worker_count: usize,
        bound: impl FnOnce(SocketAddr) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut workers = Vec::with_capacity(worker_count);
        for _ in 0..worker_count {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let listener = {
                let _entered = runtime.enter();
                shared_listener(address)?
            };
            address = listener.local_addr()?;
            workers.push((runtime, listener));
        }
        bound(address)?;
        let open_count: Arc<AtomicUsize> = Arc::default();
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(runtime, listener)| {
                let (plan, open_count) = (self.clone(), open_count.clone());
                std::thread::spawn(move || {
                    let sockets = Sockets::default();
                    let serving = async {
                        spawn_local(accept(listener, sockets.clone(), open_count.clone()));
                        while open_count.load(Ordering::Relaxed) < plan.socket_count {
                            tokio::time::sleep(OPEN_INTERVAL).await;
                        }
                        plan.write(&sockets).await;
                    };
                    LocalSet::new().block_on(&runtime, serving);
                })
            })
            .collect();
        for thread in threads {
            // A worker ends only by a panic, which has been reported.
            let _ = thread.join();
        }
        Ok(())
    }

    /// Writes the frames of changed markets, forever.
    async fn write(&self, sockets: &Sockets) {
        let began = Instant::now();
        let began_ms = now_ms();
        let mut due = self.due().peekable();
        while let Some(&(next_ms, _)) = due.peek() {
            // A timer may be late, so changes found after a sleep count from the wake-up. Changes
            // found after a turn have waited for it, so they count from their own times.
            let has_slept = next_ms > now_ms().saturating_sub(began_ms);
            sleep_until(began + Duration::from_millis(next_ms)).await;
            let elapsed_ms = now_ms().saturating_sub(began_ms);
            let since_ms = if has_slept { elapsed_ms } else { 0 };
            // The newest change of each market, and the number of its changes.
            let mut changed: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
            while let Some((at_ms, market)) = due.next_if(|&(at_ms, _)| at_ms <= elapsed_ms) {
                let (newest_ms, count) = changed.entry(market).or_default();
                (*newest_ms, *count) = (at_ms, *count + 1);
            }
            let frames = changed.into_iter().map(|(market, (at_ms, count))| {
                self.frame(market, began_ms + at_ms.max(since_ms), elapsed_ms, count > 1)
            });
            let turn: Vec<u8> = frames.flatten().collect();
            sockets.borrow_mut().retain_mut(|socket| socket.write(&turn));
            yield_now().await;
        }
    }

    /// Returns all changes, repeated forever.
    fn due(&self) -> impl Iterator<Item = (u64, u32)> {
        (0_u64..).flat_map(move |cycle| {
            self.changes.iter().map(move |&(at_ms, market)| (cycle * self.cycle_ms + at_ms, market))
        })
    }

    /// Builds a frame that begins like one of the server's, padded to the length.
    fn frame(&self, market: u32, emitted_ms: u64, seq: u64, is_conflated: bool) -> Vec<u8> {
        let mut text = format!(
            "{{\"type\":\"price\",\"market_id\":\"0x{market:064x}\",\"condition_id\":\
             \"0x{market:064x}\",\"seq\":{seq},\"emit_ts_ms\":{emitted_ms},\"x\":\""
        );
        let end = if is_conflated { "\",\"conflated\":true}" } else { "\"}" };
        let payload_bytes = self.frame_bytes.clamp(300, 60_000) - 4;
        let padding = (payload_bytes - end.len()).saturating_sub(text.len());
        text.extend(std::iter::repeat_n('x', padding));
        text.push_str(end);
        let length = u16::try_from(text.len()).expect("the length was clamped");
        [&[0x81, 126][..], &length.to_be_bytes(), text.as_bytes()].concat()
    }
}

impl Socket {
    /// Writes a turn, or the rest of the last one. Returns whether the client is still connected.
    fn write(&mut self, turn: &[u8]) -> bool {
        let rest = std::mem::take(&mut self.unwritten);
        let bytes = if rest.is_empty() { turn } else { &rest };
        match self.stream.try_write(bytes) {
            Ok(count) => self.unwritten = bytes[count..].to_vec(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.unwritten = rest,
            Err(_) => return false,
        }
        true
    }
}

async fn accept(listener: TcpListener, sockets: Sockets, open_count: Arc<AtomicUsize>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (sockets, open_count) = (sockets.clone(), open_count.clone());
        spawn_local(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.is_ok_and(|len| len == 0) {
                    return;
                }
            }
            if stream.set_nodelay(true).is_ok() && stream.write_all(UPGRADED).await.is_ok() {
                sockets.borrow_mut().push(Socket { stream, unwritten: Vec::new() });
                open_count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

fn now_ms() -> u64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}
