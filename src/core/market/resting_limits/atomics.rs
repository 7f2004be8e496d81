//! The atomics that the interest uses, in one place so that a build with `--cfg paperbourse_loom`
//! can swap in the model checker's versions.

#[cfg(not(paperbourse_loom))]
pub(super) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(paperbourse_loom)]
pub(super) use ::loom::sync::atomic::{AtomicU32, Ordering};
