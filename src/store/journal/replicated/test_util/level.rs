//! A number that tasks wait for, in simulations that can be repeated.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

/// Wakes those who wait in the order in which they came. Tokio's `watch` would wake them in a
/// random one.
#[derive(Default)]
pub struct Level {
    count: AtomicU32,
    changed: Notify,
}

impl Level {
    /// What it is now.
    pub fn get(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// Sets it to what `change` makes of it.
    pub fn change(&self, change: impl Fn(u32) -> u32) {
        self.count.store(change(self.get()), Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits until that is so.
    pub async fn until(&self, is_so: impl Fn(u32) -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so(self.get()) {
                return;
            }
            changed.await;
        }
    }
}
