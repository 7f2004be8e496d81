//! Several futures in one task, each polled only when it was woken itself.
//!
//! A socket's task reads, writes and watches the clock. Nearly all its wakes are for the writer. To
//! poll the others then would touch their state, which is in no cache where there are thousands of
//! sockets, and register with the socket and the clock again.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;

/// The wakers of `N` futures.
pub(super) struct Parts<const N: usize> {
    woken: Arc<Mutex<Woken>>,
    wakers: [Waker; N],
}

/// Which futures were woken, and the task that polls them.
#[derive(Default)]
struct Woken {
    parts: u8,
    task: Option<Waker>,
}

struct PartWaker {
    woken: Arc<Mutex<Woken>>,
    part: u8,
}

impl<const N: usize> Parts<N> {
    pub(super) fn new() -> Self {
        const { assert!(N <= u8::BITS as usize, "each part needs a bit") }
        let woken = Arc::<Mutex<Woken>>::default();
        let waker = |index: usize| {
            let (woken, part) = (woken.clone(), 1_u8 << index);
            Waker::from(Arc::new(PartWaker { woken, part }))
        };
        let wakers = std::array::from_fn(waker);
        Self { woken, wakers }
    }

    /// Runs the futures until one of them is ready, in the given order where several are. A future
    /// that goes on in a later call keeps its place: it may have kept the waker of that place.
    pub(super) async fn first_of<T>(
        &self,
        mut futures: [Pin<&mut (dyn Future<Output = T> + Send)>; N],
    ) -> T {
        self.woken.lock().parts = u8::MAX;
        poll_fn(|context| {
            // Before the polls: a wake that comes meanwhile counts for the next one.
            let woken = self.woken.lock().take(context.waker());
            for (index, (future, waker)) in futures.iter_mut().zip(&self.wakers).enumerate() {
                if woken & 1 << index != 0
                    && let Poll::Ready(output) =
                        future.as_mut().poll(&mut Context::from_waker(waker))
                {
                    return Poll::Ready(output);
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl Woken {
    /// Takes which futures were woken. From now on, this wakes the task.
    fn take(&mut self, task: &Waker) -> u8 {
        if !self.task.as_ref().is_some_and(|known| known.will_wake(task)) {
            self.task = Some(task.clone());
        }
        std::mem::take(&mut self.parts)
    }
}

impl Wake for PartWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut woken = self.woken.lock();
        woken.parts |= self.part;
        if let Some(task) = &woken.task {
            task.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::pending;
    use std::pin::pin;
    use std::sync::atomic::{AtomicU8, Ordering};

    use tokio::sync::Notify;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn only_what_was_woken_is_polled() {
        let parts = Parts::<2>::new();
        let notifies = [Notify::new(), Notify::new()];
        let polls = [const { AtomicU8::new(0) }; 2];
        // Each is ready once it was notified twice.
        let part = |index: usize| {
            let notifies = &notifies;
            let mut waiting = Box::pin(async move {
                notifies[index].notified().await;
                notifies[index].notified().await;
            });
            let count = &polls[index];
            poll_fn(move |context| {
                count.fetch_add(1, Ordering::Relaxed);
                waiting.as_mut().poll(context).map(|()| index)
            })
        };
        let (first, second) = (pin!(part(0)), pin!(part(1)));
        let is_over = Cell::new(None);
        let running = async { is_over.set(Some(parts.first_of([first, second]).await)) };
        let seen = || [0, 1].map(|index| polls[index].load(Ordering::Relaxed));
        let notifying = async {
            yield_now().await;
            assert_eq!(seen(), [1, 1]);
            for (index, polls, ready) in
                [(1, [1, 2], None), (0, [2, 2], None), (1, [2, 3], Some(1))]
            {
                notifies[index].notify_one();
                // The other side may run after this one.
                yield_now().await;
                yield_now().await;
                assert_eq!((seen(), is_over.get()), (polls, ready));
            }
        };
        tokio::join!(running, notifying);
    }

    #[tokio::test]
    async fn every_part_is_polled_when_others_run() {
        let parts = Parts::<2>::new();
        let ready = || std::future::ready(7);
        assert_eq!(parts.first_of([pin!(pending()), pin!(ready())]).await, 7);
        let mut kept = pin!(async {
            yield_now().await;
            8
        });
        assert_eq!(parts.first_of([kept.as_mut(), pin!(ready())]).await, 7);
        assert_eq!(parts.first_of([kept, pin!(pending())]).await, 8);
    }
}
