//! The atomics of this module, in one place so that a build with `--cfg paperbourse_loom` can swap
//! in the model checker's.

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use ::loom::sync::atomic::{AtomicU32, Ordering};
