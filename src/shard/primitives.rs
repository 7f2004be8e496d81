//! The atomics of the queue: the machine's, or the model checker's.

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use loom::sync::atomic::{AtomicUsize, Ordering};
