//! Sockets that open, follow some markets and close, at a fixed rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, LocalSet};

use crate::setup::Target;
use crate::socket::Socket;

/// Maximum number of open sockets. Beyond it, no socket is opened until one has closed.
const OPEN_MAX: usize = 200;

/// Time between two checks of what is due.
const TICK: Duration = Duration::from_millis(1);

/// A thread that opens and closes sockets until it is stopped.
pub(super) struct Churn {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<u64>>,
}

impl Churn {
    /// Starts opening this many sockets per second.
    pub(super) fn start(target: &Target, markets: &[String], per_second: u32) -> Self {
        let is_over = Arc::new(AtomicBool::new(per_second == 0));
        let (address, key, markets) = (target.address, target.keys[0].clone(), markets.to_vec());
        let is_ended = is_over.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let come_and_go = async {
                let (mut count, mut open) = (0, JoinSet::new());
                let began = Instant::now();
                while !is_ended.load(Ordering::Relaxed) {
                    // Several are due within one tick of the timer.
                    while !is_ended.load(Ordering::Relaxed)
                        && began.elapsed() >= Duration::from_secs(count) / per_second
                    {
                        let (key, markets) = (key.clone(), markets.clone());
                        open.spawn_local(async move {
                            let mut socket = Socket::open(address, "/v1/ws/prices", &key).await?;
                            socket.subscribe(&markets).await
                        });
                        count += 1;
                        while open.len() >= OPEN_MAX
                            && let Some(ended) = open.join_next().await
                        {
                            ended??;
                        }
                    }
                    tokio::time::sleep(TICK).await;
                }
                while let Some(ended) = open.join_next().await {
                    ended??;
                }
                Ok(count)
            };
            LocalSet::new().block_on(&runtime, come_and_go)
        });
        Self { is_over, thread }
    }

    /// Stops the thread. Returns the number of sockets that were opened and closed.
    pub(super) fn end(self) -> anyhow::Result<u64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().expect("the thread of the churn does not panic")
    }
}
