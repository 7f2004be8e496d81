//! The buffer in which a socket or stream assembles its next write.
//!
//! The kernel or hyper copies the bytes a moment later, so all sockets and streams of a worker
//! share one buffer. A buffer per socket would grow with each batch, be copied several times, and
//! cost more than the frames.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

use super::bounds::PRICES_BYTES_GOAL;
use super::subscriptions::TakenFrame;

/// The capacity above which a buffer is not kept for reuse, in bytes.
const SPARE_BYTES_MAX: usize = 2 * PRICES_BYTES_GOAL;

thread_local! {
    static SPARE: Cell<Buffers> =
        const { Cell::new(Buffers { bytes: Vec::new(), frames: Vec::new() }) };
}

/// The bytes to write next, initially empty. Must be dropped before waiting for a peer, so that
/// other sockets on the thread can use the buffer.
pub(super) struct Batch(Buffers);

#[derive(Default)]
struct Buffers {
    bytes: Vec<u8>,
    /// The price frames that can be put back, in order, each with its offset in the batch.
    frames: Vec<(usize, TakenFrame)>,
}

impl Batch {
    /// Creates an empty batch, in this thread's spare buffers if they are free.
    pub(super) fn new() -> Self {
        Self(SPARE.take())
    }

    /// Moves these bytes to the end of the batch, and frees their buffer.
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>) {
        if !bytes.is_empty() {
            self.extend_from_slice(bytes);
            *bytes = Vec::new();
        }
    }

    /// Marks the bytes added from here on, up to the next call, as this frame.
    pub(super) fn begin_frame(&mut self, frame: TakenFrame) {
        self.0.frames.push((self.0.bytes.len(), frame));
    }

    /// Whether the batch still has a frame that could be put back.
    pub(super) fn has_frames(&self) -> bool {
        !self.0.frames.is_empty()
    }

    /// Removes the last frame from the batch if it starts after the first `taken_bytes`. A frame
    /// that starts exactly there stays.
    pub(super) fn put_back(&mut self, taken_bytes: usize) -> Option<TakenFrame> {
        debug_assert!(taken_bytes <= self.0.bytes.len(), "a peer takes no more than there is");
        let (begin, frame) = self.0.frames.pop_if(|(begin, _)| *begin > taken_bytes)?;
        self.0.bytes.truncate(begin);
        Some(frame)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let (mut own, spare) = (std::mem::take(&mut self.0), SPARE.take());
        own.bytes.clear();
        own.frames.clear();
        let kept_bytes = spare.bytes.capacity()..=SPARE_BYTES_MAX;
        // Of two batches alive at once, the thread keeps the larger buffer that is not above the
        // maximum.
        SPARE.set(if kept_bytes.contains(&own.bytes.capacity()) { own } else { spare });
    }
}

impl Deref for Batch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0.bytes
    }
}

impl DerefMut for Batch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0.bytes
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
        // The buffer is too large to be kept.
        drop(second);
        assert_eq!(place(&Batch::new()), first_place);
    }
}
