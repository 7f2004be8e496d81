//! The bare loop that the price sockets are compared with: it writes the same frame to all sockets,
//! at fixed times, and knows nothing of who follows what.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::canned::shared_listener;

/// What a client that asks for a socket is answered.
const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\
    connection: upgrade\r\n\r\n";

/// Frames of this length, at this rate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanOut {
    pub(crate) frame_bytes: usize,
    pub(crate) frames_per_second: f64,
}

type Streams = Rc<RefCell<Vec<Rc<TcpStream>>>>;

impl FanOut {
    /// Binds one socket per worker, and serves them on a thread each. `bound` gets the address.
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
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(runtime, listener)| {
                std::thread::spawn(move || {
                    let streams = Streams::default();
                    let serving = async {
                        spawn_local(accept(listener, streams.clone()));
                        self.write(&streams).await;
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

    /// Writes a frame to every socket at each tick, forever.
    async fn write(self, streams: &Streams) {
        let period = Duration::from_secs_f64(1.0 / self.frames_per_second.max(0.001));
        let mut ticks = interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        loop {
            ticks.tick().await;
            let frame = self.frame();
            // One that does not take a whole frame is slow, or has left.
            let is_taken = |stream: &Rc<TcpStream>| {
                stream.try_write(&frame).is_ok_and(|len| len == frame.len())
            };
            streams.borrow_mut().retain(is_taken);
            tokio::task::yield_now().await;
        }
    }

    /// A frame with prices, padded to the length.
    fn frame(self) -> Vec<u8> {
        let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut text = format!(r#"{{"type":"price","emit_ts_ms":{},"x":""#, elapsed.as_millis());
        let payload_bytes = self.frame_bytes.clamp(200, 60_000) - 4;
        while text.len() < payload_bytes - 2 {
            text.push('x');
        }
        text.push_str("\"}");
        let length = u16::try_from(payload_bytes).expect("the length was clamped");
        [&[0x81, 126][..], &length.to_be_bytes(), text.as_bytes()].concat()
    }
}

async fn accept(listener: TcpListener, streams: Streams) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let streams = streams.clone();
        spawn_local(async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                if stream.read_buf(&mut request).await.is_ok_and(|len| len == 0) {
                    return;
                }
            }
            if stream.set_nodelay(true).is_ok() && stream.write_all(UPGRADED).await.is_ok() {
                streams.borrow_mut().push(Rc::new(stream));
            }
        });
    }
}
