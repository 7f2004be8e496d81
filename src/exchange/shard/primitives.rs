//! The atomics of the queue and the mutex of the tickets, or loom's versions of them.

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};

pub(super) use paperbourse_store::journal::primitives::Mutex;
