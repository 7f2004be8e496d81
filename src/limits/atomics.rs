//! The atomics of this module, in one place so that a build with `--cfg paperbourse_loom` can put
//! the model checker's in their stead.

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use ::loom::sync::atomic::{AtomicU64, Ordering};
