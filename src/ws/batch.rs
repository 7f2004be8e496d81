//! Where a socket or stream puts together what it writes next.
//!
//! The kernel or hyper has a copy of it a moment later, so the sockets and streams of a worker
//! share one buffer. A buffer of its own would grow with each batch, be copied several times, and
//! cost more than the frames.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

/// A buffer that has grown beyond this is not kept.
const SPARE_BYTES_MAX: usize = 64 * 1024;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What is written next, empty at first. To be dropped before waiting for a peer.
pub(super) struct Batch(Vec<u8>);

impl Batch {
    /// An empty batch, in the buffer of this thread if nobody has it.
    pub(super) fn new() -> Self {
        Self(SPARE.take())
    }

    /// Moves these bytes into the batch, and frees their buffer.
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() {
            self.0.extend_from_slice(bytes);
            *bytes = Vec::new();
        }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let (mut own, spare) = (std::mem::take(&mut self.0), SPARE.take());
        own.clear();
        let is_kept = (spare.capacity()..=SPARE_BYTES_MAX).contains(&own.capacity());
        SPARE.set(if is_kept { own } else { spare });
    }
}

impl Deref for Batch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Batch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_thread_take_turns_with_one_buffer() {
        let place = |batch: &Batch| (batch.as_ptr(), batch.capacity());
        let mut first = Batch::new();
        first.extend_from_slice(&[1; 1_000]);
        let (first_place, mut second) = (place(&first), Batch::new());
        assert_eq!(second.capacity(), 0);
        drop(first);
        let third = Batch::new();
        assert_eq!((place(&third), third.len()), (first_place, 0));
        let mut replies = vec![2; SPARE_BYTES_MAX + 1];
        second.take(&mut replies);
        assert_eq!((second.len(), replies.capacity()), (SPARE_BYTES_MAX + 1, 0));
        drop(third);
        // Too large to be kept.
        drop(second);
        assert_eq!(place(&Batch::new()), first_place);
    }
}
